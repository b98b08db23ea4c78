"""What compute instances have storages do, and what storages send each other when a queue moves."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from mudkit.systems.contrail.messages.devices import (
    AnyCopy,
    Body,
    Filter,
    FilterCopy,
    Moves,
    Request,
    Slot,
    Text,
    TypedMessage,
)
from mudkit.systems.receiving import Count, Name

__all__ = ["ANSWERS", "Adopted", "Do", "Done", "Moved", "Moving"]


class _Op(msgspec.Struct, frozen=True, tag_field="op", kw_only=True, forbid_unknown_fields=True):
    """What storage does. ``version``: the move of a queue by which the instance was sent here."""

    version: Moves = 0


class _OpJoin(_Op, frozen=True, tag="join"):
    device: Text
    friends: list[Text] | None


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    slot: Slot
    seq: Count
    expires_us: Count | None
    message: AnyCopy


class _OpAppend(_Op, frozen=True, tag="append"):
    device: Text
    entry: _Entry


class _OpRead(_Op, frozen=True, tag="read"):
    device: Text
    watcher: Name | None
    most_bytes: Count
    here: Name
    begins: bool


class _OpDrop(_Op, frozen=True, tag="drop"):
    device: Text
    numbers: list[Count]


class _OpCache(_Op, frozen=True, tag="cache"):
    source: Text
    port: Text
    item: Text
    seq: Count
    epoch: Count
    body: Body


class _OpCached(_Op, frozen=True, tag="cached"):
    source: Text
    port: Text
    item: Text
    seq: Count
    epoch: Count


class _OpMember(_Op, frozen=True, tag="member"):
    group: Text
    member: Text


class _OpUnmember(_Op, frozen=True, tag="unmember"):
    group: Text
    member: Text


class _OpSpread(_Op, frozen=True, tag="spread"):
    group: Text
    filter: Filter


class _OpWithdraw(_Op, frozen=True, tag="withdraw"):
    device: Text
    source: Text
    number: Count


class _OpMove(_Op, frozen=True, tag="move"):
    device: Text
    to: Name


_AnyOp = (
    _OpJoin
    | _OpAppend
    | _OpRead
    | _OpDrop
    | _OpCache
    | _OpCached
    | _OpMember
    | _OpUnmember
    | _OpSpread
    | _OpWithdraw
    | _OpMove
)


class _Ctx(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a compute instance has begun: it comes back with the answer."""

    gateway: Name
    client: Name
    what: Request
    step: Literal["join", "send", "group", "withdraw", "pull", "data", "named", "spread", "append", "moved"]
    asked: list[tuple[Name, _AnyOp]]
    todo: list[tuple[Name, _AnyOp]]
    results: list[tuple[_AnyOp, Any]]


class Do(TypedMessage, frozen=True, tag="do"):
    """From a compute instance to storage: what is to be done, in one transaction."""

    ops: list[_AnyOp]
    ctx: _Ctx


class Done(TypedMessage, frozen=True, tag="done"):
    """From storage to a compute instance: the answers, of each operation one (``ANSWERS``)."""

    results: list[Any]
    ctx: _Ctx


class _Waiting(_Entry, frozen=True):
    """As it waits: with the number by which its sender may withdraw it."""

    number: Count


class Moving(TypedMessage, frozen=True, tag="moving"):
    """From storage to that of another data centre: the queue of a device, and what was withdrawn from it."""

    origin: Name
    number: Count
    to: Name
    device: Text
    version: Moves
    friends: list[Text] | None
    entries: list[_Waiting]
    open_from: Count
    withdrawn: dict[Text, Count] = msgspec.field(default_factory=dict)


class Adopted(TypedMessage, frozen=True, tag="adopted"):
    """From storage to that of another data centre: a queue has arrived."""

    number: Count


class Moved(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An answer of storage: the queue has gone to another data centre."""

    moved: Name
    version: Moves


class _Read(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    page: list[tuple[Count, AnyCopy]]
    more: bool
    times: Count


ANSWERS: Final[dict[str, Any]] = {
    "append": Literal["ok", "obsolete", "backlogged", "stranger"],
    "read": _Read,
    "cached": Body | None,
    "member": list[FilterCopy],
    "spread": list[FilterCopy],
}
"""What storage answers, by operation; else it is ``ok``."""
