"""What store and forward promises, whatever happens meanwhile; with it every event and effect of the kernel."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from examples import examples
from faulty_world import WHEN, FaultyWorld, S, faults, wipes
from hypothesis import example, given
from hypothesis import strategies as st

from mudkit import events
from mudkit.fleet.store import MemoryStore, SqliteStore
from mudkit.systems.store_and_forward import ClientMachine, RelayMachine
from mudkit.systems.store_and_forward.messages import Read, Submit

NAMES = ("ann", "bob", "cy")
POINTS = (
    "before commit",
    "after commit",
    "seen, not in the inbox",
    "accepted, not in the queue",
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), WHEN, st.sampled_from(NAMES), st.sampled_from(NAMES)),
        st.tuples(st.just("busy"), WHEN, st.sampled_from(NAMES), st.booleans()),
        *faults(NAMES, ("relay",), POINTS),
    ),
    max_size=25,
)


class Spied:
    """A machine that notes which events it took and which effects it gave."""

    def __init__(self, machine: Any, kinds: set[type]) -> None:
        self.machine = machine
        self.kinds = kinds

    def handle(self, now_us: int, event: Any) -> Any:
        effects = self.machine.handle(now_us, event)
        self.kinds.add(type(event))
        self.kinds.update(map(type, effects))
        return effects


class Ward(FaultyWorld):
    """Three devices and a relay, and what is done to them."""

    def __init__(self, stores: Any = MemoryStore) -> None:
        super().__init__(stores)
        self.kinds: set[type] = set()
        self.told: dict[str, list[str]] = defaultdict(list)
        self.sent: dict[tuple[str, str], list[str]] = defaultdict(list)
        self.operations: dict[tuple[str, str, str], Any] = {}
        self.life: dict[tuple[str, str, str], int] = {}
        relay = self.world.add_server("relay")
        self.install(relay, lambda ports: Spied(RelayMachine(ports), self.kinds))
        for name in NAMES:
            device = self.world.add_device(name, "umts_3g")
            client = self.install(
                device, lambda ports, name=name: Spied(ClientMachine(ports, name, "relay"), self.kinds)
            )
            client.listen("messages", lambda message, name=name: self.told[name].append(message["text"]))

    def send(self, step: Any) -> None:
        sender, receiver = self.machines[step[2]], step[3]
        if sender.machine is not None:
            text = f"{step[2]} {len(self.sent[step[2], receiver])}"
            self.sent[step[2], receiver].append(text)
            self.life[step[2], receiver, text] = len(self.lives[step[2]])
            self.operations[step[2], receiver, text] = sender.call(Submit(receiver, text))

    def own(self, step: Any) -> None:
        """Send, or let a user be busy."""
        what, at, name, detail = step
        if what == "send":
            self.world.at(at, self.send, step)
        else:
            self.world.at(at, lambda _: self.machines[name].host.change_context(busy=detail))

    def settle(self) -> None:
        """Let faults end; a device says hello only if something of it has changed, or if the relay was wiped.

        A relay that has lost its store finds a device that has nothing to say when it says hello.
        """
        self.end_faults()
        for process in self.machines.values():
            if len(self.lives["relay"]) > 1 or process.host.context.get("busy"):
                process.host.change_context(busy=False)
        self.world.run(3 * 3600 * S)
        self.check_silence()

    def check_silence(self) -> None:
        """Nobody has something that another waits for."""
        assert not any(self.machines[name].store.items("out ") for name in NAMES)
        assert not self.machines["relay"].store.items("for ")


def check(ward: Ward) -> None:
    for name in NAMES:
        inbox = [message for _, message in ward.machines[name].store.items("in ")]
        assert not ward.machines[name].store.items("out ")
        for sender in NAMES:
            texts = [message["text"] for message in inbox if message["from"] == sender]
            expected = ward.sent[sender, name]
            # A call that was not committed when its machine was killed has never been taken.
            assert texts == [text for text in expected if text in set(texts)]
            assert len(set(texts)) == len(texts)
    assert not ward.machines["relay"].store.items("for ")
    created = {row["item"]: row["created_us"] for row in ward.rows if "created_us" in row}
    for row in ward.rows:
        if "delivered_us" in row:
            assert 0 <= created[row["item"]] < row["delivered_us"]


@examples(150)
@given(steps=steps)
def test_once_and_in_order(steps: Any) -> None:
    ward = Ward()
    for step in steps:
        ward.do(step)
    ward.settle()
    check(ward)
    clients = [ward.machines[name].store for name in NAMES]
    received = sum(len(store.items("in ")) for store in clients)
    assert received == sum(store.get("last of out") or 0 for store in clients)  # all that was taken
    assert sum("delivered_us" in row for row in ward.rows) == received


@examples(150)
@given(steps=steps, wipes=wipes((*NAMES, "relay")))
@example(  # the relay is wiped, takes ann's message again, and its only question to her is lost
    steps=[("send", 0, "ann", "ann"), ("mangle", 0, "ann", 0.5)], wipes=[("wipe", 35178969, "relay", 1)]
)
def test_whoever_is_wiped_nobody_waits_for_ever_and_nothing_comes_twice(steps: Any, wipes: Any) -> None:
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
                for life in {ward.life[sender, name, text] for text in texts}:
                    of_life = [text for text in texts if ward.life[sender, name, text] == life]
                    assert of_life == [text for text in ward.sent[sender, name] if text in set(of_life)]
            came = {message["text"] for inbox in inboxes for message in inbox if message["from"] == sender}
            sent = ward.sent[sender, name]
            accepted = {text for text in sent if ward.operations[sender, name, text].status == "ok"}
            if len(ward.lives["relay"]) == 1:
                assert accepted <= came


def test_every_event_and_effect_takes_part() -> None:
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
    assert ward.kinds == {*events.Event.__args__, *events.Effect.__args__}
    assert ward.told == {"bob": ["ann 0", "ann 1", "cy 0"], "ann": ["bob 0"]}


@examples(15)
@given(steps=steps)
def test_a_file_is_a_store_like_memory(tmp_path_factory: Any, steps: Any) -> None:
    folder = tmp_path_factory.mktemp("stores")
    files: list[SqliteStore] = []

    def file() -> SqliteStore:
        files.append(SqliteStore(folder / f"{len(files)}.db"))
        return files[-1]

    wards = Ward(), Ward(file)
    for ward in wards:
        for step in steps:
            ward.do(step)
        ward.settle()
    memory, on_disk = wards
    assert memory.rows == on_disk.rows
    assert list(memory.world.bill()) == list(on_disk.world.bill())
    for name in memory.machines:
        assert memory.machines[name].store.items() == on_disk.machines[name].store.items()
    for each in files:
        each.close()


def test_what_has_come_is_read_once() -> None:
    ward = Ward()
    ward.do(("send", S, "ann", "bob"))
    ward.world.run(60 * S)
    assert ward.machines["bob"].call(Read()).result() == [{"from": "ann", "text": "ann 0"}]
    assert ward.machines["bob"].call(Read()).result() == []
    assert ward.rows[-1]["read_us"] >= ward.rows[-1 - 1]["delivered_us"]


def test_an_operation_that_there_is_not() -> None:
    ward = Ward()
    with pytest.raises(LookupError, match="only send and read"):
        ward.machines["ann"].call("receive").result()
