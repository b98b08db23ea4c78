"""Rows of Radiator at small sizes, untimed."""

from __future__ import annotations

import random
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from measured_rows import check_complete

from mudkit.reproduce import radiator, radiator_scale
from mudkit.reproduce.radiator import R1, R2, R3, R4, R6
from mudkit.reproduce.radiator_scale import R5
from mudkit.reproduce.row import Measured, Quantity, judge
from mudkit.trace.schema import timestamps


def test_r1_message_sizes_match_the_paper():
    measured = radiator.measure_compression(count=3000, seeds=[1])
    quantities = check_complete(R1, measured).quantities
    assert (
        300
        <= quantities["smallest message, bytes"].median
        <= quantities["largest message, bytes"].median
        <= 500
    )
    assert judge(R1, measured)[0] in ("shape", "reproduced")
    assert "gzip" in measured.parameters["encoding"]


def test_r1_aggregation_relieves_a_saturated_link():
    measured = radiator.measure_compression(count=3000, seeds=[1])
    kinds = ("no gzip", "volume 1", "volume 20", "volume 50")
    lags = {kind: measured.quantities[f"lag of {kind}, saturated link, s"].median for kind in kinds}
    shares = {
        kind: measured.quantities[f"share of a saturated link that {kind} takes"].median for kind in kinds
    }
    assert lags["no gzip"] > 3 * lags["volume 1"] > 3 * max(lags["volume 20"], lags["volume 50"])
    assert shares["no gzip"] == pytest.approx(1, abs=0.02), "the link carries no more"
    assert shares["volume 1"] == pytest.approx(1, abs=0.03)
    assert shares["volume 20"] == pytest.approx(
        measured.quantities["bytes a message, volume 20"].median
        / measured.quantities["bytes a message, volume 1"].median
        * radiator.OVERLOAD,
        abs=0.02,
    )
    worse = {
        name: Quantity.of([1 / quantity.median]) if "saturated link" in name and "over" in name else quantity
        for name, quantity in measured.quantities.items()
    }
    assert judge(R1, Measured(worse, measured.parameters))[0] == "not reproducible"


def test_link_sends_aggregates_one_after_the_other():
    sent = radiator.SentAggregates(
        np.array([0.0, 1.0, 9.0]), np.array([4.0, 4.0, 2.0]), [np.array([0.0])] * 3
    )
    assert sent.lags_s(2.0) == pytest.approx([1.0, 3.0, 9.5])
    assert [sent.sent_bytes(2.0, until_s) for until_s in (0, 1, 3, 9, 20)] == [0, 2, 6, 8, 10]


def test_r2_longer_chains_leave_less_traffic():
    measured = radiator.measure_chains(clients=6000, count=2, seeds=[1])
    quantities = check_complete(R2, measured).quantities
    shares_left = [quantities[f"share left at {share:.2%}"].median for share in radiator.SHARES]
    assert shares_left[0] == 1.0, "0.02 % of 6,000 is one client"
    assert quantities["steps down, of 6"].median == 5, "all but that of the chain of one client"
    assert shares_left[1:] == sorted(shares_left[1:], reverse=True)
    assert shares_left[3] < 0.1


def test_r3_chains_and_aggregates_send_a_twentieth():
    measured = radiator.measure_headline(clients=6000, length_s=60, seeds=[1], load=2.0)
    quantities = check_complete(R3, measured).quantities
    assert quantities["times less outbound"].median > 20
    assert quantities["mean delay over that of pushes to each"].median < 1, (
        "60 hops against an overloaded link"
    )


def test_r4_retention_lowers_the_lag_of_a_full_link():
    measured = radiator.measure_lag(length_s=60, seeds=[1])
    quantities = check_complete(R4, measured).quantities
    assert quantities["lag of volume 20 over volume 1 at load 2"].median < 1
    assert quantities["lag of volume 20 over volume 1 at load 0.25"].median > 1
    lags = [quantities[f"lag of volume 1 at load {load:g}, s"].median for load in radiator.LOADS]
    assert lags == sorted(lags)
    assert lags[-1] == pytest.approx(60 / 2, rel=0.1), "the link turns to a message after twice its time"


def test_r4_is_not_reproducible_when_ratios_are_inverted():
    measured = radiator.measure_lag(length_s=30, seeds=[1])
    quantities = {
        name: Quantity.of([1 / quantity.median])
        if name.startswith("lag of volume 20 over") or "50 over" in name
        else quantity
        for name, quantity in measured.quantities.items()
    }
    assert judge(R4, Measured(quantities, measured.parameters))[0] == "not reproducible"


def test_r5_measures_the_engines():
    measured = radiator_scale.measure_engines(
        clients=200, many=3000, few=400, literal=20, unkeyed=60, beside=300, runs=1
    )
    quantities = measured.quantities
    assert quantities["messages that wait at the most"].median > 0
    assert quantities["bytes of aggregates, each counted once"].median > 0
    assert (
        quantities["messages/s into 5 groups"].median
        > quantities["messages/s of Algorithm 3 literally"].median
    )
    assert quantities["times as fast as Algorithm 3 literally, without a key"].median > 2
    assert "300 clients" in measured.parameters["messages"]["without a key"]


@pytest.mark.soak
@pytest.mark.spark
def test_r5_measures_all_required_quantities():
    engines = {"clients": 60, "many": 500, "few": 60, "literal": 3, "unkeyed": 5, "beside": 20, "runs": 1}
    measured = radiator_scale.measure_scale(
        engines=engines, stream={"cars": 40, "hours": 0.1, "every_s": 120.0}
    )
    quantities = check_complete(R5, measured).quantities
    assert 0 < quantities["longest lag behind the stream over its bound"].median <= 1
    assert "two files" in measured.parameters["stream"]


def compute_stream_figures(durations_s, every_s=60.0):
    """Return R5's figures of a stream with these batch durations; files send an aggregate in their middle."""
    ends_us = [round((number + 1) * every_s * 1e6) for number in range(len(durations_s) - 1)]
    completed_s = np.array(radiator_scale._done_s(ends_us, durations_s, 1.0))
    sent_s = np.array(ends_us) / 1e6 - every_s / 2
    played = radiator_scale.StreamRun(
        completed_s[1:] - sent_s,
        np.full(len(sent_s), every_s / 2),
        list(durations_s),
        1,
        1,
        np.mean(durations_s[1:]) / every_s,
        radiator_scale.bound_s(durations_s, every_s, 1.0),
    )
    return played.lags_s.max() / played.bound_s, played.growth, played.busy


def test_r5_detects_a_stream_that_falls_behind():
    over, growth, busy = compute_stream_figures([8.0] + [1.0] * 30)
    assert over < 1
    assert growth == pytest.approx(1.0, abs=0.1), "the last batch waits for no file"
    assert busy < 1
    over, growth, busy = compute_stream_figures([8.0] + [70.0] * 30)
    assert over > 1, "each batch begins later than the one before"
    assert growth > 1.25
    assert busy > 1


def test_r5_measures_lags_from_the_release_of_an_aggregate(monkeypatch, tmp_path):
    """See `StreamRun`: three files of a minute, whose batches take 2 s each; the watermark is half a minute on."""
    from mudkit.pipeline import streaming

    ends_us = [60_000_000, 120_000_000, 180_000_000]
    table = pa.table(
        {
            "ts": timestamps(np.array([30_000_000, 90_000_000])),
            "watermark_ts": timestamps(np.array([60_000_000, 120_000_000])),
            "recipients": [["a", "b"], ["a"]],
        }
    )
    released = SimpleNamespace(select=lambda *names: SimpleNamespace(toArrow=lambda: table.select(names)))
    marks = pd.to_datetime([0, *ends_us], unit="us", utc=True)
    batches = [SimpleNamespace(duration_s=2.0, watermark_ts=mark) for mark in marks]
    monkeypatch.setattr(streaming, "event_stream", lambda *_: None)
    monkeypatch.setattr(
        streaming, "aggregate_stream", lambda *_, **__: SimpleNamespace(aggregates=released, batches=batches)
    )
    positions = pa.table(
        {
            "device": ["a", "b", "a"],
            "ts": timestamps(np.array([0, 61_000_000, 122_000_000])),
            "lat": [30.0] * 3,
            "lon": [-97.0] * 3,
        }
    )
    run = radiator_scale.play(None, radiator_scale.events_of(positions), tmp_path, every_s=60.0, speed=1.0)
    done_s = radiator_scale._done_s(ends_us, [2.0] * 4, 1.0)
    assert run.behind_s.tolist() == [30.0, 30.0]
    assert run.lags_s.tolist() == pytest.approx([done_s[1] - 30, done_s[2] - 90])
    assert (run.events, run.receipts) == (2 + 3, 3)


def test_r6_payload_grows_less_than_the_chain():
    measured = radiator.measure_payload(count=3, seeds=[1])
    quantities = check_complete(R6, measured).quantities
    assert 1.5 < quantities["payload of 100 recipients over that of 10"].median < 10
    assert judge(R6, measured)[0] in ("shape", "reproduced")


def test_falls_counts_descending_steps():
    line = [5.0, 4.0, 3.0, 1.0]
    assert radiator.falls(line) == 3
    random.Random(3).shuffle(line)
    assert radiator.falls(line) < 3


def test_transport_adds_the_headers_of_one_answer_to_a_push():
    """A push of one packet over HTTPS: 300 bytes of header, 22 of a record, 40 of a packet."""
    name = "bytes for 10 recipients"
    sizes = [
        radiator.measure_payload(count=3, seeds=[1], transport=transport).quantities[name].median
        for transport in ("messages", "https")
    ]
    assert sizes[1] - sizes[0] == pytest.approx(300 + 22 + 40)
