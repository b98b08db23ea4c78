"""Guarantees of store and forward under faults; the runs use every event and effect of the kernel."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from examples import examples
from faulty_world import TIMES_US, FaultyWorld, S, faults, late_messages, wipes
from hypothesis import example, given
from hypothesis import strategies as st

from mudkit import events
from mudkit.fleet.store import MemoryStore, SqliteStore
from mudkit.systems.store_and_forward import ClientMachine, RelayMachine
from mudkit.systems.store_and_forward.messages import Read, SendText

NAMES = ("ann", "bob", "cy")
POINTS = (
    "before commit",
    "after commit",
    "seen, not in the inbox",
    "accepted, not in the queue",
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), TIMES_US, st.sampled_from(NAMES), st.sampled_from(NAMES)),
        st.tuples(st.just("busy"), TIMES_US, st.sampled_from(NAMES), st.booleans()),
        *faults(NAMES, ("relay",), POINTS),
        *late_messages(NAMES),
    ),
    max_size=25,
)


class RecordingMachine:
    """Machine that records the kinds of its events and effects."""

    def __init__(self, machine: Any, kinds: set[type]) -> None:
        self.machine = machine
        self.kinds = kinds

    def handle(self, now_us: int, event: Any) -> Any:
        effects = self.machine.handle(now_us, event)
        self.kinds.add(type(event))
        self.kinds.update(map(type, effects))
        return effects


class Ward(FaultyWorld):
    """Three devices and a relay, and the faults that are injected into them."""

    def __init__(self, stores: Any = MemoryStore) -> None:
        super().__init__(stores)
        self.kinds: set[type] = set()
        self.notified: dict[str, list[str]] = defaultdict(list)
        self.sent: dict[tuple[str, str], list[str]] = defaultdict(list)
        self.operations: dict[tuple[str, str, str], Any] = {}
        self.incarnations: dict[tuple[str, str, str], int] = {}
        relay = self.world.add_server("relay")
        self.install(relay, lambda ports: RecordingMachine(RelayMachine(ports), self.kinds))
        for name in NAMES:
            device = self.world.add_device(name, "umts_3g")
            client = self.install(
                device,
                lambda ports, name=name: RecordingMachine(ClientMachine(ports, name, "relay"), self.kinds),
            )
            client.listen("messages", lambda message, name=name: self.notified[name].append(message["text"]))

    def send(self, step: Any) -> None:
        sender, receiver = self.machines[step[2]], step[3]
        if sender.machine is not None:
            text = f"{step[2]} {len(self.sent[step[2], receiver])}"
            self.sent[step[2], receiver].append(text)
            self.incarnations[step[2], receiver, text] = len(self.lives[step[2]])
            self.operations[step[2], receiver, text] = sender.call(SendText(receiver, text))

    def own(self, step: Any) -> None:
        """Send a message, or change whether a user is busy."""
        action, at_us, name, detail = step
        if action == "send":
            self.world.schedule_action(at_us, self.send, step)
        else:
            self.world.schedule_action(at_us, lambda _: self.machines[name].host.change_context(busy=detail))

    def settle(self) -> None:
        """End the faults and check that nothing is pending.

        A device sends a hello when its context changes; a wiped relay may need one to know the device.
        """
        self.end_faults()
        for process in self.machines.values():
            if len(self.lives["relay"]) > 1 or process.host.context.get("busy"):
                process.host.change_context(busy=False)
        self.world.run(3 * 3600 * S)
        self.check_silence()

    def check_silence(self) -> None:
        """Check that outboxes and queues are empty."""
        assert not any(self.machines[name].store.items("out ") for name in NAMES)
        assert not self.machines["relay"].store.items("for ")


def check(ward: Ward) -> None:
    for name in NAMES:
        inbox = [message for _, message in ward.machines[name].store.items("in ")]
        assert {message["text"] for message in inbox} <= set(ward.notified.get(name, ()))
        assert not ward.machines[name].store.items("out ")
        for sender in NAMES:
            texts = [message["text"] for message in inbox if message["from"] == sender]
            expected = ward.sent[sender, name]
            # A call that was not committed when its machine was killed is not accepted.
            assert texts == [text for text in expected if text in set(texts)]
            assert len(set(texts)) == len(texts)
    assert not ward.machines["relay"].store.items("for ")
    created = {row["item"]: row["created_us"] for row in ward.rows if "created_us" in row}
    for row in ward.rows:
        if "delivered_us" in row:
            assert 0 <= created[row["item"]] < row["delivered_us"]


def assert_no_address_is_lost(ward: Ward) -> None:
    """Send each device a message: the relay reaches it within its longest interval between probes."""
    for name, other in zip(NAMES, (*NAMES[1:], NAMES[0]), strict=True):
        ward.send(("send", 0, name, other))
    ward.world.run(ward.world.now_us + 2 * 3600 * S)
    ward.check_silence()


@examples(150)
@given(steps=steps)
@example(  # bob's only hello from an address comes late, and cy has the address since
    steps=[
        ("move", 0, "bob", None),
        ("outage", 10 * S, "bob", S),
        ("hold", 11 * S, "bob", 100.0),
        ("outage", 15 * S, "bob", 400 * S),
        ("take address", 30 * S, "cy", "bob"),
    ]
)
def test_messages_are_delivered_once_and_in_order(steps: Any) -> None:
    ward = Ward()
    for step in steps:
        ward.do(step)
    ward.settle()
    check(ward)
    assert_no_address_is_lost(ward)
    clients = [ward.machines[name].store for name in NAMES]
    received = sum(len(store.items("in ")) for store in clients)
    assert received == sum(store.get("last of out") or 0 for store in clients)  # all accepted messages
    assert sum("delivered_us" in row for row in ward.rows) == received


@examples(150)
@given(steps=steps, wipes=wipes((*NAMES, "relay")))
@example(  # the wiped relay accepts ann's message again, and its only request to her is lost
    steps=[("send", 0, "ann", "ann"), ("mangle", 0, "ann", 0.5)], wipes=[("wipe", 35178969, "relay", 1)]
)
@example(  # the relay does not know any more that ann had another incarnation, and she remembers it
    steps=[], wipes=[("wipe", 0, "ann", 1), ("wipe", 2_356_910, "relay", 1)]
)
def test_after_wipes_nothing_is_pending_or_duplicated(steps: Any, wipes: Any) -> None:
    ward = Ward()
    for step in (*steps, *wipes):
        ward.do(step)
    ward.settle()
    for name in NAMES:
        inboxes = [[message for _, message in store.items("in ")] for store in ward.lives[name]]
        for sender in NAMES:
            for inbox in inboxes:
                texts = [message["text"] for message in inbox if message["from"] == sender]
                assert len(set(texts)) == len(texts)
                for incarnation in {ward.incarnations[sender, name, text] for text in texts}:
                    same_incarnation = [
                        text for text in texts if ward.incarnations[sender, name, text] == incarnation
                    ]
                    assert same_incarnation == [
                        text for text in ward.sent[sender, name] if text in set(same_incarnation)
                    ]
            received = {
                message["text"] for inbox in inboxes for message in inbox if message["from"] == sender
            }
            sent = ward.sent[sender, name]
            accepted = {text for text in sent if ward.operations[sender, name, text].status == "ok"}
            if len(ward.lives["relay"]) == 1:
                assert accepted <= received
    assert_no_address_is_lost(ward)


def test_every_event_and_effect_occurs() -> None:
    ward = Ward()
    for step in (
        ("send", S, "ann", "bob"),
        ("send", 2 * S, "ann", "bob"),
        ("outage", 2 * S + 100_000, "ann", 20 * S),
        ("busy", 5 * S, "bob", True),
        ("send", 40 * S, "cy", "bob"),
        ("busy", 50 * S, "bob", False),
        ("kill", 60 * S, "relay", S),
        ("send", 60 * S, "bob", "ann"),
    ):
        ward.do(step)
    ward.settle()
    check(ward)
    # An accepted message cannot be cancelled.
    assert ward.kinds == {*events.Event.__args__, *events.Effect.__args__} - {events.Cancel}
    assert ward.notified == {"bob": ["ann 0", "ann 1", "cy 0"], "ann": ["bob 0"]}


@examples(15)
@given(steps=steps)
def test_sqlite_and_memory_stores_behave_alike(tmp_path_factory: Any, steps: Any) -> None:
    folder = tmp_path_factory.mktemp("stores")
    stores: list[SqliteStore] = []

    def create_store() -> SqliteStore:
        stores.append(SqliteStore(folder / f"{len(stores)}.db"))
        return stores[-1]

    wards = Ward(), Ward(create_store)
    for ward in wards:
        for step in steps:
            ward.do(step)
        ward.settle()
    memory, on_disk = wards
    assert memory.rows == on_disk.rows
    assert list(memory.world.bill()) == list(on_disk.world.bill())
    for name in memory.machines:
        assert memory.machines[name].store.items() == on_disk.machines[name].store.items()
    for store in stores:
        store.close()


def test_messages_are_read_once() -> None:
    ward = Ward()
    ward.do(("send", S, "ann", "bob"))
    ward.world.run(60 * S)
    assert ward.machines["bob"].call(Read()).result() == [{"from": "ann", "text": "ann 0"}]
    assert ward.machines["bob"].call(Read()).result() == []
    assert ward.rows[-1]["read_us"] >= ward.rows[-1 - 1]["delivered_us"]


def test_unknown_operation_raises_lookup_error() -> None:
    ward = Ward()
    with pytest.raises(LookupError, match="only send and read"):
        ward.machines["ann"].call("receive").result()
