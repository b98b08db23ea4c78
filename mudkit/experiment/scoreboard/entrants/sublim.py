"""A task as SUBLIM does it: the access point drops what its subscriber's policy does not let through (3, 4).

What a subscriber says of herself is state; where she is she sets anew, with the policy, when she has moved.
How items come to the publish server the paper does not say (see :class:`Uplink`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from mudkit.experiment.scoreboard.entrants.uplink import Uplink
from mudkit.experiment.scoreboard.interest import Interest
from mudkit.experiment.scoreboard.task import Item
from mudkit.experiment.scoreboard.testbed import Testbed
from mudkit.systems.sublim import AccessPoint, Policy, PublishServer, Rule, Subscriber
from mudkit.systems.sublim.policy.actions import Drop

__all__ = ["Sublim", "as_state", "not_wanted"]


def not_wanted(want: Interest) -> Rule:
    """Give the rule that drops what its subscriber (``state.me``) does not want, or has published herself."""
    return Rule(f"coalesce(NOT ({want.over_state()}) OR message.who = state.me, TRUE)", Drop(), "not wanted")


def as_state(phone: str, about: Mapping[str, Any]) -> dict[str, Any]:
    """Give what a phone says of itself as variables of a policy, where a place is a table."""
    state = {**about, "me": phone}
    if "loc" in about:
        state["loc"] = dict(zip(("lat", "lon"), about["loc"], strict=True))
    return state


class Sublim:
    """A publish server, an access point for all, and their subscribers.

    Parameters
    ----------
    stage : Testbed
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

    def __init__(self, stage: Testbed, rules: Sequence[Rule] = (Rule(),)) -> None:
        self._stage, self._rules = stage, rules
        self._up = Uplink(stage, self._publish)
        self._net = PublishServer(stage.lab)
        AccessPoint(stage.lab, self._net)
        self._subscribers = {phone: Subscriber(stage.lab.devices[phone], self._net) for phone in stage.phones}
        self._others = not_wanted(stage.task.want)
        for phone, subscriber in self._subscribers.items():
            subscriber.on_message(partial(self._come, phone))
            self.moved(phone)

    def publish(self, item: Item) -> None:
        """Send it to the publish server."""
        self._up.send(item)

    def moved(self, phone: str) -> None:
        """Set the policy, with what the subscriber says of herself now."""
        variables = as_state(phone, self._stage.about(phone))
        self._subscribers[phone].set_policy(
            Policy("wanted", [self._others, *self._rules], variables=variables)
        )

    def look(self, phone: str) -> None:
        """Show what has come."""
        self._stage.show(phone)

    def _publish(self, item: Item) -> None:
        self._net.publish({**item.about, "called": item.name, "text": item.content}, item.name)

    def _come(self, phone: str, message: Any) -> None:
        self._stage.arrived(phone, message["called"])
