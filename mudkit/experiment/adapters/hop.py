"""Hops: systems as parts of a chain, between where items enter and where they leave."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from mudkit.errors import ParameterError
from mudkit.events import Host
from mudkit.experiment.tasks import Interest, Item
from mudkit.experiment.testbed import Testbed
from mudkit.predicates import Predicate

__all__ = ["PORT", "RULES", "BaseHop", "Batch", "Hop", "MakeHop", "OnBatch", "Way", "meant_by", "text_of"]

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


RULES: Final = ("all", "any", "each")
"""An aggregate is for those whom all its writers mean, or any of them, or each item for those of its own."""
_NAME: Final = re.compile(r"\b(item|me)\.([a-z_][a-z0-9_]*)")


def meant_by(want: Interest, items: Sequence[Item], rule: str = "all", to: str | None = None) -> Predicate:
    """Give the writer's predicate over readers (``receiver.…``) of several items together.

    What is for everybody is not for those who wrote it, by their ``name``.

    Parameters
    ----------
    want : Interest
        The predicate of each, over what there is to say of it, and over its reader.
    items : sequence of Item
    rule : {'all', 'any', 'each'}
        The rule for what several writers mean; for ``each``, one item is given.
    to : str, optional
        Only the reader that says this is her ``name``.

    Raises
    ------
    ParameterError
        There is no such rule, or nothing to write.

    Examples
    --------
    >>> old = Item("a", "ann", {"least": 60}, 10, None)
    >>> young = Item("b", "bob", {"least": 0}, 10, None)
    >>> [meant_by(Want("me.age >= item.least"), [old, young], rule)({}, receiver={"age": 20})
    ...  for rule in ("all", "any")]
    [False, True]
    """
    if rule not in RULES or not items:
        raise ParameterError(
            "Nobody can say whom this is for.",
            where="rule, items",
            found=f"{rule!r}, {len(items)} items",
            expected=f"{', '.join(RULES)}, and an item at least",
        )
    said: dict[str, Any] = {} if to is None else {"to": to}
    parts = []
    for number, item in enumerate(items):
        said.update({f"{name}_{number}": item.about.get(name) for name in want.of_item})

        def written(match: re.Match[str], number: int = number) -> str:
            return f"sender.{match[2]}_{number}" if match[1] == "item" else f"receiver.{match[2]}"

        parts.append(f"({_NAME.sub(written, want.text)})")
    text = (" OR " if rule == "any" else " AND ").join(parts)
    if to is not None:
        text = f"receiver.name = sender.to AND ({text})"
    else:
        said["writers"] = "|".join(item.sender for item in items)
        text = f"NOT coalesce(contains(sender.writers, receiver.name), FALSE) AND ({text})"
    return Predicate(text).bind(sender=said)
