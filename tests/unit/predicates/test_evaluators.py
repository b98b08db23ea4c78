"""NumPy agrees with Python on records of any kinds and on deep predicates; Spark refuses too long SQL."""

import itertools
import random
import time

import numpy as np
import pytest
from predicate_cases import (
    CASES,
    DEEP,
    READERS,
    RECORDS,
    nest,
    predicate,
    register_user_functions,
    remove_user_functions,
)

from mudkit.errors import PredicateError
from mudkit.predicates import Layout, Predicate
from mudkit.predicates.layout import to_json


@pytest.fixture(scope="module", autouse=True)
def user_functions():
    register_user_functions()
    yield
    remove_user_functions()


def columns(records):
    names = sorted({name for record in records for name in record})
    return {name: [record.get(name) for record in records] for name in names}


def check(p, rows):
    records, readers = zip(*rows, strict=True)
    result = p.numpy({"row": np.arange(len(rows)), **columns(records)}, receiver=columns(readers))
    values = [None if value is np.ma.masked else bool(value) for value in result]
    assert values == [p(record, receiver=reader) for record, reader in rows], p.text


# A user's function without a NumPy form is refused there.
@pytest.mark.parametrize("text", [text for text in CASES if "shout" not in text])
def test_numpy_agrees_with_python(text):
    check(predicate(text), list(itertools.product(RECORDS, READERS)))


@pytest.mark.parametrize("text", DEEP, ids=range(len(DEEP)))
def test_deep_and_long_predicates_agree_with_python(text):
    start_s = time.process_time()
    check(predicate(text), [(record, {}) for record in RECORDS])
    assert time.process_time() - start_s < 30  # a guard against exponential growth


def test_too_long_sql_is_refused():
    big = [f"{'x' * 200}{i}" for i in range(9000)]
    with pytest.raises(PredicateError, match="too long"):
        Predicate("a IN :big", big=big).sql(Layout(record="data"))
    mixed = nest("(coalesce(a, {0} = t, s) = coalesce(s, {0}, b))", 7, "t")
    start_s = time.process_time()
    with pytest.raises(PredicateError, match="too"):
        Predicate(mixed).sql(Layout(record="data"))
    assert time.process_time() - start_s < 30  # a guard against exponential growth


def test_json_keeps_every_digit_of_a_number():
    rng = random.Random(7)
    for _ in range(2000):
        x = rng.choice((-1, 1)) * rng.random() * 10.0 ** rng.randint(-320, 308)
        assert float(to_json({"x": x})[6:-1]) == x
