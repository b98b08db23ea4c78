"""What somebody wants, said once, and written as each system takes it.

A want names ``item.…``, what there is to say of an item, and ``me.…``, what its reader says of herself:
``within_km(item.loc, me.loc, 3)``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from mudkit.errors import ParameterError
from mudkit.predicates import Language, Predicate

__all__ = ["Interest"]

_ANY: Final = Language()
_BOTH: Final = Language(("item", "me"))
_NAME: Final = re.compile(r"\b(item|me)\.([a-z_][a-z0-9_]*)")


class Interest:
    """A want.

    Parameters
    ----------
    text : str
        A predicate over ``item.…`` and ``me.…``.

    Raises
    ------
    PredicateError
        It is no predicate.
    ParameterError
        It names nothing of the item.

    Examples
    --------
    >>> near = Want("within_km(item.loc, me.loc, 3)")
    >>> near.over_items({"loc": (30.0, -97.0)})({"loc": (30.01, -97.0)})
    True
    >>> near.by_writer({"loc": (30.0, -97.0)})({}, receiver={"loc": (31.0, -97.0)})
    False
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.of_item = frozenset(name for scope, name in _NAME.findall(text) if scope == "item")
        self.of_me = frozenset(name for scope, name in _NAME.findall(text) if scope == "me")
        if not self.of_item:
            raise ParameterError(
                "A want says nothing of items.",
                where="wants",
                found=repr(text),
                expected="a predicate such as item.topic = 'arts'",
            )
        self._whole = Predicate.parse(text, language=_BOTH)
        self._by_writer = Predicate(self._written("sender.", "receiver."))

    @property
    def moves(self) -> bool:
        """Whether it depends on where its reader is."""
        return "loc" in self.of_me

    def over_items(self, me: Mapping[str, Any], language: Language = _ANY) -> Predicate:
        """Give it as its reader's predicate over items: what she says of herself are constants in it."""
        given = {name: me.get(name) for name in self.of_me}
        return Predicate.parse(self._written("", ":"), given, language=language)

    def by_writer(self, item: Mapping[str, Any]) -> Predicate:
        """Give it as the writer's predicate over readers: what there is to say of the item are constants."""
        return self._by_writer.bind(sender={name: item.get(name) for name in self.of_item})

    def as_text(self, me: Mapping[str, Any]) -> str:
        """Give the text of its reader's predicate over items, with what she says of herself written out."""

        def written(match: re.Match[str]) -> str:
            return match[2] if match[1] == "item" else _literal(me.get(match[2]))

        return _NAME.sub(written, self.text)

    def over_state(self) -> str:
        """Give the text of a SUBLIM rule: over the ``message`` and the ``state`` of its subscriber."""
        return self._written("message.", "state.")

    def holds(self, item: Mapping[str, Any], me: Mapping[str, Any]) -> bool:
        """Say whether it holds of an item and a reader."""
        return self._whole(item, me=me) is True

    def _written(self, item: str, me: str) -> str:
        return _replaced(self.text, item, me)


@lru_cache(maxsize=1024)
def _replaced(text: str, item: str, me: str) -> str:
    return _NAME.sub(lambda match: (item if match[1] == "item" else me) + match[2], text)


def _literal(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "NULL", True: "TRUE", False: "FALSE"}[value]
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, tuple | list):
        lat, lon = value
        return f"point({lat!r}, {lon!r})"
    return repr(value)
