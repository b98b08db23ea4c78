"""What was drawn for the simulator, on a fleet: one server and one phone over an ideal link."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mudkit import Lab
from mudkit.systems.lasthop import Publications, Subscriber, Subscription
from mudkit.systems.lasthop.policies import FOREVER_US

__all__ = ["Fleet"]


class Fleet:
    """One device, one topic, and all that was drawn.

    Messages are called by their numbers, as in the simulator.
    """

    def __init__(
        self, drawn: Any, policy: Any, most: int | None, threshold: float,
        reranks: Sequence[tuple[int, int, float]] = (),
    ) -> None:  # fmt: skip
        self.lab = Lab(seed=1, messages=False)
        self.world = self.lab.world
        self.forwarded: list[int] = []
        self.read: list[int] = []
        server = Publications(self.lab, spool_capacity=1 << 20)
        self.phone = self.lab.device("phone", link="ideal")
        self.subscriber = Subscriber(self.phone, server)
        self.subscriber.subscribe(Subscription("news", max=most, threshold=threshold, policy=policy)).result()
        self.topic = server.topic("news")
        self.world.on_record = self._happened
        if not drawn.starts_up:
            self.phone.link_down("drawn")
        for at_us in drawn.switches_us.tolist():
            self.world.at(at_us, self._switch)
        arrivals = zip(
            drawn.arrivals_us.tolist(), drawn.expires_us.tolist(), drawn.ranks.tolist(), strict=True
        )
        for number, (at_us, expires_us, rank) in enumerate(arrivals):
            lasts_s = None if expires_us == FOREVER_US else (expires_us - at_us) / 1e6
            self.world.ask_at(at_us, self._publish, (str(number), rank, lasts_s))
        for at_us, number, rank in reranks:
            self.world.ask_at(at_us, lambda what: self.topic.rerank(*what), (str(number), rank))
        for at_us in drawn.reads_us.tolist():
            self.world.ask_at(at_us, lambda _: self.subscriber.read("news"))
        ends = [times_us[-1:] for times_us in (drawn.arrivals_us, drawn.switches_us, drawn.reads_us)]
        self.until_us = max(
            [0, *(at_us for at_us, _, _ in reranks), *(int(each[0]) for each in ends if len(each))]
        )

    def run(self) -> None:
        """Let everything happen."""
        self.world.run(self.until_us)

    def _switch(self, _: None) -> None:
        (self.phone.link_down if self.phone.is_online else self.phone.link_up)("drawn")

    def _publish(self, what: tuple[str, float, float | None]) -> None:
        item, rank, lasts_s = what
        self.topic.publish("", rank, lasts_s, item=item)

    def _happened(self, process: Any, effect: Any) -> None:
        if "delivered_us" in effect.row:
            self.forwarded.append(int(effect.row["item"]))
        if "read_us" in effect.row:
            self.read.append(int(effect.row["item"]))
