"""Agreement of Python with DuckDB, and of NumPy with Python, on random predicates and data."""

from __future__ import annotations

from typing import Any

import numpy as np
import predicate_reference
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from predicate_fixtures import list_rows
from predicate_reference import Reference
from predicate_strategies import build_predicate, conditions, scopes

from mudkit.predicates import Predicate

Data = dict[str, dict[str, Any]]
SCOPES = ("record", "receiver", "auth")


@pytest.fixture(scope="module")
def reference() -> Reference:
    return Reference()


def evaluate_python(predicate: Predicate, data: Data) -> bool | None:
    return predicate(data["record"], receiver=data["receiver"], auth=data["auth"])


def evaluate_numpy(predicate: Predicate, data: list[Data]) -> list[bool | None]:
    columns = {
        scope: {
            name: [row[scope].get(name) for row in data] for name in {n for row in data for n in row[scope]}
        }
        for scope in SCOPES
    }
    columns["record"]["row"] = np.arange(len(data))  # defines the length if there is no other column
    outcome = predicate.numpy(columns["record"], receiver=columns["receiver"], auth=columns["auth"])
    return [
        None if masked else bool(true)
        for true, masked in zip(outcome.data, np.ma.getmaskarray(outcome), strict=True)
    ]


def test_python_equals_the_fixtures() -> None:
    for text, record, receiver, expected in list_rows():
        predicate = Predicate(text)
        assert predicate(record, receiver=receiver) is expected, text
        matches = predicate.form.matches(predicate.constants, None, record, receiver, {}, {})
        assert matches is (expected is True), text


def test_numpy_equals_the_fixtures() -> None:
    other: Data = {"record": {"n": "x"}, "receiver": {}, "auth": {}}
    for text, record, receiver, expected in list_rows():
        same: Data = {"record": record, "receiver": receiver, "auth": {}}
        predicate = Predicate(text)
        assert evaluate_numpy(predicate, [same, other, same])[::2] == [expected, expected], text
        assert evaluate_numpy(predicate, [other]) == [evaluate_python(predicate, other)], text


@examples(300)
@given(
    written=st.lists(predicate_reference.conditions, min_size=1, max_size=8),
    data=st.lists(predicate_reference.rows, min_size=1, max_size=6),
)
def test_python_agrees_with_duckdb(
    reference: Reference, written: list[predicate_reference.Written], data: list[dict[str, Any]]
) -> None:
    expected = reference.evaluate([piece.duckdb for piece in written], data)
    for piece, values in zip(written, expected, strict=True):
        predicate = Predicate(piece.text)
        assert [predicate(row) for row in data] == values, piece.text


@examples(1500)
@given(text=conditions, data=st.lists(scopes, min_size=1, max_size=4))
def test_python_and_numpy_agree(text: str, data: list[Data]) -> None:
    predicate = build_predicate(text)
    if predicate is not None:
        expected = [evaluate_python(predicate, row) for row in data]
        assert evaluate_numpy(predicate, data) == expected
        for row, result in zip(data, expected, strict=True):
            matches = predicate.form.matches(
                predicate.constants, None, row["record"], row["receiver"], row["auth"], {}
            )
            assert matches is (result is True)


@examples(300)
@given(text=conditions, data=scopes)
def test_whitespace_and_comments_do_not_change_a_predicate(text: str, data: Data) -> None:
    predicate = build_predicate(text)
    if predicate is not None:
        spaced = Predicate(f"/* a comment */ (\n{text}\n) -- and another")
        assert spaced.signature == predicate.signature
        assert evaluate_python(spaced, data) is evaluate_python(predicate, data)
