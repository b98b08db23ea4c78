"""Write path of a client: chains of writes of a record, what they absorb, and in which messages they leave."""

from __future__ import annotations

from collections import Counter

import pytest
from mud_machines import op_of

from mudkit import Lab
from mudkit.errors import ParameterError, TableProblem
from mudkit.systems.mud import Client, Cloud, Conflict
from mudkit.systems.mud.device.connection import MAX_BATCH_BYTES
from mudkit.systems.mud.policies.policies import NEVER
from mudkit.wire import as_wire


@pytest.fixture
def lab():
    return Lab(seed=7)


@pytest.fixture
def jane(lab):
    lab.cloud = Cloud(lab, replicas=0)
    jane = Client(lab.device("jane"), lab.cloud, app="news", token=lab.token("jane", "news"))
    jane.create("news").result()
    return jane


@pytest.fixture
def bob(lab, jane):
    return Client(lab.device("bob"), lab.cloud, app="news", token=lab.token("bob", "news"))


def expect_conflict(write):
    with pytest.raises(Conflict) as caught:
        write.result()
    return caught.value


def test_unknown_write_type_is_refused_with_a_suggestion(jane):
    with pytest.raises(ParameterError, match="did you mean 'conditional'") as caught:
        jane.write("news", "a", {}, type="conditionl").result()
    assert (caught.value.where, caught.value.found) == ("type", "'conditionl'")


@pytest.mark.parametrize("delay", ["soon", -5.0, True, [1], float("nan"), float("inf"), 1e10], ids=repr)
def test_delay_that_is_none_is_refused_without_effect(lab, jane, delay):
    """The protocol of WritePolicy: seconds, NEVER or None."""

    class Odd:
        def delay(self, write, context):
            return delay

    ann = Client(lab.device("ann"), lab.cloud, app="news", token=lab.token("ann", "news"), write_policy=Odd())
    with pytest.raises(ParameterError) as caught:
        ann.write("news", "a", {"n": 1}).result()
    assert (caught.value.where, caught.value.found) == ("Odd.delay", repr(delay))
    assert "from 0 to" in caught.value.expected
    assert ann.pending().result() == []


def test_conditional_write_based_on_a_failed_write_is_not_sent(lab, jane, bob):
    bob.write("news", "a", {"n": 0}).result()
    lab.faults.cut("jane")
    first = jane.write("news", "a", {"n": 1}, "conditional")
    second = jane.write("news", "a", {"n": 2}, "conditional")
    other = jane.write("news", "b", {"n": 3}, "conditional")
    lab.faults.mend("jane")
    assert expect_conflict(first).store["ver"] == 1
    error = expect_conflict(second)
    assert "based on" in error.summary
    assert error.local["data"] == {"n": 2}
    assert second.responded_us == first.responded_us
    assert other.result() == 1


def test_blind_write_succeeds_after_a_failed_write(lab, jane, bob):
    bob.write("news", "a", {"n": 0}).result()
    lab.faults.cut("jane")
    first = jane.write("news", "a", {"n": 1}, "conditional")
    second = jane.write("news", "a", {"n": 2}, "blind")
    third = jane.write("news", "a", {"n": 3}, "conditional")
    lab.faults.mend("jane")
    expect_conflict(first)
    assert (second.result(), third.result()) == (2, 3)


# -- what waited for a network leaves together (Mobius 4.2, 6)


class Given:
    """Write policy that delays a write as a column says."""

    def delay(self, write, context):
        return write["data"].get("wait")


def restart(lab, host):
    lab.faults.kill(host)
    lab.faults.restart(host)


def count_sent(lab, host="jane"):
    """Count the messages that a device sends from now on, by kind."""
    kinds = Counter()

    def record_kind(transfer):
        if transfer.sender.host.name == host:
            kinds[as_wire(transfer.message)["kind"]] += 1
        return (0,)

    lab.world.fault_hook = record_kind
    return kinds


def lose(lab, kind, times=1):
    """Lose the next messages of a kind."""
    lost = []

    def lose_some(transfer):
        if op_of(as_wire(transfer.message)) != kind or len(lost) == times:
            return (0,)
        lost.append(transfer)
        return ()

    lab.world.fault_hook = lose_some


@pytest.fixture
def versions(lab, jane):
    """Versions that the store commits, by key: number and data."""
    committed = {}

    def record_entry(key, value):
        if key.startswith("log ") and (entry := as_wire(value))["op"] == "row":
            row = entry["row"]
            committed.setdefault(row["key"], []).append((row["ver"], row["data"]))

    lab.world.at_address[lab.cloud.back_end].store.at_put = record_entry
    return committed


@pytest.mark.parametrize("keys", [["a"], [f"k{number}" for number in range(20)]], ids=["one key", "20 keys"])
def test_writes_of_an_outage_leave_in_one_message(lab, jane, keys):
    lab.faults.cut("jane")
    writes = [jane.write("news", keys[n % len(keys)], {"n": n}, "conditional") for n in range(20)]
    kinds = count_sent(lab)
    lab.faults.mend("jane")
    lab.run(minutes=5)
    expected = list(range(1, 21)) if len(keys) == 1 else [1] * 20
    assert [write.result() for write in writes] == expected
    assert (kinds["asks"], kinds["ask"]) == (1, 0)


def test_writes_behind_one_in_flight_leave_with_it_after_an_outage(lab, jane):
    lose(lab, "outcome")
    first = jane.write("news", "a", {"n": 1}, "conditional")
    lab.run(seconds=2)
    lab.faults.cut("jane")
    others = [jane.write("news", "a", {"n": n}, "conditional") for n in (2, 3)]
    kinds = count_sent(lab)
    lab.faults.mend("jane")
    assert [write.result() for write in (first, *others)] == [1, 2, 3]
    assert (kinds["asks"], kinds["ask"]) == (1, 0)


def test_large_writes_of_an_outage_leave_in_messages_of_bounded_size(lab, jane):
    lab.faults.cut("jane")
    size = MAX_BATCH_BYTES // 4
    writes = [jane.write("news", f"k{n}", {"x": "x" * size}) for n in range(9)]
    kinds = count_sent(lab)
    lab.faults.mend("jane")
    lab.run(minutes=5)
    assert [write.result() for write in writes] == [1] * 9
    assert (kinds["asks"], kinds["ask"]) == (3, 0)


def test_chain_of_two_incarnations_keeps_its_order(lab, jane):
    """A write names the one that it follows by its number, which only its own incarnation has."""
    lab.faults.cut("jane")
    for n in (1, 2):
        jane.write("news", "a", {"n": n}, "conditional")
    restart(lab, "jane")
    others = [jane.write("news", "a", {"n": n}, "conditional") for n in (3, 4)]
    lab.faults.mend("jane")
    lab.run(minutes=2)
    assert [write.result() for write in others] == [3, 4]
    assert jane.pending().result() == []


@pytest.mark.parametrize("kind", ["write", "outcome", "described"])
def test_chain_of_which_a_part_is_lost_keeps_its_order(lab, jane, kind):
    """Lose the first request at the back end, or the first answer at the device: the others wait for it."""
    lab.faults.cut("jane")
    writes = [jane.write("news", "a", {"n": n}, "conditional") for n in range(1, 6)]
    lose(lab, kind)
    lab.faults.mend("jane")
    lab.run(minutes=1)
    assert [write.result() for write in writes] == [1, 2, 3, 4, 5]
    assert [write.responded_us for write in writes] == sorted(write.responded_us for write in writes)
    assert jane.read("news", latest=True).result().records == {"a": {"n": 5}}


def test_answer_that_comes_too_early_waits_for_that_of_the_earlier_write(lab, jane):
    lab.faults.cut("jane")
    first, second = (jane.write("news", "a", {"n": n}, "conditional") for n in (1, 2))
    lose(lab, "outcome")
    lab.faults.mend("jane")
    lab.run(seconds=5)
    assert not second.done()
    assert jane.read("news", "key = 'a'", "uncommitted").result().records == {"a": {"n": 2}}
    kinds = count_sent(lab)
    assert (first.result(), second.result()) == (1, 2)
    assert (kinds["ask"], kinds["asks"]) == (1, 0)  # the second is not sent again


def test_early_answer_of_a_lost_log_does_not_count(lab, jane):
    backup = lab.faults.backup("mud-store")
    lab.faults.cut("jane")
    first, second = (jane.write("news", "a", {"n": n}, "conditional") for n in (1, 2))
    lose(lab, "outcome")
    lab.faults.mend("jane")
    lab.run(seconds=5)
    assert not first.done()
    lab.faults.restore("mud-store", backup)
    lab.run(minutes=2)
    assert (first.result(), second.result()) == (1, 2)
    assert jane.read("news", latest=True).result().versions == {"a": 2}


def test_write_withheld_by_the_policy_stays_behind_a_chain(lab, jane):
    ann = Client(
        lab.device("ann"), lab.cloud, app="news", token=lab.token("ann", "news"), write_policy=Given()
    )
    lab.faults.cut("ann")
    waits = (None, None, NEVER, None)
    writes = [ann.write("news", "a", {"n": n, "wait": wait}, "conditional") for n, wait in enumerate(waits)]
    lab.faults.mend("ann")
    lab.run(minutes=1)
    assert [write.done() for write in writes] == [True, True, False, False]


# -- blind writes that were never sent become one (Mobius 6)


def test_blind_writes_of_an_outage_become_one(lab, jane, versions):
    lab.faults.cut("jane")
    writes = [jane.write("news", "a", {"n": n}) for n in range(20)]
    assert [(write["data"], write["absorbed"]) for write in jane.pending().result()] == [({"n": 19}, 19)]
    lab.faults.mend("jane")
    assert [write.result() for write in writes] == [1] * 20
    assert len({write.responded_us for write in writes}) == 1
    assert versions["a"] == [(1, {"n": 19})]


def test_request_counts_what_it_has_absorbed(lab, jane):
    requests = {}

    def record_requests(transfer):
        for ask in as_wire(transfer.message).get("asks", ()):
            requests[ask["what"]["key"]] = ask["what"].get("absorbed")
        return (0,)

    lab.faults.cut("jane")
    for key in "aaab":
        jane.write("news", key, {"n": 1})
    lab.world.fault_hook = record_requests
    lab.faults.mend("jane")
    lab.run(minutes=1)
    assert requests == {"a": 2, "b": None}  # absent from other writes: they keep their size


def test_delete_absorbs_a_write_and_no_write_a_delete(lab, jane, versions):
    """Module docstring of joined_writes: a delete ends the rule of the record, so it is not left out."""
    lab.faults.cut("jane")
    writes = [jane.write("news", "a", {"n": 1}), jane.delete("news", "a")]
    others = [jane.delete("news", "b"), jane.write("news", "b", {"n": 2}, predicate="receiver.age > 20")]
    lab.faults.mend("jane")
    assert [write.result() for write in (*writes, *others)] == [1, 1, 1, 2]
    assert (versions["a"], versions["b"]) == ([(1, None)], [(1, None), (2, {"n": 2})])
    assert jane.read("news", latest=True).result().records == {}
    assert jane.read("news", latest=True, data={"age": 30}).result().records == {"b": {"n": 2}}


def test_conditional_write_is_not_absorbed_and_absorbs_nothing(lab, jane, versions):
    lab.faults.cut("jane")
    kinds = ("blind", "blind", "conditional", "conditional", "blind", "blind")
    writes = [jane.write("news", "a", {"n": n}, kind) for n, kind in enumerate(kinds, start=1)]
    lab.faults.mend("jane")
    assert [write.result() for write in writes] == [1, 1, 2, 3, 4, 4]
    assert versions["a"] == [(1, {"n": 2}), (2, {"n": 3}), (3, {"n": 4}), (4, {"n": 6})]


def test_write_that_was_sent_is_not_absorbed(lab, jane, versions):
    lose(lab, "outcome")
    first = jane.write("news", "a", {"n": 1})
    lab.run(seconds=2)
    lab.faults.cut("jane")
    second, third = (jane.write("news", "a", {"n": n}) for n in (2, 3))
    lab.faults.mend("jane")
    assert (first.result(), second.result(), third.result()) == (1, 2, 2)
    assert versions["a"] == [(1, {"n": 1}), (2, {"n": 3})]


def test_write_of_a_former_start_is_not_absorbed(lab, jane, versions):
    """It may have been sent: the machine does not know any more."""
    lab.faults.cut("jane")
    jane.write("news", "a", {"n": 1})
    restart(lab, "jane")
    second, third = (jane.write("news", "a", {"n": n}) for n in (2, 3))
    lab.faults.mend("jane")
    assert (second.result(), third.result()) == (2, 2)
    assert versions["a"] == [(1, {"n": 1}), (2, {"n": 3})]


@pytest.mark.parametrize("point", ["before commit", "after commit"])
def test_absorbed_write_survives_a_kill_in_one_piece(lab, jane, versions, point):
    lab.faults.cut("jane")
    jane.write("news", "a", {"n": 1})
    lab.faults.kill("jane", at=point)
    jane.write("news", "a", {"n": 2})
    lab.faults.restart("jane")
    (pending,) = jane.pending().result()
    assert pending["data"] == {"n": 1 if point == "before commit" else 2}
    lab.faults.mend("jane")
    lab.run(minutes=1)
    assert versions["a"] == [(1, pending["data"])]


def test_committed_wio_read_comes_between_writes(lab, jane, versions):
    """Mobius 4.1, table 3: it sees all writes before it, and none after it."""
    lab.faults.cut("jane")
    first = [jane.write("news", "a", {"n": n}) for n in (1, 2)]
    read = jane.read("news", "key = 'a'", "committed_wio")
    then = [jane.write("news", "a", {"n": n}) for n in (3, 4)]
    lab.faults.mend("jane")
    assert [write.result() for write in (*first, *then)] == [1, 1, 2, 2]
    assert read.result().records == {"a": {"n": 2}}
    assert versions["a"] == [(1, {"n": 2}), (2, {"n": 4})]


@pytest.mark.parametrize(
    ("waits", "minutes"),
    [((600, None), 0), ((600, 1200), 10), ((1200, 600), 10), ((NEVER, 600), 10), ((600, NEVER), 10)],
)
def test_absorbing_write_leaves_when_the_first_of_both_was_to(lab, jane, waits, minutes):
    ann = Client(
        lab.device("ann"), lab.cloud, app="news", token=lab.token("ann", "news"), write_policy=Given()
    )
    writes = [ann.write("news", "a", {"n": n, "wait": wait}) for n, wait in enumerate(waits)]
    lab.run(minutes=30)
    assert [write.result() for write in writes] == [1, 1]
    assert round((writes[0].responded_us - writes[0].invoked_us) / 60e6) == minutes


def test_restored_device_does_not_apply_a_write_that_was_absorbed(lab, jane, versions):
    lab.faults.cut("jane")
    jane.write("news", "a", {"n": 1})
    backup = lab.faults.backup("jane")
    second = jane.write("news", "a", {"n": 2})
    lab.faults.mend("jane")
    assert second.result() == 1
    lab.faults.restore("jane", backup)
    lab.run(minutes=2)
    assert jane.pending().result() == []
    assert versions["a"] == [(1, {"n": 2})]


def test_write_to_a_later_table_of_the_name_absorbs_none_to_the_former(lab, jane):
    ann = Client(
        lab.device("ann"), lab.cloud, app="news", token=lab.token("ann", "news"), write_policy=Given()
    )
    ann.read("news").result()
    first = ann.write("news", "a", {"n": 1, "wait": 600})
    ann.drop("news").result()
    ann.create("news").result()
    second = ann.write("news", "a", {"n": 2, "wait": 600})
    lab.run(minutes=11)
    with pytest.raises(TableProblem):
        first.result()
    assert second.result() == 1
