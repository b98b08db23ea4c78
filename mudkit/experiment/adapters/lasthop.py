"""Last hop in experiments: a topic is a query; a phone gets what its user is likely to read (3, 4).

Alone, the place of a phone is a constant of its query: when it has moved, it subscribes to another one. In a
chain each phone has a topic of what is for it. The paper does not say how items reach the server (see
:class:`~mudkit.experiment.adapters.store_and_forward.Uplink`).
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar, Final

from mudkit.checks import check_arguments
from mudkit.events import Operation
from mudkit.experiment.adapters.store_and_forward import Uplink
from mudkit.experiment.adapters.system import Batch, Part, System, Way, text_of
from mudkit.experiment.tasks import Item
from mudkit.experiment.testbed import Testbed, not_hers
from mudkit.systems.lasthop import Publications, Subscriber, Subscription, query
from mudkit.systems.lasthop.subscription import Mode

_TOPIC: Final = "items"


@check_arguments(types=False)
class LastHop(System):
    """The spool with Figure 7's policy, all of it learnt.

    Parameters
    ----------
    testbed : Testbed
    """

    label: ClassVar = "Last hop"
    unsupported: ClassVar = {
        "traffic alerts": "A place is a constant of a query: who moves asks anew, and what waited is lost.",
        "friends nearby": "A place is a constant of a query: who moves asks anew, and what waited is lost.",
        "photo sharing": "The server reads every photograph.",
    }

    def __init__(self, testbed: Testbed) -> None:
        super().__init__(testbed)
        publications = Publications(self._lab)
        self._topic = publications.topic(_TOPIC)
        self._up = Uplink(testbed, self._publish)
        devices = self._lab.devices
        self._readers = {phone: Subscriber(devices[phone], publications) for phone in testbed.phones}
        self._subscribed: dict[str, str] = {}
        for phone, reader in self._readers.items():
            listen = reader.on_message if self._task.is_shown else reader.on_arrival
            listen(partial(self._receive, phone))
            self._subscribe(phone)

    def publish(self, item: Item) -> None:
        """Send an item up, where it is published for all."""
        self._up.send(item)

    def on_move(self, phone: str) -> None:
        """Replace the subscription of a phone by one for its current place."""
        before = self._subscribed[phone]
        self._subscribe(phone)
        if before != self._subscribed[phone]:
            self._readers[phone].unsubscribe(before)

    def on_look(self, phone: str) -> None:
        """Read the best items; those that are not on the phone are fetched if there is a link."""
        reading = self._readers[phone].read(self._subscribed[phone])
        reading.add_done_callback(partial(self._show, phone))

    def _subscribe(self, phone: str) -> None:
        task = self._task
        topic = query(f"({task.interest.as_text(self._testbed.profile(phone))}) AND {not_hers(phone)}")
        self._subscribed[phone] = topic
        mode: Mode = "on-line" if task.is_shown else "on-demand"
        self._readers[phone].subscribe(Subscription(topic, max=task.max_shown, mode=mode))

    def _publish(self, item: Item) -> None:
        about = {name: value for name, value in item.metadata.items() if name != "rank" and value is not None}
        published = self._topic.publish(
            item.content,
            rank=item.metadata["rank"],
            expires_s=item.expires_s,
            item=item.name,
            called=item.name,
            **about,
        )
        published.add_done_callback(_check)

    def _show(self, phone: str, reading: Operation) -> None:
        self._testbed.show(phone, {message["called"] for message in reading.result()})


@check_arguments(types=False)
class LastHopPart(Part):
    """The spool, with a topic for each phone; in a second part it waits for the user to look.

    Parameters
    ----------
    way : Way
    **settings
        Settings of each :class:`Subscription`, such as ``per_day``.
    """

    def __init__(self, way: Way, **settings: Any) -> None:
        super().__init__(way)
        task, publications = self._task, Publications(self._lab)
        self._is_read = not way.is_first and not task.is_shown
        """True if messages wait until they are read."""
        self._up = Uplink(self._testbed, self._publish_for_all) if way.is_first else None
        self._readers = {phone: Subscriber(host, publications) for phone, host in way.ends.items()}
        self._topics = {phone: publications.topic(_own_topic(phone)) for phone in way.ends}
        mode: Mode = "on-demand" if self._is_read else "on-line"
        most = task.max_shown if self._is_read else None
        for phone, reader in self._readers.items():
            listen = reader.on_arrival if self._is_read else reader.on_message
            listen(partial(self._receive, phone))
            reader.subscribe(Subscription(_own_topic(phone), max=most, mode=mode, **settings))

    def send(self, source: str, batch: Batch) -> None:
        """Publish a batch on the topic of its phone; in a first part, on those of all after its uplink."""
        if self._up is None:
            self._publish(source, batch)
        else:
            self._up.send(batch[0])

    def on_look(self, phone: str) -> None:
        """Read the best items, if they wait for it."""
        if not self._is_read:
            super().on_look(phone)
            return
        reading = self._readers[phone].read(_own_topic(phone))
        reading.add_done_callback(partial(self._show, phone))

    def _publish_for_all(self, item: Item) -> None:
        for phone in self._to(item.sender):
            self._publish(phone, (item,))

    def _publish(self, phone: str, batch: Batch) -> None:
        name = self._note(batch)
        published = self._topics[phone].publish(
            text_of(batch),
            rank=max(item.metadata["rank"] for item in batch),
            expires_s=batch[0].expires_s,
            item=f"{phone}: {name}",
            called=name,
        )
        published.add_done_callback(_check)

    def _show(self, phone: str, reading: Operation) -> None:
        batches = [self._under_way[message["called"]] for message in reading.result()]
        self._testbed.show(phone, {item.name for batch in batches for item in batch})


def _own_topic(phone: str) -> str:
    """Return the topic of what is for a phone."""
    return f"for {phone}"


def _check(published: Operation) -> None:
    """Raise the error of a publication that has failed."""
    published.result()
