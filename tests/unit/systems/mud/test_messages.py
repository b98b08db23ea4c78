"""Errors in messages, and the functions that map endpoints and partitions to servers."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudkit.errors import (
    AccessDenied,
    MudkitError,
    OperationTimeout,
    ParameterError,
    PredicateError,
    TableProblem,
)
from mudkit.predicates import Predicate
from mudkit.systems.mud.messages.parts import (
    EncodedError,
    app_of,
    decode_error,
    encode_error,
    netid_of,
    partition_range_index,
    range_index,
)


def transfer(error: MudkitError) -> MudkitError:
    return decode_error(msgspec.json.decode(msgspec.json.encode(encode_error(error)), type=EncodedError))


@pytest.mark.parametrize("kind", [AccessDenied, ParameterError, PredicateError, TableProblem])
def test_error_round_trips(kind):
    error = kind("This is wrong.", found="a", expected="b", remedy="c", where="d")
    received = transfer(error)
    assert type(received) is kind
    assert str(received) == str(error)
    assert (received.summary, received.found, received.expected, received.remedy, received.where) == (
        "This is wrong.",
        "a",
        "b",
        "c",
        "d",
    )


def test_empty_fields_of_an_error_are_not_sent():
    encoded = msgspec.to_builtins(encode_error(TableProblem("No.", found="x")))
    assert encoded == {"kind": "TableProblem", "summary": "No.", "found": "x"}
    assert transfer(TableProblem("No.")).found is None


def test_predicate_error_keeps_its_carets():
    with pytest.raises(PredicateError) as caught:
        Predicate("a = = 1")
    assert "^" in str(caught.value)
    assert str(transfer(caught.value)) == str(caught.value)


def test_error_of_unknown_kind_becomes_a_mudkit_error():
    received = transfer(OperationTimeout("Too late.", where="here"))
    assert type(received) is MudkitError
    assert (received.summary, received.where) == ("Too late.", "here")


NETIDS = [f"phone-{number}" for number in range(2000)]


@given(st.integers(0, 1 << 40), st.integers(0, 1000), st.integers(1, 50))
def test_partition_maps_to_an_existing_processor(table, partition, processors):
    assert partition_range_index(table, partition, processors) in range(processors)


def test_the_partitions_of_a_table_are_spread_over_all_processors():
    assert sorted(partition_range_index(7, partition, 5) for partition in range(5)) == [0, 1, 2, 3, 4]


def test_tables_of_one_partition_are_spread_over_all_processors():
    assert {partition_range_index(table, 0, 3) for table in range(3)} == {0, 1, 2}


@given(st.text(max_size=20), st.integers(1, 1000))
def test_device_maps_to_an_existing_server(netid, servers):
    assert range_index(netid, servers) in range(servers)


def test_devices_are_spread_evenly_over_the_servers():
    counts = Counter(range_index(netid, 4) for netid in NETIDS)
    assert sorted(counts) == [0, 1, 2, 3]
    assert min(counts.values()) > 400


def test_doubling_the_servers_splits_each_range_in_two():
    assert all(range_index(netid, 8) // 2 == range_index(netid, 4) for netid in NETIDS)


def test_server_of_a_device_is_the_same_in_every_process():
    assert [range_index(netid, 10) for netid in ("jane-phone", "bob-phone", "")] == [2, 7, 0]


@pytest.mark.parametrize(("netid", "app"), [("jane", "news"), ("a/b", "news"), ("a@2", "n s")])
def test_endpoint_splits_into_device_and_app(netid, app):
    assert (netid_of(f"{netid}/{app}"), app_of(f"{netid}/{app}")) == (netid, app)
