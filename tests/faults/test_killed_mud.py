"""MUD clients on real files, killed with SIGKILL while they write: nothing is lost, nothing is applied twice."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from nursery import Nursery

WRITING = """
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
    nursery = Nursery(WRITING)
    yield nursery
    nursery.close()


def test_nothing_acknowledged_is_lost_or_applied_twice(
    nursery: Nursery, tmp_path: Path, scaled: Callable[[int, int], int]
) -> None:
    """Half of the lives end just where they say that they are, the others wherever that finds them."""
    draw, lives = random.Random(7), scaled(200, 20)
    said, ends = [], set()
    for life in range(lives):
        order = {
            "folder": str(tmp_path),
            "life": life,
            "every_s": draw.choice([0.001, 0.05, 2.0]),
            "check": False,
        }
        lines = nursery.live(draw.randint(8 if life else 60, 250), wait=life % 2 == 0, **order)
        said += lines
        if life % 2 == 0:
            ends.add(tuple(lines[-1]) if lines[-1][0] == "point" else lines[-1][0])
    last = {"folder": str(tmp_path), "life": lives, "every_s": 1.0, "check": True}
    said += nursery.live(None, wait=False, **last)
    has = {key: (of, version) for what, key, of, version in (each for each in said if each[0] == "has")}
    made = {each[1] for each in said if each[0] == "made"}
    committed = {(each[1], each[2]) for each in said if each[0] == "committed"}
    assert len(made) > 5 * lives
    assert len(committed) > lives
    assert len(ends) >= 3, "the lives ended all in the same place"
    assert made - set(has) == set()
    assert {key for key, version in committed if version != 1} == set()
    assert [key for key, result in has.items() if result != (key, 1)] == []
