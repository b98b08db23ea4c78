"""Lab: devices, fleets, durations, traces, tables, and invalid arguments."""

from __future__ import annotations

import datetime as dt
import os
import signal
import subprocess
import sys
import textwrap
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from lab_systems import install_answering, links

from mudkit import Lab
from mudkit.errors import FailureWarning, OutputExists, ParameterError
from mudkit.fleet.recorder import TABLES
from mudkit.scenario import Activity, Scenario, build_lab, schedule
from mudkit.sources.link_replay import LinkReplay
from mudkit.sources.replay import Replay
from mudkit.sources.workloads import Every
from mudkit.systems.store_and_forward import Client, Relay
from mudkit.trace.folder import read_manifest, read_table
from mudkit.trace.schema import timestamps

S = 1_000_000

PAGE = """
from mudkit import Lab
lab = Lab(seed=7)
jane = lab.device("jane-phone", link="lte", at=(30.27, -97.74))
lab.fleet(200, mobility="commute", link="umts_3g", outage=0.2)
lab.run(hours=2)            # virtual time, with a progress bar when it takes longer than a second
lab.now, lab.bill(), lab.trace.to_parquet("data/derived/run1")
lab.history()               # for mudkit.consistency
lab.faults.cut("jane-phone", minutes=10); lab.faults.kill("jane-phone"); lab.faults.restart("jane-phone")
"""


def make_walk(*devices: str, minutes: int = 60) -> Replay:
    rows = [(device, minute * 60 * S) for device in devices for minute in (0, minutes)]
    return Replay(
        pa.table(
            {
                "device": [device for device, _ in rows],
                "ts": timestamps(np.array([at for _, at in rows])),
                "lat": pa.array([1.0 + at / 1e10 for _, at in rows]),
                "lon": pa.array([2.0] * len(rows)),
            }
        )
    )


def capture_state(lab: Lab) -> Any:
    return (
        list(lab.devices),
        list(lab.world.hosts),
        lab.now,
        [lab.trace.table(name).to_pylist() for name in TABLES],
        list(lab.trace.description["devices"]),
        len(lab.world.event_queue),
    )


def test_example_of_the_design(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(PAGE, names)
    lab = names["lab"]
    assert lab.now == dt.datetime(2010, 3, 1, 15, tzinfo=dt.UTC)
    assert len(lab.devices) == 201
    assert names["jane"].loc == (30.27, -97.74)
    assert not names["jane"].is_online
    lab.run(minutes=10)
    assert names["jane"].is_online
    assert list(lab.bill().columns) == [
        "system",
        "device",
        "direction",
        "messages",
        "bytes",
        "radio_mj",
        "wakeups",
    ]
    positions = read_table("data/derived/run1", "positions")
    assert len(positions) == (1 + 200) * 121
    assert read_manifest("data/derived/run1")["end"] == "2010-03-01T15:00:00+00:00"


def test_fleet_names_continue_after_existing_names():
    lab = Lab()
    lab.device("phone-home")
    lab.fleet(2, prefix="phone-x")
    assert [device.name for device in lab.fleet(2)] == ["phone-00000", "phone-00001"]
    lab.device("phone-00004")
    assert [device.name for device in lab.fleet(2)] == ["phone-00005", "phone-00006"]
    assert len(lab.devices) == 8


FLEETS = [
    ({"n": 0}, "whole number from 1"),
    ({"n": -3}, "-3"),
    ({"n": 2.5}, "2.5"),
    ({"n": "ten"}, "'ten'"),
    ({"n": True}, "whole number"),
    ({"link": "let"}, "did you mean 'lte'"),
    ({"link": "WIFI"}, "did you mean 'wifi'"),
    ({"link": ["lte"]}, "a text or a LinkReplay"),
    ({"link": None}, "a text or a LinkReplay"),
    ({"link": links((0, True, 9.0), (1, True, 9.0), devices=("a", "b"))}, "at most 2 devices"),
    ({"mobility": "comute"}, "did you mean 'commute'"),
    ({"mobility": 5}, "a text or a Mobility"),
    ({"mobility": make_walk("a", "b")}, "at most 2"),
    ({"outage": 1.2}, "from 0 to 1"),
    ({"outage": "often"}, "a number or an? Outages"),
    ({"every_s": 0}, "every_s"),
    ({"every_s": "often"}, "every_s"),
    ({"every_s": float("nan")}, "every_s"),
    ({"battery_j": 0}, "battery_j"),
    ({"battery_j": "full"}, "battery_j"),
    ({"battery_j": 5, "base_mw": -1}, "base_mw"),
    ({"at": (30.0, -97.0)}, "lab.device"),
    ({"mobilty": "commute"}, "did you mean 'mobility'"),
    ({"battery": 20}, "did you mean 'battery_j'"),
    ({"prefix": "a\n"}, "name"),
]


@pytest.mark.parametrize(("wrong", "problem"), FLEETS)
def test_invalid_fleet_leaves_the_lab_unchanged(wrong, problem):
    lab = Lab(3)
    lab.device("jane", at=(1, 2), battery_j=50.0)
    before = capture_state(lab)
    good = {"n": 3, "mobility": "waypoint", "link": "edge", "outage": 0.3, "battery_j": 9.0}
    with pytest.raises(ParameterError, match=problem) as error:
        lab.fleet(**{**good, **wrong})
    assert error.value.found
    assert error.value.expected
    assert capture_state(lab) == before
    assert len(lab.fleet(**good)) == 3
    lab.run(minutes=1)
    assert len(lab.trace.table("positions")) == (1 + 3) * 2


DEVICES = [
    ({"name": "jane"}, "of this name"),
    ({"name": "relay"}, "of this name"),
    ({"name": ""}, "printed"),
    ({"name": 5}, "a text"),
    ({"name": "\ud800"}, "a text"),
    ({"at": (91, 0)}, "no place"),
    ({"at": (0, -180.5)}, "no place"),
    ({"at": (float("nan"), 0)}, "a number, a number"),
    ({"at": (1, 2, 3)}, "a number, a number"),
    ({"at": 5}, "a number, a number"),
    ({"at": "xhome"}, "no such city"),
    ({"mobility": "commute"}, "at a place or moves"),
]


@pytest.mark.parametrize(("wrong", "problem"), DEVICES)
def test_invalid_device_leaves_the_lab_unchanged(wrong, problem):
    lab = Lab(3)
    lab.device("jane")
    lab.server("relay")
    before = capture_state(lab)
    good = {"name": "ann", "at": [1, np.float64(2)], "battery_j": np.int64(9)}
    with pytest.raises(ParameterError, match=problem):
        lab.device(**{**good, **wrong})
    assert capture_state(lab) == before
    assert lab.device(**good).loc == (1.0, 2.0)


def test_fleet_with_a_name_in_use_is_refused():
    lab = Lab()
    lab.server("phone-00002")
    before = capture_state(lab)
    with pytest.raises(ParameterError, match="phone-00002"):
        lab.fleet(4)
    assert capture_state(lab) == before


@pytest.mark.parametrize("unit", ["hours", "minutes", "seconds"])
@pytest.mark.parametrize("length", [-1, -1e-9, float("nan"), float("inf"), "2", None, [1], 1e15, True])
def test_invalid_durations_are_refused(unit, length):
    lab = Lab()
    lab.fleet(2, mobility="waypoint")
    before = capture_state(lab)
    with pytest.raises(ParameterError, match=unit):
        lab.run(**{unit: length})
    assert capture_state(lab) == before
    lab.run(seconds=60)
    assert lab.world.now_us == 60 * S


def test_durations_add_up_and_may_be_omitted():
    lab = Lab()
    lab.run(np.float64(1), minutes=np.int64(2), seconds=3.000001)
    lab.run()
    assert lab.world.now_us == 3_723_000_001
    assert lab.now == dt.datetime(2010, 3, 1, 14, 2, 3, 1, tzinfo=dt.UTC)


def test_start_is_converted_to_utc():
    assert Lab(start="2012-05-01T10:00+02:00").now == dt.datetime(2012, 5, 1, 8, tzinfo=dt.UTC)
    assert Lab(start=dt.datetime(2012, 5, 1)).now == dt.datetime(2012, 5, 1, tzinfo=dt.UTC)


def make_lab(**options) -> Lab:
    lab = Lab(**options)
    lab.device("jane-phone", battery_j=None if options.get("record_messages", True) else 9.0)
    assert lab.server("relay") is lab.server("relay")
    assert list(lab.devices) == ["jane-phone"]
    return lab


@pytest.mark.parametrize(
    ("call", "pattern"),
    [
        *(
            (lambda start=start: Lab(start=start), "2010-03-01T13:00")
            for start in ("tomorrow", "", "2010-02-30", "9999-12-31", "2200-01-01")
        ),
        *((lambda start=start: Lab(start=start), "start\n(.|\n)*a text or a datetime") for start in (5, None, dt.date(2010, 1, 1))),
        *((lambda seed=seed: Lab(seed), "seed") for seed in ("7", 1.5, True, 1 << 63)),
        (lambda: make_lab().server("jane-phone"), "a device, not a server"),
        (lambda: make_lab().server(""), "printed"),
        (lambda: make_lab().radio("jane-fone"), "did you mean 'jane-phone'"),
        (lambda: make_lab(record_messages=False).radio("jane-phone"), "messages=True"),
        (lambda: make_lab(record_messages=False).battery("jane-phone"), "messages=True"),
        (lambda: make_lab().exposure(), "record_exposure=True"),
        (lambda: make_lab().run(hours=876_600, minutes=52_596_000), "minutes"),  # twice a century, beyond 2200
        (lambda: make_lab().battery("jane-phone"), "battery_j"),
        (lambda: make_lab().frame("postions"), "positions"),
    ],
)  # fmt: skip
def test_invalid_arguments_raise_error(call, pattern):
    with pytest.raises(ParameterError, match=pattern):
        call()


@pytest.mark.parametrize(
    "options",
    [
        {"mobility": make_walk("a", "b", minutes=60)},
        {"link": links(*((60.0 * minute, True, 500.0) for minute in range(60)), devices=("a", "b"))},
    ],
)
def test_run_beyond_a_trace_is_refused(options):
    lab = Lab(2)
    lab.fleet(2, **options)
    for minutes in (20, 40):
        before = capture_state(lab)
        with pytest.raises(ParameterError, match="does not cover the run") as error:
            lab.run(minutes=60.001 if minutes == 20 else 40.001)
        assert "at most 1.000000 h" in error.value.expected
        assert capture_state(lab) == before
        lab.run(minutes=minutes)
    assert lab.now == dt.datetime(2010, 3, 1, 14, tzinfo=dt.UTC)
    with pytest.raises(ParameterError, match="phone-0000"):
        lab.run(seconds=1)


def test_trace_starts_when_its_devices_are_added():
    lab = Lab(2)
    lab.run(hours=5)
    lab.fleet(
        2, mobility=make_walk("a", "b"), link=links((0, True, 9.0), (1800, True, 8.0), devices=("a", "b"))
    )
    lab.run(hours=1)
    assert lab.trace.table("positions")["lat"][0].as_py() == 1.0
    with pytest.raises(ParameterError, match=r"at most 6\.000000 h"):
        lab.run(seconds=1)


def test_run_inside_of_a_callback_fails():
    lab = Lab()
    process, _ = install_answering(lab.device("ann"))
    process.listen("app", lambda payload: lab.run(seconds=1))
    operation = process.call("tell")
    with pytest.warns(FailureWarning, match="add_done_callback"):
        lab.run(seconds=5)
    assert operation.done()
    assert lab.world.now_us == 5 * S


def test_history_and_exposure():
    lab = Lab(5, record_exposure=True)
    relay = Relay(lab)
    ann, bob = (Client(lab.device(name), relay) for name in ("ann", "bob"))
    ann.send("bob", "lunch?").result()
    lab.run(minutes=1)
    bob.read().result()
    lab.run(seconds=1)
    lab.faults.cut("ann")
    ann.send("bob", "or dinner?")
    lab.run(minutes=1)
    history = lab.history()
    assert history[["client", "op", "status"]].to_numpy().tolist() == [
        ["ann", "send", "ok"],
        ["bob", "read", "ok"],
        ["ann", "send", "open"],
    ]
    assert history["invoked"].is_monotonic_increasing
    assert str(history["version"].dtype) == "Int64"  # null where an operation has none
    exposure = lab.exposure()
    assert {"ann", "bob", "relay"} == set(exposure["party"])
    assert str(exposure["first"].dtype) == "datetime64[ns, UTC]"
    assert (exposure["form"] == "clear").all()


def test_recorded_links_can_be_replayed():
    lab = Lab(4)
    lab.fleet(6, outage=0.5)
    lab.run(hours=6)
    lab.faults.change_network("phone-00000", "edge")
    lab.faults.cut("phone-00001", minutes=0)
    lab.run(hours=2)
    assert len(LinkReplay(lab.trace.table("links"), gap_s=float("inf")).devices) == 6


def test_description_is_the_same_for_the_same_run(tmp_path):
    def write_description(number: int) -> bytes:
        lab = Lab(np.int64(3))
        lab.fleet(1, mobility=make_walk("a"), battery_j=np.float64(100))
        return (lab.trace.to_parquet(tmp_path / str(number)) / "trace.json").read_bytes()

    assert write_description(1) == write_description(2)
    with pytest.raises(OutputExists):
        write_description(1)


INTERRUPTED = """
    import signal, sys
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what runs in the background
    from mudkit import Lab
    from mudkit.systems.store_and_forward import Client, Relay

    def lab_of():
        lab = Lab(7)
        relay = Relay(lab)
        clients = [Client(each, relay) for each in lab.fleet(6, outage=0.3, link="umts_3g", battery_j=30_000.0)]

        def send(number):
            clients[number % 6].send(f"phone-{(number + 1) % 6:05d}", "x" * (number % 900))
            if number < 3_000:
                lab.world.schedule_action(lab.world.now_us + 2_000_000, send, number + 1)

        lab.world.schedule_action(0, send, 0)
        return lab

    def wait(_):
        print("in the middle", flush=True)
        sys.stdin.readline()

    lab = lab_of()
    lab.world.schedule_action(3_000_000_000, wait)
    try:
        lab.run(hours=2)
    except KeyboardInterrupt:
        print(lab.world.now_us)
    else:
        print("was not stopped")
    lab.run(seconds=(2 * 3_600_000_000 - lab.world.now_us) / 1e6)
    other = lab_of()
    for _ in range(4):
        other.run(minutes=30)
    print(lab.now == other.now, lab.bill().equals(other.bill()), lab.bill()["messages"].sum() > 5_000)
    for table in ("messages", "operations", "links", "deliveries"):
        print(lab.trace.table(table).equals(other.trace.table(table)))
"""


@pytest.mark.process
def test_ctrl_c_stops_between_two_events_and_the_run_can_continue():
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(INTERRUPTED)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "MUDKIT_PROGRESS": "0"},
    )
    with process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "in the middle\n"
        process.send_signal(signal.SIGINT)
        output = process.communicate("\n")[0].split()
    assert process.returncode == 0
    assert 3_000_000_000 <= int(output[0]) < 2 * 3_600_000_000
    assert output[1:] == ["True"] * 7


def test_tables_of_an_empty_lab_are_empty():
    lab = Lab()
    lab.run(hours=1)
    assert lab.bill().empty
    assert lab.history().empty
    assert lab.deliveries().empty
    assert isinstance(lab.bill(), pd.DataFrame)


def test_activities_of_a_lab_that_has_run_begin_now():
    lab, moments = Lab(3), []
    lab.device("phone")
    lab.run(minutes=10)
    every_minute = Activity("looks", Every(60.0), ["phone"], lambda name: moments.append(lab.world.now_us))
    planned = schedule(lab, 0.1, [every_minute])
    lab.run(minutes=7)
    assert moments == planned[:, 0].tolist()
    assert len(moments) == 6
    assert 600e6 <= moments[0] < 660e6


def test_lab_of_a_scenario_has_its_phones_and_faults():
    """See :class:`mudkit.scenario.Scenario` and :meth:`mudkit.fleet.Faults.messages`."""
    shares = {"loss_share": 0.1, "repeat_share": 0.2, "delay_share": 0.3}
    scenario = Scenario(devices=3, start="2024-05-01", delay_s=20.0, **shares)
    lab = build_lab(scenario, 5, record_messages=True, record_exposure=False)
    assert list(lab.devices) == ["phone-00000", "phone-00001", "phone-00002"]
    assert f"{lab.now:%Y-%m-%d}" == "2024-05-01"
    assert lab.faults.of_messages == shares
