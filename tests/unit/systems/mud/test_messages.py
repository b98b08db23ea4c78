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
from mudkit.systems.mud.messages import (
    Error,
    app_of,
    decode_error,
    encode_error,
    netid_of,
    processor_of,
    server_of,
)


def transferred(error: MudkitError) -> MudkitError:
    return decode_error(msgspec.json.decode(msgspec.json.encode(encode_error(error)), type=Error))


@pytest.mark.parametrize("kind", [AccessDenied, ParameterError, PredicateError, TableProblem])
def test_an_error_comes_as_what_it_was(kind):
    error = kind("This is wrong.", found="a", expected="b", remedy="c", where="d")
    came = transferred(error)
    assert type(came) is kind
    assert str(came) == str(error)
    assert (came.summary, came.found, came.expected, came.remedy, came.where) == (
        "This is wrong.",
        "a",
        "b",
        "c",
        "d",
    )


def test_fields_that_say_nothing_are_not_sent():
    written = msgspec.to_builtins(encode_error(TableProblem("No.", found="x")))
    assert written == {"kind": "TableProblem", "summary": "No.", "found": "x"}
    assert transferred(TableProblem("No.")).found is None


def test_a_predicates_error_keeps_its_carets():
    with pytest.raises(PredicateError) as answer:
        Predicate("a = = 1")
    assert "^" in str(answer.value)
    assert str(transferred(answer.value)) == str(answer.value)


def test_a_kind_that_is_not_known_is_an_error_still():
    came = transferred(OperationTimeout("Too late.", where="here"))
    assert type(came) is MudkitError
    assert (came.summary, came.where) == ("Too late.", "here")


NETIDS = [f"phone-{number}" for number in range(2000)]


@given(st.integers(0, 1 << 40), st.integers(0, 1000), st.integers(1, 50))
def test_a_partition_has_one_of_the_processors(table, partition, processors):
    assert processor_of(table, partition, processors) in range(processors)


def test_the_partitions_of_a_table_are_spread_over_all_processors():
    assert sorted(processor_of(7, each, 5) for each in range(5)) == [0, 1, 2, 3, 4]


def test_tables_of_one_partition_are_spread_over_all_processors():
    assert {processor_of(table, 0, 3) for table in range(3)} == {0, 1, 2}


@given(st.text(max_size=20), st.integers(1, 1000))
def test_a_device_has_one_of_the_servers(netid, servers):
    assert server_of(netid, servers) in range(servers)


def test_devices_are_spread_evenly_over_the_servers():
    counts = Counter(server_of(netid, 4) for netid in NETIDS)
    assert sorted(counts) == [0, 1, 2, 3]
    assert min(counts.values()) > 400


def test_a_server_has_a_range_which_two_halves_share():
    assert all(server_of(netid, 8) // 2 == server_of(netid, 4) for netid in NETIDS)


def test_it_is_the_same_in_every_process():
    assert [server_of(netid, 10) for netid in ("jane-phone", "bob-phone", "")] == [2, 7, 0]


@pytest.mark.parametrize(("netid", "app"), [("jane", "news"), ("a/b", "news"), ("a@2", "n s")])
def test_an_endpoint_is_of_one_device_and_one_app(netid, app):
    assert (netid_of(f"{netid}/{app}"), app_of(f"{netid}/{app}")) == (netid, app)
