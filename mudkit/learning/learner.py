"""Learner of the policy generator: policies from what devices have reported of their use (Mobius 6)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import pyarrow as pa

from mudkit import intervals, words
from mudkit.checks import Range, check_arguments
from mudkit.display import shows_fields
from mudkit.learning.devices import open_devices
from mudkit.learning.export import export_policy
from mudkit.learning.fetching import learn_prefetches
from mudkit.learning.policies import Always
from mudkit.learning.search import MIN_READS, search_policies
from mudkit.learning.waiting import Limits, learn_delays
from mudkit.pipeline.coverage import read_labels
from mudkit.systems.mud.policies.artefact import OWN, Artefact, Kind
from mudkit.systems.mud.policies.learner import LearntPolicy
from mudkit.trace.usage import Counted, ReportedUsage, Survey, Usage, devices_for

if TYPE_CHECKING:
    from mudkit.intervals import Interval
    from mudkit.learning.search import Recommendation
    from mudkit.learning.trees import Folds

_MIN_DEVICE_FOLDS: Final = 10
"""Devices from which on policies are chosen on some and scored on others; with fewer, on days."""
_MIN_READS: Final = 20
"""Reads of the last day, with fewer of which it says nothing against a policy."""
WEEKDAYS_FROM: Final = 14
"""Days with reads, or writes, from which on trees ask for weekdays: there are two of each."""
_MAX_READS: Final = 400_000
"""Reads of a table that are learnt from, at most, about: if there are more, of a sample of the devices."""


@shows_fields
@check_arguments(types=False)
@dataclass(frozen=True)
class PolicyVerdict:
    """Verdict on a kind of policy for an app's table: what was learnt, and why it ships or not.

    Attributes
    ----------
    app, table : str
    kind : {'read', 'write', 'prefetch'}
    artefact : Artefact or None
        The policy, or that which leaves decisions to the devices; None: there is too little usage for either.
    why : str
        Reason, in words.
    """

    app: str
    table: str
    kind: Kind
    artefact: Artefact | None
    why: str

    @property
    def ships(self) -> bool:
        """Return whether there is a policy that pays."""
        return self.artefact is not None and self.artefact.root != OWN

    @property
    def policy(self) -> LearntPolicy | None:
        """Return what the policy generator ships, if anything."""
        return None if self.artefact is None else LearntPolicy(self.app, self.artefact)


@check_arguments
class Learner:
    """Learns when devices answer by themselves, how long writes wait (Mobius 7.3), and what is fetched early.

    What was read and written is labelled as :func:`mudkit.pipeline.label_reads` labels a trace, and searched
    with :func:`mudkit.learning.recommend`: a policy ships if, on devices or days that it was not chosen on,
    it answers more than any simpler one by its interval and keeps the limit of stale answers. If none does,
    or the interval of stale answers on the last day alone lies above the limit, people behave in another way
    than before: devices go back to a policy of their own.

    Writes of a table wait if that surely saves messages, and on readers or days that the delay was not chosen
    on keeps the limit of reads that become stale because of it. There is a fixed delay, or one by place and
    time where that surely saves more. Nothing waits for good, and nothing at all in a table of which a
    continuous read was reported. The limit of stale answers of devices, and that of reads for which a write
    comes late, hold each on its own.

    It assumes that what was reported is all that is written to the table: writes of apps and devices that do
    not report are unknown to it, and answers that lack them count as fresh. Where nothing is asked about an
    area, it learns from the query that is read most, and from when its answer has changed, as processors have
    counted it for all who write. Before they have, any write to the table counts as one that the answer
    should have. The policy answers queries that a cached one covers.

    Parameters
    ----------
    window_s : float
        Age up to which answers are labelled and used, in seconds. Also the time before a read from which
        records are part of its answer, if what was reported does not say it.
    completeness : float
        An answer is stale if it has a smaller share of what others have written; 1: if it lacks any record.
    max_stale : float
        Largest share of the reads that may be answered stale; and of those that may lack a write that waits.
    min_devices : int
        Fewest devices of an app that are learnt from, and that have read a query which is fetched in advance:
        no policy shows what a few have done.
    min_hit_share : float
        Answers are fetched in advance if at least this share of them is read, by the interval on devices that
        the policy was not learnt from; and unless those of the last day alone are surely read less often.
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

    @property
    def min_devices(self) -> int:
        """Fewest devices that are learnt from."""
        return self._min_devices

    def learn(self, usage: pa.Table, seed: int) -> Sequence[LearntPolicy]:
        """See :class:`mudkit.systems.mud.Learner`.

        There is a read policy for each table of an app of which areas are read, or a query is read again and
        again, a write policy for each one that is written and read, and a prefetch policy for each one of
        which queries are read again and again.

        Raises
        ------
        TraceContentError
            The table does not have the columns of a trace's ``usage``.
        """
        verdicts = self.judge(ReportedUsage(usage), seed)
        return [one.policy for one in verdicts if one.policy is not None]

    @check_arguments(types=False)
    def judge(self, usage: Usage, seed: int) -> Sequence[PolicyVerdict]:
        """Judge each kind of policy by usage in this process or on Spark: why it ships or not.

        Parameters
        ----------
        usage : Usage
            Of an Arrow table :class:`mudkit.trace.usage.ReportedUsage`; of Spark see
            :func:`mudkit.pipeline.mine`.
        seed : int
            Which devices are learnt from, if there are too many.

        Returns
        -------
        sequence of PolicyVerdict
            Three of each app and table, for reads, writes and prefetches, in order.
        """
        return list(self._judge_each(usage, seed))

    def _judge_each(self, usage: Usage, seed: int) -> Iterator[PolicyVerdict]:
        """Yield the verdicts of each app and table."""
        for of in usage.surveys(self._min_devices):
            yield PolicyVerdict(of.app, of.table, "read", *self._learn_reads(usage, of, seed))
            yield PolicyVerdict(of.app, of.table, "write", *self._learn_writes(usage, of, seed))
            few = f"No query is read repeatedly by {self._min_devices:,} devices."
            yield PolicyVerdict(
                of.app,
                of.table,
                "prefetch",
                *(
                    learn_prefetches(usage, of, min_hit_share=self._min_hit_share, seed=seed)
                    if of.queries
                    else (None, few)
                ),
            )

    def _learn_reads(self, usage: Usage, of: Survey, seed: int) -> tuple[Artefact | None, str]:
        """Return the read policy of a table, by its reads of areas, or else by those of a query; and why.

        None: too few devices or reads.
        """
        has_areas = of.areas.devices >= self._min_devices
        query, counted = (None, of.areas) if has_areas else (of.most_read, of.of_most_read)
        if counted.devices < self._min_devices:
            most = max(of.areas.devices, counted.devices)
            return None, f"It is read by too few devices: {most:,}; there have to be {self._min_devices:,}."
        watched_us = None if has_areas or not self._has_enough(of.of_watched) else of.watched_us
        if watched_us is not None:
            counted = of.of_watched
        devices = devices_for(counted.rows, counted.devices, _MAX_READS)
        reads = usage.reads(of, query, self._window_s, devices, seed, watched_us)
        if watched_us is None:
            written = usage.positions(of, everywhere=not has_areas)
        else:
            written = usage.changes(of)
        labels = self._label(written, reads)
        with open_devices(labels, reads) as opened:
            recommendation = search_policies(
                opened,
                completeness=self._completeness,
                max_stale=self._max_stale,
                folds="device" if devices >= _MIN_DEVICE_FOLDS else "time",
                seed=seed,
                weekdays_from=WEEKDAYS_FROM,
            )
        if not recommendation.has_enough_reads:
            return None, f"It is read too seldom: {recommendation.count:,} times of the {MIN_READS} needed."
        artefact, why = self._artefact(of.table, recommendation, devices)
        return (artefact if has_areas or artefact.root == OWN else artefact.if_covered()), why

    def _has_enough(self, counted: Counted) -> bool:
        """Return whether there are enough reads to learn from."""
        return counted.devices >= self._min_devices and counted.rows >= MIN_READS

    def _learn_writes(self, usage: Usage, of: Survey, seed: int) -> tuple[Artefact | None, str]:
        """Return the write policy of a table, and why; None: too few devices, writes or reads."""
        folds: Folds = "device" if of.table_reads.devices >= _MIN_DEVICE_FOLDS else "time"
        return learn_delays(
            usage,
            of,
            Limits(self._completeness, self._max_stale, folds, WEEKDAYS_FROM),
            min_devices=self._min_devices,
            max_reads=_MAX_READS,
            seed=seed,
        )

    def _label(self, positions: Any, reads: Any) -> Any:
        """Label reads, where they are."""
        if isinstance(reads, pa.Table):
            return read_labels(positions, reads, self._window_s)
        from mudkit.pipeline.labels import label_reads  # loads Spark

        return label_reads(positions, reads, horizon_s=self._window_s)

    def _artefact(self, table: str, recommended: Recommendation, devices: int) -> tuple[Artefact, str]:
        """Return the recommended policy up to the age that was seen, or the devices' own; and why."""
        choice = recommended.chosen
        last_day = self._stale_on_last_day(recommended)
        limit, is_kept = words.percent(self._max_stale), False
        if isinstance(choice.policy, Always):
            why = f"No policy answers enough with at most {limit} of the reads answered stale."
        elif last_day is not None and last_day.low > self._max_stale:
            low, high = words.percent(last_day.low), words.percent(last_day.high)
            why = f"On the last day {low} to {high} of the reads would be answered stale; {limit} may be."
        else:
            fresh, stale = words.percent(choice.fresh_share), words.percent(choice.stale_share)
            why = f"It answers {fresh} of the reads fresh, and {stale} stale, where it was not chosen."
            is_kept = True
        manifest: dict[str, Any] = {
            "learnt from": f"{recommended.count:,} reads of {devices:,} devices",
            "stale": f"at most {self._max_stale:g}, below a completeness of {self._completeness:g}",
            "chosen": choice.family if is_kept else "own policy",
        }
        if not is_kept:
            return Artefact.create("read", 1, [], [[0]], [OWN], manifest=manifest, table=table), why
        policy = export_policy(choice.policy, 1, manifest=manifest)
        return policy.up_to_age(self._window_s).of_table(table), why

    def _stale_on_last_day(self, recommended: Recommendation) -> Interval | None:
        """Return the share of stale answers on the last day; None: too few reads to say."""
        is_last = recommended.day == recommended.day.max()
        reads, stale = int(recommended.reads[is_last].sum()), int(recommended.chosen.stale[is_last].sum())
        return None if reads < _MIN_READS else intervals.share(stale, reads)
