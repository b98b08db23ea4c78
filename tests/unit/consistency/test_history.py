"""Histories by hand, from a lab's table and from JSON; and what cannot be one."""

from __future__ import annotations

import json

import pandas as pd
import pyarrow as pa
import pytest

from mudkit import Lab
from mudkit.consistency import NOTHING, Content, History, Kind, Operation, Outcome, Status, check
from mudkit.errors import TraceContentError, TraceFormatError
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
    by_name = {each.what: each for each in history}
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


@pytest.mark.parametrize(
    ("text", "where", "result"),
    [
        ("ann w1", "line 1", "ann w1"), (": w1", "line 1", ": w1"), ("\nann: w1 q2", "line 2, column 9", "q2"),
        ("ann: w", "column 6", "'w'"), ("ann: w0", "column 6", "w0"), ("ann: r", "column 6", "'r'"),
        ("ann: w1!", "column 6", "w1!"), ("ann: r1>2", "column 6", "r1>2"), ("ann: d7", "column 6", "d7"),
        ("ann: [w1", "column 6", "w1"), ("ann: w>1", "column 6", "w>1"), ("ann: w1@x", "column 6", "w1@x"),
        ("ann: r1!", "column 6", "r1!"), ("ann: []", "column 6", "[]"),
    ],
)  # fmt: skip
def test_what_is_no_notation(text, where, result):
    with pytest.raises(TraceFormatError) as error:
        History.parse(text)
    assert where in str(error.value.where)
    assert result in str(error.value.found)
    assert error.value.expected


def test_operations_stand_as_they_were_invoked():
    late, early = operation(op_id=2, invoked_us=9, answered_us=9), operation()
    assert list(History([late, early])) == [early, late]
    assert History([late, early]) == History([early, late])
    assert len({History([early]), History([early])}) == 1
    assert "operations 2, clients 1" in repr(History([late, early]))
    assert History([early, late]).without([early]).operations == (late,)


def test_an_answer_before_its_invocation():
    with pytest.raises(TraceContentError, match="answered before it is invoked") as error:
        History([operation(answered_us=4)])
    assert "answered at 4 µs, invoked at 5 µs" in str(error.value)


def test_two_operations_with_one_id():
    with pytest.raises(TraceContentError, match="the same id"):
        History([operation(), operation(invoked_us=8, answered_us=8)])
    assert len(History([operation(), operation(client="bob"), operation(key="y")])) == 3


@pytest.mark.parametrize("version", [-1, 0])
def test_a_write_has_a_version_from_one_on(version):
    with pytest.raises(TraceContentError, match="version"):
        History([operation(content=Content("1", version))])


@pytest.mark.parametrize("form", [lambda rows: rows, lambda rows: rows.to_pandas()])
def test_from_a_table(form):
    history = History.from_table(form(ROWS))
    assert [each.what for each in history] == [
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
    one = table(
        ("ann", 1, "write", "n", "k", "blind", 1, 2, "ok", 1, None),
        ("ann", 2, "read", "n", "k", None, 3, 4, "ok", 1, None),
    )
    assert check(one, "linearizable").status is Status.OK
    other = table(
        ("ann", 1, "write", "n", "k", "blind", 1, 2, "ok", 1, None),
        ("ann", 2, "read", "n", "k", None, 3, 4, "ok", None, None),
    )
    assert check(other, "linearizable").status is Status.ILLEGAL


def test_a_table_that_is_none_of_operations():
    with pytest.raises(TraceFormatError, match="no column client, session"):
        History.from_table(pd.DataFrame({"a": [1]}))
    with pytest.raises(TraceContentError, match="unknown") as error:
        History.from_table(table(("ann", 1, "write", "n", "k", "blind", 1, 2, "lost", 1, "a")))
    assert error.value.expected == "ok, open, failed"
    with pytest.raises(TraceFormatError, match="DataFrame"):
        History.from_table([1, 2])


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
    for bad in ("", "{}", '[{"client": 1}]', text.replace('"ok"', '"fine"'), text[:-1]):
        with pytest.raises(TraceFormatError):
            History.from_json(bad)
    with pytest.raises(TraceContentError):
        History.from_json(text.replace('"op_id":2', '"op_id":1'))


def test_as_a_table():
    frame = History.parse("ann: w1  r1\nbob: w2…").to_pandas()
    assert list(frame["what"]) == ["w(x)1", "w(x)2…", "r(x)1"]
    assert frame["answered_us"].isna().tolist() == [False, True, False]
    assert len(History().to_pandas()) == 0
