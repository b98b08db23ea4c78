"""Rows M3 and M3-remote at small sizes, untimed."""

import math
from functools import partial

import pytest

from mudkit.events import size_bytes
from mudkit.reproduce import mobius_overhead
from mudkit.reproduce.mobius_overhead import M3, M3_REMOTE
from mudkit.reproduce.row import judge


def test_m3_measures_all_that_is_required():
    measured = mobius_overhead.measure_local(writes=20, durable=6, reads=30, cached=10, seeds=[1])
    assert {required.figure for required in M3.required} <= set(measured.figures)
    assert all(math.isfinite(figure.median) for figure in measured.figures.values())
    assert measured.figures["share of records that are in the files"].low == 1


def test_m3_divides_the_time_over_sqlite_by_the_machine_factor():
    measured = mobius_overhead.measure_local(
        writes=4, durable=2, reads=4, cached=2, seeds=[1], reference_us=1e6
    )
    what = "local write, NORMAL"
    figures = measured.figures
    over, at_reference, factor, ours, theirs = (
        figures[f"{name}{what}{side}"].median
        for name, side in (
            ("µs over bare SQLite, ", ""),
            ("µs over bare SQLite at the reference speed, ", ""),
            ("machine factor, ", ""),
            ("µs, ", ""),
            ("µs, ", ", bare SQLite"),
        )
    )
    assert over == pytest.approx(ours - theirs)
    assert at_reference == pytest.approx(over / factor)
    assert 0 < factor < 0.1  # the loop does not take a second
    assert "1e+06 µs" in measured.parameters["calibration"]


def test_m3_over_a_network_is_no_row_of_speed():
    assert (M3.is_speed, M3_REMOTE.is_speed) == (True, False)
    measured = mobius_overhead.measure_remote(requests=9, seeds=[1])
    assert judge(M3_REMOTE, measured)[0] == "reproduced"  # in virtual time: always the same
    assert measured.figures == mobius_overhead.measure_remote(requests=9, seeds=[1]).figures


def test_m3_notices_what_did_not_land(monkeypatch):
    monkeypatch.setattr(mobius_overhead.Bare, "write", lambda self, key, record: None)
    monkeypatch.setattr(mobius_overhead.Mud, "write", lambda self, key, record: None)
    calls = mobius_overhead.draw_records(4, 1)
    assert [key for key, _ in calls] == 2 * ["article-000000", "article-000001"]
    assert len({str(record) for _, record in calls}) == 4
    with pytest.raises(TypeError):  # nothing to read, either
        mobius_overhead.measure_local(writes=4, durable=4, reads=1, cached=2, seeds=[1])


def test_a_handshake_is_round_trips_of_its_sizes():
    def ms(link, trips):
        make = partial(mobius_overhead._bare, link=link, trips=trips)
        return mobius_overhead.latencies_ms(make, 40, 1)["read"]

    for link, trip_ms in (("lte", 70), ("umts_3g", 200)):
        bare = ms(link, ())
        one = ms(link, mobius_overhead.HANDSHAKES["TCP"])
        assert one - bare == pytest.approx(trip_ms, rel=0.25)
        assert ms(link, mobius_overhead.HANDSHAKES["TCP and TLS 1.2"]) - bare > 2.5 * (one - bare)
    assert size_bytes(mobius_overhead._padded({"back": 3000}, 330)) == 330
