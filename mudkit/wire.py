"""Messages as they are on the wire: the fields of structs by the names that they have there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

if TYPE_CHECKING:
    Value: TypeAlias = bool | int | float | str | bytes | Sequence["Value"] | Mapping[str, "Value"] | None
else:
    Value = Any  # msgspec has no recursive types

_SINGLE: Final = frozenset({bool, int, float, str, bytes, type(None)})
"""Types of most values: they hold no others."""

Fields: TypeAlias = Mapping[str, Value]
"""Mapping of an application: content of a message, columns of a row, attributes of a context."""

MAX_MESSAGE_DEPTH: Final = 128
"""Levels of lists and mappings that a message from the network may have."""


@cache
def _kind_and_names(struct: type[msgspec.Struct]) -> tuple[dict[str, Any], tuple[tuple[str, str], ...]]:
    """Return the field with the kind of a struct, if it has one, and its fields by both names."""
    config = struct.__struct_config__
    kind = {} if config.tag_field is None else {config.tag_field: config.tag}
    return kind, tuple(zip(struct.__struct_fields__, struct.__struct_encode_fields__, strict=True))


def wire_fields(message: Any) -> Mapping[str, Any]:
    """Return the fields of a message by wire name, its kind first; empty for a value without fields."""
    if not isinstance(message, msgspec.Struct):
        return message if isinstance(message, dict | Mapping) else {}
    kind, names = _kind_and_names(type(message))
    fields = kind.copy()
    for name, wire_name in names:
        value = getattr(message, name)
        if value is not msgspec.UNSET:
            fields[wire_name] = value
    return fields


def as_wire(value: Any) -> Any:
    """Return a message, or a part of one, as plain mappings and lists; bytes stay bytes."""
    if type(value) in _SINGLE:
        return value
    if isinstance(value, list | tuple):
        return [as_wire(item) for item in value]
    if not isinstance(value, dict | msgspec.Struct | Mapping):  # a dict is quicker to tell than a Mapping
        return value
    fields = wire_fields(value).items()
    return {name: field if type(field) in _SINGLE else as_wire(field) for name, field in fields}


def is_too_deep(message: Any) -> bool:
    """Return whether a message has more than :data:`MAX_MESSAGE_DEPTH` levels, without recursion."""
    level = [message]
    for _ in range(MAX_MESSAGE_DEPTH + 1):
        inner: list[Any] = []
        for value in level:
            if type(value) in _SINGLE:
                continue
            if isinstance(value, (list, tuple, set, frozenset)):
                inner += value
            elif isinstance(value, (msgspec.Struct, Mapping)):
                inner += wire_fields(value).values()
        if not inner:
            return False
        level = inner
    return True
