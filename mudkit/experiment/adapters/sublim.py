"""SUBLIM in experiments: the access point drops what a policy does not let through (3, 4).

Each sender has a publisher. What a subscriber says of herself is state of her policy; a phone that has moved
sets its policy anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final

from mudkit.checks import check_arguments
from mudkit.experiment.adapters.system import Batch, Part, System, Way, text_of
from mudkit.experiment.tasks import Interest, Item
from mudkit.experiment.testbed import Testbed
from mudkit.systems.sublim import AccessPoint, Policy, Publisher, PublishServer, Rule, Subscriber
from mudkit.systems.sublim._policy.actions import Drop

_FOR_OTHERS: Final = Rule("coalesce(message.to <> state.me, FALSE)", Drop(), "for others")


@check_arguments(types=False)
class Sublim(System):
    """A publish server, an access point, and a subscriber on each phone.

    Its policy drops what its user does not want.

    Parameters
    ----------
    testbed : Testbed
    """

    label: ClassVar = "SUBLIM"
    unsupported: ClassVar = {
        "traffic alerts": "The system does not keep places: a phone that moves sets its policy anew.",
        "friends nearby": "The system does not keep places: a phone that moves sets its policy anew.",
        "news with ranks": "The access point does not know when a user looks: all that is wanted comes.",
        "photo sharing": "The access point reads every photograph.",
    }

    def __init__(self, testbed: Testbed) -> None:
        super().__init__(testbed)
        self._rules = [not_wanted(self._task.interest), Rule()]
        self._net = PublishServer(self._lab)
        AccessPoint(self._lab, self._net)
        devices = self._lab.devices
        self._publishers = {name: Publisher(devices[name], self._net) for name in testbed.senders}
        self._subscribers = {phone: Subscriber(devices[phone], self._net) for phone in testbed.phones}
        for phone, subscriber in self._subscribers.items():
            subscriber.on_message(partial(self._receive, phone))
            self.on_move(phone)

    def publish(self, item: Item) -> None:
        """Publish an item on its sender, for all."""
        self._publishers[item.sender].publish(
            {**item.metadata, "called": item.name, "text": item.content}, item.name
        )

    def on_move(self, phone: str) -> None:
        """Set the policy of a phone again, with its current profile."""
        state = as_state(phone, self._testbed.profile(phone))
        self._subscribers[phone].set_policy(Policy("wanted", self._rules, variables=state))


@check_arguments(types=False)
class SublimPart(Part):
    """A publish server, an access point, and a subscriber at each end, whose policy has the rules.

    Parameters
    ----------
    way : Way
    rules : sequence of Rule
        Rules for what is for a phone; by default it is sent as it is.
    drop_unwanted : bool
        Whether what a phone does not want is dropped, too; then batches are single items.
    """

    def __init__(self, way: Way, rules: Sequence[Rule] = (Rule(),), *, drop_unwanted: bool = False) -> None:
        super().__init__(way)
        self.listens = drop_unwanted
        unwanted = [not_wanted(self._task.interest)] if drop_unwanted else []
        self._rules = [_FOR_OTHERS, *unwanted, *rules]
        self._net = PublishServer(self._lab)
        AccessPoint(self._lab, self._net)
        self._publishers = (
            {name: Publisher(host, self._net) for name, host in way.sources.items()} if way.is_first else {}
        )
        self._subscribers = {phone: Subscriber(host, self._net) for phone, host in way.ends.items()}
        for phone, subscriber in self._subscribers.items():
            subscriber.on_message(partial(self._receive, phone))
            self._set_policy(phone, self._testbed.profile(phone))

    def send(self, source: str, batch: Batch) -> None:
        """Publish a batch at the server, for its phone; or in a first part on its sender, for all."""
        name = self._store_batch(batch)
        metadata = batch[0].metadata if self.listens else {}
        to = {} if self._way.is_first else {"to": source}
        publisher = self._publishers[source] if self._way.is_first else self._net
        publisher.publish({**metadata, **to, "called": name, "text": text_of(batch)}, name)

    def on_move(self, phone: str, profile: Mapping[str, Any]) -> None:
        """Set the policy of a phone again if it depends on the phone's profile."""
        if self.listens:
            self._set_policy(phone, profile)

    def _set_policy(self, phone: str, profile: Mapping[str, Any]) -> None:
        """Set the policy of a phone, with its profile if the policy depends on it."""
        variables = as_state(phone, profile if self.listens else {})
        self._subscribers[phone].set_policy(Policy("limited", self._rules, variables=variables))


def not_wanted(want: Interest) -> Rule:
    """Return the rule that drops what its subscriber (``state.me``) does not want, or has published."""
    return Rule(f"coalesce(NOT ({want.over_state()}) OR message.who = state.me, TRUE)", Drop(), "not wanted")


def as_state(phone: str, profile: Mapping[str, Any]) -> dict[str, Any]:
    """Return the variables of a phone's policy for what the phone reports; a place is a table."""
    state = {**profile, "me": phone}
    if "loc" in profile:
        state["loc"] = dict(zip(("lat", "lon"), profile["loc"], strict=True))
    return state
