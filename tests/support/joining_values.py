"""All numbers and tables of the page propagation."""

from __future__ import annotations

from typing import Any

from mudkit.report import TraceSource, joined_early, joined_maps, joined_ways, playing, propagating
from mudkit.report.joined_messages import Limits, Sizes


def joining_values(source: TraceSource, limits: Limits, quantity: str = "auto") -> dict[str, Any]:
    """Return the tables and texts of the page by name."""
    chosen = propagating.chosen_quantity(source.positions, quantity)
    study = propagating.study_joining(source, limits, Sizes(400, 500), chosen)
    screen = study.first_screen()
    counts = joined_maps.CellCounts.of_study(study)
    shown, cells = joined_maps.pictures(counts, study.label), joined_maps.sum_cells(counts)
    busy, minutes = playing.busiest_positions(source.positions, 30.0, study.choice.interval_s)
    tables = {
        "grid": study.grid(),
        "ways": joined_ways.baselines(study),
        "thresholds": joined_early.threshold_table(study),
        "assumptions": study.assumptions(),
        "pictures": shown.to_pandas(),
        "cells": cells,
        "played": busy.select(["device", "ts", "lat", "lon"]).to_pandas(),
    }
    answers = {
        "of the grid": study.grid_answer(),
        "of the ways": joined_ways.baselines_answer(study),
        "of thresholds": joined_early.threshold_answer(study),
        "of assumptions": study.assumptions_answer(tables["assumptions"]),
        "of places": joined_maps.places_answer(cells, shown, study.drawn),
    }
    texts = {name: value for name, value in vars(screen).items() if name not in ("measures", "source")}
    texts["measures"] = [measure.document() for measure in screen.measures]
    headings = {name: (answer.title, answer.text) for name, answer in answers.items()}
    return headings | tables | texts | {"minutes": minutes}
