"""Exercise of chapter 05: decide when to renew the key of a channel.

All devices with a filter at a port share the key of its channel (Contrail 3.3), and the judge's cloud
discloses every ciphertext. A key sent to a device that joins late therefore opens older items, and a key used
after a device has left opens newer ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import pandas as pd
import plotly.graph_objects as go
from hypothesis import strategies as st

from mudkit import figures
from mudkit.exercises.judging import FAILURE_TITLE, Exercise, PieceError, PlayedScenario, new_lab
from mudkit.systems.contrail import Item, KeyUse, Module, Relay

_SENDER: Final = "kim"
_READERS: Final = ("ann", "bob")
_LANES: Final = (_SENDER, "contrail-gateway", *_READERS)
_OVER_S: Final = {"almost": -0.25, "over": 0.25}
"""Age of the key in use above its lifetime until which two of the steps wait; less than a second, so that a
rule that is off by one is noticed."""
_ALWAYS_MS: Final = 1e9
_SETTLE_S: Final = 5.0
_PARTS: Final = {"data": "item", "key": "key", "filter": "filter"}
"""Labels of messages between devices in the diagram."""
_SHOWN: Final = (*_PARTS.values(), "key + item")


class _Scenario(NamedTuple):
    """Lifetime of the keys, and the steps of the story."""

    lifetime_s: float
    steps: Sequence[str]


@dataclass
class _Key:
    """Key of the channel: its holders, and the number and readers of each item encrypted with it."""

    made_at: pd.Timestamp
    holders: set[str] = field(default_factory=set)
    items: list[tuple[int, set[str]]] = field(default_factory=list)


class _Album:
    """Sender, two friends who ask for its items and leave again, and the rule under test."""

    def __init__(self, piece: Callable[..., Any], lifetime_s: float) -> None:
        self._piece, self._lifetime_s = piece, lifetime_s
        self._keys: list[_Key] = []
        self._slots: dict[str, int] = {}
        self._count = 0
        self._marks: list[tuple[str, pd.Timestamp, str, None]] = []
        self.problem: str | None = None
        self.events: list[str] = []
        self.lab = new_lab()
        relay = Relay(self.lab)
        self._port = self._open(relay, _SENDER, _READERS, self._renews)
        self._ports = {name: self._open(relay, name, [_SENDER]) for name in _READERS}
        self.lab.run(seconds=_SETTLE_S)
        self._ask("ann")

    def _open(
        self, relay: Relay, name: str, friends: Sequence[str], renewal: Callable[[KeyUse], bool] | None = None
    ) -> Any:
        """Open a port that is always on, so that items arrive at once."""
        module = Module(
            self.lab.device(name), relay, friends=friends, renew_s=self._lifetime_s, renewal=renewal
        )
        port = module.open_port("album", polling_interval_ms=0, idle_timeout_ms=_ALWAYS_MS)
        port.on_item(lambda item: None)
        return port

    def step(self, step: str) -> None:
        """Carry out one step and deliver its messages."""
        if step in _READERS:
            self._leave(step) if step in self._slots else self._ask(step)
        elif step == "item":
            self._publish()
        elif self._keys:
            age_s = (pd.Timestamp(self.lab.now) - self._keys[-1].made_at).total_seconds()
            left_s = self._lifetime_s + _OVER_S[step] - age_s
            if left_s > 0:
                self.events.append(f"{round(left_s, 2):g} s pass")
                self.lab.run(seconds=left_s)

    def _ask(self, name: str) -> None:
        """Install a friend's filter."""
        self._mark(name, "asks")
        self._slots[name] = self._ports[name].install_filter("item >= 0", to=(_SENDER, "album")).result()
        self.lab.run(seconds=_SETTLE_S)

    def _leave(self, name: str) -> None:
        """Remove a friend's filter."""
        self._mark(name, "leaves")
        self._ports[name].remove_filter(self._slots.pop(name)).result()
        self.lab.run(seconds=_SETTLE_S)

    def _publish(self) -> None:
        """Publish an item, record its key and receivers, and look for a leak."""
        self._count += 1
        before = len(self._keys)
        self._at = pd.Timestamp(self.lab.now)
        if self._slots and not self._keys:
            self._keys.append(_Key(self._at))  # the rule is not called for the first key
        number = f"item {self._count}"
        self.events.append(f"{_SENDER} publishes {number}")
        published = self._port.publish(Item({"item": self._count}), number).result()
        to = {device for device, _ in published.destinations}
        self._marks.append(
            (
                _SENDER,
                self._at,
                f"{number}, {'new ' * (len(self._keys) > before)}key {len(self._keys)}"
                if to
                else f"{number}: nobody",
                None,
            )
        )
        if to:
            self._keys[-1].holders |= to
            self._keys[-1].items.append((self._count, to))
        self.lab.run(seconds=_SETTLE_S)
        self.problem = self.problem or self._leak()

    def _renews(self, use: KeyUse) -> bool:
        """Call the rule; record a key without need, or one that is too old, as the problem."""
        answer = self._piece(use)
        if not isinstance(answer, bool):
            raise PieceError(f"it returns {answer!r}; expected True or False.")
        age = f"the key is {round(use.age_s, 2):g} s old"
        if answer and use.to == use.holders and use.age_s < use.lifetime_s:
            self.problem = (
                f"item {self._count} begins a new key without need: the holders of the old key are exactly "
                f"the receivers of the item, and {age}. Each receiver must be sent the new key."
            )
        if not answer and use.age_s > use.lifetime_s:
            self.problem = f"at item {self._count} {age}, and its lifetime is {use.lifetime_s:g} s."
        if answer:
            self._keys.append(_Key(self._at))
        return bool(answer)

    def _leak(self) -> str | None:
        """Return who can read an item without having been a receiver, in words, or None."""
        for key in self._keys:
            for number, to in key.items:
                for name in sorted(key.holders - to):
                    is_old = any(name in later for count, later in key.items if count > number)
                    when = "before" if is_old else "after"
                    event = "asked" if is_old else "left"
                    return f"{name} can read item {number}, which was published {when} {name} {event}."
        return None

    def _mark(self, name: str, event: str) -> None:
        """Add an event of a device to the story and to the picture."""
        self._marks.append((name, pd.Timestamp(self.lab.now), event, None))
        self.events.append(f"{name} {event}")

    def drawn(self) -> go.Figure:
        """Draw the messages between the devices through the relay."""
        table = self.lab.frame("messages")
        table["kind"] = [
            _label(kind, content) for kind, content in zip(table["kind"], table["content"], strict=True)
        ]
        marks = pd.DataFrame(self._marks, columns=["device", "ts", "incident", "detail"])
        return figures.message_diagram(
            table,
            marks,
            lanes=_LANES,
            devices=[_SENDER, *_READERS],
            kinds=_SHOWN,
            title=FAILURE_TITLE,
        )


def _label(kind: str, content: str) -> str:
    """Return what a message carries between devices: a filter, a key, an item, or a key and an item."""
    if kind not in ("send", "deliver"):
        return kind
    parts = re.findall(r'"kind":"(data|key|filter)"', content)
    if kind == "deliver" and parts == ["key"]:
        parts.append("data")  # the item follows the key, beyond the recorded part of the message
    return " + ".join(dict.fromkeys(_PARTS[part] for part in parts)) or kind


def _play(piece: Callable[..., Any], scenario: _Scenario) -> PlayedScenario:
    """Run the steps of a scenario until there is a problem; return the outcome."""
    album = _Album(piece, scenario.lifetime_s)
    try:
        for step in scenario.steps:
            album.step(step)
            if album.problem is not None:
                break
    except PieceError as error:
        album.problem = str(error)
    story = f"a key lasts {scenario.lifetime_s:g} s; {', '.join(album.events)}."
    return PlayedScenario(story, album.problem, album.lab, picture=album.drawn)


EXERCISE: Final = Exercise(
    signature="renews(channel) -> bool, called before each item but the first: does it begin a new key? "
    "channel has to and holders (sets of devices: receivers of the item, and holders of the key in use), "
    "age_s and lifetime_s",
    property="Nobody has the key of an item published before they asked or after they left; no key is "
    "used beyond its lifetime; and none is made without need.",
    # Readers come and go as often as before the two waits: otherwise too few scenarios exchange them.
    scenarios=st.builds(
        _Scenario,
        st.sampled_from([60.0, 90.0, 45.0]),
        st.lists(st.sampled_from(["item", *reversed(_READERS)] * 2 + [*_OVER_S]), min_size=2, max_size=8),
    ),
    play=_play,
    returns="True or False",
)
