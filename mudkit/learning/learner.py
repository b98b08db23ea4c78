"""Learner of the policy generator: policies from what devices have reported of their use (Mobius 6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mudkit import intervals
from mudkit.checks import Range, check_arguments
from mudkit.errors import TraceContentError
from mudkit.learning.export import export_policy
from mudkit.learning.fetching import learn_prefetches
from mudkit.learning.policies import Always
from mudkit.learning.search import recommend
from mudkit.pipeline.coverage import read_labels
from mudkit.systems.mud.policies.artefact import OWN, Artefact
from mudkit.systems.mud.policies.learner import LearntPolicy
from mudkit.trace.schema import POSITIONS, READS, USAGE, with_read_ids

if TYPE_CHECKING:
    from mudkit.learning.search import Recommendation

_MIN_DEVICE_FOLDS: Final = 10
"""Devices from which on policies are chosen on some and scored on others; with fewer, on days."""
_MIN_READS: Final = 20
"""Reads of the last day, with fewer of which it says nothing against a policy."""
_ALL_KM: Final = 50_000.0
"""Side of a square that has all places."""


@check_arguments
class Learner:
    """Learns when devices answer by themselves (Mobius 7.3), and what they fetch in advance.

    What was read and written is labelled as :func:`mudkit.pipeline.label_reads` labels a trace, and searched
    with :func:`mudkit.learning.recommend`: a policy ships if, on devices or days that it was not chosen on,
    it answers more than any simpler one by its interval and keeps the limit of stale answers. If none does,
    or the interval of stale answers on the last day alone lies above the limit, people behave in another way
    than before: devices go back to a policy of their own.

    It assumes that what was reported is all that is written to the table: writes of apps and devices that do
    not report are unknown to it, and answers that lack them count as fresh. Where nothing is asked about an
    area, it learns from the query that is read most, for which any write to the table counts as one that it
    should have; the policy then answers queries that a cached one covers.

    Parameters
    ----------
    window_s : float
        Age up to which answers are labelled and used, in seconds. Also the time before a read from which
        records are part of its answer, if what was reported does not say it.
    completeness : float
        An answer is stale if it has a smaller share of what others have written; 1: if it lacks any record.
    max_stale : float
        Largest share of the reads that may be answered stale.
    min_devices : int
        Fewest devices of an app that are learnt from, and that have read a query which is fetched in advance:
        no policy shows what a few have done.
    min_hit_share : float
        Answers are fetched in advance if at least this share of them is read, by the interval on devices that
        the policy was not learnt from.
    """

    def __init__(
        self,
        *,
        window_s: Annotated[float, Range(1.0, 1e8)] = 7200.0,
        completeness: Annotated[float, Range(1e-9, 1.0)] = 0.9,
        max_stale: Annotated[float, Range(0.0, 1.0)] = 0.05,
        min_devices: Annotated[int, Range(2, 1 << 31)] = 3,
        min_hit_share: Annotated[float, Range(0.0, 1.0)] = 0.5,
    ) -> None:
        self._window_s = window_s
        self._completeness = completeness
        self._max_stale = max_stale
        self._min_devices = min_devices
        self._min_hit_share = min_hit_share

    def learn(self, usage: pa.Table, seed: int) -> Sequence[LearntPolicy]:
        """See :class:`mudkit.systems.mud.Learner`.

        There is a read policy for each table of an app of which areas are read, and a prefetch policy for
        each one of which queries are read again and again.

        Raises
        ------
        TraceContentError
            The table does not have the columns of a trace's ``usage``.
        """
        if not set(USAGE.names) <= set(usage.column_names):
            raise TraceContentError(
                "This is no table of usage.",
                found=", ".join(usage.column_names),
                expected=", ".join(USAGE.names),
            )
        return list(self._learn_each(usage, seed))

    def _learn_each(self, usage: pa.Table, seed: int) -> Iterator[LearntPolicy]:
        """Yield the policies of each app and table of which there is enough usage."""
        keys = (usage[name].to_pylist() for name in ("app", "table"))
        for app, table in sorted(set(zip(*keys, strict=True))):
            of_table = usage.filter(pc.equal(usage["table"], table))  # other apps may write to it, too
            of_app = of_table.filter(pc.equal(of_table["app"], app))
            artefacts = [
                self._learn_reads(of_app, of_table, table, seed),
                learn_prefetches(
                    of_app, table, min_devices=self._min_devices, min_hit_share=self._min_hit_share
                ),
            ]
            yield from (LearntPolicy(app, artefact) for artefact in artefacts if artefact is not None)

    def _learn_reads(self, of_app: pa.Table, of_table: pa.Table, table: str, seed: int) -> Artefact | None:
        """Return the read policy of a table, by its reads of areas, or else by those of a query.

        None: too few devices or reads.
        """
        written = of_table.filter(pc.equal(of_table["op"], "write"))
        all_reads = of_app.filter(pc.equal(of_app["op"], "read"))
        rows = all_reads.filter(pc.and_(pc.is_valid(all_reads["box_km"]), pc.is_valid(all_reads["lat"])))
        has_areas = _count_devices(rows) >= self._min_devices
        if has_areas:
            written = written.filter(pc.is_valid(written["lat"]))
        else:
            rows, written = (_everywhere(part) for part in (_most_read(all_reads), written))
        devices = _count_devices(rows)
        if devices < self._min_devices:
            return None
        reads = self._reads(rows)
        labels = read_labels(_positions(written), reads, self._window_s)
        recommendation = recommend(
            labels,
            reads,
            max_stale=self._max_stale,
            completeness=self._completeness,
            folds="device" if devices >= _MIN_DEVICE_FOLDS else "time",
            seed=seed,
        )
        if not recommendation.has_enough_reads:
            return None
        artefact = self._artefact(table, recommendation, devices)
        return artefact if has_areas or artefact.root == OWN else artefact.if_covered()

    def _artefact(self, table: str, recommended: Recommendation, devices: int) -> Artefact:
        """Return the policy to ship: the recommended one up to the age that was seen, or the devices' own."""
        policy = recommended.chosen.policy
        is_kept = not isinstance(policy, Always) and self._holds_on_last_day(recommended)
        manifest: dict[str, Any] = {
            "learnt from": f"{recommended.count:,} reads of {devices:,} devices",
            "stale": f"at most {self._max_stale:g}, below a completeness of {self._completeness:g}",
            "chosen": recommended.chosen.family if is_kept else "own policy",
        }
        if not is_kept:
            return Artefact.create("read", 1, [], [[0]], [OWN], manifest=manifest, table=table)
        return export_policy(policy, 1, manifest=manifest).up_to_age(self._window_s).of_table(table)

    def _holds_on_last_day(self, recommended: Recommendation) -> bool:
        """Return whether the stale answers of the last day are compatible with the limit."""
        is_last = recommended.day == recommended.day.max()
        reads, stale = int(recommended.reads[is_last].sum()), int(recommended.chosen.stale[is_last].sum())
        return reads < _MIN_READS or intervals.share(stale, reads).low <= self._max_stale

    def _reads(self, rows: pa.Table) -> pa.Table:
        """Return reported reads of areas as those of a trace; of equal ones in one moment, one."""
        columns = {name: rows[name] for name in ("device", "ts", "lat", "lon", "box_km")}
        count = len(rows)
        columns |= {
            "window_s": pc.fill_null(rows["window_s"], self._window_s),
            "origin": pa.array(["recorded"] * count, pa.string()),
        }
        fields = [field for field in READS if field.name != "read_id"]
        reads = with_read_ids(
            pa.table(columns).select([field.name for field in fields]).cast(pa.schema(fields))
        )
        _, first = np.unique(reads["read_id"].to_numpy(), return_index=True)
        return reads.take(pa.array(np.sort(first)))


def _count_devices(rows: pa.Table) -> int:
    """Return the number of different devices of some rows."""
    return int(pc.count_distinct(rows["device"]).as_py())


def _most_read(reads: pa.Table) -> pa.Table:
    """Return the reads of the query that is read most; of several, the first by its text."""
    repeated = reads.filter(pc.is_valid(reads["query"]))
    counted = Counter(repeated["query"].to_pylist())
    if not counted:
        return repeated
    query = min(counted, key=lambda text: (-counted[text], text))
    return repeated.filter(pc.equal(repeated["query"], query))


def _everywhere(rows: pa.Table) -> pa.Table:
    """Return rows with an area that has all places, and with some place."""
    columns = {name: rows[name] for name in rows.column_names}
    columns |= {name: pc.fill_null(rows[name], 0.0) for name in ("lat", "lon")}
    columns["box_km"] = pa.array(np.full(len(rows), _ALL_KM))
    return pa.table(columns)


def _positions(written: pa.Table) -> pa.Table:
    """Return the positions of a trace that were written."""
    columns = {name: written[name] for name in ("device", "ts", "lat", "lon")}
    return pa.table(columns | {"speed_mps": pa.nulls(len(written), pa.float64())}).cast(POSITIONS)
