"""Bases of the adapters: a system alone on its testbed, and a system as a part of a chain.

Between the two parts of a chain stands a bridge for each phone, a server of its own. The client of the first
system runs there and passes what arrives to the second one. So each machine runs as its paper has it, and
knows nothing of the other.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, Literal, NamedTuple, TypeAlias, get_args

from mudkit.checks import one_of
from mudkit.events import Host
from mudkit.experiment.tasks import Interest, Item
from mudkit.experiment.testbed import Testbed
from mudkit.predicates import Predicate

PORT: Final = "board"
"""Application, or port, under which adapters run on a task."""
Batch: TypeAlias = tuple[Item, ...]
"""Items that travel together: one, or those of an aggregate."""
OnBatch: TypeAlias = Callable[[str, Batch], None]
"""Callback for what leaves a part of a chain: the phone, and the batch."""


class System(ABC):
    """A system alone on its testbed: it chooses the items that each phone wants."""

    label: ClassVar[str]
    """Name on the scoreboard."""
    unsupported: ClassVar[Mapping[str, str]] = {}
    """Sentences on what its paper cannot express, by the name of the task."""

    def __init__(self, testbed: Testbed) -> None:
        self._testbed, self._task, self._lab = testbed, testbed.task, testbed.lab

    @property
    def name(self) -> str:
        """Name of the system in results."""
        return self.label

    @abstractmethod
    def publish(self, item: Item) -> None:
        """Publish an item on its sender."""

    def on_move(self, phone: str) -> None:  # noqa: B027 - some ignore it
        """Update what is known of a phone that has moved. By default it is ignored."""

    def on_look(self, phone: str) -> None:
        """Show the user of a phone the items that have arrived."""
        self._testbed.show(phone)

    def _receive(self, phone: str, message: Any) -> None:
        """Record the arrival of the item that a message to a phone names."""
        self._testbed.record_arrival(phone, message["called"])


class Way(NamedTuple):
    """Route through a part of a chain."""

    testbed: Testbed
    sources: Mapping[str, Host]
    """Hosts where items enter, by sender; in a second part, by phone."""
    ends: Mapping[str, Host]
    """Hosts where items leave, by phone."""
    on_batch: OnBatch
    """Callback for what leaves."""
    is_first: bool = True
    """A first part takes items for everybody; a second one what the first has let through for one phone."""

    @classmethod
    def over(cls, testbed: Testbed, on_batch: OnBatch) -> Way:
        """Return the whole route, from the senders to the phones."""
        devices = testbed.lab.devices
        sources, ends = (
            {name: devices[name] for name in names} for names in (testbed.senders, testbed.phones)
        )
        return cls(testbed, sources, ends, on_batch)


class Part(ABC):
    """A system as the whole or a part of a chain: it passes on all items, or those of its rules, in batches.

    Only contents travel, the rest of an item stays in the lab.
    """

    listens = False
    """True if it uses what phones say of themselves."""

    def __init__(self, way: Way) -> None:
        self._way = way
        self._testbed, self._task, self._lab = way.testbed, way.testbed.task, way.testbed.lab
        self._under_way: dict[str, Batch] = {}

    @abstractmethod
    def send(self, source: str, batch: Batch) -> None:
        """Send a batch from its source; in a second part, the source is the receiving phone."""

    def on_move(self, phone: str, profile: Mapping[str, Any]) -> None:  # noqa: B027 - most ignore it
        """Update the part for the new profile of a phone. By default it is ignored."""

    def on_look(self, phone: str) -> None:
        """Show the user of a phone the items that have arrived."""
        self._testbed.show(phone)

    def _store_batch(self, batch: Batch) -> str:
        """Store a batch that is sent, under the name that its message carries; return the name."""
        name = " + ".join(item.name for item in batch)
        self._under_way[name] = batch
        return name

    def _to(self, source: str) -> Sequence[str]:
        """Return the phones for which a source sends."""
        return [phone for phone in self._way.ends if phone != source] if self._way.is_first else [source]

    def _receive(self, phone: str, message: Any) -> None:
        """Pass on the batch that a message to a phone names."""
        self._way.on_batch(phone, self._under_way[message["called"]])


MakePart: TypeAlias = Callable[[Way], Part]


def text_of(batch: Batch) -> str:
    """Return the text that travels for a batch: the contents of its items."""
    return "".join(item.content for item in batch)


Meant: TypeAlias = Literal["all", "any", "each"]
RULES: Final[tuple[Meant, ...]] = get_args(Meant)
"""An aggregate is for those whom all its writers mean, or any of them, or each item for those of its own."""
_NAME: Final = re.compile(r"\b(item|me)\.([a-z_][a-z0-9_]*)")


def meant_by(want: Interest, items: Sequence[Item], rule: Meant = "all", to: str | None = None) -> Predicate:
    """Return the writer's predicate over readers (``receiver.…``) of several items together.

    With ``to``, it is for the reader of that ``name`` only; else not for the writers. With the rule ``each``
    there is one item.

    Examples
    --------
    >>> old = Item("a", "ann", {"least": 60}, 10, None)
    >>> young = Item("b", "bob", {"least": 0}, 10, None)
    >>> [meant_by(Interest("me.age >= item.least"), [old, young], rule)({}, receiver={"age": 20})
    ...  for rule in ("all", "any")]
    [False, True]
    """
    one_of("rule", rule, RULES)
    sender: dict[str, Any] = {} if to is None else {"to": to}
    parts = []
    for number, item in enumerate(items):
        sender.update({f"{name}_{number}": item.metadata.get(name) for name in want.of_item})

        def written(match: re.Match[str], number: int = number) -> str:
            return f"sender.{match[2]}_{number}" if match[1] == "item" else f"receiver.{match[2]}"

        parts.append(f"({_NAME.sub(written, want.text)})")
    text = (" OR " if rule == "any" else " AND ").join(parts)
    if to is not None:
        text = f"receiver.name = sender.to AND ({text})"
    else:
        sender["writers"] = "|".join(item.sender for item in items)
        text = f"NOT coalesce(contains(sender.writers, receiver.name), FALSE) AND ({text})"
    return Predicate(text).bind(sender=sender)
