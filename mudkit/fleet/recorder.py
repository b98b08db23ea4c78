"""The recorder: everything that happens in a world, as rows of the trace's tables, in bounded memory."""

from __future__ import annotations

import datetime as dt
import shutil
import weakref
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.feather as feather

from mudkit.errors import ParameterError, SimulationProblem, brief
from mudkit.events import Call, Record
from mudkit.files import Place, PlaceLike, place, work_folder
from mudkit.fleet.device import Device
from mudkit.fleet.energy import RADIOS, CarriedTransfer, Stretch, timeline
from mudkit.fleet.exposure import Exposure
from mudkit.fleet.host import Host, Operation, Process
from mudkit.fleet.kernel import World
from mudkit.fleet.link import Leg, Transfer
from mudkit.sources.courses import Places
from mudkit.trace import TraceWriter
from mudkit.trace.schema import POSITIONS, REJECTED, SCHEMAS, epoch_us, with_read_ids
from mudkit.wire import wire_fields

TABLES: Final = (
    "positions", "reads", "links", "incidents", "messages", "transfers", "operations", "deliveries",
    "usage", "bill",
)  # fmt: skip
"""Names of the tables of a recorder."""

_ROWS_IN_MEMORY: Final = 1 << 18
_MAX_ANSWERS: Final = 64
"""Operations that are made into rows at once: one after the other, they take half the time."""
_CONTENT: Final = 200
_DETAIL: Final = 1000


_CREATED, _DELIVERED, _READ, _EXPIRED, _REFUSED = range(5)
_FIELDS: Final = {
    "created_us": _CREATED,
    "delivered_us": _DELIVERED,
    "read_us": _READ,
    "expired_us": _EXPIRED,
    "refused_us": _REFUSED,
}


def iso_time(t_us: int) -> str:
    """Format µs since 1970 (UTC) as ISO 8601 text."""
    return (dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=t_us)).isoformat()


_NO_DETAILS: Final[Sequence[Mapping[str, Any]]] = ({},)
_encode = msgspec.json.Encoder(enc_hook=repr).encode


def _shortened(value: Any) -> str | None:
    """Return a value as a text of bounded length for a column; None stays None."""
    return value if value is None or type(value) is str else brief(value, _CONTENT)


def _merge_details(details: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Return the details of an operation, one row for each record: a later one updates the earlier."""
    if len(details) == 1:
        return details
    merged: dict[tuple[Any, Any], Mapping[str, Any]] = {}
    for row in details:
        place = row.get("table"), row.get("key")
        merged[place] = {**merged[place], **row} if place in merged else row
    return list(merged.values())


_Answer: TypeAlias = tuple[Process, int, Call, int, int | None, str, Sequence[Mapping[str, Any]] | None]
"""Source of the rows of an operation, without its result, which may be large."""


def _answer_of(operation: Operation) -> _Answer:
    """Return what is kept of an operation until its rows are made."""
    return (
        operation.process, operation.start_number, operation.call, operation.invoked_us,
        operation.responded_us, operation.status, operation.details,
    )  # fmt: skip


def _operation_rows(answers: Iterable[_Answer]) -> list[tuple[Any, ...]]:
    """Return the rows of operations: one for each record that one concerns, as what the machine calls it."""
    rows: list[tuple[Any, ...]] = []
    for process, session, call, invoked_us, responded_us, status, details in answers:
        called, client, name = call.operation, process.client, call.name
        argument = call.arguments.get if isinstance(called, str) else partial(getattr, called)
        for detail in _NO_DETAILS if details is None else _merge_details(details):
            described = detail.get
            table = described("table") or argument("table", None)
            key = described("key") or argument("key", None)
            kind = described("type") or argument("type", None)
            hashed = described("value_hash")
            rows.append((
                client, session, call.op_id, described("op") or name,
                table if type(table) is str else _shortened(table),
                key if type(key) is str else _shortened(key),
                kind if type(kind) is str else _shortened(kind),
                invoked_us, responded_us, status, described("version"),
                hashed() if callable(hashed) else hashed,
            ))  # fmt: skip
    return rows


def _is_time(value: Any) -> bool:
    """Return whether a value is a whole number, and not a truth value."""
    return isinstance(value, int) and not isinstance(value, bool)


def _transfer_row(leg: Leg, ended_us: int, carried_bytes: int, is_cut: bool) -> tuple[Any, ...]:
    """Return the row of a transfer that has left its link, or was cut on it, at ``ended_us``."""
    account = leg.account
    return (
        account.system, account.device, account.direction, leg.begun_us, min(leg.start_us, ended_us),
        ended_us, leg.transfer.size_bytes, carried_bytes, is_cut,
    )  # fmt: skip


def _filter_rows(table: pa.Table, column: str, value: str) -> pa.Table:
    """Return the rows of a table in which a column has a value."""
    return table.filter(pc.equal(table[column], value))


class Deliveries:
    """Deliveries of items: one row per (system, item, receiver), updated by each record of it."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str, str], list[int | None]] = {}

    def record(self, system: str, row: Mapping[str, Any]) -> bool:
        """Merge a record into its row, and return whether the item has been created so far.

        ``row`` has ``item``, ``receiver`` and some of the times ``created_us``, ``delivered_us``,
        ``read_us``, ``refused_us`` (the earliest counts) and ``expired_us`` (the last record counts).
        Otherwise SimulationProblem is raised.
        """
        times = {name: row[name] for name in _FIELDS if row.get(name) is not None}
        unknown = set(row) - {"item", "receiver", *_FIELDS}
        if unknown or not {"item", "receiver"} <= set(row) or not all(map(_is_time, times.values())):
            raise SimulationProblem(
                "A machine has recorded a delivery that cannot be read.",
                where=system,
                found=", ".join(f"{name}: {value!r}" for name, value in row.items()),
                expected=f"item, receiver, and some of {', '.join(_FIELDS)} in whole µs",
            )
        known = self._rows.setdefault((system, str(row["item"]), str(row["receiver"])), [None] * 5)
        for name, time_us in times.items():
            place = _FIELDS[name]
            before_us = known[place]
            if before_us is None or place == _EXPIRED or time_us < before_us:
                known[place] = time_us
        return known[_CREATED] is not None

    def rows(self, now_us: int) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of the trace's table, sorted by creation, system, item and receiver.

        Items that were never created have no row: any peer can claim that something is an item.
        """
        created_only = [(key, times) for key, times in self._rows.items() if times[_CREATED] is not None]
        in_order = sorted(created_only, key=lambda item: (item[1][_CREATED] or 0, item[0]))
        for key, (created, delivered, read, expired, refused) in in_order:
            assert created is not None
            latency_s = None if delivered is None else (delivered - created) / 1e6
            staleness_s = None if read is None else (read - created) / 1e6
            over = expired is not None and expired <= now_us
            if refused is not None:
                status = "refused"
            elif read is not None and (expired is None or read <= expired):
                status = "read"
            elif over:
                status = "expired"
            else:
                status = "lost" if delivered is None else "unread"
            yield (*key, created, delivered, read, expired, latency_s, staleness_s, status)


class _DeviceNames:
    """The names of a world's devices, for membership tests only."""

    def __init__(self, world: World) -> None:
        self._hosts = world.hosts

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and isinstance(self._hosts.get(name), Device)


class Recorder:
    """Records of what happens in a world, whose ``on_`` attributes it sets.

    ``start_us`` is the start of virtual time in µs since 1970 (UTC), ``description`` the manifest of the
    trace without systems and end. ``messages``: record each message and transfer; ``exposure``: what each
    party held.
    """

    def __init__(
        self,
        world: World,
        start_us: int,
        description: dict[str, Any],
        *,
        messages: bool = True,
        exposure: bool = False,
    ) -> None:
        self.world = world
        self.start_us = start_us
        self.description = description
        self.exposure = Exposure() if exposure else None
        self.deliveries = Deliveries()
        self._rows: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
        self._places: list[tuple[pa.Array, int, Places]] = []
        self._files: dict[str, list[Path]] = defaultdict(list)
        self._folder: Path | None = None
        self._offline: set[str] = set()
        self._links: dict[str, tuple[Any, ...]] = {}
        """Rows of the latest time at which links changed: the last one of each device counts."""
        self._links_us = 0
        self._devices = _DeviceNames(world)
        self._open: dict[Operation, None] = {}
        """Operations without an answer, including lost ones, in order of their calls."""
        self._answers: list[_Answer] = []
        """Answered operations that are not rows yet."""
        world.on_link = self._record_link
        world.on_incident = self._record_incident
        world.on_failure = self._record_failure
        world.on_record = self._record_row
        world.on_install = self._watch_store
        world.on_operation = self._record_invocation
        world.on_answer = self._record_answer
        if messages:
            world.on_leg = self._record_transfer
        if messages or exposure:
            world.on_fate = self._record_fate
        self._with_messages = messages
        self.failures = 0
        """Number of failures so far."""

    # -- what comes in

    def record_positions(self, names: pa.Array, places: Places) -> None:
        """Record the places of some devices at the current time."""
        self._places.append((names, self.world.now_us, places))
        if len(self._places) * len(names) >= _ROWS_IN_MEMORY:
            self._spill("positions", self._pop_positions())

    def add(self, table: str, row: tuple[Any, ...]) -> None:
        """Add a row to a table, with virtual times in µs; many rows are moved to a file."""
        rows = self._rows[table]
        rows.append(row)
        if len(rows) >= _ROWS_IN_MEMORY:
            self._spill(table, self._pop_table(table))

    def _watch_store(self, process: Process) -> None:
        """Record what a newly installed machine stores, if the lab records exposure."""
        exposure, host, system = self.exposure, process.host.name, process.system
        if exposure is not None:
            process.store.at_put = lambda key, value: exposure.record(
                host, system, "stored", {"key": key, "value": value}, self.world.now_us
            )

    def _record_link(self, device: Device) -> None:
        """Record the state of a device's link; of several changes at one time, the last counts."""
        link, now_us = device.link, self.world.now_us
        if self._links_us != now_us:
            links, self._links, self._links_us = self._links, {}, now_us
            for row in links.values():
                self.add("links", row)
        self._links[device.name] = (
            device.name,
            now_us,
            device.is_online,
            link.down_kbps,
            link.up_kbps,
            link.latency_ms,
        )
        if (device.name in self._offline) == device.is_online:
            self._offline ^= {device.name}
            self._record_incident(device, "link up" if device.is_online else "link down", None)

    def _record_incident(self, host: Host, incident: str, detail: str | None) -> None:
        """Record an incident of a host."""
        self.add("incidents", (host.name, self.world.now_us, incident, detail, None))

    def _record_machine_incident(self, process: Process, incident: str, detail: str | None) -> None:
        """Record an incident that a machine reports, with its system."""
        what = None if detail is None else detail[:_DETAIL]
        self.add("incidents", (process.host.name, self.world.now_us, incident, what, process.system))

    def _record_failure(self, host: Host, system: str, error: Exception) -> None:
        """Record and count an exception of a machine or a callback."""
        notes = "; ".join(getattr(error, "__notes__", ()))
        what = f"{type(error).__name__}: {error}\n{notes}"[:_DETAIL]
        self.failures += 1
        self.add("incidents", (host.name, self.world.now_us, "failed", what, system))

    def _record_transfer(self, leg: Leg, carried_bytes: int, is_cut: bool) -> None:
        """Record a transfer that has left a link, or was cut on it."""
        ended_us = max(min(leg.end_us, self.world.now_us), leg.begun_us) if is_cut else leg.end_us
        self.add("transfers", _transfer_row(leg, ended_us, carried_bytes, is_cut))

    def _record_fate(self, transfer: Transfer, fate: str) -> None:
        """Record what became of a message, and what its receiver holds by it."""
        if self._with_messages:
            self.add("messages", self._message_row(transfer, fate, self.world.now_us))
        if self.exposure is not None and fate in ("arrived", "repeated"):
            sender: Process = transfer.sender
            party = self.world.at_address[transfer.to].host.name
            self.exposure.record_message(
                party, sender.system, sender.host.name, transfer.message, self.world.now_us, self._devices
            )

    def _message_row(self, transfer: Transfer, fate: str, ended_us: int | None) -> tuple[Any, ...]:
        """Return the row of a message; ``ended_us`` None: it is under way."""
        message = transfer.message
        fields = wire_fields(message)
        kind, key = fields.get("kind"), fields.get("key")
        target = self.world.at_address.get(transfer.to)
        try:
            content = _encode(message)[:_CONTENT].decode(errors="ignore")
        except RecursionError:
            content = brief(message, _CONTENT)
        return (
            transfer.sender.system, transfer.sender.host.name, None if target is None else target.host.name,
            transfer.sent_us, ended_us, transfer.size_bytes, fate, _shortened(kind),
            _shortened(key), content,
        )  # fmt: skip

    def _record_row(self, process: Process, effect: Record) -> None:
        """Record the row of a machine's Record in its table, or raise SimulationProblem for another table."""
        table, row = effect.table, effect.row
        if table == "operations":
            op_id = row.get("op_id")
            operation = process.open.get(op_id or 0) or self._find_lost_operation(process, op_id)
            if operation.details is None:
                operation.details = [row]
            else:
                operation.details.append(row)
        elif table == "deliveries":
            if not self.deliveries.record(process.system, row):
                item = (
                    f"item {row['item']!r} for {row['receiver']!r}, which nobody has recorded with created_us"
                )
                self._record_machine_incident(process, "dropped", item)
        elif table == "reads":
            self.record_read(process.host, row["box_km"], row["window_s"])
        elif table == "usage":
            self.add("usage", tuple(row.values()))
        elif table == "incidents":
            self._record_machine_incident(process, row["incident"], _shortened(row.get("detail")))
        else:
            raise SimulationProblem(
                f"A machine has recorded a row of {table!r}.",
                where=f"{process.system} on {process.host.name}",
                found=table,
                expected="deliveries, operations, reads, usage or incidents",
            )

    def record_read(self, host: Host, box_km: float, window_s: float) -> None:
        """Record that a device reads the surroundings of its place, if it has one."""
        loc = host.context.get("loc")
        if loc is not None:
            self.add("reads", (host.name, self.world.now_us, *loc, box_km, window_s, "recorded"))

    def _find_lost_operation(self, process: Process, op_id: Any) -> Operation:
        """Return an open operation of a former start, by its number; or raise SimulationProblem."""
        for operation in self._open:
            if operation.call.op_id == op_id and operation.process.host is process.host:
                return operation
        raise SimulationProblem(
            "A machine has described an operation that is not open.",
            where=f"{process.system} on {process.host.name}",
            found=f"op_id {op_id}",
            expected="the op_id of a call that it has not completed: first Record, then Complete",
        )

    def _record_invocation(self, operation: Operation) -> None:
        """Note that an operation was called and is open."""
        self._open[operation] = None

    def _record_answer(self, operation: Operation) -> None:
        """Note that an operation was answered; its rows are made with those of others."""
        del self._open[operation]
        answered = self._answers
        answered.append(_answer_of(operation))
        if len(answered) >= _MAX_ANSWERS:
            self._convert_answers()

    def _convert_answers(self) -> None:
        """Convert the answered operations into rows."""
        rows = self._rows["operations"]
        rows += _operation_rows(self._answers)
        self._answers.clear()
        if len(rows) >= _ROWS_IN_MEMORY:
            self._spill("operations", self._pop_table("operations"))

    # -- what goes out

    def pieces(self, name: str) -> Iterator[pa.Table]:
        """Yield a table in pieces, each with its schema; open rows are in the last one."""
        if name == "operations":
            self._convert_answers()
        for file in self._files[name]:
            yield feather.read_table(file)
        if name == "positions":
            yield self._positions_table(self._places)
        elif name not in TABLES:
            raise ParameterError(
                "A lab has no such table.", where="name", found=brief(name), expected=", ".join(TABLES)
            )
        elif name == "bill":
            yield self._build_table(name, [tuple(row) for row in self.world.bill()])
        elif name == "deliveries":
            yield self._build_table(name, list(self.deliveries.rows(self.world.now_us)))
        else:
            more: list[tuple[Any, ...]] = []
            if name == "messages" and self._with_messages:
                more = [
                    self._message_row(transfer, "under way", None)
                    for transfer in self.world.transfers_under_way()
                ]
            elif name == "transfers" and self._with_messages:
                more = [
                    _transfer_row(leg, leg.end_us, leg.transfer.size_bytes, False)
                    for leg in self.world.legs_on_way()
                ]
            elif name == "links":
                more = list(self._links.values())
            elif name == "operations":
                more = _operation_rows(map(_answer_of, self._open))
            yield self._build_table(name, self._rows[name] + more)

    def table(self, name: str) -> pa.Table:
        """Return a whole table of the trace, by a ``name`` of :data:`TABLES`."""
        return pa.concat_tables(self.pieces(name))

    def radio_stretches(self, device: Device) -> list[Stretch]:
        """Return the states of a device's radio over all networks that it has had."""
        world, start_us = self.world, self.start_us
        if world.on_leg is None:
            raise ParameterError(
                "This lab does not record transfers.", remedy="make it with Lab(…, record_messages=True)"
            )
        rows = _filter_rows(self.table("transfers"), "device", device.name)
        times = (epoch_us(rows[name]) - start_us for name in ("begun", "started", "ended"))
        ways, sizes = rows["direction"].to_pylist(), rows["carried_bytes"].to_pylist()
        carried = [
            CarriedTransfer(*row)
            for row in zip(ways, *(column.tolist() for column in times), sizes, strict=True)
            if row[0] in ("up", "down")  # not of its short-range radio
        ]
        carried += device.link.carried_so_far(world.now_us)
        down = _filter_rows(
            _filter_rows(self.table("incidents"), "device", device.name), "incident", "link down"
        )
        downs_us = np.asarray(epoch_us(down["ts"]) - start_us)
        stretches: list[Stretch] = []
        profiles = [*device.link.profiles, (world.now_us, device.link.profile)]
        for (from_us, profile), (until_us, _) in pairwise(profiles):
            then = [
                transfer for transfer in carried if from_us <= transfer.begun_us < max(until_us, from_us + 1)
            ]
            downs = downs_us[(downs_us >= from_us) & (downs_us <= until_us)].tolist()
            stretches += timeline(RADIOS[profile.name], then, downs, until_us, from_us)
        return stretches

    def to_parquet(self, path: PlaceLike, *, overwrite: bool = False) -> Place:
        """Write all tables as a trace folder, as of now, and return it; the same run writes the same bytes.

        At an address (:func:`mudkit.files.place`) the names of the files differ.

        Raises
        ------
        OutputExists, OutputProblem
            The folder exists already, or cannot be written; nothing is left behind.
        """
        systems = {process.system for host in self.world.hosts.values() for process in host.processes}
        described = {
            **self.description,
            "systems": sorted(systems),
            "end": iso_time(self.start_us + self.world.now_us),
            "rejected": {},
        }
        with TraceWriter.open(path, described, overwrite=overwrite) as writer:
            for name in TABLES:
                for piece in self.pieces(name):
                    writer.write(name, piece)
            writer.write("rejected", REJECTED.empty_table())
        return place(path)

    def _pop_table(self, name: str) -> pa.Table:
        """Return the rows of a table that are in memory as an Arrow table, and forget them."""
        rows, self._rows[name] = self._rows[name], []
        return self._build_table(name, rows)

    def _pop_positions(self) -> pa.Table:
        """Return the positions that are in memory as an Arrow table, and forget them."""
        places, self._places = self._places, []
        return self._positions_table(places)

    def _positions_table(self, places: list[tuple[pa.Array, int, Places]]) -> pa.Table:
        """Return positions as an Arrow table: one row for each device and time."""
        if not places:
            return POSITIONS.empty_table()
        names = pa.chunked_array([group for group, _, _ in places]).combine_chunks()
        t_us = np.repeat([at for _, at, _ in places], [len(group) for group, _, _ in places])
        lat, lon, speed = (
            np.concatenate(parts) for parts in zip(*(arrays for *_, arrays in places), strict=True)
        )
        speeds = pa.array(speed, mask=np.isnan(speed))
        ts = pa.array(t_us + self.start_us).cast(POSITIONS.field("ts").type)
        return pa.table([names, ts, pa.array(lat), pa.array(lon), speeds], schema=POSITIONS)

    def _build_table(self, name: str, rows: list[tuple[Any, ...]]) -> pa.Table:
        """Return rows as an Arrow table with the trace's schema and calendar times."""
        schema = SCHEMAS[name]
        if name == "reads":
            schema = pa.schema([field for field in schema if field.name != "read_id"])
        columns = []
        for field, values in zip(schema, list(zip(*rows, strict=True)) or [()] * len(schema), strict=True):
            if pa.types.is_timestamp(field.type):
                times = [None if value is None else value + self.start_us for value in values]
                columns.append(pa.array(times, pa.int64()).cast(field.type))
            else:
                columns.append(pa.array(values, field.type))
        table = pa.table(columns, schema=schema)
        return with_read_ids(table) if name == "reads" else table

    def _spill(self, name: str, table: pa.Table) -> None:
        """Move rows from memory into a file, which is deleted with this recorder."""
        if self._folder is None:
            self._folder = work_folder()
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        file = self._folder / f"{name}-{len(self._files[name]):05d}.arrow"
        feather.write_feather(table, file, compression="lz4")
        self._files[name].append(file)
