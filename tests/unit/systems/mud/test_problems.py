"""Errors cross the network and stay what they are."""

from __future__ import annotations

import pickle

import msgspec
import pytest

from mudkit.errors import (
    AccessDenied,
    MudkitError,
    OperationTimeout,
    ParameterError,
    PredicateError,
    TableProblem,
)
from mudkit.predicates import Predicate
from mudkit.systems.mud.messages import Error
from mudkit.systems.mud.problems import Conflict, decode_error, encode_error


def sent(error: MudkitError) -> MudkitError:
    return decode_error(msgspec.json.decode(msgspec.json.encode(encode_error(error)), type=Error))


@pytest.mark.parametrize("kind", [AccessDenied, ParameterError, PredicateError, TableProblem])
def test_an_error_comes_as_what_it_was(kind):
    error = kind("This is wrong.", found="a", expected="b", remedy="c", where="d")
    came = sent(error)
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
    assert sent(TableProblem("No.")).found is None


def test_a_predicates_error_keeps_its_carets():
    with pytest.raises(PredicateError) as answer:
        Predicate("a = = 1")
    assert "^" in str(answer.value)
    assert str(sent(answer.value)) == str(answer.value)


def test_a_kind_that_is_not_known_is_an_error_still():
    came = sent(OperationTimeout("Too late.", where="here"))
    assert type(came) is MudkitError
    assert (came.summary, came.where) == ("Too late.", "here")


def test_a_conflict_shows_three_records():
    store, local, base = {"ver": 2}, {"number": 7}, {"ver": 1}
    conflict = Conflict("Another one came first.", store=store, local=local, base=base, found="version 2")
    assert (conflict.store, conflict.local, conflict.base) == (store, local, base)
    assert isinstance(conflict, MudkitError)
    assert isinstance(conflict, RuntimeError)
    assert str(conflict) == "Another one came first.\n  found:    version 2"


def test_a_conflict_that_hides_everything_says_so():
    conflict = Conflict("Another one came first.")
    assert (conflict.store, conflict.local, conflict.base) == (None, None, None)


def test_a_conflict_can_be_pickled():
    conflict = Conflict(
        "No.", store={"ver": 2}, local={"n": 1}, base={"ver": 1}, where="table 'x'", remedy="merge"
    )
    came = pickle.loads(pickle.dumps(conflict))
    assert type(came) is Conflict
    assert (came.store, came.local, came.base) == ({"ver": 2}, {"n": 1}, {"ver": 1})
    assert str(came) == str(conflict)
