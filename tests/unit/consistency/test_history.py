"""Histories by hand, from a lab's table and from JSON; and what is refused, by check as well."""

from __future__ import annotations

import json
import re

import pandas as pd
import pyarrow as pa
import pytest

from mudkit import Lab
from mudkit.consistency import NOTHING, Content, History, Kind, Operation, Outcome, Status, check
from mudkit.errors import ParameterError, TraceContentError, TraceFormatError
from mudkit.systems.store_and_forward import Client, Relay
from mudkit.trace.schema import OPERATIONS


def operation(**given):
    return Operation(**{"client": "ann", "op_id": 1, "key": "x", "kind": Kind.WRITE, "invoked_us": 5, "answered_us": 6, "content": Content("1")} | given)  # fmt: skip


def table(*rows):
    """Rows of (client, op_id, op, table, key, type, invoked, responded, status, version, value)."""
    columns = [
        (client, 0, op_id, op, tab, key, kind, at, end, status, version, value)
        for client, op_id, op, tab, key, kind, at, end, status, version, value in rows
    ]
    return pa.table(
        [
            pa.array(values, pa.int64()).cast(field.type)
            if pa.types.is_timestamp(field.type)
            else pa.array(values, field.type)
            for field, values in zip(OPERATIONS, zip(*columns, strict=True), strict=True)
        ],
        schema=OPERATIONS,
    )


ROWS = table(
    ("ann", 1, "write", "news", "k", "blind", 10, 20, "ok", 1, "aa"),
    ("bob", 1, "read", "news", "k", "committed", 11, 12, "ok", None, None),
    ("bob", 2, "read", "news", "k", "committed", 30, 31, "ok", 1, "aa"),
    ("bob", 3, "write", "news", "k", "conditional", 40, 45, "failed", 1, "bb"),
    ("bob", 4, "write", "news", "k", "blind", 50, None, "open", None, "cc"),
    ("ann", 2, "delete", "news", "k", "blind", 60, 61, "ok", 2, None),
    ("ann", 3, "read", "news", "k", "uncommitted", 70, 71, "ok", None, None),
    ("ann", 4, "create", "news", None, None, 5, 6, "ok", None, None),
    ("ann", 5, "write", "news", "k", "blind", 80, 81, "failed", None, "dd"),
)


def test_the_notation():
    history = History.parse("""
        # two clients
        ann:  w1@1     w1@1>2!3  d@4
        bob:    [r(k)0    ]  u2  c2@2 o0@0
        bob:  w7…  w0>9...  [w5  #]
    """)
    assert [str(each) for each in history] == [
        "ann w(x)1@1", "bob w(x)7…", "bob r(k)0", "bob w(x)0>9…", "ann w(x)1@1>2!3", "bob w(x)5#", "bob r(x)2",
        "ann d(x)@4", "bob r(x)2@2", "bob r(x)0@0",
    ]  # fmt: skip
    by_name = {each.label: each for each in history}
    assert (by_name["r(k)0"].invoked_us, by_name["r(k)0"].answered_us) == (16_000, 26_000)
    assert by_name["w(x)7…"].answered_us is None
    assert by_name["w(x)1@1>2!3"].expected == Content("1", 1)
    assert by_name["w(x)1@1>2!3"].outcome is Outcome.CONFLICT
    assert [each.type for each in history if not each.is_write] == [
        None,
        "uncommitted",
        "committed",
        "committed_wio",
    ]
    assert by_name["r(x)0@0"].content == NOTHING
    assert history.keys == ("x", "k")
    assert history.clients == ("ann", "bob")
    assert len(history.records["k"]) == 1


def test_operations_stand_as_they_were_invoked():
    late, early = operation(op_id=2, invoked_us=9, answered_us=9), operation()
    assert list(History([late, early])) == [early, late]
    assert History([late, early]) == History([early, late])
    assert len({History([early]), History([early])}) == 1
    assert len(History([early, operation(client="bob"), operation(key="y")])) == 3
    assert "operations 2, clients 1" in repr(History([late, early]))
    assert History([early, late]).without([early]).operations == (late,)


@pytest.mark.parametrize("form", [lambda rows: rows, lambda rows: rows.to_pandas()])
def test_from_a_table(form):
    history = History.from_table(form(ROWS))
    assert [each.label for each in history] == [
        "w(k)aa@1", "r(k)0", "r(k)aa@1", "w(k)bb!@1", "w(k)cc…", "d(k)@2", "r(k)0", "w(k)dd#",
    ]  # fmt: skip
    assert history.operations[0].answered_us == 20
    assert history.operations[3].actual == Content(None, 1)
    assert check(history, "sequential").status is Status.OK
    assert check(form(ROWS), "sequential").status is Status.OK


def test_keys_of_several_tables_are_told_apart():
    both = table(
        ("ann", 1, "write", "news", "k", "blind", 1, 2, "ok", 1, "a"),
        ("ann", 2, "write", "mail", "k", "blind", 3, 4, "ok", 1, "b"),
    )
    assert History.from_table(both).keys == ("news/k", "mail/k")


def test_a_value_that_was_not_written_down_is_nobody_elses():
    write = ("ann", 1, "write", "n", "k", "blind", 1, 2, "ok", 1, None)
    for version, status in ((1, Status.OK), (None, Status.ILLEGAL)):
        both = table(write, ("ann", 2, "read", "n", "k", None, 3, 4, "ok", version, None))
        assert check(both, "linearizable").status is status


def test_the_history_of_a_lab():
    lab = Lab(seed=3)
    relay = Relay(lab)
    ann, _ = (Client(lab.device(name), relay) for name in ("ann", "bob"))
    ann.send("bob", "hello")
    lab.run(minutes=1)
    history = History.from_table(lab.history())
    assert len(history) == 0  # this system has no records
    verdict = check(lab.history(), "sequential")
    assert (verdict.status, verdict.explanation.kind) == (Status.UNKNOWN, "nothing")


def test_json():
    history = History.parse("ann: w1@1  w1>2!3  [r2   ]\nbob: w7…")
    text = history.to_json()
    assert History.from_json(text) == history
    assert json.loads(text)[0]["content"] == ["1", 1]


def test_as_a_table():
    frame = History.parse("ann: w1  r1\nbob: w2…").to_pandas()
    assert list(frame["label"]) == ["w(x)1", "w(x)2…", "r(x)1"]
    assert frame["answered_us"].isna().tolist() == [False, True, False]
    assert len(History().to_pandas()) == 0


def parsed(text):
    return lambda: History.parse(text)


def of(*operations):
    return lambda: History(operations)


def from_table(rows):
    return lambda: History.from_table(rows)


def from_json(text):
    return lambda: History.from_json(text)


def checked(history, model, **settings):
    return lambda: check(history, model, **settings)


JSON = History.parse("ann: w1@1  w1>2!3  [r2   ]\nbob: w7…").to_json()
W1 = History.parse("ann: w1")
REFUSED = [
    *((parsed(text), TraceFormatError, rf"where: .*{where}\n.*found: .*{re.escape(found)}.*\n.*expected: .") for text, where, found in (
        ("ann w1", "line 1", "ann w1"), (": w1", "line 1", ": w1"), ("\nann: w1 q2", "line 2, column 9", "q2"),
        ("ann: w", "column 6", "'w'"), ("ann: w0", "column 6", "w0"), ("ann: r", "column 6", "'r'"),
        ("ann: w1!", "column 6", "w1!"), ("ann: r1>2", "column 6", "r1>2"), ("ann: d7", "column 6", "d7"),
        ("ann: [w1", "column 6", "w1"), ("ann: w>1", "column 6", "w>1"), ("ann: w1@x", "column 6", "w1@x"),
        ("ann: r1!", "column 6", "r1!"), ("ann: []", "column 6", "[]"),
    )),
    (of(operation(answered_us=4)), TraceContentError, r"answered before it is invoked[\s\S]*answered at 4 µs, invoked at 5 µs"),
    (of(operation(), operation(invoked_us=8, answered_us=8)), TraceContentError, "the same id"),
    *((of(operation(content=Content("1", version))), TraceContentError, "version") for version in (-1, 0)),
    (from_table(pd.DataFrame({"a": [1]})), TraceFormatError, "no column client, session"),
    (from_table(table(("ann", 1, "write", "n", "k", "blind", 1, 2, "lost", 1, "a"))), TraceContentError, r"unknown[\s\S]*: ok, open, failed"),
    (from_table([1, 2]), TraceFormatError, "DataFrame"),
    *((from_json(bad), TraceFormatError, ".") for bad in ("", "{}", '[{"client": 1}]', JSON.replace('"ok"', '"fine"'), JSON[:-1])),
    (from_json(JSON.replace('"op_id":2', '"op_id":1')), TraceContentError, "the same id"),
    (checked(W1, "fork-sequental"), ParameterError, r"expected: .*monotonic-reads.*\n.*to do: .*fork-sequential"),
    (checked(W1, "linearisable"), ParameterError, r"expected: .*monotonic-reads.*\n.*to do: .*linearizable"),
    (checked(W1, "xyz"), ParameterError, r"^(?![\s\S]*to do)[\s\S]*expected: .*monotonic-reads"),
    (checked(W1, "sequential", within_s=0), ParameterError, "needs time"),
    (checked("ann: w1", "sequential"), TraceFormatError, "."),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "words"), REFUSED)
def test_refused_in_words(call, error, words):
    with pytest.raises(error, match=words):
        call()
