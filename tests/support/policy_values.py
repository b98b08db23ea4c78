"""All numbers and tables of the page cache_policy."""

from __future__ import annotations

from typing import Any

from mudkit.figures import hits_by_cell
from mudkit.learning import FixedRule
from mudkit.report import TraceSource, batching, caching


def policy_values(source: TraceSource, **limits: Any) -> dict[str, Any]:
    """Return the tables and texts of the page by name."""
    source = source.with_whole_windows()
    limits = {"completeness": 0.9, "max_stale": 0.1, "folds": "device"} | limits
    study = caching.study_reads(source, rule=FixedRule(1.0, 10.0), horizon_s=7200.0, **limits)
    delays = batching.study_writes(source, batch_minutes=30.0, **limits)
    screen = study.first_screen(delays)
    cells = hits_by_cell(study.reads_by_place(14), 14)
    answers = {
        "assumptions": study.assumptions_answer(),
        "policies": study.policies_answer(),
        "savings": study.savings_answer(),
        "rules": study.rules_answer(),
        "tree": study.tree_answer(),
        "places": study.places_answer(cells),
        "writes": delays.answer(),
    }
    tables = {
        "assumed": study.assumptions.table,
        "policy table": study.policy_table(),
        "bars": study.policy_bars(),
        "saved": study.savings(),
        "tried": study.tried,
        "delays": delays.table(),
        "cells": cells.to_pandas(),
        "nodes": study.tree_nodes(),
        "times": study.limits_by_time(),
        "rows": source.rows,
    }
    texts = {name: value for name, value in vars(screen).items() if name not in ("measures", "source")}
    texts["measures"] = [measure.document() for measure in screen.measures]
    texts["times caption"] = study.times_caption()
    texts["policy"] = dict(study.artefact(1).document)
    texts["described"] = [repr(row) for row in study.described().itertuples()]
    return {name: (answer.title, answer.text) for name, answer in answers.items()} | tables | texts
