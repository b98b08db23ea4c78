"""M3, on the device: what a MUD write and a cached read cost beside bare SQLite that does the same work.

Both write the same records under the same keys into files of the same settings (WAL, ``synchronous`` as
given), each record twice with different contents, and each call is a transaction of its own that is durable
when it returns. The bare side encodes the record as MUD does (MessagePack), and does with it what an
application would write by hand: one ``INSERT OR REPLACE``, one ``SELECT`` by primary key. The MUD side has no
network, so that only stage 1 is measured; its reads are ``committed`` and served from what an earlier read
has brought.

The two take turns call by call, so that a machine that slows down slows both, and each finds the processor's
caches as another has left them, as it does in an application. A seed's figure is the median call of one side
beside that of the other: a checkpoint of the log hits single calls of both, and is in the means, which are
printed as well.

A limit in microseconds is one of the code only on a machine of a stated speed. A plain Python loop takes
turns with both sides. Its time over ``reference_us`` is the machine factor, and the time over bare SQLite is
divided by it.
"""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from pathlib import Path
from statistics import fmean, median
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from mudkit.events import Installed, Make
from mudkit.fleet import Device
from mudkit.fleet.kernel import raise_failure
from mudkit.fleet.store import SqliteStore
from mudkit.lab import Lab
from mudkit.predicates import Predicate
from mudkit.reproduce.row import Figure, Say, say_nothing
from mudkit.sources.streams import Stream
from mudkit.systems.mud import Client, Cloud, freshness

__all__ = ["REFERENCE_US", "Bare", "Mud", "drawn", "local"]

_TABLE: Final = "news"
_ROUNDS: Final = 300
"""Rounds of the loop that measures the machine."""
REFERENCE_US: Final = 25.0
"""Time of the loop on the machine of the limits: CPython 3.11 on a desktop processor of 2022."""
_WORDS: Final = 20
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode

Record = dict[str, Any]


def drawn(many: int, seed: int) -> list[tuple[str, Record]]:
    """Draw records and their keys: each key comes twice, the second time with another record.

    A record has a topic, a text of 160 letters, a price and a number that no other has.
    """
    stream, steps = Stream(seed, "overhead"), np.arange(many)
    price, topic = stream.uniform(0, steps), stream.uniform(1, steps)
    words = (stream.uniform(2, np.arange(many * _WORDS)) * (1 << 31)).astype(int).reshape(many, _WORDS)
    return [
        (
            f"article-{number % (many // 2):06d}",
            {
                "topic": ("arts", "sports", "news")[int(3 * topic[number])],
                "text": "".join(f"{word:08x}" for word in words[number]),
                "price": round(100 * float(price[number]), 2),
                "number": number,
            },
        )
        for number in range(many)
    ]


class Bare:
    """An application that uses SQLite by itself.

    Parameters
    ----------
    folder : Path
        The folder of the database.
    synchronous : {'FULL', 'NORMAL'}
        SQLite's setting of that name.
    """

    def __init__(self, folder: Path, synchronous: str) -> None:
        self._file = folder / "bare.db"
        self._connection = sqlite3.connect(self._file, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute(f"PRAGMA synchronous = {synchronous}")
        self._connection.execute(
            f"CREATE TABLE {_TABLE} (key TEXT PRIMARY KEY, record BLOB NOT NULL) WITHOUT ROWID"
        )

    def write(self, key: str, record: Record) -> None:
        """Write a record; it is durable then."""
        self._connection.execute(f"INSERT OR REPLACE INTO {_TABLE} VALUES (?, ?)", (key, _encode(record)))

    def read(self, key: str) -> Record:
        """Read a record."""
        query = f"SELECT record FROM {_TABLE} WHERE key = ?"
        record: Record = _decode(self._connection.execute(query, (key,)).fetchone()[0])
        return record

    def landed(self) -> dict[str, Record]:
        """Give what the file holds, read anew."""
        with closing(sqlite3.connect(self._file)) as connection:
            return {key: _decode(each) for key, each in connection.execute(f"SELECT * FROM {_TABLE}")}

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


class Mud:
    """A MUD client on a device with a file; it has a network only while it is set up.

    Parameters
    ----------
    folder : Path
        The folder of the device's store.
    synchronous : {'FULL', 'NORMAL'}
        SQLite's setting of that name.
    seed : int
    held : sequence of (str, dict)
        The committed records, by key, that the device holds at the beginning.
    """

    def __init__(
        self, folder: Path, synchronous: str, seed: int, held: Sequence[tuple[str, Record]] = ()
    ) -> None:
        lab = Lab(seed)
        lab.world.on_failure = raise_failure
        self._file = folder / "mud.db"
        self._store = SqliteStore(self._file, synchronous)
        phone = _Stored(lab.device("phone", "lte"), self._store)
        self._client = Client(phone, Cloud(lab), app="news", token=lab.token("jane", "news", hours=1e6))
        self._client.create(_TABLE).result()
        for made in [self._client.write(_TABLE, key, record) for key, record in held]:
            made.result()
        self._client.read(_TABLE, latest=True).result()
        lab.faults.cut("phone")
        lab.run(seconds=1)
        self._fresh = freshness(1e6)

    def write(self, key: str, record: Record) -> None:
        """Write a record: when the call returns, it is in the local store, durable and pending (stage 1)."""
        self._client.write(_TABLE, key, record)

    def read(self, key: str) -> Record:
        """Read a record that the device holds."""
        record: Record = (
            self._client.read(_TABLE, Predicate("key = :key", key=key), utility=self._fresh)
            .result()
            .records[key]
        )
        return record

    def landed(self) -> dict[str, Record]:
        """Return the content of the file, read anew: the last pending write of each key."""
        with closing(sqlite3.connect(self._file)) as connection:
            query = "SELECT value FROM store WHERE key GLOB 'write *' ORDER BY key"
            pending = [_decode(each) for (each,) in connection.execute(query)]
        return {each["key"]: each["data"] for each in pending}

    def close(self) -> None:
        """Close the file."""
        self._store.close()


class _Stored:
    """A device whose machines store into a given store."""

    def __init__(self, device: Device, store: SqliteStore) -> None:
        self._device = device
        self._store = store
        self.name = device.name

    def install(self, system: str, make: Make, *, name: str = "", watch: Collection[str] = ()) -> Installed:
        """See :class:`mudkit.events.Host`."""
        return self._device.install(system, make, name=name, watch=watch, store=self._store)


def _loop(*_: Any) -> None:
    """Do a fixed piece of plain Python: integers, tuples, and a dict."""
    slots: dict[int, Any] = {}
    for number in range(_ROUNDS):
        slots[number & 15] = number, slots.get(number & 7)


class _Times(NamedTuple):
    """Times of calls in µs."""

    bare_us: list[float]
    mud_us: list[float]
    loop_us: list[float]


def _in_turns(bare: Callable[..., Any], mud: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> _Times:
    """Time both sides and the loop for the same calls, in turn."""
    clock = time.perf_counter
    times = _Times([], [], [])
    sides = list(zip((bare, mud, _loop), times, strict=True))
    for given in calls:
        for call, times_us in sides:
            began_s = clock()
            call(*given)
            times_us.append((clock() - began_s) * 1e6)
    return times


def _landed(side: Bare | Mud, calls: Sequence[tuple[str, Record]]) -> float:
    """Say which share of the records that were written last is in the file."""
    landed, wanted = side.landed(), dict(calls)
    return sum(landed.get(key) == record for key, record in wanted.items()) / len(wanted)


def local(
    say: Say = say_nothing,
    *,
    writes: int = 2000,
    durable: int = 600,
    reads: int = 4000,
    held: int = 1000,
    seeds: Sequence[int] = (1, 2, 3, 4, 5),
    reference_us: float = REFERENCE_US,
) -> tuple[dict[str, Figure], dict[str, Any]]:
    """Measure the local part of row M3.

    Parameters
    ----------
    say : callable
        Called with a sentence about what is measured next.
    writes, durable : int
        Calls a side and seed with ``synchronous`` ``NORMAL`` and ``FULL``.
    reads, held : int
        How many reads a side and seed are measured, and how many records are held.
    seeds : sequence of int
        The seeds of the runs; figures are over all of them.
    reference_us : float
        Time of the loop on the machine of the limits.

    Returns
    -------
    figures, parameters : dict
    """
    times: dict[str, list[_Times]] = {}
    landed: list[float] = []
    for seed in seeds:
        for level, many in (("FULL", durable), ("NORMAL", writes)):
            say(f"{many:,} local writes, {level}, seed {seed}")
            with tempfile.TemporaryDirectory() as folder:
                calls = drawn(many, seed)
                with (
                    closing(Bare(Path(folder), level)) as bare,
                    closing(Mud(Path(folder), level, seed)) as mud,
                ):
                    times.setdefault(f"local write, {level}", []).append(
                        _in_turns(bare.write, mud.write, calls)
                    )
                    landed += [_landed(bare, calls), _landed(mud, calls)]
        say(f"{reads:,} cached reads, seed {seed}")
        with tempfile.TemporaryDirectory() as folder:
            records = drawn(2 * held, seed)[held:]
            with (
                closing(Bare(Path(folder), "NORMAL")) as bare,
                closing(Mud(Path(folder), "NORMAL", seed, records)) as mud,
            ):
                for key, record in records:
                    bare.write(key, record)
                landed += [float(side.read(key) == record) for key, record in records for side in (bare, mud)]
                order = (Stream(seed, "cached reads").uniform(0, np.arange(reads)) * held).astype(int)
                keys = [(records[each][0],) for each in order]
                times.setdefault("cached read", []).append(_in_turns(bare.read, mud.read, keys))
    figures: dict[str, Figure] = {}
    for what, of_both in times.items():
        theirs, ours, loops = ([median(each) for each in side] for side in zip(*of_both, strict=True))
        factors = [loop_us / reference_us for loop_us in loops]
        pairs = list(zip(ours, theirs, strict=True))
        figures |= {
            f"times bare SQLite's time, {what}": Figure.of(mud / bare for mud, bare in pairs),
            f"µs over bare SQLite, {what}": Figure.of(mud - bare for mud, bare in pairs),
            f"µs over bare SQLite at the reference speed, {what}": Figure.of(
                (mud - bare) / factor for (mud, bare), factor in zip(pairs, factors, strict=True)
            ),
            f"machine factor, {what}": Figure.of(factors),
            f"µs, {what}": Figure.of(ours),
            f"µs, {what}, bare SQLite": Figure.of(theirs),
            f"µs on average, {what}": Figure.of(fmean(each.mud_us) for each in of_both),
            f"µs on average, {what}, bare SQLite": Figure.of(fmean(each.bare_us) for each in of_both),
        }
    figures["share of records that are in the files"] = Figure.of(landed)
    parameters = {
        "on the device": "WAL, a transaction a call, each record twice with different contents; the bare "
        "side: INSERT OR REPLACE of key and MessagePack, SELECT by key; MUD without a network (stage 1); "
        "the median call of a seed, call by call in turn",
        "calibration": f"a plain Python loop of {_ROUNDS} rounds in the same turns, {reference_us:g} µs at "
        "the reference speed",
        "local writes": {"FULL": durable, "NORMAL": writes},
        "cached reads": f"{reads:,} of {held:,} records",
        "sqlite": sqlite3.sqlite_version,
    }
    return figures, parameters
