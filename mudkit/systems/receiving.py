"""What a machine takes: messages of known kinds and types, from who may send them; all else is odd.

A machine asks here before it looks at what has come, at one place, with what its role may receive from that
kind of peer. What is odd is dropped and recorded among the incidents, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, Union

import msgspec

from mudkit.events import Effect, Received, Record

__all__ = ["Accepts", "Count", "Name", "dropped"]

_SHOWN: Final = 120

Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
"""A number of something, or of a message: whole, not negative, and what a store can hold."""
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=512)]


class Accepts:
    """The messages that a role takes from one kind of peer.

    Parameters
    ----------
    *kinds : type
        Structs of msgspec with ``tag_field="kind"``, one for each kind of message; fields that they do not
        name are allowed. None: nothing is taken.
    """

    def __init__(self, *kinds: type[msgspec.Struct]) -> None:
        self._any = Union[kinds] if kinds else None  # noqa: UP007 - of types that are not known before
        self._tag_field = kinds[0].__struct_config__.tag_field if len(kinds) == 1 else None
        """Of a single struct msgspec takes a message without its kind, too."""

    def __call__(self, message: Any) -> bool:
        """Say whether a message is one of them."""
        if self._any is None:
            return False
        try:
            msgspec.convert(message, self._any)
        except (msgspec.ValidationError, RecursionError):
            return False
        return self._tag_field is None or self._tag_field in message


def dropped(event: Received) -> Sequence[Effect]:
    """Write down that a message was dropped: nobody who is honest sends it."""
    message = event.message
    kind = message.get("kind") if isinstance(message, dict) else type(message).__name__
    detail = f"{kind!r} from {event.source}"[:_SHOWN]
    return (Record("incidents", {"incident": "dropped", "detail": detail}),)
