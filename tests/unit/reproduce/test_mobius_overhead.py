"""Rows M3 and M3-remote at small sizes, untimed."""

import math
import sqlite3
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from mudkit.reproduce import mobius_overhead
from mudkit.reproduce.mobius_overhead import M3, M3_REMOTE
from mudkit.reproduce.row import judge


def test_m3_measures_all_required_quantities():
    measured = mobius_overhead.measure_local(writes=20, durable=6, reads=30, cached=10, seeds=[1])
    assert {required.quantity for required in M3.required} <= set(measured.quantities)
    assert all(math.isfinite(quantity.median) for quantity in measured.quantities.values())
    assert measured.quantities["share of records that are in the files"].low == 1


def test_m3_divides_overhead_over_sqlite_by_the_machine_factor():
    measured = mobius_overhead.measure_local(
        writes=4, durable=2, reads=4, cached=2, seeds=[1], reference_us=1e6
    )
    operation = "local write, NORMAL"
    quantities = measured.quantities
    overhead, at_reference, factor, mud_us, sqlite_us = (
        quantities[f"{name}{operation}{side}"].median
        for name, side in (
            ("µs over bare SQLite, ", ""),
            ("µs over bare SQLite at the reference speed, ", ""),
            ("machine factor, ", ""),
            ("µs, ", ""),
            ("µs, ", ", bare SQLite"),
        )
    )
    assert overhead == pytest.approx(mud_us - sqlite_us)
    assert at_reference == pytest.approx(overhead / factor)
    assert 0 < factor < 0.1  # the loop does not take a second
    assert "1e+06 µs" in measured.parameters["calibration"]


def test_m3_remote_is_not_a_row_of_speed():
    assert (M3.is_speed, M3_REMOTE.is_speed) == (True, False)
    texts = []
    measured = mobius_overhead.measure_remote(texts.append, requests=9, seeds=[1])
    assert texts[0].startswith("18 requests over LTE, MUD"), "nine writes and nine reads"
    assert judge(M3_REMOTE, measured)[0] == "reproduced"  # virtual time is deterministic
    assert measured.quantities == mobius_overhead.measure_remote(requests=9, seeds=[1]).quantities


def test_m3_remote_over_https_charges_handshakes_once():
    """A baseline that opens a connection each time has its own handshake in place of the transport's."""
    measured = mobius_overhead.measure_remote(requests=9, seeds=[1], transport="https")
    assert judge(M3_REMOTE, measured)[0] == "reproduced"
    bare_ms, tcp_ms, tls_ms = (
        measured.quantities[f"ms, read, 3G, {peer}"].median for peer in ("bare", "TCP", "TCP and TLS 1.3")
    )
    assert 150 < tcp_ms - bare_ms < 300  # one round trip, in the median 200 ms
    assert 350 < tls_ms - bare_ms < 600  # two


def test_m3_fails_when_writes_are_lost(monkeypatch):
    monkeypatch.setattr(mobius_overhead.Bare, "write", lambda self, key, record: None)
    monkeypatch.setattr(mobius_overhead.Mud, "write", lambda self, key, record: None)
    calls = mobius_overhead.draw_records(4, 1)
    assert [key for key, _ in calls] == 2 * ["article-000000", "article-000001"]
    assert len({str(record) for _, record in calls}) == 4
    with pytest.raises(TypeError):  # reads find nothing
        mobius_overhead.measure_local(writes=4, durable=4, reads=1, cached=2, seeds=[1])


def test_m3_ends_with_the_first_error_of_the_device(tmp_path):
    """A lab runs on after a machine has failed; what is measured then is worth nothing."""
    mud = mobius_overhead.Mud(tmp_path, "NORMAL", seed=1)
    mud.close()
    with pytest.raises(sqlite3.ProgrammingError):
        mud.write("article", {"number": 1})


def test_requests_follow_each_other_after_drawn_thinking():
    at_s = {"write": [], "read": []}

    def make(lab):
        def ask(what, key, record):
            at_s[what].append(lab.world.now_us / 1e6)
            return SimpleNamespace(result=lambda: None)

        return ask

    mobius_overhead.latencies_ms(make, 40, 1)
    low_s, high_s = mobius_overhead._THINK_S
    for times_s in (at_s["write"][1:], at_s["read"]):
        waits_s = np.diff(times_s)
        assert low_s <= waits_s.min() < waits_s.max() <= high_s
        assert waits_s.mean() == pytest.approx((low_s + high_s) / 2, rel=0.2)


def test_handshakes_add_round_trips():
    def measure_ms(link, transport="messages"):
        make = partial(mobius_overhead._bare, link=link)
        return mobius_overhead.latencies_ms(make, 40, 1, transport)["read"]

    for link, trip_ms in (("lte", 70), ("umts_3g", 200)):
        bare = measure_ms(link)
        tcp = measure_ms(link, mobius_overhead.opened_each_time("messages")["TCP"])
        assert tcp - bare == pytest.approx(trip_ms, rel=0.25)
        assert measure_ms(
            link, mobius_overhead.opened_each_time("messages")["TCP and TLS 1.2"]
        ) - bare > 2.5 * (tcp - bare)
