"""Stores of machines: what is written in one ``handle`` is there whole or not at all."""

from __future__ import annotations

import sqlite3
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
        found = self._data.get(key)
        return None if found is None else _decode(found)

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

    def _remember(self, key: str) -> None:
        self.is_dirty = True
        if key not in self._undo:
            self._undo[key] = self._data.get(key, _MISSING)


class SqliteStore:
    """A store in a file that outlives the process.

    Parameters
    ----------
    path : Path
    """

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS store (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID"
        )
        self.is_dirty = False
        self.at_crash_point: Callable[[str], None] = unheeded
        self.at_put: Callable[[str, Any], None] = unheeded

    def get(self, key: str) -> Any:
        """See :class:`mudkit.events.Store`."""
        found = self._connection.execute("SELECT value FROM store WHERE key = ?", (key,)).fetchone()
        return None if found is None else _decode(found[0])

    def put(self, key: str, value: Any) -> None:
        """See :class:`mudkit.events.Store`."""
        written = _encode(key, value)
        self._begin()
        self._connection.execute("INSERT OR REPLACE INTO store VALUES (?, ?)", (key, written))
        self.at_put(key, value)

    def delete(self, key: str) -> None:
        """See :class:`mudkit.events.Store`."""
        self._begin()
        self._connection.execute("DELETE FROM store WHERE key = ?", (key,))

    def items(self, prefix: str = "") -> Sequence[tuple[str, Any]]:
        """See :class:`mudkit.events.Store`."""
        query = "SELECT key, value FROM store WHERE substr(key, 1, ?) = ? ORDER BY key"
        found = self._connection.execute(query, (len(prefix), prefix))
        return [(key, _decode(value)) for key, value in found]

    def crash_point(self, name: str) -> None:
        """See :class:`mudkit.events.Store`."""
        self.at_crash_point(name)

    def commit(self) -> None:
        """Make what was written since the last commit last."""
        if self.is_dirty:
            self._connection.execute("COMMIT")
            self.is_dirty = False

    def rollback(self) -> None:
        """Undo what was written since the last commit."""
        if self.is_dirty:
            self._connection.execute("ROLLBACK")
            self.is_dirty = False

    def close(self) -> None:
        """Close the file; what was not committed is undone."""
        self.rollback()
        self._connection.close()

    def _begin(self) -> None:
        if not self.is_dirty:
            self._connection.execute("BEGIN IMMEDIATE")
            self.is_dirty = True
