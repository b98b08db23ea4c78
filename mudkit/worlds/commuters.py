"""Commuters: cars that report and drivers who query (Mobius 7.3); policies learnt, shipped and watched."""

from __future__ import annotations

import datetime as dt
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mudkit import intervals, learning
from mudkit.checks import OneOf, Range, check_arguments, number, whole_number
from mudkit.display import shows_fields
from mudkit.lab import Lab
from mudkit.learning import Batch, BatchTree, Tree, cache_completeness, min_sent_share
from mudkit.learning.batching import LearntWrites
from mudkit.learning.bound import fewest_sends
from mudkit.learning.costs import Costs
from mudkit.learning.evaluate import decide_out_of_fold
from mudkit.learning.features import Features
from mudkit.learning.pairs import Pairs
from mudkit.learning.replay import SENT, replay
from mudkit.learning.writes import ReadRequests, Writes, batches
from mudkit.sources.workloads import Poisson
from mudkit.systems.mud import (
    Artefact,
    Client,
    Cloud,
    Later,
    Learner,
    NearAndRecent,
    ReadPolicy,
    ShippedPolicy,
    WritePolicy,
)
from mudkit.units import US_PER_S, box_bounds, distance_km, in_box

if TYPE_CHECKING:
    import pandas as pd

    from mudkit.events import Operation

APP: Final = "traffic"
"""The application, and its table."""
_ABOUT: Final = "lat BETWEEN {south} AND {north} AND lon BETWEEN {west} AND {east} AND at_s > {since}"
_MOVED_KM: Final = 0.1

DriveTime = Literal["any time", "driving"]


@shows_fields
class CommutersRun(NamedTuple):
    """Result of some days.

    Parameters
    ----------
    lab : Lab
    reads : pandas.DataFrame
        A row for each read that was answered: ``device, at_s, lat, lon, is_sent, points`` (that its answer
        should hold), ``missing`` of them (a device holds what it wrote itself), ``completeness`` (the share
        of what others wrote), and ``cache_completeness``: that of a cache of the answers to all earlier
        reads of the device. No cache holds more: below 1, no policy can answer completely from the device.
    versions, write_versions : list of int
        Versions of the shipped read and write policies that the clients use in the end; 0: none.
    point_share : float
        Share of the writes that came to the cloud until the days ended.
    written : pandas.DataFrame or None
        ``device, t_us`` of the positions that were written, if parked cars do not report; None: all were.
    """

    lab: Lab
    reads: pd.DataFrame
    versions: list[int]
    write_versions: list[int]
    point_share: float
    written: pd.DataFrame | None = None


@check_arguments(types=False)
@dataclass(frozen=True)
class Commuters:
    """Plan of cars that report, and of drivers that query.

    Parameters
    ----------
    cars, days : int
    every_s : float
        Time between two reports of a car.
    reads_per_day : float
        Mean number of queries of a driver: a Poisson process.
    box_km, window_s : float
        Box and time of a query.
    link : str
        Link profile with a latency.
    query_when, report_when : {'any time', 'driving'}
        With ``driving``, a car that has not moved since its last report does not query, or not report.
    """

    cars: Annotated[int, Range(1, 10_000)] = 12
    days: Annotated[int, Range(1, 366)] = 2
    every_s: Annotated[float, Range(1.0, 1e6)] = 300.0
    reads_per_day: Annotated[float, Range(1e-3, 1e6)] = 48.0
    box_km: Annotated[float, Range(1e-3, 1e6)] = 20.0
    window_s: Annotated[float, Range(1.0, 1e6)] = 7200.0
    link: str = "lte"
    query_when: Annotated[DriveTime, OneOf()] = "any time"
    report_when: Annotated[DriveTime, OneOf()] = "any time"

    def run(
        self,
        seed: int,
        start: str,
        read_policy: ReadPolicy | ShippedPolicy[ReadPolicy] | None,
        ship: Artefact | Sequence[Artefact] | None = None,
        *,
        write_policy: WritePolicy | ShippedPolicy[WritePolicy] | None = None,
    ) -> CommutersRun:
        """Run some days.

        Parameters
        ----------
        seed : int
            Same seed, same people; other days are other drives.
        start : str
            The first day.
        read_policy, write_policy : ReadPolicy or WritePolicy, ShippedPolicy or None
            Policies of every client; without a write policy, writes go at once.
        ship : Artefact or sequence of Artefact, optional
            Policies that the cloud ships as the days begin.
        """
        run = Drive(self, seed, start, read_policy, write_policy)
        for artefact in [ship] if isinstance(ship, Artefact) else ship or ():
            run.cloud.ship(artefact, app=APP).result()
        run.lab.run(hours=24.0 * self.days)
        return run.end()


class Drive:
    """Days of a plan that advance while the lab runs; see :meth:`Commuters.run`."""

    def __init__(
        self,
        plan: Commuters,
        seed: int,
        start: str,
        read_policy: ReadPolicy | ShippedPolicy[ReadPolicy] | None,
        write_policy: WritePolicy | ShippedPolicy[WritePolicy] | None = None,
        learner: Learner | None = None,
    ) -> None:
        self._plan = plan
        self.lab = lab = Lab(seed, start=start, record_messages=False, record_exposure=False)
        self.cloud = Cloud(lab, learner=learner)
        self.devices = lab.fleet(
            plan.cars,
            mobility="commute",
            link=plan.link,
            every_s=plan.every_s,
            prefix="car",
            clock_us=lab.start_us,
        )
        hours = 24.0 * (plan.days + 1)
        self.clients = [
            Client(
                device,
                self.cloud,
                app=APP,
                token=lab.token(device.name, APP, hours=hours),
                read_policy=read_policy,
                write_policy=write_policy,
                reports_usage=learner is not None,
            )
            for device in self.devices
        ]
        self.clients[0].create(APP, acl="app").result()
        self._queries: list[tuple[int, int, tuple[float, float], Operation]] = []
        self._answered_us: dict[int, int] = {}
        self._written: list[tuple[int, int, float, float]] = []
        self._last: dict[int, tuple[float, float]] = {}
        self._moves: set[int] = set()
        length_us = plan.days * 86_400 * US_PER_S
        names = [device.name for device in self.devices]
        name = f"reads from {dt.date.fromisoformat(start[:10])}"
        moments = Poisson(per_day=plan.reads_per_day).moments(seed, name, names, lab.start_us, length_us)
        begun_us = lab.world.now_us
        for row, t_us in zip(moments.device.tolist(), moments.t_us.tolist(), strict=True):
            if t_us > begun_us:
                lab.world.schedule_call(t_us, self._ask, row)
        self._every_us = round(plan.every_s * US_PER_S)
        lab.world.schedule_call((begun_us // self._every_us + 1) * self._every_us, self._report)

    def change_reports(self, when: DriveTime) -> None:
        """Change when cars report, from now on."""
        self._plan = replace(self._plan, report_when=when)

    def _report(self, _: Any) -> None:
        """Write the place of every car that reports."""
        now_us = self.lab.world.now_us
        for row, device in enumerate(self.devices):
            if device.loc is not None:
                last = self._last.get(row, device.loc)
                if distance_km(*device.loc, *last) > _MOVED_KM:
                    self._moves.add(row)
                else:
                    self._moves.discard(row)
                is_first = row not in self._last
                self._last[row] = device.loc
                if is_first or row in self._moves or self._plan.report_when == "any time":
                    self._write(row, *device.loc)
        self.lab.world.schedule_call(now_us + self._every_us, self._report)

    def _write(self, row: int, lat: float, lon: float) -> None:
        """Write a car's position, and remember it as written at the current time."""
        now_us = self.lab.world.now_us
        record = {"lat": lat, "lon": lon, "at_s": now_us / 1e6}
        self._written.append((row, now_us, lat, lon))
        self.clients[row].write(APP, self._key(row, now_us), record)

    def _key(self, row: int, t_us: int) -> str:
        """Return the key of a car's position: the car's name and the time in whole seconds."""
        return f"{self.devices[row].name} {t_us // US_PER_S}"

    def _ask(self, row: int) -> None:
        """Send a driver's query for the traffic around her."""
        device, now_us = self.devices[row], self.lab.world.now_us
        if device.loc is None or (self._plan.query_when == "driving" and row not in self._moves):
            return
        box = box_bounds(*device.loc, self._plan.box_km)
        edges = {name: float(value) for name, value in box._asdict().items()}
        predicate = _ABOUT.format(**edges, since=now_us / 1e6 - self._plan.window_s)
        self.lab.trace.record_read(device, self._plan.box_km, self._plan.window_s)
        answered = partial(self._record_answer, len(self._queries))
        operation = self.clients[row].read(APP, predicate, data={"loc": device.loc}, callback=answered)
        self._queries.append((row, now_us, device.loc, operation))

    def _record_answer(self, query: int, _: Any) -> None:
        """Remember the current time as the time of the query's answer."""
        self._answered_us[query] = self.lab.world.now_us

    def end(self) -> CommutersRun:
        """Return the result so far."""
        reads = self.answers()
        self.lab.run(seconds=1)
        policies = [client.policies().result() for client in self.clients]
        versions, write_versions = (
            [used.get(kind, {}).get("version", 0) for used in policies] for kind in ("read", "write")
        )
        pending = sum(len(client.pending().result()) for client in self.clients)
        share = 1.0 - pending / max(len(self._written), 1)
        return CommutersRun(self.lab, reads, versions, write_versions, share, self._written_positions())

    def _written_positions(self) -> pd.DataFrame | None:
        """Return device and time of each position written; None when cars report at any time."""
        import pandas as pd

        if self._plan.report_when == "any time":
            return None
        rows = [(self.devices[row].name, self.lab.start_us + t_us) for row, t_us, _, _ in self._written]
        return pd.DataFrame(rows, columns=["device", "t_us"])

    def answers(self) -> pd.DataFrame:
        """Compare the answers so far with all writes before each query."""
        import pandas as pd

        owner, t_us, lat, lon = map(np.array, zip(*self._written, strict=True))
        window_us = round(self._plan.window_s * US_PER_S)
        covered = {row: np.zeros(len(owner), dtype=np.bool_) for row in range(len(self.devices))}
        rows = []
        for query, (row, at_us, place, operation) in enumerate(self._queries):
            box = box_bounds(*place, self._plan.box_km)
            due = (t_us > at_us - window_us) & (t_us <= at_us) & in_box(lat, lon, box)
            of_others = due & (owner != row)
            covered_share = float(covered[row][of_others].mean()) if of_others.any() else 1.0
            covered[row] = covered[row] | due
            if query not in self._answered_us:
                continue
            records: Mapping[str, Any] = operation.result().records
            others = list(map(self._key, owner[of_others].tolist(), t_us[of_others].tolist()))
            missing = sum(key not in records for key in others)
            share = 1.0 - missing / len(others) if others else 1.0
            is_sent = self._answered_us[query] > at_us  # a device answers in no time, the cloud does not
            name = self.devices[row].name
            rows.append((name, at_us / 1e6, *place, is_sent, int(due.sum()), missing, share, covered_share))
        columns = [
            "device",
            "at_s",
            "lat",
            "lon",
            "is_sent",
            "points",
            "missing",
            "completeness",
            "cache_completeness",
        ]
        return pd.DataFrame(rows, columns=columns)


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
    reads: pa.Table
    labels: pa.Table
    first_reads: pa.Table
    """Labels of the positions, see ``pipeline.label_writes``."""


@shows_fields
class Loop(NamedTuple):
    """Result of :func:`close_the_loop`; ``alarm`` and versions are those at the end of the days."""

    table: pd.DataFrame
    policy: GeneratedPolicy
    alarm: DriftAlarm
    versions: list[int]
    writes: Artefact | None = None
    write_versions: list[int] = []  # noqa: RUF012 - nobody changes it


@check_arguments(types=False)
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

    Where nobody else reports, old answers stay complete, and the tree was trained on none that is older than
    two hours: for those the policy asks.

    Parameters
    ----------
    labels, reads : pyarrow.Table
        Result of ``pipeline.label_reads`` with its horizon of two hours, and the reads that were labelled.
    positions : pyarrow.Table
        All writes.
    completeness : float
        Below it an answer is stale.
    cost, features
        As for :class:`mudkit.learning.Tree`.
    arrival_us : ndarray of int64, shape (positions,), optional
        Times at which the positions come to the cloud; by default at once.

    Raises
    ------
    ParameterError, TraceContentError
        As :meth:`mudkit.learning.Tree.learn`.
    """
    tree = Tree(cost, features)
    pairs = Pairs.of(labels, reads, positions)
    stale = pairs.are_stale(completeness)
    sent = replay(pairs, decide_out_of_fold(tree, pairs, stale)) == SENT
    whole = cache_completeness(positions, reads, sent, arrival_us=arrival_us)
    low, high = promise(pairs, whole < completeness)
    learnt = tree.learn(pairs, stale)
    manifest = {"stale": f"completeness below {completeness:g}", "reads": len(reads)}
    artefact = learning.export_policy(learnt, 1, manifest=manifest).up_to_age(_LABELLED_S)
    return GeneratedPolicy(artefact, low, high)


def promise(pairs: Pairs, stale: NDArray[np.bool_]) -> tuple[float, float]:
    """Return the hull of the 95 % intervals of the share of stale answers over devices and over reads."""
    of_devices = intervals.mean([stale[rows].mean() for rows in pairs.devices()])
    of_reads = intervals.share(int(np.count_nonzero(stale)), len(stale))
    return float(np.fmin(of_devices.low, of_reads.low)), float(np.fmax(of_devices.high, of_reads.high))


def generate_write_policy(labelled: LabelledRun, match: Batch) -> tuple[Artefact, LearntWrites]:
    """Train a write policy on all writes, with which no more reads miss a write than with a fixed delay."""
    writes, reads = Writes.of(labelled.first_reads, labelled.positions), ReadRequests.of(labelled.reads)
    learnt = BatchTree(match=match).learn(writes, reads)
    manifest = {"misses no more than": str(match), "writes": len(writes.t_us)}
    return learning.export_policy(learnt, 1, manifest=manifest), learnt


@check_arguments(types=False)
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
    completeness, cost, features
        As for :func:`generate_policy`.
    writes : Batch, optional
        Fixed delay of writes before; with the learnt tree no more reads miss a write. By default writes go at
        once, and no tree is learnt for them.

    Returns
    -------
    Loop
        Its ``table`` has a row for ``before`` and ``after``, on the same days, and between them ``reads
        learnt`` when writes are learnt, too: ``policy, reads``; ``sent_share, stale_share, missed_share``
        (answers that lack any point that another car has written by then), ``completeness``; of the cars'
        bill ``messages, sent_messages`` (those up), ``bytes, radio_j``; ``point_share`` (writes that came to
        the cloud before the end). ``bound_share`` is the smallest share that could have been sent with as
        many stale answers, each from the last fetched answer, and ``regret`` the share sent above it;
        negative if a client that answers from all that it holds does better. ``full_cache_share,
        full_cache_regret``: the same for a cache of all answers, which no policy beats.

    Raises
    ------
    ParameterError, TraceContentError
        As :func:`generate_policy` and :meth:`mudkit.learning.BatchTree.learn`.
    """
    import pandas as pd

    rule = ShippedPolicy(fallback=NearAndRecent())
    delayed = None if writes is None else ShippedPolicy(fallback=Later(60.0 * writes.minutes))
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
        rows.append({"policy": name, **_measure(driven, pairs, completeness)})
    stale = int((driven.reads["completeness"] < completeness).sum())
    alarm = DriftAlarm(generated.stale_low, generated.stale_high).add(len(driven.reads), stale)
    return Loop(pd.DataFrame(rows), generated, alarm, driven.versions, write_artefact, driven.write_versions)


@check_arguments(types=False)
def label_run(run: CommutersRun) -> LabelledRun:
    """Label the positions and reads of a run's clients with Spark.

    Parameters
    ----------
    run : CommutersRun
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


def _measure(driven: CommutersRun, pairs: Pairs, completeness: float) -> dict[str, Any]:
    """Return the figures of a run: counts, shares, costs, and the distance from the bounds in hindsight.

    The bounds send the fewest reads that leave as many stale answers as the run has.
    """
    reads, bill = driven.reads, driven.lab.bill()
    stale = reads["completeness"] < completeness
    served = fewest_sends(pairs, pairs.are_stale(completeness), pairs.devices(), int(stale.sum()))
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


@check_arguments(types=False)
@dataclass(frozen=True)
class DriftAlarm:
    """Alarm when the share of stale answers is not the promised one.

    Parameters
    ----------
    low, high : float
        Promised interval of the share.
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

    def add(self, reads: Annotated[int, Range(0, 1 << 31)], stale: int) -> DriftAlarm:
        """Return the alarm after more reads, of which some were stale."""
        whole_number("stale", stale, 0, reads)
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
