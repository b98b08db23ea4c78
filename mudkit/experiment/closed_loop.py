"""The closed loop: a lab's trace teaches policies, and the cloud ships them to the same devices (Mobius 6).

A policy generator mines the operations of all clients: Spark labels them, trees are learnt, and the replay on
devices that they have not seen says what share of stale answers to expect. That promise is watched: when what
devices see leaves it, an alarm says so.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mudkit import learning
from mudkit.experiment.commuters import Commuters, Driven
from mudkit.experiment.drift import DriftAlarm, wilson
from mudkit.learning import Batch, BatchTree, Tree, cache_completeness, min_sent_share
from mudkit.learning.batching import LearntWrites
from mudkit.learning.costs import Costs
from mudkit.learning.evaluate import out_of_fold_decisions
from mudkit.learning.measures import half_width
from mudkit.learning.pairs import Pairs
from mudkit.learning.replay import SENT, fewest_sends, replay
from mudkit.learning.writes import ReadRequests, Writes, batches
from mudkit.systems.mud import Artefact, NearAndRecent, ShippedPolicy
from mudkit.systems.mud.policies.policies import Later

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "DriftAlarm",
    "Loop",
    "Mined",
    "Promised",
    "close_the_loop",
    "generate_policy",
    "generate_write_policy",
    "mine",
    "promise",
]

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


class Mined(NamedTuple):
    """What clients did, with the labels that Spark gives it.

    Parameters
    ----------
    positions, reads : pyarrow.Table
        What they wrote, and what they read.
    labels : pyarrow.Table
        The labels of the reads, as ``pipeline.label_reads`` gives them.
    first_reads : pyarrow.Table
        The labels of the writes, as ``pipeline.label_writes`` gives them.
    """

    positions: pa.Table
    reads: pa.Table
    labels: pa.Table
    first_reads: pa.Table


class Loop(NamedTuple):
    """What came of it.

    Parameters
    ----------
    table : pandas.DataFrame
        A row for ``before`` and ``after``, on the same days, and between them ``reads learnt`` when writes
        are learnt, too: ``policy, reads``; ``sent_share, stale_share, missed_share`` (answers that lack any
        point that was written by then), ``completeness``; of the cars' bill ``messages`` and
        ``sent_messages`` (those up), ``bytes, radio_j``; ``point_share`` (writes that came to the cloud
        before the days ended, of all). Then regret: ``bound_share``, the least that could have been sent with
        as many stale answers, each from the one answer that was fetched last, as the labels have it, and
        ``regret``, what was sent over that; ``held_share`` and ``regret_held``, the same for a cache that
        holds all answers: no policy sends less with as few stale answers. A client answers from all that it
        holds, so ``regret`` may be negative; ``regret_held`` is not.
    promised : Promised
        What the replay of the read policy has promised.
    alarm : DriftAlarm
        The alarm as it is after the days with the shipped policies.
    versions : list of int
        The version of the read policy that each device uses in the end.
    writes : Artefact or None
        The write policy, if there was one to learn.
    write_versions : list of int
        The version of the write policy that each device uses in the end.
    """

    table: pd.DataFrame
    promised: Promised
    alarm: DriftAlarm
    versions: list[int]
    writes: Artefact | None = None
    write_versions: list[int] = []  # noqa: RUF012 - nobody changes it


def generate_policy(
    labels: pa.Table,
    reads: pa.Table,
    *,
    version: int = 1,
    completeness: float = 0.9,
    cost: Costs = "latency",
    positions: pa.Table | None = None,
    arrival_us: NDArray[np.int64] | None = None,
    features: str = "extended",
) -> Promised:
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
    positions : pyarrow.Table, optional
        What was written. With it the promise is that of a device, which answers from all that it holds; else
        that of a cache with the last answer only, which is stale more often.
    arrival_us : ndarray of int64, shape (positions,), optional
        When each of them comes to the cloud; by default at once.
    features : {'paper', 'extended', 'dense'}
        What the tree may know; ``dense`` wants positions.

    Raises
    ------
    ParameterError, TraceContentError
        As :func:`mudkit.learning.evaluate_reads`.
    """
    tree = Tree(cost, features)
    pairs = Pairs.of(labels, reads, positions)
    if positions is None:
        row = learning.evaluate_reads(
            labels, reads, [tree], stale="completeness", completeness=completeness, cost=cost
        ).iloc[0]
        low, high = float(row["stale_share_low"]), float(row["stale_share_high"])
    else:
        sent = replay(pairs, out_of_fold_decisions(tree, pairs, completeness)) == SENT
        whole = cache_completeness(positions, reads, sent, arrival_us=arrival_us)
        low, high = promise(pairs, whole < completeness)
    learnt = tree.learn(pairs, pairs.completeness < completeness)
    manifest = {"stale": f"completeness below {completeness:g}", "reads": len(reads)}
    return Promised(learning.export_tree(learnt, version, manifest=manifest), low, high)


def promise(pairs: Pairs, stale: NDArray[np.bool_]) -> tuple[float, float]:
    """Give the 95 % confidence interval of the share of stale answers.

    The wider of that over devices and that over reads: of few devices none may have been stale once.

    Parameters
    ----------
    pairs : Pairs
    stale : ndarray of bool, shape (reads,)
    """
    of_device = np.array([[stale[rows].mean()] for rows in pairs.devices()])
    half, middle = float(half_width(of_device)[0]), float(of_device.mean())
    low, high = wilson(len(stale), int(np.count_nonzero(stale)))
    return max(min(middle - half, low), 0.0), min(max(middle + half, high), 1.0)


def generate_write_policy(mined: Mined, match: Batch, *, version: int = 1) -> tuple[Artefact, LearntWrites]:
    """Learn a write policy from the labelled writes of all clients.

    Parameters
    ----------
    mined : Mined
    match : Batch
        No more reads are to miss a write than with this fixed delay.
    version : int

    Raises
    ------
    TraceContentError
        As :meth:`mudkit.learning.BatchTree.learn`.
    """
    writes, asked = Writes.of(mined.first_reads, mined.positions), ReadRequests.of(mined.reads)
    learnt = BatchTree(match=match).learn(writes, asked)
    manifest = {"misses no more than": str(match), "writes": len(writes.t_us)}
    return learning.export_tree(learnt, version, manifest=manifest), learnt


def close_the_loop(
    traffic: Commuters,
    seed: int = 0,
    *,
    completeness: float = 0.9,
    cost: Costs = "latency",
    writes: Batch | None = None,
    features: str = "extended",
) -> Loop:
    """Drive with the fixed rule, learn, ship, and drive again on other days: by the rule, and by the trees.

    The rule's clients listen for a policy, too, so that the bills differ by the policy only and not by what
    listening costs.

    Parameters
    ----------
    traffic : Commuters
    seed : int
    completeness : float
        Below it an answer is stale.
    cost : str, CostMatrix or array_like
        The costs of the mistakes of reads.
    writes : Batch, optional
        The fixed delay of writes before; the tree that is learnt for them is to let no more reads miss a
        write. By default writes go at once, and nothing is learnt for them.
    features : {'paper', 'extended', 'dense'}
        What the tree for reads may know.

    Raises
    ------
    ParameterError, TraceContentError
        As :func:`generate_policy` and :func:`generate_write_policy`.
    """
    import pandas as pd  # loading it takes longer than loading all of mudkit

    rule = ShippedPolicy(until=NearAndRecent())
    delayed = None if writes is None else ShippedPolicy(until=Later(60.0 * writes.minutes))
    learnt_on, decided_on = _LATER
    mined = mine(traffic.drive(seed, learnt_on, rule, write_policy=delayed))
    write_artefact, arrival_us = None, None
    if writes is not None:
        write_artefact, learnt = generate_write_policy(mined, writes)
        arrival_us = _comes_us(mined, learnt)
    promised = generate_policy(
        mined.labels,
        mined.reads,
        completeness=completeness,
        cost=cost,
        positions=mined.positions,
        arrival_us=arrival_us,
        features=features,
    )
    ships = [("before", []), ("after", [promised.artefact])]
    if write_artefact is not None:
        ships = [
            *ships[:1],
            ("reads learnt", [promised.artefact]),
            ("after", [promised.artefact, write_artefact]),
        ]
    rows, pairs = [], None
    for name, ship in ships:
        driven = traffic.drive(seed, decided_on, rule, ship, write_policy=delayed)
        if pairs is None:  # all see the same reads
            later = mine(driven)
            pairs = Pairs.of(later.labels, later.reads)
        rows.append({"policy": name, **_measured(driven, pairs, completeness)})
    stale = int((driven.reads["completeness"] < completeness).sum())
    alarm = DriftAlarm(promised.stale_low, promised.stale_high).seen(len(driven.reads), stale)
    return Loop(pd.DataFrame(rows), promised, alarm, driven.versions, write_artefact, driven.write_versions)


def mine(driven: Driven) -> Mined:
    """Let Spark label what clients did in a lab."""
    from mudkit import pipeline  # loads Spark

    spark = pipeline.session()
    with tempfile.TemporaryDirectory(prefix="mudkit-loop-") as place:
        folder = driven.lab.trace.to_parquet(Path(place) / "trace")
        positions, reads = (pipeline.read(spark, folder, name) for name in ("positions", "reads"))
        return Mined(
            positions.toArrow(),
            reads.toArrow(),
            pipeline.label_reads(positions, reads).toArrow(),
            pipeline.label_writes(positions, reads).toArrow(),
        )


def _comes_us(mined: Mined, learnt: LearntWrites) -> NDArray[np.int64]:
    """Tell when each position comes to the cloud with a write policy, in the order of the table."""
    writes = Writes.of(mined.first_reads, mined.positions)
    rows = pa.compute.sort_indices(mined.positions, [("device", "ascending"), ("ts", "ascending")])
    arrival_us = np.empty(len(writes.t_us), dtype=np.int64)
    arrival_us[rows.to_numpy()] = batches(writes, learnt.due_us(writes)).sent_us
    return arrival_us


def _measured(driven: Driven, pairs: Pairs, completeness: float) -> dict[str, Any]:
    reads, bill = driven.reads, driven.lab.bill()
    stale = reads["completeness"] < completeness
    served = fewest_sends(pairs, pairs.completeness < completeness, pairs.devices(), int(stale.sum()))
    bound, sent = float((served == SENT).mean()), float(reads["is_sent"].mean())
    held = min_sent_share(reads["held"].to_numpy(), completeness, int(stale.sum()))
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
        "held_share": held,
        "regret_held": sent - held,
    }
