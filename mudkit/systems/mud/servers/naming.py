"""Naming machine: decides which notification server and processor serves each range (Mobius 2, 4.2, 5).

Its rules. It sends nothing while nobody suspects a server:

==================  ====================================================================================
any message         dropped unless its sender may send it
Suspect             of a server that has a range: probe it
Alive               the server answers: it is suspected no more
TimerFired          probe again, and the others of its kind, too, which may have to take over. A server that
                    has not answered until the deadline is replaced: each of its ranges goes to the one with
                    the fewest of those that have answered, and a partition that was moved to it goes to the
                    processor of its range. Retransmit what is not acknowledged
Move                ask a gateway for the number of the table, and probe the processor; refused if both
                    have not answered in time. Else the processor serves the partition
a change            stored with a higher epoch, and sent to all servers until they acknowledge it. Of the back
                    end, the master acknowledges it when its standbys have it, too; if it is replaced before
                    that, it is sent to the next one
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
from typing import Final, TypeAlias

from msgspec.structs import replace

from mudkit.delivery.retransmit import RetransmitTimer
from mudkit.events import (
    Call,
    Complete,
    Effect,
    Event,
    LinkUp,
    Ports,
    Received,
    Send,
    SetTimer,
    TimerFired,
)
from mudkit.systems.mud.messages.naming import (
    NAMING_FROM_GATEWAY,
    NAMING_FROM_SERVER,
    Alive,
    Assignments,
    AssignmentsRequest,
    AssignmentsTaken,
    Probe,
    Suspect,
    TableAnswer,
)
from mudkit.systems.mud.operations import Move
from mudkit.systems.mud.servers.elections import Elections
from mudkit.systems.mud.servers.partition_moves import MOVE, PartitionMoves
from mudkit.systems.mud.servers.ranges import Ranges
from mudkit.systems.receiving import Accepts, record_dropped

PROBE_US: Final = 10_000_000
"""A suspected server that has not answered for this time is replaced."""
_PROBE: Final = "probe"
_AGAIN_US: Final = 1_000_000
"""Time until a probe is repeated."""
_TELL: Final = "tell"
_TELL_US: Final = 1_000_000
_MAX_TELL_US: Final = 20 * 60 * 1_000_000
_BACK_END: Final = "back end"
"""The back end among the followers: its master, whose standbys have the assignments with its store."""
_FromServer: TypeAlias = Accepts[Suspect | Alive | AssignmentsTaken | AssignmentsRequest | Assignments]
_FromGateway: TypeAlias = Accepts[Suspect | AssignmentsTaken | AssignmentsRequest | Assignments | TableAnswer]
_Message: TypeAlias = Suspect | Alive | AssignmentsTaken | AssignmentsRequest | Assignments | TableAnswer


class Naming:
    """Naming machine; ``servers`` are the notification servers, ``others`` also follow the assignments.

    ``stores`` are those of the back end, whose master follows them for all; ``replicas`` use only the master.
    """

    def __init__(
        self,
        ports: Ports,
        servers: Sequence[str],
        processors: Sequence[str],
        gateways: Sequence[str],
        replicas: Sequence[str],
        stores: Sequence[str],
        others: Sequence[str],
    ) -> None:
        self._kinds = [servers, processors]
        self._stores = stores
        self._followers = [*servers, *processors, *gateways, _BACK_END, *others]
        self._accepts: dict[str, _FromServer | _FromGateway] = {
            **dict.fromkeys([*servers, *processors, *stores, *others], NAMING_FROM_SERVER),
            **dict.fromkeys(gateways, NAMING_FROM_GATEWAY),
        }
        self._moves = PartitionMoves(gateways)
        self.ranges = Ranges(ports, ports.address, servers, processors)
        self._in_flight: RetransmitTimer[str] = RetransmitTimer(_TELL, _TELL_US, _MAX_TELL_US, 0)
        """Followers that have not acknowledged the assignments."""
        self._suspected: dict[str, int] = {}
        """Time of the suspicion, by address."""
        self._answered: dict[str, int] = {}
        """Time of the last probe that each server has answered, by address."""
        self._ahead: str | None = None
        """Follower that has assignments of a higher epoch."""
        self.elections = Elections(ports, stores, [*gateways, *processors, *replicas])

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        former_master = self.elections.master.address
        elected = self.elections.handle(now_us, event)
        if elected is not None and not isinstance(event, LinkUp):
            is_new = self.elections.master.address != former_master
            is_pending = is_new and _BACK_END in self._in_flight
            return (*elected, *self._send_to(now_us, _BACK_END)) if is_pending else elected
        match event:
            case Received(source=source):
                accepts = self._accepts.get(source)
                message = None if accepts is None else accepts.decode(event.message)
                is_usable = not isinstance(message, Assignments) or self.ranges.fits(message)
                if message is None or not is_usable:
                    return record_dropped(event)
                return [*self._receive(now_us, source, message), *self._carry_out_moves(now_us)]
            case Call(op_id=op_id, operation=Move() as move):
                return self._moves.begin(now_us, op_id, move)
            case LinkUp():
                assigned = self._send_to_all(now_us) if self.ranges.epoch else ()
                return *(elected or ()), *assigned
            case TimerFired(name=name) if name == _TELL:
                late = self._in_flight.overdue(now_us)
                again = [effect for server in late for effect in self._send_to(now_us, server)]
                return [*again, *self._in_flight.restart(now_us)]
            case TimerFired(name=name) if name == MOVE:
                return self._moves.ask_again(now_us)
            case TimerFired(name=name) if name == _PROBE:
                return self._judge_suspected(now_us)
        return ()

    def _receive(
        self,
        now_us: int,
        source: str,
        message: _Message,
    ) -> Sequence[Effect]:
        """Handle a message of a server, by its kind."""
        match message:
            case Assignments():
                return self._follow(now_us, message)
            case TableAnswer():
                return self._moves.record_table(message)
            case AssignmentsRequest():
                return (Send(source, self.ranges.present),)
            case AssignmentsTaken(epoch=epoch):
                is_present = epoch == self.ranges.epoch
                return self._in_flight.settle(now_us, self._follower_of(source)) if is_present else ()
        effects: list[Effect] = []
        if message.epoch > self.ranges.epoch:
            self._ahead = self._follower_of(source)
            effects.append(Send(source, AssignmentsRequest()))
        elif message.epoch < self.ranges.epoch:
            effects += self._send_to(now_us, self._follower_of(source))
        if isinstance(message, Alive):
            if message.epoch >= self.ranges.epoch:
                # One that has not heard that it was replaced cannot take over: it has the reads of before.
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
            effects.append(Send(self._address_of(self._ahead), AssignmentsRequest()))
        if not self._suspected:
            return effects
        since_us = min(self._suspected.values())
        kinds = [kind for kind in self._kinds if not self._suspected.keys().isdisjoint(kind)]
        probed = [server for kind in kinds for server in kind]
        silent = [server for server in probed if self._answered.get(server, -1) < since_us]
        return [*effects, *(Send(server, Probe(now_us)) for server in silent), SetTimer(_PROBE, _AGAIN_US)]

    def _replace_silent(self, now_us: int) -> Sequence[Effect]:
        """Assign the ranges of suspected servers whose time is over to servers that have answered.

        It is twice as long if a server has later assignments, which are requested.
        """
        present = self.ranges.present
        time_us = PROBE_US if self._ahead is None else 2 * PROBE_US
        for server, since_us in list(self._suspected.items()):
            if now_us - since_us < time_us:
                continue
            del self._suspected[server]
            live = [
                other
                for kind in self._kinds
                for other in kind
                if server in kind
                if other not in self._suspected and self._answered.get(other, -1) >= since_us
            ]
            present = _replace_server(present, server, live) if live else present
        if present == self.ranges.present:
            return ()
        # A restored store has an old epoch.
        return self._follow(now_us, replace(present, epoch=max(self.ranges.epoch + 1, now_us)))

    def _carry_out_moves(self, now_us: int) -> Sequence[Effect]:
        """Assign the partitions of moves that have all they need, unless a server has later assignments."""
        effects: list[Effect] = []
        for op_id, opened in self._moves.take_ready(self._answered) if self._ahead is None else ():
            assert opened.number is not None
            move, present = opened.move, self.ranges.present
            moved = self.ranges.list_moved(opened.number, move.partition, move.processor)
            if moved != present.moved:
                changed = replace(present, epoch=max(self.ranges.epoch + 1, now_us), moved=moved)
                effects += self._follow(now_us, changed)
            effects.append(Complete(op_id))
        return effects

    def _follow(self, now_us: int, assignments: Assignments) -> Sequence[Effect]:
        """Store assignments of a higher epoch, and send them to all servers."""
        if not self.ranges.take(assignments):
            return ()
        self._ahead = None
        return [*self._in_flight.clear(), *self._send_to_all(now_us)]

    def _send_to_all(self, now_us: int) -> Sequence[Effect]:
        """Send the assignments to all servers that follow them."""
        return [effect for server in self._followers for effect in self._send_to(now_us, server)]

    def _send_to(self, now_us: int, follower: str) -> Sequence[Effect]:
        """Send the assignments to a follower, until it acknowledges them."""
        send = Send(self._address_of(follower), self.ranges.present)
        return send, *self._in_flight.start(now_us, follower)

    def _follower_of(self, address: str) -> str:
        """Return the follower that a server is: each store is the back end."""
        return _BACK_END if address in self._stores else address

    def _address_of(self, follower: str) -> str:
        """Return the address of a follower: that of the master for the back end."""
        return self.elections.master.address if follower == _BACK_END else follower


def _replace_server(assignments: Assignments, server: str, live: Sequence[str]) -> Assignments:
    """Return assignments without a server: ``live`` ones of its kind have its ranges."""
    ranges = {"servers": list(assignments.servers), "processors": list(assignments.processors)}
    for owners in ranges.values():
        for index, owner in enumerate(owners):
            if owner == server:
                owners[index] = min(live, key=owners.count)
    moved = [one for one in assignments.moved if one[2] != server]
    return Assignments(assignments.epoch, moved=moved, **ranges)
