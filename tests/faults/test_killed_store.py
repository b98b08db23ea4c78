"""Real processes on real files, killed with SIGKILL: acknowledged messages arrive once and in order."""

from __future__ import annotations

import random
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from nursery import Nursery

from mudkit import Lab, trace
from mudkit.errors import InputMissing
from mudkit.trace.folder import is_trace, read_manifest, read_table
from mudkit.trace.schema import SCHEMAS

NAMES = ("ann", "bob", "cy")
POINTS = (
    "before commit",
    "after commit",
    "accepted, not in the queue",
    "seen, not in the inbox",
)

FORWARD = """
    from pathlib import Path
    from mudkit.events import Record
    from mudkit.fleet import World
    from mudkit.fleet.store import SqliteStore
    from mudkit.systems.store_and_forward import ClientMachine, RelayMachine
    from mudkit.systems.store_and_forward.messages import SendText

    NAMES = ("ann", "bob", "cy")
    S = 1_000_000

    def live(order):
        folder, number = Path(order["folder"]), order["life"]
        world = World(number)
        texts = {{}}

        def open_store(name):
            store = SqliteStore(folder / (name + ".db"))
            store.crash_point = lambda point: say("point", name, point)
            return store

        def on_record(process, effect):
            if "created_us" in effect.row:
                say("taken", process.host.name, effect.row["receiver"], effect.row["item"])

        world.on_record = on_record
        relay = world.add_server("relay")
        relay.install("sf", RelayMachine, store=open_store("relay"))
        clients = {}
        for name in NAMES:
            device = world.add_device(name, "umts_3g")
            client = device.install(
                "sf", lambda ports, name=name: ClientMachine(ports, name, "relay"), store=open_store(name)
            )
            client.listen(
                "messages",
                lambda message, name=name: say(
                    "told", name, message["from"] + " " + message["text"], message.id, number
                ),
            )
            clients[name] = client

        def send(count):
            sender, receiver = NAMES[count % 3], NAMES[(count // 3) % 3]
            text = "%03d %06d" % (number, count)
            done = clients[sender].call(SendText(receiver, text, sender + " " + text))
            done.add_done_callback(lambda operation: say("accepted", sender, receiver, sender + " " + text))
            world.schedule_action(world.now_us + order["every_us"], send, count + 1)

        if order["every_us"]:
            world.schedule_action(S // 7, send, 0)
        world.run(order["seconds"] * S)
        for process in [*clients.values(), *relay.processes]:
            process.store.close()
    """.replace("{{}}", "{}")


@pytest.fixture(scope="module")
def forward() -> Iterator[Nursery]:
    nursery = Nursery(FORWARD)
    yield nursery
    nursery.close()


def read_store(file: Path) -> dict[str, Any]:
    """Read the file of a store without mudkit."""
    connection = sqlite3.connect(file)
    try:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        tables = connection.execute("SELECT name FROM sqlite_master").fetchall()
        if ("store",) not in tables:
            return {}
        return {
            key: msgspec.msgpack.decode(value)
            for key, value in connection.execute("SELECT key, value FROM store ORDER BY key")
        }
    finally:
        connection.close()


def list_inbox(stored: dict[str, Any]) -> list[dict[str, Any]]:
    return [value for key, value in stored.items() if key.startswith("in ")]


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("seed", range(2))
def test_acknowledged_messages_survive_kills_exactly_once(
    forward: Nursery, tmp_path: Path, scaled: Callable[[int, int], int], seed: int
) -> None:
    """Kill half of the lives at a crash point, each in turn, and the others at any moment."""
    draw, lives = random.Random(seed), scaled(30, 10)
    reports: list[list[Any]] = []
    last_points = []
    for life in range(lives):
        every_us = draw.choice([100_000, 500_000, 2_000_000])
        order = {"folder": str(tmp_path), "life": life, "every_us": every_us, "seconds": 100_000}
        point = POINTS[life // 2 % len(POINTS)] if life % 2 == 0 else None
        lines = forward.live(draw.randint(1, 400), wait=life % 2 == 0, at=point, **order)
        reports += lines
        if point is not None:
            last_points.append(lines[-1][-1])
        for name in NAMES:
            if (tmp_path / f"{name}.db").is_file():
                received = [message["key"] for message in list_inbox(read_store(tmp_path / f"{name}.db"))]
                assert len({*received}) == len(received)
    reports += forward.live(None, wait=False, folder=str(tmp_path), life=lives, every_us=0, seconds=3600)

    reports_by_kind = defaultdict(list)
    for kind, *fields in reports:
        reports_by_kind[kind].append(tuple(fields))
    stored = {name: read_store(tmp_path / f"{name}.db") for name in (*NAMES, "relay")}
    received = {name: [message["key"] for message in list_inbox(stored[name])] for name in NAMES}
    for kind in ("taken", "accepted"):
        assert len(reports_by_kind[kind]) >= lives  # one that is killed early takes few
        assert [report for report in reports_by_kind[kind] if received[report[1]].count(report[2]) != 1] == []
    for name in NAMES:
        assert len({*received[name]}) == len(received[name])
        for sender in NAMES:
            of_sender = [key for key in received[name] if key.startswith(f"{sender} ")]
            assert of_sender == sorted(of_sender)  # texts are numbered by life and within it
        assert not [key for key in stored[name] if key.startswith("out ")]
    assert not [key for key in stored["relay"] if key.startswith("for ")]
    # Every message is shown, once a life; only a kill between commit and callback repeats one, with the same id.
    shown = [(name, key, life) for name, key, _, life in reports_by_kind["told"]]
    assert len({*shown}) == len(shown) >= lives
    assert {(name, key) for name, key, _ in shown} == {
        (name, key) for name in NAMES for key in received[name]
    }
    ids = {(name, key, identifier) for name, key, identifier, _ in reports_by_kind["told"]}
    assert len(ids) == len({(name, key) for name, key, _ in ids}) == len({(name, i) for name, _, i in ids})
    assert {*last_points} == {*POINTS}


# -- writing of a trace

WRITER = """
    from mudkit import Lab

    lab = Lab(7)
    lab.fleet(2, mobility="waypoint", outage=0.5)
    lab.run(hours=13)  # two days: midnight is between

    def live(order):
        def hook(event, arguments):
            if event in ("os.rename", "os.mkdir", "os.rmdir", "os.remove", "shutil.rmtree") or (
                event == "open" and isinstance(arguments[1], str) and "w" in arguments[1]
            ):
                say(event, *(str(each) for each in arguments[:2]))

        import pyarrow
        pyarrow.set_cpu_count(1)
        sys.addaudithook(hook)
        lab.trace.to_parquet(order["path"], overwrite=order["overwrite"])
        order["wait"] = False
    """


@pytest.fixture(scope="module")
def writer() -> Iterator[Nursery]:
    nursery = Nursery(WRITER)
    yield nursery
    nursery.close()


def is_complete(path: Path, rows: dict[str, int]) -> bool:
    manifest = read_manifest(path)
    assert manifest["rows"] == rows
    assert {name: len(read_table(path, name)) for name in rows} == rows
    return True


def test_trace_killed_during_writing_never_looks_complete(writer: Nursery, tmp_path: Path) -> None:
    """Kill the writer before each of its file system operations, in turn."""
    steps = writer.live(None, wait=False, path=str(tmp_path / "first"), overwrite=False)
    rows = read_manifest(tmp_path / "first")["rows"]
    assert rows["positions"] == 2 * (13 * 60 + 1)
    assert is_complete(tmp_path / "first", rows)
    assert len(steps) > 15
    for number in range(1, len(steps) + 1):
        folder = tmp_path / f"killed {number}"
        folder.mkdir()
        path = folder / "run"
        writer.live(number, wait=True, path=str(path), overwrite=False)
        is_renamed = [step[0] for step in steps[: number - 1]][-1:] == ["os.rename"] and path.exists()
        assert is_renamed == path.exists()
        if is_renamed:
            assert is_complete(path, rows)  # it was complete already
        else:
            with pytest.raises(InputMissing):
                trace.load(path)
        for entry in folder.iterdir():
            assert entry == path or entry.name.startswith(".run.partial-")
        # The next writer removes the partial trace.
        if not is_renamed:
            writer.live(None, wait=False, path=str(path), overwrite=False)
        assert is_complete(path, rows)
        assert [entry.name for entry in folder.iterdir() if entry != path] == []


def test_replaced_trace_is_the_old_or_the_new_one(writer: Nursery, tmp_path: Path) -> None:
    old = Lab(1)
    old.device("a", at=(1.0, 2.0))
    first = old.trace.to_parquet(tmp_path / "dry" / "run")
    before = read_manifest(first)["rows"]
    steps = writer.live(None, wait=False, path=str(first), overwrite=True)
    after = read_manifest(first)["rows"]
    assert before != after
    outcomes = set()
    for number in range(1, len(steps) + 1):
        path = old.trace.to_parquet(tmp_path / str(number) / "run")
        writer.live(number, wait=True, path=str(path), overwrite=True)
        if path.exists():
            result = read_manifest(path)["rows"]
            assert is_complete(path, result)
            assert result in (before, after)
            outcomes.add("old" if result == before else "new")
        else:
            # Between two renames: the old trace is complete under a hidden name.
            [hidden] = [entry for entry in path.parent.iterdir() if entry.name.startswith(".run.old-")]
            assert is_complete(hidden, before)
            outcomes.add("beside")
        assert not [
            entry for entry in path.parent.iterdir() if entry != path and not entry.name.startswith(".")
        ]
    assert {"old", "new"} <= outcomes


def test_folder_without_manifest_is_not_a_trace(tmp_path: Path) -> None:
    lab = Lab(1)
    lab.device("a", at=(1.0, 2.0))
    path = lab.trace.to_parquet(tmp_path / "run")
    (path / "trace.json").unlink()
    assert not is_trace(path)
    assert {"positions"} == {file.name for file in path.iterdir()} & set(SCHEMAS) - {"links"}
