"""Transport: what messages cost besides their own bytes, and which hosts can reach a device.

Without one, a message is its own bytes, and everybody can send to everybody. With one, messages between a
device and another host travel over a connection, which is opened by a handshake, and forgotten when it has
been idle. A device that lets nobody in hears only from hosts to which it has a connection.

Left out: packets that only acknowledge, retransmissions and slow start of TCP, and the answer of HTTP to a
message that the other side does not answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from mudkit.checks import Range, check_arguments, one_of
from mudkit.events import Send, size_bytes
from mudkit.fleet.clock import ARRIVAL, LINK
from mudkit.fleet.host import way_us
from mudkit.fleet.link import Direction, Leg, Transfer
from mudkit.units import US_PER_S

if TYPE_CHECKING:
    from mudkit.fleet.host import Host, Process
    from mudkit.fleet.kernel import World

_MAX_BYTES: Final = 1 << 20
_MAX_S: Final = 1e9
_MAX_SIZES: Final = 1 << 12
"""Number of sizes of messages for which what is carried is kept."""
_SEGMENT_BYTES: Final = 1460
"""Payload of a packet: Ethernet's 1,500 bytes without the headers of IPv4 and TCP."""
_RECORD_BYTES: Final = 1 << 14
"""Maximum payload of a record of TLS (RFC 8446, 5.1)."""


@check_arguments
@dataclass(frozen=True)
class Transport:
    """A way to carry messages between a device and other hosts.

    Parameters
    ----------
    name : str
    handshake : tuple of (int, int)
        Bytes there and back of each round trip that opens a connection, with all headers.
    request_bytes, answer_bytes : int
        Header of each message of the host that opened the connection, and of each message to it.
    record_bytes : int
        Added to each record of up to 16 KiB by encryption.
    packet_bytes : int
        Headers of each packet, of up to 1,460 bytes of payload.
    idle_s : float
        Time without a message after which a connection is closed, or forgotten by the operator's NAT.
    ping_s : float, optional
        Idle time after which the host that opened a connection keeps it open by a ping; it opens it again
        when it is lost, or when its link comes back. None: it does neither.
    ping_bytes : int
        Size of a ping, and of its answer, with all headers.
    """

    name: str
    handshake: tuple[tuple[int, int], ...]
    request_bytes: Annotated[int, Range(0, _MAX_BYTES)] = 0
    answer_bytes: Annotated[int, Range(0, _MAX_BYTES)] = 0
    record_bytes: Annotated[int, Range(0, _MAX_BYTES)] = 22
    packet_bytes: Annotated[int, Range(0, _MAX_BYTES)] = 40
    idle_s: Annotated[float, Range(0.0, _MAX_S)] = 1800.0
    ping_s: Annotated[float, Range(1e-3, _MAX_S)] | None = None
    ping_bytes: Annotated[int, Range(0, _MAX_BYTES)] = 64

    def carried_bytes(self, size_bytes: int, header_bytes: int) -> int:
        """Return the size of a message with its header, its records and its packets."""
        clear_bytes = size_bytes + header_bytes
        sealed_bytes = clear_bytes + -(-clear_bytes // _RECORD_BYTES) * self.record_bytes
        return sealed_bytes + -(-sealed_bytes // _SEGMENT_BYTES) * self.packet_bytes


TLS_HANDSHAKE: Final = ((60, 60), (330, 3000))
"""Round trips of TCP, and of TLS 1.3 with a chain of two certificates of about a thousand bytes each."""

TRANSPORTS: Final = {
    transport.name: transport
    for transport in (
        Transport("https", TLS_HANDSHAKE, request_bytes=700, answer_bytes=300, idle_s=75.0),
        Transport("mqtt", TLS_HANDSHAKE, request_bytes=30, answer_bytes=30, idle_s=1800.0, ping_s=1680.0),
    )
}
"""The transports of a lab, by name.

``https``: requests of 700 bytes of header, the lower end of what is typical ("SPDY: An experimental protocol
for a faster web", The Chromium Projects, 2009); answers of 300 bytes, and 75 s until a server closes an idle
connection (nginx's default), are choices. ``mqtt``: a fixed header of 2 to 5 bytes and a topic of 25; a ping
of 2 bytes (MQTT 3.1.1, 2.2 and 3.12), in a record and a packet, each 28 minutes, as Android's push service
does over cellular networks. NATs of operators forget idle connections after less than five minutes to more
than thirty (Wang et al., *An Untold Story of Middleboxes in Cellular Networks*, SIGCOMM 2011): 30 minutes are
a choice. A packet has 40 bytes of headers (IPv4 and TCP), a record 22 (RFC 8446, 5.2).
"""


def transport_of(given: str | Transport) -> Transport | None:
    """Return a transport by name; None for ``messages``, which adds nothing.

    Raises
    ------
    ParameterError
        There is no such transport.
    """
    if isinstance(given, Transport):
        return given
    if given == "messages":
        return None
    one_of("transport", given, ["messages", *TRANSPORTS], "There is no such transport.")
    return TRANSPORTS[given]


MIN_RETRY_S: Final = 1
MAX_RETRY_S: Final = 120
"""Time after which a lost connection that is kept is opened again; doubles after each failure, up to the
maximum: the defaults of Eclipse Paho's client (``reconnect_delay_set``)."""


class Connection:
    """A connection that ``opener``, a machine, has opened from its host to ``peer``, another."""

    __slots__ = (
        "is_closed", "is_kept", "is_open", "opener", "peer", "retry_s", "trips", "until_us", "waiting",
    )  # fmt: skip

    def __init__(self, opener: Process, peer: Process, trips: Iterator[tuple[int, int]]) -> None:
        self.opener, self.peer = opener, peer
        self.retry_s = MIN_RETRY_S
        """Time after which it is opened again if it is lost."""
        self.until_us = -1
        """Time after which it is forgotten, unless a message is sent before; in the past until it is open."""
        self.is_open = self.is_closed = False
        self.is_kept = False
        """True if it is opened again when it is lost."""
        self.trips = trips
        self.waiting: deque[Transfer] = deque()
        """Messages until it is open."""


class Trip(msgspec.Struct, frozen=True, eq=False):
    """One way of a round trip of a handshake or ping, in place of a message."""

    connection: Connection
    back_bytes: int
    is_back: bool
    is_ping: bool

    @property
    def source(self) -> Process:
        """The machine from whose host it goes."""
        return self.connection.peer if self.is_back else self.connection.opener


class Connections:
    """The connections of a world.

    Parameters
    ----------
    world : World
    transport : Transport
    """

    def __init__(self, world: World, transport: Transport) -> None:
        self.transport = transport
        self._world = world
        self._at_address = world.at_address
        self._idle_us = round(transport.idle_s * US_PER_S)
        self._ping_us = None if transport.ping_s is None else round(transport.ping_s * US_PER_S)
        self._request_bytes, self._answer_bytes = (
            lru_cache(_MAX_SIZES)(partial(transport.carried_bytes, header_bytes=header_bytes))
            for header_bytes in (transport.request_bytes, transport.answer_bytes)
        )
        """Size of a message that is carried, by its own; from the opener of a connection, and to it."""
        self._when_arrived, self._when_forwarded = self._arrive, self._forward
        self._lost: dict[str, list[Connection]] = {}
        """Connections that their opener keeps, and has to open again, by the name of its host."""

    def send(self, sender: Process, effect: Send) -> None:
        """Carry out Send: what has a device at one of its ends goes over the connection of its hosts.

        If there is none, it waits until one is open.
        """
        to, world, host = effect.to, self._world, sender.host
        target, now_us = self._at_address.get(to), world.now_us
        connection = None if target is None else sender.connections.get(target.host)
        if connection is None or now_us > connection.until_us or not host.is_online:
            self._send_later(sender, effect, target)
            return
        connection.until_us = now_us + self._idle_us
        message, link = effect.message, sender.link
        size = size_bytes(message)
        carried_bytes = self._request_bytes if connection.opener.host is host else self._answer_bytes
        transfer = Transfer(
            sender, sender.start_number, sender.address, to, message, carried_bytes(size), now_us
        )
        if link is None:
            sender.sent_bytes += size
            world.leave(transfer)
        else:
            world.put_up(transfer, link.up)

    def _send_later(self, sender: Process, effect: Send, target: Process | None) -> None:
        """Carry out Send without an open connection: the message waits until there is one.

        Between two servers it needs none, and it fails as without a transport if nobody can be reached; a
        device that lets nobody in refuses it.
        """
        world, host, message = self._world, sender.host, effect.message
        if target is None or not host.is_online:
            world.send(sender, effect)
            return
        connection, is_server = self.find(host, target.host), host.link is None
        if connection is None and is_server and target.host.link is None:
            world.send(sender, effect)
            return
        size = size_bytes(message)
        if is_server:
            sender.sent_bytes += size
        is_refused = connection is None and is_server and not target.host.lets_in
        if connection is None and not is_refused:
            connection = self._open(sender, target)
        if connection is not None:
            is_request = connection.opener.host is host
            size = self._request_bytes(size) if is_request else self._answer_bytes(size)
        transfer = Transfer(
            sender, sender.start_number, sender.address, effect.to, message, size, world.now_us
        )
        if connection is None:
            world.fail_transfer(transfer, "not let in")
        elif connection.is_open:  # its handshake has no round trip
            world.dispatch(transfer)
        else:
            connection.waiting.append(transfer)

    def _receive(self, trip: Trip) -> None:
        """Answer one way of a round trip, or continue after the way back.

        No fault of messages concerns it: TCP repeats what is lost.
        """
        connection = trip.connection
        if connection.is_closed:
            return
        if (connection.opener if trip.is_back else connection.peer).machine is None:
            self._close(connection, "nobody there")
            return
        if connection.is_open:
            connection.until_us = self._world.now_us + self._idle_us
        if not trip.is_back:
            back = Trip(connection, 0, is_back=True, is_ping=trip.is_ping)
            self._send_trip(connection, back, trip.back_bytes)
        elif not trip.is_ping:
            self._continue_handshake(connection)

    def fail_trip(self, trip: Trip, fate: str) -> None:
        """Close the connection of a round trip that failed; what waits for it fails, too."""
        self._close(trip.connection, fate)

    def close_all(self, host: Host) -> None:
        """Close the connections of a host whose address has changed, or whose machines were killed."""
        for connection in [*host.connections.values()]:
            self._close(connection, "cut")

    def reopen(self, host: Host) -> None:
        """Open the connections of a device again that it keeps, for its link is up."""
        for connection in self._lost.pop(host.name, ()):
            opener, peer = connection.opener, connection.peer
            if opener.machine is not None and self.find(host, peer.host) is None:
                again = self._open(opener, peer)
                again.is_kept, again.retry_s = True, min(2 * connection.retry_s, MAX_RETRY_S)

    def _retry(self, host: Host) -> None:
        """Open the lost connections of a device again; without a link, this waits until it comes back."""
        if host.is_online:
            self.reopen(host)

    def waiting(self) -> Iterator[Transfer]:
        """Yield the messages that wait until their connection is open."""
        for host in self._world.hosts.values():
            for connection in host.connections.values():
                if connection.opener.host is host:
                    yield from connection.waiting

    def find(self, one: Host, other: Host) -> Connection | None:
        """Return the connection of two hosts that is open or being opened; forget it if it has been idle."""
        connection = one.connections.get(other)
        if connection is not None and connection.is_open and self._world.now_us > connection.until_us:
            self._close(connection, "cut")
            return None
        return connection

    def _open(self, opener: Process, peer: Process) -> Connection:
        """Begin the handshake of a connection."""
        connection = Connection(opener, peer, iter(self.transport.handshake))
        opener.host.connections[peer.host] = peer.host.connections[opener.host] = connection
        self._continue_handshake(connection)
        return connection

    def _continue_handshake(self, connection: Connection) -> None:
        """Begin the next round trip; after the last, send what waits."""
        trip = next(connection.trips, None)
        if trip is not None:
            there_bytes, back_bytes = trip
            way = Trip(connection, back_bytes, is_back=False, is_ping=False)
            self._send_trip(connection, way, there_bytes)
            return
        connection.is_open, connection.retry_s = True, MIN_RETRY_S
        connection.until_us = self._world.now_us + self._idle_us
        while connection.waiting and not connection.is_closed:
            transfer = connection.waiting.popleft()
            self._world.dispatch(transfer)
        if self._ping_us is not None:
            connection.is_kept = connection.opener.host.link is not None
            self._schedule_ping(connection, self._ping_us)

    def _send_trip(self, connection: Connection, trip: Trip, size: int) -> None:
        """Send one way of a round trip, which the opener's system pays for.

        It travels as a message does, see :class:`~mudkit.fleet.kernel.World`.
        """
        ends = (connection.opener, connection.peer)
        source, target = reversed(ends) if trip.is_back else ends
        opener, host, world = connection.opener, source.host, self._world
        transfer = Transfer(
            opener, opener.start_number, source.address, target.address, trip, size, world.now_us
        )
        at, other = (host.at, target.host) if target.host.at is None else (target.host.at, host)
        travel_us = 0 if at is None else way_us(at, other)
        if host.link is not None and host.is_online:
            self._put_on_link(transfer, host.link.up, travel_us)
        elif host.link is not None:
            world.fail_transfer(transfer, "no link")
        elif travel_us:
            world.event_queue.add(world.now_us + travel_us, ARRIVAL, self._when_forwarded, transfer)
        else:
            self._forward(transfer)

    def _put_on_link(self, transfer: Transfer, direction: Direction, travel_us: int = 0) -> None:
        """Put one way of a round trip on a link, which costs what a message does, and is none of a system.

        ``travel_us`` is the time of its way after the link.
        """
        leg = direction.enqueue(transfer, self._world.now_us)
        direction.account.messages -= 1
        self._world.event_queue.add(leg.arrive_us + travel_us, ARRIVAL, self._when_arrived, leg)

    def _arrive(self, leg: Leg) -> None:
        """End one way of a round trip on a direction of a link, unless it was cut."""
        if not self._world.end_leg(leg):
            return
        if leg.direction.name == "up":
            self._forward(leg.transfer)
        else:
            self._receive(leg.transfer.message)

    def _forward(self, transfer: Transfer) -> None:
        """Forward one way of a round trip to the host at its address: the opener hears the peer."""
        target, world, trip = self._at_address.get(transfer.to), self._world, transfer.message
        if target is None:
            world.fail_transfer(transfer, "nobody there")
            return
        host = target.host
        if host.link is None:
            self._receive(trip)
        elif not host.is_online:
            world.fail_transfer(transfer, "no link")
        elif host.lets_in or trip.connection.opener.host is host:
            self._put_on_link(transfer, host.link.down)
        else:
            world.fail_transfer(transfer, "not let in")

    def _schedule_ping(self, connection: Connection, after_us: int) -> None:
        """Schedule a ping, if the connection is then idle."""
        self._world.event_queue.add(self._world.now_us + after_us, LINK, self._ping, connection)

    def _ping(self, connection: Connection) -> None:
        """Ping the peer of an idle connection, so that it stays open, and schedule the next ping.

        No effect on a connection that is closed, or if nothing is pinged; a busy one is pinged later.
        """
        if connection.is_closed or self._ping_us is None:
            return
        idle_us = self._world.now_us - (connection.until_us - self._idle_us)
        if idle_us < self._ping_us:
            self._schedule_ping(connection, self._ping_us - idle_us)
            return
        connection.until_us = self._world.now_us + self._idle_us
        self._schedule_ping(connection, self._ping_us)
        size = self.transport.ping_bytes
        self._send_trip(connection, Trip(connection, size, is_back=False, is_ping=True), size)

    def _close(self, connection: Connection, fate: str) -> None:
        """Close a connection; what waits for it fails."""
        if connection.is_closed:
            return
        connection.is_closed = True
        opener, peer = connection.opener.host, connection.peer.host
        del opener.connections[peer]
        peer.connections.pop(opener, None)  # gone already between two machines of one host
        if connection.is_kept and fate != "not let in":
            self._lost.setdefault(opener.name, []).append(connection)
            again_us = self._world.now_us + connection.retry_s * US_PER_S
            self._world.event_queue.add(again_us, LINK, self._retry, opener)
        while connection.waiting:
            self._world.fail_transfer(connection.waiting.popleft(), fate)
