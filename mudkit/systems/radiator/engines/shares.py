"""Algorithm 3 for a share of the receivers, as a stream query keeps it (``pipeline.streaming``).

Every share processes every event, so that each knows the current context of all senders; each receiver
belongs to one share. Together the shares release what a single engine releases, at the same times; an
aggregate for receivers of several shares is emitted once per share.

==========  =============================================================================================
register    text: the attributes as JSON; replace the attributes of a registered client
unregister  remove the client and its pending messages
context     text: a context as :meth:`Context.to_dict` returns it; a problem if the client is not registered
tick        advance the time
any         skip an event whose number is not above the last one (a duplicate); report an event that
            cannot be decoded as a problem
==========  =============================================================================================
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import msgspec

from mudkit.checks import check_arguments, number
from mudkit.errors import MudkitError, ParameterError, PropagationProblem, brief
from mudkit.systems.radiator.context import Context
from mudkit.systems.radiator.engines.groups import Groups
from mudkit.systems.radiator.engines.joining import check_join, join_entry
from mudkit.systems.radiator.engines.literal import Entry
from mudkit.systems.radiator.engines.pending import Message
from mudkit.systems.radiator.joins import Join, concatenation
from mudkit.systems.radiator.messages import pack
from mudkit.systems.radiator.thresholds import Aggregability
from mudkit.wire import Value

_decode = msgspec.json.Decoder().decode


class _ClientEvent(Protocol):
    """Event of a client as a stream query passes it to a share.

    Numbers ascend over all clients; an event that is not above the last one is a duplicate.
    """

    @property
    def t_us(self) -> int:
        """Time of the event, µs."""

    @property
    def number(self) -> int:
        """Number of the event; a duplicate has the same."""

    @property
    def client(self) -> str:
        """Client id."""

    @property
    def kind(self) -> str:
        """Kind: register, unregister, context or tick."""

    @property
    def text(self) -> str | None:
        """JSON of the attributes or the context, if there is one."""


Output: TypeAlias = tuple[int, Sequence[int], Sequence[str], str | None, str | None]
"""Time (µs), numbers of the messages, recipients, and either the aggregate as JSON or a problem."""

ShareState: TypeAlias = tuple[Groups, set[str], int]
"""State of a share: engine without its function, registered clients, number of the last event."""


class Share:
    """Engine of one share.

    Parameters
    ----------
    shares : Shares
    share, of : int
        Index of the share, and number of shares.
    kept : tuple, optional
        State from :meth:`state`; None: a new share.
    """

    def __init__(self, shares: Shares, share: int, of: int, kept: ShareState | None = None) -> None:
        self._shares, self._share, self._of = shares, share, of
        self._engine: Groups
        self._clients: set[str]
        self._last: int
        function = shares.aggregability
        if kept is None:
            self._engine = Groups(function, round(shares.max_retention_s * 1e6), echo=shares.echo)
            self._clients, self._last = set(), -1
        else:
            self._engine, self._clients, self._last = kept
            self._engine.function = function

    @property
    def due_us(self) -> float:
        """Latest time of the next :meth:`fire`, µs; infinite: none."""
        return self._engine.due_us

    def state(self) -> ShareState:
        """Return the state of the share, without the user's functions."""
        engine = copy(self._engine)
        del engine.function
        return engine, self._clients, self._last

    def handle(self, event: _ClientEvent) -> list[Output]:
        """Process an event; return aggregates and problems.

        One whose number is not above the last one's, of whatever client, is a duplicate, and without effect.
        """
        if event.number <= self._last:
            return []
        self._last = event.number
        try:
            context = self._read_context(event)
        except (MudkitError, msgspec.DecodeError, LookupError, TypeError) as error:
            return [_build_unreadable(event, error)]
        return self._build_outputs(event.t_us, self._apply_event(event, context))

    def fire(self, now_us: int) -> list[Output]:
        """Release what is due by time; return aggregates and problems."""
        return self._build_outputs(now_us, self._engine.fire(now_us))

    def _read_context(self, event: _ClientEvent) -> Context | None:
        """Return the context of an event; attributes become a context without people."""
        match event.kind:
            case "register":
                return Context(attributes=_decode(event.text or "{}"))
            case "context" if event.client in self._clients:
                return Context.from_dict(_decode(event.text or "")).with_span(event.t_us)
            case "context":
                raise ParameterError(
                    "There is no such client.", found=brief(event.client), expected="register first"
                )
            case "unregister" | "tick":
                return None
        raise ParameterError(
            "There is no such event.",
            found=brief(event.kind),
            expected="register, unregister, context or tick",
        )

    def _apply_event(self, event: _ClientEvent, context: Context | None) -> list[Entry]:
        """Apply an event to the engine; return released entries."""
        t_us, client = event.t_us, event.client
        if event.kind == "context" and context is not None:
            return self._engine.take(t_us, Message(event.number, client, t_us, context))
        if event.kind == "register" and context is not None:
            self._clients.add(client)
            return self._engine.register(t_us, client, context.attributes, receives=self._is_receiver(client))
        if event.kind == "unregister" and client in self._clients:
            self._clients.remove(client)
            self._engine.unregister(t_us, client)
        return []

    def _is_receiver(self, client: str) -> bool:
        """Return whether a client is a receiver of this share; it is a sender in each."""
        return zlib.crc32(client.encode()) % self._of == self._share

    def _build_outputs(self, now_us: int, entries: Sequence[Entry]) -> list[Output]:
        """Join released entries; return the aggregates, and the new problems."""
        outputs: list[Output] = []
        for entry in entries:
            for part, text in join_entry(self._engine, entry, now_us, self._shares.join, _as_json):
                numbers = [message.number for message in part.batch]
                outputs.append((now_us, numbers, part.recipients, text, None))
        return outputs + [
            (now_us, (), (), None, str(problem)) for problem in self._engine.problems.take_new()
        ]


@check_arguments
@dataclass(frozen=True)
class Shares:
    """Factory of the shares' engines: ``pipeline.aggregate_stream(events, Shares(g), path)``.

    Parameters
    ----------
    aggregability : Aggregability
        Aggregability function with a key.
    join, max_retention_s, echo
        As for :class:`mudkit.systems.radiator.Server`.

    Raises
    ------
    ParameterError
        The function declares no key, or the join lacks a setting.
    """

    aggregability: Aggregability
    join: Join = concatenation
    max_retention_s: float = 3600.0
    echo: bool = False

    def __post_init__(self) -> None:
        number("max_retention_s", self.max_retention_s, 1e-6, 1e9)
        check_join(self.join)
        given: Aggregability | Value = self.aggregability
        if not isinstance(given, Aggregability) or given.key is None:
            name = getattr(given, "name", None) or getattr(given, "__qualname__", repr(given))
            raise ParameterError(
                "Receivers cannot be divided into groups that are alike.",
                where="aggregability",
                found=f"{name} has no key",
                expected="a function that declares what of a receiver it looks at",
                remedy="put @aggregability(key=…) before it",
            )

    def __call__(self, share: int, of: int, kept: ShareState | None = None) -> Share:
        """Build the engine of a share, or restore it from its state."""
        return Share(self, share, of, kept)


def _build_unreadable(event: _ClientEvent, error: Exception) -> Output:
    """Return the output that reports an event that cannot be decoded."""
    problem = PropagationProblem(
        f"An event cannot be used: {error.summary if isinstance(error, MudkitError) else error}",
        where=f"event {event.number} of {event.client!r}, {event.kind}",
        found=(getattr(error, "found", None) or repr(event.text))[:200],
        expected=getattr(error, "expected", None) or "what is told of such an event, as JSON",
        remedy="it was left out",
    )
    return event.t_us, (), (), None, str(problem)


def _as_json(context: Context) -> str:
    """Return a context as JSON text."""
    return pack(context.to_dict(), compress=False).decode()
