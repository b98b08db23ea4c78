"""Last hop in experiments: a topic is a query; a phone gets what its user is likely to read (3, 4).

Each sender has a publisher. The place of a phone is a constant of its query: when it has moved, it subscribes
to another one. In the first part of a chain a phone subscribes to what others publish, in the second one to a
topic of what is for it.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, Final

from mudkit.checks import check_arguments
from mudkit.errors import MessageExpired
from mudkit.events import Operation
from mudkit.experiment.adapters.system import Batch, Part, System, Way, text_of
from mudkit.experiment.tasks import Item
from mudkit.experiment.testbed import Testbed, not_hers
from mudkit.systems.lasthop import Publications, Publisher, Subscriber, Subscription, query
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
        publications, devices = Publications(self._lab), self._lab.devices
        self._topics = {
            name: Publisher(devices[name], publications).topic(_TOPIC) for name in testbed.senders
        }
        self._readers = {phone: Subscriber(devices[phone], publications) for phone in testbed.phones}
        self._subscribed: dict[str, str] = {}
        for phone, reader in self._readers.items():
            listen = reader.on_message if self._task.is_shown else reader.on_arrival
            listen(partial(self._receive, phone))
            self._subscribe(phone)

    def publish(self, item: Item) -> None:
        """Publish an item on its sender, for all."""
        about = {name: value for name, value in item.metadata.items() if name != "rank" and value is not None}
        published = self._topics[item.sender].publish(
            item.content,
            rank=item.metadata["rank"],
            expires_s=item.expires_s,
            item=item.name,
            called=item.name,
            **about,
        )
        published.add_done_callback(_check)

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
        """Subscribe a phone to the query for its current profile."""
        task = self._task
        topic = query(f"({task.interest.as_text(self._testbed.profile(phone))}) AND {not_hers(phone)}")
        self._subscribed[phone] = topic
        mode: Mode = "on-line" if task.is_shown else "on-demand"
        self._readers[phone].subscribe(Subscription(topic, max=task.max_shown, mode=mode))

    def _show(self, phone: str, reading: Operation) -> None:
        """Show the items that a read has returned."""
        self._testbed.show(phone, {message["called"] for message in reading.result()})


@check_arguments(types=False)
class LastHopPart(Part):
    """The spool, with publishers on the senders; in a second part, with a topic for each phone.

    In a second part messages are published at the server, and wait for the user to look.

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
        self._topics = (
            {name: Publisher(host, publications).topic(_TOPIC) for name, host in way.sources.items()}
            if way.is_first
            else {phone: publications.topic(_own_topic(phone)) for phone in way.ends}
        )
        self._readers = {phone: Subscriber(host, publications) for phone, host in way.ends.items()}
        mode: Mode = "on-demand" if self._is_read else "on-line"
        most = task.max_shown if self._is_read else None
        for phone, reader in self._readers.items():
            listen = reader.on_arrival if self._is_read else reader.on_message
            listen(partial(self._receive, phone))
            topic = query(not_hers(phone)) if way.is_first else _own_topic(phone)
            reader.subscribe(Subscription(topic, max=most, mode=mode, **settings))

    def send(self, source: str, batch: Batch) -> None:
        """Publish a batch: on the topic of its phone, or in a first part on its sender, for all others."""
        name = self._store_batch(batch)
        sender = {"who": source} if self._way.is_first else {}
        published = self._topics[source].publish(
            text_of(batch),
            rank=max(item.metadata["rank"] for item in batch),
            expires_s=batch[0].expires_s,
            item=name if self._way.is_first else f"{source}: {name}",
            called=name,
            **sender,
        )
        published.add_done_callback(_check)

    def on_look(self, phone: str) -> None:
        """Read the best items, if they wait for it."""
        if not self._is_read:
            super().on_look(phone)
            return
        reading = self._readers[phone].read(_own_topic(phone))
        reading.add_done_callback(partial(self._show, phone))

    def _show(self, phone: str, reading: Operation) -> None:
        """Show the items in the batches that a read has returned."""
        batches = [self._under_way[message["called"]] for message in reading.result()]
        self._testbed.show(phone, {item.name for batch in batches for item in batch})


def _own_topic(phone: str) -> str:
    """Return the topic of what is for a phone."""
    return f"for {phone}"


def _check(published: Operation) -> None:
    """Raise the error of a publication that has failed, unless it has expired on its sender."""
    with suppress(MessageExpired):
        published.result()
