"""Items that have come and are not with their application yet: of each port ``MOST_KEPT`` at most.

An item is handed over, and goes when the application says that it has it: one that is killed between finds it
again. Handing over is an answer to who waits, or a notification to who listens.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import Any, Final

from mudkit.events import Complete, Notify, Record
from mudkit.systems.contrail.device.core import Core
from mudkit.systems.contrail.envelopes import Data
from mudkit.systems.contrail.items import Item, delivery, unpack
from mudkit.systems.contrail.problems import TamperedMessage

__all__ = ["MOST_KEPT", "Inbox", "listener"]

MOST_KEPT: Final = 10_000
"""Above, items are dropped and counted, as if they had been lost on their way: they may come again."""


def listener(port: str) -> str:
    """Name the application that is told of the items of a port."""
    return f"items at {port}"


class Inbox:
    """The items of all ports.

    Parameters
    ----------
    core : Core
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._waiting: dict[str, deque[int]] = {}
        self._handed: set[int] = set()
        self._kept: dict[str, list[int]] = {}
        """By port the numbers of what is in the store, in their order."""
        for key, _ in core.store.items("inbox "):
            port, number = key.removeprefix("inbox ").split("\n")
            self._kept.setdefault(port, []).append(int(number))

    def has_room(self, port: str) -> bool:
        """Say whether another item of a port can be kept."""
        return len(self._kept.get(port, ())) < MOST_KEPT

    def add(self, came: Data, content: bytes) -> None:
        """Keep an item, and hand it over if somebody waits.

        Raises
        ------
        TamperedMessage
            It is none.
        """
        try:
            unpack(content)
        except ValueError as error:
            raise TamperedMessage("This is no item.", where=f"from {came.source}") from error
        number = self._core.next_number()
        self._kept.setdefault(came.to_port, []).append(number)
        self._core.store.put(
            _key(came.to_port, number),
            {"content": bytes(content), "from": [came.source, came.port], "item": came.item, "seq": came.seq},
        )
        self.hand_over(came.to_port)

    def receive(self, port: str, op_id: int) -> None:
        """Answer a call with the next item, now or when there is one."""
        self._waiting.setdefault(port, deque()).append(op_id)
        self.hand_over(port)

    def all(self, port: str) -> list[Item]:
        """Hand over all items of a port that are there now."""
        numbers = self._kept.get(port, ())
        self._handed.update(numbers)
        return [_item(number, self._core.store.get(_key(port, number))) for number in numbers]

    def hand_over(self, port: str, *, again: bool = False) -> None:
        """Give what is there to who waits or listens.

        Parameters
        ----------
        port : str
        again : bool
            Also what was handed over before, and nobody has said that he has it.
        """
        if again:
            self._handed.clear()
        waiting = self._waiting.get(port, deque())
        state = self._core.store.get(f"port {port}")
        listens = state is not None and state["listens"]
        if not waiting and not listens:
            return
        for number in self._kept.get(port, ()):
            if number in self._handed:
                continue
            kept = self._core.store.get(_key(port, number))
            if waiting:
                self._core.effects.append(Complete(waiting.popleft(), _item(number, kept)))
            elif listens:
                self._core.effects.append(Notify(listener(port), _item(number, kept)))
            else:
                return
            self._handed.add(number)

    def taken(self, port: str, numbers: Collection[int]) -> None:
        """Forget what the application has."""
        for number in numbers:
            kept = self._core.store.get(_key(port, number))
            if kept is None:
                continue
            self._core.store.delete(_key(port, number))
            self._kept[port].remove(number)
            self._handed.discard(number)
            self._core.effects.append(
                Record(
                    "deliveries",
                    {
                        "item": delivery(tuple(kept["from"]), kept["item"], kept["seq"], kept["content"]),
                        "receiver": self._core.me,
                        "read_us": self._core.now_us,
                    },
                )
            )


def _key(port: str, number: int) -> str:
    return f"inbox {port}\n{number:012d}"


def _item(number: int, kept: Any) -> Item:
    metadata, payload = unpack(kept["content"])
    source, port = kept["from"]
    return Item(metadata, payload, (source, port), kept["item"], number)
