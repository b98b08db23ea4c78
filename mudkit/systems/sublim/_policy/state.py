"""The state of one subscriber: a tuple space of variables, each known by its name.

Automatic variables are maintained by the system. The text of the paper lost the names of its three; they are
ours:

==================  ====================================================================================
``battery``         charge left, per cent; NULL on a charger
``bandwidth_kbps``  what the device's link carries towards it, as the device knows it; NULL without limit
``display_px``      width of the display, pixels, as the device's context says
==================  ====================================================================================

Manual variables belong to the policy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from mudkit.arguments import check_init
from mudkit.events import size_bytes
from mudkit.systems.arguments import MAX_DEPTH, is_storable
from mudkit.systems.sublim._policy.message import thawed
from mudkit.wire import Fields, Value

__all__ = [
    "AUTOMATIC",
    "KINDS",
    "MAX_STATE_BYTES",
    "MAX_VARIABLES",
    "Beyond",
    "State",
    "Tables",
    "checked_bytes",
]

MAX_VARIABLES: Final = 64
"""Manual ones of a subscriber, without the books of rate limits and summaries."""
MAX_STATE_BYTES: Final = 65_536
"""Of all manual variables of a subscriber, as JSON, without the books of rate limits and summaries."""

AUTOMATIC: Final = ("battery", "bandwidth_kbps", "display_px")
KINDS: Final = dict.fromkeys(AUTOMATIC, "number")
LISTED: Final = {"listed": True}


class Beyond(Exception):
    """A policy has gone beyond a limit."""


def checked_bytes(value: Value, what: str) -> int:
    """Return the size of a value as it is sent.

    Raises
    ------
    Beyond
        It cannot be sent or stored.
    """
    if not is_storable(value, has_bytes=True):
        raise Beyond(
            f"{what} holds something else than None, truth values, finite numbers, texts, bytes, and lists "
            f"and mappings of these at most {MAX_DEPTH} deep, whose names are texts"
        )
    return size_bytes(value)


@check_init
class State(Fields):
    """Variables that a policy reads and changes while it decides.

    Parameters
    ----------
    variables : mapping
        The manual variables, which stay as they are: changes are in :attr:`variables`.
    automatic : mapping
    now_s : float
        When the message was published, seconds since 1970.
    books : frozenset of str
        The variables in which rate limits and summaries keep books, which bound themselves.
    """

    __slots__ = ("_automatic", "_books", "_by_hand", "_is_own", "all", "now_s", "variables")

    def __init__(
        self,
        variables: Fields,
        automatic: Fields,
        now_s: float,
        books: frozenset[str] = frozenset(),
    ) -> None:
        self.variables: Fields = variables
        self._automatic = automatic
        self._is_own = False
        self._books = books
        self._by_hand: set[str] = set()
        """What the policy has set itself: only this can go beyond a limit."""
        self.now_s = now_s
        self.all: dict[str, Value] = {**variables, **automatic}
        """Both kinds, as predicates see them."""

    @property
    def is_changed(self) -> bool:
        """Whether a manual variable was set or removed."""
        return self._is_own

    def get_property(self, name: str) -> Any:
        """Give a variable, ``None`` when there is none (the paper's ``getProperty``)."""
        return self.all.get(name)

    def set_property(self, name: str, value: Value) -> None:
        """Set a manual variable; setting an automatic one does nothing (``setProperty``).

        Raises
        ------
        Beyond
            The variables then take more than a policy may use.
        """
        if name in AUTOMATIC:
            return
        self._own()[name] = thawed(value)
        self._by_hand.add(name)
        self.all[name] = value

    def set_books(self, name: str, books: dict[str, Value]) -> None:
        """Set the books of a rate limit or a summary: made small, and of what can be stored."""
        self._own()[name] = self.all[name] = books

    def remove_property(self, name: str) -> None:
        """Remove a manual variable; removing an automatic one does nothing (``removeProperty``)."""
        if name not in AUTOMATIC and name in self.variables:
            del self._own()[name]
            del self.all[name]

    def check(self) -> None:
        """Refuse a state that is larger than it may be.

        Raises
        ------
        Beyond
        """
        if self._is_own and not self._by_hand:
            return  # what else is there was within the limit before
        left_out = self._books - self._by_hand
        kept = {name: value for name, value in self.variables.items() if name not in left_out}
        if len(kept) > MAX_VARIABLES:
            raise Beyond(f"{len(kept)} variables; a policy may keep {MAX_VARIABLES}")
        taken = checked_bytes(kept, "a variable")
        if taken > MAX_STATE_BYTES:
            raise Beyond(f"variables of {taken} bytes; a policy may keep {MAX_STATE_BYTES}")

    def _own(self) -> dict[str, Value]:
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


class Tables(Mapping[str, "_Listed"]):
    """The lists of a state as tables of the language: ``lookup('patients', message.patient, 'listed')``.

    It is TRUE for what the variable's list holds, and NULL otherwise.
    """

    __slots__ = ("_all",)

    def __init__(self, all_variables: Fields) -> None:
        self._all = all_variables

    def __getitem__(self, name: str) -> _Listed:
        return _Listed(self._all.get(name))

    def __contains__(self, name: object) -> bool:
        return True  # a variable that was removed lists nothing

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)


class _Listed:
    __slots__ = ("_values",)

    def __init__(self, values: Value) -> None:
        self._values = values if isinstance(values, list | tuple) else ()

    def get(self, key: Value) -> dict[str, bool] | None:
        for each in self._values:
            # To Python TRUE equals 1; in the language it is of another kind.
            if each == key and isinstance(each, bool) is isinstance(key, bool):
                return LISTED
        return None
