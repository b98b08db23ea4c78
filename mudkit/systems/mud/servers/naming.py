"""Naming machine: decides which notification server serves each range of netids (Mobius 2, 5).

Its rules. It sends nothing while nobody suspects a server:

==================  ====================================================================================
any message         dropped unless its sender may send it
Suspect             of a server that has a range: probe it
Alive               the server answers: it is suspected no more
TimerFired          probe again, and the others, too, of which one may have to take over. A server that has
                    not answered until the deadline is replaced: its ranges go to the one with the fewest
                    of those that have answered. Retransmit what is not acknowledged
a change            stored with a higher epoch, and sent to all servers until they acknowledge it
AssignmentsRequest  send the assignments
a higher epoch      the store is older than the servers remember: request their assignments, before anything
                    is changed, and continue above them
start               if something was changed ever, send the assignments to all servers
==================  ====================================================================================

Without it nobody takes over, and nothing else changes. If no server answers, nothing is changed. A server
that was replaced has no range when it comes back, until another one is replaced.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mudkit.delivery.retransmit import RetransmitTimer
from mudkit.events import Effect, Event, LinkUp, Ports, Received, Send, SetTimer, TimerFired
from mudkit.systems.mud.messages.naming import (
    NAMING_FROM_SERVER,
    Alive,
    Assignments,
    AssignmentsRequest,
    AssignmentsTaken,
    Probe,
    Suspect,
)
from mudkit.systems.mud.servers.elections import Elections
from mudkit.systems.mud.servers.ranges import Ranges
from mudkit.systems.receiving import record_dropped

PROBE_US: Final = 10_000_000
"""A suspected server that has not answered for this time is replaced."""
_PROBE: Final = "probe"
_AGAIN_US: Final = 1_000_000
"""Time until a probe is repeated."""
_TELL: Final = "tell"
_TELL_US: Final = 1_000_000
_MAX_TELL_US: Final = 20 * 60 * 1_000_000


class Naming:
    """Naming machine; ``servers`` are the notification servers, ``others`` also follow the assignments.

    ``stores`` are those of the back end, and ``users`` all servers that use it.
    """

    def __init__(
        self,
        ports: Ports,
        servers: Sequence[str],
        others: Sequence[str],
        stores: Sequence[str],
        users: Sequence[str],
    ) -> None:
        self._servers = servers
        self._followers = [*servers, *others]
        self.ranges = Ranges(ports, ports.address, servers)
        self._in_flight: RetransmitTimer[str] = RetransmitTimer(_TELL, _TELL_US, _MAX_TELL_US, 0)
        """Servers that have not acknowledged the assignments."""
        self._suspected: dict[str, int] = {}
        """Time of the suspicion, by address."""
        self._answered: dict[str, int] = {}
        """Time of the last probe that each server has answered, by address."""
        self._ahead: str | None = None
        """Server that has assignments of a higher epoch."""
        self.elections = Elections(ports, stores, users)

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        elected = self.elections.handle(now_us, event)
        if elected is not None and not isinstance(event, LinkUp):
            return elected
        match event:
            case Received(source=source):
                message = NAMING_FROM_SERVER.decode(event.message) if source in self._followers else None
                is_usable = not isinstance(message, Assignments) or self.ranges.fits(message)
                if message is None or not is_usable:
                    return record_dropped(event)
                return self._receive(now_us, source, message)
            case LinkUp():
                assigned = self._send_to_all(now_us) if self.ranges.epoch else ()
                return *(elected or ()), *assigned
            case TimerFired(name=name) if name == _TELL:
                late = self._in_flight.overdue(now_us)
                again = [effect for server in late for effect in self._send_to(now_us, server)]
                return [*again, *self._in_flight.restart(now_us)]
            case TimerFired(name=name) if name == _PROBE:
                return self._judge_suspected(now_us)
        return ()

    def _receive(
        self,
        now_us: int,
        source: str,
        message: Suspect | Alive | AssignmentsTaken | AssignmentsRequest | Assignments,
    ) -> Sequence[Effect]:
        """Handle a message of a server, by its kind."""
        match message:
            case Assignments():
                return self._follow(now_us, message)
            case AssignmentsRequest():
                return (Send(source, self.ranges.present),)
            case AssignmentsTaken(epoch=epoch):
                return self._in_flight.settle(now_us, source) if epoch == self.ranges.epoch else ()
        effects: list[Effect] = []
        if message.epoch > self.ranges.epoch:
            self._ahead = source
            effects.append(Send(source, AssignmentsRequest()))
        elif message.epoch < self.ranges.epoch:
            effects += self._send_to(now_us, source)
        if isinstance(message, Alive):
            self._answered[source] = max(message.sent_us, self._answered.get(source, 0))
            if source in self._suspected and message.sent_us >= self._suspected[source]:
                del self._suspected[source]
            return effects
        return [*effects, *self._probe_first(now_us, message.address)]

    def _probe_first(self, now_us: int, server: str) -> Sequence[Effect]:
        """Probe a server that is suspected now, unless it has no range."""
        if server in self._suspected or not self.ranges.is_serving(server):
            return ()
        timer = () if self._suspected else (SetTimer(_PROBE, _AGAIN_US),)
        self._suspected[server] = now_us
        return Send(server, Probe(now_us)), *timer

    def _judge_suspected(self, now_us: int) -> Sequence[Effect]:
        """Replace suspected servers whose time is over, and probe all that have not answered since then."""
        if not self._suspected:
            return ()
        effects = [*self._replace_silent(now_us)]
        if self._ahead is not None:
            effects.append(Send(self._ahead, AssignmentsRequest()))
        if not self._suspected:
            return effects
        since_us = min(self._suspected.values())
        silent = [server for server in self._servers if self._answered.get(server, -1) < since_us]
        return [*effects, *(Send(server, Probe(now_us)) for server in silent), SetTimer(_PROBE, _AGAIN_US)]

    def _replace_silent(self, now_us: int) -> Sequence[Effect]:
        """Assign the ranges of suspected servers whose time is over to servers that have answered.

        It is twice as long if a server has later assignments, which are requested.
        """
        servers = list(self.ranges.present.servers)
        time_us = PROBE_US if self._ahead is None else 2 * PROBE_US
        for server, since_us in list(self._suspected.items()):
            if now_us - since_us < time_us:
                continue
            del self._suspected[server]
            live = [
                other
                for other in self._servers
                if other not in self._suspected and self._answered.get(other, -1) >= since_us
            ]
            for range_, owner in enumerate(servers):
                if owner == server and live:
                    servers[range_] = min(live, key=servers.count)
        if servers == self.ranges.present.servers:
            return ()
        # A restored store has an old epoch.
        return self._follow(now_us, Assignments(max(self.ranges.epoch + 1, now_us), servers))

    def _follow(self, now_us: int, assignments: Assignments) -> Sequence[Effect]:
        """Store assignments of a higher epoch, and send them to all servers."""
        if not self.ranges.take(assignments):
            return ()
        self._ahead = None
        return [*self._in_flight.clear(), *self._send_to_all(now_us)]

    def _send_to_all(self, now_us: int) -> Sequence[Effect]:
        """Send the assignments to all servers that follow them."""
        return [effect for server in self._followers for effect in self._send_to(now_us, server)]

    def _send_to(self, now_us: int, server: str) -> Sequence[Effect]:
        """Send the assignments to a server, until it acknowledges them."""
        return Send(server, self.ranges.present), *self._in_flight.start(now_us, server)
