"""Continuous reads of a client by themselves: what is registered when, and what is passed on once."""

from __future__ import annotations

import msgspec
import pytest
from mud_machines import ports, sent

from mudkit import Lab
from mudkit.errors import ParameterError
from mudkit.events import Complete, Notify, SetTimer
from mudkit.fleet.store import MemoryStore
from mudkit.predicates import Predicate
from mudkit.systems.mud import Client, Cloud
from mudkit.systems.mud.device.connection import Connection, Updating
from mudkit.systems.mud.device.continuous_reads import HELLO, ContinuousReads
from mudkit.systems.mud.device.local import Local
from mudkit.systems.mud.messages import (
    CLIENT_FROM_GATEWAY,
    CLIENT_FROM_NOTIFICATION_SERVER,
    Register,
    Unregister,
    UpdateData,
    Welcome,
)

TABLE = {
    "name": "t", "owner": "news", "acl": "public", "apps": None, "split": [], "schema": None, "removed": {}, "number": 1,
    "lsn": 1,
}  # fmt: skip
ROW = {"data": {}, "predicate": None, "ts_us": 0, "lsn": 1}
REFUSED = {"kind": "AccessDenied", "summary": "no"}


class Cell:
    """The continuous reads of a client, with its connection."""

    def __init__(self, store=None, *, is_up=True):
        self.ports = ports("jane", store or MemoryStore())
        self.connection = Connection("jane/news", None, ["gateway"], 0)
        self.connection.incarnation = "first"
        self.local = Local(self.ports, 10)
        self.watching = ContinuousReads(self.ports, self.local, self.connection, ["server"], [])
        if is_up:
            self.connection.up()
        self.number, self.seq = 0, 100

    def register(self, op_id=1, sync=None):
        return self.watching.register(0, op_id, Register("t", Predicate("TRUE"), {}, sync, "me"))

    def answer(self, asked, lives):
        """Answer a registration, with the lives of the processors that have it."""
        for place, life in lives.items():
            self.part(asked, place, life, data_seq=asked["what"]["data_seq"])
        return self.take({"kind": "complete", "id": asked["id"], "places": ["p0", "p1"]})

    def part(self, asked, place, life, **more):
        """Answer for a processor."""
        part = {"kind": "registered", "id": asked["id"], "place": place, "life": life, "lsn": 5, **more}
        return self.take(part)

    def take(self, message):
        """Take a message of an answer, and process the answer that it completes."""
        if message["kind"] == "complete":
            message = {"table": TABLE, "claims": None, "places": [], **message}
        answer = CLIENT_FROM_GATEWAY.decode(message)
        ask = self.connection.take(answer)
        if ask is None:
            return ()
        timer = self.connection.answered(0, ask)
        if isinstance(ask.work, Updating):
            return [*timer, *self.watching.updated(ask.work, answer)]
        return [*timer, *self.watching.registered(0, ask.work, ask, answer)]

    def welcome(self, session, seq=None, incarnation="first"):
        self.seq = self.seq + 1 if seq is None else seq
        return self.watching.welcome(0, Welcome(session, incarnation, self.seq))

    def begin(self, lives=None, sync=None):
        """Register a read, and answer that."""
        self.register(sync=sync)
        ((_, asked),) = asks(self.welcome("s"))
        return self.answer(asked, lives or {"p0": 1, "p1": 1})

    def hear(self, what="tell", stream="s", processor="p0", life=1, **body):
        self.number += 1
        body = {
            "what": what, "processor": processor, "life": life, "handle": "first 1", "table": 1,
            "endpoint": "jane/news", "session": stream, **body,
        }  # fmt: skip
        message = {"kind": "stream", "stream": stream, "number": self.number, "first": 1, "body": body}
        return self.watching.stream(0, "server", CLIENT_FROM_NOTIFICATION_SERVER.decode(message))

    def change(self, key="a", ver=1, lsn=6, op="upsert", **more):
        return self.hear(change={"op": op, **ROW, "key": key, "ver": ver}, lsn=lsn, **more)


def asks(effects):
    return [(to, message) for to, message in sent(effects) if message["kind"] == "ask"]


def completed(effects):
    return [each for each in effects if isinstance(each, Complete)]


def told(effects):
    found = []
    for each in effects:
        if isinstance(each, Notify):
            change = each.payload
            found.append("ended" if isinstance(change, dict) else (change.kind, change.key, change.version))
    return found


@pytest.fixture
def cell():
    return Cell()


@pytest.mark.parametrize("wrong", [-1, -0.5])
def test_a_time_that_is_none_is_refused(cell, wrong):
    with pytest.raises(ParameterError):
        cell.register(sync=wrong)


@pytest.mark.parametrize("right", [None, 0, 0.0, 2.5])
def test_a_time_is_sent_in_microseconds(cell, right):
    cell.register(sync=right)
    ((_, asked),) = asks(cell.welcome("s"))
    assert asked["what"]["sync_us"] == (None if right is None else round(right * 1e6))


def test_it_says_hello_first_and_registers_when_it_is_welcome(cell):
    effects = cell.register()
    assert [message["kind"] for _, message in sent(effects)] == ["hello"]
    assert HELLO in cell.connection.timer
    assert any(isinstance(each, SetTimer) for each in effects)
    assert len(asks(cell.welcome("s"))) == 1
    effects = cell.register(2)
    assert [message["kind"] for _, message in sent(effects)] == ["ask"]
    assert asks(cell.welcome("s")) == []  # the server knows it still
    assert len(asks(cell.welcome("another"))) == 2


def test_without_anything_to_be_told_or_a_link_it_says_nothing(cell):
    assert cell.watching.hello(0) == ()
    away = Cell(is_up=False)
    assert sent(away.register()) == []


def test_a_registration_is_done_when_all_processors_have_it(cell):
    cell.register()
    ((_, asked),) = asks(cell.welcome("s"))
    effects = cell.answer(asked, {"p0": 1})
    assert completed(effects) == []
    ((_, again),) = asks(effects)
    (done,) = completed(cell.answer(again, {"p0": 1, "p1": 1}))
    assert (done.op_id, done.result, done.error) == (1, 1, None)


def test_an_answer_does_not_count_when_it_was_asked_for_again_meanwhile(cell):
    cell.register()
    ((_, first),) = asks(cell.welcome("s"))
    ((_, second),) = asks(cell.welcome("another"))
    assert completed(cell.answer(first, {"p0": 1, "p1": 1})) == []
    assert len(completed(cell.answer(second, {"p0": 1, "p1": 1}))) == 1


def test_a_registration_that_is_refused_ends_it(cell):
    cell.register()
    ((_, asked),) = asks(cell.welcome("s"))
    effects = cell.take({"kind": "refused", "id": asked["id"], "error": REFUSED})
    (done,) = completed(effects)
    assert done.error is not None
    with pytest.raises(ParameterError):
        cell.watching.unregister(0, 2, Unregister(1))


def test_one_that_is_refused_later_is_ended_for_who_listens(cell):
    cell.begin()
    ((_, asked),) = asks(cell.welcome("another"))
    assert told(cell.take({"kind": "refused", "id": asked["id"], "error": REFUSED})) == ["ended"]


def test_what_comes_is_passed_on_once(cell):
    cell.begin()
    assert told(cell.change(ver=1, lsn=6)) == [("upsert", "a", 1)]
    assert told(cell.change(ver=2, lsn=6)) == []  # it has been as far as that
    assert told(cell.change(ver=1, lsn=7)) == []  # it knows this version
    assert told(cell.change(ver=2, lsn=None)) == [("upsert", "a", 2)]  # as part of what was there
    assert told(cell.change(ver=3, lsn=8, op="remove")) == [("remove", "a", 3)]
    assert told(cell.change(ver=4, lsn=9, op="remove")) == []  # it was not told of it
    assert told(cell.change(ver=5, lsn=9, processor="p1")) == [("upsert", "a", 5)]  # another's log
    other = {"op": "upsert", **ROW, "key": "b", "ver": 1}
    assert told(cell.hear(change=other, lsn=10, handle="first 7")) == []


def test_a_message_of_another_session_is_left_and_not_confirmed(cell):
    cell.begin()
    assert cell.change(stream="before") == ()


def test_what_has_overtaken_something_is_passed_on_after_it(cell):
    cell.begin()
    cell.number = 1
    later = cell.change("b", 1, 7)
    assert told(later) == []
    assert [message["number"] for _, message in sent(later)] == [0]
    cell.number = 0
    both = cell.change("a", 1, 6)
    assert told(both) == [("upsert", "a", 1), ("upsert", "b", 1)]
    assert [message["number"] for _, message in sent(both)] == [2]


def test_with_another_session_what_has_overtaken_something_in_the_one_before_is_forgotten(cell):
    cell.begin()
    cell.number = 1
    cell.change("b", 1, 7)
    cell.welcome("another")
    cell.welcome("s")
    cell.number = 0
    assert told(cell.change("a", 1, 6)) == [("upsert", "a", 1)]
    assert told(cell.change("b", 1, 7)) == [("upsert", "b", 1)]


def test_where_its_reader_is_in_the_log_goes_up_only(cell):
    cell.begin(sync=0)
    cell.hear(synced=9)
    cell.hear(synced=4)
    ((_, asked),) = asks(cell.welcome("another"))
    assert asked["what"]["since"] == {"p0": 9}


def test_who_asked_for_nothing_that_is_there_is_up_to_date_from_the_answer_on(cell):
    cell.begin()
    ((_, asked),) = asks(cell.welcome("another"))
    assert asked["what"]["since"] == {"p0": 5, "p1": 5}
    other = Cell()
    other.begin(sync=0)
    ((_, asked),) = asks(other.welcome("another"))
    assert asked["what"]["since"] == {}  # what is there is still to come


def test_another_life_of_a_processor_is_told_of_what_the_one_before_knew(cell):
    cell.begin({"p0": 1, "p1": 1})
    assert asks(cell.hear("life", life=1)) == []
    assert len(asks(cell.hear("life", life=2))) == 1
    assert asks(cell.hear("life", life=2)) == []
    assert asks(cell.hear("life", life=1)) == []
    assert told(cell.change(life=1)) == []  # the one before had sent it
    assert told(cell.change(life=2)) == [("upsert", "a", 1)]


def test_a_life_that_is_known_there_needs_nothing(cell):
    cell.begin({"p0": 3, "p1": 1})
    assert asks(cell.hear("life", life=3)) == []
    assert asks(cell.hear("life", life=1, processor="another")) == []


def test_an_answer_of_an_older_life_is_asked_for_again(cell):
    cell.begin({"p0": 2, "p1": 1})
    cell.hear("life", life=2)
    ((_, asked),) = asks(cell.welcome("another"))
    assert len(asks(cell.answer(asked, {"p0": 1, "p1": 1}))) == 1
    (_, asked), *_ = asks(cell.welcome("one more"))
    assert asks(cell.answer(asked, {"p0": 2, "p1": 1})) == []


def test_what_is_kept_is_registered_again_in_another_life(cell):
    cell.begin()
    cell.change()
    again = Cell(cell.ports.store)
    ((_, asked),) = asks(again.welcome("s2"))
    assert (asked["what"]["held"], asked["what"]["since"]["p0"]) == (["a"], 6)
    assert completed(again.answer(asked, {"p0": 1, "p1": 1})) == []  # who asked is gone


def test_an_end_is_said_once(cell):
    cell.begin()
    assert told(cell.hear(ended="no more")) == ["ended"]
    assert told(cell.hear(ended="no more")) == []
    assert cell.ports.store.items("reading ") == []


def test_what_one_processor_ends_is_ended_at_the_others(cell):
    cell.begin()
    ((_, asked),) = asks(cell.hear(ended="no more", is_alone=True))
    assert (asked["what"]["op"], asked["what"]["handle"]) == ("unregister", "first 1")
    assert completed(cell.take({"kind": "complete", "id": asked["id"]})) == []
    assert asks(cell.hear(ended="no more", is_alone=True)) == []


def test_what_all_processors_end_needs_no_word(cell):
    cell.begin()
    assert asks(cell.hear(ended="no more")) == []


@pytest.mark.parametrize("is_first", [True, False])
def test_what_one_processor_refuses_is_ended_at_the_others(cell, is_first):
    if is_first:
        cell.register()
    else:
        cell.begin()
    ((_, asked),) = asks(cell.welcome("s" if is_first else "another"))
    effects = cell.part(asked, "p0", 1, data_seq=1, error=REFUSED)
    assert told(effects) == ([] if is_first else ["ended"])
    assert len(completed(effects)) == is_first
    ((_, asked),) = asks(effects)
    assert (asked["what"]["op"], asked["what"]["handle"]) == ("unregister", "first 1")


def test_what_is_changed_or_ended_is_told_to_the_cloud(cell):
    cell.begin()
    ((_, asked),) = asks(cell.watching.change(0, 5, UpdateData(1, {"age": 3})))
    assert (asked["what"]["op"], asked["what"]["reader"]) == ("update_data", {"age": 3})
    (done,) = completed(cell.take({"kind": "complete", "id": asked["id"]}))
    assert (done.op_id, done.error) == (5, None)
    ending = cell.watching.unregister(0, 6, Unregister(1))
    assert completed(ending) == []  # the call that began it is answered
    ((_, asked),) = asks(ending)
    (refused,) = completed(cell.take({"kind": "refused", "id": asked["id"], "error": REFUSED}))
    assert refused.error.summary == "no"


def test_registered_again_it_names_the_table_that_it_was_registered_for(cell):
    cell.register(sync=0)
    ((_, asked),) = asks(cell.welcome("s"))
    assert asked["what"]["table"] is None
    cell.answer(asked, {"p0": 1, "p1": 1})
    ((_, again),) = asks(cell.welcome("another"))
    assert again["what"]["table"] == 1


def test_a_table_is_known_from_what_comes_before_the_answer(cell):
    cell.register(sync=0)
    cell.welcome("s")
    cell.change(table=7)
    (again,) = [
        message for _, message in asks(cell.welcome("another")) if message["what"]["handle"] == "first 1"
    ]
    assert again["what"]["table"] == 7


def test_what_a_life_before_tells_while_a_new_one_registers_is_told_the_new_one(cell):
    """The new life removes nothing that it does not know its reader to hold: so it is asked again."""
    cell.begin({"p0": 1, "p1": 1}, sync=0)
    cell.hear(synced=5)
    ((_, asked),) = asks(cell.hear(what="life", processor="p1", life=2))
    assert asked["what"]["held"] == []
    assert told(cell.change(key="a", ver=1, lsn=6, life=1)) == [("upsert", "a", 1)]  # it was under way
    ((_, again),) = asks(cell.answer(asked, {"p0": 2, "p1": 2}))
    assert again["what"]["held"] == ["a"]
    assert again["what"]["since"] == {"p0": 5}
    assert asks(cell.answer(again, {"p0": 2, "p1": 2})) == []


def test_what_a_life_before_tells_after_a_new_one_has_registered_is_not_passed_on(cell):
    cell.begin({"p0": 2, "p1": 1}, sync=0)
    assert told(cell.change(key="a", ver=1, life=1)) == []
    assert told(cell.change(key="a", ver=2, life=2)) == [("upsert", "a", 2)]


def test_what_was_ended_before_its_registration_was_answered_is_not_registered_again(cell):
    cell.register()
    ((_, asked),) = asks(cell.welcome("s"))
    (begun,) = completed(cell.watching.unregister(0, 2, Unregister(1)))
    assert (begun.op_id, begun.result, begun.error) == (1, 1, None)
    assert asks(cell.answer(asked, {"p0": 1})) == []
    assert asks(cell.hear(what="life", life=2)) == []


def test_a_late_copy_of_a_welcome_is_ignored(cell):
    cell.register()
    assert len(asks(cell.welcome("s2", 2))) == 1
    assert cell.welcome("s1", 1) == ()
    assert cell.welcome("s1", 2) == ()
    assert cell.welcome("s1", 3, incarnation="of a former start") == ()
    assert told(cell.change(stream="s2")) == [("upsert", "a", 1)]


def test_a_welcome_that_answers_a_hello_from_before_news_is_ignored(cell):
    (_, hello), *_ = sent(cell.register())
    assert (hello["incarnation"], hello["seq"]) == ("first", 1)
    ((_, resent),) = sent(cell.watching.hello(0))
    assert resent["seq"] == 2
    assert sent(cell.watching.greet(0))[0][1]["seq"] == 3
    assert cell.welcome("s", 2) == ()
    assert HELLO in cell.connection.timer
    cell.watching.hello(0)
    assert len(asks(cell.welcome("s", 3))) == 1  # on a slow link it answers the one before the last


def test_a_question_is_answered_with_its_nonce_once_until_a_welcome(cell):
    cell.register()
    ((_, hello),) = sent(cell.watching.identify(0, "n"))
    assert hello["nonce"] == "n"
    assert cell.watching.identify(0, "n") == ()
    cell.welcome("s")
    ((_, hello),) = sent(cell.watching.hello(0))
    assert "nonce" not in hello


def test_a_change_costs_the_same_however_many_records_a_read_holds():
    lab, sizes = Lab(seed=1), []
    cloud = Cloud(lab)
    ann, bob = (
        Client(lab.device(name), cloud, app="app", token=lab.token(name, "app")) for name in ("ann", "bob")
    )
    ann.create("t").result()
    bob.read("t", type="continuous", callback=lambda change: None).result()
    store = lab.world.hosts["bob"].processes[0].store
    store.at_put = lambda key, value: sizes.append(len(msgspec.msgpack.encode(value)))
    written = []
    for number in range(200):
        ann.write("t", f"k{number:03d}", {"n": number}).result()
        lab.run(seconds=1)
        written.append(sum(sizes))
        sizes.clear()
    assert max(written[-10:]) < 1.2 * max(written[:10])
    ann.write("t", "k000", {"n": 0}).result()
    lab.faults.kill("bob")
    lab.faults.restart("bob")
    assert len(lab.world.hosts["bob"].processes[0].machine._watching.watches()[0].delivered) == 200
