"""Random manipulations of Contrail's messages by a relay, which a receiver must report and survive.

A relay changes what a cloud has: bits, header fields, lengths, kinds and parts of other messages. It also
sends new content that a former receiver of the channel encrypts. The receiver's module gets each message as
from the relay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from mudkit.errors import SimulationProblem
from mudkit.events import Ciphertext, Effect, LinkUp, Notify, Received, Send
from mudkit.fleet.kernel import raise_failure
from mudkit.lab import Lab
from mudkit.systems.contrail import Item, Module, Relay, TamperedMessage
from mudkit.systems.contrail.crypto import Plain, Sealing, Secret, item_header
from mudkit.systems.contrail.items import pack
from mudkit.systems.contrail.messages import Deliver, Pull, QueueEntry
from mudkit.wire import as_wire

_JUNK: Final[Sequence[Any]] = (
    None,
    "",
    "x" * 300,
    -1,
    1 << 70,
    1.5,
    True,
    b"",
    [],
    {},
    [[]],
    "a\nb",
)
_BYTES: Final = ("body", "tag", "sealed", "signature")
_TURNS: Final = 4


class Testbed:
    """A sender with two channels of several epochs, and a receiver who also sends to it.

    `messages` are those that a relay has delivered to the receiver, and `undelivered` others.
    """

    def __init__(self, seed: int = 0, *, encrypted: bool = True) -> None:
        lab = Lab(seed=seed, record_messages=False)
        lab.world.on_failure = raise_failure
        relay = Relay(lab)
        names = ("ann", "bob", "cyd")
        modules = {
            name: Module(
                lab.device(name),
                relay,
                friends=[friend for friend in names if friend != name],
                renew_s=60.0,
                encrypted=encrypted,
            )
            for name in names
        }
        ports = {(name, port): modules[name].open_port(port) for name in names for port in ("one", "two")}
        self.lab, self._process, self._gateway = lab, modules["bob"].installed, relay.gateways[0][0]
        self.messages: list[Any] = []
        self._watch()
        for reader in ("bob", "cyd"):
            for port in ("one", "two"):
                ports[reader, port].install_filter("x > 0", to=("ann", port)).result()
        ports["ann", "one"].install_filter("x > 1", to=("bob", "one"), lifetime_s=1e6).result()
        lab.run(minutes=2)
        for turn in range(_TURNS):
            for number in range(3):
                for port in ("one", "two"):
                    item = Item({"x": number + 1}, f"{turn} {number} {port}".encode())
                    expires_s = 3600.0 if number else None
                    ports["ann", port].publish(item, f"item {number}", expires_s).result()
            lab.run(minutes=2)
        lab.faults.cut("bob")
        for number in range(3):
            ports["ann", "one"].publish(Item({"x": 5}, b"not seen yet"), f"item {number}").result()
        storage = lab.world.hosts["contrail-storage"].processes[0].store
        waiting = [as_wire(entry.message) for _, entry in storage.items("queue bob\n", QueueEntry)]
        self.messages += waiting
        self.undelivered = len(waiting)
        keys = lab.devices["cyd"].processes[0].store.items("key ann\none\n")
        self.stolen = [(int(name.split("\n")[2]), Secret(key)) for name, key in keys]
        """Epochs and keys of a channel, known to another of its receivers."""
        self.thief: Any = (
            Sealing("cyd", Secret(bytes(64)), relay.directory) if encrypted else Plain("cyd", bytes(64))
        )
        self._now_us = lab.world.now_us + 60_000_000  # when the receiver polls again
        self._visit = self._wake()

    def _watch(self) -> None:
        """Record the messages that are delivered to the receiver."""
        process: Any = self._process
        before = process.machine.handle

        def handle(now_us: int, event: Any) -> Sequence[Effect]:
            if isinstance(event, Received) and isinstance(event.message, Deliver):
                self.messages += [as_wire(message) for _, message in event.message.page]
            effects: Sequence[Effect] = before(now_us, event)
            return effects

        process.machine.handle = handle
        self._handle = before

    def _wake(self) -> int:
        """Connect the receiver and return the number of its visit."""
        effects = self._handle(self._now_us, LinkUp("bob", "lte"))
        visits = [
            effect.message.visit
            for effect in effects
            if isinstance(effect, Send) and isinstance(effect.message, Pull)
        ]
        if not visits:
            raise SimulationProblem("The receiver does not ask for anything.")
        return int(visits[-1])

    def deliver(self, message: Any) -> list[Any]:
        """Deliver a message to the receiver's module and return its reports of tampering."""
        page = {"kind": "deliver", "visit": self._visit, "page": [[1, message]], "more": False}
        effects = self._handle(self._now_us, Received(self._gateway, page))
        self._process.store.commit()  # type: ignore[attr-defined]
        return [
            effect.payload
            for effect in effects
            if isinstance(effect, Notify) and isinstance(effect.payload, TamperedMessage)
        ]

    def check_unharmed(self) -> None:
        """Raise SimulationProblem unless the receiver still accepts all honest messages."""
        before = self.count_stored()
        reports = [report for message in self.messages for report in self.deliver(message)]
        if reports or self.count_stored() != before + self.undelivered:
            raise SimulationProblem(
                "Manipulated messages have stopped honest ones.",
                found=f"{self.count_stored() - before} accepted, {len(reports)} reports",
                expected=f"{self.undelivered} accepted that were not delivered before, and no report",
            )

    def count_stored(self) -> int:
        """Return the number of items, keys and filters that the receiver stores."""
        store = self._process.store  # type: ignore[attr-defined]
        return sum(len(store.items(prefix)) for prefix in ("inbox ", "key ", "filter ", "early "))


@dataclass
class TamperingOutcome:
    """Counts of manipulations by kind: those reported as tampered, and those missed or with an effect."""

    reported: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)


def tamper(count: int, seed: int = 0, *, encrypted: bool = True) -> TamperingOutcome:
    """Deliver `count` manipulated messages; without encryption none is noticed by its content."""
    draw, testbed, outcome = Random(seed), Testbed(seed, encrypted=encrypted), TamperingOutcome()
    names = list(MANIPULATIONS)
    while outcome.reported.total() + outcome.missed.total() < count:
        name = draw.choice(names)
        original = draw.choice(testbed.messages)
        message = MANIPULATIONS[name](draw, testbed, deepcopy(original))
        if message is None or message in testbed.messages:
            continue  # unchanged, or equal to another message that was sent
        before = testbed.count_stored()
        reports = testbed.deliver(message)
        is_noticed = len(reports) == 1 and testbed.count_stored() == before
        (outcome.reported if is_noticed else outcome.missed)[name] += 1
    if encrypted:
        testbed.check_unharmed()
    return outcome


def _flip(draw: Random, testbed: Testbed, message: Any) -> Any:
    """Flip one bit of a ciphertext, signature or tag; None if it is empty."""
    where, name = _place(draw, message, _BYTES)
    data = bytearray(where[name])
    if not data:
        return None
    data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    where[name] = Ciphertext(data)
    return message


def _truncate(draw: Random, testbed: Testbed, message: Any) -> Any:
    """Truncate or extend a ciphertext, signature or tag."""
    where, name = _place(draw, message, _BYTES)
    data = bytes(where[name])
    end = draw.randrange(len(data) + 1)
    where[name] = Ciphertext(data[:end] if draw.random() < 0.7 else data + data[:end] + b"\0")
    return message


def _change(draw: Random, testbed: Testbed, message: Any) -> Any:
    """Change a field of the header slightly."""
    where, name = _place(draw, message)
    before = where[name]
    if isinstance(before, int):
        where[name] = before + draw.choice((-1, 1, 2, 1000, -1000))
    elif isinstance(before, str):
        at = draw.randrange(len(before) + 1)
        where[name] = before[:at] + draw.choice("abon1 ") + before[at + draw.randrange(2) :]
    elif before is None:
        where[name] = draw.choice((1, "ann", testbed.lab.world.now_us + 10**9))
    else:
        return None
    return message


def _junk(draw: Random, testbed: Testbed, message: Any) -> Any:
    """Replace a field by junk, or remove it."""
    where, name = _place(draw, message)
    if draw.random() < 0.3 and where[name] is not None:
        del where[name]
    else:
        where[name] = draw.choice(_JUNK)
    return message


def _swap(draw: Random, testbed: Testbed, message: Any) -> Any:
    """Copy a field from another message; None if that lacks it."""
    where, name = _place(draw, message)
    other = draw.choice(testbed.messages)
    other_where = other["to"][0] if where is message["to"][0] else other
    if name not in other_where:
        return None
    where[name] = deepcopy(other_where[name])
    return message


def _splice(draw: Random, testbed: Testbed, message: Any) -> Any:
    """Join the header of one message, the destination of another and the content of a third."""
    other, third = draw.choice(testbed.messages), draw.choice(testbed.messages)
    if draw.random() < 0.5:
        message["to"] = deepcopy(other["to"])
    if "body" in message and "body" in third:
        message["body"] = third["body"]
    return message


def _rebuilt(draw: Random, testbed: Testbed, message: Any) -> Any:
    """Replace the message by something else."""
    return draw.choice((
        None, 7, "text", b"bytes", [], {}, {"kind": "data"}, {"kind": "nothing"}, {**message, "to": []},
        {**message, "to": [*message["to"], *message["to"]]}, {**message, "to": [None]}, [message],
        {**message, "kind": draw.choice(("data", "filter", "key", "", None, []))},
    ))  # fmt: skip


def _forge(draw: Random, testbed: Testbed, message: Any) -> Any:
    """Encrypt other content under a key of the channel, as a former receiver could.

    None for messages without content, and for those of the other channel.
    """
    if "body" not in message or message["port"] != "one":
        return None
    epoch, key = draw.choice(testbed.stolen)
    message["epoch"], message["seq"] = epoch, message["seq"] + draw.randrange(100)
    source, content = ("ann", "one"), pack(Item({}, b"forged"))
    header = item_header(source, message["item"], message["seq"], epoch)
    message["body"] = testbed.thief.encrypt(key, message["seq"], header, content)
    return message


MANIPULATIONS: Final[Mapping[str, Callable[[Random, Testbed, Any], Any]]] = {
    "bits": _flip,
    "lengths": _truncate,
    "headers": _change,
    "junk": _junk,
    "swaps": _swap,
    "splices": _splice,
    "anything": _rebuilt,
    "old keys": _forge,
}
"""Manipulations by name; one returns None where it does not apply to a message."""


def _place(draw: Random, message: Any, names: Sequence[str] = ()) -> tuple[Any, str]:
    """Return a drawn field, of the header or of its one destination, as mapping and name."""
    entry = message["to"][0]
    fields = [(where, name) for where in (message, entry) for name in where if name not in ("to", "kind")]
    return draw.choice([(where, name) for where, name in fields if not names or name in names])
