"""Results of reads as records, data frames, and HTML; changes and conflicts."""

from __future__ import annotations

import dataclasses
import pickle

import pytest

from mudkit.errors import (
    MudkitError,
)
from mudkit.systems.mud.result import Change, Conflict, ReadResult

NEWS = ReadResult(
    records={"b": {"topic": "arts", "n": 2}, "a": {"topic": "<b>&"}},
    source={"b": "remote", "a": "local"},
    age_s={"b": 0.0, "a": 12.34},
    versions={"b": 7, "a": None},
)


def test_frame_has_a_row_for_each_record():
    frame = NEWS.to_pandas()
    assert len(NEWS) == 2
    assert list(frame.index) == ["b", "a"]  # in the order of the result
    assert frame.index.name == "key"
    assert set(frame.columns) == {"topic", "n"}
    assert frame.loc["b", "n"] == 2
    assert frame["n"].isna().to_list() == [False, True]
    assert str(frame["n"].dtype) == "Int64"


def test_integers_stay_integers_beside_nulls():
    rows = {"a": {"id": (1 << 62) + 1, "x": 1.5}, "b": {"id": None, "x": None}}
    frame = ReadResult(records=rows).to_pandas()
    assert frame.loc["a", "id"] == (1 << 62) + 1
    assert [str(kind) for kind in frame.dtypes] == ["Int64", "float64"]


def test_record_without_columns_has_a_row():
    assert list(ReadResult(records={"a": {}, "b": {"n": 1}}).to_pandas().index) == ["a", "b"]
    assert len(ReadResult(records={"a": {}}).to_pandas()) == 1


def test_empty_result_is_an_empty_table():
    empty = ReadResult()
    assert len(empty) == 0
    assert len(empty.to_pandas()) == 0
    assert empty.to_pandas().index.name == "key"
    assert "<table" not in empty._repr_html_()
    assert repr(empty) == "<ReadResult: records 0>"


def test_columns_hold_json_values():
    frame = ReadResult(records={"a": {"p": [1, 2], "s": {"x": 1}, "none": None}}).to_pandas()
    assert frame.loc["a", "p"] == [1, 2]
    assert frame.loc["a", "s"] == {"x": 1}


def test_aggregates_are_one_row():
    frame = ReadResult(aggregates={"count(*)": 3, "avg(n)": None}).to_pandas()
    assert frame.to_dict("records") == [{"count(*)": 3, "avg(n)": None}]


def test_display_shows_the_source_of_each_record():
    assert NEWS._view().tables[0].text().splitlines() == [
        "key  topic  n  version  source  age, s",
        "b    arts   2  7        remote       0",
        "a    <b>&   –  pending  local     12.3",
    ]


def test_display_escapes_records():
    evil = "<script>alert(1)</script>"
    shown = ReadResult(
        records={evil: {evil: evil}}, source={evil: "local"}, age_s={evil: 0.0}, versions={evil: 1}
    )._repr_html_()
    assert "<script>" not in shown
    assert shown.count("&lt;script&gt;") == 4


def test_display_of_aggregates():
    shown = ReadResult(aggregates={"min(a < b)": None, "count(*)": 0})
    assert "min(a &lt; b)" in shown._repr_html_()
    assert repr(shown) == "<ReadResult: count(*) 0>"
    assert repr(ReadResult(aggregates={f"max(n{n})": n for n in range(6)})) == "<ReadResult: aggregates 6>"


def test_results_share_no_records():
    one, other = ReadResult(), ReadResult()
    one.records["a"] = {}
    assert other.records == {}


def test_change_is_immutable():
    change = Change("remove", "a", None, 3)
    assert change == Change("remove", "a", None, 3)
    assert change != Change("remove", "a", None, 4)
    with pytest.raises(dataclasses.FrozenInstanceError):
        change.kind = "upsert"


def test_conflict_has_three_records():
    store, local, base = {"ver": 2}, {"number": 7}, {"ver": 1}
    conflict = Conflict("Another one came first.", store=store, local=local, base=base, found="version 2")
    assert (conflict.store, conflict.local, conflict.base) == (store, local, base)
    assert isinstance(conflict, MudkitError)
    assert isinstance(conflict, RuntimeError)
    assert str(conflict) == "Another one came first.\n  found:    version 2"


def test_records_of_a_conflict_default_to_none():
    conflict = Conflict("Another one came first.")
    assert (conflict.store, conflict.local, conflict.base) == (None, None, None)


def test_conflict_can_be_pickled():
    conflict = Conflict(
        "No.", store={"ver": 2}, local={"n": 1}, base={"ver": 1}, where="table 'x'", remedy="merge"
    )
    unpickled = pickle.loads(pickle.dumps(conflict))
    assert type(unpickled) is Conflict
    assert (unpickled.store, unpickled.local, unpickled.base) == ({"ver": 2}, {"n": 1}, {"ver": 1})
    assert str(unpickled) == str(conflict)
