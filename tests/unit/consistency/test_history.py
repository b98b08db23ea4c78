"""Histories from notation, tables and JSON, and errors for invalid ones."""

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


def build_operation(**given):
    return Operation(**{"client": "ann", "op_id": 1, "key": "x", "kind": Kind.WRITE, "invoked_us": 5, "answered_us": 6, "content": Content("1")} | given)  # fmt: skip


def build_table(*rows):
    """Build rows of (client, op_id, op, table, key, type, invoked, responded, status, version, value)."""
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


ROWS = build_table(
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


def test_notation():
    history = History.parse("""
        # two clients
        ann:  w1@1     w1@1>2!3  d@4
        bob:    [r(k)0    ]  u2  c2@2 o0@0
        bob:  w7…  w0>9...  [w5  #]
    """)
    assert [str(operation) for operation in history] == [
        "ann w(x)1@1", "bob w(x)7…", "bob r(k)0", "bob w(x)0>9…", "ann w(x)1@1>2!3", "bob w(x)5#", "bob r(x)2",
        "ann d(x)@4", "bob r(x)2@2", "bob r(x)0@0",
    ]  # fmt: skip
    by_label = {operation.label: operation for operation in history}
    assert (by_label["r(k)0"].invoked_us, by_label["r(k)0"].answered_us) == (16_000, 26_000)
    assert by_label["w(x)7…"].answered_us is None
    assert by_label["w(x)1@1>2!3"].expected == Content("1", 1)
    assert by_label["w(x)1@1>2!3"].outcome is Outcome.CONFLICT
    assert [operation.type for operation in history if not operation.is_write] == [
        None,
        "uncommitted",
        "committed",
        "committed_wio",
    ]
    assert by_label["r(x)0@0"].content == NOTHING
    assert history.keys == ("x", "k")
    assert history.clients == ("ann", "bob")
    assert len(history.records["k"]) == 1


def test_operations_are_sorted_by_invocation():
    late, early = build_operation(op_id=2, invoked_us=9, answered_us=9), build_operation()
    assert list(History([late, early])) == [early, late]
    assert History([late, early]) == History([early, late])
    assert len({History([early]), History([early])}) == 1
    assert len(History([early, build_operation(client="bob"), build_operation(key="y")])) == 3
    assert "operations 2, clients 1" in repr(History([late, early]))
    assert History([early, late]).without([early]).operations == (late,)


@pytest.mark.parametrize("convert", [lambda rows: rows, lambda rows: rows.to_pandas()])
def test_history_from_table(convert):
    history = History.from_table(convert(ROWS))
    assert [operation.label for operation in history] == [
        "w(k)aa@1", "r(k)0", "r(k)aa@1", "w(k)bb!@1", "w(k)cc…", "d(k)@2", "r(k)0", "w(k)dd#",
    ]  # fmt: skip
    assert history.operations[0].answered_us == 20
    assert history.operations[3].actual == Content(None, 1)
    assert check(history, "sequential").status is Status.OK
    assert check(convert(ROWS), "sequential").status is Status.OK


def test_keys_of_several_tables_are_qualified():
    rows = build_table(
        ("ann", 1, "write", "news", "k", "blind", 1, 2, "ok", 1, "a"),
        ("ann", 2, "write", "mail", "k", "blind", 3, 4, "ok", 1, "b"),
    )
    assert History.from_table(rows).keys == ("news/k", "mail/k")


def test_unrecorded_value_is_matched_by_version_only():
    write = ("ann", 1, "write", "n", "k", "blind", 1, 2, "ok", 1, None)
    for version, status in ((1, Status.OK), (None, Status.ILLEGAL)):
        rows = build_table(write, ("ann", 2, "read", "n", "k", None, 3, 4, "ok", version, None))
        assert check(rows, "linearizable").status is status


def test_history_of_a_lab_without_records_is_unknown():
    lab = Lab(seed=3)
    relay = Relay(lab)
    ann, _ = (Client(lab.device(name), relay) for name in ("ann", "bob"))
    ann.send("bob", "hello")
    lab.run(minutes=1)
    history = History.from_table(lab.history())
    assert len(history) == 0  # this system has no records
    verdict = check(lab.history(), "sequential")
    assert (verdict.status, verdict.explanation.kind) == (Status.UNKNOWN, "nothing")


def test_json_round_trip():
    history = History.parse("ann: w1@1  w1>2!3  [r2   ]\nbob: w7…")
    text = history.to_json()
    assert History.from_json(text) == history
    assert json.loads(text)[0]["content"] == ["1", 1]


def test_history_to_pandas():
    frame = History.parse("ann: w1  r1\nbob: w2…").to_pandas()
    assert list(frame["label"]) == ["w(x)1", "w(x)2…", "r(x)1"]
    assert frame["answered_us"].isna().tolist() == [False, True, False]
    assert len(History().to_pandas()) == 0


def defer_parse(text):
    return lambda: History.parse(text)


def defer_history(*operations):
    return lambda: History(operations)


def defer_table(rows):
    return lambda: History.from_table(rows)


def defer_json(text):
    return lambda: History.from_json(text)


def defer_check(history, model, **settings):
    return lambda: check(history, model, **settings)


JSON = History.parse("ann: w1@1  w1>2!3  [r2   ]\nbob: w7…").to_json()
W1 = History.parse("ann: w1")
REFUSED = [
    *((defer_parse(text), TraceFormatError, rf"where: .*{where}\n.*found: .*{re.escape(excerpt)}.*\n.*expected: .") for text, where, excerpt in (
        ("ann w1", "line 1", "ann w1"), (": w1", "line 1", ": w1"), ("\nann: w1 q2", "line 2, column 9", "q2"),
        ("ann: w", "column 6", "'w'"), ("ann: w0", "column 6", "w0"), ("ann: r", "column 6", "'r'"),
        ("ann: w1!", "column 6", "w1!"), ("ann: r1>2", "column 6", "r1>2"), ("ann: d7", "column 6", "d7"),
        ("ann: [w1", "column 6", "w1"), ("ann: w>1", "column 6", "w>1"), ("ann: w1@x", "column 6", "w1@x"),
        ("ann: r1!", "column 6", "r1!"), ("ann: []", "column 6", "[]"),
    )),
    (defer_history(build_operation(answered_us=4)), TraceContentError, r"answered before it is invoked[\s\S]*answered at 4 µs, invoked at 5 µs"),
    (defer_history(build_operation(), build_operation(invoked_us=8, answered_us=8)), TraceContentError, "the same id"),
    *((defer_history(build_operation(content=Content("1", version))), TraceContentError, "version") for version in (-1, 0)),
    (defer_table(pd.DataFrame({"a": [1]})), TraceFormatError, "no column client, session"),
    (defer_table(build_table(("ann", 1, "write", "n", "k", "blind", 1, 2, "lost", 1, "a"))), TraceContentError, r"unknown[\s\S]*: ok, open, failed"),
    (defer_table([1, 2]), TraceFormatError, "DataFrame"),
    *((defer_json(bad), TraceFormatError, ".") for bad in ("", "{}", '[{"client": 1}]', JSON.replace('"ok"', '"fine"'), JSON[:-1])),
    (defer_json(JSON.replace('"op_id":2', '"op_id":1')), TraceContentError, "the same id"),
    (defer_check(W1, "fork-sequental"), ParameterError, r"expected: .*monotonic-reads.*\n.*to do: .*fork-sequential"),
    (defer_check(W1, "linearisable"), ParameterError, r"expected: .*monotonic-reads.*\n.*to do: .*linearizable"),
    (defer_check(W1, "xyz"), ParameterError, r"^(?![\s\S]*to do)[\s\S]*expected: .*monotonic-reads"),
    (defer_check(W1, "sequential", within_s=0), ParameterError, "needs time"),
    (defer_check("ann: w1", "sequential"), TraceFormatError, "."),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "pattern"), REFUSED)
def test_invalid_input_raises_error(call, error, pattern):
    with pytest.raises(error, match=pattern):
        call()
