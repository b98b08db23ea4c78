"""The task of a scoreboard that is made of a trace and logs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from mudkit import words
from mudkit.errors import TraceContentError, TraceFormatError
from mudkit.experiment import Task, recorded_task
from mudkit.experiment.recorded import ItemLog
from mudkit.files import existing
from mudkit.report.source import TraceSource, open_source
from mudkit.sources import OutageLog
from mudkit.trace import load_links, timestamps
from mudkit.trace.formats import dialect_of, unreadable
from mudkit.trace.schema import epoch_us
from mudkit.trace.values import NO_TIME, numbers, times_us
from mudkit.units import US_PER_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["OWN", "OwnScenario", "open_scenario", "read_outages", "read_writes"]

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
    log = _Log.of(path, "writes", {"device": _DEVICE, "time": _TIME}, (*_NUMBERS, "expires"))
    table = {"device": log.texts("device"), "ts": timestamps(log.times("time", tz))}
    for name in _NUMBERS:
        if name in log.columns:
            table[name] = pa.array(log.numbers(name), from_pandas=True)
    if "expires" in log.columns:
        is_given = np.array([bool(text.strip()) for text in log.columns["expires"]], dtype=bool)
        ends = timestamps(log.times("expires", tz, may_be_empty=True))
        table["expires"] = pa.array(ends.to_numpy(zero_copy_only=False), ends.type, mask=~is_given)
    return pa.table(table)


def read_outages(path: str, tz: str) -> pa.Table:
    """Read a log of outages: ``device, begin, end``; or measured links (:func:`mudkit.trace.load_links`)."""
    file = existing(path, "log of outages")
    if file.is_dir() or file.suffix == ".parquet" or {"up", "mbps"} & set(dialect_of(file).names):
        down = load_links(file, tz=tz).outages()
        begin_us = epoch_us(down["ts"])
        end_us = begin_us + np.rint(down["duration_s"].to_numpy() * US_PER_S).astype(np.int64)
        return pa.table({"device": down["device"], "begin": timestamps(begin_us), "end": timestamps(end_us)})
    log = _Log.of(path, "outages", {"device": _DEVICE, "begin": ("begin",), "end": ("end",)}, ())
    begin_us, end_us = (log.times(name, tz) for name in ("begin", "end"))
    log.check(end_us < begin_us, "An outage ends before it begins.", "end", "an end after its begin")
    return pa.table({"device": log.texts("device"), "begin": timestamps(begin_us), "end": timestamps(end_us)})


@dataclass(frozen=True)
class _Log:
    """Columns of a CSV file as texts."""

    name: str
    first_line: int
    columns: Mapping[str, list[str]]

    @classmethod
    def of(
        cls, path: str, what: str, needed: Mapping[str, tuple[str, ...]], optional: tuple[str, ...]
    ) -> _Log:
        """Read a file; ``needed`` are columns with the names that each may have."""
        import pandas as pd

        file = existing(path, f"log of {what}")
        dialect = dialect_of(file)
        names, above = dialect.names, dialect.above
        places = {
            name: next((other for other in others if other in names), "")
            for name, others in {**needed, **{name: (name,) for name in optional}}.items()
        }
        if missing := [name for name in needed if not places[name]]:
            raise TraceFormatError(
                f"{file.name} lacks columns of a log of {what}.",
                where=str(file),
                found=words.listing(names, 20),
                expected=", ".join(missing),
                remedy=f"rename the columns; a log of {what} has " + ", ".join([*needed, *optional]),
            )
        try:
            table = pd.read_csv(
                file, sep=dialect.delimiter, encoding=dialect.encoding, skiprows=above - 1,
                names=names, header=0, dtype=str, index_col=False,
                keep_default_na=False, usecols=[place for place in places.values() if place],
            )  # fmt: skip
        except (OSError, EOFError, ValueError) as error:
            raise unreadable(file, error) from error
        if table.empty:
            raise TraceContentError(
                f"The log of {what} is empty.", where=file.name, found="no row", expected="at least one"
            )
        columns = {name: table[place].tolist() for name, place in places.items() if place}
        return cls(file.name, above + 1, columns)

    def texts(self, name: str) -> pa.Array:
        """Return a column of texts."""
        return pa.array(self.columns[name], pa.string())

    def times(self, name: str, tz: str, *, may_be_empty: bool = False) -> Any:
        """Return a column of times, µs; 0 where an optional one is empty."""
        texts = self.columns[name]
        t_us = times_us(self.texts(name), tz)
        is_empty = np.array([may_be_empty and not text.strip() for text in texts], dtype=bool)
        expected = "seconds since 1970, as 1700000000, or ISO 8601, as 2023-11-14T22:13:20Z"
        self.check((t_us == NO_TIME) & ~is_empty, "A time cannot be read.", name, expected)
        return np.where(is_empty, 0, t_us)

    def numbers(self, name: str) -> Any:
        """Return a column of numbers; NaN where one is empty."""
        values = numbers(self.texts(name))
        is_given = np.array([bool(text.strip()) for text in self.columns[name]], dtype=bool)
        self.check(np.isnan(values) & is_given, f"A {name} is no number.", name, "a number, or nothing")
        return values

    def check(self, bad: Any, summary: str, name: str, expected: str) -> None:
        """Raise an error about the first bad row, if there is one."""
        if not bad.any():
            return
        row = int(np.argmax(bad))
        more = f"; {int(bad.sum()) - 1:,} more like it" if bad.sum() > 1 else ""
        raise TraceContentError(
            summary,
            where=f"{self.name}, line {self.first_line + row}",
            found=f"{self.columns[name][row]!r} as {name}{more}",
            expected=expected,
            remedy="correct the row or remove it",
        )
