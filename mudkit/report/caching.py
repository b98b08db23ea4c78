"""The report cache_policy: the simplest cache policy that is as good as any, and what that depends on."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
import pandas as pd
import pyarrow as pa

from mudkit import words
from mudkit.display import Cell
from mudkit.intervals import Interval
from mudkit.learning import (
    Always,
    FixedRule,
    export_policy,
    tree_nodes,
)
from mudkit.learning.devices import Devices, LocalDevices, open_devices
from mudkit.learning.pairs import Pairs
from mudkit.learning.policies import (
    MINUTES_A_DAY,
    LearntReads,
    day_runs,
    describe_policy,
    format_age,
    format_time,
)
from mudkit.learning.search import (
    MAX_RISK,
    MIN_GAIN,
    Choice,
    Family,
    Recommendation,
    replayed,
    search_policies,
)
from mudkit.learning.trees import Folds
from mudkit.pipeline.coverage import read_labels
from mudkit.report.assuming import Assumptions, try_assumptions
from mudkit.report.batching import WriteStudy, count_lacking, shown_risk
from mudkit.report.cached_measures import first_measures
from mudkit.report.page import Answer, FirstScreen
from mudkit.report.policies import (
    RULE,
    TimesOfReads,
    answers_by_place,
    choose_with_hindsight,
    compare_policies,
    stale_share,
    times_of_reads,
    try_rules,
)
from mudkit.report.source import TraceSource
from mudkit.systems.mud.policies.artefact import Artefact

if TYPE_CHECKING:
    pass

CAPTION: Final = (
    "Policies, each chosen on other devices or days than those it is scored on; data and energy of a read on "
    "average, if a stale answer counts as a query, with 95 % intervals for as many other devices and days. "
    "● is the best value."
)
BEST: Final[dict[str, Literal["low", "high"]]] = {"data_bytes": "low", "radio_mj": "low"}
SAVINGS_LABELS: Final = {
    "messages_per_day": "messages",
    "data_mb_per_day": "data, MB",
    "radio_j_per_day": "radio energy, J",
}
_MIN_CELL_READS: Final = 10
_SEEN: Final = 5e-4
"""Difference between two shares that are shown to a tenth of a percent."""


@dataclass(frozen=True)
class ReadStudy:
    """Recommendation for the reads of a trace, and what it depends on.

    ``fixed`` are the answers of the fixed rule, ``rule_age`` those of its age at any distance, and ``own``
    those of the recommended policy, chosen on all reads. ``policies`` is the table of what was compared,
    ``tried`` a grid of rules. ``most_fresh`` is the largest share of fresh answers that any policy could give
    with hindsight.
    """

    source: TraceSource
    rule: FixedRule
    completeness: float
    horizon_s: float
    devices: Devices
    search: Recommendation
    fixed: Choice
    rule_age: Choice
    own: Choice
    policies: pd.DataFrame
    most_fresh: float
    tried: pd.DataFrame
    folds: Folds

    @cached_property
    def assumptions(self) -> Assumptions:
        """Recommendations under other assumptions."""
        return try_assumptions(
            self.source,
            self.devices,
            self.search.chosen,
            completeness=self.completeness,
            max_stale=self.max_stale,
            horizon_s=self.horizon_s,
            folds=self.folds,
        )

    @property
    def has_enough_reads(self) -> bool:
        """True if there are enough reads for a recommendation."""
        return self.search.has_enough_reads

    @property
    def max_stale(self) -> float:
        """Largest share of reads that may be answered stale."""
        return self.search.max_stale

    @property
    def family(self) -> Family:
        """Family of the policy that is recommended."""
        return self.search.chosen.family

    @property
    def policy(self) -> Always | FixedRule | LearntReads:
        """The policy that is recommended, chosen on all reads."""
        return self.search.chosen.policy

    @cached_property
    def fresh(self) -> Interval:
        """Share of the reads that it answers fresh from the cache, out of fold."""
        return self.search.share(self.search.chosen.fresh)

    @property
    def saved(self) -> float:
        """Share that the first screen states: the lower of :attr:`fresh` and :attr:`shipped`."""
        return min(self.fresh.value, self.shipped)

    @cached_property
    def stale(self) -> Interval:
        """Share of the reads that it answers stale, out of fold."""
        return stale_share(self.search, self.search.chosen.stale)

    @cached_property
    def gain(self) -> Interval:
        """Share of the reads that it answers fresh beyond those of the fixed rule."""
        return self.search.gain(self.search.chosen, self.fixed)

    @property
    def is_rule_allowed(self) -> bool:
        """True if the fixed rule keeps the limit of stale answers as surely as a recommendation has to."""
        return self.search.risk(self.fixed) <= MAX_RISK

    @property
    def does_rule_stay(self) -> bool:
        """True if the fixed rule keeps the limit, and what is recommended is hardly better or not surely."""
        return self.is_rule_allowed and not (self.gain.value > MIN_GAIN and self.gain.low > 0)

    def first_screen(self, delays: WriteStudy) -> FirstScreen:
        """Return what was read, three figures, the recommendation, what it rests on and assumes."""
        writes_per_day = self.source.count / self.source.recorded_days
        return FirstScreen(
            self.source.describe(),
            self._tiles(),
            self._headline(),
            " ".join([*self._reasons(), delays.summary(writes_per_day)]),
            self._assumption(),
            [*self.source.warnings(), *self._warnings()],
            [*first_measures(self), *delays.measures(writes_per_day)],
        )

    def _tiles(self) -> list[tuple[str, str]]:
        """Return value and text of the first screen's tiles; only one if there are too few reads."""
        if not self.has_enough_reads:
            return [(f"{self.search.count:,}", "reads: too few to recommend a policy")]
        allowed = words.percent(self.max_stale)
        of_rule = words.percent(self.fixed.fresh_share, 1)
        if self.family == "always ask":
            best = max(self.search.choices, key=lambda choice: choice.fresh_share)
            first = (
                words.percent(best.fresh_share, 1),
                "of the reads are answered fresh from the cache by the best policy that was found",
            )
        else:
            first = words.percent(self.saved, 1), "of the reads get a fresh answer from the cache"
        stale = self.fixed.stale_share
        second = of_rule, f"do so with the fixed rule, {describe_policy(self.rule)}"
        if stale > self.max_stale:
            text = f"are stale with the fixed rule, {describe_policy(self.rule)}; {allowed} are allowed"
            second = words.percent(stale, 1), text
        most = words.percent(self.most_fresh, 1)
        return [first, second, (most, "is the most that any policy could give, with hindsight")]

    def _headline(self) -> str:
        """Return what is recommended, as a sentence."""
        if not self.has_enough_reads:
            return f"Nothing is recommended: {count_lacking(self.search.count, 'read')}"
        if self.family == "always ask":
            stale = f"Ask the server for every read: with at most {words.percent(self.max_stale)} stale,"
            if self.most_fresh < MIN_GAIN:
                return f"{stale} no cache could answer more than {words.percent(self.most_fresh, 1)} fresh."
            return f"{stale} no policy surely answers {words.percent(MIN_GAIN)} fresh, the least that counts."
        share = f"{words.percent(self.saved, 1)} of the reads get a fresh answer without the server"
        if self.family == "tree":
            return f"Use the learnt {describe_policy(self.policy)}: {share}."
        if self.family == "age by hour":
            return f"Answer from the cache up to an age that depends on the time of day: {share}."
        return f"Answer from the cache when its answer is {describe_policy(self.policy)}: {share}."

    def _reasons(self) -> list[str]:
        """Return why, as sentences; none if there are too few reads."""
        search, chosen = self.search, self.search.chosen
        if not self.has_enough_reads:
            return []
        texts = []
        if chosen.family == "always ask":
            best = max(search.choices[1:], key=lambda choice: choice.fresh_share, default=None)
            if best is None:
                texts.append("No policy keeps the limit of stale answers with a margin.")
            else:
                texts.append(
                    f"The best that was found, “{describe_policy(best.policy)}”, answers "
                    f"{_shown(search.share(best.fresh))} fresh, and exceeds the limit of stale answers on "
                    f"other devices and days with a probability of {shown_risk(search.risk(best))}."
                )
        else:
            low, high = 100 * self.fresh.low, 100 * self.fresh.high
            texts.append(
                f"{self._scored()} On as many other devices and days it will be "
                f"{words.interval(low, high, 1)} % (95 %), and more than the {words.percent(self.max_stale)} "
                f"allowed will be stale with a probability of {shown_risk(search.risk(chosen))}; here "
                f"{words.percent(self.stale.value, 1)} are."
            )
            texts += self._against_others()
        texts.append(self._against_rule())
        return [text for text in texts if text]

    def _scored(self) -> str:
        """Return what policies of this kind give out of fold, and the named one if that is more."""
        one, others = ("day", "other days") if self.folds == "time" else ("device", "other devices")
        fresh, shipped = words.percent(self.fresh.value, 1), words.percent(self.shipped, 1)
        if fresh == shipped:
            return f"A policy of this kind that is chosen on {others} than it is scored on gives as many."
        if self.shipped <= self.fresh.value:
            return f"A policy of this kind that is chosen on {others} than it is scored on gives {fresh}."
        return (
            f"Each {one} is scored with a policy of this kind that was chosen on {others}; the one named "
            f"here, chosen on all, answers {shipped} of their reads fresh."
        )

    def _against_others(self) -> list[str]:
        """Compare the recommendation with the best rule, or with the tree."""
        search, chosen = self.search, self.search.chosen
        if chosen.family == "tree":
            rule = search.best_rule
            if rule.family == "always ask":
                return ["No rule keeps the limit."]
            gain = search.gain(chosen, rule)
            return [
                f"The best without a tree, “{describe_policy(rule.policy)}”, gives {_points(gain)} fewer."
            ]
        tree = search.choice("tree")
        if tree is None:
            return []
        rule, name = search.best_rule, f"A learnt {describe_policy(tree.policy)}"
        gain = search.gain(tree, rule)
        than = "" if rule is chosen else f" than “{describe_policy(rule.policy)}”"
        if gain.value <= 0:
            return [f"{name} gives no more{than}."]
        if search.risk(tree) > MAX_RISK:
            return [f"{name} is too likely to miss the limit ({shown_risk(search.risk(tree))})."]
        stale, own = (words.percent(one.stale_share, 1) for one in (tree, rule))
        return [
            f"{name} gives {_points(gain)} more{than}, with {stale} stale against {own}; to be recommended, "
            f"it must surely give more than {words.number(100 * MIN_GAIN)}."
        ]

    def _against_rule(self) -> str:
        """Return whether the fixed rule may stay, in words."""
        rule, gain = f"The fixed rule, “{describe_policy(self.rule)}”,", self.gain
        stale, risk = self.fixed.stale_share, self.search.risk(self.fixed)
        if not (self.fixed.fresh + self.fixed.stale).any():
            gaps = self.source.read_gaps
            shortest_s = gaps.ends()[0] if gaps.count() else math.inf
            if shortest_s >= 60.0 * max(self.rule.ages):
                return f"{rule} can answer no read: two of one device are further apart than that."
            return f"{rule} asks the server for every read."
        if stale > self.max_stale:
            return (
                f"{rule} answers {words.percent(stale, 1)} stale, more than the "
                f"{words.percent(self.max_stale)} allowed."
            )
        gives = f"{rule} gives {words.percent(self.fixed.fresh_share, 1)}"
        if not self.is_rule_allowed:
            return f"{gives}, but misses the limit on other devices with a probability of {shown_risk(risk)}."
        if not self.does_rule_stay:
            own = self.search.chosen.stale_share
            against = f"({_stale(stale)} stale against {_stale(own)})"
            if _stale(stale) == _stale(own):
                against = f"(both {_stale(own)} stale)"
            return f"{gives} {against}, {_points(gain)} fewer{self._without_distance()}."
        if self.family == "always ask":
            return f"{gives}."
        if abs(gain.value) < 5e-4:
            return f"{rule} gives as many, and may stay."
        more = f"{_points(_negated(gain))} more" if gain.value < 0 else f"{_points(gain)} fewer"
        return f"{rule} gives {more}, and may stay."

    @property
    def rival(self) -> Choice | None:
        """The tree if a rule is recommended, else the best rule, or the best that was found; None without."""
        if self.family == "always ask":
            return max(self.search.choices[1:], key=lambda one: one.fresh_share, default=None)
        if self.family == "tree":
            rule = self.search.best_rule
            return None if rule.family == "always ask" else rule
        return self.search.choice("tree")

    def _without_distance(self) -> str:
        """Return what the age of the fixed rule gives at any distance, to follow a comparison."""
        by_age = self.rule_age
        fresh, stale = by_age.fresh_share, by_age.stale_share
        if np.array_equal(by_age.fresh, self.fixed.fresh) or self.family == "always ask":
            return ""
        return f"; at any distance it gives {words.percent(fresh, 1)} ({_stale(stale)} stale)"

    def _assumption(self) -> str:
        """Return what is assumed about reads and stale answers, as sentences."""
        box, window = (words.span(*self.source.requests(name), shown) for name, shown in _ASSUMED)
        derived = self.source.derived_by()
        origin = f"Reads are not recorded but derived by {derived}" if derived else "Reads are recorded"
        return (
            f"{origin}; each asks for the {window} (`window_s`) in a box with sides of {box} (`box_km`) "
            f"around its place.{self._left_out()}{self._apart()} "
            f"An answer is stale when it {self.stale_means()} (`completeness`){self._soon_stale()}. "
            f"At most {words.percent(self.max_stale)} of the reads may be answered stale (`max_stale`), "
            f"from answers that are up to {words.duration(self.horizon_s)} old (`horizon_s`)."
        )

    def _left_out(self) -> str:
        """Return which reads are not judged, as a sentence."""
        left_out = self.source.left_out
        if not left_out:
            return ""
        share = left_out / (left_out + self.source.read_count)
        return (
            f" {left_out:,} other reads ({words.percent(share, 1)}) are left out: they come soon after the "
            "recording begins or resumes, when answers hold less than usual."
        )

    def _apart(self) -> str:
        """Return how far apart two reads of one device are, as a sentence."""
        gaps = self.source.read_gaps
        if not gaps.count():
            return ""
        least_s = gaps.ends()[0]
        never_sooner = f", the shortest {words.duration(least_s)}" if least_s > 0 else ""
        median = words.duration(gaps.median())
        return f" The median time between two reads of a device is {median}{never_sooner}."

    @property
    def stale_after_s(self) -> float | None:
        """Age at which an answer is stale if others write steadily; None: the windows of reads differ."""
        least_s, most_s = self.source.requests("window_s")
        if self.completeness == 1.0 or least_s != most_s:
            return None
        return (1 - self.completeness) * most_s

    def _soon_stale(self) -> str:
        """Return the age at which answers become stale, to follow a sentence; empty: there is none."""
        after_s = self.stale_after_s
        return "" if after_s is None else f"; where others write steadily, after {words.duration(after_s)}"

    def stale_means(self) -> str:
        """Return when an answer is stale, in words."""
        if self.completeness == 1.0:
            return "lacks a point that others wrote"
        return f"lacks more than {words.percent(1 - self.completeness)} of what others wrote"

    def _warnings(self) -> list[str]:
        """Return warnings about the data and the recommendation, as sentences."""
        results = []
        if self.fixed.stale.any() and not self.fixed.fresh.any():
            results.append("Every answer that the fixed rule gives from the cache is stale.")
        if unrecorded := self.source.unrecorded_share:
            short = words.percent(unrecorded)
            results.append(
                f"{short} of the reads ask for times before the recording begins: their answers hold less "
                "than usual, and cached ones are stale sooner."
            )
        oldest_s = 60.0 * max(self.policy.ages) if isinstance(self.policy, FixedRule) else 0.0
        if oldest_s > 0.98 * self.search.longest_s > 0:
            results.append(
                f"The recommended rule keeps answers as long as any that was looked at, "
                f"{words.duration(oldest_s)}: a larger `horizon_s` may save more."
            )
        if self.has_enough_reads:
            results += self.assumptions.warnings()
        if self.search.problem:
            results.append(f"No tree was learnt: {self.search.problem}")
        return results

    def assumptions_answer(self) -> Answer:
        """Return whether other assumptions change the recommendation, as a heading."""
        return (
            self.assumptions.answer()
            if self.has_enough_reads
            else Answer("Too few reads to vary assumptions")
        )

    def policies_answer(self) -> Answer:
        """Return how far the recommended policy is from the best with hindsight, as a heading."""
        left = self.most_fresh - self.fresh.value
        if not self.has_enough_reads:
            return Answer("Too few reads to compare policies", "The table says what each does with these.")
        if self.most_fresh < MIN_GAIN:
            return Answer(f"Even with hindsight {words.percent(self.most_fresh, 1)} are answered fresh")
        if self.family == "always ask":
            return Answer(f"With hindsight {words.percent(self.most_fresh, 1)} could be answered fresh")
        done = self.fresh.value / self.most_fresh
        return Answer(
            f"With hindsight {words.count(round(100 * left, 1), 'point')} more could be answered fresh",
            f"The recommended policy reaches {words.percent(done)} of what any policy could.",
        )

    def policy_table(self) -> pd.DataFrame:
        """Return the policies with the measures that are shown."""
        names = ["fresh_share", "stale_share", "sent_share", "completeness", "data_bytes", "radio_mj"]
        columns = [f"{name}{end}" for name in names for end in ("", "_low", "_high")]
        shares = [name for name in columns if "_share" in name]
        # To a tenth of a percent, as in the sentences.
        return self.policies[["policy", *columns]].round(dict.fromkeys(shares, 3))

    def described(self) -> pd.DataFrame:
        """Return the fixed rule, and the best policy of each family in words."""
        choices = [choice for choice in self.search.choices if choice.family != "always ask"]
        rows = [
            (RULE, Cell(describe_policy(self.rule))),
            *((one.family, Cell(describe_policy(one.policy))) for one in choices),
        ]
        return pd.DataFrame(rows, columns=["policy", "answers from the cache that are used"])

    def policy_bars(self) -> pd.DataFrame:
        """Return fresh and stale answers in percent by policy, for a figure."""
        table = self.policies
        return pd.DataFrame(
            {
                "policy": table["policy"],
                "fresh": 100 * table["fresh_share"],
                "stale": 100 * table["stale_share"],
            }
        )

    def rules_answer(self) -> Answer:
        """Return the heading of the grid of rules."""
        best, tried = self.best_on_grid(), self.tried
        framed = tried[(tried["km"] == best.km) & (tried["minutes"] == best.ages[0])]
        fresh = words.percent(float(framed["fresh_share"].iloc[0]), 1)
        title, kept = "No rule of distance and age keeps the limit with a margin", ""
        choice = self.search.choice("distance and age")
        if choice is not None:
            title = f"The best rule of distance and age answers {fresh} of the reads fresh"
            kept = (
                " On other devices and days the best one exceeds the limit with a probability of "
                f"{shown_risk(self.search.risk(choice))}."
            )
            allowed = tried[tried["is_allowed"]]
            if allowed["fresh_share"].max() > framed["fresh_share"].iloc[0] + _SEEN:
                kept += " Rules that answer more here are likelier to exceed it there."
        by_age = tried.groupby("minutes")["fresh_share"]
        if (by_age.max() - by_age.min()).max() < _SEEN:
            kept += " All rows are the same: distance decides nothing here, so age alone is as good."
        return Answer(
            title if self.has_enough_reads else "Too few reads to choose a rule of distance and age",
            f"{words.count(len(self.search.rules), 'rule')} were replayed. Here are some; a cell is the "
            "share of reads that is answered fresh, on all devices. Cells in brackets exceed the limit of "
            f"{words.percent(self.max_stale)}: they give the share of stale answers.{kept}",
        )

    def best_on_grid(self) -> FixedRule:
        """Return the rule of distance and age to frame: the best one."""
        best = self.search.choice("distance and age")
        return best.policy if best is not None and isinstance(best.policy, FixedRule) else self.rule

    def tree_answer(self) -> Answer:
        """Return the heading of the learnt tree."""
        tree = self.search.choice("tree")
        if tree is None or not isinstance(tree.policy, LearntReads):
            return Answer("No tree was learnt", self.search.problem)
        leaves = tree.policy.leaves
        use = "and is recommended" if self.family == "tree" else "and is not recommended"
        if leaves == 1:
            return Answer(f"The best tree always does the same, {use}")
        return Answer(
            f"The best tree has {words.count(leaves - 1, 'question')}, {use}",
            "Shares count each read with each earlier answer that could have served it. The first levels are "
            "drawn.",
        )

    def tree_nodes(self) -> pd.DataFrame | None:
        """Return the nodes of the learnt tree; None without one."""
        tree = self.search.choice("tree")
        if tree is None or not isinstance(tree.policy, LearntReads):
            return None
        return tree_nodes(tree.policy)

    def reads_by_place(self, zoom: int) -> pd.DataFrame:
        """Return ``lat, lon, reads, is_local`` (answered fresh) and ``is_stale`` of each cell of a map."""
        return answers_by_place(self.devices, self.search, zoom)

    def places_answer(self, cells: pa.Table) -> Answer:
        """Return the heading of the map of cells, as :func:`mudkit.figures.hits_by_cell` counts them."""
        if not self.has_enough_reads:
            return Answer("Too few reads to compare places")
        if self.family == "always ask":
            return Answer(
                "No place has answers from a cache", "Every read asks the server, so there is no map."
            )
        table = cells.to_pandas()
        known = table.loc[table["reads"] >= _MIN_CELL_READS, "local"]
        if len(known) < 2:
            return Answer(
                "Too few reads to compare places", f"No two cells have {_MIN_CELL_READS} reads or more."
            )
        low, high = known.quantile([0.1, 0.9]) / 100
        title = (
            f"Places hardly differ: {words.percent(known.median() / 100)} of the reads are answered fresh"
            if high - low < 0.1
            else f"{words.percent(low)} to {words.percent(high)} of the reads are answered fresh, by place"
        )
        return Answer(
            title,
            f"Of {len(table):,} cells {len(known):,} have {_MIN_CELL_READS} reads or more. In a tenth of "
            f"these at most {words.percent(low)} are answered fresh, in another tenth {words.percent(high)} "
            "or more.",
        )

    def limits_by_time(self) -> pd.DataFrame | None:
        """Return the largest age by time of day, where the recommended rule depends on it."""
        if not isinstance(self.policy, FixedRule) or not isinstance(self.policy.minutes, tuple):
            return None
        slots = len(self.policy.minutes)
        per_slot = self.times.per_slot(slots)
        length = MINUTES_A_DAY // slots
        rows = [
            {
                "from": format_time(first),
                "to": format_time(past),
                "largest age": format_age(minutes),
                "reads": int(per_slot[np.arange(first // length, end // length) % slots].sum()),
            }
            for first, past, minutes in day_runs(self.policy.minutes)
            for end in [past if past > first else past + MINUTES_A_DAY]
        ]
        return pd.DataFrame(rows)

    @cached_property
    def times(self) -> TimesOfReads:
        """Times of the reads, and their longitudes as solar time."""
        return times_of_reads(self.devices)

    def times_caption(self) -> str:
        """Return which clock the times of the rule are of."""
        times = self.limits_by_time()
        has_unread = times is not None and bool((times["reads"] == 0).any())
        first = pd.Timestamp(self.times.first_us, unit="us", tz="UTC").tz_convert(self.source.tz)
        local = (first.tz_localize(None) - first.tz_convert("UTC").tz_localize(None)) / pd.Timedelta("1min")
        ahead_s = 60.0 * (local - self.times.median_solar_min)
        unread = " The largest age of a time without reads follows from none." if has_unread else ""
        if abs(ahead_s) < 60.0:
            return f"Times are those of mean solar time.{unread}"
        which = "ahead of" if ahead_s > 0 else "behind"
        return (
            f"Times are those of mean solar time, which devices know without a table; {self.source.tz} is "
            f"{words.duration(60 * round(abs(ahead_s) / 60))} {which} it.{unread}"
        )

    def artefact(self, version: int) -> Artefact:
        """Return the recommended policy as the document that a device evaluates."""
        manifest = {
            "report": "cache_policy",
            "family": self.family,
            "completeness": self.completeness,
            "max_stale": self.max_stale,
            "reads": self.search.count,
        }
        document = export_policy(self.policy, version, manifest=manifest)
        return document if isinstance(self.policy, Always) else document.up_to_age(self.horizon_s)

    def save_policy(self, folder: Path | None) -> None:
        """Write the recommended policy as ``policy.json``; nothing without a folder.

        Its version is the time in seconds since 1970: that of a later page replaces it on devices.
        """
        if folder is not None:
            document = json.dumps(dict(self.artefact(int(time.time())).document), indent=1)
            (folder / "policy.json").write_text(document + "\n", encoding="utf-8")

    def savings(self) -> pd.DataFrame:
        """Return what reads take a day with each policy and without any, on average over days with rows."""
        reads = (self.search.count + self.source.left_out) / self.source.recorded_days
        rows = self.policies[self.policies["kind"].isin(["always ask", RULE, self.family])]
        return pd.DataFrame(
            {
                "policy": rows["policy"],
                "messages_per_day": rows["messages"] * reads,
                "data_mb_per_day": rows["data_bytes"] * reads / 1e6,
                "radio_j_per_day": rows["radio_mj"] * reads / 1e3,
            }
        )

    @property
    def shipped(self) -> float:
        """Share of the reads that the policy chosen on all of them answers fresh."""
        return self.own.fresh_share

    def savings_caption(self) -> str:
        """Return what the table of savings shows."""
        days = words.count(self.source.recorded_days, "day")
        taken = f"What the reads of the whole fleet take a day, on average over {days}"
        return f"{taken}; a stale answer counts as a query."

    def savings_answer(self) -> Answer:
        """Return what the recommended policy saves a day, and the call that installs it, as a heading."""
        if self.family == "always ask":
            why = "" if self.has_enough_reads else "There are too few reads to recommend a policy. "
            return Answer(
                "There is nothing to install",
                f"{why}`policy.json` beside this page asks the server for every read.",
            )
        table = self.savings()
        always, rule, chosen = (table.iloc[row] for row in (0, 1, -1))
        reads, left_out = self.search.count, self.source.left_out
        counted = f"All {reads + left_out:,} reads count, those left out, too. " if left_out else ""
        stale_per_day = self.stale.value * (reads + left_out) / self.source.recorded_days
        stale = (
            f"The {words.number(stale_per_day)} stale answers a day save nothing: each counts as a query. "
        )
        return Answer(
            f"It saves the fleet {_saved(always, chosen)} a day against asking for every read",
            f"Against the fixed rule it saves {_saved(rule, chosen)} a day. "
            f"{stale if stale_per_day else ''}{counted}A query takes three messages: itself, its answer, and "
            "one that closes it. All go over LTE, with nothing else on the radio. `policy.json` beside this "
            "page, chosen on all devices, is what devices evaluate; that of a page that is made later "
            "replaces it. The cloud of a lab ships it to clients with "
            "`read_policy=mud.ShippedPolicy()`: "
            '`cloud.ship(json.loads(Path("policy.json").read_text()), app=…)`.',
        )


_ASSUMED: Final[tuple[tuple[str, Callable[[float], str]], ...]] = (
    ("box_km", lambda km: f"{words.number(km)} km"),
    ("window_s", lambda window_s: f"last {words.duration(window_s)}"),
)


def _saved(before: pd.Series, after: pd.Series) -> str:
    """Return messages, data and energy that a row of the savings is below another; a minus if above."""
    messages, data_mb, energy_j = (
        float(before[name] - after[name])
        for name in ("messages_per_day", "data_mb_per_day", "radio_j_per_day")
    )
    counted = words.count(messages, "message")
    return f"{counted}, {words.size(1e6 * data_mb)} and {words.number(energy_j)} J"


def _shown(of: Interval) -> str:
    """Return a share in percent with its interval."""
    return f"{words.percent(of.value, 1)} ({words.interval(100 * of.low, 100 * of.high, 1)})"


def _negated(of: Interval) -> Interval:
    """Return the interval of the negative value."""
    return replace(of, value=-of.value, low=-of.high, high=-of.low)


def _points(gain: Interval) -> str:
    """Return a difference of shares in points, with its interval."""
    value = f"{words.number(100 * gain.value, 1)} {'point' if round(100 * gain.value, 1) == 1 else 'points'}"
    if not math.isfinite(gain.low) or gain.low == gain.high:
        return value
    return f"{value} ({words.interval(100 * gain.low, 100 * gain.high, 1)})"


def open_reads(source: TraceSource, horizon_s: float) -> Devices:
    """Label the reads of a trace, and return its devices: in memory, or on Spark.

    On Spark, labels are kept while the trace is used.
    """
    if isinstance(source.reads, pa.Table):
        return LocalDevices(Pairs.of(read_labels(source.positions, source.reads, horizon_s), source.reads))
    from mudkit.pipeline import label_reads  # it loads Spark

    labels = label_reads(source.positions.frame, source.reads.frame, horizon_s=horizon_s)
    return source.opened.enter_context(open_devices(labels, source.reads.frame))


def study_reads(
    source: TraceSource,
    *,
    rule: FixedRule,
    completeness: float,
    max_stale: float,
    horizon_s: float,
    folds: Folds = "device",
) -> ReadStudy:
    """Label the reads of a trace, recommend a policy, and try other assumptions.

    Parameters
    ----------
    source : TraceSource
    rule : FixedRule
        Fixed rule, which what is recommended is compared with, but does not depend on.
    completeness : float
        Share of what others wrote below which an answer is stale.
    max_stale : float
        Largest share of the reads that may be answered stale.
    horizon_s : float
        How old a cached answer may be.
    folds : {'device', 'time'}
        What policies are scored on: other devices, or other days.
    """
    devices = open_reads(source, horizon_s)
    search = search_policies(devices, completeness=completeness, max_stale=max_stale, folds=folds)
    chosen = search.chosen
    fixed, rule_age, own = replayed(
        devices,
        completeness,
        [
            ("distance and age", rule),
            ("age", replace(rule, km=math.inf)),
            (chosen.family, chosen.policy),
        ],
    )
    most_fresh, hindsight = choose_with_hindsight(devices, completeness, max_stale)
    return ReadStudy(
        source,
        rule,
        completeness,
        horizon_s,
        devices,
        search,
        fixed,
        rule_age,
        own,
        compare_policies(devices, search, fixed, hindsight),
        most_fresh,
        try_rules(devices, search, rule),
        folds,
    )


def _stale(share: float) -> str:
    """Return a share of stale answers in words; under a tenth of a percent with another digit."""
    return words.percent(share, 2 if 0 < share < 1e-3 else 1)
