"""MUD clients on real files, killed with SIGKILL during writes: no write is lost or applied twice."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from nursery import Nursery

WRITER = """
    from pathlib import Path
    from mudkit import Lab
    from mudkit.systems.mud import Client, Cloud, Conflict

    def live(order):
        folder = Path(order["folder"])
        lab = Lab(7)
        store = lab.server("mud-store", folder / "store")
        cloud = Cloud(lab, replicas=1)
        phone = lab.device("phone", storage=folder / "phone")
        client = Client(phone, cloud, app="app", token=lab.token("ann", "app", hours=1e6))
        for host in (store, phone):
            for process in host.processes:
                process.store.crash_point = lambda point, name=host.name: say("point", name, point)
        if order["life"] == 0:
            client.create("t").result()
        say("begun")
        lab.run(minutes=5)  # what the life before has left goes on its way

        def done(operation, key):
            say("committed", key, operation.result())

        if order["check"]:
            assert client.pending().result() == []
            for key, record in sorted(client.read("t", latest=True).result().records.items()):
                version = client.read("t", "key = '%s'" % key, latest=True).result().versions[key]
                say("has", key, record["of"], version)
            return
        for count in range(100_000):
            key = "%03d-%06d" % (order["life"], count)
            kind = "conditional" if count % 2 else "blind"
            made = client.write("t", key, {"of": key}, kind)
            made.add_done_callback(lambda operation, key=key: done(operation, key))
            lab.run(seconds=order["every_s"])
            say("made", key)
    """


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    nursery = Nursery(WRITER)
    yield nursery
    nursery.close()


def test_writes_survive_kills_and_are_applied_once(
    nursery: Nursery, tmp_path: Path, scaled: Callable[[int, int], int]
) -> None:
    """Kill half of the lives at a point that they report, the others at any moment."""
    draw, lives = random.Random(7), scaled(200, 20)
    reports, ends = [], set()
    for life in range(lives):
        order = {
            "folder": str(tmp_path),
            "life": life,
            "every_s": draw.choice([0.001, 0.05, 2.0]),
            "check": False,
        }
        lines = nursery.live(draw.randint(8 if life else 60, 250), wait=life % 2 == 0, **order)
        reports += lines
        if life % 2 == 0:
            ends.add(tuple(lines[-1]) if lines[-1][0] == "point" else lines[-1][0])
    order = {"folder": str(tmp_path), "life": lives, "every_s": 1.0, "check": True}
    reports += nursery.live(None, wait=False, **order)
    records = {
        key: (text, version)
        for kind, key, text, version in (report for report in reports if report[0] == "has")
    }
    writes = {report[1] for report in reports if report[0] == "made"}
    committed = {(report[1], report[2]) for report in reports if report[0] == "committed"}
    assert len(writes) > 5 * lives
    assert len(committed) > lives
    assert len(ends) >= 3, "the lives ended all in the same place"
    assert writes - set(records) == set()
    assert {key for key, version in committed if version != 1} == set()
    assert [key for key, result in records.items() if result != (key, 1)] == []
