"""The task of a scoreboard that is made of a trace and logs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mudkit import words
from mudkit.errors import TraceContentError
from mudkit.experiment import Task, recorded_task
from mudkit.experiment.recorded import ItemLog
from mudkit.files import existing_path
from mudkit.report.source import TraceSource, open_source
from mudkit.sources import OutageLog
from mudkit.trace import load_links, timestamps
from mudkit.trace.formats import dialect_of
from mudkit.trace.logs import Log, check_rows
from mudkit.trace.schema import epoch_us
from mudkit.trace.times import NO_TIME
from mudkit.units import US_PER_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

OWN: Final = "this trace"
"""Name of the task."""
_DEVICE: Final = ("device", "sender")
_TIME: Final = ("time", "ts")
_NUMBERS: Final = ("lat", "lon", "rank", "size_bytes")


@dataclass(frozen=True)
class OwnScenario:
    """Task made of a trace and logs, and where it comes from."""

    task: Task
    source: TraceSource
    writes: str
    outages: str

    @property
    def recording(self) -> ItemLog:
        """Items and reads that were chosen of the logs."""
        recording = self.task.recording
        assert isinstance(recording, ItemLog)
        return recording

    def describe(self) -> str:
        """Return what was read, and which part of it is played, in a line."""
        log = self.recording
        written = self.writes or "their positions"
        of_all = f" of {self.writes}" if self.writes else ""
        if log.step > 1:
            of_all = f", one in {log.step} of {written}"
        return " · ".join(
            [
                self.source.describe(),
                f"{words.duration(3600 * log.hours)} from {log.start[:16].replace('T', ' ')} UTC",
                f"the {words.count(len(log.names), 'device')} that read and write most",
                f"{words.count(len(log.items), 'item')}{of_all}",
                words.count(len(log.reads), "read"),
            ]
        )

    def assumption(self) -> str:
        """Return what the task takes for granted, in sentences."""
        log, scenario = self.recording, self.task.scenario
        boxes, windows = (self.source.reads[name].to_numpy() for name in ("box_km", "window_s"))
        request = f"the last {_span(windows, words.duration)} within a box of {_span(boxes, words.distance)}"
        origins = self.source.reads["origin"].unique().to_pylist()
        rules = [origin.removeprefix("derived: ") for origin in origins if origin.startswith("derived")]
        reads = (
            f"Reads are derived, not recorded ({words.listing(rules)}); each asks"
            if rules
            else "Each read asks"
        )
        items = "" if self.writes else " Each position counts as an item that others may want."
        place = (
            f"When an item is written, systems know where each phone is, not where its user will ask: "
            f"{words.percent(log.foreseen_share)} of what is wanted lies around its reader at that moment."
        )
        if self.outages:
            links = f"Links fail as in {self.outages}"
        else:
            assert isinstance(scenario.outage, float)
            links = f"Outages are drawn: phones have no network {words.percent(scenario.outage)} of the time"
        return f"{reads} for {request}.{items} {place} {links} (`link={scenario.link}`)."

    def warnings(self) -> list[str]:
        """Return a sentence for each property of logs and choice that distorts the task."""
        log, scenario = self.recording, self.task.scenario
        notes = list(self.source.warnings())
        if len(log.names) < log.devices_found or log.step > 1:
            thinned = f" and one item in {log.step}" if log.step > 1 else ""
            notes.append(
                f"This page plays {words.count(len(log.names), 'device')} of {log.devices_found:,}{thinned} "
                "(`devices`, `hours`, `max_items`): what goes to every phone costs more in the whole fleet."
            )
        if isinstance(scenario.outage, OutageLog) and not scenario.outage.outages:
            notes.append("The log of outages has none of these devices in this stretch: links never fail.")
        return notes

    def phones(self) -> list[dict[str, Any]]:
        """Return a row for each phone: its name in the runs and in the logs, and its items and reads."""
        log = self.recording
        return [
            {
                "phone": f"phone-{row:05d}",
                "device": name,
                "items": sum(item.sender == row for item in log.items),
                "reads": sum(read.phone == row for read in log.reads),
            }
            for row, name in enumerate(log.names)
        ]


def _span(values: NDArray[np.float64], written: Callable[[float], str]) -> str:
    """Return a value, or the range of several, in words."""
    low, high = float(values.min()), float(values.max())
    return written(low) if low == high else f"{written(low)} to {written(high)}"


def open_scenario(
    trace: str,
    reads: str = "",
    outages: str = "",
    writes: str = "",
    *,
    devices: int,
    hours: float,
    max_items: int,
    size_bytes: int,
    link: str,
    outage: float,
    tz: str,
    **options: Any,
) -> OwnScenario:
    """Load a trace and logs, and make a task of them (:func:`mudkit.experiment.recorded_task`).

    Raises
    ------
    TraceContentError, TraceFormatError, InputMissing, ParameterError
        As :func:`mudkit.report.source.open_source` and :func:`mudkit.experiment.recorded_task`.
    """
    source = open_source(trace, reads, tz=tz, **options)
    task = recorded_task(
        source.positions,
        source.reads,
        read_writes(writes, tz) if writes else None,
        read_outages(outages, tz) if outages else None,
        name=OWN,
        devices=devices,
        hours=hours,
        max_items=max_items,
        size_bytes=size_bytes,
        link=link,
        outage=outage,
    )
    return OwnScenario(
        task, source, Path(writes).name if writes else "", Path(outages).name if outages else ""
    )


def read_writes(path: str, tz: str) -> pa.Table:
    """Read a log of items: ``device`` and ``time``; optional ``lat, lon, rank, expires, size_bytes``."""
    log = _read_log(path, "writes", {"device": _DEVICE, "time": _TIME}, (*_NUMBERS, "expires"))
    table = {"device": log.columns["device"], "ts": timestamps(log.times("time", tz))}
    for name in _NUMBERS:
        if name in log.columns:
            table[name] = pa.array(log.numbers(name, may_be_empty=True), from_pandas=True)
    if "expires" in log.columns:
        ends_us = log.times("expires", tz, may_be_empty=True)
        table["expires"] = pc.if_else(pa.array(ends_us != NO_TIME), timestamps(ends_us), None)
    return pa.table(table)


def read_outages(path: str, tz: str) -> pa.Table:
    """Read a log of outages: ``device, begin, end``; or measured links (:func:`mudkit.trace.load_links`)."""
    file = existing_path(path, "log of outages")
    if file.is_dir() or file.suffix == ".parquet" or {"up", "mbps"} & set(dialect_of(file).names):
        down = load_links(file, tz=tz).outages()
        begin_us = epoch_us(down["ts"])
        end_us = begin_us + np.rint(down["duration_s"].to_numpy() * US_PER_S).astype(np.int64)
        return pa.table({"device": down["device"], "begin": timestamps(begin_us), "end": timestamps(end_us)})
    log = _read_log(path, "outages", {"device": _DEVICE, "begin": ("begin",), "end": ("end",)})
    begin_us, end_us = (log.times(name, tz) for name in ("begin", "end"))
    check_rows(
        end_us < begin_us,
        log.at,
        "An outage ends before it begins.",
        lambda row: f"{log.columns['end'][row].as_py()!r} as end",
        "an end after its begin",
    )
    return pa.table(
        {"device": log.columns["device"], "begin": timestamps(begin_us), "end": timestamps(end_us)}
    )


def _read_log(
    path: str, what: str, required: Mapping[str, tuple[str, ...]], optional: tuple[str, ...] = ()
) -> Log:
    """Read a log with these columns; raise TraceContentError if it has no row."""
    log = Log.read(path, what, required, optional)
    if not len(log.rows):
        raise TraceContentError(
            f"The log of {what} is empty.", where=log.file.name, found="no row", expected="at least one"
        )
    return log
