"""What waits to be sent outlives the machine, in order, and is bounded."""

from __future__ import annotations

from collections import Counter
from itertools import count

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from mudkit.delivery.outbox import Outbox
from mudkit.errors import OutboxFull, StoreError
from mudkit.events import Ports
from mudkit.fleet.store import MemoryStore

MOST = 6
_DRAWS = count(1)
"""Of all starts: entropy never repeats."""


def ports(store: MemoryStore) -> Ports:
    return Ports(store, lambda n: next(_DRAWS).to_bytes(n, "big"), "ann/sf")


class Text(msgspec.Struct, frozen=True):
    text: str


class Kept(RuleBasedStateMachine):
    """An outbox beside a list, while its machine is killed and made again."""

    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStore()
        self.store.put("outer", "something else")
        self.outbox = Outbox(ports(self.store), Text, max_items=MOST)
        self.waiting: dict[int, Text] = {}
        self.last = 0
        self.names: dict[int, tuple[str, int]] = {}
        self.counts: Counter[str] = Counter()
        self.store.commit()

    @rule(text=st.text(max_size=3))
    def add(self, text: str) -> None:
        item = Text(text)
        if len(self.waiting) == MOST:
            with pytest.raises(OutboxFull, match="at most 6"):
                self.outbox.add(item)
            return
        self.last += 1
        incarnation = self.outbox.incarnation
        self.counts[incarnation] += 1
        self.names[self.last] = incarnation, self.counts[incarnation]
        assert self.outbox.name(self.last) == self.names[self.last]
        assert self.outbox.add(item) == self.last
        self.waiting[self.last] = item
        self.store.commit()

    @rule(text=st.text(max_size=3))
    def add_and_be_killed(self, text: str) -> None:
        if len(self.waiting) < MOST:
            self.outbox.add(Text(text))
        self.begin_anew()

    @rule()
    def begin_anew(self) -> None:
        self.store.rollback()
        self.outbox = Outbox(ports(self.store), Text, max_items=MOST)

    @rule(text=st.text(max_size=3), place=st.integers(0, MOST - 1))
    def replace(self, text: str, place: int) -> None:
        if place < len(self.waiting):
            seq = list(self.waiting)[place]
            self.waiting[seq] = Text(text)
            self.outbox.replace(seq, Text(text))
            self.store.commit()

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
        assert self.names.get(self.last + 1) is None
        incarnation = self.outbox.incarnation
        assert self.outbox.name(self.last + 1) == (incarnation, self.counts[incarnation] + 1)
        batch = [seq for seq in self.waiting if self.names[seq][0] == self.names[min(self.waiting)][0]]
        assert [seq for seq, _ in self.outbox.batch()] == batch
        for seq in self.waiting:
            incarnation, number = self.names[seq]
            assert self.outbox.name(seq) == (incarnation, number)
            assert self.outbox.seq(incarnation, number) == seq
            of_it = [each for each in self.waiting if self.names[each][0] == incarnation]
            last = self.outbox.seq(incarnation, number + 100)  # starts in between may have nothing pending
            assert [each for each in self.waiting if min(of_it) <= each <= last] == of_it
            assert self.outbox.seq(incarnation, 0) == 0
            assert [each for each, _ in self.outbox.batch(seq)] == [each for each in batch if each >= seq]
        assert self.outbox.seq("nobody", 1) == 0
        for seq in range(-1, self.last + 2):
            assert (seq in self.outbox) == (seq in self.waiting)
            assert list(self.outbox.items(seq)) == [each for each in self.waiting.items() if each[0] >= seq]
        assert [item for _, item in self.store.items("out ", Text)] == list(self.waiting.values())


TestOutbox = Kept.TestCase


def test_no_name_is_used_twice_after_a_backup_has_come_back() -> None:
    store = MemoryStore()
    outbox = Outbox(ports(store), Text)
    outbox.add(Text("one"))
    backup = dict(store.items())
    names = {outbox.name(outbox.add(Text(f"later {number}"))) for number in range(3)}
    for _ in range(3):  # and once more
        store.wipe()
        for key, value in backup.items():
            store.put(key, value)
        outbox = Outbox(ports(store), Text)
        assert [outbox.name(seq).number for seq, _ in outbox.items()] == [1]  # what was in it keeps its name
        new = [outbox.name(outbox.add(Text(f"after {number}"))) for number in range(3)]
        assert not names & set(new)
        assert [name.number for name in new] == [1, 2, 3]
        assert [item.text for _, item in outbox.batch()] == ["one"]  # first what was before the restart
        outbox.ack(1)
        assert [item.text for _, item in outbox.batch()] == ["after 0", "after 1", "after 2"]
        names |= set(new)


def test_incarnations_without_pending_items_are_forgotten() -> None:
    store = MemoryStore()
    for number in range(5):
        outbox = Outbox(ports(store), Text)
        outbox.add(Text(f"{number}"))
        outbox.acked(outbox.last_seq - 1)
    assert len(store.get("starts of out")) == 2


def test_two_outboxes_of_one_store_do_not_mix() -> None:
    store = MemoryStore()
    one, other = Outbox(ports(store), Text, "one"), Outbox(ports(store), Text, "other")
    one.add(Text("a"))
    assert other.add(Text("b")) == 1
    for name, body in (("one", "a"), ("other", "b")):
        assert dict(Outbox(ports(store), Text, name).items()) == {1: Text(body)}
    assert one[1] == Text("a")


def test_what_another_version_has_written_is_refused_with_what_to_do() -> None:
    store = MemoryStore()
    store.put("out 0000000000000000001", {"body": 3})
    with pytest.raises(StoreError, match="empty storage folder"):
        Outbox(ports(store), Text)
