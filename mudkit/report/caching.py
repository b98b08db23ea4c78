"""The report cache_policy: policies compared at one share of stale answers, and what to use of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
import pandas as pd

from mudkit import words
from mudkit.errors import TraceContentError
from mudkit.experiment import tree_nodes
from mudkit.learning import (
    Always,
    Batch,
    BatchBound,
    BatchTree,
    Bound,
    FixedRule,
    evaluate_reads,
    evaluate_writes,
)
from mudkit.learning.pairs import Pairs
from mudkit.learning.policies import Decided, Learner, Policy
from mudkit.learning.replay import SENT, fewest_sends_by_stale, replay
from mudkit.learning.search import RuleSearch, TreeSearch, search_rules, search_trees
from mudkit.learning.trees import Folds
from mudkit.pipeline.coverage import first_reads, read_labels
from mudkit.report.page import Answer, FirstScreen
from mudkit.report.source import TraceSource
from mudkit.report.tables import bounded

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["BEST", "CAPTION", "WRITE_LABELS", "ReadStudy", "WriteStudy", "study_reads", "study_writes"]

CAPTION: Final = "Data and energy of a read on average; ● is the best value."
BEST: Final[dict[str, Literal["low", "high"]]] = {"data_bytes": "low", "radio_mj": "low"}
WRITE_LABELS: Final = {
    "message_share": "messages, % of writes",
    "point_share": "writes sent, %",
    "missed_share": "reads that miss one, %",
}

RULE, BEST_RULE, LEARNT, BOUND, ALWAYS = "rule in use", "best rule", "learnt policy", "bound", "always ask"
_MIN_CELL_READS: Final = 10
_RENAMED: Final = {f"bytes{end}": f"data_bytes{end}" for end in ("", "_low", "_high")}
_WORTH: Final = 0.02
"""A policy is recommended when more than this share of the reads is answered fresh from the cache besides."""
_NEARLY_ALL: Final = 0.95

Verdict = Literal["always ask", "keep the rule", "change the rule", "ship the tree"]
_KINDS: Final[dict[Verdict, str]] = {
    "always ask": ALWAYS,
    "keep the rule": RULE,
    "change the rule": BEST_RULE,
    "ship the tree": LEARNT,
}


@dataclass(frozen=True)
class ReadStudy:
    """Policies for the reads of a trace, with no more stale answers than are allowed.

    ``policies`` has the ``kind`` of each row; ``bound`` the fewest queries by stale share, ``strict_bound``
    those were one missing point stale; ``trees`` is None for the reason ``problem``.
    """

    source: TraceSource
    completeness: float
    max_stale: float
    rule: FixedRule
    policies: pd.DataFrame
    rules: RuleSearch
    trees: TreeSearch | None
    problem: str
    bound: pd.DataFrame
    strict_bound: float
    reads: pd.DataFrame

    def row(self, kind: str) -> pd.Series:
        """Return the row of a policy; of the best rule that of the rule in use where it is the best."""
        rows = self.policies[self.policies["kind"] == kind]
        return rows.iloc[0] if len(rows) else self.row(RULE)

    @property
    def verdict(self) -> Verdict:
        """The recommendation, of four."""
        return _verdict(self.policies, self.max_stale)

    @property
    def recommended(self) -> pd.Series:
        """The row of the policy that is recommended."""
        return self.row(_KINDS[self.verdict])

    @property
    def is_rule_allowed(self) -> bool:
        """True if the rule in use keeps the limit of stale answers."""
        return bool(self.row(RULE)["stale_share"] <= self.max_stale)

    def stale_means(self) -> str:
        """Return when an answer is stale, in words."""
        if self.completeness == 1.0:
            return "lacks one of its points or more"
        return f"lacks more than {words.percent(1 - self.completeness)} of its points"

    def first_screen(self) -> FirstScreen:
        """Return the title's details, three figures, the recommendation, what it rests on, and warnings."""
        return FirstScreen(
            self.source.describe(),
            self._tiles(),
            self._headline(),
            self._because(),
            self._assumption(),
            [*self.source.warnings(), *self._warnings()],
        )

    def _tiles(self) -> list[tuple[str, str]]:
        rule, chosen, bound = self.row(RULE), self.recommended, self.row(BOUND)
        of_rule, allowed = f"the rule in use, “{_of(self.rule)}”", words.percent(self.max_stale)
        first = words.percent(chosen["sent_share"], 1), f"of reads ask the server with the {chosen['kind']}"
        second = _fewer(chosen, rule), f"fewer than with {of_rule} ({words.percent(rule['sent_share'], 1)})"
        if self.verdict == "always ask":
            first = words.percent(rule["sent_share"], 1), f"of reads ask the server with {of_rule}"
            second = (
                words.percent(self._fresh_share, 1),
                "are answered fresh by the best policy that is allowed",
            )
        if not self.is_rule_allowed:
            second = words.percent(rule["stale_share"], 1), f"stale with {of_rule}; {allowed} are allowed"
        elif self.verdict == "keep the rule":
            second = words.percent(1 - chosen["stale_share"], 1), "of answers are fresh with it"
        least = words.percent(bound["sent_share"], 1)
        left = _fewer(bound, chosen)
        return [first, second, (left, f"left to save: within {allowed} stale nobody asks less than {least}")]

    @property
    def _fresh_share(self) -> float:
        """Largest share of reads that a policy within what is allowed answers fresh from the cache."""
        within = self.policies[self.policies["kind"].isin([RULE, BEST_RULE, LEARNT])]
        within = within[within["stale_share"] <= self.max_stale]
        return (
            float(max((1 - within["sent_share"] - within["stale_share"]).max(), 0.0)) if len(within) else 0.0
        )

    def _headline(self) -> str:
        rule, chosen, allowed = self.row(RULE), self.recommended, words.percent(self.max_stale)
        if self.verdict == "always ask":
            return (
                f"Ask the server for every read: with at most {allowed} stale, no policy answers even "
                f"{words.percent(_WORTH)} of the reads fresh."
            )
        asking = f"{words.percent(chosen['sent_share'], 1)} of the reads ask the server"
        if self.verdict == "keep the rule":
            return f"Keep the rule “{_of(self.rule)}”: {asking}, and no policy saves {_least()} more."
        advice = (
            "Use the learnt policy"
            if self.verdict == "ship the tree"
            else f"Change the rule to “{_of(self.rules.best)}”"
        )
        if self.is_rule_allowed:
            return f"{advice}: {asking}, {_fewer(chosen, rule)} fewer than with “{_of(self.rule)}”."
        return f"{advice}: {asking}, and {words.percent(chosen['stale_share'], 1)} are answered stale."

    def _because(self) -> str:
        rule, chosen, bound = self.row(RULE), self.recommended, self.row(BOUND)
        fresh = f"It keeps {words.percent(1 - chosen['stale_share'], 1)} of the answers fresh."
        others = "no rule of distance and age" + ("" if self.trees is None else " and no learnt policy")
        hindsight = (
            f"With hindsight {_fewer(bound, chosen)} could be saved, stale answers among them."
            if chosen["sent_share"] - bound["sent_share"] > _WORTH
            else "Even with hindsight hardly anything could be saved."
        )
        over = ""
        if not self.is_rule_allowed:
            over = (
                f"The rule in use answers {words.percent(rule['stale_share'], 1)} of the reads stale, more "
                f"than the {words.percent(self.max_stale)} allowed. "
            )
        if self.verdict == "always ask":
            return (
                f"{over}The best that is allowed answers {words.percent(self._fresh_share, 1)} fresh: "
                f"{others} does better. {hindsight}"
            )
        if self.verdict == "keep the rule":
            return (
                f"{fresh} Within {words.percent(self.max_stale)} stale {others} answers {_least()} more of "
                f"the reads fresh. {hindsight}"
            )
        text = f"{over}{fresh}"
        ends = chosen["sent_share_change_high"], chosen["sent_share_change_low"]
        low, high = (-100 * value for value in ends)
        if self.is_rule_allowed and np.isfinite(low) and low != high:
            text += f" The 95 % interval of the difference is {words.interval(low, high, 1)} points."
        if self.verdict == "ship the tree" and self.row(BEST_RULE)["kind"] == BEST_RULE:
            best = self.row(BEST_RULE)
            text += f" It sends {_fewer(chosen, best)} fewer than the best rule, “{_of(self.rules.best)}”."
        return text

    def _assumption(self) -> str:
        text = (
            f"An answer is stale here when it {self.stale_means()} (`completeness`), and at most "
            f"{words.percent(self.max_stale)} of the reads may be answered stale (`max_stale`)."
        )
        if self.completeness < 1:
            text += (
                f" If one missing point were too many, nobody could send less than "
                f"{words.percent(self.strict_bound, 1)}."
            )
        return text

    def _warnings(self) -> list[str]:
        results = []
        rule = self.row(RULE)
        local = 1 - rule["sent_share"]
        if local < 1e-9:
            results.append("The rule in use answers nothing locally.")
        elif rule["stale_share"] > local - 1e-9:
            results.append("Every answer that the rule in use gives locally is stale.")
        if self.rules.extended:
            results.append(
                f"The best rule lay at the edge of the {' and '.join(self.rules.extended)} tried first; the "
                "range was extended until it no longer did."
            )
        if self.rules.best.minutes >= self.rules.table["minutes"].max():
            results.append(
                f"The best rule keeps answers as long as any that was looked at, "
                f"{words.duration(60 * self.rules.best.minutes)}: a larger `horizon_s` may save more."
            )
        if self.problem:
            results.append(f"No policy was learnt: {self.problem}")
        return results

    def policy_table(self) -> pd.DataFrame:
        """Return the policies with the measures that are shown; of a bound those that it bounds."""
        table = bounded(self.policies).rename(columns=_RENAMED)
        names = ["sent_share", "stale_share", "completeness", "data_bytes", "radio_mj"]
        columns = [f"{name}{end}" for name in names for end in ("", "_low", "_high")]
        return table[["policy", *columns]]

    def frontier(self) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
        """Return what the first figure shows: trees, the bound, and policies, each with both shares.

        A tree is left out where another one sends no more and is no staler.
        """
        trees = self.bound.iloc[:0] if self.trees is None else self.trees.table
        trees = trees.sort_values(["stale_share", "sent_share"])
        trees = trees[trees["sent_share"] < trees["sent_share"].cummin().shift(fill_value=np.inf)]
        places = np.unique(np.linspace(0, len(self.bound) - 1, 12).round().astype(int))
        return trees, self.bound.iloc[places], self.policies[self.policies["kind"] != BOUND]

    @property
    def stale_axis(self) -> float:
        """Largest share of stale answers on the axis of the first figure; the rule in use is within it."""
        return min(max(2.2 * self.max_stale, 1.2 * float(self.row(RULE)["stale_share"]), 0.01), 1.0)

    def tree_answer(self) -> Answer:
        """Return the heading of the learnt policy."""
        if self.trees is None:
            return Answer("Nothing could be learnt", self.problem)
        listed = self.tree_nodes()
        assert listed is not None
        count = int(listed["leaves"].iloc[0])
        if count == 1:
            return Answer("The learnt policy always does the same")
        return Answer(
            f"The learnt policy asks {words.count(count - 1, 'question')}",
            "Shares are of pairs of a read and an earlier answer; the first levels are drawn.",
        )

    def places_answer(self, cells: pa.Table) -> Answer:
        """Return the heading of the map of cells, as :func:`mudkit.figures.hits_by_cell` counts them."""
        if self.verdict == "always ask":
            return Answer(
                "No place has answers from a cache", "Every read asks the server, so there is no map."
            )
        table = cells.to_pandas()
        known = table.loc[table["reads"] >= _MIN_CELL_READS, "local"]
        if len(known) < 2:
            return Answer("Too few reads to compare places", "No two cells have ten reads or more.")
        low, high = known.quantile([0.1, 0.9]) / 100
        title = (
            f"Places hardly differ: {words.percent(known.median() / 100)} of the reads are answered locally"
            if high - low < 0.1
            else f"{words.percent(low)} to {words.percent(high)} of the reads are answered locally, by place"
        )
        return Answer(
            title,
            f"With the {self.recommended['kind']}. Of {len(table):,} cells {len(known):,} have ten reads or "
            "more; a tenth of these lie below the first share, a tenth above the second. The grey base is "
            "the trace itself.",
        )

    def policies_answer(self) -> Answer:
        """Return the heading of the comparison."""
        chosen, bound = self.recommended, self.row(BOUND)
        if self.verdict in ("always ask", "keep the rule"):
            if chosen["sent_share"] - bound["sent_share"] <= _WORTH:
                return Answer(f"Nobody could save {_least()} more")
            most = (
                f"The best policy answers {words.percent(self._fresh_share, 1)} of the reads fresh"
                if self.verdict == "always ask"
                else f"No policy here saves {_least()} more"
            )
            return Answer(f"{most}; with hindsight {_fewer(bound, chosen)} could be saved")
        base = self.row(RULE if self.is_rule_allowed else ALWAYS)
        share = (base["sent_share"] - chosen["sent_share"]) / (base["sent_share"] - bound["sent_share"])
        return Answer(f"The {chosen['kind']} saves {words.percent(share, 0)} of what can be saved")

    @property
    def best_rule(self) -> FixedRule:
        """The best rule, which may be the rule in use."""
        return self.rules.best if self.rules.is_better else self.rule

    def rules_answer(self) -> Answer:
        """Return the heading of the search for a better rule."""
        rules = self.rules
        title = (
            "No rule of distance and age helps"
            if not rules.best.km
            else f"No rule beats “{_of(self.rule)}”"
            if self.row(BEST_RULE)["kind"] == RULE
            else f"The best rule, “{_of(rules.best)}”, sends "
            f"{words.percent(self.row(BEST_RULE)['sent_share'], 1)} of the reads"
        )
        of = (
            f"a sample of {rules.devices:,} of {rules.all_devices:,} devices"
            if rules.devices < rules.all_devices
            else f"all {words.count(rules.devices, 'device')}"
        )
        return Answer(
            title,
            f"{words.count(len(rules.table), 'rule')} were replayed on the reads of {of}. A cell is the "
            "share of reads that ask the server. Empty cells would answer too many reads stale; how many "
            "percent is in brackets. Framed are the best rule and, dotted, the rule in use.",
        )

    def tree_nodes(self) -> pd.DataFrame | None:
        """Return the nodes of the learnt tree; None without one."""
        return None if self.trees is None else tree_nodes(self.trees.learnt)


def study_reads(
    source: TraceSource,
    *,
    rule: FixedRule,
    completeness: float,
    max_stale: float,
    horizon_s: float,
    folds: Folds = "device",
) -> ReadStudy:
    """Label the reads of a trace, search for rules and trees, and compare them with the bound."""
    labels = read_labels(source.positions, source.reads, horizon_s)
    pairs = Pairs.of(labels, source.reads)
    stale = pairs.completeness < completeness
    rules = search_rules(pairs, stale, rule, max_stale)
    trees, problem = None, ""
    try:
        trees = search_trees(pairs, stale, max_stale, by="device" if folds == "device" else "day")
    except TraceContentError as error:
        problem = error.summary
    tried: dict[str, Policy] = {ALWAYS: Always(), RULE: rule}
    if rules.is_better:
        tried[BEST_RULE] = rules.best
    if trees is not None:
        tried[LEARNT] = Decided(LEARNT, trees.local)
    compared: dict[str, Policy | Learner | Bound] = {**tried, BOUND: Bound(max_stale + 1e-9)}
    policies = evaluate_reads(
        labels, source.reads, list(compared.values()), stale="completeness", completeness=completeness
    )
    policies.insert(1, "kind", list(compared))
    policies["policy"] = [_name(kind, policy, max_stale) for kind, policy in compared.items()]
    is_over = (policies["kind"] == BEST_RULE) & (policies["stale_share"] > max_stale + 1e-9)
    policies = policies[~is_over].reset_index(drop=True)  # on all devices it is staler than on the sample
    count = len(pairs.device)
    sends = fewest_sends_by_stale(pairs, stale, int(min(2 * max_stale, 1.0) * count) + 1)
    bound = pd.DataFrame({"stale_share": np.arange(len(sends)) / count, "sent_share": sends / count})
    strict = fewest_sends_by_stale(pairs, pairs.missing >= 1, int(max_stale * count))
    chosen = _KINDS[_verdict(policies, max_stale)]
    return ReadStudy(
        source, completeness, max_stale, rule, policies, rules, trees, problem, bound,
        float(strict[-1] / count), _replayed(pairs, stale, tried[chosen].local(pairs)),
    )  # fmt: skip


def _verdict(policies: pd.DataFrame, max_stale: float) -> Verdict:
    sent, stale, change = (
        dict(zip(policies["kind"], policies[name].tolist(), strict=True))
        for name in ("sent_share", "stale_share", "sent_share_change_high")
    )
    unsaved = {kind: sent[kind] + stale[kind] for kind in sent}  # a stale answer saves nothing
    is_rule_allowed = stale[RULE] <= max_stale
    base = unsaved[RULE] if is_rule_allowed else 1.0

    def saves(kind: str, than: float) -> bool:
        """Return whether a policy saves more, beyond what differs between groups of devices."""
        if kind not in unsaved or not than - unsaved[kind] > _WORTH:
            return False
        return not is_rule_allowed or not change[kind] > 0

    best_rule = unsaved[BEST_RULE] if saves(BEST_RULE, base) else base
    if saves(LEARNT, best_rule):
        return "ship the tree"
    if best_rule < base:
        return "change the rule"
    return "keep the rule" if base < 1 - _WORTH else "always ask"


def _replayed(pairs: Pairs, stale: NDArray[np.bool_], local: NDArray[np.bool_]) -> pd.DataFrame:
    served = replay(pairs, local)
    is_local = served != SENT
    is_stale = is_local & (stale[np.where(is_local, served, 0)] if len(stale) else False)
    return pd.DataFrame({"lat": pairs.lat, "lon": pairs.lon, "is_local": is_local, "is_stale": is_stale})


def _of(rule: FixedRule) -> str:
    return f"{words.number(rule.km)} km, {words.duration(60 * rule.minutes)}"


def _name(kind: str, policy: object, max_stale: float) -> str:
    if isinstance(policy, FixedRule):
        return f"{kind}: {_of(policy)}"
    return f"bound, at most {words.percent(max_stale, 1)} stale" if kind == BOUND else kind


def _least() -> str:
    return f"{words.number(100 * _WORTH)} points"


def _fewer(one: pd.Series, other: pd.Series) -> str:
    """Return how many points fewer reads one row sends than another, as their rounded shares differ."""
    less, more = (round(100 * row["sent_share"], 1) for row in (one, other))
    text = words.number(max(round(more - less, 1), 0.0), 1)
    return f"{text} {'point' if text == '1.0' else 'points'}"


@dataclass(frozen=True)
class WriteStudy:
    """A fixed delay of writes, a learnt one if any, and the bound; no rows for the reason ``problem``."""

    minutes: float
    policies: pd.DataFrame
    problem: str

    def table(self) -> pd.DataFrame:
        """Return what is shown of the policies."""
        names = ["message_share", "point_share", "missed_share"]
        columns = [f"{name}{end}" for name in names for end in ("", "_low", "_high")]
        return self.policies[["policy", *columns]] if len(self.policies) else self.policies

    def answer(self) -> Answer:
        """Return the heading, and what a learnt delay adds."""
        if not len(self.policies):
            return Answer("Nothing can be said of writes", self.problem)
        fixed, bound = self.policies.iloc[0], self.policies.iloc[-1]
        delay = words.duration(60 * self.minutes)
        missed = words.percent(fixed["missed_share"], 1)
        if fixed["missed_share"] > _NEARLY_ALL:
            return Answer(
                f"Writes cannot wait {delay}: {missed} of the reads would miss one",
                "Each read asks for writes so recent that any delay hides some. To send nothing would hardly "
                "be worse, so no saving says anything; try a smaller `batch_minutes`.",
            )
        text = (
            "A write may wait for others until the first read that should see it; what nobody reads need not "
            f"go. With hindsight, {_messages(bound)} are enough for the same reads. "
        )
        if len(self.policies) > 2:
            learnt = self.policies.iloc[1]
            text += (
                f"Delays learnt from a tenth of the devices need {_messages(learnt)} on the others, and "
                f"{words.percent(learnt['missed_share'], 1)} of the reads miss one."
            )
        else:
            text += f"No delay was learnt: {self.problem}"
        return Answer(
            f"Writes that wait {delay} need {_messages(fixed)}; {missed} of the reads miss one", text
        )


def _messages(row: pd.Series) -> str:
    return f"{words.number(100 * row['message_share'])} messages per 100 writes"


def study_writes(source: TraceSource, *, batch_minutes: float, folds: Folds = "device") -> WriteStudy:
    """Replay a fixed delay of writes, a learnt one if there is anything to learn, and the bound."""
    first = first_reads(source.positions, source.reads)
    fixed = Batch(batch_minutes)
    names = {
        fixed: f"fixed delay of {words.duration(60 * batch_minutes)}",
        BatchBound(fixed): "bound, misses the same reads",
    }

    def evaluated(*policies: Batch | BatchTree | BatchBound) -> pd.DataFrame:
        table = evaluate_writes(first, source.positions, source.reads, policies, folds=folds)
        return table.assign(policy=[names.get(policy, "learnt delays") for policy in policies])

    table, problem = pd.DataFrame(), ""
    try:
        table = evaluated(fixed, BatchBound(fixed))
        if table["missed_share"].iloc[0] <= _NEARLY_ALL:
            table = evaluated(fixed, BatchTree(match=fixed), BatchBound(fixed))
    except TraceContentError as error:
        problem = error.summary
    return WriteStudy(batch_minutes, table, problem)
