"""A task: what a fleet is to be told, whatever the system that does it."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from mudkit.errors import ParameterError, did_you_mean
from mudkit.experiment.scenario import Scenario
from mudkit.experiment.tasks.interest import Interest
from mudkit.sources.parameters import number, whole_number

__all__ = ["SETTLE_S", "Item", "Says", "Task", "Tells", "called"]

SETTLE_S: Final = 600.0
"""So long a run goes on after its scenario's hours: nothing is published any more, and what waits is sent."""
_OF_RUNS: Final = {
    "battery_j": "the measure battery_h tells the hours of a battery; mudkit.experiment.run has empty ones",
    "queries": "leave them out; mudkit.experiment.run has them",
}
"""Parameters of a scenario that no task has."""


class Item(NamedTuple):
    """Something that is published.

    Parameters
    ----------
    name : str
        No other item of the run has it.
    sender : str
        A phone, or a feed.
    about : mapping of str to object
        What there is to say of it: wants are over this. Always with ``who`` (the sender) and ``rank``.
    size_bytes : int
        The size of its content, in bytes.
    expires_s : float or None
        How long it is of use.
    """

    name: str
    sender: str
    about: Mapping[str, Any]
    size_bytes: int
    expires_s: float | None

    @property
    def content(self) -> str:
        """Its content: letters that nothing compresses by more than their six bits each."""
        drawn = hashlib.shake_256(self.name.encode()).digest(-(-self.size_bytes * 3 // 4))
        return base64.b64encode(drawn).decode()[: self.size_bytes]

    @property
    def text(self) -> str:
        """All of it as one text, for systems that pass on texts: JSON, see :func:`called`."""
        return msgspec.json.encode({"called": self.name, **self.about, "text": self.content}).decode()


def called(text: str) -> str:
    """Give the name of the item whose :attr:`Item.text` this is."""
    return str(msgspec.json.decode(text)["called"])


Tells: TypeAlias = Callable[[int, str, int, "tuple[float, float] | None"], Mapping[str, Any]]
"""What there is to say of an item: of the seed, its sender, its number and where the sender is."""
Says: TypeAlias = Callable[[int, Sequence[str], Sequence[str]], Sequence[Mapping[str, Any]]]
"""What the readers say of themselves: of the seed, the phones and the senders; one a phone."""


@dataclass(frozen=True)
class Task:
    """What a fleet is to be told, and when somebody looks.

    Parameters
    ----------
    name : str
    question : str
        What it is about, in one sentence.
    wants : str
        Which item is of use for whom, see :class:`Interest`; judged when the item is published.
    scenario : Scenario
        The phones, and when items are published; ``receivers`` does not matter here.
    tells, says : callable
        What items are about, and what readers say of themselves.
    feeds : int
        The number of senders that are no phones: they are always connected, and drain nobody's battery. 0:
        the phones send.
    is_shown : bool
        Whether an item is seen as it comes; else the phone's user looks, as ``scenario.reads`` has it.
    most : int or None
        Items that a user looks at in one go, the highest ranks first; None: all.
    renew_s, renew_km : float
        A phone whose want has its place in it says again where it is after so long, if it has moved so far.
    """

    name: str
    question: str
    wants: str
    scenario: Scenario
    tells: Tells
    says: Says
    feeds: int = 0
    is_shown: bool = True
    most: int | None = None
    renew_s: float = 300.0
    renew_km: float = 0.3
    want: Interest = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "want", Interest(self.wants))
        whole_number("feeds", self.feeds, 0, 10_000)
        number("renew_s", self.renew_s, 1.0, 1e6)
        number("renew_km", self.renew_km, 0.0, 1e4)
        if self.most is not None:
            whole_number("most", self.most, 1, 1 << 31)
        for name in _OF_RUNS:
            usual = next(each.default for each in fields(Scenario) if each.name == name)
            if getattr(self.scenario, name) != usual:
                raise ParameterError(
                    f"The scoreboard does not use {name}.",
                    where="scenario",
                    found=repr(getattr(self.scenario, name)),
                    expected=repr(usual),
                    remedy=_OF_RUNS[name],
                )
        if self.want.moves and self.scenario.mobility is None:
            raise ParameterError(
                "A want names a place, and these phones have none.",
                where="scenario",
                found="mobility=None",
                expected="a mobility",
            )

    def over(self, **changes: Any) -> Task:
        """Give the same task over another scenario, for instance ``devices=200, hours=24``.

        Parameters
        ----------
        **changes
            Parameters of :class:`~mudkit.experiment.Scenario` that are to be others.

        Raises
        ------
        ParameterError
            A scenario has no such parameter, or cannot have this value.
        """
        known = [each.name for each in fields(Scenario)]
        for name in changes:
            if name not in known:
                raise ParameterError(
                    f"A scenario has no parameter {name!r}.",
                    where=name,
                    found=repr(changes[name])[:120],
                    expected="one of " + ", ".join(known),
                    remedy=did_you_mean(name, known),
                )
        return replace(self, scenario=replace(self.scenario, **changes))

    def describe(self) -> dict[str, str]:
        """Say everything that shapes a run, in words."""
        left_out = {"receivers", *_OF_RUNS}
        seen = "as it comes" if self.is_shown else f"when the user looks, {self.most or 'all'} in one go"
        return {
            "task": self.name,
            "wants": self.wants,
            "feeds": str(self.feeds),
            "seen": seen,
            "settles": f"{SETTLE_S / 60:g} minutes after its hours",
            **{name: text for name, text in self.scenario.describe().items() if name not in left_out},
        }
