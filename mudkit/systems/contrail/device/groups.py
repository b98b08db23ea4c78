"""The groups of publishers that a device is in (Contrail 3.4.3): by its own word, or by where it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mudkit.errors import PredicateError
from mudkit.predicates import Language, Predicate
from mudkit.systems.contrail.device.core import Core

__all__ = ["CONTEXT", "Groups"]

CONTEXT = Language(("context",))
"""The rule of a group names what a device knows of itself."""


class Groups:
    """The groups of this device.

    Parameters
    ----------
    core : Core
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._all: dict[str, dict[str, Any]] = {
            key.removeprefix("group "): kept for key, kept in core.store.items("group ")
        }

    def is_member(self, group: str) -> bool:
        """Say whether this device is in a group."""
        return bool(self._all.get(group, {}).get("is_in"))

    def join(self, group: str, rule: str | None, context: Mapping[str, Any]) -> bool:
        """Join a group, or keep to its rule from now on; say whether anything changes for others."""
        self._all[group] = {"rule": rule, "is_in": self.is_member(group)}
        return self._become(group, rule is None or self._holds(rule, context))

    def leave(self, group: str) -> bool:
        """Leave a group; say whether anything changes for others."""
        changes = group in self._all and self._become(group, False)
        self._all.pop(group, None)
        self._core.store.delete(f"group {group}")
        return changes

    def moved(self, context: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
        """Follow the rules where the device has got to: give the groups that it joins (True) and leaves."""
        for group, kept in list(self._all.items()):
            if kept["rule"] is not None:
                joins = self._holds(kept["rule"], context)
                if self._become(group, joins):
                    yield group, joins

    def _become(self, group: str, is_in: bool) -> bool:
        before = self.is_member(group)
        self._all[group] = {**self._all[group], "is_in": is_in}
        self._core.store.put(f"group {group}", self._all[group])
        return before != is_in

    def _holds(self, rule: str, context: Mapping[str, Any]) -> bool:
        try:
            return bool(Predicate.parse(rule, language=CONTEXT)(context))
        except PredicateError as error:
            self._core.problem("rules of groups that raised", error)
            return False
