"""Contrail: who can read what, over random comings and goings."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mudkit.events import Ports
from mudkit.fleet.store import MemoryStore
from mudkit.systems.contrail.device.channels import KEPT_EPOCHS, Channel
from mudkit.systems.contrail.device.core import Core, Settings

ENDPOINTS = [(name, "in") for name in "abc"]
some = st.sets(st.sampled_from(ENDPOINTS), min_size=1)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("members"), some),
        st.tuples(st.just("publish"), some),
        st.tuples(st.just("publish"), st.just(set(ENDPOINTS))),
        st.tuples(st.just("again"), some),
        st.tuples(st.just("wait"), st.integers(1, 2000)),
        st.tuples(st.just("restart")),
    ),
    min_size=10,
    max_size=60,
)


@given(steps)
def test_who_reads_an_item_was_a_receiver_when_it_was_encrypted(steps):
    settings = Settings("me", [], {}, [], False, False, False, 1_000_000_000, 1)
    store = MemoryStore()

    def begin():
        core = Core(Ports(store, lambda n: bytes(n), "me"), settings)  # its random bytes are always the same
        return core, Channel(core, "out")

    core, channel = begin()
    members, now_us = set(), 0
    holds = {endpoint: set() for endpoint in ENDPOINTS}
    items, keys, last = [], {}, None
    for what, *argument in steps:
        core.now_us = now_us
        match what:
            case "members":
                members = argument[0]
            case "wait":
                now_us += argument[0] * 1_000_000
            case "restart":
                core, channel = begin()
            case "publish" | "again":
                channel.settle(members)
                to = sorted(argument[0] & members)
                if not to:
                    continue
                if what == "again" and last is not None and channel.can_read(last, to):
                    epoch = last
                else:
                    epoch = channel.epoch_for(to)
                    items.append((epoch, channel.next_seq(), frozenset(members)))
                key, lacking = channel.use(epoch, to)
                assert keys.setdefault(epoch, bytes(key)) == bytes(key)
                for endpoint in lacking:
                    holds[endpoint].add(epoch)
                assert all(epoch in holds[endpoint] for endpoint in to)  # whoever gets it can read it
                last = epoch
    for epoch, _, then in items:
        for endpoint, held in holds.items():
            assert epoch not in held or endpoint in then
    assert len(set(keys.values())) == len(keys)
    seqs = [seq for _, seq, _ in items]
    assert sorted(set(seqs)) == seqs
    assert len(store.items("channel key ")) <= KEPT_EPOCHS
