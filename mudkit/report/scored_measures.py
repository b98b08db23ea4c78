"""The figures that the first screen of the report scoreboard writes to summary.json."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

from mudkit.report.growing import Growth
from mudkit.report.page import Measure
from mudkit.report.verdicts import COSTS, DRAWS, FATE_LABELS, LOOSER

if TYPE_CHECKING:
    from mudkit.report.scoring import ScoreStudy


def first_measures(study: ScoreStudy) -> list[Measure]:
    """Return the figures of the first screen: of all tasks, and of each."""
    named, unit, _ = COSTS[study.cost]
    board, totals, (most, share) = study.board, study.totals, study.missed

    def divided(part: str, whole: str) -> float:
        return totals[part] / totals[whole] if totals[whole] else math.nan

    measures = [
        Measure("in_time_share", divided("useful", "wanted"), "share", "Deliveries in time of all that was "
                "wanted, with the systems that the headline names."),
        Measure(study.cost, divided("paid", "useful"), unit, f"{named.capitalize()} for each delivery in "
                "time, with the systems that the headline names."),
        Measure(f"baseline_{study.cost}", divided("base_paid", "base_useful"), unit,
                f"The same with the system {board.baseline} in the same tasks."),
        Measure("missed_as", FATE_LABELS.get(most), "", "Most common end of what was not in time."),
        Measure("missed_share", share, "share", "What ended so, of all that was wanted."),
        Measure("in_time_share_of_ended", study.of_ended, "share",
                "Deliveries in time of all that was wanted and was not merely never opened."),
        Measure("tasks", len(board.tasks), "", "Tasks."),
        Measure("systems", len(board.systems), "", "Systems that are compared."),
        Measure("seeds", int(board.runs["seed"].nunique()), "", "Seeds of each task and system."),
        Measure("runs", len(board.runs), "", "Runs of a task, a system and a seed."),
        Measure("devices", max(task.scenario.devices for task in study.given), "devices",
                "Phones of the fleet."),
        Measure("deliveries", int(study.uses["deliveries"].sum()), "",
                "Different wanted deliveries of all tasks."),
    ]  # fmt: skip
    for row in study.uses.to_dict("records"):
        measures += _of_task(study, row)
    return measures


def _of_task(study: ScoreStudy, row: Mapping[Hashable, Any]) -> list[Measure]:
    """Return the figures of a task."""
    named, unit, _ = COSTS[study.cost]
    cost, task, system = study.cost, row["task"], row["system"]
    key = task.replace(" ", "_")
    fates = study.fates[(study.fates["task"] == task) & (study.fates["system"] == system)]
    looser = study.chosen_looser(task)

    def pooled(name: str, measure: str, of: str, unit: str, definition: str) -> Measure:
        """Return a measure of a system with its interval; not known without a system."""
        if not of:
            return Measure(f"{key}.{name}", None, unit, definition)
        place = study.board.systems.index(of)
        value, low, high = (ends[place] for ends in study.pools[task].interval(measure, 0.95))
        return Measure(f"{key}.{name}", value, unit, definition, low, high)

    in_time, for_each = "Deliveries in time of all that was wanted", "for each delivery in time"
    return [
        Measure(f"{key}.recommended", system if row["verdict"] == "firm" else None, "",
                "Recommended system; none without a firm verdict."),
        Measure(f"{key}.ahead", system or None, "", "System that is ahead, firmly or not."),
        Measure(f"{key}.verdict", row["verdict"], "", "firm, close, few deliveries, or nothing delivered."),
        Measure(f"{key}.same_choice_share", row["certain_share"], "share",
                f"Of {DRAWS:,} draws of runs, phones and deliveries that recommend the same system."),
        Measure(f"{key}.deliveries", row["deliveries"], "", "Different wanted deliveries it rests on."),
        Measure(f"{key}.readers", row["readers"], "devices", "Different phones that wanted something."),
        pooled("in_time_share", "useful_share", system, "share", f"{in_time}."),
        pooled(cost, cost, system, unit, f"{named.capitalize()} {for_each}."),
        Measure(f"{key}.in_time_share_of_ended", row["opened_share"], "share",
                f"{in_time} and was not merely never opened."),
        *(
            Measure(f"{key}.{name}_share", float(fates[name].iloc[0]) if len(fates) else None, "share",
                    f"What was {FATE_LABELS[name]}, of all that was wanted.")
            for name in ("late", "stale", "unopened", "lost")
        ),
        Measure(f"{key}.next", row["next"] or None, "",
                "Next system in cost that brings nearly as much in time."),
        Measure(f"{key}.saving_share", row.get("saving_share"), "share",
                "How much less the chosen system costs than the next one."),
        *_of_growth(study, key, study.growth.get(task)),
        pooled(f"baseline_{cost}", cost, study.board.systems[0], unit,
               f"{named.capitalize()} {for_each} with the system {study.board.baseline}."),
        Measure(f"{key}.looser", looser or None, "", "System that is chosen if one may bring "
                f"{100 * LOOSER:.0f} points less in time than the best."),
        pooled("looser_in_time_share", "useful_share", looser, "share", f"{in_time}, with that one."),
        pooled(f"looser_{cost}", cost, looser, unit, f"{named.capitalize()} {for_each}, with that one."),
    ]  # fmt: skip


def _of_growth(study: ScoreStudy, key: str, growth: Growth | None) -> list[Measure]:
    """Return the figures of a larger fleet."""
    named, unit, _ = COSTS[study.cost]
    crossing = Measure(
        f"{key}.crossing_devices",
        growth.crossing_devices if growth else None,
        "devices",
        "Fleet from which a system that sends to fewer phones costs less; none: not known.",
    )
    if growth is None or growth.larger_cost is None:
        return [crossing]
    (cost, rival_cost), (share, rival_share) = growth.larger_cost, growth.shares
    return [
        crossing,
        Measure(f"{key}.larger_devices", 2 * growth.devices, "devices", "Phones of the larger fleet."),
        Measure(f"{key}.larger_{study.cost}", cost, unit,
                f"{named.capitalize()} for each delivery in time, in the larger fleet."),
        Measure(f"{key}.larger_in_time_share", share, "share",
                "Deliveries in time of all that was wanted, in the larger fleet."),
        Measure(f"{key}.larger_rival", growth.rival, "", "Cheapest system that sends to fewer phones."),
        Measure(f"{key}.larger_rival_{study.cost}", rival_cost, unit, "The same cost with that one."),
        Measure(f"{key}.larger_rival_in_time_share", rival_share, "share", "The same share with that one."),
        Measure(f"{key}.larger_rival_fewer_share", share - rival_share, "share",
                "How much less of what was wanted it brings in time."),
    ]  # fmt: skip
