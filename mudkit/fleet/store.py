"""Stores of machines: what is written in one ``handle`` is there whole or not at all."""

from __future__ import annotations

import sqlite3
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from mudkit.errors import ParameterError
from mudkit.events import Ciphertext

__all__ = ["Killed", "MemoryStore", "SqliteStore", "unheeded"]

_MISSING: Final = object()
_CIPHERTEXT: Final = 1


def _hook(value: Any) -> Any:
    if isinstance(value, Ciphertext):
        return msgspec.msgpack.Ext(_CIPHERTEXT, bytes(value))
    raise TypeError(f"{type(value).__name__} cannot be stored")


_pack = msgspec.msgpack.Encoder(enc_hook=_hook).encode
_decode = msgspec.msgpack.Decoder(ext_hook=lambda code, data: Ciphertext(data)).decode


def _encode(key: str, value: Any) -> bytes:
    """Write a value so that it comes back as it is."""
    try:
        written = _pack(value)
        if _decode(written) == value:
            return written
    except (TypeError, ValueError, OverflowError):
        pass
    raise ParameterError(
        "This cannot be stored: it would come back as something else.",
        where=f"key {key!r}",
        found=f"{type(value).__name__}: {value!r}"[:200],
        expected="None, truth values, finite numbers, texts, bytes, ciphertexts; lists and dicts of them",
    )


class Killed(BaseException):
    """A machine was killed at a crash point; nothing in a machine may catch it."""


def unheeded(*what: Any) -> None:
    """Do nothing: nobody is to be killed, nobody wants to know."""


class MemoryStore:
    """A store that outlives the machine and not the process.

    What is put is copied, as a file would: a machine that changes a value later changes nothing that is
    stored, and what would come back as something else is refused at once.

    Machines of a lab have it unless their host has a folder (``storage=``): one SQLite database for all would
    undo at kills and crash points just the same, outlive a process that nothing else of a lab outlives, and
    commit in milliseconds instead of a microsecond. That both kinds are alike is tested in
    ``tests/property/test_store_and_forward.py``; real files under SIGKILL are in
    ``tests/faults/test_killed_mud.py`` and ``test_killed_store.py``.
    """

    __slots__ = ("_data", "_undo", "at_crash_point", "at_put", "is_dirty")

    def __init__(self) -> None:
        self._data: dict[str, bytes] = {}
        self._undo: dict[str, Any] = {}
        self.is_dirty = False
        self.at_crash_point: Callable[[str], None] = unheeded
        self.at_put: Callable[[str, Any], None] = unheeded

    def get(self, key: str) -> Any:
        """See :class:`mudkit.events.Store`."""
        value = self._data.get(key)
        return None if value is None else _decode(value)

    def put(self, key: str, value: Any) -> None:
        """See :class:`mudkit.events.Store`."""
        written = _encode(key, value)
        self._remember(key)
        self._data[key] = written
        self.at_put(key, value)

    def delete(self, key: str) -> None:
        """See :class:`mudkit.events.Store`."""
        self._remember(key)
        self._data.pop(key, None)

    def items(self, prefix: str = "") -> Sequence[tuple[str, Any]]:
        """See :class:`mudkit.events.Store`."""
        keys = sorted(key for key in self._data if key.startswith(prefix))
        return [(key, _decode(self._data[key])) for key in keys]

    def crash_point(self, name: str) -> None:
        """See :class:`mudkit.events.Store`."""
        self.at_crash_point(name)

    def commit(self) -> None:
        """Make what was written since the last commit last."""
        self._undo.clear()
        self.is_dirty = False

    def rollback(self) -> None:
        """Undo what was written since the last commit."""
        for key, value in self._undo.items():
            if value is _MISSING:
                self._data.pop(key, None)
            else:
                self._data[key] = value
        self.commit()

    def wipe(self) -> None:
        """Forget everything, also what was committed."""
        self._data.clear()
        self.commit()

    def _remember(self, key: str) -> None:
        self.is_dirty = True
        if key not in self._undo:
            self._undo[key] = self._data.get(key, _MISSING)


class SqliteStore:
    """A store in a file that outlives the process.

    What is put waits in memory and goes into the file with the commit: a single change is one statement,
    which is a transaction of its own, several are one transaction.

    Parameters
    ----------
    path : Path
    synchronous : {'FULL', 'NORMAL'}
        The mode in which SQLite writes the file (https://www.sqlite.org/pragma.html#pragma_synchronous): what
        is committed survives a power cut, or only the end of the process.
    """

    def __init__(self, path: Path, synchronous: str = "FULL") -> None:
        # A lab is dropped, not closed, and the thread that collects it need not be the one that ran it.
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        weakref.finalize(self, self._connection.close)
        self._execute = self._connection.execute
        self._execute("PRAGMA journal_mode = WAL")
        self._execute(f"PRAGMA synchronous = {synchronous}")
        self._execute(
            "CREATE TABLE IF NOT EXISTS store (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID"
        )
        self._changes: dict[str, bytes | None] = {}
        """What waits for the commit; None: to be deleted."""
        self.is_dirty = False
        self.at_crash_point: Callable[[str], None] = unheeded
        self.at_put: Callable[[str, Any], None] = unheeded

    def get(self, key: str) -> Any:
        """See :class:`mudkit.events.Store`."""
        if key in self._changes:
            changed = self._changes[key]
            return None if changed is None else _decode(changed)
        row = self._execute("SELECT value FROM store WHERE key = ?", (key,)).fetchone()
        return None if row is None else _decode(row[0])

    def put(self, key: str, value: Any) -> None:
        """See :class:`mudkit.events.Store`."""
        self._changes[key] = _encode(key, value)
        self.is_dirty = True
        self.at_put(key, value)

    def delete(self, key: str) -> None:
        """See :class:`mudkit.events.Store`."""
        self._changes[key] = None
        self.is_dirty = True

    def items(self, prefix: str = "") -> Sequence[tuple[str, Any]]:
        """See :class:`mudkit.events.Store`."""
        query = "SELECT key, value FROM store WHERE substr(key, 1, ?) = ?"
        items = dict(self._execute(query, (len(prefix), prefix)).fetchall())
        items |= {key: value for key, value in self._changes.items() if key.startswith(prefix)}
        return [(key, _decode(items[key])) for key in sorted(items) if items[key] is not None]

    def crash_point(self, name: str) -> None:
        """See :class:`mudkit.events.Store`."""
        self.at_crash_point(name)

    def commit(self) -> None:
        """Make what was written since the last commit last."""
        changes = self._changes
        if len(changes) == 1:
            self._change(*changes.popitem())
        elif changes:
            self._execute("BEGIN IMMEDIATE")
            try:
                for key, value in changes.items():
                    self._change(key, value)
                self._execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._execute("ROLLBACK")
                raise
            changes.clear()
        self.is_dirty = False

    def rollback(self) -> None:
        """Undo what was written since the last commit."""
        self._changes.clear()
        self.is_dirty = False

    def wipe(self) -> None:
        """Forget everything, also what was committed."""
        self.rollback()
        self._execute("DELETE FROM store")

    def close(self) -> None:
        """Close the file; what was not committed is undone."""
        self.rollback()
        self._connection.close()

    def _change(self, key: str, value: bytes | None) -> None:
        if value is None:
            self._execute("DELETE FROM store WHERE key = ?", (key,))
        else:
            self._execute("INSERT OR REPLACE INTO store VALUES (?, ?)", (key, value))
