"""Closed loop: a lab's trace teaches policies that the cloud ships, and an alarm watches for drift."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mudkit import intervals, learning
from mudkit.display import shows_fields
from mudkit.experiment.commuters import Commuters, CommutersRun
from mudkit.learning import Batch, BatchTree, Tree, cache_completeness, min_sent_share
from mudkit.learning.batching import LearntWrites
from mudkit.learning.costs import Costs
from mudkit.learning.evaluate import out_of_fold_decisions
from mudkit.learning.features import Features
from mudkit.learning.pairs import Pairs
from mudkit.learning.replay import SENT, fewest_sends, replay
from mudkit.learning.writes import ReadRequests, Writes, batches
from mudkit.sources.parameters import number, whole_number
from mudkit.systems.mud import Artefact, NearAndRecent, ShippedPolicy
from mudkit.systems.mud.policies.policies import Later

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "DriftAlarm",
    "GeneratedPolicy",
    "LabelledRun",
    "Loop",
    "close_the_loop",
    "generate_policy",
    "generate_write_policy",
    "label_run",
    "promise",
]

_LATER: Final = ("2010-03-01", "2010-03-08")
"""First days of the training period, and of the evaluation period a week later."""
_LABELLED_S: Final = 7200.0
"""Age up to which answers are labelled; a tree knows nothing of older ones."""


class GeneratedPolicy(NamedTuple):
    """A read policy, and the 95 % interval of the share of stale answers on devices that it has not seen."""

    artefact: Artefact
    stale_low: float
    stale_high: float


@shows_fields
class LabelledRun(NamedTuple):
    """Operations of the clients, with the labels that Spark computes."""

    positions: pa.Table
    """Writes."""
    reads: pa.Table
    labels: pa.Table
    """Labels of the reads, see ``pipeline.label_reads``."""
    first_reads: pa.Table
    """Labels of the writes, see ``pipeline.label_writes``."""


@shows_fields
class Loop(NamedTuple):
    """Result of the comparison.

    Parameters
    ----------
    table : pandas.DataFrame
        A row for ``before`` and ``after``, on the same days, and between them ``reads learnt`` when writes
        are learnt, too: ``policy, reads``; ``sent_share, stale_share, missed_share`` (answers that lack any
        point that was written by then), ``completeness``; of the cars' bill ``messages`` and
        ``sent_messages`` (those up), ``bytes, radio_j``; ``point_share`` (writes that came to the cloud
        before the days ended). ``bound_share`` is the smallest share that could have been sent with as many
        stale answers, each from the last fetched answer, and ``regret`` the share sent above it.
        ``full_cache_share`` and ``full_cache_regret`` are the same for a cache of all answers, which no
        policy beats. A client answers from all that it holds, so ``regret`` may be negative;
        ``full_cache_regret`` is not.
    policy : GeneratedPolicy
        The read policy, and the promise of its replay.
    alarm : DriftAlarm
        State after the days with the shipped policies.
    versions, write_versions : list of int
        Versions of the read and the write policy that the devices use in the end.
    writes : Artefact or None
        The write policy, if one was learnt.
    """

    table: pd.DataFrame
    policy: GeneratedPolicy
    alarm: DriftAlarm
    versions: list[int]
    writes: Artefact | None = None
    write_versions: list[int] = []  # noqa: RUF012 - nobody changes it


def generate_policy(
    labels: pa.Table,
    reads: pa.Table,
    positions: pa.Table,
    *,
    completeness: float = 0.9,
    cost: Costs = "latency",
    arrival_us: NDArray[np.int64] | None = None,
    features: Features = "extended",
) -> GeneratedPolicy:
    """Train a read policy on the labelled reads of all clients.

    Parameters
    ----------
    labels, reads : pyarrow.Table
        Result of ``pipeline.label_reads``, and the reads that were labelled.
    positions : pyarrow.Table
        All writes.
    completeness : float
        Below it an answer is stale.
    cost : str, CostMatrix or array_like
    arrival_us : ndarray of int64, shape (positions,), optional
        Times at which the positions come to the cloud; by default at once.
    features : {'paper', 'extended', 'dense'}
        Features of the tree.

    Raises
    ------
    ParameterError, TraceContentError
        As :meth:`mudkit.learning.Tree.learn`.
    """
    tree = Tree(cost, features)
    pairs = Pairs.of(labels, reads, positions)
    sent = replay(pairs, out_of_fold_decisions(tree, pairs, completeness)) == SENT
    whole = cache_completeness(positions, reads, sent, arrival_us=arrival_us)
    low, high = promise(pairs, whole < completeness)
    learnt = tree.learn(pairs, pairs.completeness < completeness)
    manifest = {"stale": f"completeness below {completeness:g}", "reads": len(reads)}
    return GeneratedPolicy(learning.export_tree(learnt, 1, manifest=manifest), low, high)


def promise(pairs: Pairs, stale: NDArray[np.bool_]) -> tuple[float, float]:
    """Return the 95 % confidence interval of the share of stale answers.

    It covers the intervals over devices and over reads, since none of a few devices may have been stale.
    """
    of_devices = intervals.mean([stale[rows].mean() for rows in pairs.devices()])
    of_reads = intervals.share(int(np.count_nonzero(stale)), len(stale))
    return float(np.fmin(of_devices.low, of_reads.low)), float(np.fmax(of_devices.high, of_reads.high))


def generate_write_policy(labelled: LabelledRun, match: Batch) -> tuple[Artefact, LearntWrites]:
    """Train a write policy on all writes, with which no more reads miss a write than with a fixed delay."""
    writes, reads = Writes.of(labelled.first_reads, labelled.positions), ReadRequests.of(labelled.reads)
    learnt = BatchTree(match=match).learn(writes, reads)
    manifest = {"misses no more than": str(match), "writes": len(writes.t_us)}
    return learning.export_tree(learnt, 1, manifest=manifest), learnt


def close_the_loop(
    traffic: Commuters,
    seed: int = 0,
    *,
    completeness: float = 0.9,
    cost: Costs = "latency",
    writes: Batch | None = None,
    features: Features = "extended",
) -> Loop:
    """Drive with the fixed rule, learn, ship, and drive on other days by the rule and by the trees.

    The rule's clients listen for a policy, too, so that the bills differ by the policy only.

    Parameters
    ----------
    traffic : Commuters
    seed : int
    completeness : float
        Below it an answer is stale.
    cost : str, CostMatrix or array_like
        The costs of the mistakes of reads.
    writes : Batch, optional
        Fixed delay of writes before; with the learnt tree no more reads miss a write. By default writes go at
        once, and no tree is learnt for them.
    features : {'paper', 'extended', 'dense'}
        Features of the tree for reads.

    Raises
    ------
    ParameterError, TraceContentError
        As :func:`generate_policy` and :meth:`mudkit.learning.BatchTree.learn`.
    """
    import pandas as pd

    rule = ShippedPolicy(until=NearAndRecent())
    delayed = None if writes is None else ShippedPolicy(until=Later(60.0 * writes.minutes))
    learnt_on, decided_on = _LATER
    labelled = label_run(traffic.run(seed, learnt_on, rule, write_policy=delayed))
    write_artefact, arrival_us = None, None
    if writes is not None:
        write_artefact, learnt = generate_write_policy(labelled, writes)
        arrival_us = _comes_us(labelled, learnt)
    generated = generate_policy(
        labelled.labels,
        labelled.reads,
        labelled.positions,
        completeness=completeness,
        cost=cost,
        arrival_us=arrival_us,
        features=features,
    )
    if traffic.report_when == "driving":
        # Parked cars keep old answers complete, and the tree was trained on none that is older.
        generated = generated._replace(artefact=generated.artefact.up_to_age(_LABELLED_S))
    ships: dict[str, list[Artefact]] = {"before": []}
    if write_artefact is None:
        ships["after"] = [generated.artefact]
    else:
        ships |= {"reads learnt": [generated.artefact], "after": [generated.artefact, write_artefact]}
    rows, pairs = [], None
    for name, ship in ships.items():
        driven = traffic.run(seed, decided_on, rule, ship, write_policy=delayed)
        if pairs is None:  # the reads are the same with all policies
            later = label_run(driven)
            pairs = Pairs.of(later.labels, later.reads)
        rows.append({"policy": name, **_measured(driven, pairs, completeness)})
    stale = int((driven.reads["completeness"] < completeness).sum())
    alarm = DriftAlarm(generated.stale_low, generated.stale_high).add(len(driven.reads), stale)
    return Loop(pd.DataFrame(rows), generated, alarm, driven.versions, write_artefact, driven.write_versions)


def label_run(run: CommutersRun) -> LabelledRun:
    """Label the operations of a run's clients with Spark.

    Parameters
    ----------
    run : CommutersRun

    Returns
    -------
    LabelledRun
        Positions, reads, and the labels of both.
    """
    from mudkit import pipeline  # loads Spark

    spark = pipeline.session()
    with tempfile.TemporaryDirectory(prefix="mudkit-loop-") as place:
        folder = run.lab.trace.to_parquet(Path(place) / "trace")
        positions, reads = (pipeline.read(spark, folder, name) for name in ("positions", "reads"))
        if run.written is not None:
            written, timed = spark.createDataFrame(run.written), "unix_micros(ts) AS t_us"
            positions = positions.selectExpr("*", timed).join(written, ["device", "t_us"], "left_semi")
            positions = positions.drop("t_us")
        return LabelledRun(
            positions.toArrow(),
            reads.toArrow(),
            pipeline.label_reads(positions, reads, horizon_s=_LABELLED_S).toArrow(),
            pipeline.label_writes(positions, reads).toArrow(),
        )


def _comes_us(labelled: LabelledRun, learnt: LearntWrites) -> NDArray[np.int64]:
    """Return when each position reaches the cloud under a write policy, in the order of the table."""
    writes = Writes.of(labelled.first_reads, labelled.positions)
    rows = pa.compute.sort_indices(labelled.positions, [("device", "ascending"), ("ts", "ascending")])
    arrival_us = np.empty(len(writes.t_us), dtype=np.int64)
    arrival_us[rows.to_numpy()] = batches(writes, learnt.due_us(writes)).sent_us
    return arrival_us


def _measured(driven: CommutersRun, pairs: Pairs, completeness: float) -> dict[str, Any]:
    reads, bill = driven.reads, driven.lab.bill()
    stale = reads["completeness"] < completeness
    served = fewest_sends(pairs, pairs.completeness < completeness, pairs.devices(), int(stale.sum()))
    bound, sent = float((served == SENT).mean()), float(reads["is_sent"].mean())
    full_cache_share = min_sent_share(reads["cache_completeness"].to_numpy(), completeness, int(stale.sum()))
    of_cars = bill[bill["device"].str.startswith("car-")]
    return {
        "reads": len(reads),
        "sent_share": sent,
        "stale_share": float(stale.mean()),
        "missed_share": float((reads["missing"] > 0).mean()),
        "completeness": float(reads["completeness"].mean()),
        "messages": float(of_cars["messages"].sum()),
        "sent_messages": float(of_cars.loc[of_cars["direction"] == "up", "messages"].sum()),
        "bytes": float(of_cars["bytes"].sum()),
        "radio_j": float(of_cars["radio_mj"].sum() / 1000),
        "point_share": driven.point_share,
        "bound_share": bound,
        "regret": sent - bound,
        "full_cache_share": full_cache_share,
        "full_cache_regret": sent - full_cache_share,
    }


@dataclass(frozen=True)
class DriftAlarm:
    """Alarm when the share of stale answers is not the promised one.

    Parameters
    ----------
    low, high : float
        GeneratedPolicy interval of the share.
    reads, stale : int
        Reads and stale answers so far.
    min_reads : int
        Fewest reads for an alarm.
    """

    low: float
    high: float
    reads: int = 0
    stale: int = 0
    min_reads: int = 50

    def __post_init__(self) -> None:
        number("low", self.low, 0.0, 1.0)
        number("high", self.high, self.low, 1.0)
        whole_number("min_reads", self.min_reads, 1, 1 << 31)

    def add(self, reads: int, stale: int) -> DriftAlarm:
        """Return the alarm after more reads, of which some were stale."""
        whole_number("stale", stale, 0, whole_number("reads", reads, 0, 1 << 31))
        return replace(self, reads=self.reads + reads, stale=self.stale + stale)

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the true share (Wilson)."""
        share = intervals.share(self.stale, max(self.reads, 1))
        return share.low, share.high

    @property
    def is_raised(self) -> bool:
        """True if the observed share is not compatible with the promised one."""
        low, high = self.interval
        return self.reads >= self.min_reads and (low > self.high or high < self.low)
