"""Last hop as experiments run it: a topic is a query; a phone gets what its user is likely to read (3, 4).

Where a phone is is a constant of its query: when it has moved, it subscribes to another one. How items come
to the server the paper does not say (see :class:`~mudkit.experiment.adapters.store_and_forward.Uplink`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from mudkit.events import Operation
from mudkit.experiment.adapters.hop import BaseHop, Batch, OnBatch, Way, text_of
from mudkit.experiment.adapters.store_and_forward import Uplink
from mudkit.experiment.tasks import Item
from mudkit.experiment.testbed import Testbed, not_hers
from mudkit.systems.lasthop import Publications, Subscriber, Subscription, query
from mudkit.systems.lasthop.api import NAME

__all__ = ["LastHop", "LastHopAdapter", "LastHopHop"]

_INBOX: Final = "inbox of"
_TOPIC: Final = "items"


class LastHop:
    """The system as :func:`mudkit.experiment.run` runs it: each device has a topic of what is for it.

    Parameters
    ----------
    testbed : Testbed
    **settings
        The settings of each :class:`Subscription`.
    """

    name: Final = NAME

    def __init__(self, testbed: Testbed, **settings: Any) -> None:
        lab = testbed.lab
        publications = Publications(lab)
        self._subscribers = {name: Subscriber(device, publications) for name, device in lab.devices.items()}
        self._topics = {name: publications.topic(f"{_INBOX} {name}") for name in lab.devices}
        for name, subscriber in self._subscribers.items():
            subscriber.subscribe(f"{_INBOX} {name}", **{"max": None, **settings})

    def publish(self, item: Item) -> None:
        """Publish an item on the topics of its receivers; its sender does not matter here."""
        for receiver in item.about["to"]:
            self._topics[receiver].publish(item.filler, item=item.name)

    def moved(self, phone: str) -> None:
        """Do nothing: places do not matter."""

    def look(self, phone: str) -> None:
        """Read what has arrived."""
        self._subscribers[phone].read(f"{_INBOX} {phone}")


class LastHopAdapter:
    """The spool with Figure 7's policy, all of it learnt.

    Parameters
    ----------
    testbed : Testbed
        The phones, and who wants what.
    """

    name: Final = "Last hop"
    cannot: Final[Mapping[str, str]] = {
        "traffic alerts": "A place is a constant of a query: who moves asks anew, and what waited is lost.",
        "friends nearby": "A place is a constant of a query: who moves asks anew, and what waited is lost.",
        "photo sharing": "The server reads every photograph.",
    }
    """What its paper cannot say, by the name of the task."""

    def __init__(self, testbed: Testbed) -> None:
        self._testbed = testbed
        publications = Publications(testbed.lab)
        self._topic = publications.topic(_TOPIC)
        self._up = Uplink(testbed, self._publish)
        self._subscribers = {
            phone: Subscriber(testbed.lab.devices[phone], publications) for phone in testbed.phones
        }
        self._topics: dict[str, str] = {}
        for phone, subscriber in self._subscribers.items():
            listen = subscriber.on_message if testbed.task.is_shown else subscriber.on_arrival
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
        task = self._testbed.task
        topic = query(f"({task.want.as_text(self._testbed.about(phone))}) AND {not_hers(phone)}")
        self._topics[phone] = topic
        mode = "on-line" if task.is_shown else "on-demand"
        self._subscribers[phone].subscribe(Subscription(topic, max=task.most, mode=mode))

    def _come(self, phone: str, message: Any) -> None:
        self._testbed.arrived(phone, message["called"])

    def _read(self, phone: str, operation: Operation) -> None:
        self._testbed.show(phone, {message["called"] for message in operation.result()})


class LastHopHop(BaseHop):
    """Last hop: a topic for each phone, spooled with a volume limit.

    Parameters
    ----------
    way : Way
    on_batch : callable
    per_day : int or None
        Messages a day that come by themselves.
    """

    def __init__(self, way: Way, on_batch: OnBatch, per_day: int | None = None) -> None:
        super().__init__(way, on_batch)
        task, publications = way.testbed.task, Publications(way.testbed.lab)
        self._is_asked = not way.is_first and not task.is_shown
        self._up = Uplink(way.testbed, self._publish_for_all) if way.is_first else None
        self._topics = {phone: publications.topic(_topic(phone)) for phone in way.ends}
        self._readers = {phone: Subscriber(host, publications) for phone, host in way.ends.items()}
        mode, most = ("on-demand", task.most) if self._is_asked else ("on-line", None)
        for phone, reader in self._readers.items():
            listen = reader.on_arrival if self._is_asked else reader.on_message
            listen(partial(self._message, phone))
            reader.subscribe(Subscription(_topic(phone), max=most, mode=mode, per_day=per_day))

    def send(self, source: str, batch: Batch) -> None:
        """Publish it on the phone's topic; of a first hop on all of them, when it has come up."""
        if self._up is None:
            self._publish(source, batch)
        else:
            self._up.send(batch[0])

    def look(self, phone: str) -> None:
        """Read the best."""
        if not self._is_asked:
            super().look(phone)
            return
        self._readers[phone].read(_topic(phone)).add_done_callback(partial(self._read, phone))

    def _publish_for_all(self, item: Item) -> None:
        for phone in self._to(item.sender):
            self._publish(phone, (item,))

    def _publish(self, phone: str, batch: Batch) -> None:
        name = self._note(batch)
        published = self._topics[phone].publish(
            text_of(batch),
            rank=max(item.about["rank"] for item in batch),
            expires_s=batch[0].expires_s,
            item=f"{phone}: {name}",
            called=name,
        )
        published.add_done_callback(lambda operation: operation.result())

    def _message(self, phone: str, message: Any) -> None:
        self._out(phone, message["called"])

    def _read(self, phone: str, operation: Operation) -> None:
        batches = [self._under_way[message["called"]] for message in operation.result()]
        self._way.testbed.show(phone, {item.name for batch in batches for item in batch})


def _topic(phone: str) -> str:
    return f"for {phone}"
