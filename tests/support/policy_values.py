"""All numbers and tables of the page cache_policy."""

from __future__ import annotations

from typing import Any

from mudkit.figures import hits_by_cell
from mudkit.learning import FixedRule
from mudkit.report import TraceSource, batching, caching

LIMITS = {"completeness": 0.9, "max_stale": 0.1, "folds": "device"}


def study_reads(source: TraceSource, **limits: Any) -> caching.ReadStudy:
    """Return the study of the reads, with the limits of the tests unless others are given."""
    return caching.study_reads(source, rule=FixedRule(1.0, 10.0), horizon_s=7200.0, **LIMITS | limits)


def study_writes(source: TraceSource, **limits: Any) -> batching.WriteStudy:
    """Return the study of the writes, with the same limits."""
    return batching.study_writes(source, batch_minutes=30.0, **LIMITS | limits)


def read_values(study: caching.ReadStudy) -> dict[str, Any]:
    """Return the tables and texts about what is recommended for reads, by name."""
    cells = hits_by_cell(study.reads_by_place(14), 14)
    answers = {
        "policies": study.policies_answer(),
        "savings": study.savings_answer(),
        "rules": study.rules_answer(),
        "tree": study.tree_answer(),
        "places": study.places_answer(cells),
    }
    tables = {
        "policy table": study.policy_table(),
        "bars": study.policy_bars(),
        "saved": study.savings(),
        "tried": study.tried,
        "cells": cells.to_pandas(),
        "nodes": study.tree_nodes(),
        "times": study.limits_by_time(),
    }
    texts = {
        "times caption": study.times_caption(),
        "policy": dict(study.artefact(1).document),
        "described": [repr(row) for row in study.described().itertuples()],
    }
    return {name: (answer.title, answer.text) for name, answer in answers.items()} | tables | texts


def assumed_values(study: caching.ReadStudy) -> dict[str, Any]:
    """Return the table and the text about other assumptions."""
    answer = study.assumptions_answer()
    return {"assumptions": (answer.title, answer.text), "assumed": study.assumptions.table}


def write_values(delays: batching.WriteStudy) -> dict[str, Any]:
    """Return the table and the text about the delays of writes."""
    answer = delays.answer()
    return {"writes": (answer.title, answer.text), "delays": delays.table()}


def policy_values(source: TraceSource, **limits: Any) -> dict[str, Any]:
    """Return the tables and texts of the page by name."""
    source = source.with_whole_windows()
    study, delays = study_reads(source, **limits), study_writes(source, **limits)
    screen = study.first_screen(delays)
    texts = {name: value for name, value in vars(screen).items() if name not in ("measures", "source")}
    texts["measures"] = [measure.document() for measure in screen.measures]
    parts = read_values(study) | assumed_values(study) | write_values(delays)
    return parts | {"rows": source.rows} | texts
