"""The recorder: everything that happens in a world, as rows of the trace's tables, in bounded memory."""

from __future__ import annotations

import datetime as dt
import os
import shutil
import weakref
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.feather as feather

from mudkit.errors import ParameterError, SimulationProblem, brief
from mudkit.events import Record
from mudkit.files import work_folder
from mudkit.fleet.device import Device
from mudkit.fleet.energy import RADIOS, Carried, Stretch, timeline
from mudkit.fleet.exposure import Held
from mudkit.fleet.host import Host, Operation, Process
from mudkit.fleet.kernel import World
from mudkit.fleet.link import Leg, Transfer
from mudkit.sources.courses import Places
from mudkit.trace import TraceWriter
from mudkit.trace.schema import POSITIONS, REJECTED, SCHEMAS, epoch_us, with_read_ids
from mudkit.wire import wire_fields

__all__ = ["TABLES", "Deliveries", "Recorder", "moment"]

TABLES: Final = (
    "positions", "reads", "links", "incidents", "messages", "transfers", "operations", "deliveries", "bill",
)  # fmt: skip
"""What a recorder gives."""

_ROWS_IN_MEMORY: Final = 1 << 18
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


def moment(t_us: int) -> str:
    """Write µs since 1970 (UTC) as text."""
    return (dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=t_us)).isoformat()


_encode = msgspec.json.Encoder(enc_hook=repr).encode


def _text(value: Any) -> str | None:
    return value if value is None or type(value) is str else brief(value, _CONTENT)


def _is_time(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _rows(table: pa.Table, column: str, value: str) -> pa.Table:
    return table.filter(pc.equal(table[column], value))


class Deliveries:
    """One row per (system, item, receiver); what is noted of one is put into its row."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str, str], list[int | None]] = {}

    def note(self, system: str, row: Mapping[str, Any]) -> bool:
        """Note something of an item.

        Parameters
        ----------
        system : str
        row : mapping
            ``item``, ``receiver``, and some of ``created_us``, ``delivered_us``, ``read_us``, ``refused_us``
            (of each the earliest counts), ``expired_us`` (when it will be, or was: the last that is noted
            counts): virtual times.

        Returns
        -------
        bool
            Whether the item has been created so far.

        Raises
        ------
        SimulationProblem
            A field is missing or unknown, or a time is none.
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
        """Give the rows in the columns of the trace's table, sorted by creation, system, item and receiver.

        An item that nobody has created has no row: a peer can say of anything that it is an item.
        """
        created_only = [(key, times) for key, times in self._rows.items() if times[_CREATED] is not None]
        in_order = sorted(created_only, key=lambda each: (each[1][_CREATED] or 0, each[0]))
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


class _Devices:
    """The names of a world's devices."""

    def __init__(self, world: World) -> None:
        self._hosts = world.hosts

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and isinstance(self._hosts.get(name), Device)


class Recorder:
    """Write down what happens in a world.

    Parameters
    ----------
    world : World
    start_us : int
        What its time 0 is, in µs since 1970 (UTC).
    description : dict
        What goes into the manifest of its trace, beside the systems that are installed and the time.
    messages : bool
        Whether to write down every message and transfer.
    held : bool
        Whether to keep what each party held.
    """

    def __init__(
        self,
        world: World,
        start_us: int,
        description: dict[str, Any],
        *,
        messages: bool = True,
        held: bool = False,
    ) -> None:
        self.world = world
        self.start_us = start_us
        self.description = description
        self.held = Held() if held else None
        self.deliveries = Deliveries()
        self._rows: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
        self._places: list[tuple[pa.Array, int, Places]] = []
        self._files: dict[str, list[Path]] = defaultdict(list)
        self._folder: Path | None = None
        self._offline: set[str] = set()
        self._links: dict[str, tuple[Any, ...]] = {}
        """Rows of the latest time at which links changed: of each device the last one counts."""
        self._links_us = 0
        self._devices = _Devices(world)
        self._open: dict[Operation, None] = {}
        """Operations without an answer, those included that will never have one; in their order."""
        world.on_link = self._link
        world.on_incident = self._incident
        world.on_failure = self._failure
        world.on_record = self._record
        world.on_install = self._watch_store
        world.on_operation = self._invoked
        world.on_answer = self._answered
        if messages:
            world.on_leg = self._leg
        if messages or held:
            world.on_fate = self._fate
        self._with_messages = messages
        self.failures = 0
        """Number of failures so far."""

    # -- what comes in

    def positions(self, names: pa.Array, places: Places) -> None:
        """Write down where devices are now."""
        self._places.append((names, self.world.now_us, places))
        if len(self._places) * len(names) >= _ROWS_IN_MEMORY:
            self._spill("positions", self._take_places())

    def add(self, table: str, row: tuple[Any, ...]) -> None:
        """Write down a row; times are virtual µs."""
        rows = self._rows[table]
        rows.append(row)
        if len(rows) >= _ROWS_IN_MEMORY:
            self._spill(table, self._take(table))

    def _watch_store(self, process: Process) -> None:
        held, host, system = self.held, process.host.name, process.system
        if held is not None:
            process.store.at_put = lambda key, value: held.note(
                host, system, "stored", {"key": key, "value": value}, self.world.now_us
            )

    def _link(self, device: Device) -> None:
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
            self._incident(device, "link up" if device.is_online else "link down", None)

    def _incident(self, host: Host, incident: str, detail: str | None) -> None:
        self.add("incidents", (host.name, self.world.now_us, incident, detail, None))

    def _machine_incident(self, process: Process, incident: str, detail: str | None) -> None:
        what = None if detail is None else detail[:_DETAIL]
        self.add("incidents", (process.host.name, self.world.now_us, incident, what, process.system))

    def _failure(self, host: Host, system: str, error: Exception) -> None:
        notes = "; ".join(getattr(error, "__notes__", ()))
        what = f"{type(error).__name__}: {error}\n{notes}"[:_DETAIL]
        self.failures += 1
        self.add("incidents", (host.name, self.world.now_us, "failed", what, system))

    def _leg(self, leg: Leg, carried_bytes: int, is_cut: bool) -> None:
        ended_us = max(min(leg.end_us, self.world.now_us), leg.begun_us) if is_cut else leg.end_us
        self.add(
            "transfers",
            (leg.account.system, leg.account.device, leg.account.direction, leg.begun_us,
             min(leg.start_us, ended_us), ended_us, leg.transfer.size_bytes, carried_bytes, is_cut),
        )  # fmt: skip

    def _fate(self, transfer: Transfer, fate: str) -> None:
        if self._with_messages:
            self.add("messages", self._message(transfer, fate, self.world.now_us))
        if self.held is not None and fate in ("arrived", "repeated"):
            sender: Process = transfer.sender
            party = self.world.at_address[transfer.to].host.name
            self.held.message(
                party, sender.system, sender.host.name, transfer.message, self.world.now_us, self._devices
            )

    def _message(self, transfer: Transfer, fate: str, ended_us: int | None) -> tuple[Any, ...]:
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
            transfer.sent_us, ended_us, transfer.size_bytes, fate, _text(kind),
            _text(key), content,
        )  # fmt: skip

    def _record(self, process: Process, effect: Record) -> None:
        row = effect.row
        if effect.table == "deliveries":
            if not self.deliveries.note(process.system, row):
                item = (
                    f"item {row['item']!r} for {row['receiver']!r}, which nobody has recorded with created_us"
                )
                self._machine_incident(process, "dropped", item)
        elif effect.table == "operations":
            self._describe(process, row)
        elif effect.table == "reads":
            self.read(process.host, row["box_km"], row["window_s"])
        elif effect.table == "incidents":
            self._machine_incident(process, row["incident"], _text(row.get("detail")))
        else:
            raise SimulationProblem(
                f"A machine has recorded a row of {effect.table!r}.",
                where=f"{process.system} on {process.host.name}",
                found=effect.table,
                expected="deliveries, operations, reads or incidents",
            )

    def read(self, host: Host, box_km: float, window_s: float) -> None:
        """Write down that a device asks for what is around it; one that knows no place cannot ask."""
        loc = host.context.get("loc")
        if loc is not None:
            self.add("reads", (host.name, self.world.now_us, *loc, box_km, window_s, "recorded"))

    def _describe(self, process: Process, row: Mapping[str, Any]) -> None:
        """Keep what a machine says of an operation: a row for each record that it concerns.

        What it says later of the same record adds to that, or stands instead.
        """
        operation = process.open.get(row.get("op_id", 0)) or self._lost(process, row.get("op_id"))
        place = row.get("table"), row.get("key")
        if operation.details is None:
            operation.details = {place: row}
        else:
            known = operation.details.get(place)
            operation.details[place] = row if known is None else {**known, **row}

    def _lost(self, process: Process, op_id: Any) -> Operation:
        """Give an operation that a machine describes though its former life was asked for it."""
        for operation in self._open:
            if operation.call.op_id == op_id and operation.process.host is process.host:
                return operation
        raise SimulationProblem(
            "A machine has described an operation that is not open.",
            where=f"{process.system} on {process.host.name}",
            found=f"op_id {op_id}",
            expected="the op_id of a call that it has not completed: first Record, then Complete",
        )

    def _invoked(self, operation: Operation) -> None:
        self._open[operation] = None

    def _answered(self, operation: Operation) -> None:
        del self._open[operation]
        for row in self._operations(operation):
            self.add("operations", row)

    def _operations(self, operation: Operation) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of an operation: one for each record that it concerns."""
        call, asked = operation.call, operation.call.asked
        for detail in ({},) if operation.details is None else operation.details.values():
            said = {**asked, **detail}
            hashed = detail.get("value_hash")
            yield (
                operation.process.host.name, operation.session, call.op_id, call.name,
                _text(said.get("table")), _text(said.get("key")), _text(said.get("type")),
                operation.invoked_us, operation.responded_us, operation.status, detail.get("version"),
                hashed() if callable(hashed) else hashed,
            )  # fmt: skip

    # -- what goes out

    def pieces(self, name: str) -> Iterator[pa.Table]:
        """Give a table in pieces, each with its schema; what is open or under way now is in the last."""
        for file in self._files[name]:
            yield feather.read_table(file)
        if name == "positions":
            yield self._positions(self._places)
        elif name not in TABLES:
            raise ParameterError(
                "A lab has no such table.", where="name", found=brief(name), expected=", ".join(TABLES)
            )
        elif name == "bill":
            yield self._table(name, [tuple(row) for row in self.world.bill()])
        elif name == "deliveries":
            yield self._table(name, list(self.deliveries.rows(self.world.now_us)))
        else:
            more: list[tuple[Any, ...]] = []
            if name == "messages" and self._with_messages:
                more = [self._message(each, "under way", None) for each in self.world.under_way()]
            elif name == "links":
                more = list(self._links.values())
            elif name == "operations":
                more = [row for each in self._open for row in self._operations(each)]
            yield self._table(name, self._rows[name] + more)

    def table(self, name: str) -> pa.Table:
        """Give a table whole."""
        return pa.concat_tables(self.pieces(name))

    def radio_stretches(self, device: Device) -> list[Stretch]:
        """Return the stretches of a device's radio without a gap, over all networks that it has had.

        Raises
        ------
        ParameterError
            Transfers were not recorded.
        """
        world, start_us = self.world, self.start_us
        if world.on_leg is None:
            raise ParameterError(
                "This lab does not record transfers.", remedy="make it with Lab(…, record_messages=True)"
            )
        rows = _rows(self.table("transfers"), "device", device.name)
        times = (epoch_us(rows[name]) - start_us for name in ("begun", "started", "ended"))
        ways, sizes = rows["direction"].to_pylist(), rows["carried_bytes"].to_pylist()
        carried = [Carried(*row) for row in zip(ways, *(each.tolist() for each in times), sizes, strict=True)]
        carried += device.link.carried_so_far(world.now_us)
        down = _rows(_rows(self.table("incidents"), "device", device.name), "incident", "link down")
        downs_us = np.asarray(epoch_us(down["ts"]) - start_us)
        stretches: list[Stretch] = []
        profiles = [*device.link.profiles, (world.now_us, device.link.profile)]
        for (from_us, profile), (until_us, _) in pairwise(profiles):
            then = [each for each in carried if from_us <= each.begun_us < max(until_us, from_us + 1)]
            downs = downs_us[(downs_us >= from_us) & (downs_us <= until_us)].tolist()
            stretches += timeline(RADIOS[profile.name], then, downs, until_us, from_us)
        return stretches

    def to_parquet(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write all tables as a trace folder, as of now; the same run gives the same bytes.

        Parameters
        ----------
        path : path-like
        overwrite : bool
            Replace a trace that is there.

        Returns
        -------
        Path
            The folder, which :mod:`mudkit.trace` and :mod:`mudkit.pipeline` read.

        Raises
        ------
        OutputExists, OutputProblem
            The folder is there already, or cannot be written; nothing is left behind.
        """
        systems = {process.system for host in self.world.hosts.values() for process in host.processes}
        described = {
            **self.description,
            "systems": sorted(systems),
            "end": moment(self.start_us + self.world.now_us),
            "rejected": {},
        }
        with TraceWriter.open(path, described, overwrite=overwrite) as writer:
            for name in TABLES:
                for piece in self.pieces(name):
                    writer.write(name, piece)
            writer.write("rejected", REJECTED.empty_table())
        return Path(path)

    def _take(self, name: str) -> pa.Table:
        rows, self._rows[name] = self._rows[name], []
        return self._table(name, rows)

    def _take_places(self) -> pa.Table:
        places, self._places = self._places, []
        return self._positions(places)

    def _positions(self, places: list[tuple[pa.Array, int, Places]]) -> pa.Table:
        if not places:
            return POSITIONS.empty_table()
        names = pa.chunked_array([each for each, _, _ in places]).combine_chunks()
        t_us = np.repeat([at for _, at, _ in places], [len(each) for each, _, _ in places])
        lat, lon, speed = (
            np.concatenate(parts) for parts in zip(*(each for *_, each in places), strict=True)
        )
        speeds = pa.array(speed, mask=np.isnan(speed))
        ts = pa.array(t_us + self.start_us).cast(POSITIONS.field("ts").type)
        return pa.table([names, ts, pa.array(lat), pa.array(lon), speeds], schema=POSITIONS)

    def _table(self, name: str, rows: list[tuple[Any, ...]]) -> pa.Table:
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
        """Put rows into a file that goes with this recorder."""
        if self._folder is None:
            self._folder = work_folder()
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        file = self._folder / f"{name}-{len(self._files[name]):05d}.arrow"
        feather.write_feather(table, file, compression="lz4")
        self._files[name].append(file)
