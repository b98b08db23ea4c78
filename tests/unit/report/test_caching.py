"""Report cache_policy: recommendations on traces with a known best policy, and consistent figures."""

import json
import math
import re
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from report_traces import build_hopeless, build_learnable, build_rule_is_best, source

from mudkit import Lab, words
from mudkit.errors import ParameterError
from mudkit.intervals import Interval
from mudkit.learning import FixedRule, RadioModel
from mudkit.learning.pairs import Pairs
from mudkit.learning.policies import describe_policy
from mudkit.learning.replay import SENT, replay, stale_reads
from mudkit.learning.search import replayed
from mudkit.pipeline.coverage import read_labels
from mudkit.report import caching
from mudkit.report.assuming import Assumptions
from mudkit.report.batching import WriteStudy, count_lacking, study_writes
from mudkit.report.caching import ReadStudy, study_reads
from mudkit.report.policies import HINDSIGHT, RULE, TimesOfReads, times_of_reads
from mudkit.systems import mud
from mudkit.systems.mud import Artefact

UNKNOWN = WriteStudy(30.0, 0.0, 0.0, 0.05, pd.DataFrame(), "Nothing is known of writes.")
ALLOWED = {"completeness": 0.9, "max_stale": 0.05, "horizon_s": 7200.0}


def study_trace(trace, rule=None, **allowed):
    return study_reads(trace, rule=rule or FixedRule(1.0, 3.0), **{**ALLOWED, **allowed})


@pytest.fixture(scope="module")
def by_age():
    return study_trace(build_rule_is_best(), FixedRule(1.0, 10.0))


@pytest.fixture(scope="module")
def by_hour(by_age):
    """Return a study with the assumptions of another, which take seconds to try."""
    study = study_trace(build_learnable())
    vars(study)["assumptions"] = by_age.assumptions
    return study


@pytest.fixture(scope="module")
def hopeless():
    return study_trace(build_hopeless(), max_stale=0.02)


def change(study: ReadStudy, **fields: object) -> ReadStudy:
    """Return a study with other fields, and with the assumptions of the first, which take seconds to try."""
    changed = replace(study, **fields)
    vars(changed)["assumptions"] = study.assumptions
    return changed


def render_text(study: ReadStudy) -> str:
    answers = study.policies_answer(), study.rules_answer(), study.assumptions_answer(), study.tree_answer()
    return " ".join([repr(study.first_screen(UNKNOWN)), *map(repr, answers)])


@pytest.mark.parametrize(
    ("best", "risk", "shown"), [(20.0, 0.02, 0.02), (20.0, 0.0, 0.001), (0.0, 0.02, 0.0)]
)
def test_writes_that_do_not_wait_exceed_no_limit(best, risk, shown):
    """The definition of the measure: 0.001 if lower, 0 if writes do not wait."""
    row = {f"{name}{end}": 0.1 for name in ("message_share", "missed_share") for end in ("", "_low", "_high")}
    policies = pd.DataFrame([{"minutes": 0.0, **row}, {"minutes": 20.0, **row}])
    measures = {one.name: one for one in WriteStudy(30.0, best, risk, 0.05, policies, "").measures(100.0)}
    assert measures["write_limit_risk"].value == shown
    assert measures["write_delay_s"].value == 60 * best
    assert (measures["write_stale_share"].low is None) == (best == 0.0)


def test_100_reads_are_enough():
    assert count_lacking(99, "read") == "99 reads are too few; 100 are needed."
    assert count_lacking(100, "read") == ""


def test_policy_by_time_is_recommended_when_only_the_hour_matters(by_hour):
    assert by_hour.family in ("time of day", "age by hour", "tree")
    assert by_hour.fresh.value - by_hour.fixed.fresh_share > 0.1
    assert by_hour.first_screen(UNKNOWN).headline.endswith(
        "of the reads get a fresh answer without the server."
    )
    assert not by_hour.does_rule_stay
    nearby = replace(by_hour.fixed, fresh=by_hour.fixed.fresh // 2)  # as if others were from too far away
    anywhere = words.percent(by_hour.fixed.fresh_share, 1)
    reason = change(by_hour, fixed=nearby).first_screen(UNKNOWN).reason
    assert f" fewer; at any distance it gives {anywhere} (" in reason


def test_age_alone_is_recommended_when_only_the_age_matters(by_age):
    assert by_age.family == "age"
    assert by_age.policy.km == math.inf
    assert 8 <= by_age.policy.minutes <= 11
    assert by_age.does_rule_stay
    assert "and may stay" in render_text(by_age)
    assert re.match(
        r"Answer from the cache when its answer is at most [\d minsh.]+ old: ",
        by_age.first_screen(UNKNOWN).headline,
    )


def test_recommendation_does_not_depend_on_the_fixed_rule(by_age, monkeypatch):
    """Nor do other assumptions, which are tried with what is recommended and allowed."""
    tried = []
    monkeypatch.setattr(
        caching, "try_assumptions", lambda *on, **options: tried.append((*on, options)) or by_age.assumptions
    )
    other = study_trace(build_rule_is_best(), FixedRule(8.0, 60.0))
    assert (other.family, other.policy, other.fresh) == (by_age.family, by_age.policy, by_age.fresh)
    assert other.first_screen(UNKNOWN).headline == by_age.first_screen(UNKNOWN).headline
    ((_, _, chosen, options),) = tried
    assert (chosen.family, chosen.policy) == (by_age.family, by_age.policy)
    assert options == {**ALLOWED, "folds": by_age.folds}
    assert not other.is_rule_allowed
    assert not other.does_rule_stay
    assert re.search(r"answers [\d.]+ % stale, more than the 5 % allowed", render_text(other))


def test_fixed_rule_with_just_the_risk_of_a_recommendation_is_allowed(by_age, monkeypatch):
    """See :meth:`ReadStudy.is_rule_allowed`: it keeps the limit as surely as a recommendation has to."""
    risk = by_age.search.risk(by_age.fixed)
    monkeypatch.setattr(caching, "MAX_RISK", risk)
    assert by_age.is_rule_allowed
    monkeypatch.setattr(caching, "MAX_RISK", risk / 2)
    assert not by_age.is_rule_allowed


@pytest.mark.parametrize(
    ("families", "title", "warning"),
    [
        (["age", "age", "age"], "Other assumptions give the same kind of policy", None),
        (["age", "tree", "age"], "1 of 2 other assumptions change the kind of policy", "with: box 10 km."),
        (
            ["tree", "tree", "age"],
            "The choice is close: on 9 devices alone, 2 of 3",
            "assumptions recommend “tree”.",
        ),
        (["tree", "time of day", "age"], "1 of 2 other assumptions change", "with: box 10 km."),
    ],
)
def test_other_assumptions_are_compared_with_what_is_recommended(by_age, families, title, warning):
    """Try assumptions on some devices, on which another policy may be recommended as assumed."""
    study = replace(by_age)
    shares = {f"fresh_share{end}": [0.2, 0.3, 0.4] for end in ("", "_low", "_high")}
    assumed = ["as assumed", "box 10 km", "box 40 km"]
    table = pd.DataFrame(
        {"assumed": assumed, "family": families, **shares, "is_kept_allowed": True, "max_stale": 0.02}
    )
    vars(study)["assumptions"] = Assumptions(table, "age", 9, "")
    assert study.assumptions.answer().title.startswith(title)
    notes = " ".join(study.first_screen(UNKNOWN).warnings)
    assert ("is close" in notes) == (families[0] != "age")
    if warning is None:
        assert "Another kind of policy" not in notes
    else:
        assert warning in notes


def test_always_ask_is_recommended_when_cached_answers_are_useless(hopeless):
    assert hopeless.family == "always ask"
    assert hopeless.first_screen(UNKNOWN).headline.startswith(
        "Nothing is recommended: 80 reads are too few; 100 are needed."
    )
    assert hopeless.source.read_gaps.ends()[0] >= 180.0
    assert hopeless.artefact(1).decide([0.0] * 3) == "remote"


def test_without_a_recommendation_the_best_that_was_found_is_named(by_age):
    asks, *others = by_age.search.choices
    best = max(others, key=lambda choice: choice.fresh.sum())
    for choices, text in (
        ((asks, *others), f"The best that was found, “{describe_policy(best.policy)}”, answers "),
        ((asks,), "No policy keeps the limit of stale answers with a margin."),
    ):
        study = change(by_age, search=replace(by_age.search, choices=choices, chosen=asks))
        assert text in study.first_screen(UNKNOWN).reason
        share = max(choice.fresh_share for choice in choices)
        assert study.first_screen(UNKNOWN).tiles[0][0] == words.percent(share, 1), "as the fixed rule has"


def test_six_reads_give_no_firm_headline_nor_figures():
    trace = source(range(0, 7200, 20), [[600, 1200, 1800], [700, 1300, 1900]], window_s=600)
    study = study_trace(trace, FixedRule(1.0, 12.0), max_stale=0.5)
    delays = study_writes(trace, batch_minutes=30.0, completeness=0.9, max_stale=0.5)
    screen = study.first_screen(delays)
    assert screen.tiles == [("6", "reads: too few to recommend a policy")]
    assert f"{screen.headline} {screen.reason}" == (
        "Nothing is recommended: 6 reads are too few; 100 are needed. "
        "Nothing is recommended for writes: 6 reads are too few; 100 are needed."
    )
    assert "read" in " ".join(screen.warnings)
    values = {measure.name: measure.value for measure in screen.measures}
    recommended = ("recommendation", "policy", "saved_share", "fresh_share", "stale_share", "sent_share")
    assert [values[name] for name in (*recommended, "limit_risk")] == [None] * 7
    assert values["reads"] == 6
    assert not any(name.startswith("write") for name in values)
    answers = study.assumptions_answer(), study.policies_answer(), study.rules_answer()
    assert all(answer.title.startswith("Too few reads") for answer in answers)
    assert study.savings_answer().title == "There is nothing to install"
    assert not study.policies["is_recommended"].any()


def test_few_writes_give_no_delay():
    reads = [range(60 * phone, 7200, 300) for phone in range(5)]
    trace = source(range(0, 7200, 120), reads, window_s=600)
    study = study_writes(trace, batch_minutes=30.0, completeness=0.9, max_stale=0.05)
    assert len(trace.reads) >= 100
    assert study.answer().text == "60 writes are too few; 100 are needed."
    assert not len(study.table())
    assert not study.measures(60.0)


def test_delay_saves_the_messages_of_writes_that_it_does_not_take():
    """Every write takes a message if none waits; with a quarter of the messages three quarters are saved."""
    rows = [{"minutes": 0.0, "message_share": 1.0, "missed_share": 0.0}]
    rows.append({"minutes": 30.0, "message_share": 0.25, "missed_share": 0.02})
    study = replace(UNKNOWN, best=30.0, policies=pd.DataFrame(rows), problem="")
    assert study.summary(1000.0).endswith(
        "2 % of the reads become stale, and 75 % of the writes' messages are saved, 750 a day (below)."
    )


def test_rule_that_is_shorter_than_any_gap_is_said_to_answer_nothing(by_age):
    study = study_trace(source(range(0, 90_000, 60), [range(600, 86_400, 600)], window_s=600))
    vars(study)["assumptions"] = by_age.assumptions  # others take seconds to try
    assert (
        "The fixed rule, “from within 1 km and at most 3 min old”, can answer no read: two of one"
        in render_text(study)
    )


def test_figures_match_a_plain_replay(by_age):
    """Replay the reads one by one, with labels from a plain count."""
    trace = by_age.source
    pairs = Pairs.of(read_labels(trace.positions, trace.reads, 7200.0), trace.reads)
    write_us = trace.positions["ts"].cast("int64").to_numpy()
    of_policies = {RULE: lambda pair: pairs.age_s[pair] <= 600}
    chosen = by_age.search.chosen
    decisions = chosen.decisions.local(pairs)
    of_policies["age"] = lambda pair: decisions[pair]
    for kind, decide in of_policies.items():
        sent = stale = 0
        for rows in pairs.devices():
            last = None
            for read in range(rows.start, rows.stop):
                pair = next(
                    (p for p in range(*pairs.first[read : read + 2]) if pairs.cached[p] == last), None
                )
                if pair is None or not decide(pair):
                    sent, last = sent + 1, read
                    continue
                now, then = pairs.t_us[read], pairs.t_us[last]
                counted_us = write_us[(write_us > now - 6_000_000_000) & (write_us <= now)]
                stale += len(counted_us) > 0 and (counted_us <= then).mean() < 0.9
        row = by_age.policies.set_index("kind").loc[kind]
        count = len(pairs.device)
        assert row["sent_share"] == pytest.approx(sent / count)
        assert row["stale_share"] == pytest.approx(stale / count)
        assert row["fresh_share"] == pytest.approx((count - sent - stale) / count)


@pytest.mark.parametrize("name", ["by_hour", "by_age", "hopeless"])
def test_no_policy_beats_hindsight_and_shares_are_in_range(name, request):
    study = request.getfixturevalue(name)
    table = study.policies
    for column in table.columns:
        if re.fullmatch(r"(fresh|sent|stale)_share(_low|_high)?|completeness(_low|_high)?", column):
            assert table[column].dropna().between(0, 1).all(), column
    assert (table["fresh_share"] <= study.most_fresh + 1e-12).all()
    hindsight = table.set_index("kind").loc[HINDSIGHT]
    assert hindsight["fresh_share"] == pytest.approx(study.most_fresh)
    assert hindsight["stale_share"] <= study.max_stale
    assert table["policy"].str.endswith("(recommended)").sum() == study.has_enough_reads


@pytest.mark.parametrize("name", ["by_hour", "by_age", "hopeless"])
def test_page_states_its_assumptions_and_has_no_exponents(name, request):
    study = request.getfixturevalue(name)
    text = render_text(study)
    assert text.count("An answer is stale when") == 1
    assert not re.search(r"\d\.?\d*e[+-]?\d", text)
    assumed = study.first_screen(UNKNOWN).assumption
    for parameter in ("window_s", "box_km", "completeness", "max_stale", "horizon_s"):
        assert f"`{parameter}`" in assumed
    assert "Reads are recorded" in assumed


def test_recommendation_is_compared_with_hindsight(by_age):
    """Both shares of fresh answers count from none, which is what asking for every read gives."""
    shares = by_age.policies.set_index("kind")["fresh_share"]
    fresh, most = shares[by_age.family], shares[HINDSIGHT]
    answer = by_age.policies_answer()
    assert answer.title == f"With hindsight {100 * (most - fresh):.1f} points more could be answered fresh"
    assert (
        answer.text
        == f"The recommended policy reaches {words.percent(fresh / most)} of what any policy could."
    )


def test_summary_has_the_figures_of_the_screen(by_age):
    measures = {measure.name: measure for measure in by_age.first_screen(UNKNOWN).measures}
    assert len(measures) == len(by_age.first_screen(UNKNOWN).measures)
    shares = [measures[name].value for name in ("fresh_share", "stale_share", "sent_share")]
    assert sum(shares) == pytest.approx(1.0)
    assert measures["recommendation"].value == "age"
    for measure in measures.values():
        assert measure.low is None or measure.low <= measure.value <= measure.high


def test_assumptions_are_halved_and_doubled(by_age):
    assumed = by_age.assumptions.table["assumed"].tolist()
    assert assumed[0] == "as assumed"
    assert {"window 50 min", "window 3 h 20 min", "box 10 km", "box 40 km", "2.5 % stale allowed"} <= set(
        assumed
    )
    assert len(assumed) == 9
    # With half of the missing points allowed, answers are stale after half of the time.
    halved = by_age.assumptions.table.set_index("assumed").loc["5 % of the points missing"]
    assert halved["fresh_share"] < by_age.fresh.value


def read_policy(study, folder):
    study.save_policy(folder)
    return json.loads((folder / "policy.json").read_text())


def test_policy_file_decides_as_the_policy_and_installs_in_a_lab(by_age, tmp_path, monkeypatch):
    by_age.save_policy(None)
    document = read_policy(by_age, tmp_path)
    artefact = Artefact.from_document(document)
    assert document["manifest"]["family"] == "age"
    minutes = by_age.policy.minutes
    for age_s, action in ((60 * minutes - 1, "local"), (60 * minutes + 1, "remote"), (7201, "remote")):
        values = {"age": age_s, "distance": 3.0, "hour": 12.0}
        assert artefact.decide([values[name] for name in artefact.features]) == action
    lab = Lab(seed=1)
    cloud = mud.Cloud(lab)
    client = mud.Client(
        lab.device("ann"),
        cloud,
        app="traffic",
        token=lab.token("ann", "traffic"),
        read_policy=mud.ShippedPolicy(),
    )
    client.create("traffic").result()
    cloud.ship(document, app="traffic").result()
    lab.run(minutes=5)
    assert client.policies().result()["read"]["version"] == document["version"]
    # The page of a later day installs its file without a word; that of an earlier one is refused with words.
    made_s = time.time()
    monkeypatch.setattr(time, "time", lambda: made_s + 86_400)
    later = read_policy(by_age, tmp_path)
    cloud.ship(later, app="traffic").result()
    lab.run(minutes=5)
    in_use = client.policies().result()["read"]
    assert (in_use["version"], in_use["refused"]) == (later["version"], [])
    with pytest.raises(ParameterError, match=r"give it a higher version with .*renewed"):
        cloud.ship(document, app="traffic").result()
    cloud.ship(Artefact.from_document(document).renewed(later["version"] + 1), app="traffic").result()


def test_rule_is_over_the_limit_only_if_more_is_stale_than_may_be(by_age):
    """At most `max_stale` of the reads may be answered stale: exactly as many may."""
    rule = FixedRule(5.0, 120.0)
    (fixed,) = replayed(by_age.devices, by_age.completeness, [("distance and age", rule)])
    stale = fixed.stale_share
    assert stale > 0
    for max_stale, is_over in ((stale, False), (math.nextafter(stale, 0.0), True)):
        study = replace(by_age, rule=rule, fixed=fixed, search=replace(by_age.search, max_stale=max_stale))
        assert (f" stale, more than the {words.percent(stale)} allowed." in study._against_rule()) == is_over


def test_savings_are_those_of_the_fresh_answers_of_a_day():
    study = study_trace(build_learnable(), FixedRule(1.0, 30.0), max_stale=0.3)
    table = study.savings()
    days = study.source.recorded_days
    assert days == 1, "of a shorter trace"
    pairs, chosen = study.devices.pairs, study.search.chosen
    is_stale = pairs.are_stale(0.9)
    assert study.fixed.stale.sum() > 0
    assert chosen.stale.sum() > 0
    # A query takes itself, a part of its answer, and the end.
    for row, of in ((0, study.search.choices[0]), (1, study.fixed), (-1, chosen)):
        served = replay(pairs, of.decisions.local(pairs))
        sent = (served == SENT) | stale_reads(is_stale, served)
        assert np.count_nonzero(~sent) == of.fresh.sum()
        taken = RadioModel().queries(pairs.device[sent], pairs.t_us[sent], pairs.points[sent])
        assert table["messages_per_day"].iloc[row] == pytest.approx(3 * sent.sum() / days)
        assert table["data_mb_per_day"].iloc[row] == pytest.approx(taken.bytes.sum() / 1e6 / days)
        assert table["radio_j_per_day"].iloc[row] == pytest.approx(taken.radio_mj.sum() / 1e3 / days)
    answer = study.savings_answer()
    saved = words.number(3 * chosen.fresh.sum() / days)
    assert answer.title.startswith(f"It saves the fleet {saved} messages,")
    stale = words.number(chosen.stale.sum() / days)
    assert f"The {stale} stale answers a day save nothing" in answer.text


@pytest.mark.parametrize(
    ("share", "text"), [(0.0, "0 %"), (0.0004, "0.04 %"), (0.0014, "0.1 %"), (0.0126, "1.3 %")]
)
def test_stale_shares_under_a_tenth_of_a_percent_have_another_digit(share, text):
    assert caching._stale(share) == text


@pytest.mark.parametrize(
    ("minutes", "expected"),
    [
        ((60.0,) * 4 + (5.0,) * 20, [("00:00", 2), ("04:00", 2)]),
        ((60.0,) * 2 + (5.0,) * 20 + (60.0,) * 2, [("02:00", 2), ("22:00", 2)]),  # passes midnight
        ((5.0,) * 20 + (60.0,) * 2 + (5.0,) * 2, [("20:00", 0), ("22:00", 4)]),
    ],
)
def test_times_of_the_shipped_rule_have_the_number_of_reads_they_follow_from(minutes, expected):
    """Read at 01:00, 02:00, 05:00 and 23:00 at longitude 0, where solar time is UTC."""
    pairs = SimpleNamespace(t_us=3_600_000_000 * np.array([1, 2, 5, 23]), lon=np.zeros(4))
    times = times_of_reads(SimpleNamespace(map=lambda function: [function(pairs)]))
    study = SimpleNamespace(policy=FixedRule(minutes=minutes), times=times)
    table = ReadStudy.limits_by_time(study)
    assert list(zip(table["from"], table["reads"], strict=True)) == expected


def test_solar_time_is_that_of_the_median_read():
    times = TimesOfReads(0, np.zeros(1440, np.int64), np.array([30, 10, 20]), np.array([3, 1, 1]))
    assert times.median_solar_min == 30


@pytest.mark.parametrize(
    ("gain", "text"), [(0.01, "1.0 point"), (0.0104, "1.0 point"), (0.02, "2.0 points"), (0.0, "0.0 points")]
)
def test_one_point_is_singular(gain, text):
    assert caching._points(Interval(gain, math.nan, math.nan, "value")) == text
