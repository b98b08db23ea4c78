"""Recorder: tables and their schemas, spilling to disk, and the ledger of deliveries."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lab_systems import install_answering

from mudkit import Lab
from mudkit.errors import FailureWarning, OutputExists, SimulationProblem
from mudkit.events import Call, Complete, Record, SetTimer
from mudkit.fleet import recorder
from mudkit.fleet.recorder import TABLES, Deliveries
from mudkit.systems.store_and_forward import Client, Relay
from mudkit.trace.folder import read_description, read_manifest, read_table
from mudkit.trace.schema import FATES, SCHEMAS, STATUSES, TIMES, read_ids


class Reporting:
    """Machine that records a row of usage every minute."""

    def handle(self, now_us: int, event: Any) -> Any:
        names = [name for name in SCHEMAS["usage"].names if name != "ts"]
        row = dict.fromkeys(names) | dict.fromkeys(("device", "app", "table", "op"), "read")
        columns = {name: now_us if name == "ts" else row[name] for name in SCHEMAS["usage"].names}
        return Record("usage", columns), SetTimer("again", 60_000_000)


def create_busy_lab(seed: int = 3, **options: Any) -> Lab:
    """Return a lab with rows in each table, also messages in flight, mangled ones, and open operations."""
    lab = Lab(seed, **options)
    lab.faults.messages(loss_share=0.1, repeat_share=0.2, delay_share=0.3, delay_s=40)
    relay = Relay(lab)
    fleet = lab.fleet(4, mobility="commute", link="edge", outage=0.4, every_s=300)
    still = lab.device("still", at=(30.0, -97.0))
    still.install("usage", lambda ports: Reporting())
    clients = [Client(device, relay) for device in fleet]
    for number in range(40):
        clients[number % 4].send(f"phone-{(number + 1) % 4:05d}", "x" * number * 40)
        lab.trace.record_read(fleet[number % 4], 20.0, 3600.0)
        lab.run(minutes=7)
        clients[number % 3].read()
    fleet[0].link_up("outage")
    clients[0].send("phone-00001", "z" * 100_000)
    lab.run(seconds=4)
    lab.faults.cut("phone-00000", minutes=1)
    lab.faults.cut("phone-00002")
    clients[2].send("phone-00000", "is not answered")
    lab.faults.change_network("phone-00003", "edge")
    fleet[3].link_up("outage")
    clients[3].send("phone-00001", "y" * 100_000)
    lab.run(seconds=2)
    return lab


@pytest.fixture(scope="module")
def lab() -> Lab:
    return create_busy_lab()


@pytest.mark.parametrize("name", TABLES)
def test_tables_match_their_schemas(lab, name):
    table = lab.trace.table(name)
    assert table.schema.equals(SCHEMAS[name])
    assert len(table) > 3
    for field in SCHEMAS[name]:
        assert field.nullable or table[field.name].null_count == 0
    table.validate(full=True)
    assert lab.frame(name).columns.tolist() == SCHEMAS[name].names


def test_tables_contain_consistent_values(lab):
    assert set(lab.frame("messages")["fate"]) >= {"arrived", "cut", "lost", "repeated", "under way"}
    assert set(lab.frame("messages")["fate"]) <= set(FATES)
    assert set(lab.frame("deliveries")["status"]) <= set(STATUSES)
    assert "open" in set(lab.frame("operations")["status"])
    messages = lab.frame("messages")
    assert (messages["ended"].isna() == (messages["fate"] == "under way")).all()
    for name in ("incidents", "links", "positions", "reads"):
        assert lab.frame(name)["ts"].is_monotonic_increasing
    links = lab.frame("links")
    assert not links.duplicated(["device", "ts"]).any()
    assert links.groupby("device")["up"].last().to_dict() == {
        name: device.is_online for name, device in lab.devices.items()
    }


def test_transfers_are_cut_by_a_loss_of_the_network_alone(lab):
    transfers, incidents = lab.frame("transfers"), lab.frame("incidents")
    downs = set(incidents.loc[incidents["incident"] == "link down", ["device", "ts"]].itertuples(index=False))
    assert {True, False} == set(transfers["cut"])
    for row in transfers.itertuples():
        assert row.cut == ((row.device, row.ended) in downs)
        assert row.cut or row.carried_bytes == row.size_bytes


def test_read_ids_are_stable_and_unique(lab):
    reads = lab.trace.table("reads")
    assert reads["read_id"].to_numpy().tolist() == read_ids(reads).tolist()
    assert len(set(reads["read_id"].to_pylist())) == len(reads) == 40
    assert create_busy_lab().trace.table("reads").equals(reads)
    assert create_busy_lab(4).trace.table("reads")["read_id"].to_pylist() != reads["read_id"].to_pylist()


@pytest.mark.parametrize("rows", [3, 7])
def test_tables_on_disk_equal_those_in_memory(lab, rows, monkeypatch, tmp_path):
    monkeypatch.setattr(recorder, "_ROWS_IN_MEMORY", rows)
    spilled = create_busy_lab()
    assert spilled.trace._files["messages"]
    assert spilled.trace._files["positions"]
    assert spilled.trace._files["links"]
    for name in TABLES:
        assert spilled.trace.table(name).equals(lab.trace.table(name)), name
    one, two = (
        busy_lab.trace.to_parquet(tmp_path / name)
        for busy_lab, name in ((spilled, "spilled"), (lab, "whole"))
    )
    for name in TABLES:
        by = [(field, "ascending") for field in SCHEMAS[name].names]
        assert read_table(one, name).sort_by(by).equals(read_table(two, name).sort_by(by)), name
    assert read_description(one) == read_description(two)


def test_tables_at_an_address_equal_those_of_a_folder(lab, tmp_path):
    local = lab.trace.to_parquet(tmp_path / "run")
    stored = lab.trace.to_parquet(f"memory://{tmp_path.name}/run")
    assert str(stored) == f"memory://{tmp_path.name}/run"
    assert all(read_table(stored, name).equals(read_table(local, name)) for name in TABLES)
    assert read_description(stored) == read_description(local)


def test_to_parquet_overwrites_only_on_request(lab, tmp_path):
    path = lab.trace.to_parquet(str(tmp_path / "a" / "run"))
    assert path == tmp_path / "a" / "run"
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    with pytest.raises(OutputExists, match="overwrite"):
        lab.trace.to_parquet(path)
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before
    lab.trace.to_parquet(path, overwrite=True)
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before
    for name in TABLES:
        table = read_table(path, name)
        assert len(table) == len(lab.trace.table(name))
        if name in TIMES:
            assert np.all(np.diff(table[TIMES[name]].to_numpy()).astype(np.int64) >= 0)
    assert [file.name for file in (tmp_path / "a").iterdir()] == ["run"]


def test_empty_lab_writes_a_trace(tmp_path):
    path = Lab().trace.to_parquet(tmp_path / "run")
    assert set(read_manifest(path)["rows"].values()) == {0}
    for name in SCHEMAS:
        assert read_table(path, name).equals(SCHEMAS[name].empty_table())


def test_messages_are_not_recorded_on_request():
    lab = create_busy_lab(record_messages=False)
    assert len(lab.trace.table("messages")) == len(lab.trace.table("transfers")) == 0
    assert lab.bill().equals(create_busy_lab().bill())
    exposed = create_busy_lab(record_messages=False, record_exposure=True)
    assert len(exposed.trace.table("messages")) == 0
    assert not exposed.exposure().empty


def test_spilled_files_are_deleted_with_the_lab(monkeypatch):
    monkeypatch.setattr(recorder, "_ROWS_IN_MEMORY", 7)
    lab = Lab()
    relay = Relay(lab)
    ann, _ = (Client(device, relay) for device in lab.fleet(2, mobility="waypoint"))
    for _ in range(9):
        ann.send("phone-00001", "lunch?")
    lab.run(hours=1)
    folder = lab.trace._folder
    assert isinstance(folder, Path)
    assert len(list(folder.iterdir())) > 10
    table = lab.trace.table("messages")
    del lab, relay, ann, _
    gc.collect()
    assert not folder.exists()
    assert len(table.to_pylist()) > 7


def test_machine_cannot_record_other_tables():
    class MeddlingMachine:
        def handle(self, now_us: int, event: Any) -> Any:
            return (Record("bill", {}),)

    lab = Lab()
    lab.device("ann").install("meddling", lambda ports: MeddlingMachine())
    with pytest.warns(FailureWarning, match="deliveries, operations, reads, usage or incidents"):
        lab.run()
    assert lab.problems["device"].tolist() == ["ann"]
    assert lab.trace.failures == 1


def test_device_without_place_records_no_read():
    lab = Lab()
    lab.trace.record_read(lab.device("ann"), 20.0, 60.0)
    lab.trace.record_read(lab.device("bob", at=(1, 2)), 20.0, 60.0)
    assert lab.frame("reads")[["device", "lat", "lon"]].to_numpy().tolist() == [["bob", 1.0, 2.0]]


def test_operation_is_open_until_it_is_answered():
    lab = Lab()
    process, _ = install_answering(lab.device("ann"))
    process.call("later", s=60, key=5, type="read", table="t")
    assert lab.history()["status"].tolist() == ["open"]
    lab.run(minutes=2)
    [row] = lab.history().to_dict("records")
    assert [row[name] for name in ("status", "key", "type", "table", "client")] == [
        "ok",
        "5",
        "read",
        "t",
        "ann",
    ]
    assert (row["responded"] - row["invoked"]).total_seconds() == 60


def test_machine_describes_the_calls_of_its_former_life():
    class Describing:
        def handle(self, now_us: int, event: Any) -> Any:
            if not isinstance(event, Call) or event.operation != "describe":
                return ()
            rows = [{"op_id": number, "key": f"of {number}"} for number in event.arguments["op_ids"]]
            return (*(Record("operations", row) for row in rows), Complete(event.op_id))

    lab = Lab()
    processes = [
        lab.device(name).install("describing", lambda ports: Describing()) for name in ("ann", "bob")
    ]
    calls = [process.call("begin") for process in processes for _ in range(3)]
    lab.faults.kill("ann")
    lab.faults.restart("ann")
    processes[0].call("describe", op_ids=[3, 2])
    lab.run()
    history = lab.history()
    assert len(calls) == 6
    keys = history[history["status"] == "open"].groupby("client")["key"].agg(list)
    assert [keys["ann"], keys["bob"]] == [[None, "of 2", "of 3"], [None, None, None]]


IDS = {"item": "i", "receiver": "r"}


def create_row(now_us: int, **times: int | None) -> tuple[Any, ...]:
    deliveries = Deliveries()
    deliveries.record("s", {**IDS, "created_us": 100, **times})
    [row] = deliveries.rows(now_us)
    return row


@pytest.mark.parametrize(
    ("times", "status"),
    [
        ({}, "lost"),
        ({"delivered_us": 200}, "unread"),
        ({"delivered_us": 200, "read_us": 300}, "read"),
        ({"delivered_us": 200, "read_us": 300, "expired_us": 300}, "read"),
        ({"delivered_us": 200, "read_us": 301, "expired_us": 300}, "expired"),
        ({"delivered_us": 200, "expired_us": 1000}, "expired"),
        ({"delivered_us": 200, "expired_us": 1001}, "unread"),
        ({"expired_us": 300}, "expired"),
        ({"expired_us": 1001}, "lost"),
        ({"refused_us": 150}, "refused"),
        ({"refused_us": 150, "delivered_us": 200, "expired_us": 300}, "refused"),
        ({"delivered_us": None, "read_us": None}, "lost"),
    ],
)
def test_delivery_status_follows_from_its_times(times, status):
    row = create_row(1000, **times)
    assert status in STATUSES
    assert row[-1] == status
    assert row[:4] == ("s", "i", "r", 100)
    assert row[4:7] == tuple(times.get(name) for name in ("delivered_us", "read_us", "expired_us"))


def test_latencies_are_since_creation():
    assert create_row(1000, delivered_us=250_100, read_us=1_000_100)[7:9] == (0.25, 1.0)
    assert create_row(1000)[7:9] == (None, None)


updates = st.lists(
    st.tuples(
        st.sampled_from(["created_us", "delivered_us", "read_us", "refused_us"]),
        st.integers(0, 500),
        st.sampled_from("ab"),
    ),
    max_size=12,
)


@given(updates, st.integers(0, 500), st.randoms(use_true_random=False))
def test_order_of_delivery_records_does_not_matter(updates: Any, expired_us: int, random: Any) -> None:
    rows = [{"item": item, "receiver": "r", name: at} for name, at, item in updates]
    rows += [{"item": item, "receiver": "r", "created_us": 500} for item in "ab"]
    rows.append({"item": "a", "receiver": "r", "expired_us": expired_us})
    result = []
    for _ in range(3):
        deliveries = Deliveries()
        for row in rows:
            deliveries.record("s", row)
        result.append(list(deliveries.rows(400)))
        random.shuffle(rows)
    assert result[0] == result[1] == result[2]
    earliest = {
        (name, item): min(
            at for field, at, owner in [*updates, ("created_us", 500, item)] if (field, owner) == (name, item)
        )
        for name, _, item in updates
    }
    for _, item, _, created, delivered, read, *_ in result[0]:
        assert created == earliest.get(("created_us", item), 500)
        assert delivered == earliest.get(("delivered_us", item))
        assert read == earliest.get(("read_us", item))


def test_last_recorded_expiry_applies():
    deliveries = Deliveries()
    for times in ({"created_us": 1}, {"expired_us": 50}, {"expired_us": 40}):
        deliveries.record("s", {**IDS, **times})
    assert next(deliveries.rows(45))[-1] == "expired"


def test_delivery_rows_are_sorted_and_separate():
    deliveries = Deliveries()
    rows = [("s", "i", "q", 5), ("s", "i", "r", 5), ("t", "i", "r", 5), ("s", "h", "r", 9)]
    for index in (2, 1, 3, 0):
        system, item, receiver, at = rows[index]
        deliveries.record(system, {"item": item, "receiver": receiver, "created_us": at})
    assert [row[:4] for row in deliveries.rows(10)] == rows


@pytest.mark.parametrize(
    "row",
    [
        {"item": "i"}, {"receiver": "r"}, {}, {**IDS, "seen_us": 5}, {**IDS, "read_us": "now"}, {**IDS, "read_us": 1.5},
        {**IDS, "read_us": True},
    ],
)  # fmt: skip
def test_invalid_delivery_records_are_refused(row):
    deliveries = Deliveries()
    with pytest.raises(SimulationProblem, match="cannot be read") as error:
        deliveries.record("mail", row)
    assert error.value.where == "mail"
    assert "created_us" in error.value.expected
    assert list(deliveries.rows(0)) == []


def test_item_without_creation_has_no_row():
    deliveries = Deliveries()
    assert not deliveries.record("mail", {**IDS, "read_us": 5})
    assert deliveries.record("mail", {**IDS, "receiver": "other", "created_us": 4})
    assert [row[:3] for row in deliveries.rows(9)] == [("mail", IDS["item"], "other")]
    assert deliveries.record("mail", {**IDS, "created_us": 4})
    assert len(list(deliveries.rows(9))) == 2
