"""Regret of the recommendations of `cache_policy` on planted traces.

The *regret* is the share of the reads that the planted policy answers fresh from the cache, minus that of the
recommended policy, both on fresh traces of the same process.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from cache_oracle import Score, label, score
from planted import TRACES, Planted, planted_trace

from mudkit.learning import FixedRule
from mudkit.learning.pairs import Pairs
from mudkit.report import caching

FRESH_SEEDS = (1, 2)


def study_planted(planted: Planted) -> Any:
    """Study a planted trace as the report does."""
    return caching.study_reads(
        planted.source(),
        rule=FixedRule(),
        completeness=planted.completeness,
        max_stale=planted.max_stale,
        horizon_s=planted.horizon_s,
    )


def score_fresh(planted: Planted, policy: Any, seeds: Iterable[int] = FRESH_SEEDS) -> tuple[Score, Score]:
    """Return the mean shares of the planted policy and of another on fresh traces of the process."""
    pair = []
    for seed in seeds:
        fresh = planted.fresh(seed)
        labelled = label(fresh.positions, fresh.reads, planted.horizon_s)
        local = policy.local(Pairs.of(labelled.table(), fresh.reads))
        pair.append(
            [score(labelled, x, planted.completeness) for x in (labelled.decisions(planted.decide), local)]
        )
    planted_shares, shares = (
        Score(*np.mean([(one.sent, one.stale, one.fresh) for one in column], axis=0).tolist())
        for column in zip(*pair, strict=True)
    )
    return planted_shares, shares


def regret_of(planted: Planted) -> dict[str, object]:
    """Return a row of the table of regrets, shares in percent of the reads."""
    start_s = time.process_time()
    study = study_planted(planted)
    study_s = time.process_time() - start_s
    best, result = score_fresh(planted, study.policy)
    return {
        "trace": planted.name,
        "reads": len(planted.reads),
        "expected": " or ".join(sorted(planted.families)) if len(planted.families) < 5 else "no tree",
        "family": study.family,
        "is_expected": study.family in planted.families,
        "policy": str(study.policy),
        "planted_fresh": 100 * best.fresh,
        "fresh": 100 * result.fresh,
        "claimed_fresh": 100 * study.fresh.value,
        "regret": 100 * (best.fresh - result.fresh),
        "max_stale": 100 * planted.max_stale,
        "stale": 100 * result.stale,
        "cpu_s": study_s,
    }


def regrets(seed: int, numbers: Iterable[int] = range(len(TRACES))) -> pd.DataFrame:
    """Return the regret of each recommendation."""
    return pd.DataFrame([regret_of(planted_trace(seed, number)) for number in numbers])
