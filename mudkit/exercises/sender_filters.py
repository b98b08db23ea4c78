"""The exercise of chapter 05: say when the key of a channel has done its work.

All who have a filter at a port share the key of its channel (Contrail 3.3), and the judge's cloud gives every
ciphertext that it ever had to whoever wants it. So a key that goes to somebody who comes late opens what is
older, and one that is used on when somebody has left opens what is newer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pandas as pd
import plotly.graph_objects as go
from hypothesis import strategies as st

from mudkit import figures
from mudkit.exercises.judging import Exercise, PieceError, Played
from mudkit.fleet.kernel import raise_failure
from mudkit.lab import Lab
from mudkit.systems.contrail import Item, KeyUse, Module, Relay

__all__ = ["EXERCISE"]

_SENDER: Final = "kim"
_READERS: Final = ("ann", "bob")
_LANES: Final = (_SENDER, "contrail-gateway", *_READERS)
_LASTS_S: Final = 60.0
_WAIT_S: Final = 40.0
_ALWAYS_MS: Final = 1e9
_SETTLE_S: Final = 5.0
_PARTS: Final = {"data": "item", "key": "key", "filter": "filter"}
"""What messages between devices are called in the diagram."""
_SHOWN: Final = (*_PARTS.values(), "key + item")


@dataclass
class _Key:
    """A key, as the sender's module tells of it.

    Parameters
    ----------
    began_s : float
        When the key began, in seconds of virtual time.
    holders : set of str
        The devices that have the key.
    items : list of (int, set of str)
        What was encrypted with it: the item's number, and who had asked for it.
    """

    began_s: float
    holders: set[str] = field(default_factory=set)
    items: list[tuple[int, set[str]]] = field(default_factory=list)


class _Album:
    """A sender, two friends who ask for its items and leave again, and the rule that is judged.

    Parameters
    ----------
    piece : callable
        The rule of renewal that is judged.
    """

    def __init__(self, piece: Callable[..., Any]) -> None:
        self._piece = piece
        self._keys: list[_Key] = []
        self._slots: dict[str, int] = {}
        self._count = 0
        self._marks: list[tuple[str, pd.Timestamp, str, None]] = []
        self.problem: str | None = None
        self.events: list[str] = []
        self.lab = Lab(seed=1)
        self.lab.world.on_failure = raise_failure  # a piece that raises has not passed
        relay = Relay(self.lab)
        self._port = self._open(relay, _SENDER, _READERS, self._renews)
        self._ports = {name: self._open(relay, name, [_SENDER]) for name in _READERS}
        self.lab.run(seconds=_SETTLE_S)
        self._ask("ann")
        self._began = self.lab.now

    def _open(
        self, relay: Relay, name: str, friends: Sequence[str], renewal: Callable[[KeyUse], bool] | None = None
    ) -> Any:
        """Open a port that is always on, so that what is sent is there at once."""
        module = Module(self.lab.device(name), relay, friends=friends, renew_s=_LASTS_S, renewal=renewal)
        port = module.open_port("album", polling_interval_ms=0, idle_timeout_ms=_ALWAYS_MS)
        port.on_item(lambda item: None)
        return port

    def step(self, what: str) -> None:
        """Do one thing, and let everybody hear of it."""
        if what in _READERS:
            self._leave(what) if what in self._slots else self._ask(what)
        elif what == "item":
            self._publish()
        else:
            self.events.append(f"{_WAIT_S:g} s pass")
            self.lab.run(seconds=_WAIT_S)

    def _ask(self, name: str) -> None:
        self._mark(name, "asks")
        self._slots[name] = self._ports[name].install_filter("item >= 0", to=(_SENDER, "album")).result()
        self.lab.run(seconds=_SETTLE_S)

    def _leave(self, name: str) -> None:
        self._mark(name, "leaves")
        self._ports[name].remove_filter(self._slots.pop(name)).result()
        self.lab.run(seconds=_SETTLE_S)

    def _publish(self) -> None:
        self._count += 1
        before = len(self._keys)
        self._at = pd.Timestamp(self.lab.now)
        if self._slots and not self._keys:
            self._keys.append(_Key(self._now_s))  # nobody is asked about the first one
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
        answer = self._piece(use)
        if not isinstance(answer, bool):
            raise PieceError(f"it returns {answer!r}, which is neither True nor False.")
        age = f"the key is {use.age_s:.0f} s old"
        if answer and use.to == use.holders and use.age_s < use.lifetime_s:
            self.problem = (
                f"item {self._count} begins a new key without need: those who have the old one are those "
                f"who may read the item, and {age}. Each receiver must be sent the new one."
            )
        if not answer and use.age_s >= use.lifetime_s:
            self.problem = f"at item {self._count} {age}, and it lasts for {use.lifetime_s:.0f} s."
        if answer:
            self._keys.append(_Key(self._now_s))
        return bool(answer)

    def _leak(self) -> str | None:
        """Say who has a key to an item that was not for him."""
        for key in self._keys:
            for number, to in key.items:
                for name in sorted(key.holders - to):
                    is_old = any(name in later for count, later in key.items if count > number)
                    when = "before" if is_old else "after"
                    does = "asked" if is_old else "left"
                    return f"{name} can read item {number}, which was published {when} {name} {does}."
        return None

    def _mark(self, name: str, what: str) -> None:
        self._marks.append((name, pd.Timestamp(self.lab.now), what, None))
        self.events.append(f"{name} {what}")

    @property
    def _now_s(self) -> float:
        return self.lab.world.now_us / 1e6

    # -- what is shown

    def drawn(self) -> go.Figure:
        """Draw what the devices sent each other through the relay."""
        table = self.lab.frame("messages")
        table["kind"] = [_called(*each) for each in zip(table["kind"], table["content"], strict=True)]
        marks = pd.DataFrame(self._marks, columns=["device", "ts", "incident", "detail"])
        return figures.message_diagram(
            table,
            marks,
            lanes=_LANES,
            devices=[_SENDER, *_READERS],
            kinds=_SHOWN,
            title="The smallest scenario that fails",
        )


def _called(kind: str, content: str) -> str:
    """Name a message by what it carries between devices: a filter, a key, an item, or the two last."""
    if kind not in ("send", "deliver"):
        return kind
    parts = re.findall(r'"kind":"(data|key|filter)"', content)
    if kind == "deliver" and parts == ["key"]:
        parts.append("data")  # it is with its key, beyond what is kept of a message
    return " + ".join(dict.fromkeys(_PARTS[each] for each in parts)) or kind


def _play(piece: Callable[..., Any], steps: Sequence[str]) -> Played:
    album = _Album(piece)
    try:
        for step in steps:
            album.step(step)
            if album.problem is not None:
                break
    except PieceError as error:
        album.problem = str(error)
    story = ", ".join(album.events) + "."
    return Played(story, album.problem, album.lab, picture=album.drawn)


EXERCISE: Final = Exercise(
    signature="renews(channel) -> bool, asked before each item but the first: does it begin a new key? "
    "channel has to and holders (sets of devices: who the item goes to, and who was sent the key in use), "
    "age_s and lifetime_s",
    property="Nobody has the key of an item that was published before he asked or after he left; no key is "
    "used for longer than it lasts; and none is made without need.",
    scenarios=st.lists(st.sampled_from(["item", *reversed(_READERS), "wait"]), min_size=2, max_size=8),
    play=_play,
    returns="True or False",
)
