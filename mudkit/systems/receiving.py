"""What a machine takes: messages of known kinds and types, from who may send them; all else is odd.

A machine decodes what has come at one place, against what its role may receive from that kind of peer. What
is odd is dropped and recorded among the incidents, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, Generic, TypeVar, Union, get_origin

import msgspec

from mudkit.errors import brief
from mudkit.events import (
    Effect,
    Opaque,
    Received,
    Record,
    size_bytes,
)
from mudkit.wire import is_too_deep, wire_fields

__all__ = ["MAX_BYTES", "Accepts", "Count", "Name", "dropped"]

MAX_BYTES: Final = 16 << 20
"""A longer message is dropped; those that applications hand over are refused before they are sent."""
_SHOWN: Final = 120

Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
"""A number of something, or of a message: whole, not negative, and what a store can hold."""
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=512)]

_T = TypeVar("_T", bound=msgspec.Struct)


class Accepts(Generic[_T]):
    """The messages that a role takes from one kind of peer.

    Parameters
    ----------
    *kinds : type
        Structs of msgspec with ``tag_field="kind"``, one for each kind of message; fields that they do not
        name are allowed. None: nothing is taken. What is nested too deeply is taken from nobody.
    """

    def __init__(self, *kinds: type[_T]) -> None:
        self._any: Any = Union[kinds] if kinds else None  # noqa: UP007 - of types that are not known before
        classes: list[type[msgspec.Struct]] = [get_origin(kind) or kind for kind in kinds]
        self._classes = frozenset(classes)
        self._tag_field = classes[0].__struct_config__.tag_field if len(classes) == 1 else None
        """Of a single struct msgspec takes a message without its kind, too."""

    def decode(self, message: Any) -> _T | None:
        """Give the message as what it is, or None: it is none that may come.

        A struct, which a machine of the same lab has sent, is handed over as it is. Foreign bytes are JSON,
        foreign mappings what JSON holds, and bytes.
        """
        if type(message) in self._classes:
            return message  # type: ignore[no-any-return]
        if self._any is None or isinstance(message, msgspec.Struct):
            return None
        try:
            if size_bytes(message) > MAX_BYTES:
                return None
            if isinstance(message, bytes):
                message = msgspec.json.decode(message)
            if is_too_deep(message):
                return None
            decoded: _T = msgspec.convert(message, self._any, dec_hook=_custom)
        except (ValueError, TypeError, RecursionError):  # msgspec's errors are ValueErrors
            return None
        return decoded if self._tag_field is None or self._tag_field in message else None


def _custom(kind: type, value: Any) -> Any:
    """Read opaque bytes; JSON holds them as text in base64."""
    if kind is not Opaque:
        raise NotImplementedError
    return value if isinstance(value, bytes) else msgspec.convert(value, bytes)


def dropped(event: Received) -> Sequence[Effect]:
    """Record that a message was dropped: no honest machine sends it."""
    message = event.message
    has_fields = isinstance(message, dict | msgspec.Struct)
    kind = wire_fields(message).get("kind") if has_fields else type(message).__name__
    detail = f"{brief(kind, _SHOWN)} from {event.source}"[:_SHOWN]
    return (Record("incidents", {"incident": "dropped", "detail": detail}),)
