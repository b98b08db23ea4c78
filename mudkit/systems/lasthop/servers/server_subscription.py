"""A subscription of a device, as the server keeps it: its spool, what outlives the machine, and the hours."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from mudkit.delivery.records import delivery
from mudkit.events import Effect, SetTimer, Store
from mudkit.systems.lasthop.messages import (
    Body,
    Content,
    Forwarded,
    HasRead,
    LetGo,
    Offered,
    Ranks,
    Retracts,
    Shown,
    Shows,
    Wanted,
)
from mudkit.systems.lasthop.servers.kept import Kept, Low, Missed, State, Waiting
from mudkit.systems.lasthop.spool.ranked import FOREVER_US, Message
from mudkit.systems.lasthop.spool.served import ServedSpool
from mudkit.systems.lasthop.subscription import Subscription

__all__ = ["ServerSubscription"]

_DAY_US: Final = 86_400_000_000
_READS: Final = 8
"""So many of the last reads outlive the machine: as many as the moving averages are over."""
_LOW: Final = 1000
"""So many messages below the threshold are kept: their rank may rise."""


class ServerSubscription:
    """One topic for one device.

    Parameters
    ----------
    store : Store
    now_us : int
    device : str
    run : int
        The number of the fact by which it began: another subscription to the topic has another.
    subscription : Subscription
    capacity : int
        The largest number of messages that wait.
    begins_us : int
        What time of the day it is when time begins.
    """

    def __init__(
        self, store: Store, now_us: int, device: str, run: int, subscription: Subscription, capacity: int,
        begins_us: int,
    ) -> None:  # fmt: skip
        self._store = store
        self._capacity, self._begins_us = capacity, begins_us
        self.device, self.topic, self.run = device, subscription.topic, run
        self._key = f"{device}\n{self.topic}"
        self._said: list[Body] = []
        """What the device is to be told, after all that was said before."""
        self._contents: dict[str, Content] = {}
        low = store.items(f"low {self._key}\n", Low)
        self._low = {key.rsplit("\n", 1)[1]: each for key, each in low}
        state = store.get(f"state {self._key}", State) or State()
        self._reads = state.reads
        self._day, self._shown = state.day, state.shown
        self._due = math.inf if state.due is None else state.due
        self._showing: set[str] = set()
        """What the device was told to show and has not said that it did."""
        self._is_showing = False
        self._records: list[Effect] = []
        self._timer_us: int | None = None
        self._now_us = now_us
        self._begin(subscription)
        kept = store.items(f"message {self._key}\n", Waiting)
        messages = [self._restored(key.rsplit("\n", 1)[1], each) for key, each in kept]
        self.spool.restore(now_us, sorted(messages, key=_order), self._reads, state.last)

    def said(self) -> list[Body]:
        """Give what the device is to be told, once; what it misses, :meth:`hello` mends."""
        said, self._said = self._said, []
        return said

    # -- what the server hears

    def subscribe(self, now_us: int, subscription: Subscription) -> None:
        """Go on with other limits."""
        self._now_us = now_us
        before, messages = self.spool, self.spool.all()
        self._begin(subscription)
        self.spool.room = before.room
        held = [each.identity for each in messages if before.is_on_device(each.identity)]
        good = [each for each in messages if each.rank >= subscription.threshold]
        self.spool.restore(now_us, sorted(good, key=_order), self._reads, before.last)
        for message in messages:
            if message.rank < subscription.threshold:
                self._ended(message)
        for strange in self.spool.holds(now_us, held):
            self._say(Retracts(self.topic, self.run, str(strange)))
        self.spool.network(now_us, is_up=before.is_up)
        self._take_from_low()

    def _begin(self, subscription: Subscription) -> None:
        """Begin a spool with nothing in it."""
        self.subscription = subscription
        self._store.put(f"sub {self._key}", Kept(self.run, Wanted.of(subscription)))
        self.spool = ServedSpool(
            subscription.threshold,
            subscription.forwarding,
            self._forward,
            self._retract,
            self._ended,
            capacity=self._capacity,
        )
        self._set_interrupt()

    def has_seen(self, identity: str) -> bool:
        """Say whether there is a message of this name, or was one of late."""
        return identity in self._low or self.spool.has_seen(identity)

    def publish(self, now_us: int, identity: str, rank: float, expires_us: int, content: Content) -> None:
        """Take a message; one that is not acceptable is only kept, and nobody says that it was created."""
        self._now_us = now_us
        if rank < self.subscription.threshold:
            self._keep_low(identity, rank, expires_us, content)
        else:
            self._take(identity, rank, expires_us, content)

    def rerank(self, now_us: int, topic: str, identity: str, rank: float) -> None:
        """Take the new rank of a message of a topic; of one that is finished it changes nothing."""
        self._now_us = now_us
        if identity in self._low:
            low = self._low[identity]
            if low.content["topic"] == topic:
                self._keep_low(identity, rank, low.expires_us, low.content)
                self._take_from_low()
            return
        if identity not in self._contents or self._contents[identity]["topic"] != topic:
            return
        was_there = self.spool.is_on_device(identity)
        self.spool.notification(now_us, identity, rank)
        message = self.spool.find(identity)
        if message is None:
            return
        self._keep(message)
        if was_there:
            self._say(Ranks(self.topic, self.run, identity, rank))
            if rank >= self.spool.interrupt and identity not in self._showing:
                self._ask_to_show([identity])

    def take_fact(self, now_us: int, fact: HasRead | LetGo | Shown) -> None:
        """Learn what was read, shown and let go on the device."""
        self._now_us = now_us
        ids = fact.ids
        if isinstance(fact, HasRead):
            self.spool.read_offline(fact.at_us, ids)
            self._reads = [*self._reads, (fact.at_us, len(ids))][-_READS:]
        else:
            self.spool.let_go(now_us, ids)
        if isinstance(fact, Shown):
            self._new_day()
            self._shown += len(ids)
            self._set_interrupt()
        self._showing.difference_update(ids)
        self._put_state()
        if self.spool.is_up:
            self.spool.network(now_us, is_up=True)  # there is room

    def hello(self, now_us: int, held: Mapping[str, float]) -> None:
        """Begin with a device that holds this, with these ranks."""
        self._now_us = now_us
        for strange in self.spool.holds(now_us, held):
            self._say(Retracts(self.topic, self.run, str(strange)))
        for message in self.spool.device:
            if held[str(message.identity)] != message.rank:
                self._say(Ranks(self.topic, self.run, str(message.identity), message.rank))
        self._goes_on()

    def goes_on(self, now_us: int, missed: Missed) -> None:
        """Go on with a device that has missed something."""
        self._now_us = now_us
        self.spool.came(now_us, missed.came, missed.lost)
        self._said += missed.said
        self._goes_on()

    def _goes_on(self) -> None:
        if self.subscription.at_h:
            self._due += len(self._showing)
        self._showing.clear()
        self._set_interrupt()
        self.spool.network(self._now_us, is_up=True)
        if self.spool.interrupt < math.inf:
            there = [str(each.identity) for each in self.spool.device if self._is_shown_at_once(each)]
            self._ask_to_show(there)

    def offer(self, now_us: int, most: float, number: int) -> None:
        """Bring the device what is better than what it has, for a read."""
        self._now_us = now_us
        self.spool.offer(now_us, most)
        self._say(Offered(self.topic, self.run, number))

    def end(self) -> None:
        """Forget all."""
        for kind in ("message", "low"):
            for key, _ in self._store.items(f"{kind} {self._key}\n"):
                self._store.delete(key)
        self._store.delete(f"sub {self._key}")
        self._store.delete(f"state {self._key}")

    # -- time

    def settle(self, now_us: int, *, is_due: bool = False) -> list[Effect]:
        """Do what the time asks for, and set the timer.

        Parameters
        ----------
        now_us : int
        is_due : bool
            Whether it is because the timer has fired.
        """
        self._now_us = now_us
        time_of_day_us = self._time_of_day_us()
        if is_due:
            self._timer_us = None
            self.spool.timeout(now_us)
            if self.subscription.delivers_at(time_of_day_us):
                self._due = self.subscription.most
                self._put_state()
            self._set_interrupt()
        self._show()
        effects, self._records = self._records, []
        change_us = self.subscription.next_change_us(time_of_day_us)
        due_us = self.spool.due_us
        if change_us is not None:
            due_us = min(due_us, now_us + change_us)
        if due_us >= FOREVER_US or (self._timer_us is not None and self._timer_us <= due_us):
            return effects
        self._timer_us = due_us
        return [*effects, SetTimer(f"due {self._key}", max(due_us - now_us, 0))]

    def _show(self) -> None:
        """Show what may be shown now, the best first."""
        most = self._wanted() if self.spool.is_up else 0
        if most <= 0:
            return
        self._is_showing = True
        before = set(self._showing)
        chosen = self.spool.offer(self._now_us, most, before)
        self._is_showing = False
        self._ask_to_show([str(each.identity) for each in chosen if each.identity not in self._showing])
        self._due = 0

    def _wanted(self) -> float:
        """Say how many may be shown now, apart from those that the device was told to show."""
        wanted = self.subscription
        if wanted.mode != "on-line" or wanted.is_quiet(self._time_of_day_us()):
            return 0
        left = self._left()
        return min(self._due, left) if wanted.at_h else left

    def _left(self) -> float:
        """Say how many of this day's are left."""
        if self.subscription.per_day is None:
            return math.inf
        self._new_day()
        return float(max(self.subscription.per_day - self._shown - len(self._showing), 0))

    def _new_day(self) -> None:
        day = (self._begins_us + self._now_us) // _DAY_US
        if day != self._day:
            self._day, self._shown = day, 0

    def _set_interrupt(self) -> None:
        interrupt = self.subscription.interrupt
        self.spool.interrupt = interrupt if interrupt is not None and self._left() > 0 else math.inf

    def _time_of_day_us(self) -> int:
        return (self._begins_us + self._now_us) % _DAY_US

    # -- what is kept, and what the device is told

    def _take(self, identity: str, rank: float, expires_us: int, content: Content) -> None:
        over_us = expires_us if expires_us < FOREVER_US else None
        self._records.append(delivery(identity, self.device, created_us=self._now_us, expired_us=over_us))
        self._contents[identity] = content
        self.spool.notification(self._now_us, identity, rank, expires_us)
        message = self.spool.find(identity)
        if message is None:
            self._contents.pop(identity, None)
            return
        self._keep(message)

    def _keep(self, message: Message) -> None:
        identity = str(message.identity)
        content = self._contents[identity]
        kept = Waiting(message.rank, message.order, message.arrived_us, message.expires_us, content)
        self._store.put(f"message {self._key}\n{identity}", kept)

    def _restored(self, identity: str, kept: Waiting) -> Message:
        self._contents[identity] = kept.content
        return Message(identity, kept.rank, kept.order, kept.arrived_us, kept.expires_us)

    def _keep_low(self, identity: str, rank: float, expires_us: int, content: Content) -> None:
        self._low[identity] = Low(rank, expires_us, content)
        self._store.put(f"low {self._key}\n{identity}", self._low[identity])
        while len(self._low) > _LOW:
            self._forget_low(next(iter(self._low)))

    def _take_from_low(self) -> None:
        """Take what is not too low any more."""
        for identity, low in list(self._low.items()):
            if low.rank >= self.subscription.threshold:
                self._forget_low(identity)
                self._take(identity, low.rank, low.expires_us, low.content)

    def _forget_low(self, identity: str) -> None:
        del self._low[identity]
        self._store.delete(f"low {self._key}\n{identity}")

    def _put_state(self) -> None:
        due = None if self._due == math.inf else self._due
        state = State(self._reads, self._day, self._shown, due, self.spool.last)
        self._store.put(f"state {self._key}", state)

    def _forward(self, message: Message) -> None:
        identity = str(message.identity)
        shown = self._is_showing or self._is_shown_at_once(message)
        if shown:
            self._showing.add(identity)
            self._set_interrupt()
        expires_us = None if message.expires_us == FOREVER_US else message.expires_us
        content = self._contents[identity]
        self._say(
            Forwarded(self.topic, self.run, identity, message.rank, message.order, shown, expires_us, content)
        )

    def _is_shown_at_once(self, message: Message) -> bool:
        return message.rank >= self.spool.interrupt

    def _retract(self, message: Message) -> None:
        self._say(Retracts(self.topic, self.run, str(message.identity)))

    def _ended(self, message: Message) -> None:
        identity = str(message.identity)
        self._contents.pop(identity, None)
        self._store.delete(f"message {self._key}\n{identity}")
        if message.order == self.spool.last:
            self._put_state()  # nothing else tells its number, which the device may remember

    def _ask_to_show(self, identities: list[str]) -> None:
        asked = [each for each in identities if each not in self._showing]
        asked = asked[: int(min(self._left(), len(asked)))]
        if asked:
            self._showing.update(asked)
            self._set_interrupt()
            self._say(Shows(self.topic, self.run, asked))

    def _say(self, body: Body) -> None:
        self._said.append(body)


def _order(message: Message) -> int:
    return message.order
