"""The spooling server: it keeps messages of topics, and a spool for each device and topic (Last hop 3, 4.5).

Its rules:

===========  =======================================================================================
publish      kept durably for each subscriber, and into its spool; for queries of the indexer, too
rerank       a message has another rank from now on
subscribe    a spool begins, or goes on with other limits; unsubscribe: it ends, with all that waits
hello        the device says what it holds and what was read while it was away; a new stream begins,
             and what was lost on its way waits again
read         what is better than what the device has goes to it, and then which messages are read
confirmed    the device has it
failed       the device is away until it says hello
timer        what expires and what is delayed; quiet hours, fixed times, a new day; sending again
===========  =======================================================================================

Subscriptions and what waits outlive the machine; where devices are, and what they hold, they say again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from mudkit.errors import MudkitError, ParameterError
from mudkit.events import (
    Call,
    Complete,
    Effect,
    Event,
    LinkUp,
    Ports,
    Received,
    Send,
    SendFailed,
    SetTimer,
    TimerFired,
)
from mudkit.systems.lasthop.policies import FOREVER_US
from mudkit.systems.lasthop.ranked import Message
from mudkit.systems.lasthop.spool import Spool
from mudkit.systems.lasthop.subscription import Subscription
from mudkit.systems.stream import Again, Outgoing

__all__ = ["SpoolServer"]

_DUE: Final = "due"
_AGAIN_US: Final = 5_000_000
_DAY_US: Final = 86_400_000_000


@dataclass
class _Spooled:
    """A subscription of a device."""

    subscription: Subscription
    spool: Spool
    shown: int = 0
    """Messages that were shown as they came since the day began."""
    last_read: int = 0
    """Number of the last read that was answered."""


@dataclass
class _Phone:
    address: str | None = None
    stream: Outgoing | None = None
    topics: dict[str, _Spooled] = field(default_factory=dict)


class SpoolServer:
    """The machine of the spooling server.

    Parameters
    ----------
    ports : Ports
    time_of_day_us : int
        What time of the day it is when time begins.
    """

    def __init__(self, ports: Ports, time_of_day_us: int) -> None:
        self._store = ports.store
        self._me = ports.address
        self._begins_us = time_of_day_us
        self._phones: dict[str, _Phone] = {}
        self._effects: list[Effect] = []
        self._now_us = 0
        self._timer = Again(_AGAIN_US)
        self._is_awake = False

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        self._now_us, self._effects = now_us, []
        if not self._is_awake:
            self._is_awake = True
            self._wake()
        match event:
            case Call(op_id=op_id, operation=operation, arguments=arguments):
                try:
                    self._effects.append(Complete(op_id, self._call(operation, arguments)))
                except MudkitError as error:
                    self._effects.append(Complete(op_id, error=error))
            case Received(source=source, message={"kind": "hello"} as message):
                self._hello(source, message)
            case Received(message={"kind": "read"} as message):
                self._read(message)
            case Received(message={"kind": "subscribe" | "unsubscribe"} as message):
                self._subscribe(message)
            case Received(message={"kind": "confirmed", "device": device, "stream": name, "number": number}):
                stream = self._phones[device].stream if device in self._phones else None
                if stream is not None and stream.name == name:
                    stream.confirmed(number)
            case SendFailed(to=to):
                self._failed(to)
            case TimerFired(name=name):
                self._timer_fired(name)
        if not isinstance(event, LinkUp):
            self._set_due()
        return self._effects
