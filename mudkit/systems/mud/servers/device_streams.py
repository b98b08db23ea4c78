"""Streams of a processor to the notification servers: what is for the devices of the ranges of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mudkit.delivery.stream import StreamAck
from mudkit.events import Effect, Ports
from mudkit.systems.mud.messages.notifications import NewGeneration, Tell, Whereabouts
from mudkit.systems.mud.messages.parts import netid_of, server_of_session
from mudkit.systems.mud.servers.ranges import Ranges
from mudkit.systems.mud.servers.stream_sender import AGAIN, StreamSender

_TIMEOUT_US: Final = 1_000_000
_MAX_TIMEOUT_US: Final = 10_000_000


class DeviceStreams:
    """Streams of one processor to the notification ``servers``; ``ranges`` says which is a device's."""

    def __init__(self, ports: Ports, ranges: Ranges, servers: Sequence[str]) -> None:
        self._me, self._servers, self._ranges = ports.address, servers, ranges
        self._generation = NewGeneration(self._me, 0)
        self._senders: dict[str, StreamSender[Tell | NewGeneration | Whereabouts]] = {}
        """By the address of the notification server."""
        self._informed: set[str] = set()
        """Notification servers that were sent the present generation."""

    def begin(self, now_us: int, generation: int) -> Sequence[Effect]:
        """Begin the streams of another generation of the processor, and send it to the servers."""
        effects = [effect for sender in self._senders.values() for effect in sender.close()]
        self._generation = NewGeneration(self._me, generation)
        self._informed.clear()
        for server in self._servers:
            self._senders[server] = StreamSender(
                f"{self._me} {generation}", server, server, _TIMEOUT_US, _MAX_TIMEOUT_US, us_per_byte=0
            )
        return [*effects, *self._inform(now_us)]

    def send(self, now_us: int, body: Tell | Whereabouts) -> Sequence[Effect]:
        """Send what concerns a device to its notification server."""
        return self._senders[self._ranges.server_of(netid_of(body.endpoint))].send(now_us, body)

    def ack(self, now_us: int, server: str, acknowledged: StreamAck) -> Sequence[Effect]:
        """Remove what a server has taken; no effect for a stream of an earlier generation."""
        sender = self._senders.get(server)
        is_current = sender is not None and sender.name == acknowledged.stream
        return sender.ack_up_to(now_us, acknowledged.seq) if sender is not None and is_current else ()

    def retransmit(self, now_us: int, name: str) -> Sequence[Effect]:
        """Retransmit what is overdue after a timer fired; report a server that is silent for too long."""
        server = name.removeprefix(AGAIN)
        sender = self._senders[server]
        suspected = self._ranges.suspect_if_silent(now_us, server, sender.age_us(now_us))
        return [*sender.retransmit_overdue(now_us), *suspected]

    def follow_assignments(self, now_us: int) -> tuple[list[Whereabouts], Sequence[Effect]]:
        """Send nothing more to servers without a range, and the generation to those that have their first.

        Return the reports of devices that those have not acknowledged; the caller ends the reads of the
        changes.
        """
        effects: list[Effect] = []
        reports: list[Whereabouts] = []
        for server, sender in self._senders.items():
            if not self._ranges.is_serving(server):
                bodies, withdrawn = sender.withdraw(now_us)
                reports += [body for body in bodies if isinstance(body, Whereabouts)]
                effects += withdrawn
                self._informed.discard(server)
        return reports, [*effects, *self._inform(now_us)]

    def is_of_another_server(self, endpoint: str, session: str) -> bool:
        """Return whether a session is with another notification server than that of the device's range."""
        server = server_of_session(session)
        return server in self._senders and server != self._ranges.server_of(netid_of(endpoint))

    def _inform(self, now_us: int) -> Sequence[Effect]:
        """Send the generation to each server with a range that was not sent it, for those with a session."""
        effects: list[Effect] = []
        for server in self._ranges.serving:
            if server not in self._informed:
                self._informed.add(server)
                effects += self._senders[server].send(now_us, self._generation)
        return effects
