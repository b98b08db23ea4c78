"""Stores: writes are visible immediately, and durable from the commit on."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudkit import Lab
from mudkit.errors import ParameterError, StoreError
from mudkit.events import Ciphertext
from mudkit.fleet.store import MemoryStore, SqliteStore

KEYS = ["a", "ab", "b", "ü", "a\n"]


def list_stored_keys(path: Any) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return [key for (key,) in connection.execute("SELECT key FROM store ORDER BY key")]


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("put"), st.sampled_from(KEYS), st.integers(0, 9)),
            st.tuples(st.just("delete"), st.sampled_from(KEYS)),
            st.tuples(st.just("commit")),
            st.tuples(st.just("rollback")),
        ),
        max_size=30,
    )
)
def test_sqlite_store_behaves_like_memory_store(steps):
    memory = MemoryStore()
    with closing(SqliteStore(":memory:")) as file:
        for method, *arguments in steps:
            for store in (memory, file):
                getattr(store, method)(*arguments)
            assert [file.get(key) for key in KEYS] == [memory.get(key) for key in KEYS]
            assert file.items() == memory.items()
            assert file.items("a") == memory.items("a")
            assert file.is_dirty == memory.is_dirty


def test_file_contains_only_committed_keys(tmp_path):
    with closing(SqliteStore(tmp_path / "a.db")) as store:
        for keys in (["a"], ["b", "c"]):
            for key in keys:
                store.put(key, 1)
            assert not {*keys} & {*list_stored_keys(tmp_path / "a.db")}
            store.commit()
            assert {*keys} <= {*list_stored_keys(tmp_path / "a.db")}
        store.put("d", 1)
    assert list_stored_keys(tmp_path / "a.db") == ["a", "b", "c"]


class Note(msgspec.Struct):
    text: str
    priority: int


@pytest.mark.parametrize("value", [{"text": "noon?"}, {"text": "noon?", "priority": "high"}, 7, b"\xc1"])
@pytest.mark.parametrize("kind", ["memory", "file"])
def test_values_of_another_version_are_refused_with_a_remedy(tmp_path, value, kind):
    store: Any = MemoryStore() if kind == "memory" else SqliteStore(tmp_path / "a.db")
    store.put("note 1", value)
    store.commit()
    for read in (lambda: store.get("note 1", Note), lambda: store.items("note", Note)):
        with pytest.raises(StoreError, match="this version of mudkit did not write") as caught:
            read()
        assert "'note 1'" in str(caught.value)
        assert "begin with an empty storage folder" in str(caught.value)
    if kind == "file":
        store.close()


def test_truncated_value_is_refused(tmp_path):
    with closing(SqliteStore(tmp_path / "a.db")) as store:
        store.put("note 1", {"text": "noon?"})
        store.commit()
        with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
            connection.execute("UPDATE store SET value = substr(value, 1, 4)")
            connection.commit()
        with pytest.raises(StoreError, match="this version of mudkit did not write"):
            store.get("note 1")


@pytest.mark.parametrize("keys", [["a"], ["a", "b"]])
def test_failed_commit_stores_nothing(tmp_path, keys):
    with closing(SqliteStore(tmp_path / "a.db")) as store:
        store.put("before", 1)
        store.commit()
        with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
            connection.execute(
                f"CREATE TRIGGER full BEFORE INSERT ON store WHEN new.key = '{keys[-1]}' "
                "BEGIN SELECT RAISE(ABORT, 'the disk is full'); END"
            )
        for key in keys:
            store.put(key, 1)
        with pytest.raises(sqlite3.DatabaseError, match="disk is full"):
            store.commit()
        store.rollback()
        assert [key for key, _ in store.items()] == list_stored_keys(tmp_path / "a.db") == ["before"]
        store.put("after", 1)
        store.commit()
    assert list_stored_keys(tmp_path / "a.db") == ["after", "before"]


@pytest.mark.parametrize(("level", "number"), [("FULL", 2), ("NORMAL", 1)])
def test_synchronous_level_and_journal_mode_are_set(tmp_path, level, number):
    with closing(SqliteStore(tmp_path / "a.db", level)) as store:
        assert store._connection.execute("PRAGMA synchronous").fetchone() == (number,)
        assert store._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_unreferenced_store_is_closed(tmp_path):
    store = SqliteStore(tmp_path / "a.db")
    store.put("a", 1)
    store.commit()
    connection = store._connection
    thread = threading.Thread(target=lambda stores: stores.clear(), args=([store],))  # in another thread
    del store
    thread.start()
    thread.join()
    del thread
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("SELECT 1")


def test_entropy_differs_at_each_start_with_the_same_store(tmp_path):
    def draw_entropy():
        lab = Lab(seed=7)
        draws = []

        class Drawer:
            def __init__(self, ports):
                self.ports = ports

            def handle(self, now_us, event):
                draws.append(self.ports.entropy(4))
                self.ports.store.put(f"drawn {len(self.ports.store.keys())}", draws[-1])
                return ()

        lab.device("ann", storage=tmp_path).install("draws", Drawer)
        lab.run(seconds=1)
        return draws[0]

    assert len({draw_entropy() for _ in range(3)}) == 3


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_stores_return_equal_values_or_refuse_them(tmp_path, kind):
    store = MemoryStore() if kind == "memory" else SqliteStore(tmp_path / "store.db")
    valid = {
        "a": [1, 2.5, None, True, "x"],
        "raw": b"\0x",
        "sealed": Ciphertext(b"\1y"),
        "in": [{"c": Ciphertext(b"z")}],
    }
    store.put("good", valid)
    store.commit()
    result = store.get("good")
    assert result == valid
    assert type(result["sealed"]) is Ciphertext
    assert type(result["raw"]) is bytes
    assert type(result["in"][0]["c"]) is Ciphertext
    for invalid in ({1, 2}, (1, 2), float("nan"), [{"x": (1,)}], object(), 1 << 80):
        with pytest.raises(ParameterError, match="key 'bad'"):
            store.put("bad", invalid)
    assert store.get("bad") is None


def test_keys_include_uncommitted_changes():
    store = MemoryStore()
    store.put("b", 1)
    store.commit()
    assert store.keys() == ["b"]
    for key in ("c", "a", "gone"):
        store.put(key, 1)
    store.delete("b")
    store.delete("gone")
    assert store.keys() == ["a", "c"]
    store.rollback()
    assert store.keys() == ["b"]
    store.wipe()
    assert store.keys() == []
