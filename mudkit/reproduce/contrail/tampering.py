"""What a cloud could do to messages of Contrail, at random, and whether their receivers notice (row C8).

Messages for a receiver are changed in every way that a cloud has: bits, header fields, lengths, kinds, pieces
of other messages, and new content under the key of a channel, from somebody who was one of its receivers.
Each is handed over to the receiver's module as the cloud would.
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

__all__ = ["MANIPULATIONS", "TamperingOutcome", "Testbed", "tamper"]

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

    Parameters
    ----------
    seed : int
    encrypted : bool
        False: nothing protects the messages; the control.

    Attributes
    ----------
    messages : list of dict
        What a relay has handed over to the receiver, and what it has not yet.
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
                friends=[each for each in names if each != name],
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
        self.unseen = len(waiting)
        """So many of the messages have not come yet."""
        keys = lab.devices["cyd"].processes[0].store.items("key ann\none\n")
        self.stolen = [(int(name.split("\n")[2]), Secret(key)) for name, key in keys]
        """Epochs and keys of a channel, as another of its receivers has them."""
        self.thief: Any = (
            Sealing("cyd", Secret(bytes(64)), relay.directory) if encrypted else Plain("cyd", bytes(64))
        )
        self._now_us = lab.world.now_us + 60_000_000  # then it polls again
        self._visit = self._wake()

    def _watch(self) -> None:
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
        """Let the receiver connect, and give the number of its visit."""
        effects = self._handle(self._now_us, LinkUp("bob", "lte"))
        visits = [
            each.message.visit
            for each in effects
            if isinstance(each, Send) and isinstance(each.message, Pull)
        ]
        if not visits:
            raise SimulationProblem("The receiver does not ask for anything.")
        return int(visits[-1])

    def hand_over(self, message: Any) -> list[Any]:
        """Let the receiver's module take a message, and give what it reports as tampered."""
        page = {"kind": "deliver", "visit": self._visit, "page": [[1, message]], "more": False}
        effects = self._handle(self._now_us, Received(self._gateway, page))
        self._process.store.commit()  # type: ignore[attr-defined]
        return [
            each.payload
            for each in effects
            if isinstance(each, Notify) and isinstance(each.payload, TamperedMessage)
        ]

    def check_goes_on(self) -> None:
        """See to it that what was sent honestly is taken after all; SimulationProblem if not."""
        before = self.kept()
        reports = [report for message in self.messages for report in self.hand_over(message)]
        if reports or self.kept() != before + self.unseen:
            raise SimulationProblem(
                "What was done to messages has stopped others.",
                found=f"{self.kept() - before} that were taken, {len(reports)} reports",
                expected=f"{self.unseen} that had not come before, and no report",
            )

    def kept(self) -> int:
        """Say how many items, keys and filters the receiver keeps."""
        store = self._process.store  # type: ignore[attr-defined]
        return sum(len(store.items(prefix)) for prefix in ("inbox ", "key ", "filter ", "early "))


@dataclass
class TamperingOutcome:
    """What became of manipulated messages.

    Parameters
    ----------
    reported, missed : Counter
        How many manipulations of each kind were reported as tampered; and how many were not, or had an
        effect.
    """

    reported: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)


def tamper(count: int, seed: int = 0, *, encrypted: bool = True) -> TamperingOutcome:
    """Hand over so many manipulated messages, and tell what came of them.

    Parameters
    ----------
    count : int
        The number of manipulations.
    seed : int
    encrypted : bool
        False: the control, in which none is noticed by its content.
    """
    draw, testbed, outcome = Random(seed), Testbed(seed, encrypted=encrypted), TamperingOutcome()
    names = list(MANIPULATIONS)
    while outcome.reported.total() + outcome.missed.total() < count:
        name = draw.choice(names)
        original = draw.choice(testbed.messages)
        message = MANIPULATIONS[name](draw, testbed, deepcopy(original))
        if message is None or any(_same(message, each) for each in testbed.messages):
            continue  # nothing has changed, or it has become another message that was sent
        before = testbed.kept()
        reports = testbed.hand_over(message)
        is_noticed = len(reports) == 1 and testbed.kept() == before
        (outcome.reported if is_noticed else outcome.missed)[name] += 1
    if encrypted:
        testbed.check_goes_on()
    return outcome


def _flipped(draw: Random, testbed: Testbed, message: Any) -> Any:
    """Turn one bit of something that is encrypted, signed or a tag."""
    where, name = _place(draw, message, _BYTES)
    data = bytearray(where[name])
    if not data:
        return None
    data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    where[name] = Ciphertext(data)
    return message


def _truncated(draw: Random, testbed: Testbed, message: Any) -> Any:
    """Cut something off, or add to it."""
    where, name = _place(draw, message, _BYTES)
    data = bytes(where[name])
    end = draw.randrange(len(data) + 1)
    where[name] = Ciphertext(data[:end] if draw.random() < 0.7 else data + data[:end] + b"\0")
    return message


def _changed(draw: Random, testbed: Testbed, message: Any) -> Any:
    """Change a field of the header by a little."""
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
    """Put something into a field that does not belong there, or leave the field out."""
    where, name = _place(draw, message)
    if draw.random() < 0.3 and where[name] is not None:
        del where[name]
    else:
        where[name] = draw.choice(_JUNK)
    return message


def _swapped(draw: Random, testbed: Testbed, message: Any) -> Any:
    """Take a field of another message."""
    where, name = _place(draw, message)
    other = draw.choice(testbed.messages)
    other_where = other["to"][0] if where is message["to"][0] else other
    if name not in other_where:
        return None
    where[name] = deepcopy(other_where[name])
    return message


def _spliced(draw: Random, testbed: Testbed, message: Any) -> Any:
    """Join the header of one message, the destination of another and the content of a third."""
    other, third = draw.choice(testbed.messages), draw.choice(testbed.messages)
    if draw.random() < 0.5:
        message["to"] = deepcopy(other["to"])
    if "body" in message and "body" in third:
        message["body"] = third["body"]
    return message


def _rebuilt(draw: Random, testbed: Testbed, message: Any) -> Any:
    """Give something else altogether."""
    return draw.choice((
        None, 7, "text", b"bytes", [], {}, {"kind": "data"}, {"kind": "nothing"}, {**message, "to": []},
        {**message, "to": [*message["to"], *message["to"]]}, {**message, "to": [None]}, [message],
        {**message, "kind": draw.choice(("data", "filter", "key", "", None, []))},
    ))  # fmt: skip


def _forged(draw: Random, testbed: Testbed, message: Any) -> Any:
    """Encrypt other content under a key of the channel, as somebody could who has it or had it."""
    if "body" not in message or message["port"] != "one":
        return None
    epoch, key = draw.choice(testbed.stolen)
    message["epoch"], message["seq"] = epoch, message["seq"] + draw.randrange(100)
    source, content = ("ann", "one"), pack(Item({}, b"forged"))
    header = item_header(source, message["item"], message["seq"], epoch)
    message["body"] = testbed.thief.encrypt(key, message["seq"], header, content)
    return message


MANIPULATIONS: Final[Mapping[str, Callable[[Random, Testbed, Any], Any]]] = {
    "bits": _flipped,
    "lengths": _truncated,
    "headers": _changed,
    "junk": _junk,
    "swaps": _swapped,
    "splices": _spliced,
    "anything": _rebuilt,
    "old keys": _forged,
}
"""What is done to messages, by name; None: it does not fit this one."""


def _place(draw: Random, message: Any, names: Sequence[str] = ()) -> tuple[Any, str]:
    """Choose a field of the header or of its one destination."""
    entry = message["to"][0]
    fields = [(where, name) for where in (message, entry) for name in where if name not in ("to", "kind")]
    return draw.choice([each for each in fields if not names or each[1] in names])


def _same(one: Any, other: Any) -> bool:
    """Say whether two messages are the same, but for what a cloud may add."""
    return bool(one == other)
