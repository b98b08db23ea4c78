"""A shipped policy's evaluator beside scikit-learn's `predict` of a row, and of all rows at once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from compare import compare

from mudkit.learning import export_tree
from mudkit.learning.costs import CostMatrix
from mudkit.learning.features import FEATURE_SETS
from mudkit.learning.policies import LearntReads
from mudkit.learning.trees import learn

DECISIONS = 20_000
ROWS_ONE_BY_ONE = 200


def rows() -> Iterator[dict[str, object]]:
    """Measure decisions of a tree with all extended features; the evaluator is to take under 2 µs each."""
    rng = np.random.default_rng(1)
    known = rng.normal(0, 1, (20_000, len(FEATURE_SETS["extended"]))).astype(np.float32)
    truth = (known[:, 6] + known[:, 7] * known[:, 0] + rng.normal(0, 0.3, len(known)) > 0).astype(np.int64)
    costs = CostMatrix(stale=2.0, unnecessary=1.0).table()
    learnt = LearntReads(learn(known, truth, np.arange(len(known)) % 20, costs), "extended", costs)
    decide, model = export_tree(learnt).decide, learnt.tree.grown.model
    values = known[:DECISIONS].tolist()
    few = known[:ROWS_ONE_BY_ONE]

    def ours() -> None:
        for row in values:
            decide(row)

    def by_sklearn() -> None:
        for row in few:
            model.predict(row[None, :])

    leaves = int(np.count_nonzero(learnt.tree.is_leaf))
    result = compare(
        f"decisions of a shipped tree of {leaves} leaves, {DECISIONS:,}",
        ours,
        f"scikit-learn's predict, {ROWS_ONE_BY_ONE} rows",
        by_sklearn,
    )
    yield {**result, "us_each": 1e6 * float(result["ours_s"]) / DECISIONS}  # type: ignore[arg-type]
    yield compare(
        f"the same {DECISIONS:,}",
        ours,
        "scikit-learn's predict of all at once",
        lambda: model.predict(known[:DECISIONS]),
    )
