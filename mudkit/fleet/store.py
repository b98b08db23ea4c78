"""Stores of machines: the writes of one ``handle`` are a transaction."""

from __future__ import annotations

import sqlite3
import weakref
from collections.abc import Callable, Sequence
from hashlib import sha256
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

import msgspec
from sortedcontainers import SortedList

from mudkit.errors import ParameterError, StoreError, brief
from mudkit.events import Ciphertext

_CIPHERTEXT: Final = 1
_SINGLE: Final = frozenset({bool, int, str, bytes, type(None)})
_BEFORE_SURROGATES: Final = 0xD7FF
"""Code points above it, up to 0xDFFF, cannot be in a key."""


def _encode_ciphertext(value: Any) -> Any:
    """Encode a ciphertext as an extension of MessagePack; a hook for types that msgspec does not know."""
    if isinstance(value, Ciphertext):
        return msgspec.msgpack.Ext(_CIPHERTEXT, bytes(value))
    raise TypeError(f"{type(value).__name__} cannot be stored")


def _decode_ciphertext(code: int, data: memoryview) -> Ciphertext:
    """Decode the extension of a ciphertext."""
    return Ciphertext(data)


_pack = msgspec.msgpack.Encoder(enc_hook=_encode_ciphertext).encode


class _Decoders(dict[Any, Callable[[bytes], Any]]):
    """Decoders by type, created at the first use; a type is no state of a store."""

    def __missing__(self, kind: Any) -> Callable[[bytes], Any]:
        decode = self[kind] = msgspec.msgpack.Decoder(kind, ext_hook=_decode_ciphertext).decode
        return decode


_decoders: Final = _Decoders()


def _decode(key: str, written: bytes, kind: Any) -> Any:
    """Decode a stored value as a type, or raise StoreError."""
    try:
        return _decoders[kind](written)
    except msgspec.DecodeError as error:
        raise StoreError(
            "A store holds something that this version of mudkit did not write.",
            where=f"key {key!r}",
            found=str(error),
            expected=getattr(kind, "__name__", str(kind)),
            remedy="begin with an empty storage folder, or run the version that wrote it",
        ) from None


def _encode(key: str, value: Any) -> bytes:
    """Encode a value, or raise ParameterError if it would not be decoded to an equal one.

    A single value that can be encoded is certain to be equal. So is a struct whose class has ``is_plain``:
    its content was checked before.
    """
    kind = type(value)
    try:
        written = _pack(value)
        if kind in _SINGLE or getattr(kind, "is_plain", False):
            return written
        if _decoders[kind if isinstance(value, msgspec.Struct) else Any](written) == value:
            return written
    except (TypeError, ValueError, OverflowError, RecursionError):
        pass
    raise ParameterError(
        "This cannot be stored: it would come back as something else.",
        where=f"key {key!r}",
        found=f"{type(value).__name__}: {brief(value, 200)}",
        expected="None, truth values, finite numbers, texts, bytes; lists, dicts and structs of them",
    )


class Killed(BaseException):
    """Kill of a machine at a crash point; machines must not catch it."""


def ignore(*what: Any) -> None:
    """Do nothing: the value of ``crash_point`` while no fault is armed."""


class MemoryStore:
    """A store in memory, which outlives the machine but not the process.

    Values are encoded as in a file: a later change of the object does not change what is stored, and what
    would be decoded to something else is refused at once.

    Machines of a lab use it unless their host has a folder (``storage=``): a commit takes a microsecond
    instead of SQLite's milliseconds, and kills and crash points undo the same. That both kinds are alike is
    tested in ``tests/property/test_store_and_forward.py``; real files under SIGKILL are in
    ``tests/faults/test_killed_mud.py`` and ``test_killed_store.py``.
    """

    __slots__ = ("_data", "_keys", "_moved", "_undo", "at_put", "crash_point", "is_dirty")

    def __init__(self) -> None:
        self._data: dict[str, bytes] = {}
        self._keys: SortedList[str] | None = None
        """Sorted keys, built at the first use of :meth:`keys`."""
        self._moved: set[str] = set()
        """Keys added or deleted since :meth:`keys` was used last."""
        self._undo: dict[str, bytes | None] = {}
        """Committed value of each key that has changed since; None: it did not exist."""
        self.is_dirty = False
        self.crash_point: Callable[[str], None] = ignore
        """See :class:`mudkit.events.Store`; a fault replaces it."""
        self.at_put: Callable[[str, Any], None] | None = None
        """Called with each key and value that is put."""

    def get(self, key: str, kind: Any = Any) -> Any:
        """See :class:`mudkit.events.Store`."""
        value = self._data.get(key)
        return None if value is None else _decode(key, value, kind)

    def put(self, key: str, value: Any) -> None:
        """See :class:`mudkit.events.Store`."""
        self._change(key, _encode(key, value))
        if self.at_put is not None:
            self.at_put(key, value)

    def delete(self, key: str) -> None:
        """See :class:`mudkit.events.Store`."""
        self._change(key, None)

    def keys(self, prefix: str = "") -> Sequence[str]:
        """See :class:`mudkit.events.Store`."""
        if self._keys is None:
            self._keys = SortedList(self._data)
        elif self._moved:
            for key in self._moved:
                self._keys.discard(key)
            self._keys.update(self._moved & self._data.keys())
        self._moved.clear()
        return list(takewhile(lambda key: key.startswith(prefix), self._keys.irange(prefix)))

    def items(self, prefix: str = "", kind: Any = Any) -> Sequence[tuple[str, Any]]:
        """See :class:`mudkit.events.Store`."""
        return [(key, _decode(key, self._data[key], kind)) for key in self.keys(prefix)]

    def commit(self) -> None:
        """Commit the changes since the last commit: they outlive the machine."""
        self._undo.clear()
        self.is_dirty = False

    def rollback(self) -> None:
        """Undo the changes since the last commit, as when an event fails or the machine is killed."""
        for key, value in list(self._undo.items()):
            self._change(key, value)
        self.commit()

    def wipe(self) -> None:
        """Delete everything, including what was committed."""
        self._data.clear()
        self._keys = None
        self._moved.clear()
        self.commit()

    def _change(self, key: str, written: bytes | None) -> None:
        """Set or delete a key (``written`` None) until the next commit or rollback."""
        before = self._data.get(key)
        self._undo.setdefault(key, before)
        self.is_dirty = True
        if self._keys is not None and (written is None) != (before is None):
            self._moved.add(key)
        if written is not None:
            self._data[key] = written
        elif before is not None:
            del self._data[key]


class SqliteStore:
    """A store in a file, which outlives the process.

    Changes are kept in memory until the commit, one transaction. ``synchronous`` is SQLite's mode
    (https://www.sqlite.org/pragma.html#pragma_synchronous): with ``FULL`` a commit survives a power cut, with
    ``NORMAL`` only the end of the process.
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
        """Uncommitted changes; None: to be deleted."""
        self.is_dirty = False
        self.crash_point: Callable[[str], None] = ignore
        """See :class:`mudkit.events.Store`; a fault replaces it."""
        self.at_put: Callable[[str, Any], None] | None = None
        """Called with each key and value that is put."""

    def get(self, key: str, kind: Any = Any) -> Any:
        """See :class:`mudkit.events.Store`."""
        if key in self._changes:
            written = self._changes[key]
        else:
            row = self._execute("SELECT value FROM store WHERE key = ?", (key,)).fetchone()
            written = None if row is None else row[0]
        return None if written is None else _decode(key, written, kind)

    def put(self, key: str, value: Any) -> None:
        """See :class:`mudkit.events.Store`."""
        self._changes[key] = _encode(key, value)
        self.is_dirty = True
        if self.at_put is not None:
            self.at_put(key, value)

    def delete(self, key: str) -> None:
        """See :class:`mudkit.events.Store`."""
        self._changes[key] = None
        self.is_dirty = True

    def keys(self, prefix: str = "") -> Sequence[str]:
        """See :class:`mudkit.events.Store`."""
        return [key for key, _ in self._written(prefix)]

    def items(self, prefix: str = "", kind: Any = Any) -> Sequence[tuple[str, Any]]:
        """See :class:`mudkit.events.Store`."""
        return [(key, _decode(key, written, kind)) for key, written in self._written(prefix)]

    def _written(self, prefix: str) -> list[tuple[str, bytes]]:
        """Return keys and encoded values, with the uncommitted changes applied."""
        query, bounds = "SELECT key, value FROM store WHERE key >= ?", [prefix]
        if prefix and ord(prefix[-1]) < _BEFORE_SURROGATES:  # keys are in the order of their code points
            query, bounds = f"{query} AND key < ?", [prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1)]
        items: dict[str, bytes | None] = dict(self._execute(query, bounds).fetchall())
        items |= self._changes
        return sorted(
            (key, written) for key, written in items.items() if written is not None and key.startswith(prefix)
        )

    def commit(self) -> None:
        """Write the changes since the last commit to the file, in one transaction."""
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
        """Drop the changes since the last commit, as when an event fails or the machine is killed."""
        self._changes.clear()
        self.is_dirty = False

    def wipe(self) -> None:
        """Delete everything, including what was committed."""
        self.rollback()
        self._execute("DELETE FROM store")

    def fingerprint(self) -> str:
        """Return a digest of everything in the file; empty if nothing is in it."""
        digest = sha256()
        rows = 0
        for key, value in self._execute("SELECT key, value FROM store ORDER BY key"):
            rows += 1
            for part in (key.encode(), value):
                digest.update(len(part).to_bytes(8, "big") + part)
        return digest.hexdigest() if rows else ""

    def close(self) -> None:
        """Close the file; uncommitted changes are lost."""
        self.rollback()
        self._connection.close()

    def _change(self, key: str, value: bytes | None) -> None:
        """Write or delete one key in the file."""
        if value is None:
            self._execute("DELETE FROM store WHERE key = ?", (key,))
        else:
            # sqlite3 looks for an adapter of bytes at each use, and for none of a bytearray.
            self._execute("INSERT OR REPLACE INTO store VALUES (?, ?)", (key, bytearray(value)))
