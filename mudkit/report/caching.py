"""What the report cache_policy says: policies that can be learnt on a trace, and sentences about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from mudkit.errors import TraceContentError
from mudkit.experiment import CacheBench, Shuffled
from mudkit.learning import (
    Batch,
    BatchBound,
    BatchTree,
    Bound,
    CostMatrix,
    FixedRule,
    Tree,
    delay_costs,
    evaluate_reads,
    evaluate_writes,
)
from mudkit.learning.frontier import at_equal, read_frontier
from mudkit.report.in_words import all_stale
from mudkit.report.tables import bounded

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["FEWER_QUERIES", "FEWER_STALE", "brief", "reads", "replayed", "trees", "waited", "where", "writes"]

_SMALL_GAP: Final = 0.05
_NEARLY_ALL: Final = 0.95
FEWER_QUERIES, FEWER_STALE = 4.0, 3.5
"""The factors of Mobius 6."""


def replayed(
    labels: pa.Table,
    asked: pa.Table,
    rule: FixedRule,
    *,
    stale_cost: float,
    completeness: float | None,
    folds: str,
    seed: int,
) -> tuple[pd.DataFrame, str]:
    """Replay rule, tree, control and bounds; where there is nothing to learn, rule and bounds only.

    Parameters
    ----------
    labels, asked : pyarrow.Table
        As ``pipeline.label_reads`` gives them, and the reads that were labelled.
    rule : FixedRule
        The fixed rule that trees are compared with.
    stale_cost : float
        The cost of a stale answer, where an unnecessary query costs 1.
    completeness : float or None
        The completeness below which an answer is stale. None: it is stale when a point is missing.
    folds : {'device', 'time'}
    seed : int
        The seed by which the control deals out its labels.

    Returns
    -------
    table : pandas.DataFrame
        As ``learning.evaluate_reads`` gives it, the rule first.
    problem : str
        Why there is no tree; empty: there is one.
    """
    costs = CostMatrix(stale_cost, 1.0)
    tree = Tree(costs)
    options: dict[str, Any] = {"folds": folds, "cost": costs}
    if completeness is not None:
        options |= {"stale": "completeness", "completeness": completeness}
    first = evaluate_reads(labels, asked, [rule], **options).iloc[0]
    bounds = [Bound(), Bound(float(first["stale_share"]) / FEWER_STALE)]
    try:
        return evaluate_reads(labels, asked, [rule, tree, Shuffled(tree, seed), *bounds], **options), ""
    except TraceContentError as error:
        return evaluate_reads(labels, asked, [rule, *bounds], **options), error.summary


def trees(
    labels: pa.Table, asked: pa.Table, rule: FixedRule, completeness: float
) -> tuple[CacheBench | None, dict[str, pd.DataFrame]]:
    """Grow trees for any costs, and say what they reach.

    Parameters
    ----------
    labels, asked, rule, completeness
        As for :func:`replayed`.

    Returns
    -------
    bench : CacheBench or None
        The trees for the cost page. None: there is nothing to learn.
    curves : dict of pandas.DataFrame
        ``trees`` and ``bound``, each with ``sent_share, stale_share``; empty without a bench.
    """
    try:
        bench = CacheBench.of(labels, asked, completeness=completeness)
        curve = read_frontier(bench.pairs, bench.stale)
    except TraceContentError:
        return None, {}
    most = min(2 * bench.run(rule).stale_share + 0.01, 1.0)
    return bench, {"trees": curve, "bound": bench.bound(most)}


def waited(
    firsts: pa.Table,
    positions: pa.Table,
    asked: pa.Table,
    *,
    batch_minutes: float,
    late_cost: float,
    folds: str,
) -> tuple[pd.DataFrame, str]:
    """Replay delays of writes, a tree and the bound; where there is nothing to learn, delays and the bound.

    Parameters
    ----------
    firsts, positions, asked : pyarrow.Table
        As ``pipeline.label_writes`` gives them, and what was labelled.
    batch_minutes : float
        The fixed delay that trees are compared with, in minutes.
    late_cost : float
        The cost of a delay that is too long, as ``over`` of :func:`mudkit.learning.delay_costs`.
    folds : {'device', 'time'}

    Returns
    -------
    table : pandas.DataFrame
        As ``learning.evaluate_writes`` gives it: the fixed delay first, the bound last. Without rows where
        there are too few devices, or days, to test on others.
    problem : str
        Why there is no tree; empty: there is one.
    """
    import pandas as pd  # loading it takes longer than loading all of mudkit

    delay = Batch(batch_minutes)
    fixed: list[Any] = [delay, BatchBound(delay)]
    try:
        trees_too: list[Any] = [
            delay,
            BatchTree(delay_costs(late_cost)),
            BatchTree(match=delay),
            BatchBound(delay),
        ]
        return evaluate_writes(firsts, positions, asked, trees_too, folds=folds), ""
    except TraceContentError as error:
        problem = error.summary
    try:
        return evaluate_writes(firsts, positions, asked, fixed, folds=folds), problem
    except TraceContentError as error:
        return pd.DataFrame(), error.summary


def brief(table: pd.DataFrame, measures: Sequence[str]) -> pd.DataFrame:
    """Keep the named measures, with their intervals; of a bound those that it bounds."""
    ends = [f"{name}{end}" for name in measures for end in ("", "_low", "_high")]
    return bounded(table[["policy", *ends]])


def reads(table: pd.DataFrame, problem: str, curves: dict[str, pd.DataFrame], stale: str) -> str:
    """Say what a tree saves, what nobody can, and how far the paper's factors are.

    Parameters
    ----------
    table, problem
        As :func:`replayed` gives them.
    curves : dict of pandas.DataFrame
        As :func:`trees` gives them, of this meaning of stale; or none.
    stale : str
        When an answer counts as stale, in words.
    """
    rule, bound, few = table.iloc[0], table.iloc[-2], table.iloc[-1]
    gap = rule["sent_share"] - bound["sent_share"]
    text = (
        f"An answer is stale when {stale}. The rule {rule['policy']} sends {rule['sent_share']:.1%} of the "
        f"reads and answers {rule['stale_share']:.1%} stale; as stale as that, nobody sends less than "
        f"{bound['sent_share']:.1%}. "
    ) + all_stale(rule)
    if problem:
        text += f"**No tree was learnt**: {problem} "
    else:
        tree, control = table.iloc[1], table.iloc[2]
        text += (
            f"**The tree sends {tree['sent_share']:.1%} and is {tree['stale_share']:.1%} stale**; a read "
            f"costs {tree['cost']:.3g} with it, {rule['cost']:.3g} with the rule, {control['cost']:.3g} with "
            "the control, which learns from shuffled labels. "
        )
    if curves and gap > _SMALL_GAP:
        equal = min(at_equal(curves["trees"], "sent_share", "stale_share", rule["stale_share"]), 1.0)
        text += (
            f"As stale as the rule, trees send {equal:.1%}: **"
            f"{max(rule['sent_share'] - equal, 0) / gap:.0%} of the gap is closed**. "
        )
    elif gap <= _SMALL_GAP:
        text += "Between rule and bound there is next to nothing to win. "
    times = rule["sent_share"] / max(few["sent_share"], 1e-9)
    fewer = f"{times:.2f} times fewer" if times >= 1 else "more"
    text += (
        f"With {FEWER_STALE:g} times fewer stale answers the bound sends {few['sent_share']:.1%}, "
        f"{fewer} than the rule: the {FEWER_QUERIES:g} times of Mobius 6 "
    )
    return text + ("are possible here." if times >= FEWER_QUERIES else "are beyond anybody's reach here.")


def writes(table: pd.DataFrame, problem: str) -> str:
    """Say what waiting saves.

    Parameters
    ----------
    table, problem
        As :func:`waited` gives them.
    """
    if not len(table):
        return f"**Nothing can be said of writes**: {problem}"
    base, bound = table.iloc[0], table.iloc[-1]
    text = (
        f"With a fixed delay of {base['policy']}, {base['message_share']:.1%} as many messages go as there "
        f"are writes, and {base['missed_share']:.1%} of the reads miss a point. "
    )
    if problem:
        text += f"**No tree was learnt**: {problem} "
    else:
        tree = table.iloc[1]
        text += (
            f"**The tree sends {tree['message_share']:.1%} messages and {tree['point_share']:.1%} of the "
            f"points, and {tree['missed_share']:.1%} of the reads miss one**. "
        )
        for _, matched in table[table["policy"].str.contains("in training")].iterrows():
            text += (
                f"The tree that misses no more than {base['policy']} where it learns lets "
                f"{matched['missed_share']:.1%} miss one on the others, which are shown. "
            )
    if base["missed_share"] > _NEARLY_ALL:
        return text + (
            "As nearly all reads miss a point with the fixed delay, to send nothing would hardly be worse: "
            "on this trace no factor tells anything."
        )
    left = [base[name] / max(bound[name], 1e-9) for name in ("message_share", "point_share")]
    return text + (
        "Whoever lets no other read miss a point sends at least "
        f"1/{left[0]:.3g} of the fixed delay's messages and 1/{left[1]:.3g} of its points; in Mobius 7.3 a "
        "tree sends 1/3 and 1/7."
    )


def where(cells: pa.Table) -> str:
    """Say how much the share of local answers differs from place to place.

    Parameters
    ----------
    cells : pyarrow.Table
        As :func:`mudkit.figures.hits_by_cell` returns it.
    """
    table = cells.to_pandas()
    known = table[table["reads"] >= 10]
    if len(known) < 2:
        return "Too few cells have ten reads or more: of single places nothing can be said."
    low, high = known["local"].quantile([0.1, 0.9])
    return (
        f"Of {len(table):,} cells {len(known):,} have ten reads or more. In a tenth of these at most "
        f"{low:.0f} % are answered locally, in a tenth at least {high:.0f} %."
    )
