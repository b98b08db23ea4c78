"""What was drawn for the simulator, on a fleet: one server and one phone over an ideal link."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mudkit.fleet.kernel import raise_failure
from mudkit.lab import Lab
from mudkit.systems.lasthop import Forwarding, Publications, Subscriber, Subscription
from mudkit.systems.lasthop.spool.ranked import FOREVER_US
from mudkit.systems.lasthop.study.scenario import Drawn

__all__ = ["Fleet"]


class Fleet:
    """One device, one topic, and all that was drawn.

    Parameters
    ----------
    drawn : Drawn
        The events that were drawn: arrivals, reads, and outages.
    policy : Forwarding
        The forwarding policy of the subscription.
    most : int or None
        The largest number of messages that are read at a time. None: all that there are.
    threshold : float
        The lowest rank at which a message is forwarded.
    reranks : sequence of (int, int, float)
        The changes of ranks: when, in microseconds, of which message, and to which rank.

    Attributes
    ----------
    forwarded, read : list of int
        The numbers of the messages that were forwarded and that were read, in order; numbers as in the
        simulator.
    """

    def __init__(
        self,
        drawn: Drawn,
        policy: Forwarding,
        most: int | None,
        threshold: float = 0.0,
        reranks: Sequence[tuple[int, int, float]] = (),
    ) -> None:
        self._lab = Lab(seed=1, record_messages=False)
        self._world = world = self._lab.world
        world.on_failure = raise_failure
        self.forwarded: list[int] = []
        self.read: list[int] = []
        server = Publications(self._lab, spool_capacity=1 << 20)
        self._phone = self._lab.device("phone", link="ideal")
        self._subscriber = Subscriber(self._phone, server)
        wanted = Subscription("news", max=most, threshold=threshold, policy=policy)
        self._subscriber.subscribe(wanted).result()
        self._topic = server.topic("news")
        world.on_record = self._happened
        if not drawn.starts_up:
            self._phone.link_down("drawn")
        for at_us in drawn.switches_us.tolist():
            world.at(at_us, self._switch)
        arrivals = zip(
            drawn.arrivals_us.tolist(), drawn.expires_us.tolist(), drawn.ranks.tolist(), strict=True
        )
        for number, (at_us, expires_us, rank) in enumerate(arrivals):
            lasts_s = None if expires_us == FOREVER_US else (expires_us - at_us) / 1e6
            world.ask_at(at_us, self._publish, (str(number), rank, lasts_s))
        for at_us, number, rank in reranks:
            world.ask_at(at_us, self._rerank, (str(number), rank))
        for at_us in drawn.reads_us.tolist():
            world.ask_at(at_us, self._read)
        ends = [times_us[-1:] for times_us in (drawn.arrivals_us, drawn.switches_us, drawn.reads_us)]
        times_us = [*(at_us for at_us, _, _ in reranks), *(int(each[0]) for each in ends if len(each))]
        self._until_us = max(times_us, default=0)

    def run(self) -> None:
        """Let everything happen."""
        self._world.run(self._until_us)

    def _switch(self, _: None) -> None:
        (self._phone.link_down if self._phone.is_online else self._phone.link_up)("drawn")

    def _publish(self, what: tuple[str, float, float | None]) -> None:
        item, rank, lasts_s = what
        self._topic.publish("", rank, lasts_s, item=item)

    def _rerank(self, what: tuple[str, float]) -> None:
        self._topic.rerank(*what)

    def _read(self, _: None) -> None:
        self._subscriber.read("news")

    def _happened(self, process: Any, effect: Any) -> None:
        if "delivered_us" in effect.row:
            self.forwarded.append(int(effect.row["item"]))
        if "read_us" in effect.row:
            self.read.append(int(effect.row["item"]))
