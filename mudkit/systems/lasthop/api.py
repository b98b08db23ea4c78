"""Objects in a notebook: the server of a lab, publishers, topics, and the subscriber on a device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Final, Unpack

import msgspec

from mudkit.checks import Range, check_arguments, is_storable
from mudkit.display import View
from mudkit.errors import ParameterError, brief
from mudkit.events import Host, Installed, Network, Operation
from mudkit.places import Centres, parse_one_centre
from mudkit.systems.displays import OnHost
from mudkit.systems.lasthop.device.machine import APP, ARRIVALS, DeviceMachine
from mudkit.systems.lasthop.device.publisher import PublisherMachine
from mudkit.systems.lasthop.messages import (
    Content,
    CountSubmissions,
    Follow,
    Publish,
    Queues,
    QueueSizes,
    Read,
    Rerank,
    Subscribe,
    Unfollow,
    Unsubscribe,
)
from mudkit.systems.lasthop.servers.spooling_server import SpoolServer
from mudkit.systems.lasthop.subscription import MAX_RANK, Limits, PlaceSubscription, Subscription, check_topic
from mudkit.wire import Value

NAME: Final = "last hop"
_PORT: Final = "lasthop"
_PUBLISHER_PORT: Final = "lasthop publisher"
_DAY_US: Final = 86_400_000_000
_HOUR_US: Final = 3_600_000_000
_RESERVED: Final = ("topic", "rank")
_MAX_SHOWN: Final = 200


@check_arguments
class Publications(OnHost):
    """The spooling server of a lab.

    Parameters
    ----------
    lab : Network
    name : str
    utc_offset_h : float
        Local time of subscriptions minus UTC, in hours.
    spool_capacity : int
        Maximum number of messages of a topic that wait for a device; beyond it, the lowest rank is dropped.
    centres : sequence of str, or mapping of str to str or (float, float), optional
        The data centre in which it stands: the name of a city, or a place by name (:mod:`mudkit.places`). By
        default it is near everything.

    Raises
    ------
    ParameterError
        The lab is not a Lab, a parameter is out of range, the name is a device's, or there is no such city.
    """

    def __init__(
        self,
        lab: Network,
        name: str = "spool",
        *,
        utc_offset_h: Annotated[float, Range(-24.0, 24.0)] = 0.0,
        spool_capacity: Annotated[int, Range(1, 1 << 31)] = 10_000,
        centres: Centres | None = None,
    ) -> None:
        offset_us = round(utc_offset_h * _HOUR_US)
        start_of_day_us = (lab.start_us + offset_us) % _DAY_US
        self.installed: Installed = lab.server(name, at=parse_one_centre(centres)).install(
            NAME, lambda ports: SpoolServer(ports, start_of_day_us, spool_capacity), name=_PORT
        )

    def topic(self, name: str) -> Topic:
        """Return a topic, to publish on it at the server, at no cost.

        That is for tests, and for what has no device. What a device publishes has a :class:`Publisher`.
        """
        return Topic(self, name)

    def queues(self, device: str, topic: str) -> Operation:
        """Count the messages that wait for a device, and those on it as far as the server knows.

        Handled by :meth:`~mudkit.systems.lasthop.servers.spooling_server.SpoolServer._queue_sizes`.
        """
        return self.installed.call(Queues(device, topic))


@check_arguments
class Publisher(OnHost):
    """A publisher on a device (Last hop 2): what it publishes goes to the server over the device's link.

    A message waits in a durable outbox until the server has acknowledged it, over outages and restarts of
    both; the server takes it once, in order. A message that expires there is not sent.

    Parameters
    ----------
    device : Host
    publications : Publications
        Server of the topics.

    Raises
    ------
    ParameterError
        The device or the server is of the wrong kind.

    Examples
    --------
    >>> from mudkit import Lab
    >>> lab = Lab(seed=7)
    >>> server = Publications(lab)
    >>> jane = Subscriber(lab.device("jane-phone"), server)
    >>> jane.subscribe("snow").result()
    >>> station = Publisher(lab.device("station", link="lte"), server)
    >>> identity = station.topic("snow").publish("40 cm at Tromsø").result()
    >>> [message["text"] for message in jane.read("snow").result()]
    ['40 cm at Tromsø']
    """

    def __init__(self, device: Host, publications: Publications) -> None:
        address = publications.installed.address
        self.installed: Installed = device.install(
            NAME, lambda ports: PublisherMachine(ports, device.name, address), name=_PUBLISHER_PORT
        )

    def topic(self, name: str) -> Topic:
        """Return the topic of a ``name``, to publish on it from the device."""
        return Topic(self, name)

    def submissions(self) -> Operation:
        """Count what is ``pending``, was ``refused``, and has ``expired``: messages and changes of ranks.

        Handled by :meth:`~mudkit.systems.lasthop.device.publisher.PublisherMachine._call`.
        """
        return self.installed.call(CountSubmissions())


@check_arguments
class Topic(OnHost):
    """A topic, as its publisher sees it (Last hop 3.1).

    Parameters
    ----------
    publisher : Publisher or Publications
        Publisher on a device; or the server of the topic, to publish there.
    name : str
    """

    def __init__(self, publisher: Publisher | Publications, name: str) -> None:
        self.installed: Installed = publisher.installed
        self.name = check_topic(name)

    def _view(self) -> View:
        """Return its name, and where it is published, for a display."""
        return View("lasthop.Topic", {"name": self.name, "published at": self.installed.address})

    def publish(
        self,
        text: str,
        rank: Annotated[float, Range(-MAX_RANK, MAX_RANK)] = 0.0,
        expires_s: Annotated[float, Range(1e-6, 1e10)] | None = None,
        *,
        item: str | None = None,
        **attributes: Value,
    ) -> Operation:
        """Publish a message; done when the server has it, with its identity, for :meth:`rerank`.

        Handled by :meth:`~mudkit.systems.lasthop.servers.spooling_server.SpoolServer._publish`, on a device
        by :meth:`~mudkit.systems.lasthop.device.publisher.PublisherMachine._publish`.

        Parameters
        ----------
        text : str
        rank : float
            Messages of the highest ranks are read first.
        expires_s : float, optional
            Time until it expires, in seconds; None: never.
        item : str, optional
            Name in the deliveries; None: the topic and a number.
        **attributes
            Other fields, to which queries can refer.

        Raises
        ------
        ParameterError
            A value is of the wrong kind or out of range, or cannot be sent or stored. From ``result()``:
            another message has the name ``item``.
        MessageExpired
            From ``result()``: it expired on a device before the server had acknowledged it.
        OutboxFull
            From ``result()``: too much waits on the device.
        """
        if item is not None:
            check_topic(item, "item")
        if reserved := sorted(set(attributes) & set(_RESERVED)):
            raise ParameterError(
                "A message has one topic and one rank.",
                where=", ".join(reserved),
                found=brief(attributes),
                expected="other names",
            )
        try:
            attributes = msgspec.json.decode(msgspec.json.encode(attributes))  # without tuples
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise ParameterError(
                "A message cannot be sent.",
                where="attributes",
                found=str(error),
                expected="what JSON can hold",
            ) from error
        content = {"text": text, **attributes}
        if not is_storable(content):
            raise ParameterError(
                "A message cannot be stored.",
                where="text, attributes",
                found=brief(content, _MAX_SHOWN),
                expected="whole characters, and whole numbers of at most 64 bit",
            )
        lifetime_us = None if expires_s is None else round(expires_s * 1e6)
        return self.installed.call(Publish(self.name, rank, lifetime_us, content, item))

    def rerank(self, identity: str, rank: Annotated[float, Range(-MAX_RANK, MAX_RANK)]) -> Operation:
        """Change the rank of the message ``identity``; one below a subscriber's threshold is retracted.

        Handled by :meth:`~mudkit.systems.lasthop.servers.spooling_server.SpoolServer._rerank`, on a device
        by :meth:`~mudkit.systems.lasthop.device.publisher.PublisherMachine._rerank`.
        """
        return self.installed.call(Rerank(self.name, str(identity), rank))


@check_arguments
class Subscriber(OnHost):
    """The user of a device (Last hop 3.2).

    Parameters
    ----------
    device : Host
    publications : Publications
        Server of the topics.
    device_capacity : int, optional
        Maximum number of messages on the device; the lowest ranks are dropped first. None: unlimited.

    Raises
    ------
    ParameterError
        The device or the server is of the wrong kind, or the capacity is out of range.

    Examples
    --------
    >>> from mudkit import Lab
    >>> lab = Lab(seed=7)
    >>> server = Publications(lab)
    >>> jane = Subscriber(lab.device("jane-phone"), server)
    >>> jane.subscribe("news", max=2, threshold=3.0).result()
    >>> news = server.topic("news")
    >>> for rank, text in ((4.0, "rain"), (1.0, "advert"), (5.0, "storm"), (3.5, "sun")):
    ...     identity = news.publish(text, rank=rank, expires_s=86_400).result()
    >>> [message["text"] for message in jane.read("news").result()]
    ['storm', 'rain']
    """

    def __init__(
        self,
        device: Host,
        publications: Publications,
        *,
        device_capacity: Annotated[int, Range(1, 1 << 31)] | None = None,
    ) -> None:
        address = publications.installed.address
        self.installed: Installed = device.install(
            NAME,
            lambda ports: DeviceMachine(ports, device.name, address, device_capacity),
            name=_PORT,
            watch=("loc",),
        )

    def subscribe(self, topic: str | Subscription, **settings: Unpack[Limits]) -> Operation:
        """Subscribe to a topic, or change the limits; complete when the server has acknowledged.

        Handled by :meth:`~mudkit.systems.lasthop.device.machine.DeviceMachine._subscribe`.

        Parameters
        ----------
        topic : str or Subscription
            A topic, one that :func:`query` returns, or a whole subscription.
        **settings
            ``max``, ``threshold``, ``mode``, … of :class:`Subscription`.

        Raises
        ------
        ParameterError
            The topic or a setting is not valid, or there are settings beside a whole subscription.
        """
        subscription = _build_subscription(topic, settings)
        return self.installed.call(Subscribe(subscription))

    def unsubscribe(self, topic: str) -> Operation:
        """End a subscription, and drop its messages; complete when the server has acknowledged.

        Handled by :meth:`~mudkit.systems.lasthop.device.machine.DeviceMachine._unsubscribe`.
        """
        return self.installed.call(Unsubscribe(check_topic(topic)))

    def read(self, topic: str) -> Operation:
        """Read the best messages of a ``topic``; without a link, the best on the device.

        Handled by :meth:`~mudkit.systems.lasthop.device.machine.DeviceMachine._begin_read`.

        The result is a list of mappings with text, rank and topic, each with an attribute ``id``; it raises
        without a subscription. If the device is killed before the result is there, the next read has these
        messages again.
        """
        return self.installed.call(Read(check_topic(topic)))

    def follow(
        self,
        topic: str | Subscription,
        places: Mapping[str, tuple[float, float, float]],
        **settings: Unpack[Limits],
    ) -> Operation:
        """Subscribe to a topic while the device is at one of several places (Last hop 3.3).

        To follow a topic again changes its places and settings.

        Handled by :meth:`~mudkit.systems.lasthop.device.machine.DeviceMachine._follow`.

        Parameters
        ----------
        topic : str or Subscription
            ``{place}`` in the topic stands for the name of the place.
        places : mapping of str to (float, float, float)
            Places by name: latitude and longitude in degrees, and a radius in km.
        **settings
            As for :meth:`subscribe`.

        Raises
        ------
        ParameterError
            The topic, a place or a setting is not valid.
        """
        following = PlaceSubscription(_build_subscription(topic, settings), places)
        return self.installed.call(Follow(following))

    def unfollow(self, topic: str) -> Operation:
        """End a :meth:`follow`, by its topic.

        Handled by :meth:`~mudkit.systems.lasthop.device.machine.DeviceMachine._end_followed`.
        """
        return self.installed.call(Unfollow(topic))

    def queue_sizes(self) -> Operation:
        """Count the messages of each topic on the device.

        Handled by :meth:`~mudkit.systems.lasthop.device.queue.DeviceQueue.ranks`.
        """
        return self.installed.call(QueueSizes())

    def on_message(self, callback: Callable[[Content], None]) -> None:
        """Call ``callback`` with each message when it is shown, once.

        A device that is killed between its commit and the callback repeats the call after the restart; the
        attribute ``id`` of the message is the same.
        """
        self.installed.listen(APP, callback)

    def on_arrival(self, callback: Callable[[Content], None]) -> None:
        """Call ``callback`` with each message that arrives at the device, as :meth:`on_message`."""
        self.installed.listen(ARRIVALS, callback)


def _build_subscription(topic: str | Subscription, settings: Limits) -> Subscription:
    """Return a subscription as given, or one to a topic with settings; raise ParameterError for both."""
    if not isinstance(topic, Subscription):
        return Subscription(topic, **settings)
    if settings:
        raise ParameterError(
            "A Subscription has settings of its own.",
            where=", ".join(settings),
            found="both",
            expected="a Subscription, or a topic and its settings",
        )
    return topic
