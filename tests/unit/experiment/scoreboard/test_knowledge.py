"""What parties know, from what they held."""

from __future__ import annotations

import base64
import bz2
import gzip
import json
import lzma
import zlib

import msgspec
import pytest

from mudkit.errors import ParameterError
from mudkit.events import Call, Ciphertext, Complete, Send
from mudkit.experiment.adapters import ADAPTERS, own_machine
from mudkit.experiment.compositions import COMPOSITIONS
from mudkit.experiment.scoreboard import knowledge, play
from mudkit.experiment.tasks import PHOTOS

_FEW = PHOTOS.over(devices=5, hours=6.0, size_bytes=200, outage=0.0)


@pytest.fixture(scope="module")
def known():
    """What is known after the same task, by system."""
    entries = {name: play(_FEW, make, seed=6, name=name) for name, make in ADAPTERS.items()}
    return {name: (entry, knowledge(entry).set_index("party")) for name, entry in entries.items()}


@pytest.mark.parametrize("system", ["to everyone", "MUD", "Last hop", "Radiator", "SUBLIM"])
def test_servers_read_everything_that_is_sent_in_clear(known, system):
    entry, table = known[system]
    assert table.loc["servers", "items_read"] == len(entry.testbed.items) > 0
    assert table.loc["servers", "ciphertext_kb"] == 0


def test_contrails_relay_reads_nothing(known):
    _, table = known["Contrail"]
    assert (table.loc[["servers", "relay"], "items_read"] == 0).all()
    assert "relay" not in known["MUD"][1].index
    assert table.loc["servers", "ciphertext_kb"] > 0


def test_servers_know_whose_items_they_pass_to_whom(known):
    for system in ("MUD", "Last hop", "Contrail", "SUBLIM"):
        entry, table = known[system]
        passed = {
            frozenset((row.item.rsplit(" ", 1)[0], row.receiver))
            for row in entry.deliveries[entry.deliveries["delivered"].notna()].itertuples()
        }
        assert len(passed) > 0
        assert table.loc["servers", "pairs"] >= len(passed), system


def test_what_is_said_as_the_name_of_a_field_is_known():
    def handle(here, now_us, event):
        match event:
            case Call(op_id=op_id, operation="publish", arguments={"item": item}):
                return [Send(here.relay, {json.dumps(item): 1}), Complete(op_id)]
            case Call(op_id=op_id):
                return [Complete(op_id)]
        return []

    entry = play(_FEW, own_machine(handle), seed=6, name="mine")
    assert knowledge(entry).set_index("party").loc["servers", "items_read"] == len(entry.testbed.items) > 0


_PACKED = {
    "zlib": lambda item: zlib.compress(json.dumps(item).encode()),
    "gzip in base64": lambda item: {"b": base64.b64encode(gzip.compress(json.dumps(item).encode())).decode()},
    "base64": lambda item: base64.b64encode(json.dumps(item).encode()).decode(),
    "hex": lambda item: {"x": item["content"].encode().hex()},
    "MessagePack in xz": lambda item: lzma.compress(msgspec.msgpack.encode(item)),
    "as if it were sealed": lambda item: {"box": Ciphertext(item["content"].encode())},
    "packed, as if it were sealed": lambda item: {"box": Ciphertext(bz2.compress(item["content"].encode()))},
}


@pytest.mark.parametrize("packing", _PACKED)
def test_what_is_only_packed_is_read(packing):
    pack = _PACKED[packing]

    def handle(here, now_us, event):
        match event:
            case Call(op_id=op_id, operation="publish", arguments={"item": item}):
                return [Send(here.relay, pack(item)), Complete(op_id)]
            case Call(op_id=op_id):
                return [Complete(op_id)]
        return []

    entry = play(_FEW, own_machine(handle), seed=6, name="mine")
    assert knowledge(entry).set_index("party").loc["servers", "items_read"] == len(entry.testbed.items) > 0


def test_a_relay_is_told_apart_from_other_servers():
    make = COMPOSITIONS["MUD, then Contrail"]
    table = knowledge(play(_FEW, make, seed=6, name="both")).set_index("party")
    assert table.loc["servers", "items_read"] > 0
    assert table.loc["relay", "items_read"] == 0
    assert table.loc["relay", "ciphertext_kb"] > 0


def test_phones_read_what_is_not_for_them_where_all_get_everything(known):
    for system in ("to everyone", "Radiator"):
        assert known[system][1].loc["a phone", "items_not_for_it"] > 0
    for system in ("MUD", "Last hop", "Contrail", "SUBLIM"):
        assert known[system][1].loc["a phone", "items_not_for_it"] == 0


def test_a_run_that_has_not_kept_it():
    with pytest.raises(ParameterError, match="does not keep"):
        knowledge(play(_FEW.over(hours=0.1), ADAPTERS["MUD"], seed=1, held=False))
