"""The evaluators agree on random predicates and data; the reference is the compiled Python function."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from predicate_fixtures import rows
from predicate_strategies import conditions, make, scopes

from mudkit.predicates import Predicate, register_functions
from mudkit.predicates.layout import Layout, to_json

Data = dict[str, dict[str, Any]]
SCOPES = ("record", "receiver", "auth")
LAYOUT = Layout(**{scope: scope for scope in SCOPES})


@pytest.fixture(scope="module")
def connection() -> Iterator[sqlite3.Connection]:
    made = sqlite3.connect(":memory:")
    register_functions(made)
    yield made
    made.close()


def in_sqlite(connection: sqlite3.Connection, predicate: Predicate, data: Data) -> bool | None:
    values = [to_json(data[scope]) for scope in SCOPES]
    query = f"SELECT {predicate.sql('sqlite', LAYOUT)} FROM (SELECT ? AS record, ? AS receiver, ? AS auth)"
    (outcome,) = connection.execute(query, values).fetchone()
    return None if outcome is None else bool(outcome)


def python(predicate: Predicate, data: Data) -> bool | None:
    return predicate(data["record"], receiver=data["receiver"], auth=data["auth"])


def vectorised(predicate: Predicate, data: list[Data]) -> list[bool | None]:
    columns = {
        scope: {
            name: [row[scope].get(name) for row in data] for name in {n for row in data for n in row[scope]}
        }
        for scope in ("record", "receiver", "auth")
    }
    columns["record"]["row"] = np.arange(len(data))  # so that the length is known when no name is there
    outcome = predicate.numpy(columns["record"], receiver=columns["receiver"], auth=columns["auth"])
    return [
        None if masked else bool(true)
        for true, masked in zip(outcome.data, np.ma.getmaskarray(outcome), strict=True)
    ]


def test_the_fixtures_in_python() -> None:
    for text, record, receiver, expected in rows():
        predicate = Predicate(text)
        assert predicate(record, receiver=receiver) is expected, text
        matches = predicate.form.matches(predicate.constants, None, record, receiver, {}, {})
        assert matches is (expected is True), text


def test_the_fixtures_in_numpy() -> None:
    other: Data = {"record": {"n": "x"}, "receiver": {}, "auth": {}}
    for text, record, receiver, expected in rows():
        same: Data = {"record": record, "receiver": receiver, "auth": {}}
        predicate = Predicate(text)
        assert vectorised(predicate, [same, other, same])[::2] == [expected, expected], text
        assert vectorised(predicate, [other]) == [python(predicate, other)], text


def test_the_fixtures_in_sqlite(connection: sqlite3.Connection) -> None:
    for text, record, receiver, expected in rows():
        data: Data = {"record": record, "receiver": receiver, "auth": {}}
        assert in_sqlite(connection, Predicate(text), data) is expected, text


@examples(1000)
@given(text=conditions, data=st.lists(scopes, min_size=1, max_size=4))
def test_python_and_sqlite_agree(connection: sqlite3.Connection, text: str, data: list[Data]) -> None:
    predicate = make(text)
    if predicate is not None:
        for row in data:
            assert in_sqlite(connection, predicate, row) is python(predicate, row)


@examples(1500)
@given(text=conditions, data=st.lists(scopes, min_size=1, max_size=4))
def test_python_and_numpy_agree(text: str, data: list[Data]) -> None:
    predicate = make(text)
    if predicate is not None:
        expected = [python(predicate, row) for row in data]
        assert vectorised(predicate, data) == expected
        for row, result in zip(data, expected, strict=True):
            matches = predicate.form.matches(
                predicate.constants, None, row["record"], row["receiver"], row["auth"], {}
            )
            assert matches is (result is True)


@examples(300)
@given(text=conditions, data=scopes)
def test_what_is_written_again_means_the_same(text: str, data: Data) -> None:
    predicate = make(text)
    if predicate is not None:
        spaced = Predicate(f"/* a comment */ (\n{text}\n) -- and another")
        assert spaced.signature == predicate.signature
        assert python(spaced, data) is python(predicate, data)
