"""Days of a cloud that learns by itself (Mobius 6): usage, policies, another behaviour, other policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import pyarrow as pa

from mudkit.checks import Range, check_arguments
from mudkit.display import shows_fields
from mudkit.lab import Lab
from mudkit.systems.mud import Artefact, Learner, LearntPolicy, NearAndRecent, ShippedPolicy
from mudkit.words import Label, add_labels
from mudkit.worlds.commuters import Commuters, Drive

if TYPE_CHECKING:
    import pandas as pd

add_labels(
    {
        "policy_in_use": Label("policy in use"),
        "reports": Label("cars report"),
        "after_day": Label("after day"),
        "learnt_from": Label("learnt from"),
    }
)

_START: Final = "2010-03-01"
_DAY_S: Final = 86_400.0
_MEASURES: Final = ("messages", "bytes", "radio_j")
OWN_RULE: Final = "own rule"
"""Policy in use where none is shipped: the clients' own, 1 km and 10 minutes."""


@shows_fields
class LearningDaysRun(NamedTuple):
    """Result of :meth:`LearningDays.run`.

    Parameters
    ----------
    lab : Lab
    table : pandas.DataFrame
        A row for each day: ``day`` (from 1), ``reports`` (when cars report), ``policy_in_use``, ``reads``,
        ``sent_share``, ``stale_share``, and of the cars' bill of the day ``messages, bytes, radio_j``.
    learnt : pandas.DataFrame
        A row for each night with a recommendation of the learner: ``after_day, policy_in_use`` (on the next
        day), ``questions`` (that the policy asks at most) and ``learnt_from``; none without a learner.
    """

    lab: Lab
    table: pd.DataFrame
    learnt: pd.DataFrame


@check_arguments(types=False)
@dataclass(frozen=True)
class LearningDays:
    """Plan of some days: cars report while they drive, and from a day on at any time.

    Parameters
    ----------
    cars, days : int
        The learner asks for three devices at least.
    changes_on : int
        The first day, from 1, on which cars report at any time; beyond the last day: they never do.
    reads_per_day : float
        Mean number of queries of a driver: a Poisson process.
    window_s : float
        Time before a query of which it asks, in seconds.
    completeness : float
        An answer with a smaller share of what others wrote is stale.
    """

    cars: Annotated[int, Range(3, 1000)] = 5
    days: Annotated[int, Range(2, 60)] = 7
    changes_on: Annotated[int, Range(2, 1 << 31)] = 4
    reads_per_day: Annotated[float, Range(1.0, 1e4)] = 24.0
    window_s: Annotated[float, Range(600.0, 86_400.0)] = 3600.0
    completeness: Annotated[float, Range(1e-9, 1.0)] = 0.9

    def run(self, seed: int, learner: Learner | None = None) -> LearningDaysRun:
        """Run the days with a cloud that learns, or without one.

        The clients' own rule is 1 km and 10 minutes; a policy that is shipped takes its place.

        Parameters
        ----------
        seed : int
            Same seed, same drives and queries, with or without a learner.
        learner : Learner, optional
            As :class:`mudkit.learning.Learner`; None: nobody learns, and nobody reports usage.
        """
        import pandas as pd

        plan = Commuters(
            self.cars,
            self.days,
            every_s=600.0,
            reads_per_day=self.reads_per_day,
            window_s=self.window_s,
            report_when="driving",
        )
        kept = None if learner is None else _Kept(learner)
        drive = Drive(plan, seed, _START, ShippedPolicy(NearAndRecent()), None, kept)
        rows, before = [], dict.fromkeys(_MEASURES, 0.0)
        for day in range(1, self.days + 1):
            if day == self.changes_on:
                drive.change_reports("any time")
            drive.lab.run(hours=24)
            after = _measure_bill(drive)
            # Learnt as the day began: the next time is as the following day begins.
            used = None if kept is None or not kept.policies else kept.policies[-1]
            rows.append(
                {
                    "day": day,
                    "reports": "while driving" if day < self.changes_on else "at any time",
                    "policy_in_use": OWN_RULE if used is None else _name_of(used),
                    **self._measure_answers(drive, day),
                    **{name: after[name] - before[name] for name in after},
                }
            )
            before = after
        policies = [] if kept is None else kept.policies[: self.days - 1]
        learnt = [{"after_day": night, **_describe(policy)} for night, policy in enumerate(policies, start=1)]
        columns = ["after_day", "policy_in_use", "questions", "learnt_from"]
        return LearningDaysRun(drive.lab, pd.DataFrame(rows), pd.DataFrame(learnt, columns=columns))

    def _measure_answers(self, drive: Drive, day: int) -> dict[str, Any]:
        """Return how many reads a day had, and the shares that were sent and stale."""
        answers = drive.answers()
        answers = answers[(answers["at_s"] > (day - 1) * _DAY_S) & (answers["at_s"] <= day * _DAY_S)]
        stale = answers["completeness"] < self.completeness
        shares = {"sent_share": float(answers["is_sent"].mean()), "stale_share": float(stale.mean())}
        return {"reads": len(answers), **shares}


class _Kept:
    """A learner, and the read policies that it has recommended."""

    def __init__(self, learner: Learner) -> None:
        self._learner = learner
        self.policies: list[Artefact] = []

    def learn(self, usage: pa.Table, seed: int) -> Sequence[LearntPolicy]:
        """See :class:`mudkit.systems.mud.Learner`."""
        learnt = self._learner.learn(usage, seed)
        self.policies += [policy.artefact for policy in learnt if policy.artefact.kind == "read"]
        return learnt


def _name_of(artefact: Artefact) -> str:
    """Return what a policy goes by: the family that was chosen, or the clients' own rule."""
    chosen = str(_manifest_of(artefact).get("chosen", "policy"))
    return OWN_RULE if chosen == "own policy" else chosen


def _describe(artefact: Artefact) -> dict[str, Any]:
    """Return what a policy is, how many questions it asks, and what it was learnt from."""
    return {
        "policy_in_use": _name_of(artefact),
        "questions": len(artefact.nodes) // 2,
        "learnt_from": str(_manifest_of(artefact).get("learnt from", "")),
    }


def _manifest_of(artefact: Artefact) -> Mapping[str, Any]:
    """Return what the learner says of a policy."""
    manifest = artefact.document["manifest"]
    return manifest if isinstance(manifest, Mapping) else {}


def _measure_bill(drive: Drive) -> dict[str, float]:
    """Return messages, bytes and joules of the cars so far."""
    bill = drive.lab.bill()
    cars = bill[bill["device"].isin([device.name for device in drive.devices])]
    sums = cars["messages"].sum(), cars["bytes"].sum(), cars["radio_mj"].sum() / 1000
    return dict(zip(_MEASURES, map(float, sums), strict=True))
