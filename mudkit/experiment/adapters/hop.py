"""What a hop is: a system as a piece of a chain, between where items enter it and where they come out.

Between two hops of a chain stands a bridge for each phone, a server of its own: the first system's client
runs there, and hands what comes to the second system. So each machine is used as its own paper has it, and
knows nothing of the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from mudkit.events import Host
from mudkit.experiment.tasks import Item, Testbed

__all__ = ["PORT", "BaseHop", "Batch", "Hop", "MakeHop", "OnBatch", "Way", "text_of"]

PORT: Final = "board"
"""The application, or the port, under which adapters run on a task."""
Batch: TypeAlias = tuple[Item, ...]
"""What travels together: one item, or those of an aggregate."""
OnBatch: TypeAlias = Callable[[str, Batch], None]
"""Told for whom something has come out, and what."""


class Way(NamedTuple):
    """From where to where a hop goes.

    Parameters
    ----------
    testbed : Testbed
    sources, ends : mapping of str to Host
        Where it enters, by sender (of a second hop, by phone), and where it comes out, by phone.
    is_first : bool
        A first hop takes what is for everybody; a second one what the first has let through for one phone.
    """

    testbed: Testbed
    sources: Mapping[str, Host]
    ends: Mapping[str, Host]
    is_first: bool


class Hop(Protocol):
    """A system in a chain.

    Attributes
    ----------
    listens : bool
        Whether it matters to it what phones say of themselves.
    """

    listens: bool

    def send(self, source: str, batch: Batch) -> None:
        """Take something in; of a second hop, the source is the phone that it is for."""
        ...

    def moved(self, phone: str, about: Mapping[str, Any]) -> None:
        """Take note of what a phone says of itself now."""
        ...

    def look(self, phone: str) -> None:
        """Show the user of a phone what has come; what waits until she looks, comes first."""
        ...


MakeHop: TypeAlias = Callable[[Way, OnBatch], Hop]


class BaseHop:
    """What all hops have: what is under way, by name. The text travels; the rest of an item is in the lab."""

    def __init__(self, way: Way, on_batch: OnBatch) -> None:
        self._way, self._on_batch = way, on_batch
        self.listens = False
        self._under_way: dict[str, Batch] = {}

    def moved(self, phone: str, about: Mapping[str, Any]) -> None:
        """Nobody here needs to know."""

    def look(self, phone: str) -> None:
        """Show what has come: nothing waits for her to look."""
        self._way.testbed.show(phone)

    def _note(self, batch: Batch) -> str:
        name = " + ".join(item.name for item in batch)
        self._under_way[name] = batch
        return name

    def _to(self, source: str) -> Sequence[str]:
        return [each for each in self._way.ends if each != source] if self._way.is_first else [source]

    def _out(self, phone: str, name: str) -> None:
        self._on_batch(phone, self._under_way[name])


def text_of(batch: Batch) -> str:
    """Give what travels of a batch: the contents of its items."""
    return "".join(item.content for item in batch)
