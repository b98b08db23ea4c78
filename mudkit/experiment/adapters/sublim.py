"""SUBLIM as experiments run it: the access point drops what a policy does not let through (3, 4).

What a subscriber says of herself is state; where she is she sets anew, with the policy, when she has moved.
How items come to the publish server the paper does not say (see
:class:`~mudkit.experiment.adapters.store_and_forward.Uplink`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from mudkit.experiment.adapters.hop import BaseHop, Batch, OnBatch, Way, text_of
from mudkit.experiment.adapters.store_and_forward import Uplink
from mudkit.experiment.tasks import Interest, Item
from mudkit.experiment.testbed import Testbed
from mudkit.systems.sublim import AccessPoint, Policy, PublishServer, Rule, Subscriber
from mudkit.systems.sublim._policy.actions import Drop
from mudkit.systems.sublim.api import NAME

__all__ = ["Sublim", "SublimAdapter", "SublimHop", "as_state", "not_wanted"]


class Sublim:
    """The system as :func:`mudkit.experiment.run` runs it: an access point for all, and a subscriber each.

    Each device's policy lets through what is for it.

    Parameters
    ----------
    testbed : Testbed
    rules : sequence of Rule
        What is done with what is for a device; by default it is sent as it is. A message has the fields
        ``to`` and ``text``.
    """

    name: Final = NAME

    def __init__(self, testbed: Testbed, rules: Sequence[Rule] = (Rule(),)) -> None:
        lab = testbed.lab
        self._net = PublishServer(lab)
        AccessPoint(lab, self._net)
        self._subscribers = {name: Subscriber(device, self._net) for name, device in lab.devices.items()}
        others = Rule("coalesce(message.to <> state.me, TRUE)", Drop(), "for others")
        for name, subscriber in self._subscribers.items():
            subscriber.set_policy(Policy("mine", [others, *rules], variables={"me": name}))

    def publish(self, item: Item) -> None:
        """Publish an item for its receivers; its sender does not matter here."""
        for receiver in item.about["to"]:
            self._net.publish({"to": receiver, "text": item.filler}, item.name)

    def moved(self, phone: str) -> None:
        """Do nothing: places do not matter."""

    def look(self, phone: str) -> None:
        """Read what has arrived."""
        self._subscribers[phone].read()


def not_wanted(want: Interest) -> Rule:
    """Give the rule that drops what its subscriber (``state.me``) does not want, or has published herself."""
    return Rule(f"coalesce(NOT ({want.over_state()}) OR message.who = state.me, TRUE)", Drop(), "not wanted")


def as_state(phone: str, about: Mapping[str, Any]) -> dict[str, Any]:
    """Give what a phone says of itself as variables of a policy, where a place is a table."""
    state = {**about, "me": phone}
    if "loc" in about:
        state["loc"] = dict(zip(("lat", "lon"), about["loc"], strict=True))
    return state


class SublimAdapter:
    """A publish server, an access point for all, and their subscribers.

    Parameters
    ----------
    testbed : Testbed
        The phones, and who wants what.
    rules : sequence of Rule
        What is done with what is wanted; by default it is sent as it is.
    """

    name: Final = "SUBLIM"
    cannot: Final[Mapping[str, str]] = {
        "traffic alerts": "The system does not keep places: who moves sets her policy anew.",
        "friends nearby": "The system does not keep places: who moves sets her policy anew.",
        "news with ranks": "The access point does not know when she looks: all that is wanted comes.",
        "photo sharing": "The access point reads every photograph.",
    }
    """What its paper cannot say, by the name of the task."""

    def __init__(self, testbed: Testbed, rules: Sequence[Rule] = (Rule(),)) -> None:
        self._testbed, self._rules = testbed, rules
        self._up = Uplink(testbed, self._publish)
        self._net = PublishServer(testbed.lab)
        AccessPoint(testbed.lab, self._net)
        self._subscribers = {
            phone: Subscriber(testbed.lab.devices[phone], self._net) for phone in testbed.phones
        }
        self._others = not_wanted(testbed.task.want)
        for phone, subscriber in self._subscribers.items():
            subscriber.on_message(partial(self._come, phone))
            self.moved(phone)

    def publish(self, item: Item) -> None:
        """Send it to the publish server."""
        self._up.send(item)

    def moved(self, phone: str) -> None:
        """Set the policy, with what the subscriber says of herself now."""
        variables = as_state(phone, self._testbed.about(phone))
        self._subscribers[phone].set_policy(
            Policy("wanted", [self._others, *self._rules], variables=variables)
        )

    def look(self, phone: str) -> None:
        """Show what has come."""
        self._testbed.show(phone)

    def _publish(self, item: Item) -> None:
        self._net.publish({**item.about, "called": item.name, "text": item.content}, item.name)

    def _come(self, phone: str, message: Any) -> None:
        self._testbed.arrived(phone, message["called"])


class SublimHop(BaseHop):
    """SUBLIM: an access point with a policy for each phone.

    Parameters
    ----------
    way : Way
    on_batch : callable
    rules : sequence of Rule
        What is done with what is for a phone.
    drops : bool
        Whether what a phone does not want is dropped first; then only single items can be sent.
    """

    def __init__(
        self, way: Way, on_batch: OnBatch, rules: Sequence[Rule] = (Rule(),), *, drops: bool = False
    ) -> None:
        super().__init__(way, on_batch)
        others = Rule("coalesce(message.to <> state.me, FALSE)", Drop(), "for others")
        self._drops = self.listens = drops
        self._rules = [others, *([not_wanted(way.testbed.task.want)] if drops else []), *rules]
        self._up = Uplink(way.testbed, self._publish_for_all) if way.is_first else None
        self._net = PublishServer(way.testbed.lab)
        AccessPoint(way.testbed.lab, self._net)
        self._subscribers = {phone: Subscriber(host, self._net) for phone, host in way.ends.items()}
        for phone, subscriber in self._subscribers.items():
            subscriber.on_message(partial(self._message, phone))
            self._set_policy(phone, way.testbed.about(phone))

    def send(self, source: str, batch: Batch) -> None:
        """Publish it for the phone; of a first hop for all, when it has come up."""
        if self._up is None:
            self._publish({"to": source}, batch)
        else:
            self._up.send(batch[0])

    def moved(self, phone: str, about: Mapping[str, Any]) -> None:
        """Set the policy again, if what the phone says of itself matters to it."""
        if self._drops:
            self._set_policy(phone, about)

    def _set_policy(self, phone: str, about: Mapping[str, Any]) -> None:
        variables = as_state(phone, about if self._drops else {})
        self._subscribers[phone].set_policy(Policy("limited", self._rules, variables=variables))

    def _publish_for_all(self, item: Item) -> None:
        self._publish({}, (item,))

    def _publish(self, to: Mapping[str, str], batch: Batch) -> None:
        name = self._note(batch)
        about = batch[0].about if self._drops else {}
        self._net.publish({**about, **to, "called": name, "text": text_of(batch)}, name)

    def _message(self, phone: str, message: Any) -> None:
        self._out(phone, message["called"])
