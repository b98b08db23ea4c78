"""Decoding of the messages that a role accepts from one kind of peer; anything else is dropped.

A machine decodes each message at one place. A message that does not decode is dropped, recorded in the
incidents, and has no other effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, Generic, TypeVar, Union, get_args, get_origin, get_type_hints

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

MAX_BYTES: Final = 16 << 20
"""Longer messages are dropped; an application's are refused before they are sent."""
_SHOWN: Final = 120

Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
"""Number of something, or of a message: an integer that a store can hold, not negative."""
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=512)]

_T = TypeVar("_T", bound=msgspec.Struct)


class Accepts(Generic[_T]):
    """Messages that a role accepts from one kind of peer.

    Parameters
    ----------
    *kinds : type
        Structs of msgspec with ``tag_field="kind"``; unknown fields are allowed unless the struct forbids
        them. None: nothing is accepted.
    """

    def __init__(self, *kinds: type[_T]) -> None:
        self._any: Any = Union[kinds] if kinds else None  # noqa: UP007 - types known at run time only
        classes: list[type[msgspec.Struct]] = [get_origin(kind) or kind for kind in kinds]
        self._classes = frozenset(classes)
        self._contents = {get_origin(kind): _content_of(kind) for kind in kinds if get_args(kind)}
        """Field of each generic struct that has its content, and the classes of this."""
        self._tag_field = classes[0].__struct_config__.tag_field if len(classes) == 1 else None
        """Tag field of a single struct, which msgspec would also decode without its tag."""

    def decode(self, message: Any) -> _T | None:
        """Return the message as a struct, or None if the role does not accept it.

        A struct comes from a machine of the same lab and is returned unchanged; a generic one only with a
        content that the role accepts. Foreign bytes are JSON; foreign mappings hold JSON values and bytes.
        Deep nesting is not accepted.
        """
        kind = type(message)
        if kind in self._classes:
            if kind in self._contents:
                name, classes = self._contents[kind]
                return message if type(getattr(message, name)) in classes else None
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


def _content_of(kind: Any) -> tuple[str, frozenset[Any]]:
    """Return the field of a generic struct whose type is the parameter, and the classes that it may have."""
    hints = get_type_hints(get_origin(kind))
    name = next(name for name, hint in hints.items() if isinstance(hint, TypeVar))
    (content,) = get_args(kind)
    return name, frozenset(get_args(content) or (content,))


def _custom(kind: type, value: Any) -> Any:
    """Decode a field of type :class:`~mudkit.events.Opaque`: bytes, which JSON holds in base64.

    A hook of msgspec, which refuses other types after NotImplementedError.
    """
    if kind is not Opaque:
        raise NotImplementedError
    return value if isinstance(value, bytes) else msgspec.convert(value, bytes)


def record_dropped(event: Received) -> Sequence[Effect]:
    """Return the record of a dropped message, which no correct machine sends."""
    message = event.message
    has_fields = isinstance(message, dict | msgspec.Struct)
    kind = wire_fields(message).get("kind") if has_fields else type(message).__name__
    detail = f"{brief(kind, _SHOWN)} from {event.source}"[:_SHOWN]
    return (Record("incidents", {"incident": "dropped", "detail": detail}),)
