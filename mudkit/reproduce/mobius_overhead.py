"""Rows M3 and M3-remote (Mobius 7.2, table 4): overhead of MUD on writes and reads.

**On the device** (speed). Bare SQLite and MUD write the same records under the same keys into files with the
same settings (WAL, ``synchronous`` as given), each record twice with different contents. Each call is one
durable transaction. The bare side encodes records as MUD does (MessagePack) and does what an application
would: one ``INSERT OR REPLACE``, one ``SELECT`` by primary key. The MUD side has no network, so only stage 1
is measured; its reads are ``committed`` and served from the cache.

Calls of both sides alternate, so that a slower machine slows both and caches of the processor are cold for
both. A seed's figure compares median calls: a checkpoint of the log hits single calls of both sides, and
shows in the means, which are reported too. A limit in µs assumes a machine of known speed, so a plain Python
loop alternates with both sides: its time over ``reference_us`` is the machine factor, by which the time over
bare SQLite is divided.

**Over a network** (virtual time). The bare peer sends one message with the same record or key over an open
connection, and a server answers at once with the version or the record; links, seeds and think times are the
same. MUD's messages also carry envelope, token and the client's state, pass servers half a millisecond
apart, and a read ends with a message of its own.

The paper's baseline opens a connection per request. Its round trips have about the sizes that RFC 9293,
RFC 8446 and RFC 5246 lead to: TCP alone (one, as the paper's plain HTTP), TCP and TLS 1.3 (two, today), TCP
and TLS 1.2 (three, at the paper's time). MUD has to be faster than the first, the fastest; it keeps its own
connection. The link charges the wake-up of the radio to both alike.
"""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean, median
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from mudkit.events import (
    Call,
    Complete,
    Effect,
    Event,
    Installed,
    Make,
    Operation,
    Ports,
    Received,
    Send,
)
from mudkit.fleet import Device
from mudkit.fleet.kernel import raise_failure
from mudkit.fleet.store import SqliteStore
from mudkit.fleet.transport import TLS_HANDSHAKE, Transport, transport_of
from mudkit.lab import Lab
from mudkit.predicates import Predicate
from mudkit.reproduce.row import Measured, Quantity, Required, Row, Say, say_nothing
from mudkit.sources.streams import Stream
from mudkit.systems.mud import Client, Cloud, freshness

_TABLE: Final = "news"
_ROUNDS: Final = 300
"""Rounds of the loop that measures the machine."""
REFERENCE_US: Final = 25.0
"""Time of the loop on the machine of the limits: CPython 3.11 on a desktop processor of 2022."""
_WORDS: Final = 20
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode

Record = dict[str, Any]


def draw_records(count: int, seed: int) -> list[tuple[str, Record]]:
    """Draw keys and records (topic, text of 160 letters, price, unique number); each key appears twice."""
    stream, steps = Stream(seed, "overhead"), np.arange(count)
    price, topic = stream.uniform(0, steps), stream.uniform(1, steps)
    words = (stream.uniform(2, np.arange(count * _WORDS)) * (1 << 31)).astype(int).reshape(count, _WORDS)
    return [
        (
            f"article-{number % (count // 2):06d}",
            {
                "topic": ("arts", "sports", "news")[int(3 * topic[number])],
                "text": "".join(f"{word:08x}" for word in words[number]),
                "price": round(100 * float(price[number]), 2),
                "number": number,
            },
        )
        for number in range(count)
    ]


class Bare:
    """An application that uses SQLite by itself."""

    def __init__(self, folder: Path, synchronous: str) -> None:
        self._file = folder / "bare.db"
        self._connection = sqlite3.connect(self._file, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute(f"PRAGMA synchronous = {synchronous}")
        self._connection.execute(
            f"CREATE TABLE {_TABLE} (key TEXT PRIMARY KEY, record BLOB NOT NULL) WITHOUT ROWID"
        )

    def write(self, key: str, record: Record) -> None:
        """Write a record durably."""
        self._connection.execute(f"INSERT OR REPLACE INTO {_TABLE} VALUES (?, ?)", (key, _encode(record)))

    def read(self, key: str) -> Record:
        """Read a record."""
        query = f"SELECT record FROM {_TABLE} WHERE key = ?"
        record: Record = _decode(self._connection.execute(query, (key,)).fetchone()[0])
        return record

    def stored(self) -> dict[str, Record]:
        """Read the content of the file over a new connection."""
        with closing(sqlite3.connect(self._file)) as connection:
            return {key: _decode(record) for key, record in connection.execute(f"SELECT * FROM {_TABLE}")}

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


class Mud:
    """A MUD client on a device with a file and, after its setup, without a network."""

    def __init__(
        self, folder: Path, synchronous: str, seed: int, cached: Sequence[tuple[str, Record]] = ()
    ) -> None:
        lab = Lab(seed)
        lab.world.on_failure = raise_failure
        self._file = folder / "mud.db"
        self._store = SqliteStore(self._file, synchronous)
        phone = _Stored(lab.device("phone", "lte"), self._store)
        self._client = Client(phone, Cloud(lab), app="news", token=lab.token("jane", "news", hours=1e6))
        self._client.create(_TABLE).result()
        for operation in [self._client.write(_TABLE, key, record) for key, record in cached]:
            operation.result()
        self._client.read(_TABLE, latest=True).result()
        lab.faults.cut("phone")
        lab.run(seconds=1)
        self._fresh = freshness(1e6)

    def write(self, key: str, record: Record) -> None:
        """Write a record durably into the local store, where it is pending (stage 1)."""
        self._client.write(_TABLE, key, record)

    def read(self, key: str) -> Record:
        """Read a cached record."""
        record: Record = (
            self._client.read(_TABLE, Predicate("key = :key", key=key), utility=self._fresh)
            .result()
            .records[key]
        )
        return record

    def stored(self) -> dict[str, Record]:
        """Read the last pending write of each key from the file over a new connection."""
        with closing(sqlite3.connect(self._file)) as connection:
            query = "SELECT value FROM store WHERE key GLOB 'write *' ORDER BY key"
            pending = [_decode(value) for (value,) in connection.execute(query)]
        return {write["key"]: write["data"] for write in pending}

    def close(self) -> None:
        """Close the file."""
        self._store.close()


class _Stored:
    """A device whose first machine stores into a given store."""

    def __init__(self, device: Device, store: SqliteStore) -> None:
        self._device = device
        self._store: SqliteStore | None = store
        self.name = device.name

    def install(self, system: str, make: Make, *, name: str = "", watch: Collection[str] = ()) -> Installed:
        """Install a machine of the device, the first one with the store; see :class:`mudkit.events.Host`."""
        store, self._store = self._store, None
        return self._device.install(system, make, name=name, watch=watch, store=store)


def _loop(*_: Any) -> None:
    """Run a fixed amount of plain Python: integers, tuples, and a dict."""
    slots: dict[int, Any] = {}
    for number in range(_ROUNDS):
        slots[number & 15] = number, slots.get(number & 7)


class _Times(NamedTuple):
    """Times of calls in µs."""

    bare_us: list[float]
    mud_us: list[float]
    loop_us: list[float]


def _time_alternately(
    bare: Callable[..., Any], mud: Callable[..., Any], calls: Sequence[tuple[Any, ...]]
) -> _Times:
    """Time both sides and the loop for the same calls, alternating."""
    clock = time.perf_counter
    times = _Times([], [], [])
    sides = list(zip((bare, mud, _loop), times, strict=True))
    for arguments in calls:
        for call, times_us in sides:
            began_s = clock()
            call(*arguments)
            times_us.append((clock() - began_s) * 1e6)
    return times


def _stored_share(side: Bare | Mud, calls: Sequence[tuple[str, Record]]) -> float:
    """Return the share of last written records that are in the file."""
    stored, expected = side.stored(), dict(calls)
    return sum(stored.get(key) == record for key, record in expected.items()) / len(expected)


def measure_local(
    say: Say = say_nothing,
    *,
    writes: int = 2000,
    durable: int = 600,
    reads: int = 4000,
    cached: int = 1000,
    seeds: Sequence[int] = (1, 2, 3, 4, 5),
    reference_us: float = REFERENCE_US,
) -> Measured:
    """Measure row M3: `durable` and `writes` are calls a side and seed at FULL and NORMAL."""
    times: dict[str, list[_Times]] = {}
    stored: list[float] = []
    for seed in seeds:
        for level, many in (("FULL", durable), ("NORMAL", writes)):
            say(f"{many:,} local writes, {level}, seed {seed}")
            with tempfile.TemporaryDirectory() as folder:
                calls = draw_records(many, seed)
                with (
                    closing(Bare(Path(folder), level)) as bare,
                    closing(Mud(Path(folder), level, seed)) as mud,
                ):
                    times.setdefault(f"local write, {level}", []).append(
                        _time_alternately(bare.write, mud.write, calls)
                    )
                    stored += [_stored_share(bare, calls), _stored_share(mud, calls)]
        say(f"{reads:,} cached reads, seed {seed}")
        with tempfile.TemporaryDirectory() as folder:
            records = draw_records(2 * cached, seed)[cached:]
            with (
                closing(Bare(Path(folder), "NORMAL")) as bare,
                closing(Mud(Path(folder), "NORMAL", seed, records)) as mud,
            ):
                for key, record in records:
                    bare.write(key, record)
                stored += [float(side.read(key) == record) for key, record in records for side in (bare, mud)]
                order = (Stream(seed, "cached reads").uniform(0, np.arange(reads)) * cached).astype(int)
                keys = [(records[place][0],) for place in order]
                times.setdefault("cached read", []).append(_time_alternately(bare.read, mud.read, keys))
    quantities: dict[str, Quantity] = {}
    for what, by_seed in times.items():
        theirs, ours, loops = ([median(times_us) for times_us in side] for side in zip(*by_seed, strict=True))
        factors = [loop_us / reference_us for loop_us in loops]
        pairs = list(zip(ours, theirs, strict=True))
        quantities |= {
            f"times bare SQLite's time, {what}": Quantity.of(mud / bare for mud, bare in pairs),
            f"µs over bare SQLite, {what}": Quantity.of(mud - bare for mud, bare in pairs),
            f"µs over bare SQLite at the reference speed, {what}": Quantity.of(
                (mud - bare) / factor for (mud, bare), factor in zip(pairs, factors, strict=True)
            ),
            f"machine factor, {what}": Quantity.of(factors),
            f"µs, {what}": Quantity.of(ours),
            f"µs, {what}, bare SQLite": Quantity.of(theirs),
            f"µs on average, {what}": Quantity.of(fmean(seed.mud_us) for seed in by_seed),
            f"µs on average, {what}, bare SQLite": Quantity.of(fmean(seed.bare_us) for seed in by_seed),
        }
    quantities["share of records that are in the files"] = Quantity.of(stored)
    parameters = {
        "on the device": "WAL, a transaction a call, each record twice with different contents; the bare "
        "side: INSERT OR REPLACE of key and MessagePack, SELECT by key; MUD without a network (stage 1); "
        "the median call of a seed, call by call in turn",
        "calibration": f"a plain Python loop of {_ROUNDS} rounds in the same turns, {reference_us:g} µs at "
        "the reference speed",
        "local writes": {"FULL": durable, "NORMAL": writes},
        "cached reads": f"{reads:,} of {cached:,} records",
        "sqlite": sqlite3.sqlite_version,
        "seeds": list(seeds),
    }
    return Measured(quantities, parameters)


M3: Final = Row(
    name="M3",
    source="Mobius 7.2, table 4",
    paper="ms, Mobius against a baseline without it: local write 94.10 against 64.99 (Nexus S: 141.69, "
    "102.02), local read 40.58 against 2.89 (51.47, 10.54): 1.45 and 14 times.",
    required=(
        Required("times bare SQLite's time, local write, FULL", "within", 1.45, 0.15),
        Required("times bare SQLite's time, cached read", "within", 14, 1.4),
        # "Local writes and reads are slower with Mobius".
        Required("µs over bare SQLite, local write, FULL", "at least", 0, is_shape=True),
        Required("µs over bare SQLite, cached read", "at least", 0, is_shape=True),
        # Ours must not be slower than this.
        Required("µs over bare SQLite at the reference speed, local write, NORMAL", "at most", 20),
        # SQLite skips writes that change nothing, so the timed ones must be in the file.
        Required("share of records that are in the files", "at least", 1),
    ),
    measure=measure_local,
    minutes=0.2,
    is_speed=True,
    known="the paper's calls are asynchronous, on a phone, and its baseline's are not; here both are plain "
    "calls, so less is added to SQLite's time",
)


_TRIPS: Final = {
    "TCP": ((60, 60),),
    "TCP and TLS 1.3": TLS_HANDSHAKE,
    "TCP and TLS 1.2": ((60, 60), (250, 3200), (330, 90)),
}
"""Bytes there and back of each round trip that opens a connection, by its protocols."""
_THINK_S: Final = (1.0, 9.0)


class _BareClient:
    """Client that sends each request, and returns its answer."""

    def __init__(self, ports: Ports) -> None:
        self._op_id = 0

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """Send a call as one message, and complete it with the next message that is received."""
        if isinstance(event, Call):
            self._op_id = event.op_id
            return (Send("server", {"op": event.operation, **event.arguments}),)
        return (Complete(self._op_id, event.message),) if isinstance(event, Received) else ()


class _BareServer:
    """Server that keeps records by key and answers at once."""

    def __init__(self, ports: Ports) -> None:
        self._records: dict[str, tuple[int, Record]] = {}

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """Answer a message: a read with version and record, a write with the record's new version."""
        if not isinstance(event, Received):
            return ()
        message = event.message
        version, record = self._records.get(message["key"], (0, {}))
        if message["op"] == "read":
            return (Send(event.source, {"key": message["key"], "ver": version, "record": record}),)
        self._records[message["key"]] = version + 1, message["record"]
        return (Send(event.source, {"ver": version + 1}),)


def _mud(lab: Lab, link: str) -> Callable[[str, str, Record], Operation]:
    """Return a function that writes or reads one record with a MUD client on such a link."""
    client = Client(
        lab.device("phone", link), Cloud(lab), app="news", token=lab.token("jane", "news", hours=1e6)
    )
    client.create(_TABLE).result()

    def ask(what: str, key: str, record: Record) -> Operation:
        return client.write(_TABLE, key, record) if what == "write" else client.read(_TABLE, f"key = '{key}'")

    return ask


def _bare(lab: Lab, link: str) -> Callable[[str, str, Record], Operation]:
    """Return a function that writes or reads one record over the same link without MUD."""
    lab.server("server").install("bare", _BareServer)
    client = lab.device("phone", link).install("bare", _BareClient)

    def ask(what: str, key: str, record: Record) -> Operation:
        sent = {"record": record} if what == "write" else {}
        return client.call(what, table=_TABLE, key=key, **sent)

    return ask


def latencies_ms(
    make: Callable[[Lab], Callable[[str, str, Record], Operation]],
    requests: int,
    seed: int,
    transport: str | Transport = "messages",
) -> dict[str, float]:
    """Return the mean latency of writes, and of reads of the same records, in virtual ms."""
    lab = Lab(seed, transport=transport, record_messages=False)
    lab.world.on_failure = raise_failure
    ask = make(lab)
    ask("write", *draw_records(2, seed)[0]).result()  # wakes the radio, as setting up a client does
    means_ms: dict[str, float] = {}
    low_s, high_s = _THINK_S
    think = Stream(seed, "think times")
    for number, what in enumerate(("write", "read")):
        wait_s = low_s + (high_s - low_s) * think.uniform(number, np.arange(requests))
        taken_us = []
        for (key, record), pause_s in zip(draw_records(requests, seed), wait_s, strict=True):
            lab.run(seconds=float(pause_s))
            began_us = lab.world.now_us
            ask(what, key, record).result()
            taken_us.append(lab.world.now_us - began_us)
        means_ms[what] = fmean(taken_us) / 1000
    return means_ms


def opened_each_time(transport: str) -> dict[str, Transport]:
    """Return transports that open a connection for each request, by what is opened.

    Requests must be a second apart. Besides the handshake, messages cost what they do in ``transport``.
    """
    kept = transport_of(transport) or Transport("messages", (), record_bytes=0, packet_bytes=0)
    return {
        name: replace(kept, name=name, handshake=trips, idle_s=0.9, ping_s=None)
        for name, trips in _TRIPS.items()
    }


def measure_remote(
    say: Say = say_nothing,
    *,
    requests: int = 500,
    seeds: Sequence[int] = (1, 2, 3, 4, 5),
    transport: str = "messages",
) -> Measured:
    """Measure row M3-remote, with as many requests of each kind a system, link and seed."""
    quantities: dict[str, Quantity] = {}
    for link, name in (("lte", "LTE"), ("umts_3g", "3G")):
        peers: dict[str, tuple[Callable[[Lab], Any], str | Transport]] = {
            "MUD": (partial(_mud, link=link), transport),
            "bare": (partial(_bare, link=link), transport),
        }
        if link == "umts_3g":
            opened = opened_each_time(transport)
            peers |= {peer: (peers["bare"][0], carrier) for peer, carrier in opened.items()}
        by_peer: dict[str, list[dict[str, float]]] = {}
        for peer, (make, carrier) in peers.items():
            say(f"{2 * requests:,} requests over {name}, {peer}, {len(seeds)} seeds")
            by_peer[peer] = [latencies_ms(make, requests, seed, carrier) for seed in seeds]
        for what in ("write", "read"):
            ours_ms = [means_ms[what] for means_ms in by_peer["MUD"]]
            for peer, by_seed in by_peer.items():
                theirs_ms = [means_ms[what] for means_ms in by_seed]
                quantities[f"ms, {what}, {name}, {peer}"] = Quantity.of(theirs_ms)
                ratios = [ours / theirs for ours, theirs in zip(ours_ms, theirs_ms, strict=True)]
                if peer == "bare":
                    quantities[f"% over bare, {what}, {name}"] = Quantity.of(100 * (r - 1) for r in ratios)
                elif peer != "MUD":
                    quantities[f"times the baseline's time, {what}, {name}, {peer}"] = Quantity.of(ratios)
    parameters = {
        "over a network": f"the mean of {requests} requests in virtual time, think times of {_THINK_S[0]:g} "
        f"to {_THINK_S[1]:g} s, without losses; bare: one message and its answer over a connection that is "
        "open; baseline: one that is opened for each request, by what is opened",
        "seeds": list(seeds),
    }
    return Measured(quantities, parameters)


M3_REMOTE: Final = Row(
    name="M3-remote",
    source="Mobius 7.2, table 4",
    paper="ms, Mobius against a baseline without it: remote write 4G 281.74 against 202.66, 3G 540.07 "
    'against 1364.45; remote read 4G 301.94 against 198.08, 3G 364.02 against 1276.38. Over 4G "up to" 39 % '
    'more for writes and "up to" 52 % for reads; over 3G "much faster" than its baseline, which opens a '
    "connection for each request.",
    required=(
        Required("% over bare, write, LTE", "at most", 39),
        Required("% over bare, read, LTE", "at most", 52),
        Required("times the baseline's time, write, 3G, TCP", "below", 1),
        Required("times the baseline's time, read, 3G, TCP", "below", 1),
    ),
    measure=measure_remote,
    minutes=0.3,
)


ROWS: Final = (M3, M3_REMOTE)
