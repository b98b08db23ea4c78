"""Outbox: durable, ordered, bounded, with names that are never reused."""

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

MAX_ITEMS = 6
_DRAWS = count(1)
"""Shared by all starts, so that entropy never repeats."""


def create_ports(store: MemoryStore) -> Ports:
    return Ports(store, lambda n: next(_DRAWS).to_bytes(n, "big"), "ann/sf")


class Text(msgspec.Struct, frozen=True):
    text: str


class OutboxModel(RuleBasedStateMachine):
    """Outbox compared with a dictionary, while its machine is killed and restarted."""

    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStore()
        self.store.put("outer", "something else")
        self.outbox = Outbox(create_ports(self.store), Text, max_items=MAX_ITEMS)
        self.pending: dict[int, Text] = {}
        self.last = 0
        self.names: dict[int, tuple[str, int]] = {}
        self.counts: Counter[str] = Counter()
        self.store.commit()

    @rule(text=st.text(max_size=3))
    def add(self, text: str) -> None:
        item = Text(text)
        if len(self.pending) == MAX_ITEMS:
            with pytest.raises(OutboxFull, match="at most 6"):
                self.outbox.add(item)
            return
        self.last += 1
        incarnation = self.outbox.incarnation
        self.counts[incarnation] += 1
        self.names[self.last] = incarnation, self.counts[incarnation]
        assert self.outbox.item_id(self.last) == self.names[self.last]
        assert self.outbox.add(item) == self.last
        self.pending[self.last] = item
        self.store.commit()

    @rule(text=st.text(max_size=3))
    def add_without_commit(self, text: str) -> None:
        if len(self.pending) < MAX_ITEMS:
            self.outbox.add(Text(text))
        self.restart()

    @rule()
    def restart(self) -> None:
        self.store.rollback()
        self.outbox = Outbox(create_ports(self.store), Text, max_items=MAX_ITEMS)

    @rule(text=st.text(max_size=3), place=st.integers(0, MAX_ITEMS - 1))
    def replace(self, text: str, place: int) -> None:
        if place < len(self.pending):
            seq = list(self.pending)[place]
            self.pending[seq] = Text(text)
            self.outbox.replace(seq, Text(text))
            self.store.commit()

    @rule(seq=st.integers(-1, 30))
    def ack(self, seq: int) -> None:
        assert self.outbox.ack(seq) == self.pending.pop(seq, None)
        self.store.commit()

    @rule(seq=st.integers(-1, 30))
    def acked(self, seq: int) -> None:
        acknowledged = [(other, item) for other, item in self.pending.items() if other <= seq]
        assert self.outbox.ack_up_to(seq) == acknowledged
        for other, _ in acknowledged:
            del self.pending[other]
        self.store.commit()

    @invariant()
    def check_model(self) -> None:
        assert list(self.outbox.items()) == list(self.pending.items())
        assert len(self.outbox) == len(self.pending)
        assert self.outbox.last_seq == self.last
        assert self.outbox.first_seq == min(self.pending, default=self.last + 1)
        assert self.names.get(self.last + 1) is None
        incarnation = self.outbox.incarnation
        assert self.outbox.item_id(self.last + 1) == (incarnation, self.counts[incarnation] + 1)
        batch = [seq for seq in self.pending if self.names[seq][0] == self.names[min(self.pending)][0]]
        assert [seq for seq, _ in self.outbox.sendable_items()] == batch
        for seq in self.pending:
            incarnation, number = self.names[seq]
            assert self.outbox.item_id(seq) == (incarnation, number)
            assert self.outbox.seq_of(incarnation, number) == seq
            of_incarnation = [other for other in self.pending if self.names[other][0] == incarnation]
            last = self.outbox.seq_of(incarnation, number + 100)  # starts in between may have nothing pending
            assert [other for other in self.pending if min(of_incarnation) <= other <= last] == of_incarnation
            assert self.outbox.seq_of(incarnation, 0) == 0
            assert [other for other, _ in self.outbox.sendable_items(seq)] == [
                other for other in batch if other >= seq
            ]
        assert self.outbox.seq_of("nobody", 1) == 0
        for seq in range(-1, self.last + 2):
            assert (seq in self.outbox) == (seq in self.pending)
            assert list(self.outbox.items(seq)) == [pair for pair in self.pending.items() if pair[0] >= seq]
        assert [item for _, item in self.store.items("out ", Text)] == list(self.pending.values())


TestOutbox = OutboxModel.TestCase


def test_item_names_are_not_reused_after_a_restore() -> None:
    store = MemoryStore()
    outbox = Outbox(create_ports(store), Text)
    outbox.add(Text("one"))
    backup = dict(store.items())
    names = {outbox.item_id(outbox.add(Text(f"later {number}"))) for number in range(3)}
    for _ in range(3):  # also a repeated restore
        store.wipe()
        for key, value in backup.items():
            store.put(key, value)
        outbox = Outbox(create_ports(store), Text)
        assert [outbox.item_id(seq).number for seq, _ in outbox.items()] == [1]  # items keep their names
        new = [outbox.item_id(outbox.add(Text(f"after {number}"))) for number in range(3)]
        assert not names & set(new)
        assert [name.number for name in new] == [1, 2, 3]
        assert [item.text for _, item in outbox.sendable_items()] == [
            "one"
        ]  # items of the former incarnation first
        outbox.ack(1)
        assert [item.text for _, item in outbox.sendable_items()] == ["after 0", "after 1", "after 2"]
        names |= set(new)


def test_incarnations_without_pending_items_are_forgotten() -> None:
    store = MemoryStore()
    for number in range(5):
        outbox = Outbox(create_ports(store), Text)
        outbox.add(Text(f"{number}"))
        outbox.ack_up_to(outbox.last_seq - 1)
    assert len(store.get("starts of out")) == 2


def test_two_outboxes_of_one_store_do_not_mix() -> None:
    store = MemoryStore()
    one, other = Outbox(create_ports(store), Text, "one"), Outbox(create_ports(store), Text, "other")
    one.add(Text("a"))
    assert other.add(Text("b")) == 1
    for name, body in (("one", "a"), ("other", "b")):
        assert dict(Outbox(create_ports(store), Text, name).items()) == {1: Text(body)}
    assert one[1] == Text("a")


def test_items_of_another_version_are_refused_with_a_remedy() -> None:
    store = MemoryStore()
    store.put("out 0000000000000000001", {"body": 3})
    with pytest.raises(StoreError, match="empty storage folder"):
        Outbox(create_ports(store), Text)
