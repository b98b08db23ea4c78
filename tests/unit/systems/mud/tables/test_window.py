"""Windows against a plain sort and cut, after each change."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mudkit.systems.mud.tables.selection import Selection
from mudkit.systems.mud.tables.window import Window

VALUES = st.one_of(st.integers(-2, 2), st.sampled_from(["", "a", "ab", "b", True, False, 0.5, None]))
RECORDS = st.fixed_dictionaries({}, optional={"n": VALUES})
KEYS = st.sampled_from("abcdef")
CHANGES = st.lists(st.tuples(KEYS, st.none() | RECORDS), max_size=20)
ORDERS = st.sampled_from([None, "n", "n DESC", "key DESC"])


@given(st.dictionaries(KEYS, RECORDS), CHANGES, ORDERS, st.integers(1, 4))
def test_window_has_the_first_records_and_returns_what_moved(first, changes, order, limit):
    selection = Selection.parse(None, order, limit)
    records, window = dict(first), Window(selection, first)
    for key, record in changes:
        before = window.first_keys()
        if record is None:
            records.pop(key, None)
            moved = window.remove(key)
        else:
            records[key] = record
            moved = window.put(key, record)
        expected = list(selection.cut({key: (record, key) for key, record in records.items()}))
        assert window.first_keys() == expected
        assert [key for key in "abcdef" if key in window] == sorted(expected)
        shown = [key] if key in expected else []
        assert moved == {
            **{key: False for key in before if key not in expected},
            **dict.fromkeys([*shown, *(key for key in expected if key not in before)], True),
        }
        assert list(moved)[:1] in ([], [key])
