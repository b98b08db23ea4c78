"""Stores: what is put is there at once for who asks, and lasts with the commit or not at all."""

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


def in_the_file(path: Any) -> list[str]:
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
def test_a_store_in_a_file_is_as_one_in_memory(steps):
    memory = MemoryStore()
    with closing(SqliteStore(":memory:")) as file:
        for what, *given_ in steps:
            for store in (memory, file):
                getattr(store, what)(*given_)
            assert [file.get(key) for key in KEYS] == [memory.get(key) for key in KEYS]
            assert file.items() == memory.items()
            assert file.items("a") == memory.items("a")
            assert file.is_dirty == memory.is_dirty


def test_nothing_is_in_the_file_before_the_commit(tmp_path):
    with closing(SqliteStore(tmp_path / "a.db")) as store:
        for more in (["a"], ["b", "c"]):
            for key in more:
                store.put(key, 1)
            assert not {*more} & {*in_the_file(tmp_path / "a.db")}
            store.commit()
            assert {*more} <= {*in_the_file(tmp_path / "a.db")}
        store.put("d", 1)
    assert in_the_file(tmp_path / "a.db") == ["a", "b", "c"]


class Note(msgspec.Struct):
    text: str
    priority: int


@pytest.mark.parametrize("written", [{"text": "noon?"}, {"text": "noon?", "priority": "high"}, 7, b"\xc1"])
@pytest.mark.parametrize("kind", ["memory", "file"])
def test_what_another_version_wrote_is_refused_with_what_to_do(tmp_path, written, kind):
    store: Any = MemoryStore() if kind == "memory" else SqliteStore(tmp_path / "a.db")
    store.put("note 1", written)
    store.commit()
    for read in (lambda: store.get("note 1", Note), lambda: store.items("note", Note)):
        with pytest.raises(StoreError, match="this version of mudkit did not write") as refused:
            read()
        assert "'note 1'" in str(refused.value)
        assert "begin with an empty storage folder" in str(refused.value)
    if kind == "file":
        store.close()


def test_a_value_that_is_cut_off_is_refused_with_what_to_do(tmp_path):
    with closing(SqliteStore(tmp_path / "a.db")) as store:
        store.put("note 1", {"text": "noon?"})
        store.commit()
        with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
            connection.execute("UPDATE store SET value = substr(value, 1, 4)")
            connection.commit()
        with pytest.raises(StoreError, match="this version of mudkit did not write"):
            store.get("note 1")


@pytest.mark.parametrize("keys", [["a"], ["a", "b"]])
def test_a_commit_that_fails_leaves_nothing(tmp_path, keys):
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
        assert [key for key, _ in store.items()] == in_the_file(tmp_path / "a.db") == ["before"]
        store.put("after", 1)
        store.commit()
    assert in_the_file(tmp_path / "a.db") == ["after", "before"]


@pytest.mark.parametrize(("level", "number"), [("FULL", 2), ("NORMAL", 1)])
def test_how_sure_it_is(tmp_path, level, number):
    with closing(SqliteStore(tmp_path / "a.db", level)) as store:
        assert store._connection.execute("PRAGMA synchronous").fetchone() == (number,)
        assert store._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_store_that_nobody_closes_is_closed_when_it_goes(tmp_path):
    store = SqliteStore(tmp_path / "a.db")
    store.put("a", 1)
    store.commit()
    connection = store._connection
    thread = threading.Thread(target=lambda gone: gone.clear(), args=([store],))  # by any thread
    del store
    thread.start()
    thread.join()
    del thread
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("SELECT 1")


def test_entropy_is_another_one_for_a_store_that_a_process_has_left(tmp_path):
    def drawn():
        lab = Lab(seed=7)
        machines = []

        class Draws:
            def __init__(self, ports):
                self.ports = ports

            def handle(self, now_us, event):
                machines.append(self.ports.entropy(4))
                self.ports.store.put(f"drawn {len(self.ports.store.keys())}", machines[-1])
                return ()

        lab.device("ann", storage=tmp_path).install("draws", Draws)
        lab.run(seconds=1)
        return machines[0]

    assert len({drawn() for _ in range(3)}) == 3


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_stores_give_back_what_was_put_or_refuse_it(tmp_path, kind):
    store = MemoryStore() if kind == "memory" else SqliteStore(tmp_path / "store.db")
    good = {
        "a": [1, 2.5, None, True, "x"],
        "raw": b"\0x",
        "sealed": Ciphertext(b"\1y"),
        "in": [{"c": Ciphertext(b"z")}],
    }
    store.put("good", good)
    store.commit()
    result = store.get("good")
    assert result == good
    assert type(result["sealed"]) is Ciphertext
    assert type(result["raw"]) is bytes
    assert type(result["in"][0]["c"]) is Ciphertext
    for bad in ({1, 2}, (1, 2), float("nan"), [{"x": (1,)}], object(), 1 << 80):
        with pytest.raises(ParameterError, match="key 'bad'"):
            store.put("bad", bad)
    assert store.get("bad") is None


def test_keys_that_came_and_went_between_two_looks_are_right():
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
