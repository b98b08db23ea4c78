"""A task as Last hop does it: a query is a topic, and the phone gets what its user is likely to read (3, 4).

Where a phone is is a constant of its query: when it has moved, it subscribes to another one. How items come
to the server the paper does not say (see :class:`Uplink`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from mudkit.events import Operation
from mudkit.experiment.scoreboard.entrants.uplink import Uplink
from mudkit.experiment.scoreboard.task import Item
from mudkit.experiment.scoreboard.testbed import Testbed, not_hers
from mudkit.systems.lasthop import Publications, Subscriber, Subscription, query

__all__ = ["LastHop"]

_TOPIC: Final = "items"


class LastHop:
    """The spool with Figure 7's policy, all of it learnt.

    Parameters
    ----------
    stage : Testbed
    """

    name: Final = "Last hop"
    cannot: Final[Mapping[str, str]] = {
        "traffic alerts": "A place is a constant of a query: who moves asks anew, and what waited is lost.",
        "friends nearby": "A place is a constant of a query: who moves asks anew, and what waited is lost.",
        "photo sharing": "The server reads every photograph.",
    }
    """What its paper cannot say, by the name of the task."""

    def __init__(self, stage: Testbed) -> None:
        self._stage = stage
        publications = Publications(stage.lab)
        self._topic = publications.topic(_TOPIC)
        self._up = Uplink(stage, self._publish)
        self._subscribers = {
            phone: Subscriber(stage.lab.devices[phone], publications) for phone in stage.phones
        }
        self._topics: dict[str, str] = {}
        for phone, subscriber in self._subscribers.items():
            listen = subscriber.on_message if stage.task.is_shown else subscriber.on_arrival
            listen(partial(self._come, phone))
            self._subscribe(phone)

    def publish(self, item: Item) -> None:
        """Send it to the server, on whose topic it is published."""
        self._up.send(item)

    def moved(self, phone: str) -> None:
        """Ask for what is around here instead."""
        before = self._topics[phone]
        self._subscribe(phone)
        if before != self._topics[phone]:
            self._subscribers[phone].unsubscribe(before)

    def look(self, phone: str) -> None:
        """Read the best: what is not here is fetched, if there is a link."""
        reading = self._subscribers[phone].read(self._topics[phone])
        reading.add_done_callback(partial(self._read, phone))

    def _publish(self, item: Item) -> None:
        about = {name: value for name, value in item.about.items() if name != "rank" and value is not None}
        published = self._topic.publish(
            item.content,
            rank=item.about["rank"],
            expires_s=item.expires_s,
            item=item.name,
            called=item.name,
            **about,
        )
        published.add_done_callback(lambda operation: operation.result())

    def _subscribe(self, phone: str) -> None:
        task = self._stage.task
        topic = query(f"({task.want.as_text(self._stage.about(phone))}) AND {not_hers(phone)}")
        self._topics[phone] = topic
        mode = "on-line" if task.is_shown else "on-demand"
        self._subscribers[phone].subscribe(Subscription(topic, max=task.most, mode=mode))

    def _come(self, phone: str, message: Any) -> None:
        self._stage.arrived(phone, message["called"])

    def _read(self, phone: str, operation: Operation) -> None:
        self._stage.show(phone, {message["called"] for message in operation.result()})
