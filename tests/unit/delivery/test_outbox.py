"""What waits to be sent outlives the machine, in order, and is bounded."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from mudkit.delivery.outbox import Outbox
from mudkit.errors import OutboxFull, StoreError
from mudkit.fleet.store import Killed, MemoryStore

MOST = 6


class Text(msgspec.Struct, frozen=True):
    text: str


class Kept(RuleBasedStateMachine):
    """An outbox beside a list, while its machine is killed and made again."""

    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStore()
        self.store.put("outer", "something else")
        self.outbox = Outbox(self.store, Text, most=MOST)
        self.waiting: dict[int, Text] = {}
        self.last = 0
        self.store.commit()

    @rule(text=st.text(max_size=3))
    def add(self, text: str) -> None:
        item = Text(text)
        if len(self.waiting) == MOST:
            with pytest.raises(OutboxFull, match="at most 6"):
                self.outbox.add(item)
            return
        self.last += 1
        assert self.outbox.add(item) == self.last
        self.waiting[self.last] = item
        self.store.commit()

    @rule(text=st.text(max_size=3))
    def add_and_be_killed(self, text: str) -> None:
        def kill(name: str) -> None:
            raise Killed

        if len(self.waiting) < MOST:
            self.store.at_crash_point = kill
            with pytest.raises(Killed):
                self.outbox.add(Text(text))
            self.store.at_crash_point = lambda name: None
        self.begin_anew()

    @rule()
    def begin_anew(self) -> None:
        self.store.rollback()
        self.outbox = Outbox(self.store, Text, most=MOST)

    @rule(seq=st.integers(-1, 30))
    def ack(self, seq: int) -> None:
        assert self.outbox.ack(seq) == self.waiting.pop(seq, None)
        self.store.commit()

    @rule(seq=st.integers(-1, 30))
    def acked(self, seq: int) -> None:
        gone = [(each, item) for each, item in self.waiting.items() if each <= seq]
        assert self.outbox.acked(seq) == gone
        for each, _ in gone:
            del self.waiting[each]
        self.store.commit()

    @invariant()
    def is_the_same(self) -> None:
        assert list(self.outbox.items()) == list(self.waiting.items())
        assert len(self.outbox) == len(self.waiting)
        assert self.outbox.last_seq == self.last
        assert self.outbox.first_seq == min(self.waiting, default=self.last + 1)
        for seq in range(-1, self.last + 2):
            assert (seq in self.outbox) == (seq in self.waiting)
            assert list(self.outbox.items(seq)) == [each for each in self.waiting.items() if each[0] >= seq]
        assert [item for _, item in self.store.items("out ", Text)] == list(self.waiting.values())


TestOutbox = Kept.TestCase


def test_two_outboxes_of_one_store_do_not_mix() -> None:
    store = MemoryStore()
    one, other = Outbox(store, Text, "one"), Outbox(store, Text, "other")
    one.add(Text("a"))
    assert other.add(Text("b")) == 1
    assert [dict(Outbox(store, Text, name).items()) for name in ("one", "other")] == [
        {1: Text("a")},
        {1: Text("b")},
    ]
    assert one[1] == Text("a")


def test_what_another_version_has_written_is_refused_with_what_to_do() -> None:
    store = MemoryStore()
    store.put("out 0000000000000000001", {"body": 3})
    with pytest.raises(StoreError, match="empty storage folder"):
        Outbox(store, Text)
