"""Determinism of runs: same scenario and seed, same bytes; added devices do not change other rows."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from examples import examples
from hypothesis import example, given
from hypothesis import strategies as st

import mudkit
from mudkit import Lab
from mudkit.fleet.recorder import TABLES
from mudkit.sources.outages import Outages
from mudkit.sources.replay import Replay
from mudkit.sources.waypoint import RandomWaypoint
from mudkit.sources.workloads import Every, Moments, Poisson, TripStarts, WakingReads
from mudkit.systems.store_and_forward import Client, Relay
from mudkit.trace.schema import FATES, STATUSES, timestamps
from mudkit.worlds import Inboxes

S = 1_000_000
MINUTE = 60 * S
MANGLED = {"loss_share": 0.1, "repeat_share": 0.1, "delay_share": 0.2, "delay_s": 20.0}
OFTEN = Outages(0.3, per_day=240)

SCENARIO = Inboxes(
    devices=8, hours=3.0, link="umts_3g", outage=OFTEN, mobility="commute", battery_j=1500.0, receivers=2,
    items=Poisson(per_day=100), expires_s=1200.0, reads=WakingReads(per_day=60), queries=Poisson(per_day=30), **MANGLED,
)  # fmt: skip


class Town:
    """Lab with a relay and groups of devices; only devices of the same circle message each other."""

    def __init__(self, seed: int = 7, mangled: Any = MANGLED) -> None:
        self.lab = Lab(seed)
        self.lab.faults.messages(**mangled)
        self.relay = Relay(self.lab)

    def add(self, prefix: str, *circles: int, **options: Any) -> list[str]:
        """Add a fleet whose devices send, read and query; return the names of its first circle."""
        names = [device.name for device in self.lab.fleet(sum(circles), prefix=prefix, **options)]
        first = 0
        for size in circles:
            self._schedule_work(names[first : first + size], 3 * 60 * MINUTE)
            first += size
        return names[: circles[0]]

    def inject_faults(self, name: str, minute: int) -> None:
        """Schedule every kind of fault for a device, over 25 minutes."""
        faults = self.lab.faults
        for after, fault, *arguments in (
            (0, faults.cut, name, 2.0),
            (5, faults.kill, name),
            (7, faults.restart, name),
            (9, faults.change_address, name),
            (11, faults.change_network, name, "edge"),
            (14, faults.switch_off, name),
            (16, faults.switch_on, name),
            (18, faults.cut, name),
            (25, faults.mend, name),
        ):
            self.lab.world.schedule_action(
                (minute + after) * MINUTE, lambda _, fault=fault, parameters=arguments: fault(*parameters)
            )

    def run(self, minutes: int) -> Lab:
        self.lab.run(minutes=minutes)
        return self.lab

    def _schedule_work(self, names: list[str], length_us: int) -> None:
        lab, clients = self.lab, {name: Client(self.lab.devices[name], self.relay) for name in names}
        written = Counter(names)

        def write(row: int) -> None:
            name = names[row]
            receiver = names[(row + written[name] % len(names)) % len(names)]
            clients[name].send(receiver, "x" * (4000 * (written[name] % 9)), f"{name} {written[name]}")
            written[name] += 1

        for workload, do in (
            (Poisson(per_day=400), write),
            (Poisson(per_day=100), lambda row: clients[names[row]].read()),
            (
                Every(interval_s=600.0),
                lambda row: lab.trace.record_read(lab.devices[names[row]], 20.0, 7200.0),
            ),
        ):
            stream = f"{type(workload).__name__} {workload!r}"
            now_us = lab.world.now_us
            moments = workload.moments(lab.world.seed, stream, names, lab.start_us + now_us, length_us)
            for row, t_us in zip(*moments, strict=True):
                lab.world.schedule_action(now_us + int(t_us), do, int(row))


def run_everything(seed: int = 7) -> Lab:
    """Run a lab with every feature in use."""
    town = Town(seed)
    town.add("home", 5, mobility="commute", link="lte", outage=OFTEN, battery_j=3000.0, every_s=30.0)
    town.add(
        "walk",
        4,
        mobility="waypoint",
        link="umts_3g",
        outage=Outages(0.2, 100, "lognormal", 2.0),
        battery_j=700.0,
    )
    town.add("still", 2, link="wifi", outage=Outages(0.5, 200, "fixed"))
    town.lab.device("shelf", "edge", at=(30.27, -97.74))
    for number, name in enumerate(("home-00001", "walk-00000", "still-00001")):
        town.inject_faults(name, 30 + 10 * number)
    town.lab.world.schedule_action(
        80 * MINUTE, lambda _: town.lab.faults.kill("relay", at="accepted, not in the queue")
    )
    town.lab.world.schedule_action(90 * MINUTE, lambda _: town.lab.faults.restart("relay"))
    return town.run(150)


def run_scenario(seed: int = 7) -> Lab:
    """Run an experiment with every feature in use."""
    return SCENARIO.run(seed).lab


RUNS = {"everything": run_everything, "scenario": run_scenario}
OF_OTHER_WORLDS = {"not let in", "queue full"}
"""Fates of labs with a transport, and with servers whose events take time: tests/unit/fleet has these."""


def sums(lab: Lab) -> dict[str, str]:
    """Return the checksums of all files of a lab's trace."""
    with tempfile.TemporaryDirectory() as folder:
        path = lab.trace.to_parquet(Path(folder) / "trace")
        files = sorted(file for file in path.rglob("*") if file.is_file())
        return {str(f.relative_to(path)): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}


@pytest.fixture(scope="module")
def runs() -> dict[str, Lab]:
    return {name: make() for name, make in RUNS.items()}


@pytest.fixture(scope="module")
def known(runs: dict[str, Lab]) -> dict[str, dict[str, str]]:
    return {name: sums(lab) for name, lab in runs.items()}


def test_runs_contain_every_table_fate_and_incident(runs: dict[str, Lab]) -> None:
    """Guard the other tests against runs that cover too little."""
    for name, lab in runs.items():
        tables = {table: lab.trace.table(table) for table in TABLES}
        few = {table for table, rows in tables.items() if len(rows) < 10}
        assert few == {"usage"}, name  # which a cloud that learns has alone
        fates = set(tables["messages"]["fate"].to_pylist())
        assert fates >= {*FATES} - {"under way", "nobody there"} - OF_OTHER_WORLDS, name
        assert any(tables["transfers"]["cut"].to_pylist())
        assert {"link down", "link up", "off"} <= set(tables["incidents"]["incident"].to_pylist())
        assert "battery empty" in tables["incidents"]["detail"].to_pylist()
    tables = {table: runs["everything"].trace.table(table) for table in TABLES}
    assert set(tables["messages"]["fate"].to_pylist()) >= {*FATES} - {"under way"} - OF_OTHER_WORLDS
    assert {"killed", "restarted", "moved", "on"} <= set(tables["incidents"]["incident"].to_pylist())
    assert set(tables["operations"]["status"].to_pylist()) == {"ok", "open"}
    statuses = set(runs["scenario"].trace.table("deliveries")["status"].to_pylist())
    assert statuses == {*STATUSES} - {"refused"}


@pytest.mark.soak
def test_run_is_identical_in_the_same_process(known: dict[str, dict[str, str]]) -> None:
    for name, make in RUNS.items():
        assert sums(make()) == known[name]


@pytest.mark.soak
def test_another_seed_gives_another_run(runs: dict[str, Lab], known: dict[str, dict[str, str]]) -> None:
    for name, make in RUNS.items():
        lab = make(8)
        incidents = [
            {
                (row["device"], row["ts"])
                for row in run.trace.table("incidents").to_pylist()
                if row["ts"].microsecond
            }
            for run in (lab, runs[name])
        ]
        assert not incidents[0] & incidents[1]  # planned incidents are at whole minutes
        other = sums(lab)
        assert {file.split("/")[0] for file in other} >= {*TABLES, "trace.json"}
        assert not set(other.values()) & set(known[name].values())


ANOTHER_DAY = """
    import datetime, time
    import hypothesis, pandas, pyarrow.dataset, pytest  # they were there before the day changed
    class Later(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return super().now(tz) + datetime.timedelta(days=333, hours=7.77)
        @classmethod
        def utcnow(cls):
            return cls.now(datetime.UTC).replace(tzinfo=None)
        @classmethod
        def today(cls):
            return cls.now()
    datetime.datetime = Later
    for name in ("time", "monotonic", "perf_counter"):
        setattr(time, name, lambda was=getattr(time, name): was() + 333 * 86_400)
        setattr(time, name + "_ns", lambda was=getattr(time, name + "_ns"): was() + 333 * 86_400 * 10**9)
    """
WRITE = """
    import json, sys
    sys.path.insert(0, {folder!r})
    import test_runs
    print(json.dumps({{name: test_runs.sums(make()) for name, make in test_runs.RUNS.items()}}))
    """


@pytest.mark.soak
def test_run_is_identical_in_other_processes(known: dict[str, dict[str, str]], tmp_path: Path) -> None:
    """Use other hash seeds, another folder, another time zone, and another day."""
    write = textwrap.dedent(WRITE.format(folder=str(Path(__file__).parent)))
    processes = []
    for number, (variables, before) in enumerate(
        [
            ({"PYTHONHASHSEED": "0"}, ""),
            ({"PYTHONHASHSEED": "1", "TZ": "Pacific/Auckland", "LC_ALL": "C"}, textwrap.dedent(ANOTHER_DAY)),
            ({"PYTHONHASHSEED": "random", "OMP_NUM_THREADS": "1"}, ""),
        ]
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        command = [sys.executable, "-B", "-c", before + write]
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1] / "support")} | variables
        processes.append(
            subprocess.Popen(command, env=environment, cwd=folder, stdout=subprocess.PIPE, text=True)
        )
    try:
        outputs = [process.communicate(timeout=300)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert [json.loads(output) for output in outputs] == [known] * 3
    assert [list((tmp_path / str(number)).iterdir()) for number in range(3)] == [[]] * 3  # no files are left


def test_replay_is_recorded_by_content() -> None:
    """Compare two models of one table, at different memory addresses."""
    table = pa.table(
        {
            "device": ["a", "a"],
            "ts": timestamps(np.array([0, 7200 * S])),
            "lat": pa.array([1.0, 1.1]),
            "lon": pa.array([2.0, 2.1]),
        }
    )
    models = [Replay(table), Replay(table)]
    result = []
    for model in models:
        lab = Lab(3)
        lab.fleet(1, mobility=model)
        lab.run(minutes=5)
        result.append(sums(lab))
    assert result[0] == result[1]


# -- no clock, and no random numbers but those of the named streams

CLOCKS = {
    "time": {"time", "time_ns", "localtime", "gmtime", "ctime", "strftime", "perf_counter", "perf_counter_ns", "sleep"},
    "datetime": {"now", "utcnow", "today"},
    "date": {"today"},
    "os": {"urandom", "getrandom"},
    "uuid": {"uuid1", "uuid4"},
}  # fmt: skip
ELSEWHERE = {"random", "secrets"}


def test_simulation_uses_no_clock_and_no_global_random_source() -> None:
    """Allow ``time.monotonic``, which yields to the notebook between two events."""
    package, result = Path(mudkit.__file__).parent, []
    files = [package / name for name in ("lab.py", "events.py")]
    for folder in ("experiment", "fleet", "sources", "systems", "worlds"):
        files += sorted((package / folder).rglob("*.py"))
    files.remove(package / "worlds" / "matching.py")  # measures times, runs no lab
    assert len(files) > 30
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names: list[str] = []
            if isinstance(node, ast.Attribute):
                owner = ast.unparse(node.value).split(".")
                draws = owner[-1] in ("np", "numpy") and node.attr == "random"
                names = [ast.unparse(node)] if draws or node.attr in CLOCKS.get(owner[-1], ()) else []
            elif isinstance(node, ast.ImportFrom):
                given = {alias.name for alias in node.names}
                names = sorted(given & CLOCKS.get(node.module or "", set()) - {"datetime"})
                names += [node.module] if node.module in ELSEWHERE else []
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names if alias.name in ELSEWHERE]
            result += [f"{file.relative_to(package)}:{getattr(node, 'lineno', 0)}: {name}" for name in names]
    assert result == []


# -- added devices

OWNERS = {
    "positions": ("device",),
    "reads": ("device",),
    "links": ("device",),
    "incidents": ("device",),
    "messages": ("source", "target"),
    "transfers": ("device",),
    "operations": ("client",),
    "deliveries": ("receiver",),
    "usage": ("device",),
    "bill": ("device",),
}


def list_rows(lab: Lab, names: list[str]) -> dict[str, list[Any]]:
    """Return the sorted rows of each table that concern some devices.

    Nonces are left out: the relay draws them for all devices from one stream.
    """
    device_names, result = {*names}, {}
    for table, owners in OWNERS.items():
        rows = lab.trace.table(table).to_pylist()
        result[table] = sorted(
            re.sub(r'"nonce":"\w+"', "", str(row))
            for row in rows
            if device_names & {row[owner] for owner in owners}
        )
    return result


def assert_same(before: dict[str, list[Any]], after: dict[str, list[Any]], tables: Any = OWNERS) -> None:
    for table in tables:  # one at a time, to keep differences short
        was, now = Counter(before[table]), Counter(after[table])
        assert (table, sorted(was - now)[:3], sorted(now - was)[:3]) == (table, [], [])


def test_owners_cover_all_tables() -> None:
    assert set(OWNERS) == set(TABLES)


shapes = st.fixed_dictionaries(
    {
        "old": st.integers(1, 4),
        "new": st.integers(1, 3),
        "how": st.sampled_from(["same fleet", "after", "before", "later"]),
        "mobility": st.sampled_from(["commute", "waypoint", None]),
        "link": st.sampled_from(["lte", "umts_3g", "edge"]),
        "outage": st.sampled_from([0.0, OFTEN, Outages(0.4, 300, "fixed")]),
        "battery_j": st.sampled_from([None, 150.0]),
        "mangled": st.sampled_from([{}, MANGLED]),
    }
)
FULL = {"mobility": "commute", "link": "umts_3g", "outage": OFTEN, "battery_j": 150.0, "mangled": MANGLED}


@examples(15)
@given(shape=shapes)
@example(shape={"old": 3, "new": 2, "how": "same fleet", **FULL})
@example(shape={"old": 3, "new": 2, "how": "before", **FULL})
@example(shape={"old": 3, "new": 2, "how": "after", **FULL})
@example(shape={"old": 3, "new": 2, "how": "later", **FULL})
def test_added_devices_do_not_change_other_devices(shape: dict[str, Any]) -> None:
    """Add devices that share only the relay with the others."""
    old, new, how = shape["old"], shape["new"], shape["how"]
    options = {name: shape[name] for name in ("mobility", "link", "outage", "battery_j")}
    others = {"mobility": "waypoint", "link": "edge", "outage": Outages(0.2, 400), "battery_j": 100.0}

    def run(with_new: bool) -> tuple[Lab, list[str]]:
        town = Town(5, shape["mangled"])
        if with_new and how == "before":
            town.add("new", new, **others)
        names = town.add("old", *([old, new] if with_new and how == "same fleet" else [old]), **options)
        town.inject_faults(names[0], 3)
        if with_new and how == "after":
            town.inject_faults(town.add("new", new, **others)[0], 2)
        if how == "later":
            town.run(20)
            if with_new:
                town.add("new", new, **{**others, "outage": 0.0})
        return town.run(20 if how == "later" else 40), names

    (alone, names), (together, _) = run(False), run(True)
    assert len(together.devices) == len(alone.devices) + new
    assert_same(list_rows(alone, names), list_rows(together, names))
    if shape["mobility"]:
        assert len(alone.trace.table("positions")) == old * 41


def test_order_of_groups_does_not_change_rows() -> None:
    groups = {
        "home": {"mobility": "commute", "outage": OFTEN, "battery_j": 200.0},
        "walk": {"mobility": RandomWaypoint(), "link": "edge", "outage": Outages(0.3, 300, "lognormal")},
        "still": {"link": "wifi"},
    }

    def run(order: list[str]) -> dict[str, list[Any]]:
        town = Town()
        names = [name for prefix in order for name in town.add(prefix, 3, **groups[prefix])]
        town.inject_faults("walk-00002", 3)
        return list_rows(town.run(40), sorted(names))

    assert_same(run(["home", "walk", "still"]), run(["still", "walk", "home"]))


def test_names_of_a_group_do_not_depend_on_other_groups() -> None:
    result = []
    for order in (["a", "a-b"], ["a-b", "a"]):
        lab = Lab()
        result.append(sorted(device.name for prefix in order for device in lab.fleet(2, prefix=prefix)))
    assert result == [["a-00000", "a-00001", "a-b-00000", "a-b-00001"]] * 2


def test_longer_run_begins_with_the_shorter_one() -> None:
    def run(minutes: list[int]) -> Lab:
        town = Town()
        town.add("home", 4, mobility="commute", outage=OFTEN, battery_j=200.0)
        for duration_min in minutes:
            town.run(duration_min)
        return town.lab

    short, long = run([30]), run([7, 23, 20])
    until = short.now
    for table, column in (("positions", "ts"), ("links", "ts"), ("incidents", "ts"), ("reads", "ts"), ("messages", "ended"), ("transfers", "ended")):  # fmt: skip
        longer_rows = [
            row for row in long.trace.table(table).to_pylist() if row[column] and row[column] <= until
        ]
        shorter_rows = [row for row in short.trace.table(table).to_pylist() if row[column]]
        assert len(shorter_rows) > 3
        assert longer_rows == shorter_rows


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("mobility", ["commute", "waypoint"])
def test_added_devices_do_not_change_moves_queries_and_items(mobility: str) -> None:
    """Start trips in whole seconds, some at the moment of a position."""

    def run(devices: int, **options: Any) -> Lab:
        plan = Inboxes(
            devices=devices, hours=6.0, mobility=mobility, outage=OFTEN, every_s=10.0, queries=TripStarts(), **options, **MANGLED,
        )  # fmt: skip
        return plan.run(3, "direct", record_exposure=False).lab

    # Messages to other receivers would take other energy.
    few, many = (run(devices, battery_j=1200.0, items=Poisson(0)) for devices in (12, 15))
    names = list(few.devices)
    before, after = list_rows(few, names), list_rows(many, names)
    assert_same(before, after, ("positions", "links", "incidents", "reads", "bill"))
    assert len(before["reads"]) > 10
    created = [
        sorted(
            {
                (r["item"], r["created"])
                for r in lab.trace.table("deliveries").to_pylist()
                if r["item"].split()[0] in names
            }
        )
        for lab in (run(devices, items=Poisson(per_day=40)) for devices in (12, 15))
    ]
    assert created[0] == created[1]
    assert len(created[0]) > 50


class Fixed:
    """Workload with requests of given devices at given seconds."""

    def __init__(self, *moments: tuple[int, int]) -> None:
        self.rows, self.seconds = np.array(moments).T

    def moments(self, seed: int, name: str, devices: Any, start_us: int, length_us: int) -> Moments:
        return Moments(self.rows, self.seconds * S)


def test_read_at_the_moment_of_a_position_uses_that_position() -> None:
    def run_reads(*moments: tuple[int, int]) -> Any:
        plan = Inboxes(devices=2, hours=0.1, mobility=RandomWaypoint(), items=Poisson(0), reads=Poisson(0), queries=Fixed(*moments))  # fmt: skip
        lab = plan.run(3, "direct", record_exposure=False).lab
        keys = ("device", "ts", "lat", "lon")
        [read] = [row for row in lab.trace.table("reads").to_pylist() if row["device"] == "phone-00000"]
        places = [[row[key] for key in keys] for row in lab.trace.table("positions").to_pylist()]
        return [read[key] for key in keys], places

    alone, places = run_reads((0, 120))
    together, _ = run_reads((1, 90), (0, 120))
    assert alone in places
    assert together == alone
