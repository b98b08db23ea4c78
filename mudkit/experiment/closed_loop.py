"""The closed loop: a lab's trace teaches a policy, and the cloud ships it to the same devices (Mobius 6).

A policy generator mines the reads of all clients: Spark labels them, a tree is learnt, and its replay on
devices that it has not seen says what share of stale answers to expect. That promise is watched: when what
devices see leaves it, an alarm says so.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from mudkit import learning
from mudkit.experiment.commuters import Commuters, Driven
from mudkit.learning import Tree
from mudkit.learning.costs import Costs
from mudkit.learning.pairs import Pairs
from mudkit.learning.replay import SENT, fewest_sends
from mudkit.sources.parameters import number, whole_number
from mudkit.systems.mud import Artefact
from mudkit.systems.mud.policies import NearAndRecent
from mudkit.systems.mud.shipped import Shipped

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["DriftAlarm", "Loop", "Promised", "close_the_loop", "generate_policy"]

_LATER: Final = ("2010-03-01", "2010-03-08")
"""The days that are learnt from, and a week later those that are decided for."""


class Promised(NamedTuple):
    """A policy, and what its replay promises.

    Parameters
    ----------
    artefact : Artefact
    stale_low, stale_high : float
        The share of stale answers of devices that it has not seen: the 95 % confidence interval over them.
    """

    artefact: Artefact
    stale_low: float
    stale_high: float


@dataclass(frozen=True)
class DriftAlarm:
    """Watches whether stale answers stay within what was promised.

    Parameters
    ----------
    low, high : float
        The promised interval of their share.
    reads, stale : int
        What was seen so far.
    least_reads : int
        No alarm before so many.
    """

    low: float
    high: float
    reads: int = 0
    stale: int = 0
    least_reads: int = 50

    def __post_init__(self) -> None:
        number("low", self.low, 0.0, 1.0)
        number("high", self.high, self.low, 1.0)
        whole_number("least_reads", self.least_reads, 1, 1 << 31)

    def seen(self, reads: int, stale: int) -> DriftAlarm:
        """Take note of more reads, and how many of them were stale."""
        whole_number("stale", stale, 0, whole_number("reads", reads, 0, 1 << 31))
        return replace(self, reads=self.reads + reads, stale=self.stale + stale)

    @property
    def interval(self) -> tuple[float, float]:
        """Where the true share lies, by 95 % (Wilson's score interval, JASA 22, 1927)."""
        z, n = 1.959964, max(self.reads, 1)
        share = self.stale / n
        middle = (share + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * float(np.sqrt(share * (1 - share) / n + z * z / (4 * n * n)))
        return max(middle - half, 0.0), min(middle + half, 1.0)

    @property
    def rings(self) -> bool:
        """Whether what was seen can hardly come from what was promised."""
        low, high = self.interval
        return self.reads >= self.least_reads and (low > self.high or high < self.low)


class Loop(NamedTuple):
    """What came of it.

    Parameters
    ----------
    table : pandas.DataFrame
        A row for ``before`` and ``after``, on the same days: ``policy, reads, sent_share, stale_share,
        completeness, messages, bytes, radio_j``, ``bound_share`` (the least that could have been sent with
        as many stale answers, each from the one answer that was fetched last, as the labels have it) and
        ``regret`` (what was sent over that). A client answers from all that it holds, what it wrote itself
        and what came with other answers included: so it is less often stale than the replay promises, and
        its regret may be negative.
    promised : Promised
    alarm : DriftAlarm
        After the days with the shipped policy.
    versions : list of int
        Of the policy that each device uses in the end.
    """

    table: pd.DataFrame
    promised: Promised
    alarm: DriftAlarm
    versions: list[int]


def generate_policy(
    labels: pa.Table, reads: pa.Table, *, version: int = 1, completeness: float = 0.9,
    cost: Costs = "latency",
) -> Promised:  # fmt: skip
    """Learn a read policy from the labelled reads of all clients.

    Parameters
    ----------
    labels, reads : pyarrow.Table
        As ``pipeline.label_reads`` gives them, and the reads that were labelled.
    version : int
        Devices take a higher one than they have only.
    completeness : float
        Below it an answer is stale.
    cost : str, CostMatrix or array_like

    Raises
    ------
    ParameterError, TraceContentError
        As :func:`mudkit.learning.evaluate_reads`.
    """
    tree = Tree(cost)
    row = learning.evaluate_reads(
        labels, reads, [tree], stale="completeness", completeness=completeness, cost=cost
    ).iloc[0]
    pairs = Pairs.of(labels, reads)
    learnt = tree.learn(pairs, pairs.completeness < completeness)
    manifest = {"stale": f"completeness below {completeness:g}", "reads": len(reads)}
    made = learning.artefact(learnt, version, manifest=manifest)
    return Promised(made, float(row["stale_share_low"]), float(row["stale_share_high"]))


def close_the_loop(
    traffic: Commuters, seed: int = 0, *, completeness: float = 0.9, cost: Costs = "latency"
) -> Loop:
    """Drive with the fixed rule, learn, ship, and drive again on other days: by the rule, and by the tree.

    The rule's clients listen for a policy, too, so that the bills differ by the policy only and not by what
    listening costs.

    Parameters
    ----------
    traffic : Commuters
    seed : int
    completeness : float
        Below it an answer is stale.
    cost : str, CostMatrix or array_like

    Raises
    ------
    ParameterError, TraceContentError
        As :func:`generate_policy`.
    """
    import pandas as pd  # loading it takes longer than loading all of mudkit

    rule = Shipped(until=NearAndRecent())
    learnt_on, decided_on = _LATER
    promised = generate_policy(
        *_labelled(traffic.drive(seed, learnt_on, rule)), completeness=completeness, cost=cost
    )
    before = traffic.drive(seed, decided_on, rule)
    after = traffic.drive(seed, decided_on, rule, promised.artefact)
    pairs = Pairs.of(*_labelled(before))  # of the same reads as after
    rows = [
        {"policy": name, **_measured(driven, pairs, completeness)}
        for name, driven in (("before", before), ("after", after))
    ]
    stale = int((after.reads["completeness"] < completeness).sum())
    alarm = DriftAlarm(promised.stale_low, promised.stale_high).seen(len(after.reads), stale)
    return Loop(pd.DataFrame(rows), promised, alarm, after.versions)


def _labelled(driven: Driven) -> tuple[pa.Table, pa.Table]:
    """Let Spark label the reads of a lab's trace."""
    from mudkit import pipeline  # loads Spark

    spark = pipeline.session()
    with tempfile.TemporaryDirectory(prefix="mudkit-loop-") as place:
        folder = driven.lab.trace.to_parquet(Path(place) / "trace")
        positions, reads = (pipeline.read(spark, folder, name) for name in ("positions", "reads"))
        return pipeline.label_reads(positions, reads).toArrow(), reads.toArrow()


def _measured(driven: Driven, pairs: Pairs, completeness: float) -> dict[str, float]:
    reads, bill = driven.reads, driven.lab.bill()
    stale = reads["completeness"] < completeness
    served = fewest_sends(pairs, pairs.completeness < completeness, pairs.devices(), int(stale.sum()))
    bound, sent = float((served == SENT).mean()), float(reads["is_sent"].mean())
    of_cars = bill[bill["device"].str.startswith("car-")]
    return {
        "reads": len(reads),
        "sent_share": sent,
        "stale_share": float(stale.mean()),
        "completeness": float(reads["completeness"].mean()),
        "messages": float(of_cars["messages"].sum()),
        "bytes": float(of_cars["bytes"].sum()),
        "radio_j": float(of_cars["radio_mj"].sum() / 1000),
        "bound_share": bound,
        "regret": sent - bound,
    }
