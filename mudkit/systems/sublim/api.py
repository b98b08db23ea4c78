"""Notebook API of SUBLIM: the publish server, access points, and publishers and subscribers on devices."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Annotated, Final, TypeAlias

from mudkit.checks import Range, check_arguments, number
from mudkit.errors import OperationLost, ParameterError, brief
from mudkit.events import Host, Installed, Make, Network, Operation
from mudkit.places import Centres, parse_one_centre
from mudkit.predicates import Predicate
from mudkit.systems.displays import OnHost
from mudkit.systems.sublim._policy.function import FunctionPolicy
from mudkit.systems.sublim._policy.message import create_message
from mudkit.systems.sublim._policy.state import LimitExceeded, check_bytes
from mudkit.systems.sublim._policy.verdict import Explanation
from mudkit.systems.sublim.check.checker import validate
from mudkit.systems.sublim.device import APP, PROBLEMS, ClientMachine, PlainClientMachine, PublisherMachine
from mudkit.systems.sublim.messages import (
    Body,
    CountSubmissions,
    InstallPolicy,
    PolicyText,
    Publish,
    Read,
    ReadState,
    SubscriberState,
)
from mudkit.systems.sublim.servers.access_point import AccessPointMachine
from mudkit.systems.sublim.servers.agent import AnyPolicy
from mudkit.systems.sublim.servers.plain_access_point import LANGUAGE, PlainAccessPointMachine
from mudkit.systems.sublim.servers.publish_server import PublishServerMachine
from mudkit.systems.sublim.sites import Site
from mudkit.wire import Fields, Value

NAME: Final = "sublim"
_PORT: Final = "sublim"
_PUBLISHER_PORT: Final = "sublim publisher"

_Place: TypeAlias = Annotated[tuple[float, float], "(lat, lon) in degrees"]


@check_arguments
class PublishServer(OnHost):
    """Publish server of a lab.

    A message goes to the subscribers that an access point serves when it is published ("an arrived event is
    triggered at every connected participant", section 4). Those that attach for the first time later do not
    get it, and have no row in the deliveries; a run of an experiment, which knows the intended receivers,
    counts it as lost. Attaching takes virtual time (association with WiFi two seconds), and so does a policy:
    call ``set_policy(…).result()`` before publishing.

    Parameters
    ----------
    lab : Network
    name : str
    centres : sequence of str, or mapping of str to str or (float, float), optional
        The data centre in which it stands: the name of a city, or a place by name (:mod:`mudkit.places`). By
        default it is near everything.

    Raises
    ------
    ParameterError
        ``lab`` is not a lab, ``name`` is the name of a device, or there is no such city.
    """

    def __init__(self, lab: Network, name: str = "publish-server", *, centres: Centres | None = None) -> None:
        self.lab = lab
        self.sites: list[Site] = []
        self.access_points: list[AccessPoint] = []
        self.functions: dict[str, FunctionPolicy] = {}
        """Policies that are functions, by the name under which they were set."""
        self.place = parse_one_centre(centres)
        """Its place; None: it is near all access points."""
        self.installed = lab.server(name, at=self.place).install(
            NAME, lambda ports: PublishServerMachine(ports, lab.start_us, self.sites), name=_PORT
        )

    def _own_facts(self) -> dict[str, Value]:
        """Return the number of access points, for the display."""
        return {"access points": len(self.access_points)}

    def publish(self, message: Fields, item: str | None = None) -> Operation:
        """Publish a message to all attached subscribers, whose policies decide; the result is its number.

        It is published at this server, at no cost: for tests, and for what has no device. What a device
        publishes has a :class:`Publisher`.

        Handled by :meth:`~mudkit.systems.sublim.servers.publish_server.PublishServerMachine._publish`.

        Parameters
        ----------
        message : mapping of str to object
            Fields: JSON values and bytes.
        item : str, optional
            Name of the message in the deliveries; None: ``message`` and its number.

        Raises
        ------
        ParameterError
            ``message`` or ``item`` is of another type.
        """
        return self.installed.call(_build_publish(message, item))


@check_arguments
class Publisher(OnHost):
    """A publisher on a device (section 3), which publishes over the device's link.

    A message waits in a durable outbox until the server has acknowledged it, over outages and restarts of
    both; the server publishes it once, in order. It is for those who are attached when it arrives there, and
    the times of its deliveries count from then.

    Parameters
    ----------
    device : Host
    net : PublishServer
        Publish server of the same lab.

    Raises
    ------
    ParameterError
        ``device`` or ``net`` is of another type.

    Examples
    --------
    >>> from mudkit import Lab
    >>> lab = Lab(seed=7)
    >>> net = PublishServer(lab)
    >>> point = AccessPoint(lab, net)
    >>> nurse = Subscriber(lab.device("nurse-pda", link="wifi"), net)
    >>> lab.run(seconds=5)
    >>> monitor = Publisher(lab.device("monitor", link="wifi"), net)
    >>> name = monitor.publish({"patient": 7, "pulse": 48}).result()
    >>> lab.run(seconds=5)
    >>> nurse.read().result()
    [{'patient': 7, 'pulse': 48}]
    """

    def __init__(self, device: Host, net: PublishServer) -> None:
        address = net.installed.address
        self.installed: Installed = device.install(
            NAME, lambda ports: PublisherMachine(ports, device.name, address), name=_PUBLISHER_PORT
        )

    def publish(self, message: Fields, item: str | None = None) -> Operation:
        """Publish a message; done when the publish server has it, with its name in the deliveries.

        Handled by :meth:`~mudkit.systems.sublim.device.PublisherMachine._publish`.

        Parameters
        ----------
        message : mapping of str to object
            Fields: JSON values and bytes.
        item : str, optional
            Name of the message in the deliveries; None: ``message``, the device, and a number.

        Raises
        ------
        ParameterError
            ``message`` or ``item`` is of another type; from ``result()``: the server has refused it.
        OutboxFull
            From ``result()``: too much waits on the device.
        """
        return self.installed.call(_build_publish(message, item))

    def submissions(self) -> Operation:
        """Count the messages that are ``pending``, and those that were ever ``refused``; none is ``expired``.

        Handled by :meth:`~mudkit.systems.sublim.device.PublisherMachine.handle`.
        """
        return self.installed.call(CountSubmissions())


@check_arguments
class AccessPoint(OnHost):
    """Access point of a lab, with SUBLIM or without state; serves the subscribers that attach to it.

    With a place it is one of ``lab.access_points``: devices that roam use its network while in range.

    Parameters
    ----------
    lab : Network
    net : PublishServer
        Publish server of the same lab.
    at : (float, float), optional
        Latitude and longitude, degrees; None: in range of every device.
    range_m : float
        Radius of its range, metres.
    name : str, optional
    stateful : bool
        Whether it runs SUBLIM; if not, it serves plain subscribers only.

    Raises
    ------
    ParameterError
        ``lab`` or ``net`` is of another type, the place or range is out of bounds, or the lab has an access
        point of this name.
    """

    def __init__(
        self,
        lab: Network,
        net: PublishServer,
        at: _Place | None = None,
        range_m: Annotated[float, Range(1e-3, 1e6)] = 100.0,
        *,
        name: str | None = None,
        stateful: bool = True,
    ) -> None:
        if at is not None:
            at = number("at[0]", at[0], -90.0, 90.0), number("at[1]", at[1], -180.0, 180.0)
        self.name = name or f"access-point-{len(net.access_points) + 1}"
        server = net.installed.address
        make: Make = partial(PlainAccessPointMachine, server=server)
        if stateful:
            make = partial(AccessPointMachine, server=server, functions=net.functions, sites=net.sites)
        place = None if net.place is None else at
        self.installed: Installed = lab.server(self.name, at=place).install(NAME, make, name=_PORT)
        if at is not None:
            lab.access_point(self.name, at, range_m)
        net.access_points.append(self)
        net.sites.append(Site(self.installed.address, at, range_m, stateful))

    def state(self, subscriber: str) -> SubscriberState | None:
        """Return the stored state of a subscriber; None if this access point does not serve it.

        Handled by :meth:`~mudkit.systems.sublim.servers.access_point.AccessPointMachine._state`.
        """
        state: SubscriberState | None = self.installed.call(ReadState(subscriber)).result()
        return state


@check_arguments
class Subscriber(OnHost):
    """Subscriber with state, on a device; attaches to the nearest access point in range.

    Messages published before it is attached are not received (see :class:`PublishServer`); those published
    before its first policy has arrived are delivered unchanged.

    Parameters
    ----------
    device : Host
        The device; its context has the width of its display (``display_px``).
    net : PublishServer
        Publish server of the same lab.
    report_s : float
        Shortest interval between reports of automatic variables, seconds.
    change_share : float
        Smallest relative change since the last report that causes another one.

    Raises
    ------
    ParameterError
        ``device`` or ``net`` is of another type, or a number is out of range.

    Examples
    --------
    >>> from mudkit import Lab
    >>> from mudkit.systems.sublim.study import picu
    >>> lab = Lab(seed=7)
    >>> net = PublishServer(lab)
    >>> point = AccessPoint(lab, net)
    >>> doctor = Subscriber(lab.device("doctor-pda", link="wifi"), net)
    >>> doctor.set_policy(picu(patients=[7])).result()
    >>> number = net.publish({"patient": 7, "pulse": 48}).result()
    >>> lab.run(seconds=5)
    >>> doctor.read().result()
    [{'patient': 7, 'pulse': 48}]
    """

    def __init__(
        self,
        device: Host,
        net: PublishServer,
        *,
        report_s: Annotated[float, Range(0.0, 1e6)] = 10.0,
        change_share: Annotated[float, Range(0.0, 10.0)] = 0.05,
    ) -> None:
        self.net = net
        self.name = device.name
        self.policy: AnyPolicy | None = None
        every_us = round(report_s * 1e6)
        share = change_share
        self.installed: Installed = device.install(
            NAME,
            lambda ports: ClientMachine(ports, device.name, net.sites, every_us, share),
            name=_PORT,
            watch=("loc", "battery_share", "bandwidth_kbps"),
        )

    def _own_facts(self) -> dict[str, Value]:
        """Return the name of the policy, for the display."""
        return {"policy": None if self.policy is None else self.policy.name}

    def set_policy(self, policy: AnyPolicy) -> Operation:
        """Set the ``policy`` (the paper's ``setPolicy``); done when the access point has it.

        Handled by :meth:`~mudkit.systems.sublim.device.ClientMachine._set_policy`.

        Messages decided before arrive as decided. The new policy starts with its own initial variables.

        Raises
        ------
        PolicyError
            The checker refuses the policy; from ``result()``: the access point's own check does.
        """
        if isinstance(policy, FunctionPolicy):
            key = f"{policy.name} of {self.name}"
            self.net.functions[key] = policy
            sent: PolicyText = {"function": key}
        else:
            sent = validate(policy).to_dict()
        self.policy = policy
        return self.installed.call(InstallPolicy(sent))

    def read(self) -> Operation:
        """Return the messages received since the last read: a list, empty before it is attached.

        Handled by :meth:`~mudkit.systems.sublim.device.ClientMachine._read`.

        Each has an attribute ``id``: a message that a kill prevented from being returned is returned again.
        """
        return self.installed.call(Read())

    def on_message(self, callback: Callable[[Body], None]) -> None:
        """Call ``callback`` with each message on arrival.

        If the device is killed before the callback, it is called after the restart; if this repeats a
        message, ``message.id`` is the same.
        """
        self.installed.listen(APP, callback)

    def on_problem(self, callback: Callable[[str], None]) -> None:
        """Call ``callback`` with the reason when the policy fails for the first time."""
        self.installed.listen(PROBLEMS, callback)

    def state(self) -> SubscriberState:
        """Return the state at its access point: ``variables``, ``automatic``, and the position in the log.

        Raises
        ------
        ParameterError
            No access point serves it now.
        """
        for point in self.net.access_points:
            with suppress(OperationLost):  # this access point is down
                if (state := point.state(self.name)) is not None:
                    return state
        raise ParameterError(
            "No access point serves this subscriber now.",
            where="subscriber",
            found=self.name,
            remedy="let time go on (lab.run) until it is attached",
        )


@check_arguments
class PlainSubscriber(OnHost):
    """Subscriber without state: receives the messages that match a predicate; missed messages are lost.

    Parameters
    ----------
    device : Host
    net : PublishServer
        Publish server of the same lab.
    predicate : str
        Condition on messages, for instance ``"message.pulse < 50"``.

    Raises
    ------
    ParameterError
        ``device`` or ``net`` is of another type.
    PredicateError
        ``predicate`` is not a predicate over a message.
    """

    def __init__(self, device: Host, net: PublishServer, predicate: str) -> None:
        Predicate.parse(predicate, language=LANGUAGE)
        self.name = device.name
        self.installed: Installed = device.install(
            NAME,
            lambda ports: PlainClientMachine(ports, device.name, net.sites, predicate),
            name=_PORT,
            watch=("loc",),
        )

    def read(self) -> Operation:
        """Return the messages received since the last read.

        Handled by :meth:`~mudkit.systems.sublim.device.PlainClientMachine.handle`.
        """
        return self.installed.call(Read())

    def on_message(self, callback: Callable[[Body], None]) -> None:
        """Call ``callback`` with each message on arrival."""
        self.installed.listen(APP, callback)


@check_arguments
def explain(message: Fields, subscriber: Subscriber) -> Explanation:
    """Explain what a subscriber's policy would do with a message now; changes nothing.

    Parameters
    ----------
    message : mapping
        Fields, as they would be published.
    subscriber : Subscriber

    Raises
    ------
    ParameterError
        The subscriber has no policy, or no access point serves it now.
    """
    if subscriber.policy is None:
        raise ParameterError(
            "This subscriber has no policy.",
            where="subscriber",
            found=subscriber.name,
            expected="a policy that was set",
            remedy="subscriber.set_policy(…).result()",
        )
    state, lab = subscriber.state(), subscriber.net.lab
    now_s = (lab.start_us + state["now_us"]) / 1e6
    given = message, state["variables"], state["automatic"], now_s
    return Explanation(subscriber.policy.decide(*given), subscriber.policy.explain(*given))


def _build_publish(message: Fields, item: str | None) -> Publish:
    """Return the operation that publishes a message; raise ParameterError if it cannot be sent."""
    if item == "":
        raise ParameterError(
            "Expected the name of an item.", where="item", found=brief(item), expected="a text"
        )
    try:
        body = create_message(message)  # a copy, not changed later
        check_bytes(body, "the message")
    except (LimitExceeded, RecursionError) as error:
        raise ParameterError(
            "A message cannot be sent.",
            where="message",
            found=str(error),
            expected="what JSON can hold, and bytes",
        ) from error
    return Publish(body, item)
