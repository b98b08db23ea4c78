"""Last hop in experiments: a topic is a query; a phone gets what its user is likely to read (3, 4).

Alone, the place of a phone is a constant of its query: when it has moved, it subscribes to another one.
Otherwise each phone has a topic of what is for it. The paper does not say how items reach the server (see
:class:`~mudkit.experiment.adapters.store_and_forward.Uplink`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Final

from mudkit.checks import check_arguments
from mudkit.events import Operation
from mudkit.experiment.adapters.store_and_forward import Uplink
from mudkit.experiment.adapters.system import Batch, System, Way, text_of
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
    place : Testbed or Way
    **settings
        Settings of each :class:`Subscription` to a phone's own topic, such as ``per_day``.
    """

    label: ClassVar = "Last hop"
    unsupported: ClassVar = {
        "traffic alerts": "A place is a constant of a query: who moves asks anew, and what waited is lost.",
        "friends nearby": "A place is a constant of a query: who moves asks anew, and what waited is lost.",
        "photo sharing": "The server reads every photograph.",
    }

    def __init__(self, place: Testbed | Way, **settings: Any) -> None:
        super().__init__(place)
        task, publications = self._task, Publications(self._lab)
        waits = self._is_alone or not self._way.is_first
        self._is_read = waits and not task.is_shown
        """True if messages wait until they are read."""
        self._up: Uplink | None = None
        if self._is_alone:
            self._topics = {_TOPIC: publications.topic(_TOPIC)}
        if self._way.is_first:
            self._up = Uplink(self._testbed, self._publish_for_all)
        self._readers = {phone: Subscriber(host, publications) for phone, host in self._way.ends.items()}
        self._subscribed: dict[str, str] = {}
        if not self._is_alone:
            self._topics = {phone: publications.topic(self._own_topic(phone)) for phone in self._way.ends}
        mode: Mode = "on-demand" if self._is_read else "on-line"
        most = task.max_shown if self._is_read else None
        for phone, reader in self._readers.items():
            topic = self._subscribed[phone] = self._own_topic(phone)
            listen = reader.on_arrival if self._is_read else reader.on_message
            listen(partial(self._receive, phone))
            if self._is_alone:
                self._subscribe(phone)
            else:
                reader.subscribe(Subscription(topic, max=most, mode=mode, **settings))

    def send(self, source: str, batch: Batch) -> None:
        """Publish a batch on the topic of its phone; alone, and in a first part, after its uplink."""
        if self._up is None:
            self._publish(source, batch)
        else:
            self._up.send(batch[0])

    def on_move(self, phone: str, profile: Mapping[str, Any] | None = None) -> None:
        """Replace the subscription of a phone by one for its current place."""
        if not self._is_alone:
            return
        before = self._subscribed[phone]
        self._subscribe(phone)
        if before != self._subscribed[phone]:
            self._readers[phone].unsubscribe(before)

    def on_look(self, phone: str) -> None:
        """Read the best items; those that are not on the phone are fetched if there is a link."""
        if not self._is_read and not self._is_alone:
            super().on_look(phone)
            return
        reading = self._readers[phone].read(self._subscribed[phone])
        reading.add_done_callback(partial(self._read, phone))

    def _own_topic(self, phone: str) -> str:
        return f"for {phone}"

    def _subscribe(self, phone: str) -> None:
        task = self._task
        topic = query(f"({task.interest.as_text(self._testbed.profile(phone))}) AND {not_hers(phone)}")
        self._subscribed[phone] = topic
        mode: Mode = "on-line" if task.is_shown else "on-demand"
        self._readers[phone].subscribe(Subscription(topic, max=task.max_shown, mode=mode))

    def _publish_for_all(self, item: Item) -> None:
        about = {name: value for name, value in item.metadata.items() if name != "rank" and value is not None}
        if self._is_alone:
            self._publish(_TOPIC, (item,), **about)
        else:
            for phone in self._to(item.sender):
                self._publish(phone, (item,))

    def _publish(self, topic: str, batch: Batch, **about: Any) -> None:
        name = self._note(batch)
        published = self._topics[topic].publish(
            text_of(batch),
            rank=max(item.metadata["rank"] for item in batch),
            expires_s=batch[0].expires_s,
            item=name if self._is_alone else f"{topic}: {name}",
            called=name,
            **about,
        )
        published.add_done_callback(lambda operation: operation.result())

    def _read(self, phone: str, operation: Operation) -> None:
        batches = [self._under_way[message["called"]] for message in operation.result()]
        self._testbed.show(phone, {item.name for batch in batches for item in batch})
