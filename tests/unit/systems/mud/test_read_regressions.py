"""Aggregates, reader data, and read order: regressions that no other test had noticed.

Aggregates included hidden records; a restart lost reader data; committed_wio reads overtook each other; a
restarted client accepted answers to its earlier start.
"""

from __future__ import annotations

from typing import Any

import pytest
from mud_place import Place

from mudkit.errors import TableProblem
from mudkit.fleet.link import Transfer
from mudkit.systems.mud import freshness
from mudkit.wire import as_wire

FRESH = freshness(3600)
AGGREGATES = "count(*), max(salary), min(salary), sum(salary), avg(salary)"


def create_salaries(**cloud: Any) -> tuple[Place, Any, Any]:
    """Create a table in which ann shows some salaries to all, some to nobody else, and some to adults."""
    place = Place(**cloud)
    ann, bob = place.client("ann"), place.client("bob")
    ann.create("staff", acl="public").result()
    ann.create("friends", acl="public").result()
    ann.write("friends", "bob", {"of": "ann"}, type="blind").result()
    ann.write("friends", "cy", {"of": "ann"}, type="blind", predicate="auth.user = 'ann'").result()
    for key, salary, predicate in (
        ("open", 10, None),
        ("own", 99, "auth.user = 'ann'"),
        ("adults", 50, "receiver.age >= 21"),
        ("friends", 30, "lookup('friends', auth.user, 'of') = 'ann'"),
        ("gone", 7, None),
        ("was open", 5, None),
    ):
        ann.write("staff", key, {"salary": salary}, type="blind", predicate=predicate).result()
    ann.delete("staff", "gone").result()
    ann.write("staff", "was open", {"salary": 88}, type="blind", predicate="auth.user = 'ann'").result()
    place.lab.run(seconds=30)
    return place, ann, bob


def compute_aggregates(*salaries: int) -> dict[str, Any]:
    names = ("count(*)", "max(salary)", "min(salary)", "sum(salary)", "avg(salary)")
    values = (len(salaries), max(salaries), min(salaries), sum(salaries), sum(salaries) / len(salaries))
    return dict(zip(names, values, strict=True))


def read_aggregates(client: Any, predicate: str | None = None, **more: Any) -> Any:
    return client.read("staff", predicate, aggregate=AGGREGATES, **more).result().aggregates


@pytest.mark.parametrize("replicas", [0, 2])
@pytest.mark.parametrize("latest", [False, True])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_aggregates_include_only_visible_records(replicas: int, latest: bool, is_restarted: bool) -> None:
    place, ann, bob = create_salaries(replicas=replicas)
    if is_restarted:
        for name in [name for name in place.lab.world.hosts if name not in place.lab.devices]:
            place.lab.faults.kill(name)
            place.lab.run(seconds=1)
            place.lab.faults.restart(name)
        place.lab.run(minutes=2)
    cy = place.client("cy")
    for client, data, shown in (
        (bob, {}, (10, 30)),
        (bob, {"age": 30}, (10, 50, 30)),
        (bob, {"age": 20}, (10, 30)),
        (cy, {"age": 30}, (10, 50)),
        (ann, {}, (10, 99, 88)),
    ):
        assert read_aggregates(client, data=data, latest=latest) == compute_aggregates(*shown)
    assert read_aggregates(bob, "salary > 20", latest=latest) == compute_aggregates(30)
    by_key = bob.read("staff", "key = 'own'", aggregate="count(*), max(salary)", latest=latest).result()
    assert by_key.aggregates == {"count(*)": 0, "max(salary)": None}
    looked_up = "lookup('friends', auth.user, 'of') = 'ann'"
    assert read_aggregates(bob, looked_up, latest=latest) == compute_aggregates(10, 30)
    # The record of cy exists, but is hidden from cy.
    assert cy.read("staff", looked_up, aggregate="count(*)", latest=latest).result().aggregates == {
        "count(*)": 0
    }


def list_processors(place: Place) -> list[str]:
    result = [name for name in place.lab.world.hosts if "processor" in name]
    assert result
    return result


@pytest.mark.parametrize("restarted", ["device", "processor", "both"])
@pytest.mark.parametrize(("before", "after"), [(10, 30), (30, 10)])
def test_updated_reader_data_survive_restarts(restarted: str, before: int, after: int) -> None:
    place = Place()
    ann, bob = place.client("ann"), place.client("bob")
    ann.create("news", acl="public").result()
    changes: list[Any] = []
    handle = bob.read("news", type="continuous", data={"age": before}, callback=changes.append).result()
    bob.update_data(handle, {"age": after}).result()
    names = {
        "device": ["bob"],
        "processor": list_processors(place),
        "both": ["bob", *list_processors(place)],
    }[restarted]
    for name in names:
        place.lab.faults.kill(name)
    place.lab.run(seconds=20)
    for name in names:
        place.lab.faults.restart(name)
    place.lab.run(minutes=3)
    ann.write("news", "k", {"x": "adults only"}, type="blind", predicate="receiver.age >= 21").result()
    place.lab.run(minutes=3)
    assert [change.key for change in changes] == (["k"] if after >= 21 else [])


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("has_writes", [False, True])
def test_committed_wio_reads_of_a_table_complete_in_order(seed: int, has_writes: bool) -> None:
    """Mix reads answered by the cloud, answered locally, and waiting for a write."""
    place = Place()
    jane = place.client("jane")
    jane.create("news", acl="app").result()
    for key in "abcdefgh":
        jane.write("news", key, {"n": 0}, type="blind").result()
    jane.read("news").result()
    place.lab.faults.messages(delay_share=0.8, delay_s=2.0 + seed)
    reads, order = [], []
    for number, key in enumerate("abcdefgh"):
        if has_writes and number in (seed % 3, 4):
            jane.write("news", key, {"n": number}, type="blind")
        utility = FRESH if (number + seed) % 3 else None
        reads.append(jane.read("news", f"key = '{key}'", "committed_wio", utility=utility))
        reads[-1].add_done_callback(lambda done, number=number: order.append(number))
        place.lab.run(seconds=0.2 * (seed % 4))
    place.lab.run(minutes=2)
    place.lab.faults.messages()
    place.lab.run(minutes=5)
    assert order == list(range(8))
    times = [read.responded_us for read in reads]
    assert times == sorted(times)


def test_committed_wio_read_waiting_for_a_write_delays_the_next() -> None:
    place = Place()
    jane = place.client("jane")
    jane.create("news", acl="app").result()
    for key in "ab":
        jane.write("news", key, {"n": 0}, type="blind").result()
    jane.read("news").result()
    place.lab.faults.cut("jane")
    jane.write("news", "a", {"n": 1}, type="blind")
    first = jane.read("news", "key = 'a'", "committed_wio", utility=FRESH)
    second = jane.read("news", "key = 'b'", "committed_wio", utility=FRESH)
    jane.read("news", "key = 'b'", "committed", utility=FRESH).result()
    jane.write("news", "b", {"n": 1}, type="blind")
    place.lab.run(minutes=1)
    assert (first.done(), second.done()) == (False, False)
    place.lab.faults.mend("jane")
    first.result()
    second.result()
    assert first.responded_us <= second.responded_us
    assert second.result().records["b"]["n"] == 0  # the read precedes the write


def test_table_requests_after_a_restart_are_not_duplicates() -> None:
    """Distinguish requests of a restarted client from those of its earlier start."""
    place = Place()
    jane = place.client("jane")
    for name in ("one", "two", "three"):
        jane.create(name).result()
        jane.write(name, "k", {"n": name}).result()
        place.lab.faults.kill("jane")
        place.lab.run(seconds=1)
        place.lab.faults.restart("jane")
        place.lab.run(seconds=5)
    for name in ("one", "two", "three"):
        assert jane.read(name, latest=True).result().records == {"k": {"n": name}}
    jane.drop("one").result()
    place.lab.faults.kill("jane")
    place.lab.faults.restart("jane")
    jane.drop("two").result()
    bob = place.client("bob", user="jane")
    for name in ("one", "two"):
        with pytest.raises(TableProblem):
            bob.read(name).result()
    assert len(bob.read("three").result()) == 1


@pytest.mark.parametrize("operation", ["read", "write"])
def test_restarted_client_ignores_late_answers_to_its_earlier_start(operation: str) -> None:
    place = Place()
    jane = place.client("jane")
    jane.create("news").result()
    for key in "ab":
        jane.write("news", key, {"n": key}).result()
    place.lab.run(minutes=1)
    for _ in range(2):
        place.lab.faults.kill("jane")
        place.lab.run(seconds=1)
        place.lab.faults.restart("jane")
        place.lab.run(seconds=5)
        # Each start sends the same first request; a copy of the answer arrives in the next start.
        host = place.lab.devices["jane"]

        def copy_late(transfer: Transfer, host: Any = host) -> tuple[int, ...]:
            return (0, 9_000_000) if transfer.to.startswith(host.address) else (0,)

        place.lab.world.fault_hook = copy_late
        if operation == "read":
            jane.read("news", "key = 'a'", latest=True).result()
        else:
            jane.write("news", "a", {"n": "again"}, type="blind").result()
        place.lab.faults.kill("jane")
        place.lab.faults.restart("jane")
        place.lab.world.fault_hook = lambda transfer: (
            () if as_wire(transfer.message).get("kind") == "ask" else (0,)
        )
        second = jane.read("news", "key = 'b'", latest=True)
        place.lab.run(seconds=9)
        assert not second.done()  # its request was lost
        place.lab.world.fault_hook = None
        assert second.result().records == {"b": {"n": "b"}}


def test_late_outcome_of_a_write_does_not_bring_back_what_was_replaced() -> None:
    """Jane has seen Bob's newer version, and evicted it for want of room."""
    place = Place(replicas=0)
    jane, bob = place.client("jane", max_rows=1), place.client("bob")
    jane.create("news").result()
    address = place.lab.devices["jane"].address

    def delay_outcomes(transfer: Transfer) -> tuple[int, ...]:
        is_outcome = as_wire(transfer.message).get("kind") == "outcome" and transfer.to.startswith(address)
        return (60_000_000 if is_outcome else 0,)

    place.lab.world.fault_hook = delay_outcomes
    write = jane.write("news", "a", {"n": "Jane's"}, type="blind")
    place.lab.run(seconds=5)
    assert [bob.write("news", key, {"n": "Bob's"}, type="blind").result() for key in "ab"] == [2, 1]
    assert [jane.read("news", f"key = '{key}'", latest=True).result().versions[key] for key in "ab"] == [2, 1]
    assert not write.done()
    assert write.result() == 1
    place.lab.faults.cut("jane")
    read = jane.read("news", "key = 'a'", utility=FRESH, offline="wait")
    place.lab.run(seconds=5)
    place.lab.faults.mend("jane")
    assert read.result().versions == {"a": 2}


def test_late_outcome_of_a_write_is_held_if_nothing_newer_was_seen() -> None:
    """Jane has seen the log up to her own write, of which the outcome comes later."""
    place = Place(replicas=0)
    jane = place.client("jane")
    jane.create("news").result()
    address = place.lab.devices["jane"].address

    def delay_outcomes(transfer: Transfer) -> tuple[int, ...]:
        is_outcome = as_wire(transfer.message).get("kind") == "outcome" and transfer.to.startswith(address)
        return (60_000_000 if is_outcome else 0,)

    place.lab.world.fault_hook = delay_outcomes
    write = jane.write("news", "a", {"n": "Jane's"}, type="blind")
    place.lab.run(seconds=5)
    assert jane.read("news", "key = 'b'", latest=True).result().records == {}
    assert not write.done()
    assert write.result() == 1
    assert [(row["key"], row["version"]) for row in jane.holdings("news").result()] == [("a", 1)]
