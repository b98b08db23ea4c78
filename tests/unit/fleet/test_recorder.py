"""A lab's tables: their schemas, on disk as in memory, and files that go with the lab."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lab_systems import answering

from mudkit import Lab
from mudkit.errors import FailureWarning, OutputExists, ParameterError
from mudkit.events import Record
from mudkit.fleet import recorder
from mudkit.fleet.recorder import TABLES
from mudkit.systems.store_and_forward import Client, Relay
from mudkit.trace.folder import read_manifest, read_table
from mudkit.trace.schema import FATES, SCHEMAS, STATUSES, TIMES, read_ids


def busy(seed: int = 3, **options: Any) -> Lab:
    """Something in each table, also what is under way, open and mangled."""
    lab = Lab(seed, **options)
    lab.faults.messages(loss_share=0.1, repeat_share=0.2, delay_share=0.3, delay_s=40)
    relay = Relay(lab)
    fleet = lab.fleet(4, mobility="commute", link="edge", outage=0.4, every_s=300)
    lab.device("still", at=(30.0, -97.0))
    clients = [Client(device, relay) for device in fleet]
    for number in range(40):
        clients[number % 4].send(f"phone-{(number + 1) % 4:05d}", "x" * number * 40)
        lab.trace.read(fleet[number % 4], 20.0, 3600.0)
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
    return busy()


@pytest.mark.parametrize("name", TABLES)
def test_tables_are_as_in_the_schema(lab, name):
    table = lab.trace.table(name)
    assert table.schema.equals(SCHEMAS[name])
    assert len(table) > 3
    for field in SCHEMAS[name]:
        assert field.nullable or table[field.name].null_count == 0
    table.validate(full=True)
    assert lab.frame(name).columns.tolist() == SCHEMAS[name].names


def test_what_is_in_them(lab):
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
        name: each.is_online for name, each in lab.devices.items()
    }


def test_reads_have_ids_that_stay(lab):
    reads = lab.trace.table("reads")
    assert reads["read_id"].to_numpy().tolist() == read_ids(reads).tolist()
    assert len(set(reads["read_id"].to_pylist())) == len(reads) == 40
    assert busy().trace.table("reads").equals(reads)
    assert busy(4).trace.table("reads")["read_id"].to_pylist() != reads["read_id"].to_pylist()


@pytest.mark.parametrize("rows", [3, 7])
def test_on_disk_as_in_memory(lab, rows, monkeypatch, tmp_path):
    monkeypatch.setattr(recorder, "_ROWS_IN_MEMORY", rows)
    spilled = busy()
    assert spilled.trace._files["messages"]
    assert spilled.trace._files["positions"]
    assert spilled.trace._files["links"]
    for name in TABLES:
        assert spilled.trace.table(name).equals(lab.trace.table(name)), name
    one, two = (
        each.trace.to_parquet(tmp_path / name) for each, name in ((spilled, "spilled"), (lab, "whole"))
    )
    for name in TABLES:
        by = [(field, "ascending") for field in SCHEMAS[name].names]
        assert read_table(one, name).sort_by(by).equals(read_table(two, name).sort_by(by)), name
    assert read_manifest(one) == read_manifest(two)


def test_to_parquet(lab, tmp_path):
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
    assert [each.name for each in (tmp_path / "a").iterdir()] == ["run"]


def test_a_lab_without_anything_writes_a_trace(tmp_path):
    path = Lab().trace.to_parquet(tmp_path / "run")
    assert set(read_manifest(path)["rows"].values()) == {0}
    for name in SCHEMAS:
        assert read_table(path, name).equals(SCHEMAS[name].empty_table())


def test_a_lab_without_messages():
    quiet = busy(record_messages=False)
    assert len(quiet.trace.table("messages")) == len(quiet.trace.table("transfers")) == 0
    assert quiet.bill().equals(busy().bill())
    held = busy(record_messages=False, record_held=True)
    assert len(held.trace.table("messages")) == 0
    assert not held.held().empty


def test_files_go_with_the_lab(monkeypatch):
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


def test_no_such_table(lab):
    with pytest.raises(ParameterError, match="positions, reads, links"):
        lab.trace.table("postions")
    with pytest.raises(ParameterError, match="no such table"):
        lab.trace.table("rejected")


def test_a_machine_records_only_what_is_its_own():
    class Meddling:
        def handle(self, now_us: int, event: Any) -> Any:
            return (Record("bill", {}),)

    lab = Lab()
    lab.device("ann").install("meddling", lambda ports: Meddling())
    with pytest.warns(FailureWarning, match="deliveries, operations, reads or incidents"):
        lab.run()
    assert lab.problems["device"].tolist() == ["ann"]


def test_a_device_that_knows_no_place_asks_for_nothing():
    lab = Lab()
    lab.trace.read(lab.device("ann"), 20.0, 60.0)
    lab.trace.read(lab.device("bob", at=(1, 2)), 20.0, 60.0)
    assert lab.frame("reads")[["device", "lat", "lon"]].to_numpy().tolist() == [["bob", 1.0, 2.0]]


def test_an_operation_that_is_answered_after_its_time_is_open_until_then():
    lab = Lab()
    process, _ = answering(lab.device("ann"))
    process.call("later", s=60, key=5, type="read", table="t")
    assert lab.history()["status"].tolist() == ["open"]
    lab.run(minutes=2)
    [row] = lab.history().to_dict("records")
    assert (row["status"], row["key"], row["type"], row["table"], row["client"]) == (
        "ok",
        "5",
        "read",
        "t",
        "ann",
    )
    assert (row["responded"] - row["invoked"]).total_seconds() == 60
