"""Elections of the naming machine: which store is the master of the back end, and which can follow it.

Its rules. It sends nothing while nobody suspects a store:

==================  ====================================================================================
SuspectStore        of a store that is a member: probe all members. A master that has started names itself:
                    it answers nothing before it is elected again
StoreAlive          it answers: it is suspected no more, unless it has named itself
TimerFired          probe again. A suspected store that has not answered until the deadline is replaced, if
                    it is the master; a standby is no member any more
an election         when all members have answered, or at the deadline. Of those that have answered, the one
                    whose copy is the latest becomes the master; they are the members
Admission           of the master, of a standby that has all of its store: it becomes a member
a change            stored with a higher epoch, and sent to all servers until they acknowledge it
a higher epoch      of any server: it counts, and this store was restored from a backup
==================  ====================================================================================

A master acknowledges nothing that a member lacks. So each member has all that was acknowledged, also one that
has not heard yet of the present term: whichever member becomes the master, nothing acknowledged is lost. The
members alone give leases to the master (:mod:`~mudkit.systems.mud.servers.leases`): without this machine the
service continues, and nothing is changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from mudkit.delivery.retransmit import RetransmitTimer
from mudkit.events import Effect, Event, LinkUp, Ports, Received, Send, SetTimer, TimerFired
from mudkit.systems.mud.messages.standbys import (
    ELECTIONS_FROM_SERVER,
    ELECTIONS_FROM_STORE,
    Admission,
    FromServer,
    Mastership,
    MastershipRequest,
    MastershipTaken,
    StoreAlive,
    StoreProbe,
    SuspectStore,
)
from mudkit.systems.mud.servers.known_master import KnownMaster

STORE_PROBE_US: Final = 5_000_000
"""A suspected store that has not answered for this time is replaced."""
PROBE: Final = "probe stores"
_AGAIN_US: Final = 500_000
"""Time until a probe is repeated."""
TELL: Final = "tell mastership"
_TELL_US: Final = 500_000
_MAX_TELL_US: Final = 20 * 60 * 1_000_000


class Elections:
    """Elections of the ``stores``; ``others`` also follow the mastership."""

    def __init__(self, ports: Ports, stores: Sequence[str], others: Sequence[str]) -> None:
        self._stores = stores
        self._followers = [*stores, *others] if len(stores) > 1 else []
        self.master = KnownMaster(ports, ports.address, stores)
        self._in_flight: RetransmitTimer[str] = RetransmitTimer(TELL, _TELL_US, _MAX_TELL_US, 0)
        """Servers that have not acknowledged the mastership."""
        self._suspected: dict[str, int] = {}
        """Time of the suspicion, by address."""
        self._started: str | None = None
        """The master, if it has started and waits for an election."""
        self._answers: dict[str, StoreAlive] = {}
        """Last answer of each store."""

    def handle(self, now_us: int, event: Event) -> Sequence[Effect] | None:
        """Handle an event that is about stores; return None if it is not."""
        match event:
            case Received(source=source) if source in self._followers:
                accepts = ELECTIONS_FROM_STORE if source in self._stores else ELECTIONS_FROM_SERVER
                message = accepts.decode(event.message)
                return None if message is None else self._receive(now_us, source, message)
            case LinkUp() if self._followers and self.master.present.epoch:
                return self._send_to_all(now_us)
            case TimerFired(name=name) if name == TELL:
                late = self._in_flight.overdue(now_us)
                again = [effect for server in late for effect in self._send_to(now_us, server)]
                return [*again, *self._in_flight.restart(now_us)]
            case TimerFired(name=name) if name == PROBE:
                return self._judge_suspected(now_us)
        return None

    def _receive(
        self, now_us: int, source: str, message: FromServer | StoreAlive | Admission
    ) -> Sequence[Effect] | None:
        """Handle a message of a server, by its kind; None: it is of stores that do not exist."""
        match message:
            case MastershipTaken(epoch=epoch):
                return self._in_flight.settle(now_us, source) if epoch == self.master.present.epoch else ()
            case MastershipRequest():
                return (Send(source, self.master.present),)
            case Admission():
                return self._admit(now_us, source, message)
        known = message if isinstance(message, Mastership) else message.known
        if not set(self._stores).issuperset(known.members):
            return None
        adopted = self._follow(now_us, known) if known.epoch > self.master.present.epoch else ()
        corrected = self._send_to(now_us, source) if known.epoch < self.master.present.epoch else ()
        if isinstance(message, SuspectStore):
            begun = () if corrected else self._begin_suspicion(now_us, source, message.address)
            return *adopted, *corrected, *begun
        if isinstance(message, Mastership):
            return *adopted, *corrected
        self._answers[source] = message
        if source != self._started and message.sent_us >= self._suspected.get(source, 0):
            self._suspected.pop(source, None)
        return *adopted, *corrected, *self._elect_if_all_answered(now_us)

    def _begin_suspicion(self, now_us: int, source: str, store: str) -> Sequence[Effect]:
        """Probe the members, one of which is suspected now; a master that names itself has started."""
        present = self.master.present
        if store not in present.members:
            return ()
        is_start = source == store == present.master and self._started is None
        if store in self._suspected and not is_start:
            return ()
        timer = () if self._suspected else (SetTimer(PROBE, _AGAIN_US),)
        self._started = store if is_start else self._started
        self._suspected[store] = now_us
        return *self._probe(now_us), *timer

    def _probe(self, now_us: int) -> Sequence[Effect]:
        """Probe the members that have not answered since the first suspicion."""
        since_us = min(self._suspected.values())
        members = self.master.present.members
        return [Send(store, StoreProbe(now_us)) for store in members if not self._is_live(store, since_us)]

    def _is_live(self, store: str, since_us: int) -> bool:
        """Return whether a store has answered a probe that was sent since a time."""
        return store in self._answers and self._answers[store].sent_us >= since_us

    def _judge_suspected(self, now_us: int) -> Sequence[Effect]:
        """Replace or remove suspected stores whose time is over, and probe again."""
        effects: list[Effect] = []
        for store, since_us in list(self._suspected.items()):
            present = self.master.present
            if store not in present.members:
                del self._suspected[store]
            elif now_us - since_us >= STORE_PROBE_US:
                del self._suspected[store]
                live = [member for member in present.members if self._is_live(member, since_us)]
                if store == present.master:
                    effects += self._elect(now_us, live)
                elif present.master in live:
                    members = [member for member in present.members if member != store]
                    effects += self._change(now_us, members)
        if not self._suspected:
            return effects
        return [*effects, *self._probe(now_us), SetTimer(PROBE, _AGAIN_US)]

    def _elect_if_all_answered(self, now_us: int) -> Sequence[Effect]:
        """Elect a master at once if it has started, and all members have answered since then."""
        if self._started is None or self._started not in self._suspected:
            return ()
        since_us, members = self._suspected[self._started], self.master.present.members
        if not all(self._is_live(member, since_us) for member in members):
            return ()
        del self._suspected[self._started]
        return self._elect(now_us, members)

    def _elect(self, now_us: int, live: Sequence[str]) -> Sequence[Effect]:
        """Elect the live member whose copy is the latest; the present master, of equal copies."""
        self._started = None
        present = self.master.present
        if not live:
            return ()

        def rank(store: str) -> tuple[int, int, bool]:
            answer = self._answers[store]
            return answer.term, answer.seq, store == present.master

        master = max(live, key=rank)
        epoch = self._next_epoch(now_us)
        elected = Mastership(
            epoch, epoch, present.term, master, list(live), self._answers[master].incarnation
        )
        return self._follow(now_us, elected)

    def _admit(self, now_us: int, source: str, admission: Admission) -> Sequence[Effect]:
        """Add a standby that has all of the store to the members."""
        present, store = self.master.present, admission.address
        if source != present.master or store not in self._stores or store in present.members:
            return ()
        if admission.epoch != present.epoch:
            return self._send_to(now_us, source)
        return self._change(now_us, [*present.members, store])

    def _change(self, now_us: int, members: Sequence[str]) -> Sequence[Effect]:
        """Change the members of the present term."""
        epoch = self._next_epoch(now_us)
        return self._follow(now_us, replace(self.master.present, epoch=epoch, members=list(members)))

    def _next_epoch(self, now_us: int) -> int:
        """Return a higher epoch than the present one, and than any before this store was restored."""
        return max(self.master.present.epoch + 1, now_us)

    def _follow(self, now_us: int, mastership: Mastership) -> Sequence[Effect]:
        """Store a mastership of a higher epoch, and send it to all servers."""
        if mastership.master != self.master.address:
            self._started = None
        self.master.take("", mastership)
        return [*self._in_flight.clear(), *self._send_to_all(now_us)]

    def _send_to_all(self, now_us: int) -> Sequence[Effect]:
        """Send the mastership to all servers that follow it."""
        return [effect for server in self._followers for effect in self._send_to(now_us, server)]

    def _send_to(self, now_us: int, server: str) -> Sequence[Effect]:
        """Send the mastership to a server, until it acknowledges it."""
        return Send(server, self.master.present), *self._in_flight.start(now_us, server)
