"""Other assumptions of the report cache_policy: reads are derived anew, and each row counts what it assumes."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from report_traces import T0_S, source

from mudkit import show
from mudkit.learning.devices import LocalDevices
from mudkit.learning.pairs import Pairs
from mudkit.learning.search import replayed, search_policies
from mudkit.pipeline.coverage import read_labels
from mudkit.report import assuming
from mudkit.report.assuming import Assumptions, try_assumptions
from mudkit.trace.derive import Rule, derive_reads
from mudkit.trace.schema import POSITIONS, timestamps

LIMITS = {"completeness": 0.9, "max_stale": 0.05, "horizon_s": 7200.0, "folds": "device"}


@pytest.fixture(scope="module")
def moving():
    """Build cars that stand still for 4, 12 or 30 minutes between movements of a kilometre."""
    rows = []
    for car in range(4):
        t_s, lat = T0_S, 47.0
        for stop in range(15):
            for _ in range((4, 12, 30)[(stop + car) % 3]):
                rows.append((f"car-{car}", t_s, lat, 8.0 + car / 10))
                t_s += 60
            lat += 0.01
    device, t_s, lat, lon = zip(*rows, strict=True)
    columns = {"device": device, "ts": timestamps(np.array(t_s) * 1_000_000), "lat": lat, "lon": lon}
    columns["speed_mps"] = pa.nulls(len(rows), pa.float64())
    return pa.table(columns, schema=POSITIONS)


def tried(trace):
    devices = labelled(trace, trace.reads)
    return try_assumptions(trace, devices, recommended(devices).chosen, **LIMITS).table.set_index("assumed")


def labelled(trace, reads):
    return LocalDevices(Pairs.of(read_labels(trace.positions, reads, LIMITS["horizon_s"]), reads))


def recommended(devices):
    return search_policies(devices, completeness=0.9, max_stale=LIMITS["max_stale"])


def derived(positions, rule):
    reads = derive_reads(positions, Rule.parse(rule), box_km=20.0, window_s=7200.0)
    return replace(source([0], [[0, 60]], window_s=7200), positions=positions, reads=reads)


@pytest.fixture(scope="module")
def by_trip_start(moving):
    return derived(moving, "trip_start(still_s=600)")


@pytest.fixture(scope="module")
def table(by_trip_start):
    return tried(by_trip_start)


def test_reads_are_derived_anew_with_half_and_twice_the_parameter(moving, table):
    assert [name for name in table.index if name.startswith("reads by")] == [
        "reads by trip_start(still_s=300)",
        "reads by trip_start(still_s=1200)",
    ]
    longer = derived(moving, "trip_start(still_s=1200)")
    of = recommended(labelled(longer, longer.reads))
    row = table.loc["reads by trip_start(still_s=1200)"]
    assert (row["family"], row["fresh_share"]) == (of.chosen.family, of.chosen.fresh_share)


@pytest.mark.parametrize("change", ["recorded", "selected", "generated"])
def test_recorded_and_selected_reads_are_not_derived_anew(by_trip_start, change, monkeypatch):
    reads = by_trip_start.reads
    place = reads.column_names.index("origin")
    trace = {
        "generated": replace(
            by_trip_start,
            reads=by_trip_start.reads.set_column(
                place,
                "origin",
                pa.array(["derived: generate(trip start; seed=3)"] * len(by_trip_start.reads)),
            ),
        ),
        "recorded": replace(
            by_trip_start, reads=reads.set_column(place, "origin", pa.array(["recorded"] * len(reads)))
        ),
        "selected": replace(by_trip_start, selected="hours before 9"),
    }[change]
    monkeypatch.setattr(assuming, "_SCALED", ())
    assert not any(name.startswith("reads by") for name in tried(trace).index)


def test_asking_always_has_no_interval(table):
    """Answer nothing fresh from the cache by definition, not by chance."""
    always = table[table["family"] == "always ask"]
    assert len(always)
    assert always[["fresh_share_low", "fresh_share_high"]].isna().all(axis=None)
    assert (always["fresh_share"] == 0.0).all()


def test_policy_of_the_page_is_replayed_under_other_assumptions(by_trip_start, table):
    """Halve the window: the same age is stale more often."""
    chosen = recommended(labelled(by_trip_start, by_trip_start.reads)).chosen
    window = by_trip_start.reads.column_names.index("window_s")
    halved = by_trip_start.reads.set_column(window, "window_s", pa.array([3600.0] * len(by_trip_start.reads)))
    (kept,) = replayed(labelled(by_trip_start, halved), 0.9, [(chosen.family, chosen.policy)])
    row = table.loc["window 1 h"]
    assert (row["kept_fresh_share"], row["kept_stale_share"]) == (kept.fresh_share, kept.stale_share)
    assert row["is_kept_allowed"] == (kept.stale_share <= LIMITS["max_stale"])
    as_assumed = table.iloc[0]
    assert as_assumed["kept_fresh_share"] == pytest.approx(as_assumed["fresh_share"], abs=0.2)


@pytest.mark.parametrize(
    ("stale", "text"),
    [
        ([0.01, 0.02], "The policy of this page keeps the limit of stale answers under each."),
        (
            [0.01, 0.16],
            "The policy of this page exceeds the limit of stale answers with: window 1 h (16.0 % stale).",
        ),
    ],
)
def test_assumptions_say_whether_the_policy_keeps_its_limit(stale, text):
    table = pd.DataFrame(
        {
            "assumed": ["as assumed", "window 1 h"],
            "family": "age",
            "policy": "at most 5 min old",
            "fresh_share": [0.2, 0.055],
            "kept_stale_share": stale,
            "is_kept_allowed": [share <= 0.02 for share in stale],
            "max_stale": 0.02,
        }
    )
    assumptions = Assumptions(table, "age", 0, "")
    warned = " ".join(assumptions.warnings())
    assert (text in warned) == (max(stale) > 0.02)
    assert (text in assumptions.answer().text) == (max(stale) <= 0.02), "once on the page"
    assert ("5.5 to 20.0 %" in warned) == (max(stale) > 0.02)
    assert Assumptions(table, "always ask", 0, "").kept() == ""


@pytest.mark.parametrize(
    ("limits", "text"),
    [([0.02, 0.04], "simpler policy is recommended, which gives 5 points less"), ([1.0, 0.5], "")],
)
def test_looser_limit_that_gives_less_is_explained_unless_it_is_stricter(limits, text):
    """No limit is looser than one that allows all stale answers: then the last one is half of it."""
    table = pd.DataFrame({
        "assumed": ["as assumed", "4 % stale allowed"], "family": "age", "policy": "at most 5 min old",
        "fresh_share": [0.2, 0.15], "is_kept_allowed": True, "max_stale": limits,
    })  # fmt: skip
    assert text in (shown := Assumptions(table, "age", 0, "").answer().text)
    assert ("simpler" in shown) == bool(text)


@pytest.mark.parametrize(
    ("shares", "text"),
    [([0.0, 0.0], ""), ([0.0, 0.004], "0.4 %"), ([0.2, 0.6], "20.0 to 60.0 %")],
)
def test_span_of_fresh_answers_is_empty_without_any(shares, text):
    span = Assumptions(pd.DataFrame({"fresh_share": shares}), "age", 0, "").span
    assert (text in span, bool(span)) == (True, bool(text))


def test_long_policies_are_shown_whole():
    policy = "at most 6 min 30 s old within 2 km of the last answer from 7 to 9, else at most 20 min old, and never offline"
    row = {"assumed": "as assumed", "policy": policy, "fresh_share": 0.2, "kept_fresh_share": 0.2}
    assumptions = Assumptions(pd.DataFrame([{**row, "kept_stale_share": 0.01}]), "age", 0, "")
    assert policy in show(assumptions.shown())._repr_html_()
