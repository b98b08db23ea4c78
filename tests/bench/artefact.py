"""Evaluator of a shipped policy, compared with scikit-learn's `predict` for one row and for all at once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from compare import compare

from mudkit.learning import export_policy
from mudkit.learning.costs import CostMatrix
from mudkit.learning.features import FEATURE_SETS
from mudkit.learning.policies import LearntReads
from mudkit.learning.trees import learn

DECISIONS = 20_000
ROWS_ONE_BY_ONE = 200


def measure_rows() -> Iterator[dict[str, object]]:
    """Measure decisions of a tree with all extended features; the target is under 2 µs each."""
    rng = np.random.default_rng(1)
    features = rng.normal(0, 1, (20_000, len(FEATURE_SETS["extended"]))).astype(np.float32)
    truth = (features[:, 6] + features[:, 7] * features[:, 0] + rng.normal(0, 0.3, len(features)) > 0).astype(
        np.int64
    )
    costs = CostMatrix(stale=2.0, unnecessary=1.0).table()
    policy = LearntReads(learn(features, truth, np.arange(len(features)) % 20, costs), "extended", costs)
    decide, model = export_policy(policy).decide, policy.tree.grown.model
    values = features[:DECISIONS].tolist()
    sample = features[:ROWS_ONE_BY_ONE]

    def decide_rows() -> None:
        for row in values:
            decide(row)

    def predict_rows() -> None:
        for row in sample:
            model.predict(row[None, :])

    leaves = int(np.count_nonzero(policy.tree.is_leaf))
    result = compare(
        f"decisions of a shipped tree of {leaves} leaves, {DECISIONS:,}",
        decide_rows,
        f"scikit-learn's predict, {ROWS_ONE_BY_ONE} rows",
        predict_rows,
    )
    yield {**result, "us_each": 1e6 * float(result["ours_s"]) / DECISIONS}  # type: ignore[arg-type]
    yield compare(
        f"the same {DECISIONS:,}",
        decide_rows,
        "scikit-learn's predict of all at once",
        lambda: model.predict(features[:DECISIONS]),
    )
