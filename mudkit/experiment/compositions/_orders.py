"""Which orders of two systems keep what the systems promise: checked on small random stories."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mudkit.errors import ParameterError
from mudkit.experiment.adapters import ContrailHop, LastHopHop, MudHop, RadiatorHop, SublimHop
from mudkit.experiment.adapters.hop import MakeHop
from mudkit.experiment.adapters.meaning import RULES
from mudkit.experiment.compositions._traces import Trace, smaller, traces
from mudkit.experiment.compositions.chain import AtTheEnds, Chain, Logged
from mudkit.experiment.compositions.promises import (
    ALL,
    HIDDEN,
    PEOPLE,
    PER_DAY,
    PROMISES,
    RADIO,
    READ,
    RELAY,
    SEEN_PER_DAY,
    SEEN_SPACED,
    SEEN_SPACED_PER_DAY,
    SPACING_S,
    TOO_MANY,
    TOO_SOON,
    UNSEEN,
    Played,
    clock,
    tell,
)
from mudkit.experiment.tasks import Testbed
from mudkit.sources.parameters import whole_number
from mudkit.systems.radiator import People, Time
from mudkit.systems.sublim import Rule
from mudkit.systems.sublim._policy.actions import Every

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ALONE", "PAIRS", "SAME", "Order", "commuting", "orders"]

ALONE: Final = "one system alone"
SAME: Final = "the same is shown as in the first order"
_WAIT_S: Final = 1800.0
_LIMITED: Final = (Rule(None, Every(float(SPACING_S)), "limited"),)
_COLUMNS: Final = (
    "composition",
    "order",
    "promise",
    "held",
    "scenarios",
    "messages",
    "broken",
    "counterexample",
)


class _System(NamedTuple):
    """A system as it stands in a pair, and what it promises whatever stands beside it."""

    does: str
    make: MakeHop
    promises: tuple[str, ...]


class Order(NamedTuple):
    """One order of a pair.

    Parameters
    ----------
    make : callable
        Makes the adapter from its testbed.
    promises : tuple of str
        What it is to keep, of :data:`~mudkit.experiment.compositions.promises.PROMISES`.
    hides : bool
        Whether writers hide anything in its stories: where no system has writer predicates, they do not.
    """

    make: Callable[[Testbed], Logged]
    promises: tuple[str, ...]
    hides: bool


_SYSTEMS: Final[dict[str, _System]] = {
    "MUD": _System("writer predicates", MudHop, (HIDDEN,)),
    "Last hop": _System("a daily limit", partial(LastHopHop, per_day=PER_DAY), (TOO_MANY,)),
    "SUBLIM": _System("a rate limit", partial(SublimHop, rules=_LIMITED), (TOO_SOON,)),
    "Contrail": _System("sealing", ContrailHop, (RELAY, READ)),
    "Radiator": _System("aggregation by time", partial(RadiatorHop, until=Time(_WAIT_S)), (ALL,)),
    "Radiator of k": _System("aggregation by people", partial(RadiatorHop, until=People(PEOPLE)), (UNSEEN,)),
}
_SPENT: Final = {
    ("Last hop",): SEEN_PER_DAY,
    ("SUBLIM",): SEEN_SPACED,
    ("Last hop", "SUBLIM"): SEEN_SPACED_PER_DAY,
}
_RULES_TOLD: Final = dict(
    zip(RULES, ("all writers mean her", "a writer means her", "item by item"), strict=True)
)


def _promises(names: Sequence[str]) -> tuple[str, ...]:
    """Say what systems promise together.

    Limits are for leaving something out, and waiting for people does; so to leave nothing out is promised
    where none of these is, and by Radiator, whose paper says it of itself.
    """
    promises = [promise for name in names for promise in _SYSTEMS[name].promises]
    limits = tuple(sorted(name for name in names if name in ("Last hop", "SUBLIM")))
    if limits and not any(name.startswith("Radiator") for name in names):
        promises.append(_SPENT[limits])
    if not limits and "Radiator of k" not in names:
        promises.append(ALL)
    return tuple(dict.fromkeys(promises))


def _chained(names: Sequence[str], **last: Any) -> Order:
    hops = [_SYSTEMS[name].make for name in names]
    if last:
        hops[-1] = partial(hops[-1], **last)
    return Order(partial(Chain, hops=hops), _promises(names), "MUD" in names)


def _pairs() -> dict[str, dict[str, Order]]:
    pairs = {ALONE: {name: _chained([name]) for name in _SYSTEMS}}
    for one, other in combinations(_SYSTEMS, 2):
        if one.split()[0] == other.split()[0]:
            continue
        made = {f"{one}, then {other}": _chained([one, other])}
        if one == "MUD" and other.startswith("Radiator"):
            for rule, label in _RULES_TOLD.items():
                made[f"{other}, then MUD: {label}"] = _chained([other, one], of_several=rule)
        else:
            made[f"{other}, then {one}"] = _chained([other, one])
        if (one, other) == ("SUBLIM", "Contrail"):
            made = {f"{name}, at an access point": each for name, each in made.items()}
            for place, label in (("sender", "SUBLIM at each sender"), ("receiver", "SUBLIM on the phone")):
                ends = partial(AtTheEnds, place=place, rules=_LIMITED)
                made[f"Contrail, {label}"] = Order(ends, _promises([one, other]), hides=False)
            made = {name: each._replace(promises=(*each.promises, RADIO)) for name, each in made.items()}
        pairs[f"{_SYSTEMS[one].does} and {_SYSTEMS[other].does}"] = made
    return pairs


PAIRS: Final[dict[str, dict[str, Order]]] = _pairs()
"""By name; the first are the systems alone, each of which is to keep its own promises."""


def orders(
    compositions: Iterable[str] | None = None,
    scenarios: int = 20,
    seed: int = 0,
    *,
    map: Callable[..., Iterable[Any]] = map,  # noqa: A002 - the name of what it stands for
) -> pd.DataFrame:
    """Check which orders of two systems keep their promises.

    Parameters
    ----------
    compositions : iterable of str, optional
        The names of compositions, of :data:`PAIRS`; by default all.
    scenarios : int
        Random stories on which each is checked, the same for all orders of a composition.
    seed : int
    map : callable
        As in :func:`mudkit.experiment.scoreboard.scoreboard`.

    Returns
    -------
    pandas.DataFrame
        One row per (composition, order, promise): ``held``, ``scenarios``, ``messages`` (that came in all of
        them: where none comes, most promises are kept), ``broken`` (in so many scenarios) and
        ``counterexample``, the smallest that was found, in words. A row of :data:`SAME` says whether what it
        shows is what the first order of the composition shows.

    Raises
    ------
    ParameterError
        There is no such composition.
    """
    import pandas as pd

    asked = list(PAIRS) if compositions is None else list(compositions)
    whole_number("scenarios", scenarios, 1, 10_000)
    if unknown := [each for each in asked if each not in PAIRS]:
        raise ParameterError(
            "There is no such composition.",
            where="compositions",
            found=repr(unknown[0]),
            expected=", ".join(PAIRS),
        )
    rows = [row for each in map(_checked, [(name, scenarios, seed) for name in asked]) for row in each]
    return pd.DataFrame(rows, columns=list(_COLUMNS))


def commuting(table: pd.DataFrame) -> pd.DataFrame:
    """Say of each composition whether its orders commute.

    Parameters
    ----------
    table : pandas.DataFrame
        The table that :func:`orders` gives.

    Returns
    -------
    pandas.DataFrame
        One row per composition of more than one order: ``same_shown`` (all orders show the same),
        ``same_kept`` (they keep the same promises), ``best`` (the orders that keep most, and how many of how
        many promises), ``never`` (promises that no order keeps).
    """
    import pandas as pd

    rows = []
    for name, part in table[table["composition"] != ALONE].groupby("composition", sort=False):
        kept = part[part["promise"] != SAME].pivot(index="promise", columns="order", values="held")
        counts = kept.sum()
        best = [str(each) for each in part["order"].unique() if counts[each] == counts.max()]
        rows.append(
            (
                name,
                bool(part.loc[part["promise"] == SAME, "held"].all()),
                bool(kept.nunique(axis=1).eq(1).all()),
                f"{'; '.join(best)} ({counts.max()} of {len(kept)})",
                "; ".join(str(each) for each in kept.index[~kept.any(axis=1)]),
            )
        )
    return pd.DataFrame(rows, columns=["composition", "same_shown", "same_kept", "best", "never"])


def played(story: Trace, make: Callable[[Testbed], Logged]) -> Played:
    """Let an adapter do a story."""
    kept: list[Logged] = []

    def made(testbed: Testbed) -> Any:
        kept.append(make(testbed))
        return kept[0]

    entry = story.plays(made)
    return Played(story, entry, kept[0])


def _checked(what: tuple[str, int, int]) -> list[tuple[Any, ...]]:
    name, scenarios, seed = what
    first = next(iter(PAIRS[name].values()))
    shown: list[frozenset[tuple[str, str]]] = []
    rows = []
    for called, order in PAIRS[name].items():
        drawn = list(traces(scenarios, seed, hides=order.hides))
        checks: dict[str, Callable[[Played], str | None]] = {each: PROMISES[each] for each in order.promises}
        if name != ALONE and order is not first:
            checks[SAME] = partial(_differs, first)
        broken: dict[str, list[Trace]] = {each: [] for each in checks}
        messages = 0
        for number, story in enumerate(drawn):
            came = played(story, order.make)
            messages += len(came.handed)
            if order is first:
                shown.append(came.shown)
            for promise, check in checks.items():
                is_broken = came.shown != shown[number] if promise == SAME else check(came) is not None
                if is_broken:
                    broken[promise].append(story)
        for promise, by in broken.items():
            example = _smallest(by, order, checks[promise]) if by else ""
            rows.append((name, called, promise, not by, len(drawn), messages, len(by), example))
    return rows


def _smallest(by: Sequence[Trace], order: Order, check: Callable[[Played], str | None]) -> str:
    story = smaller(
        min(by, key=lambda each: each.size), lambda each: check(played(each, order.make)) is not None
    )
    return f"{check(played(story, order.make))}; {tell(story)}"


def _differs(first: Order, came: Played) -> str | None:
    before = played(came.story, first.make).shown
    names, readers = came.names, came.readers
    for way, count in (("as well", came.shown - before), ("no more", before - came.shown)):
        for phone, name in sorted(count):
            at = clock(came.story.said[names[name]].at_s)
            return f"a reader of {readers[phone]} is shown the item of {at} {way}"
    return None
