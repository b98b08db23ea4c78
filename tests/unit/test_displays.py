"""Displays of all objects that a notebook shows: empty, busy, closed and killed."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from base64 import b64decode
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from html_tables import Outline

import mudkit
from mudkit import Lab, consistency, show, trace
from mudkit.consistency import History, Verdict
from mudkit.display import Displayed, shows_fields
from mudkit.experiment import WARD, Comparison, run
from mudkit.experiment.adapters import ADAPTERS
from mudkit.experiment.comparison import Scoreboard
from mudkit.experiment.runs import Run
from mudkit.fleet import Device, Host
from mudkit.fleet.host import Operation
from mudkit.fleet.recorder import TABLES
from mudkit.learning.batching import LearntWrites
from mudkit.learning.costs import CLASSES
from mudkit.learning.features import FEATURE_SETS, WRITE_FEATURES
from mudkit.learning.policies import LearntReads
from mudkit.learning.trees import grow
from mudkit.pipeline import IngestReport, JobReport
from mudkit.predicates import Predicate, SubscriptionIndex
from mudkit.systems import contrail, lasthop, mud, radiator, store_and_forward, sublim
from mudkit.systems.sublim.study import picu
from mudkit.trace import Loaded, LoadedLinks, Scan
from mudkit.worlds import Inboxes, InboxesRun

HOSTILE = "<script>alert('&')</script>"
LONG = "😀" * 10_000
MAX_HTML = 30_000
"""Characters of a display: it does not grow with the data."""

NAMED = {
    Lab, Device, Host, Operation,
    mud.Cloud, mud.Client, mud.ReadResult, mud.Conflict, mud.Artefact,
    lasthop.Publications, lasthop.Topic, lasthop.Subscriber,
    contrail.Relay, contrail.Module, contrail.Port,
    radiator.Server, radiator.Client,
    sublim.PublishServer, sublim.AccessPoint, sublim.Subscriber, sublim.PlainSubscriber,
    sublim.Policy, sublim.FunctionPolicy,
    store_and_forward.Relay, store_and_forward.Client, store_and_forward.DirectClient,
    LearntReads, LearntWrites,
    History, Verdict, Predicate, SubscriptionIndex,
    Loaded, LoadedLinks, Scan, IngestReport, JobReport,
    Run, InboxesRun, Comparison, Scoreboard,
}  # fmt: skip
"""Classes whose instances a call returns to a notebook; each has to be among the instances below."""


ALLOWED = {
    "div", "p", "b", "span", "br", "pre", "table", "caption", "thead", "tbody", "tr", "th", "td",
    "img", "wbr",
}  # fmt: skip


def assert_displays(shown: Any) -> None:
    line, html = repr(shown), shown._repr_html_()
    assert len(line) < 1000 or isinstance(shown, Predicate)  # whose line reconstructs it
    assert "\n" not in line
    assert "not readable" not in line, line
    line.encode()
    html.encode()
    assert {*Outline(html).tags} <= ALLOWED
    assert len(html) < MAX_HTML
    assert html.count("<tr>") <= 2 * 11
    assert " object at 0x" not in line
    for forbidden in ("<script", "<style", " id=", " object at 0x"):
        assert forbidden not in html
    assert show(shown, "Caption")._repr_html_().endswith(html)


def build_labs() -> Iterator[tuple[Lab, list[Any]]]:
    """Yield labs with one object of each system: empty, and busy with hostile and long contents."""
    for is_busy in (False, True):
        lab = Lab(seed=3)
        token = lab.token(user="jane", app="news")
        cloud = mud.Cloud(lab)
        jane = mud.Client(
            lab.device("jane", at=(30.0, -97.0), battery_j=5000), cloud, app="news", token=token
        )
        publications = lasthop.Publications(lab)
        topic = publications.topic("arts")
        subscriber = lasthop.Subscriber(lab.device("sub"), publications)
        relay = contrail.Relay(lab)
        module = contrail.Module(lab.device("al"), relay, friends=["bo"])
        other = contrail.Module(lab.device("bo"), relay, friends=["al"])
        port, other_port = module.open_port("chat"), other.open_port("chat")
        server = radiator.Server(lab, lambda sender, receiver: radiator.Volume(9))
        clients = [radiator.Client(lab.device(name), server) for name in ("ann", "cho")]
        net = sublim.PublishServer(lab)
        points = [sublim.AccessPoint(lab, net), sublim.AccessPoint(lab, net, stateful=False)]
        doctor = sublim.Subscriber(lab.device("doc", link="wifi"), net)
        plain = sublim.PlainSubscriber(lab.device("plain", link="wifi"), net, "message.pulse < 50")
        post = store_and_forward.Relay(lab)
        senders = [store_and_forward.Client(lab.device(name), post) for name in ("x", "y")]
        direct = store_and_forward.DirectClient(lab.device("direct"))
        shown: list[Any] = [
            lab, *lab.devices.values(), *map(lab.server, ("relay", "mud-store")), cloud, jane, publications,
            topic, subscriber, relay, module, port, other, other_port, server, *clients, net, *points, doctor, plain,
            post, *senders, direct,
        ]  # fmt: skip
        if is_busy:
            shown += run_operations(
                lab, jane, subscriber, topic, port, other_port, clients, net, doctor, senders
            )
        yield lab, shown


def run_operations(
    lab: Lab, jane: mud.Client, subscriber: lasthop.Subscriber, topic: lasthop.Topic, port: contrail.Port,
    other_port: contrail.Port, clients: list[radiator.Client], net: sublim.PublishServer, doctor: sublim.Subscriber,
    senders: list[store_and_forward.Client],
) -> list[Any]:  # fmt: skip
    """Run operations of each system, and return operations and their results."""
    jane.create("news").result()
    writes = [jane.write("news", f"a{n}", {HOSTILE: HOSTILE, "long": LONG[:2000], "n": n}) for n in range(12)]
    writes[-1].result()
    read = jane.read("news", "n >= 0")
    watching = jane.read("news", "n >= 0", "continuous", callback=str)
    refused = jane.read("nothing", "n >= 0")
    subscriber.subscribe("arts").result()
    topic.publish(LONG[:1000], 3).result()
    filtered = other_port.install_filter("x > 1", to=("al", "chat"))
    clients[0].propagate_context(radiator.Context({"ann"}, {"doing": HOSTILE})).result()
    doctor.set_policy(picu(patients=[7])).result()
    net.publish({"patient": 7, "pulse": 48, HOSTILE: HOSTILE})
    senders[0].send("y", HOSTILE + LONG[:1000]).result()
    lab.run(minutes=1)
    result = read.result()
    lab.faults.cut("jane")
    waiting = [
        jane.write("news", "late", {"text": LONG[:3000], HOSTILE: HOSTILE}),
        senders[0].send("z", "hi"),
    ]
    return [*writes, read, watching, refused, filtered, result, *waiting]


def build_killed() -> list[Any]:
    lab, shown = list(build_labs())[1]
    servers = "relay", "mud-store", "spool", "radiator", "publish-server", "contrail-storage"
    for host in [*lab.devices, *servers]:
        lab.faults.kill(host)
    lab.faults.switch_off("jane")
    lab.faults.messages(loss_share=0.1)
    return shown


def grow_tree(classes: int, features: int, *, is_leaf: bool) -> Any:
    """Grow a tree that decides by its first two features, or one for which the last action costs nothing."""
    generator = np.random.default_rng(1)
    known = generator.uniform(0, 24, (800, features)).astype(np.float32)
    truth = ((known[:, 0] > 12) * 1 + (known[:, 1] > 6) * 2).astype(np.int64) % classes
    costs = 1.0 - np.eye(classes)
    costs[:, -1] *= not is_leaf
    return grow(known, truth, np.arange(800) % 10, classes).tree(costs)[0], costs


def build_policies() -> list[Any]:
    learnt: list[Any] = []
    for is_leaf in (True, False):
        tree, costs = grow_tree(2, len(FEATURE_SETS["paper"]), is_leaf=is_leaf)
        learnt.append(LearntReads(tree, "paper", costs))
        learnt.append(LearntWrites(*grow_tree(len(CLASSES), len(WRITE_FEATURES), is_leaf=is_leaf)))
    leaf = mud.Artefact.create("read", 1, ["age"], [[0]], ["local"])
    deep: list[list[Any]] = [[0, float(n), n + 1, 12, 12] for n in range(12)] + [[1]]
    ward = sublim.Policy("none", [sublim.Rule()])
    long = sublim.Policy(
        HOSTILE,
        [sublim.Rule(f"message.pulse < {n}", name=LONG[:500]) for n in range(40)],
        variables={"x": [1]},
    )
    function = sublim.policy(lambda message, state: message)
    return [
        *learnt, leaf, mud.Artefact.create("write", 3, ["hour"], deep, [60.0, "never"]), ward, long,
        picu(patients=[7]), function, sublim.policy(lambda message, state: None, x=[HOSTILE]),
    ]  # fmt: skip


def build_histories() -> list[Any]:
    plain = History.parse("ann:  w1        r2\nbob:       w2        r1")
    hostile = History.from_json(plain.to_json().replace("bob", "<b>bob</b>"))
    many = History.parse("\n".join(f"c{n}: {'w' + str(n + 1)} {'r' + str(n + 1)}" for n in range(30)))
    checked = [consistency.check(history, "linearizable") for history in (plain, hostile, History(), many)]
    return [plain, hostile, History(), many, *checked]


def build_predicates() -> list[Any]:
    index = SubscriptionIndex()
    for number in range(12):
        index.add(
            number, Predicate(f"topic = '{HOSTILE.replace(chr(39), '')}' AND n{number} < :most", most=5)
        )
    written = Predicate(" OR ".join(f"topic = '{n}'" for n in range(1, 60)) + f" OR t = '{LONG[:1000]}'")
    return [Predicate("receiver.age > 3"), written, SubscriptionIndex(), index]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Any]]:
    folder = tmp_path_factory.mktemp("trace")
    rows = [f"cab-{n % 3},{1_211_100_000 + 60 * n},37.7{n % 10},-122.4" for n in range(30)]
    rows[3] = "cab-0,x,37,-122"
    (folder / "one.csv").write_text("\n".join(["device,t,lat,lon", *rows]) + "\n")
    columns = {"device": "device", "ts": "t", "lat": "lat", "lon": "lon"}
    loaded = trace.load(folder / "one.csv", format="csv", columns=columns)
    empty = Loaded(loaded.positions[:0], loaded.reads[:0], loaded.rejected[:0])
    scan = trace.scan(folder / "one.csv", format="csv", columns=columns)
    closed = trace.scan(folder / "one.csv", format="csv", columns=columns)
    closed.close()
    links = LoadedLinks(loaded.positions[:0], loaded.rejected[:0], {"name": HOSTILE})
    reports = [
        IngestReport(Path(HOSTILE), 0, 0, 0, {}, 0.0),
        IngestReport(folder, 10_000, 9_000, 5, {f"reason {n}": n for n in range(40)}, 75.2, 3, 1),
        JobReport(folder, 0, 1, 0, 0.1),
        JobReport(folder, 10**9, 8, 2, 7500.0),
    ]
    yield [
        loaded,
        empty,
        scan,
        closed,
        links,
        LoadedLinks(loaded.positions, loaded.rejected, links.source),
        *reports,
    ]
    scan.close()


def build_experiments() -> list[Any]:
    nothing = pd.DataFrame()
    none = pd.DataFrame({"task": [], "system": [], "seed": []})
    rows = {"task": [HOSTILE] * 40, "system": [f"{HOSTILE} {n}" for n in range(40)], "seed": range(40)}
    many = pd.DataFrame(rows).assign(lost_share=0.5, up_bytes=10_000)
    idle, busy_ = (
        run(WARD.over(devices=2, hours=hours), ADAPTERS["to everyone"], 1) for hours in (0.01, 0.1)
    )
    inboxes = [Inboxes(devices=2, hours=hours).run(1) for hours in (0.01, 0.5)]
    return [
        idle, busy_, *inboxes, Comparison(none, "a"), Comparison(many, HOSTILE),
        *(Scoreboard(runs, nothing, HOSTILE, *[nothing] * 5) for runs in (none, many)),
    ]  # fmt: skip


def build_conflicts() -> list[Any]:
    record = {f"column {n}": LONG for n in range(20)} | {HOSTILE: {HOSTILE: [HOSTILE] * 1000}}
    return [mud.Conflict("none"), mud.Conflict(HOSTILE, store=None, local=record, base={"n": 10**5000})]


def build_results() -> list[Any]:
    records = {f"{n}{HOSTILE}": {f"c{m}": LONG for m in range(20)} for n in range(2000)}
    return [
        mud.ReadResult(),
        mud.ReadResult(records, dict.fromkeys(records, "local"), dict.fromkeys(records, 1.0), {}),
        mud.ReadResult(aggregates={f"max(n{n})": LONG for n in range(40)}),
    ]


BUILDERS: dict[str, Callable[[], list[Any]]] = {
    "empty labs": lambda: next(iter(build_labs()))[1],
    "busy labs": lambda: list(build_labs())[1][1],
    "killed": build_killed,
    "policies": build_policies,
    "histories": build_histories,
    "predicates": build_predicates,
    "experiments": build_experiments,
    "conflicts": build_conflicts,
    "results": build_results,
}


@cache
def build(name: str) -> list[Any]:
    """Build the objects of a kind once for all tests."""
    return BUILDERS[name]()


@pytest.mark.parametrize("name", BUILDERS)
def test_every_object_has_a_display(name: str) -> None:
    for shown in build(name):
        assert_displays(shown)


def test_traces_and_reports_have_a_display(files: list[Any]) -> None:
    for shown in files:
        assert_displays(shown)
    assert "open" in repr(files[2])
    assert "closed" in repr(files[3])


def test_every_displayed_type_has_two_instances(files: list[Any]) -> None:
    built = [item for name in BUILDERS for item in build(name)] + files
    counts = {kind: sum(type(item) is kind for item in built) for kind in NAMED}
    assert [kind.__name__ for kind, count in counts.items() if count < 2] == []
    for kind in NAMED:
        assert kind._repr_html_ is not object, kind


def test_display_of_partly_initialized_object_does_not_raise() -> None:
    for kind in NAMED:
        if not issubclass(kind, Displayed):
            continue
        try:
            shown = kind.__new__(kind)
        except TypeError:  # an immutable struct
            continue
        assert repr(shown).startswith("<")
        Outline(shown._repr_html_())


def compute_digest(lab: Lab) -> str:
    frames = [lab.bill(), lab.deliveries(), *(lab.trace.table(table).to_pandas() for table in TABLES)]
    return hashlib.sha256(b"".join(frame.to_csv().encode() for frame in frames)).hexdigest()


def test_display_does_not_change_the_run() -> None:
    def run_lab(is_shown: bool) -> str:
        lab, shown = list(build_labs())[1]
        for _ in range(4):
            if is_shown:
                for item in shown:
                    repr(item), item._repr_html_()
            lab.run(minutes=7)
            lab.faults.mend("jane")
        assert lab.world.now_us > 0
        return compute_digest(lab)

    assert run_lab(is_shown=True) == run_lab(is_shown=False)


def test_display_does_not_advance_time_or_complete_operations() -> None:
    lab = Lab(seed=1)
    jane = mud.Client(lab.device("jane"), mud.Cloud(lab), app="news", token=lab.token(app="news"))
    operation = jane.create("news")
    before = lab.world.now_us
    assert "status open" in repr(operation)
    operation._repr_html_()
    assert lab.world.now_us == before
    assert not operation.done()


def test_operation_shows_its_result_and_not_its_repr() -> None:
    shown = [operation for operation in list(build_labs())[1][1] if isinstance(operation, Operation)]
    read, refused = (
        next(operation for operation in shown if operation.call.name == "read" and operation.status == status)
        for status in ("ok", "failed")
    )
    assert "records 12" in repr(read)
    assert "<ReadResult" not in repr(read)
    assert "There is no such table.>" in repr(refused)
    assert "expected: " in refused._repr_html_()


def test_displays_of_policies_and_radios_are_complete() -> None:
    html = picu(patients=[7])._repr_html_()
    assert "resize: field: ecg, pixels: state.display_px" in html
    assert "…" not in html
    lab = next(build_labs())[0]
    assert "radio energy 0 J" in repr(lab)
    assert lab.bill()["radio_mj"].min() >= 0.0


def test_display_of_many_devices_is_bounded() -> None:
    lab = Lab(seed=1, record_messages=False)
    lab.fleet(10_050, link="ideal")
    html = lab._repr_html_()
    assert "those of the first 10,000 devices" in html
    assert "<td style" in html
    assert len(html) < MAX_HTML


def test_lab_names_faults_and_problems() -> None:
    lab = Lab(seed=1)
    relay = store_and_forward.Relay(lab)
    client = store_and_forward.Client(lab.device("ann"), relay)
    client.on_message(lambda message: 1 / 0)
    store_and_forward.Client(lab.device("bob"), relay).send("ann", "hi")
    with pytest.warns(match="ZeroDivisionError"):
        lab.run(minutes=1)
    lab.faults.cut("bob")
    lab.faults.kill("relay")
    lab.faults.messages(loss_share=0.25)
    line = repr(lab)
    for part in ("links cut bob", "killed store and forward on relay", "25 % lost"):
        assert part in line
    assert "lab.problems lists" in lab._repr_html_()
    assert "state killed" in repr(relay)
    lab.faults.messages()
    assert "mangled" not in repr(lab)


def test_conflict_shows_three_records_side_by_side() -> None:
    conflict = mud.Conflict("newer", store={"n": 3}, local={"n": 2}, base={"n": 1, "m": "x"})
    lines = conflict._view().tables[0].text().splitlines()
    assert [line.split()[0] for line in lines] == ["column", "n", "m"]
    assert lines[1].split() == ["n", "1", "2", "3"]


def test_verdict_draws_the_smallest_contradiction() -> None:
    verdict = consistency.check(History.parse("ann:  w1        r2\nbob:       w2        r1"), "sequential")
    html = verdict._repr_html_()
    data = re.search(r"base64,([^']*)'", html)
    assert data is not None
    assert b64decode(data[1]).count(b"<rect") == len(verdict.explanation.operations)
    assert "alt='" in html
    assert "ILLEGAL" in html


def test_displays_import_no_large_packages() -> None:
    code = (
        "import sys, mudkit; from mudkit.display import Table; Table(['a'], [[1]]).html(); "
        "print([name for name in ('pandas', 'numpy', 'plotly', 'pyspark') if name in sys.modules])"
    )
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert loaded.strip() == "[]"


INTERNAL = ("mudkit.report", "mudkit.reproduce", "mudkit.verify", "mudkit.trace.clean", "mudkit.trace.parse",
            "mudkit.trace.formats", "mudkit.trace.movement", "mudkit.learning.writes", "mudkit.pipeline.devices",
            "mudkit.pipeline.inputs", "mudkit.pipeline.summaries", "mudkit.trace.summaries")  # fmt: skip
"""Packages whose tables are not shown in notebooks."""


def find_results_with_tables() -> Iterator[type]:
    for module_info in pkgutil.walk_packages(mudkit.__path__, "mudkit."):
        if module_info.name.startswith(INTERNAL) or module_info.name == "mudkit.__main__":
            continue
        module = importlib.import_module(module_info.name)
        for name, kind in vars(module).items():
            if not inspect.isclass(kind) or kind.__module__ != module.__name__ or name.startswith("_"):
                continue
            is_result = dataclasses.is_dataclass(kind) or hasattr(kind, "_fields")
            hints = map(str, getattr(kind, "__annotations__", {}).values())
            if is_result and any(re.search("DataFrame|pa.Table|Series", hint) for hint in hints):
                yield kind


def test_results_with_tables_have_a_display() -> None:
    kinds = list(find_results_with_tables())
    assert len(kinds) > 15
    assert [kind.__qualname__ for kind in kinds if not hasattr(kind, "_repr_html_")] == []
    for kind in filter(dataclasses.is_dataclass, kinds):
        assert repr(object.__new__(kind)).startswith(f"<{kind.__name__}")  # partly initialized


@pytest.mark.parametrize("rows", [0, 2, 100_000])
def test_result_shows_short_fields_and_first_rows_of_tables(rows: int) -> None:
    frame = pd.DataFrame({HOSTILE: [LONG if rows < 10 else HOSTILE] * rows, "share": np.linspace(0, 1, rows)})
    shown = Result(frame, pa.Table.from_pandas(frame), HOSTILE, [1] * 2000, None)
    assert repr(shown).startswith(f"<Result: table {rows:,} rows, positions {rows:,} rows, name <script>")
    assert "numbers 2,000" in repr(shown)
    assert "nothing" not in repr(shown)
    assert_displays(shown)


@shows_fields
class Result(NamedTuple):
    table: pd.DataFrame
    positions: pa.Table
    name: str
    numbers: list[int]
    nothing: None
