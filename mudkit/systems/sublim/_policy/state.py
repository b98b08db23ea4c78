"""State of a subscriber: a tuple space of named variables.

The system maintains the automatic variables. Their names are ours; the text of the paper lost its three:

==================  ====================================================================================
``battery``         remaining charge, per cent; NULL on a charger
``bandwidth_kbps``  bandwidth of the device's downlink as the device knows it; NULL if unlimited
``display_px``      width of the display in pixels, from the device's context
==================  ====================================================================================

Manual variables belong to the policy, whose rate limits and summaries store their records, called books, in
variables of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from mudkit.checks import MAX_VALUE_DEPTH, check_arguments, is_storable
from mudkit.events import size_bytes
from mudkit.systems.sublim._policy.message import thaw
from mudkit.systems.sublim._policy.text import PolicyError
from mudkit.wire import Fields, Value

MAX_VARIABLES: Final = 64
"""Manual variables of a subscriber, without books."""
MAX_STATE_BYTES: Final = 65_536
"""All manual variables of a subscriber as JSON, without books."""

AUTOMATIC: Final = ("battery", "bandwidth_kbps", "display_px")
KINDS: Final = dict.fromkeys(AUTOMATIC, "number")
LISTED: Final = {"listed": True}


class LimitExceeded(Exception):
    """A policy has exceeded a limit."""


def check_bytes(value: Value, what: str) -> int:
    """Return the encoded size of a value; raise LimitExceeded if it cannot be sent or stored."""
    if not is_storable(value, has_bytes=True):
        raise LimitExceeded(
            f"{what} holds something else than None, truth values, finite numbers, texts, bytes, and lists "
            f"and mappings of these at most {MAX_VALUE_DEPTH} deep, whose names are texts"
        )
    return size_bytes(value)


class State(Fields):
    """Variables that a policy reads and changes during a decision.

    Parameters
    ----------
    variables : mapping
        Manual variables; copied on the first change, see :attr:`variables`.
    automatic : mapping
    now_s : float
        Time of publication, seconds since 1970.
    action_variables : frozenset of str
        Variables in which rate limits and summaries keep their entries, which have limits of their own.
    """

    __slots__ = ("_action_variables", "_automatic", "_by_hand", "_is_own", "all", "now_s", "variables")

    @check_arguments
    def __init__(
        self,
        variables: Fields,
        automatic: Fields,
        now_s: float,
        action_variables: frozenset[str] = frozenset(),
    ) -> None:
        self.variables: Fields = variables
        self._automatic = automatic
        self._is_own = False
        self._action_variables = action_variables
        self._by_hand: set[str] = set()
        """Variables set by the policy itself: only these can exceed a limit."""
        self.now_s = now_s
        self.all: dict[str, Value] = {**variables, **automatic}
        """Manual and automatic variables, as predicates see them."""

    @property
    def is_changed(self) -> bool:
        """True if a manual variable was set or removed."""
        return self._is_own

    def get_property(self, name: str) -> Any:
        """Return the manual or automatic variable ``name``; None if it is absent (``getProperty``)."""
        return self.all.get(name)

    def set_property(self, name: str, value: Value) -> None:
        """Set the manual variable ``name`` to ``value``; automatic ones do not change (``setProperty``)."""
        if name in AUTOMATIC:
            return
        self._copy_variables()[name] = thaw(value)
        self._by_hand.add(name)
        self.all[name] = value

    def set_action_variable(self, name: str, entries: dict[str, Value]) -> None:
        """Set the variable ``name`` of a rate limit or summary to its ``entries``, bounded and storable."""
        self._copy_variables()[name] = self.all[name] = entries

    def remove_property(self, name: str) -> None:
        """Remove the manual variable ``name``; automatic ones do not change (``removeProperty``)."""
        if name not in AUTOMATIC and name in self.variables:
            del self._copy_variables()[name]
            del self.all[name]

    def check(self) -> None:
        """Raise LimitExceeded if the manual variables are too many or too large, or cannot be stored."""
        if self._is_own and not self._by_hand:
            return  # the others were within the limits before
        left_out = self._action_variables - self._by_hand
        kept = {name: value for name, value in self.variables.items() if name not in left_out}
        if len(kept) > MAX_VARIABLES:
            raise LimitExceeded(f"{len(kept)} variables; a policy may keep {MAX_VARIABLES}")
        taken = check_bytes(kept, "a variable")
        if taken > MAX_STATE_BYTES:
            raise LimitExceeded(f"variables of {taken} bytes; a policy may keep {MAX_STATE_BYTES}")

    def _copy_variables(self) -> dict[str, Value]:
        """Copy the manual variables before their first change; return the copy."""
        if not self._is_own:
            self.variables = dict(self.variables)
            self._is_own = True
        assert isinstance(self.variables, dict)
        return self.variables

    def __getitem__(self, name: str) -> Value:
        return self.all[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.all)

    def __len__(self) -> int:
        return len(self.all)


def check_initial_variables(variables: Fields) -> None:
    """Raise PolicyError if the initial variables of a policy exceed the limits of a state."""
    try:
        State(variables, {}, 0.0).check()
    except LimitExceeded as error:
        raise PolicyError("These variables cannot be kept.", found=str(error)) from None


class Tables(Mapping[str, "_ListTable"]):
    """Lists of a state as tables of the language: ``lookup('patients', message.patient, 'listed')``.

    TRUE for the items of the variable's list, else NULL.
    """

    __slots__ = ("_all",)

    def __init__(self, all_variables: Fields) -> None:
        self._all = all_variables

    def __getitem__(self, name: str) -> _ListTable:
        return _ListTable(self._all.get(name))

    def __contains__(self, name: object) -> bool:
        return True  # a removed variable is an empty list

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)


class _ListTable:
    """List in a variable as a table of the language, by item; any other value is an empty list."""

    __slots__ = ("_values",)

    def __init__(self, values: Value) -> None:
        self._values = values if isinstance(values, list | tuple) else ()

    def get(self, key: Value) -> dict[str, bool] | None:
        """Return the row of a key, ``{'listed': True}``; None if the list does not contain it."""
        for item in self._values:
            # In Python TRUE equals 1; in the language it is of another kind.
            if item == key and isinstance(item, bool) is isinstance(key, bool):
                return LISTED
        return None
