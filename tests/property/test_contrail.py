"""Channels of Contrail: access to items while the receivers change."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mudkit.events import Ports
from mudkit.fleet.store import MemoryStore
from mudkit.systems.contrail.device.channels import KEPT_EPOCHS, Channel
from mudkit.systems.contrail.device.module_state import ModuleState, Settings

ENDPOINTS = [(name, "in") for name in "abc"]
endpoints = st.sets(st.sampled_from(ENDPOINTS), min_size=1)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("members"), endpoints),
        st.tuples(st.just("publish"), endpoints),
        st.tuples(st.just("publish"), st.just(set(ENDPOINTS))),
        st.tuples(st.just("again"), endpoints),
        st.tuples(st.just("wait"), st.integers(1, 2000)),
        st.tuples(st.just("restart")),
    ),
    min_size=10,
    max_size=60,
)


@given(steps)
def test_only_receivers_at_encryption_can_read_an_item(steps):
    settings = Settings("me", [], {}, [], False, False, False, 1_000_000_000, 1)
    store = MemoryStore()

    def start():
        module = ModuleState(
            Ports(store, lambda n: bytes(n), "me"), settings
        )  # its random bytes are constant
        return module, Channel(module, "out")

    module, channel = start()
    members, now_us = set(), 0
    epochs_of = {endpoint: set() for endpoint in ENDPOINTS}
    items, keys, last = [], {}, None
    for action, *arguments in steps:
        module.now_us = now_us
        match action:
            case "members":
                members = arguments[0]
            case "wait":
                now_us += arguments[0] * 1_000_000
            case "restart":
                module, channel = start()
            case "publish" | "again":
                channel.set_receivers(members)
                targets = sorted(arguments[0] & members)
                if not targets:
                    continue
                if action == "again" and last is not None and channel.can_read(last, targets):
                    epoch = last
                else:
                    epoch = channel.choose_epoch(targets)
                    items.append((epoch, channel.take_seq(), frozenset(members)))
                key, without_key = channel.use_key(epoch, targets)
                assert keys.setdefault(epoch, bytes(key)) == bytes(key)
                for endpoint in without_key:
                    epochs_of[endpoint].add(epoch)
                assert all(epoch in epochs_of[endpoint] for endpoint in targets)  # every target can read it
                last = epoch
    for epoch, _, receivers in items:
        for endpoint, epochs in epochs_of.items():
            assert epoch not in epochs or endpoint in receivers
    assert len(set(keys.values())) == len(keys)
    seqs = [seq for _, seq, _ in items]
    assert sorted(set(seqs)) == seqs
    assert len(store.items("channel key ")) <= KEPT_EPOCHS
