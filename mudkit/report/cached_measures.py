"""The figures that the first screen of the report cache_policy writes to summary.json, but for writes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from mudkit import intervals
from mudkit.intervals import Interval
from mudkit.learning.policies import describe_policy
from mudkit.report.batching import MIN_RISK
from mudkit.report.page import Measure

if TYPE_CHECKING:
    from mudkit.report.caching import ReadStudy


def first_measures(study: ReadStudy) -> list[Measure]:
    """Return the figures of the first screen; what follows from a definition has no interval."""
    search, chosen, source = study.search, study.search.chosen, study.source
    asks = chosen.family == "always ask"

    def share(name: str, of: Interval | None, definition: str, *, is_certain: bool = False) -> Measure:
        if of is None:
            return Measure(name, None, "share", definition)
        ends = (None, None) if is_certain else (of.low, of.high)
        return Measure(name, of.value, "share", definition, *ends)

    def recommended(measure: Measure) -> Measure:
        if search.has_enough_reads:
            return measure
        return replace(measure, value=None, low=None, high=None)

    saved = replace(study.fresh, value=study.saved, low=min(study.fresh.low, study.saved))

    def risk(value: float) -> float:
        return max(value, MIN_RISK)

    best = study.policies[study.policies["kind"] == "with hindsight"].iloc[0]
    most = Interval(study.most_fresh, best["fresh_share_low"], best["fresh_share_high"], "interval")
    rival, gaps = study.rival, study.gaps
    compared = chosen if chosen.family in ("tree", "always ask") else search.best_rule
    gap = intervals.median(gaps["gap_s"], gaps["device"], gaps["day"])
    sent = search.share(search.reads - chosen.fresh - chosen.stale)
    left_out = source.left_out
    aside = int(source.rows.loc[source.rows["what"].str.startswith("rejected"), "rows"].sum())
    of_recommendation = [
        Measure("recommendation", study.family, "", "Family of the recommended policy."),
        Measure("policy", describe_policy(study.policy), "", "The recommended policy in words."),
        share("saved_share", saved, "Reads that it answers fresh: the lower of shipped_share and "
              "fresh_share.", is_certain=asks),
        share("fresh_share", study.fresh, "Reads that it answers fresh from the cache, out of fold.",
              is_certain=asks),
        Measure("shipped_share", study.shipped, "share",
                "Reads that it, chosen on all of them, answers fresh."),
        share("stale_share", study.stale, "Reads that it answers stale, out of fold.", is_certain=asks),
        share("sent_share", sent, "Reads that ask the server with it, out of fold.", is_certain=asks),
        Measure("limit_risk", 0.0 if asks else risk(search.risk(chosen)), "share", "Probability that as "
                "many other devices and days have more stale answers than allowed; "
                f"{MIN_RISK:g} if lower, 0 without a cache."),
        Measure("rival", describe_policy(rival.policy) if rival else None, "", "The policy that it is "
                "compared with: the best rule for a tree, else a learnt tree; without a recommendation the "
                "best that was found."),
        share("rival_fresh_share", search.share(rival.fresh) if rival else None,
              "Reads that the rival answers fresh, out of fold."),
        share("rival_stale_share", search.share(rival.stale) if rival else None,
              "Reads that the rival answers stale, out of fold."),
        share("rival_gain_share", search.gain(rival, compared) if rival else None, "Reads that the rival "
              "answers fresh beyond those of the best rule, or of the recommended policy if it is no rule."),
        Measure("rival_limit_risk", risk(search.risk(rival)) if rival else None, "share",
                f"limit_risk of the rival; {MIN_RISK:g} if lower."),
        share("rule_gain_share", study.gain, "Reads that the recommended policy answers fresh beyond those "
              "of the fixed rule."),
    ]  # fmt: skip
    measures = [
        *map(recommended, of_recommendation),
        Measure("best_rule", None if asks else describe_policy(search.best_rule.policy), "",
                "The best rule that keeps the limit, in words."),
        Measure("rule", describe_policy(study.rule), "", "The fixed rule in words."),
        share("rule_fresh_share", search.share(study.fixed.fresh),
              "Reads that the fixed rule answers fresh."),
        share("rule_stale_share", search.share(study.fixed.stale),
              "Reads that the fixed rule answers stale."),
        Measure("rule_limit_risk", risk(search.risk(study.fixed)), "share",
                f"limit_risk of the fixed rule; {MIN_RISK:g} if lower."),
        share("rule_age_fresh_share", search.share(study.rule_age.fresh),
              "Reads that the fixed rule answers fresh at any distance."),
        share("rule_age_stale_share", search.share(study.rule_age.stale),
              "Reads that the fixed rule answers stale at any distance."),
        share("most_fresh_share", most, "Most reads that any policy could answer fresh within the limit, "
              "with hindsight."),
        Measure("devices", float(len(source.devices)), "", "Devices with positions."),
        Measure("positions", float(len(source.positions)), "", "Positions that were kept."),
        Measure("rows_set_aside", float(aside), "", "Rows that were set aside."),
        Measure("reads", float(search.count), "", "Reads that were replayed."),
        Measure("reads_left_out", float(left_out), "", "Reads whose windows were not recorded."),
        Measure("reads_left_out_share", left_out / max(left_out + len(source.reads), 1), "share",
                "Of all reads, those whose windows were not recorded."),
        Measure("read_gap_median_s", gap.value, "s", "Median time between two reads of one device.",
                gap.low, gap.high),
        Measure("read_gap_shortest_s", float(study.gaps_s.min()) if len(gaps) else None, "s",
                "Shortest time between two reads of one device."),
        Measure("stale_after_s", study.stale_after_s, "s", "Age at which an answer is stale where others "
                "write steadily; none: reads differ in their windows."),
    ]  # fmt: skip
    box, window = (pc.min_max(source.reads[name]).as_py() for name in ("box_km", "window_s"))
    measures += [
        Measure("box_smallest_km", box["min"], "km", "Smallest side of a read's box."),
        Measure("box_largest_km", box["max"], "km", "Largest side of a read's box."),
        Measure("window_shortest_s", window["min"], "s", "Shortest window of a read."),
        Measure("window_longest_s", window["max"], "s", "Longest window of a read."),
    ]
    if search.has_enough_reads:
        fresh = study.assumptions.table["fresh_share"]
        measures += [
            Measure(f"assumed_{end}_fresh_share", float(value), "share", f"The {end} fresh_share of what is "
                    "recommended if one assumption is halved or doubled.")
            for end, value in (("lowest", fresh.min()), ("highest", fresh.max()))
        ]  # fmt: skip
    return measures
