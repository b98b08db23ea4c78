"""What a notebook holds of SUBLIM: the publish server, access points, and subscribers on their devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Annotated, Final, TypeAlias

from mudkit.arguments import check_arguments, check_calls
from mudkit.errors import OperationLost, ParameterError, brief
from mudkit.events import Host, Installed, Make, Network, Operation
from mudkit.predicates import Predicate
from mudkit.sources.parameters import number, of_kind
from mudkit.systems.arguments import check_device, check_lab
from mudkit.systems.displays import OnHost
from mudkit.systems.sublim._policy.function import FunctionPolicy
from mudkit.systems.sublim._policy.message import create_message
from mudkit.systems.sublim._policy.state import Beyond, checked_bytes
from mudkit.systems.sublim._policy.verdict import Explanation
from mudkit.systems.sublim.check.checker import checked
from mudkit.systems.sublim.device import APP, PROBLEMS, ClientMachine, PlainClientMachine
from mudkit.systems.sublim.messages import (
    Body,
    InstallPolicy,
    PolicyText,
    Publish,
    Read,
    ReadState,
    Served,
)
from mudkit.systems.sublim.servers.access_point import AccessPointMachine
from mudkit.systems.sublim.servers.agent import AnyPolicy
from mudkit.systems.sublim.servers.plain_access_point import LANGUAGE, PlainAccessPointMachine
from mudkit.systems.sublim.servers.publish_server import PublishServerMachine
from mudkit.systems.sublim.sites import Site
from mudkit.wire import Fields, Value

__all__ = ["NAME", "AccessPoint", "PlainSubscriber", "PublishServer", "Subscriber", "explain"]

NAME: Final = "sublim"
_PORT: Final = "sublim"

_Place: TypeAlias = Annotated[tuple[float, float], "(lat, lon) in degrees"]


@check_calls
class PublishServer(OnHost):
    """The publish server of a lab.

    A message is for those whom an access point serves when it is published: "an arrived event is triggered at
    every connected participant" (section 4). Nothing is kept for those who attach for the first time later
    (WiFi takes two seconds to associate), and the deliveries have no row of them: only a policy, by the state
    that its subscriber has then, could say that the message was for them. A run of an experiment, which knows
    for whom an item is, has the row, as lost. A policy holds once the access point has it: wait with
    ``set_policy(…).result()`` before publishing what it is to decide about.

    Parameters
    ----------
    lab : Network
    name : str
        The name of the server.

    Raises
    ------
    ParameterError
        It is given no lab, or the name of a device.
    """

    def __init__(self, lab: Network, name: str = "publish-server") -> None:
        check_lab(lab)
        self.lab = lab
        self.sites: list[Site] = []
        self.access_points: list[AccessPoint] = []
        self.functions: dict[str, FunctionPolicy] = {}
        """Policies that are functions, by the name under which they were set."""
        self.installed = lab.server(name).install(
            NAME, lambda ports: PublishServerMachine(ports, lab.start_us, self.sites), name=_PORT
        )

    def _own_facts(self) -> dict[str, Value]:
        return {"access points": len(self.access_points)}

    def publish(self, message: Fields, item: str | None = None) -> Operation:
        """Publish a message for all subscribers that are served by now; their policies decide.

        Parameters
        ----------
        message : mapping of str to object
            What JSON can hold, and bytes.
        item : str, optional
            What the deliveries call it; by default a number.

        Returns
        -------
        Operation
            The operation, which gives the message's number.
        """
        if not _is_named(message):
            raise ParameterError(
                "A message has named fields.",
                where="message",
                found=brief(message, 80),
                expected='a mapping such as {"patient": 7, "pulse": 48}',
            )
        given: Value = item
        if given is not None and (not isinstance(given, str) or not given):
            raise ParameterError(
                "This is no name of an item.", where="item", found=brief(item), expected="a text"
            )
        try:
            body = create_message(message)  # nobody changes it later
            checked_bytes(body, "the message")
        except (Beyond, RecursionError) as error:
            raise ParameterError(
                "A message cannot be sent.",
                where="message",
                found=str(error),
                expected="what JSON can hold, and bytes",
            ) from error
        return self.installed.call(Publish(body, item))


@check_calls
class AccessPoint(OnHost):
    """An access point.

    Parameters
    ----------
    lab : Network
    net : PublishServer
    at : (float, float), optional
        Latitude and longitude, degrees; without, it is in reach of everybody.
    range_m : float
    name : str, optional
        The name of its server.
    stateful : bool
        Whether it has SUBLIM; without, it serves only subscribers without state.

    Raises
    ------
    ParameterError
        It is given no lab or no publish server, or its place or range is none.
    """

    def __init__(
        self,
        lab: Network,
        net: PublishServer,
        at: _Place | None = None,
        range_m: float = 100.0,
        *,
        name: str | None = None,
        stateful: bool = True,
    ) -> None:
        check_lab(lab)
        _check_server(net)
        range_m = number("range_m", range_m, 0.0, 1e6)
        if at is not None:
            at = number("at[0]", at[0], -90.0, 90.0), number("at[1]", at[1], -180.0, 180.0)
        self.name = name or f"access-point-{len(net.access_points) + 1}"
        server = net.installed.address
        make: Make = partial(PlainAccessPointMachine, server=server)
        if stateful:
            make = partial(AccessPointMachine, server=server, functions=net.functions, sites=net.sites)
        self.installed: Installed = lab.server(self.name).install(NAME, make, name=_PORT)
        net.access_points.append(self)
        net.sites.append(Site(self.installed.address, at, range_m, stateful))

    def state(self, subscriber: str) -> Served | None:
        """Tell what it keeps of a subscriber; None: another one serves it."""
        state: Served | None = self.installed.call(ReadState(subscriber)).result()
        return state


@check_calls
class Subscriber(OnHost):
    """The user of a device: it attaches to the best access point in range.

    That takes a moment of virtual time. What is published before comes neither to :meth:`read` nor, as lost,
    into the deliveries of a lab (see :class:`PublishServer`); what is published after that and before the
    first policy has arrived comes as it is. ``set_policy(…).result()`` runs the lab until the access point
    has the policy.

    Parameters
    ----------
    device : Host
        What it says of its display is in its context: ``display_px``.
    net : PublishServer
    report_s : float
        Automatic variables are reported no more often.
    change_share : float
        Nor when they have changed by less, of what was reported last.

    Raises
    ------
    ParameterError
        It is given no device or no publish server, or a parameter is out of range.

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
        self, device: Host, net: PublishServer, *, report_s: float = 10.0, change_share: float = 0.05
    ) -> None:
        check_device(device)
        _check_server(net)
        self.net = net
        self.name = device.name
        self.policy: AnyPolicy | None = None
        every_us = round(number("report_s", report_s, 0.0, 1e6) * 1e6)
        share = number("change_share", change_share, 0.0, 10.0)
        self.installed: Installed = device.install(
            NAME,
            lambda ports: ClientMachine(ports, device.name, net.sites, every_us, share),
            name=_PORT,
            watch=("loc", "battery_share", "bandwidth_kbps"),
        )

    def _own_facts(self) -> dict[str, Value]:
        return {"policy": None if self.policy is None else self.policy.name}

    def set_policy(self, policy: AnyPolicy) -> Operation:
        """Let a policy decide; it does so once the access point has it (the paper's ``setPolicy``).

        The operation is done then: publish after its ``.result()``. What was decided before and is still
        under way arrives as it was decided. The new policy begins with its own first variables.

        Returns
        -------
        Operation
            The operation, which gives nothing; it fails with the PolicyError of the access point's own check.

        Raises
        ------
        PolicyError
            The checker refuses it.
        """
        if isinstance(policy, FunctionPolicy):
            key = f"{policy.name} of {self.name}"
            self.net.functions[key] = policy
            sent: PolicyText = {"function": key}
        else:
            sent = checked(policy).describe()
        self.policy = policy
        return self.installed.call(InstallPolicy(sent))

    def read(self) -> Operation:
        """Read what has come since the last time: a list of messages, empty also before it is attached."""
        return self.installed.call(Read())

    def on_message(self, callback: Callable[[Body], None]) -> None:
        """Call ``callback`` with each message when it comes."""
        self.installed.listen(APP, callback)

    def on_problem(self, callback: Callable[[str], None]) -> None:
        """Call ``callback`` with the reason when the policy was stopped for the first time."""
        self.installed.listen(PROBLEMS, callback)

    def state(self) -> Served:
        """Give what the access point keeps of it: ``variables``, ``automatic`` and what belongs to them.

        Raises
        ------
        ParameterError
            No access point serves it now.
        """
        for point in self.net.access_points:
            with suppress(OperationLost):  # it is dead: if it serves this subscriber, nobody does now
                if (state := point.state(self.name)) is not None:
                    return state
        raise ParameterError(
            "No access point serves this subscriber now.",
            where="subscriber",
            found=self.name,
            remedy="let time go on (lab.run) until it is attached",
        )


@check_calls
class PlainSubscriber(OnHost):
    """A subscriber without state: a predicate over the message decides, and what it misses is lost.

    Parameters
    ----------
    device : Host
    net : PublishServer
    predicate : str
        Condition on messages, for instance ``"message.pulse < 50"``.

    Raises
    ------
    ParameterError
        The device or the publish server is of another type.
    PredicateError
        The text is no predicate over a message.
    """

    def __init__(self, device: Host, net: PublishServer, predicate: str) -> None:
        check_device(device)
        _check_server(net)
        Predicate.parse(predicate, language=LANGUAGE)
        self.name = device.name
        self.installed: Installed = device.install(
            NAME,
            lambda ports: PlainClientMachine(ports, device.name, net.sites, predicate),
            name=_PORT,
            watch=("loc",),
        )

    def read(self) -> Operation:
        """Read what has come since the last time: a list of messages."""
        return self.installed.call(Read())

    def on_message(self, callback: Callable[[Body], None]) -> None:
        """Call ``callback`` with each message when it comes."""
        self.installed.listen(APP, callback)


@check_arguments
def explain(message: Fields, subscriber: Subscriber) -> Explanation:
    """Explain what a subscriber's policy would do with a message now; nothing is changed.

    Parameters
    ----------
    message : mapping
        As it would be published now.
    subscriber : Subscriber
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


def _check_server(given: PublishServer) -> None:
    of_kind("net", given, PublishServer, expected="the publish server, such as PublishServer(lab)")


def _is_named(message: Value) -> bool:
    return isinstance(message, Mapping) and all(isinstance(name, str) for name in message)
