"""Outages of devices by process or recording, with overlapping cuts, and transfers over measured links."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from lab_systems import install_answering, links

from mudkit import Lab
from mudkit.events import ContextChanged, LinkDown, LinkUp, Received, SendFailed
from mudkit.sources.outages import Outages
from mudkit.trace.schema import epoch_us

S = 1_000_000


def list_down_us(lab: Lab, device: str, links: Any = None) -> list[list[int]]:
    """Return the intervals without network of a device, from the table of links."""
    rows = lab.trace.table("links") if links is None else links
    rows = rows.filter(pc.equal(rows["device"], device))
    times_us = [*(epoch_us(rows["ts"]) - lab.start_us).tolist(), lab.world.now_us]
    return [span for *span, up in zip(times_us, times_us[1:], rows["up"].to_pylist(), strict=False) if not up]


@pytest.mark.parametrize("outage", [0.2, Outages(0.6, per_day=100, distribution="lognormal", cv=2.0)])
def test_share_of_time_without_network_is_as_configured(outage):
    lab = Lab(5)
    names = [device.name for device in lab.fleet(100, outage=outage)]
    lab.run(hours=48)
    links = lab.trace.table("links")
    shares = [
        sum(end - at for at, end in list_down_us(lab, name, links)) / lab.world.now_us for name in names
    ]
    assert np.mean(shares) == pytest.approx(getattr(outage, "share", 0.2), abs=0.03)
    assert len(set(shares)) == 100
    incidents = lab.frame("incidents").groupby("device")["incident"].apply(list)
    for sequence in incidents:
        assert sequence == [("link down", "link up")[n % 2] for n in range(len(sequence))]


def test_outage_of_zero_and_one():
    lab = Lab()
    never, always = lab.device("never", outage=0), lab.device("always", outage=1)
    _, machines = install_answering(always)
    lab.run(hours=48)
    assert never.is_online
    assert not always.is_online
    assert machines[0].of(LinkUp) == []
    assert list_down_us(lab, "always") == [[0, 48 * 3600 * S]]


def test_overlapping_cuts_end_with_the_last():
    lab = Lab()
    ann = lab.device("ann")
    _, machines = install_answering(ann)
    lab.faults.cut("ann", minutes=10)
    lab.run(minutes=5)
    lab.faults.cut("ann", minutes=20)
    lab.faults.cut("ann", minutes=1)
    lab.run(minutes=10)
    assert ann.down_reasons() == ["cut 2"]
    lab.run(minutes=30)
    assert list_down_us(lab, "ann") == [[0, 25 * 60 * S]]
    assert [type(event) for event in machines[0].seen] == [LinkUp, LinkDown, LinkUp]
    lab.faults.cut("ann")
    lab.faults.switch_off("ann")
    lab.faults.mend("ann")
    assert not ann.is_online
    lab.faults.switch_on("ann")
    assert ann.is_online
    assert len(machines[-1].of(LinkUp)) == 0
    lab.run()
    assert len(machines[-1].of(LinkUp)) == 1


cuts = st.lists(st.tuples(st.integers(0, 7200), st.integers(0, 3600)), max_size=4)


@examples(30)
@given(cuts)
def test_network_is_down_during_the_union_of_outages_and_cuts(cuts: Any) -> None:
    """Check cuts inside outages, and outages inside cuts."""
    alone, lab = Lab(2), Lab(2)
    for simulation in (alone, lab):
        simulation.device("ann", outage=Outages(0.5, per_day=60))
    for at_s, length_s in cuts:
        lab.world.schedule_action(
            at_s * S, lambda length_s: lab.faults.cut("ann", minutes=length_s / 60), length_s
        )
    for simulation in (alone, lab):
        simulation.run(hours=4)
    expected = [*list_down_us(alone, "ann"), *((at * S, (at + length) * S) for at, length in cuts)]
    result = list_down_us(lab, "ann")
    for t_us in np.arange(0, 4 * 3600 * S, 37 * S + 1).tolist():
        assert any(at <= t_us < end for at, end in result) == any(at <= t_us < end for at, end in expected)


def transmit(*pieces: tuple[float, bool, float], size: int, at_s: float = 0.0, run_s: float = 20.0) -> Any:
    """Send bytes from a server to a device over a given link; return lab, transfers, receptions, failures."""
    lab = Lab(1)
    _, machines = install_answering(lab.device("ann", links(*pieces)))
    server, server_machines = install_answering(lab.server("server"))
    lab.run(seconds=at_s)
    server.call("send", to="ann", message=b"x" * size)
    lab.run(seconds=run_s)
    transfers = lab.frame("transfers").to_dict("records")
    return lab, transfers, machines[0].of(Received), server_machines[0].of(SendFailed)


def to_seconds(lab: Lab, moment: Any) -> float:
    return float((moment - lab.now).total_seconds()) + lab.world.now_us / S


PROMOTION_S = 0.26
FINAL_PIECE = (30, True, 1000.0)


def test_transfer_ends_when_its_bytes_are_carried():
    lab, [transfer], received, _ = transmit(
        (0, True, 1000.0), (1, True, 0.0), (2, True, 500.0), FINAL_PIECE, size=125_000
    )
    assert len(received) == 1
    assert to_seconds(lab, transfer["started"]) == pytest.approx(PROMOTION_S)
    # 92,500 bytes in the first second, none in the second, the rest at 62,500 per second.
    assert to_seconds(lab, transfer["ended"]) == pytest.approx(2.52, abs=1e-5)
    assert lab.bill()["bytes"].tolist() == [125_000]


@pytest.mark.parametrize(
    ("sender", "receiver", "size"),
    [
        # 1,000 kbps from the promotion to the end of the first second, then that of LTE.
        ("server", "ann", 92_500 + 1_592_500),
        ("ann", "server", 46_250 + 705_000),  # half as much
    ],
)
def test_transfer_takes_the_throughput_of_its_direction(sender: str, receiver: str, size: int) -> None:
    lab = Lab(1)
    ann, server = (
        lab.device("ann", links((0, True, 1000.0), (1, True, float("nan")), FINAL_PIECE)),
        lab.server("server"),
    )
    processes = {host.name: install_answering(host)[0] for host in (ann, server)}
    processes[sender].call("send", to=receiver, message=b"x" * size)
    lab.run(seconds=9)
    [transfer] = lab.frame("transfers").to_dict("records")
    assert to_seconds(lab, transfer["ended"]) == pytest.approx(2.0, abs=1e-4)


def test_moves_are_reported_to_watchers_and_known_to_all():
    lab = Lab(1)
    watching, other = lab.fleet(2, mobility="waypoint", every_s=600)
    seen: list[Any] = []

    class Watching:
        def handle(self, now_us: int, event: Any) -> Any:
            if isinstance(event, ContextChanged):
                seen.append(event.context["loc"])
            return ()

    watching.install("test", lambda ports: Watching(), watch=["loc"])
    lab.run(hours=12)
    places = lab.frame("positions").groupby("device")[["lat", "lon"]].agg(list)
    for device in (watching, other):
        lat, lon = places.loc[device.name]
        assert device.context["loc"] == pytest.approx((lat[-1], lon[-1]))
        assert len({*zip(lat, lon, strict=True)}) > 2
    moved = [place for place, _ in groupby(zip(*places.loc[watching.name], strict=True))]
    assert [place for place, _ in groupby(seen)][-len(moved) + 1 :] == moved[1:]


@pytest.mark.parametrize(("sender", "receiver"), [("server", "ann"), ("ann", "server")])
@pytest.mark.parametrize("latency_ms", [5.0, 700.0])
def test_message_takes_the_measured_latency_in_each_direction(
    sender: str, receiver: str, latency_ms: float
) -> None:
    """The latency of a link is the median of its messages."""
    lab = Lab(1)
    ann = lab.device("ann", links((0, True, 1000.0), (200, True, 1000.0), latency_ms=latency_ms))
    processes = {host.name: install_answering(host)[0] for host in (ann, lab.server("server"))}
    for _ in range(101):
        processes[sender].call("send", to=receiver, message=b"x")
        lab.run(seconds=1)
    lab.run(seconds=9)
    late = np.sort(lab.frame("messages")["ended"]) - np.sort(lab.frame("transfers")["ended"])
    assert np.median(late) / np.timedelta64(1, "ms") == pytest.approx(latency_ms, rel=0.2)


def test_measured_outage_cuts_a_transfer():
    pieces = (0, True, 1000.0), (2, False, 1000.0), (4, True, 1000.0), FINAL_PIECE
    lab, [transfer], received, failed = transmit(*pieces, size=1_000_000)
    assert received == []
    assert len(failed) == 1
    assert transfer["cut"]
    assert to_seconds(lab, transfer["ended"]) == 2.0
    assert transfer["carried_bytes"] == pytest.approx((2 - PROMOTION_S) * 125_000, abs=2)
    assert lab.bill()["bytes"].tolist() == [transfer["carried_bytes"]]
    assert list_down_us(lab, "ann") == [[2 * S, 4 * S]]
    assert lab.frame("messages")["fate"].tolist() == ["cut"]


def test_sending_fails_during_a_measured_outage_and_works_later():
    pieces = (0, True, 1000.0), (2, False, 1000.0), (4, True, 1000.0), FINAL_PIECE
    _, transfers, received, failed = transmit(*pieces, size=10, at_s=3)
    assert (transfers, received, len(failed)) == ([], [], 1)
    _, _, received, failed = transmit(*pieces, size=10, at_s=4)
    assert (len(received), failed) == (1, [])


def test_links_table_matches_the_measured_link():
    lab = Lab()
    lab.device(
        "ann",
        links((0, True, 100.0), (5, False, 0.0), (9, True, float("nan")), (12, True, 200.0), latency_ms=20.0),
    )
    lab.run(seconds=15)
    rows = lab.trace.table("links").to_pylist()
    assert [(row["up"], row["down_kbps"], row["up_kbps"], row["latency_ms"]) for row in rows] == [
        (True, 100.0, 50.0, 20.0),
        (False, 0.0, 0.0, 20.0),
        (True, 12_740.0, 5_640.0, 20.0),  # not measured: of the profile, LTE
        (True, 200.0, 100.0, 20.0),
    ]


def test_link_trace_does_not_apply_to_another_network():
    lab = Lab()
    ann = lab.device(
        "ann", links((0, True, 100.0), (5, False, 0.0), (9, True, 300.0), (12, False, 0.0), latency_ms=700.0)
    )
    _, machines = install_answering(ann)
    lab.run(seconds=6)
    assert not ann.is_online
    lab.faults.change_network("ann", "wifi")
    assert ann.is_online
    lab.run(hours=1)  # the trace does not cover this network
    assert ann.is_online
    assert ann.link.down_kbps == 40_000.0
    assert ann.link.latency_ms == 8.0
    assert ann.link.up.latency_us == 8_000.0
    assert len(machines[0].of(LinkDown)) == 1
