"""Search for the delay of writes, beside a loop over all rows."""

import math
import re
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from report_traces import build_rule_is_best, draw_reads, source

from mudkit import show
from mudkit.errors import TraceContentError
from mudkit.learning import Batch
from mudkit.learning.delays import search_delays
from mudkit.learning.devices import LocalWriters
from mudkit.learning.writes import ReadRequests, Writes
from mudkit.report.batching import LABELS, study_writes
from mudkit.trace.schema import epoch_us
from mudkit.units import US_PER_S

ALLOWED = {"completeness": 0.9, "max_stale": 0.05}


@pytest.fixture(scope="module")
def fleet():
    """Twelve cars that report every half minute or more, and 20 phones that read three hours of it."""
    trace = source([0], draw_reads(20, 12, 20, seed=3), window_s=10_800)
    random = np.random.default_rng(1)
    rows = sorted(
        (f"car-{car:02d}", int(t))
        for car in range(12)
        for t in np.unique(random.integers(-10_800, 12 * 3600, 400 + 60 * car))
    )
    device, t_s = zip(*rows, strict=True)
    start_us = int(epoch_us(trace.positions["ts"])[0])
    columns = {
        "device": list(device),
        "ts": pa.array(np.array(t_s) * US_PER_S + start_us).cast(trace.positions["ts"].type),
        "lat": np.zeros(len(rows)),
        "lon": np.zeros(len(rows)),
        "speed_mps": pa.nulls(len(rows), pa.float64()),
    }
    return replace(trace, positions=pa.table(columns, schema=trace.positions.schema))


def follow(trace, minutes, completeness):
    """Delay the writes of every device; return messages a write, and the share of stale reads."""
    delay_us = round(60 * minutes * US_PER_S)
    devices = trace.positions["device"].to_pylist()
    t_us = epoch_us(trace.positions["ts"])
    sent_us, messages, until = np.zeros(len(t_us), dtype=np.int64), 0, {}
    for row in np.argsort(t_us, kind="stable"):
        device = devices[row]
        if t_us[row] > until.get(device, -1):
            until[device] = t_us[row] + delay_us
            messages += 1
        sent_us[row] = until[device]
    stale = 0
    for at, window_s in zip(epoch_us(trace.reads["ts"]), trace.reads["window_s"].to_numpy(), strict=True):
        is_due = (t_us > at - window_s * US_PER_S) & (t_us <= at)
        has = is_due & (sent_us <= at)
        stale += is_due.any() and has.sum() / is_due.sum() < completeness
    return messages / len(t_us), stale / len(trace.reads)


def searched(trace, **options):
    requests = ReadRequests.of(trace.reads)
    writes = Writes.unread(trace.positions).seen_by(requests)
    return search_delays(LocalWriters(writes), requests, **(ALLOWED | options))


def test_every_device_follows_the_delay_that_is_judged(fleet):
    study = study_writes(fleet, batch_minutes=33.0, **ALLOWED)
    assert study.best > 0
    rows = study.policies[study.policies["minutes"].notna()]
    assert {0.0, 1.0, 33.0, study.best} <= set(rows["minutes"])
    for _, row in rows.iterrows():
        messages, stale = follow(fleet, row["minutes"], ALLOWED["completeness"])
        assert row["message_share"] == pytest.approx(messages)
        assert row["missed_share"] == pytest.approx(stale)


def test_sentences_round_as_the_table_does(fleet):
    study = study_writes(fleet, batch_minutes=33.0, **ALLOWED)
    html, answer = show(study.table(), labels=LABELS)._repr_html_(), study.answer()
    text = f"{answer.title} {answer.text}"
    shown = re.findall(r"([\d.]+)(?: messages per 100 writes| % of the reads)", text)
    assert len(shown) >= 4
    for number in shown:
        assert f">{number}<" in html or f">{number}.0<" in html, number


def test_recommended_delay_does_not_depend_on_the_one_in_use(fleet):
    studies = [study_writes(fleet, batch_minutes=minutes, **ALLOWED) for minutes in (7.0, 21.0, 22.0, 24.0)]
    assert len({study.best for study in studies}) == 1
    assert len({study.answer().title for study in studies}) == 1


def test_delay_is_refined_until_neighbours_hardly_differ():
    """A tenth of the points of 100 minutes are those of ten: at more, some reads are stale, and at less none."""
    study = study_writes(build_rule_is_best(), batch_minutes=300.0, completeness=0.9, max_stale=0.02)
    assert 9.8 <= study.best <= 10.3
    assert study.problem, "one car teaches a tree nothing about others"
    search = searched(build_rule_is_best(), max_stale=0.02)
    minutes = [one.minutes for one in search.search()]
    longer = minutes[minutes.index(study.best) + 1]
    assert longer <= max(1.02 * study.best, study.best + 1 / 60) + 1e-9


def test_delays_are_tried_down_to_the_interval_of_the_writes():
    """Every delay makes an answer stale; below 20 seconds, the interval, nothing is joined."""
    search = searched(build_rule_is_best(), completeness=1.0, max_stale=1e-9)
    sent_at_once, shortest, *_ = (one.minutes for one in search.search())
    assert sent_at_once == 0.0
    assert 20 / 60 < shortest <= 2 * 20 / 60


def test_chosen_delay_keeps_the_limit_on_other_readers_with_a_margin(fleet):
    search = searched(fleet)
    replays = search.search()
    chosen, risk = search.choose(replays)
    assert risk <= 0.1
    assert chosen.is_stale.mean() < ALLOWED["max_stale"]
    within = [one for one in replays if one.is_stale.mean() <= ALLOWED["max_stale"]]
    assert min(one.messages.sum() for one in within) < chosen.messages.sum(), "there is no margin"


def test_learnt_delays_are_those_of_trees_that_have_not_seen_the_device(fleet):
    search = searched(fleet, max_stale=0.2)
    learnt = search.best(search.learnt())
    assert learnt is None or (math.isnan(learnt.minutes) and learnt.messages.sum() <= len(fleet.positions))
    for one in search.learnt():
        assert one.points.sum() <= len(fleet.positions)
        assert one.messages.sum() <= one.points.sum()


def test_fixed_delay_beyond_the_trace_is_sent_once_by_each_device(fleet):
    search = searched(fleet)
    once = search.replay(Batch(1e5))
    assert once.messages.sum() == 12
    assert once.is_stale.all()


def test_reads_of_one_day_or_device_say_nothing_about_others(fleet):
    with pytest.raises(TraceContentError, match="All reads are of one day"):
        searched(fleet, folds="time")
    alone = replace(fleet, reads=fleet.reads.filter(pc.equal(fleet.reads["device"], "phone-00")))
    with pytest.raises(TraceContentError, match="All reads are of one device"):
        searched(alone)


def test_few_reads_say_nothing_of_writes(fleet):
    study = study_writes(replace(fleet, reads=fleet.reads.slice(0, 6)), batch_minutes=30.0, **ALLOWED)
    assert repr(study.answer()) == "Nothing can be said of writes\n6 reads are too few; 100 are needed."
    assert study.summary(1000.0) == "Nothing is recommended for writes: 6 reads are too few; 100 are needed."
    assert not study.measures(1000.0)
