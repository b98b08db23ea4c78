"""The trace of a report: its tables in memory, the rows that were set aside, and what distorts it."""

from __future__ import annotations

import difflib
import os
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mudkit import trace as traces
from mudkit import words
from mudkit.errors import TraceContentError
from mudkit.files import Place, existing, is_address, is_folder, size_bytes, sizes_below
from mudkit.report.recording import (
    BREAK,
    BREAK_DAYS,
    HOLE,
    Recording,
    Zones,
    compare_zones,
    is_recorded,
    record,
)
from mudkit.report.selection import Selection
from mudkit.trace import profile
from mudkit.trace.derive import Rule
from mudkit.trace.formats.packed import text_bytes
from mudkit.trace.logs import check_overlap, no_reads
from mudkit.trace.options import Options
from mudkit.trace.plausible import NO_FIX, reason_of
from mudkit.trace.profile import QUARTER_S
from mudkit.trace.schema import FARES, epoch_us
from mudkit.trace.summaries import Distributed, Ranks, Rows, Summaries, Summary, Values, select, summarise
from mudkit.trace.times import NO_TIME
from mudkit.units import MERCATOR_END, US_PER_S, distance_km

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

MAX_ROWS: Final = 20_000_000
"""Rows, by the size of the file, up to which a trace is read into memory, whole; about 4 GB at most."""
_ROW_BYTES: Final = 45
_S_PER_DAY: Final = 86_400
_FEW_READS: Final = 200
_FEW_DEVICES: Final = 10
_HALF: Final = 0.5
_FEW_SHARE: Final = 0.125
_CLUSTER_S: Final = 60
_CLUSTER_SHARE: Final = 0.2
_ZONE_DEGREES: Final = 20.0
_ZONE_HOURS: Final = 2.5
_NEIGHBOUR_HOURS: Final = 1.0  # at the edge of a zone, or where daylight saving is left out
_COUNTRY_HOURS: Final = 3.5
_COUNTRY_KM: Final = 1500.0
_NEARLY: Final = 0.95
_ANEW: Final = 0.01
_TABLE: Final = re.compile(r"[\w`]+(\.[\w`]+){0,2}")
"""Name of a table, with its catalogue and database or without."""
_NEAR: Final = 0.8
"""Least similarity of a mistyped name to that of a file (:func:`difflib.get_close_matches`)."""
_ENDINGS: Final = frozenset(
    (
        "bz2", "csv", "geojson", "gpkg", "gpx", "gz", "json", "jsonl", "kml", "kmz", "log", "ndjson", "nmea",
        "orc", "parquet", "pb", "plt", "tcx", "tsv", "txt", "xz", "zip", "zst",
    )
)  # fmt: skip
"""Endings of files of traces, which no table has for its name."""
_OF_POSITIONS: Final = frozenset(
    {"_median_steps_s", "_summaries", "_values", "device_summaries", "quarters", "recording", "zones"}
)
"""Attributes that are computed from positions alone, and the same for any selection of reads."""
_ASIDE: Final = ("reason", "device", "t_us", "lat", "lon")

_STEP_S: Final = 600.0
_PLACES: Final = ("lat", "lon", "turned")


@dataclass(frozen=True)
class TraceSource:
    """Positions and reads in memory.

    Attributes
    ----------
    name : str
        Name of the file.
    positions, reads : pyarrow.Table
        Tables with the schemas of :mod:`mudkit.trace.schema`; reads may be empty.
    rows : pandas.DataFrame
        ``what, rows``: how many rows were kept, and how many set aside by reason.
    tz : str
        Time zone of days and hours.
    devices_read : int
        Devices of the trace, if the tables hold a sample of them; 0: they hold all.
    aside : pandas.DataFrame
        Rows of these devices that were set aside, one a row: ``reason, device`` (empty: the row does not say,
        and may be of any device of the file), ``t_us`` (``NO_TIME``: unknown), ``lat``, ``lon``.
    selected : str
        What ``where`` and ``period`` select, in words; empty: they were not given.
    selected_from : mapping of str to int
        Rows of ``positions`` and ``reads`` before that.
    fares : pyarrow.Table
        Fares that begin at one of the positions; empty: the file does not say when a taxi has one.
    left_out : int
        Reads that :meth:`with_whole_windows` has left out.
    computed_on : str
        Where Spark runs, if the rows stay there; empty: they are in memory.
    """

    name: str
    positions: pa.Table
    reads: pa.Table
    rows: pd.DataFrame
    tz: str
    devices_read: int = 0
    aside: pd.DataFrame | Distributed = field(default_factory=lambda: no_rows_aside())
    selected: str = ""
    selected_from: Mapping[str, int] = field(default_factory=dict)
    fares: pa.Table = field(default_factory=FARES.empty_table)
    left_out: int = 0
    computed_on: str = ""

    @cached_property
    def opened(self) -> ExitStack:
        """Contexts that keep rows on the disks of Spark's executors while the trace is used."""
        return ExitStack()

    @cached_property
    def device_summaries(self) -> pd.DataFrame:
        """Rows of each device by its number: ``device, rows``, times, and places of the first and last one.

        ``first_us, last_us, first_lat, first_lon, last_lat, last_lon``.
        """
        frame: pd.DataFrame = self._summaries["devices"].to_pandas()
        return frame

    @property
    def devices(self) -> list[str]:
        """Names of the devices with positions, by their numbers."""
        names: list[str] = self._summaries["devices"]["device"].to_pylist()
        return names

    @property
    def count(self) -> int:
        """Number of positions."""
        return int(self.device_summaries["rows"].sum())

    @property
    def first_us(self) -> int:
        """Time of the first position, microseconds since 1970."""
        return int(self.device_summaries["first_us"].min())

    @property
    def last_us(self) -> int:
        """Time of the last position, microseconds since 1970."""
        return int(self.device_summaries["last_us"].max())

    def numbers(self, names: pa.ChunkedArray) -> NDArray[np.int64]:
        """Return the numbers of devices by their names; -1: it has no position."""
        known = self._summaries["devices"]["device"].combine_chunks()
        numbers = pc.fill_null(pc.index_in(names, value_set=known), -1)
        return np.asarray(numbers.to_numpy(), dtype=np.int64)

    @cached_property
    def quarters(self) -> pd.DataFrame:
        """Rows of positions by ``device`` (number) and ``quarter`` of an hour since 1970, which had any."""
        import pandas as pd  # loading it takes longer than loading all of mudkit

        table = self._summaries["quarters"]
        columns = {name: table[name].to_numpy() for name in ("quarter", "rows")}
        return pd.DataFrame({"device": self.numbers(table["device"])} | columns)

    @property
    def moments(self) -> pa.Table:
        """Times of the first and last row of any device in each three minutes: ``first_us, last_us``."""
        return self._summaries["moments"]

    def long_steps(self) -> pa.Table:
        """Return the steps of a device that take ten minutes or longer (:func:`profile.long_steps`)."""
        return self._summaries["steps"]

    def values(self, what: str) -> Ranks:
        """Return the ranks of ``steps``, seconds, of ``times``, or of ``lat``, ``lon`` or ``turned``."""
        return self._values[what]

    @cached_property
    def _kinds(self) -> dict[str, Values]:
        """Kinds of values that are ranked, by name: places, steps between positions, and times."""
        places = {name: profile.place_values(name) for name in _PLACES}
        return {"steps": profile.step_values(self.tz), "times": profile.time_values()} | places

    @cached_property
    def _values(self) -> dict[str, Ranks]:
        """Ranks of each kind of value."""
        return {
            name: Ranks(self.positions, values, self._summaries[f"values {name}"])
            for name, values in self._kinds.items()
        }

    @cached_property
    def _summaries(self) -> dict[str, pa.Table]:
        """Summaries of positions for any page, in one pass."""
        summaries: dict[str, Callable[[], Summary]] = {
            "devices": profile.devices,
            "quarters": profile.quarters,
            "moments": profile.moments,
            "steps": partial(profile.long_steps, round(_STEP_S * US_PER_S)),
            "beyond": partial(profile.beyond, MERCATOR_END),
        }
        summaries |= {f"values {name}": values.ranges for name, values in self._kinds.items()}
        return summarise(self.positions, summaries)

    @cached_property
    def _of_reads(self) -> dict[str, pa.Table]:
        """Summaries of reads for any page, in one pass."""
        summaries: dict[str, Callable[[], Summary]] = {
            "quarters": profile.quarters,
            "origins": profile.origins,
            "bursts": partial(profile.short_steps, _CLUSTER_S * US_PER_S),
            "requests": profile.requests,
            "gaps": self._read_steps.ranges,
        }
        return summarise(self.ordered_reads, summaries)

    @cached_property
    def ordered_reads(self) -> Rows:
        """The reads, ordered by device and time."""
        if isinstance(self.reads, pa.Table):
            return self.reads.sort_by([("device", "ascending"), ("ts", "ascending")])
        return self.reads

    @property
    def _read_steps(self) -> Values:
        """Steps between the reads of a device."""
        return profile.step_values(self.tz)

    @cached_property
    def read_gaps(self) -> Ranks:
        """Times between two reads of a device, seconds."""
        return Ranks(self.ordered_reads, self._read_steps, self._of_reads["gaps"])

    def reads_of(self, devices: Iterable[str]) -> pa.Table:
        """Return the reads of some devices in memory."""
        return _rows_of(self.reads, devices)

    def positions_of(self, devices: Iterable[str]) -> pa.Table:
        """Return the positions of some devices in memory."""
        return _rows_of(self.positions, devices)

    def requests(self, name: str) -> tuple[float, float]:
        """Return the least and the largest ``box_km`` or ``window_s`` of the reads; there has to be one."""
        ends = self._of_reads["requests"]
        low, high = (float(ends[f"{end}_{name}"][0].as_py()) for end in ("least", "most"))
        return low, high

    @property
    def read_count(self) -> int:
        """Number of reads."""
        return int(np.sum(self._of_reads["quarters"]["rows"].to_numpy()))

    @property
    def read_ends_us(self) -> tuple[int, int]:
        """Times of the first and the last read, microseconds since 1970; there has to be one."""
        origins = self._of_reads["origins"]
        return int(pc.min(origins["first_us"]).as_py()), int(pc.max(origins["last_us"]).as_py())

    @property
    def longest_window_s(self) -> float:
        """Longest time for which a read asks back, seconds."""
        return float(pc.max(self._of_reads["requests"]["most_window_s"]).as_py() or 0.0)

    @cached_property
    def read_quarters(self) -> pd.DataFrame:
        """Rows of reads by ``device`` (name) and ``quarter`` (of an hour, since 1970), which had any."""
        frame: pd.DataFrame = self._of_reads["quarters"].to_pandas()
        return frame

    @cached_property
    def aside_counts(self) -> pd.DataFrame:
        """Rows that were set aside by ``reason`` and ``device``: ``rows``, and known times from and to.

        ``first_us, last_us`` are ``NO_TIME`` if no row says its time.
        """
        frame: pd.DataFrame = self.summarise_aside({"counts": profile.aside})["counts"].to_pandas()
        times = {name: frame[name].fillna(NO_TIME).astype("int64") for name in ("first_us", "last_us")}
        return frame.assign(**times)

    def summarise_aside(self, summaries: Summaries) -> dict[str, pa.Table]:
        """Summarise the rows that were set aside; of a part of a trace those of its devices."""
        if isinstance(self.aside, Distributed):
            results = self.aside.summarise(summaries)
            if self.selected:
                here = pa.array(["", *self.devices])
                results = {
                    name: table.filter(pc.is_in(table["device"], here)) for name, table in results.items()
                }
            return results
        columns = {name: pa.array(self.aside[name], pa.string()) for name in ("reason", "device")}
        t_us = self.aside["t_us"].to_numpy(dtype=np.int64, na_value=NO_TIME)
        times = pa.array(t_us, mask=t_us == NO_TIME).cast(pa.timestamp("us", "UTC"))
        places = {name: self.aside[name].to_numpy(dtype=np.float64) for name in ("lat", "lon")}
        return summarise(pa.table(columns | {"ts": times} | places), summaries)

    @cached_property
    def recording(self) -> Recording:
        """Stretches of days with rows, and times without a row of any device."""
        return record(self)

    @cached_property
    def zones(self) -> Zones:
        """Hours by which the times of each device differ from those of the others."""
        return compare_zones(self)

    def median_steps_s(self) -> pd.Series:
        """Return the median time between two positions of a device by day of the later (days since 1970)."""
        return self._median_steps_s

    @cached_property
    def _median_steps_s(self) -> pd.Series:
        """Medians of :meth:`median_steps_s`, computed once."""
        import pandas as pd  # loading it takes longer than loading all of mudkit

        steps = self.values("steps")
        return pd.Series(steps.medians(), index=pd.Index(steps.groups, dtype="int64"), dtype="float64")

    def describe(self) -> str:
        """Return what was read in a line: file, devices, span, rows, rows set aside."""
        days = self.days()
        span = words.listing(dict.fromkeys(f"{day:%-d %B %Y}" for day in (days.index[0], days.index[-1])))
        aside = int(self.rows.loc[self.rows["what"].str.startswith("rejected"), "rows"].sum())
        parts = [
            self.name,
            words.count(len(self.devices), "device"),
            span.replace(", ", " to "),
            self._rows("position"),
        ]
        if self.read_count:
            derived = f", derived by {self.derived_by()}" if self.derived_by() else ""
            parts.append(f"{self._rows('read')}{derived}")
        if aside:
            parts.append(f"{words.count(aside, 'row')} set aside")
        if self.selected:
            parts.append(self.selected)
        if self.computed_on:
            parts.append(f"computed on Spark ({self.computed_on})")
        return " · ".join(parts)

    @property
    def recorded_days(self) -> int:
        """Number of local days with rows: what is counted "a day" is divided by it."""
        return len(self.days())

    def days(self) -> pd.DataFrame:
        """Count ``positions, reads, devices`` by day of local time; days without rows are absent."""
        return self._days

    def hours(self) -> pd.DataFrame:
        """Count ``positions, reads, devices`` by hour of local time; hours without rows are absent."""
        return self._by_time("h")

    @cached_property
    def _days(self) -> pd.DataFrame:
        """Count positions, reads and devices by local day."""
        return self._by_time("D")

    def warnings(self) -> list[str]:
        """Return a sentence for each property of the data that distorts what is measured on it."""
        return [
            *self._sample(),
            *self._dominance(),
            *self._gaps(),
            *self._seldom(),
            *self._resumed(),
            *self._without_fix(),
            *self._beyond_the_map(),
            *self._radians(),
            *self._clusters(),
            *self._zones(),
            *self._sizes(),
        ]

    def _rows(self, noun: str) -> str:
        """Return how many rows a table has, and of how many they were selected."""
        kept = self.count if noun == "position" else self.read_count
        seen = self.selected_from.get(f"{noun}s", 0) if self.selected else 0
        return f"{kept:,} of {words.count(seen, noun)}" if seen else words.count(kept, noun)

    def derived_by(self) -> str:
        """Return the rules by which reads were derived; empty if they were recorded."""
        by_time = sorted(self._of_reads["origins"].to_pylist(), key=lambda row: row["first_us"])
        origins = [row["origin"] for row in by_time]
        rules = [origin.removeprefix("derived: ") for origin in origins if origin.startswith("derived")]
        return words.listing(rules)

    def _by_time(self, unit: str) -> pd.DataFrame:
        """Count positions, reads and devices by local day or hour, those without any left out."""
        import pandas as pd  # loading it takes longer than loading all of mudkit

        table = self.quarters
        start = self.local(table["quarter"].to_numpy()).floor(unit)
        per_device = table.assign(start=start).drop_duplicates(["start", "device"])
        reads = self.read_quarters.groupby("quarter")["rows"].sum()
        counts = {
            "positions": table["rows"].groupby(start).sum(),
            "reads": reads.groupby(self.local(reads.index.to_numpy()).floor(unit)).sum(),
            "devices": per_device.groupby("start").size(),
        }
        return pd.DataFrame(counts).fillna(0).astype(int).sort_index().rename_axis("start")

    def local(self, quarter: NDArray[np.int64]) -> pd.DatetimeIndex:
        """Return when quarters of an hour begin, local time."""
        import pandas as pd

        starts, index = np.unique(quarter, return_inverse=True)
        local = pd.to_datetime(starts * QUARTER_S, unit="s", utc=True).tz_convert(self.tz).tz_localize(None)
        return local[index]

    @cached_property
    def _recorded_reads(self) -> Rows:
        """Reads of whose windows nine tenths or more were recorded."""
        pauses = self.recording.of_kind(HOLE, BREAK)
        first_us = self.recording.stretches["start_us"].to_numpy()[:1]
        before_us = first_us - round(self.longest_window_s * US_PER_S)
        begin_us = np.append(before_us, pauses["start_us"].to_numpy())
        end_us = np.append(first_us, pauses["end_us"].to_numpy())
        return select(self.reads, partial(is_recorded, begin_us, end_us))

    @cached_property
    def unrecorded_share(self) -> float:
        """Share of the reads of whose windows less than nine tenths were recorded.

        They come soon after the recording begins, or resumes after a hole or a break. Their answers hold less
        than at other times, so that few new points make a cached one stale.
        """
        recorded = self.changed(reads=self._recorded_reads).read_count
        return 1.0 - recorded / self.read_count if self.read_count else 0.0

    def with_whole_windows(self) -> TraceSource:
        """Return the trace without reads whose windows were not recorded.

        With them, if too few for a recommendation remain.
        """
        import pandas as pd

        from mudkit.learning.search import MIN_READS  # loading it takes as long as the rest

        judged = self.changed(reads=self._recorded_reads)
        left_out = self.read_count - judged.read_count
        if not left_out or judged.read_count < MIN_READS:
            return self
        row = {"what": "reads left out, whose windows were not recorded", "rows": left_out}
        kept = self.rows.assign(rows=self.rows["rows"].where(self.rows["what"] != "reads", judged.read_count))
        rows = pd.concat([kept, pd.DataFrame([row])], ignore_index=True)
        return judged.changed(rows=rows, left_out=left_out)

    def changed(self, **changes: Any) -> TraceSource:
        """Return the same positions with other attributes; what was computed of positions is kept."""
        other = replace(self, **changes)
        vars(other).update({name: vars(self)[name] for name in _OF_POSITIONS & vars(self).keys()})
        return other

    def _seldom(self) -> Iterable[str]:
        """Warn of days on which devices report so seldom that `trip_start` takes every step for a stop."""
        import pandas as pd  # loading it takes longer than loading all of mudkit

        still_s = self._still_s()
        if still_s is None:
            return
        medians_s = self.median_steps_s()
        seldom = medians_s[medians_s >= _NEARLY * still_s]
        if len(seldom) and (reads := self.days()["reads"]).sum():
            of_day = pd.DatetimeIndex(reads.index).to_numpy().astype("datetime64[D]").astype(np.int64)
            of_these = int(reads[np.isin(of_day, seldom.index)].sum())
            every = words.duration(seldom.median())
            yield (
                f"On {words.count(len(seldom), 'day')} devices report every {every}: as `trip_start` takes "
                f"{words.duration(still_s)} between two rows for a stop, nearly every report of a moving "
                f"device becomes a read, and {of_these:,} of the {words.count(reads.sum(), 'read')} are of "
                "these days, on which trips are found coarsely, too. Leave them out by `period`, or give "
                "`rule=trip_start(still_s=…)` several times as long."
            )

    def _still_s(self) -> float | None:
        """Return the time without movement of the rule `trip_start`; None if reads are not derived by it."""
        derived = self.derived_by() if self.read_count else ""
        rule = re.fullmatch(r"trip_start(?:\(still_s=([0-9.]+)\))?", derived)
        return float(rule[1] or Rule("trip_start").still_s) if rule else None

    def _resumed(self) -> Iterable[str]:
        """Warn of reads that are derived because the recording begins or resumes, and no trip."""
        still_s = self._still_s()
        if still_s is None:
            return
        begun, resumed = self.reads_where_recorded_anew()
        share = (begun + resumed) / self.read_count
        if share >= _ANEW:
            begins = f"{begun:,} times within {words.duration(still_s)} after the recording begins"
            yield (
                f"{begun + resumed:,} of the reads ({words.percent(share)}) may be no starts of trips: "
                f"`trip_start` reads where a device is first seen, {begins}"
                + (f", and {resumed:,} times after it resumes." if resumed else ".")
            )

    def reads_where_recorded_anew(self) -> tuple[int, int]:
        """Count the reads that `trip_start` derives where the recording begins, and where it resumes.

        It begins with each stretch, and resumes after a hole of the whole fleet that is at least as
        long as the rule's time without movement. A read is counted if its position is the first of the device
        since then, and comes within that time.
        """
        still_s = self._still_s()
        if still_s is None or not self.count:
            return 0, 0
        still_us = round(still_s * US_PER_S)
        holes = self.recording.of_kind(HOLE)
        ends_us = holes["end_us"][holes["end_us"] - holes["start_us"] >= still_us].to_numpy()
        starts_us = self.recording.stretches["start_us"].to_numpy()
        moments = np.sort(np.concatenate([starts_us, ends_us]))
        steps = self.long_steps()
        if still_s < _STEP_S:
            steps = summarise(self.positions, {"steps": partial(profile.long_steps, still_us)})["steps"]
        names = [*self.devices, *steps["device"].to_pylist()]
        t_us = np.concatenate([self.device_summaries["first_us"].to_numpy(), steps["end_us"].to_numpy()])
        before_us = np.full(len(self.devices), np.iinfo(np.int64).min)
        before_us = np.concatenate([before_us, steps["start_us"].to_numpy()])
        is_long = t_us - before_us.clip(-(1 << 61)) >= still_us
        at = np.searchsorted(moments, t_us, side="right") - 1
        is_first = is_long & (at >= 0) & (before_us < moments[at]) & (t_us - moments[at] <= still_us)
        rows = np.flatnonzero(is_first)
        sought = tuple((names[row], int(t_us[row])) for row in rows.tolist())
        summaries = {"matches": partial(profile.match, sought)}
        matched = summarise(self.reads, summaries)["matches"]["place"].to_numpy()
        begun = np.isin(moments[at[rows[matched]]], starts_us)
        return int(begun.sum()), int((~begun).sum())

    def _sample(self) -> Iterable[str]:
        """Yield that the page is about a sample, if it is."""
        if self.devices_read:
            yield (
                f"The trace is large: this page is about a sample of {len(self.devices):,} of "
                f"{self.devices_read:,} devices, drawn by a checksum of their names. With fewer devices, "
                "answers hold fewer points."
            )

    def _dominance(self) -> Iterable[str]:
        """Yield a sentence where a few days or devices have most of the rows."""
        what = "reads" if self.read_count else "positions"
        days = self.days()[what]
        if self.read_count:
            devices = self.read_quarters.groupby("device")["rows"].sum()
        else:
            devices = self.device_summaries.set_index("device")["rows"]
        for noun, counts in (("day", days), ("device", devices)):
            most = counts.sort_values(ascending=False, kind="stable")
            few, share = dominant(most.to_numpy())
            if few:
                named = sorted(most.index[:few]) if noun == "day" else most.index[:few]
                names = [f"{name:%-d %B %Y}" if noun == "day" else str(name) for name in named]
                yield (
                    f"{words.count(few, noun)} of {len(most)} {'holds' if few == 1 else 'hold'} "
                    f"{words.percent(share)} of the {what}: {words.listing(names, 3)}."
                )

    def _gaps(self) -> Iterable[str]:
        """Yield a sentence if there are whole days without a row in between."""
        import pandas as pd

        if not self.count:
            return
        stretches = self.recording.stretches
        if len(stretches) < 2:
            return
        last, first = stretches["last"].iloc[:-1].to_numpy(), stretches["first"].iloc[1:].to_numpy()
        empty = (first - last).astype("timedelta64[D]").astype(int) - 1
        at = int(empty.argmax())
        span = (stretches["last"].iloc[-1] - stretches["first"].iloc[0]).days + 1
        recorded = int(stretches["days"].sum())
        yield (
            f"Rows lie on {recorded:,} of {words.count(span, 'day')}, in {len(stretches):,} stretches with "
            f"{BREAK_DAYS} days or more without rows between them: at most {int(empty[at]):,}, between "
            f"{pd.Timestamp(last[at]):%-d %B %Y} and {pd.Timestamp(first[at]):%-d %B %Y}."
        )

    def _clusters(self) -> Iterable[str]:
        """Yield a sentence if many derived reads follow another within a minute."""
        if not self.read_count or not self.derived_by():
            return
        share = int(self._of_reads["bursts"]["rows"].to_numpy().sum()) / self.read_count
        if share > _CLUSTER_SHARE:
            yield (
                f"{words.percent(share)} of the derived reads follow another of the same device within a "
                "minute: people may not ask in such bursts."
            )

    def _without_fix(self) -> Iterable[str]:
        """Warn of rows that were set aside because the receiver had no fix: their devices are silent then."""
        lost = self.aside_counts[self.aside_counts["reason"] == reason_of(NO_FIX)]
        rows, devices = int(lost["rows"].sum()), lost["device"].nunique()
        if rows:
            silent = "device is" if devices == 1 else "devices are"
            yield (
                f"{words.count(rows, 'row')} of {words.count(devices, 'device')} "
                f"{'has' if rows == 1 else 'have'} no fix, but a constant such as latitude 0, longitude "
                f"0: they are set aside, and the {silent} silent in these times."
            )

    def _beyond_the_map(self) -> Iterable[str]:
        """Yield a sentence if positions lie where a map in Mercator's projection ends."""
        beyond = int(self._summaries["beyond"]["rows"].to_numpy().sum())
        if beyond:
            yield (
                f"{words.count(beyond, 'position lies', 'positions lie')} beyond {MERCATOR_END:.2f}° of "
                "latitude, where the map ends: they are counted and drawn at its edge."
            )

    def _radians(self) -> Iterable[str]:
        """Warn of places that all lie where radians, read as degrees, lie: in the sea south of Ghana."""
        if not self.count:
            return
        ends = [max(map(abs, self.values(name).ends())) for name in ("lat", "lon")]
        if ends[0] <= np.pi / 2 and ends[1] <= np.pi:
            yield (
                "All places lie within 1.6° of latitude 0 and 3.2° of longitude 0, where there is no land: "
                "the coordinates may be in radians (times 57.29578 they are degrees)."
            )

    def _zones(self) -> Iterable[str]:
        """Yield a sentence if places span time zones, or activity is at hours that suggest another one."""
        if not self.count:
            return
        # Places on both sides of 180 degrees lie together.
        low, middle, high = min(
            (self.values(name).quantiles((0.01, 0.5, 0.99)) for name in ("lon", "turned")),
            key=lambda at: at[2] - at[0],
        )
        if high - low > _ZONE_DEGREES:
            yield (
                f"Places span {words.count(max(round((high - low) / 15), 2), 'time zone')}, but all hours "
                f"are {self.tz}."
            )
            return
        import pandas as pd

        first = pd.Timestamp(self.first_us, unit="us", tz="UTC")

        def offset_h(zone: str) -> float:
            return float(
                (first.tz_convert(zone).tz_localize(None) - first.tz_localize(None)).total_seconds() / 3600
            )

        lat = self.values("lat").median()
        middle = (float(middle) + 180) % 360 - 180
        place = _zone_at(lat, middle)
        east_h = middle / 15 if place is None else offset_h(place)
        apart_h = abs((offset_h(self.tz) - east_h + 12) % 24 - 12)
        limit_h, where = (
            (_ZONE_HOURS, f"near UTC{round(east_h):+d}")
            if place is None
            else (_NEIGHBOUR_HOURS, f"in {place}")
        )
        is_right = apart_h <= limit_h or (apart_h <= _COUNTRY_HOURS and _is_zone_near(self.tz, lat, middle))
        if not is_right:
            yield f"Hours are {self.tz}, but the places lie {where}: set `tz`."

    def _sizes(self) -> Iterable[str]:
        """Yield a sentence if there are few reads, and one if there are few devices."""
        if 0 < self.read_count < _FEW_READS:
            yield f"There are only {words.count(self.read_count, 'read')}: shares are coarse."
        devices = self.read_quarters["device"].nunique() if self.read_count else len(self.devices)
        if devices < _FEW_DEVICES:
            yield f"There {'is' if devices == 1 else 'are'} only {words.count(devices, 'device')}: " + (
                "nothing is known of others." if devices == 1 else "intervals over devices are ranges."
            )


def _zone_at(lat: float, lon: float) -> str | None:
    """Return the name of a place's time zone; None without timezonefinder, a part of the extra ``geo``."""
    try:
        from timezonefinder import TimezoneFinder
    except ImportError:
        return None
    return TimezoneFinder().timezone_at(lng=lon, lat=lat)


@cache
def _zones_of_countries() -> list[tuple[str, float, float, str]]:
    """Return country, latitude and longitude of the main place, and name of all zones (zone.tab)."""
    table: list[tuple[str, float, float, str]] = []
    for line in (resources.files("tzdata") / "zoneinfo" / "zone.tab").read_text("utf-8").splitlines():
        if line.startswith("#"):
            continue
        country, place, name = line.split("\t")[:3]
        parts = re.findall(r"[+-]\d+", place)
        degrees: list[float] = []
        for text, digits in zip(parts, (2, 3), strict=True):
            whole, rest = text[1 : 1 + digits], text[1 + digits :].ljust(4, "0")
            size = int(whole) + int(rest[:2]) / 60 + int(rest[2:]) / 3600
            degrees.append(-size if text[0] == "-" else size)
        table.append((country, degrees[0], degrees[1], name))
    return table


def _is_zone_near(tz: str, lat: float, lon: float) -> bool:
    """Return whether a zone is one of the countries whose zones have their main place near a place."""
    zones = _zones_of_countries()
    countries = {country for country, _, _, name in zones if name == tz}
    _, lats, lons, _ = zip(*zones, strict=True)
    near = distance_km(lat, lon, np.array(lats), np.array(lons)) <= _COUNTRY_KM
    return any(zone[0] in countries for zone, is_near in zip(zones, near, strict=True) if is_near)


def _rows_of(rows: Rows, devices: Iterable[str]) -> pa.Table:
    """Return the rows of some devices, in memory."""
    names = pa.array(devices, pa.string())
    if isinstance(rows, Distributed):
        return rows.collect(names)
    return rows.filter(pc.is_in(rows["device"], names))


def no_rows_aside() -> pd.DataFrame:
    """Return the table of :attr:`TraceSource.aside` without a row."""
    import pandas as pd

    return pd.DataFrame({name: pd.Series(dtype=object if name in _ASIDE[:2] else float) for name in _ASIDE})


def dominant(counts: NDArray[np.int64]) -> tuple[int, float]:
    """Return how few of some counts make up over half of all, and their share; (0, 0.0) if not few."""
    if len(counts) < 4 or not counts.sum():
        return 0, 0.0
    shares = np.cumsum(np.sort(counts)[::-1]) / counts.sum()
    few = int(np.searchsorted(shares, _HALF, side="right")) + 1
    share = float(shares[few - 1])
    is_few = few <= max(1, len(counts) * _FEW_SHARE) and share > 2.5 * few / len(counts)
    return (few, share) if is_few else (0, 0.0)


def open_source(
    trace: str,
    reads: str = "",
    *,
    reads_columns: Mapping[str, str] | None = None,
    needs_reads: bool = True,
    where: str = "",
    period: str = "",
    spark: bool | None = None,
    work: str | os.PathLike[str] | None = None,
    **options: Any,
) -> TraceSource:
    """Open the trace of a report; the parameters are those of the reports.

    Parameters
    ----------
    trace, reads, where, period : str
    reads_columns : dict, optional
    needs_reads : bool
    spark : bool, optional
        None: the trace is read into memory, a very large one a sample of its devices. False: addresses,
        tables of the catalogue, and traces of more than :data:`MAX_ROWS` rows stay on Spark. True: every
        trace does.
    work : path-like, optional
        Folder for what Spark makes of other sources, which its workers share; by default a temporary one.
    **options
        Those of :class:`mudkit.trace.Options`; a log of reads has the same, but for its format, columns and
        rule.

    Raises
    ------
    TraceContentError
        There is no read, no read asks for the time of a position, or the selection leaves nothing.
    InputMissing, TraceFormatError, ParameterError, PredicateError
        As :func:`mudkit.trace.load`.
    EnvironmentProblem
        As :func:`mudkit.pipeline.session`.
    """
    given = Options(**options)
    selection = Selection.parse(where, period, given.tz)
    given = replace(given, rule="none" if reads or not needs_reads else given.rule or None)
    log_options = given.of_log(reads_columns)
    if spark is not None and (spark or stays_on_spark(trace) or (reads and stays_on_spark(reads))):
        from mudkit.report.spark_source import open_on_spark  # it loads Spark

        return open_on_spark(trace, reads, given, log_options, selection, needs_reads=needs_reads, work=work)
    return _open_here(trace, reads, given, log_options, selection, needs_reads=needs_reads)


def stays_on_spark(trace: str) -> bool:
    """Return whether a trace is at an address, a table, or has too many rows for the memory of a report."""
    return is_address(trace) or is_table(trace) or _estimated_rows(existing(trace, "trace")) > MAX_ROWS


def is_table(trace: str, *, on_spark: bool = False) -> bool:
    """Return whether a text may name a table of Spark's catalogue: there is no file or folder of this name.

    Without ``on_spark`` a name is taken for that of a file, mistyped, if it ends as files do, or if the
    folder has a similar name: Spark would take long to say that there is no such table.
    """
    if not _TABLE.fullmatch(trace) or Path(trace).exists():
        return False
    if on_spark:
        return True
    names = {name for file in Path().iterdir() for name in (file.name, file.name.partition(".")[0])}
    is_near = bool(difflib.get_close_matches(trace, names, n=1, cutoff=_NEAR))
    return not is_near and trace.rpartition(".")[2].lower() not in _ENDINGS


def _open_here(
    trace: str,
    reads: str,
    options: Options,
    log_options: Options,
    selection: Selection,
    *,
    needs_reads: bool,
) -> TraceSource:
    """Read a trace into memory: only some of its devices if it has too many rows (:data:`MAX_ROWS`).

    Its reads are those of the file ``reads``; of the trace itself if that is empty.
    """
    path = existing(trace, "trace")
    how = {} if traces.is_trace(path) else vars(options)
    parts = -(-_estimated_rows(path) // MAX_ROWS)
    seen: Counter[str] = Counter()
    kept: Counter[str] = Counter()
    if parts > 1:
        loaded, devices_read = _load_sample(path, parts, selection, seen, kept, **how)
    else:
        whole = traces.load(path, **how)
        loaded, devices_read = selection.of(whole), 0
        for rows_of, part in ((seen, whole), (kept, loaded)):
            _count(rows_of, part)
    aside = _aside(loaded.rejected)
    is_part = bool(devices_read or selection)
    all_aside = len(aside)
    if is_part:
        here = {"", *pc.unique(loaded.positions["device"]).to_pylist()}
        aside = aside[aside["device"].isin(here)]
    log, log_aside = loaded.reads, {}
    if reads:
        file = existing(reads, "file of reads")
        of_reads = traces.load(file, **({} if traces.is_trace(file) else vars(log_options)))
        log, log_aside = selection.of_reads(of_reads.reads), of_reads.rejected_by_reason()
        seen["reads"], kept["reads"] = len(of_reads.reads), len(log)
        if devices_read:
            log = log.filter(pc.is_in(log["device"], pc.unique(loaded.positions["device"])))
    selection.refuse_empty(kept, seen, needs_reads=needs_reads)
    if needs_reads:
        _check_reads(loaded.positions, log, reads or trace)
    is_known = aside["device"] != "" if is_part else np.ones(len(aside), dtype=np.bool_)
    rows = count_rows(
        kept,
        seen,
        selection,
        needs_reads=needs_reads,
        log_aside=log_aside,
        known=Counter(aside[is_known]["reason"]),
        unknown=Counter(aside[~is_known]["reason"]),
        of_others=0 if devices_read else all_aside - len(aside),
        shown={"positions": len(loaded.positions), "reads": len(log)},
    )
    selected = selection.describe(needs_reads=needs_reads)
    fares = _fares_of(loaded) if is_part else loaded.fares
    read_from = loaded.positions, log, rows, options.tz, devices_read, aside, selected, seen, fares
    return TraceSource(name_of(path), *read_from)


def name_of(path: Place) -> str:
    """Return the name of a trace with its folder: of two files of one name the folders differ."""
    return PurePosixPath(*path.absolute().parts[-2:]).as_posix()


def count_rows(
    kept: Mapping[str, int],
    seen: Mapping[str, int],
    selection: Selection,
    *,
    needs_reads: bool,
    log_aside: Mapping[str, int],
    known: Mapping[str, int],
    unknown: Mapping[str, int],
    of_others: int,
    shown: Mapping[str, int] | None = None,
) -> pd.DataFrame:
    """Return :attr:`TraceSource.rows`.

    Parameters
    ----------
    kept, seen : mapping
        Rows of ``positions`` and ``reads`` that were selected, and before that.
    selection : Selection
    needs_reads : bool
    log_aside, known, unknown : mapping
        Rows that were set aside by reason: of the log of reads, of devices of the trace, and of devices that
        the row does not say.
    of_others : int
        Rows of devices that are not selected, which were set aside.
    shown : mapping, optional
        Rows of the tables; by default those that are kept.
    """
    import pandas as pd

    tables = ("positions", "reads") if needs_reads else ("positions",)
    counts = [(name, (shown or kept)[name]) for name in tables]
    for what, reasons in (
        ("rejected from the reads", log_aside),
        ("rejected", known),
        ("rejected, of an unknown device of the whole file", unknown),
    ):
        most_first = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
        counts += [(f"{what}: {reason}", rows) for reason, rows in most_first]
    if selection:
        counts += [(f"not selected: {name}", seen[name] - kept[name]) for name in tables]
        counts += [("not selected: rejected, of other devices", of_others)] if of_others else []
    return pd.DataFrame(counts, columns=["what", "rows"])


def _fares_of(loaded: traces.Loaded) -> pa.Table:
    """Return the fares that begin at a position of a selection or sample."""
    keys = ["device", "ts"]
    return loaded.fares.join(loaded.positions.select(keys), keys=keys, join_type="left semi")


def _aside(rejected: pa.Table) -> pd.DataFrame:
    """Return reason, device, time and place of rejected rows, as far as the rows say them."""
    t_us = pc.fill_null(rejected["ts"].cast(pa.int64()), NO_TIME)
    frame: pd.DataFrame = rejected.select(["reason", "device", "lat", "lon"]).to_pandas()
    frame = frame.assign(device=frame["device"].fillna(""), t_us=t_us.to_numpy())
    return frame[list(_ASIDE)]


def _estimated_rows(path: Place) -> int:
    """Return the rows of a trace folder, or estimate those of a file or folder from its size."""
    if traces.is_trace(path):
        return int(traces.read_manifest(path)["rows"]["positions"])
    sizes = sizes_below(path) if is_folder(path) else {path.name: size_bytes(path) or 0}
    return sum(text_bytes(name, size) for name, size in sizes.items()) // _ROW_BYTES


def _count(rows: Counter[str], part: traces.Loaded) -> None:
    """Add the rows of a part to counts by table."""
    rows.update(positions=len(part.positions), reads=len(part.reads))


def _load_sample(
    path: Place, parts: int, selection: Selection, seen: Counter[str], kept: Counter[str], **how: Any
) -> tuple[traces.Loaded, int]:
    """Load one of ``parts`` devices in bounded memory, and count all; the rejected rows are those of all.

    A selection may leave little: then it takes all devices at first, and half of them each time that the
    rows become too many. The number of devices is 0 if all of them are kept.
    """
    tables: dict[str, list[pa.Table]] = {"positions": [], "reads": [], "rejected": [], "fares": []}
    parts, devices = 1 if selection else parts, 0
    with traces.scan(path, **how) as pieces:
        for piece in pieces:
            chosen = selection.of(piece)
            for rows_of, part in ((seen, piece), (kept, chosen)):
                _count(rows_of, part)
            devices += pc.count_distinct(chosen.positions["device"]).as_py()  # a piece has whole devices
            for name in ("positions", "reads", "fares"):
                tables[name].append(_one_of(getattr(chosen, name), parts))
            tables["rejected"].append(piece.rejected)
            while selection and sum(map(len, tables["positions"])) > MAX_ROWS:
                parts *= 2
                for name in ("positions", "reads"):
                    tables[name] = [_one_of(table, parts) for table in tables[name]]
        selection.refuse_empty(kept, seen, needs_reads=False)
        if not sum(map(len, tables["positions"])):
            raise TraceContentError(
                "The trace is too large for the memory of a report, and has too few devices to sample.",
                where=path.name,
                found=words.count(devices, "device"),
                expected=f"about {MAX_ROWS:,} rows, or many devices",
                remedy="name a file of fewer days, or select some: --param period=…",
            )
        joined = {name: pa.concat_tables(parts) for name, parts in tables.items()}
        return traces.Loaded(**joined, source=pieces.source), devices if parts > 1 else 0


def _one_of(table: pa.Table, parts: int) -> pa.Table:
    """Return the rows of one of ``parts`` devices, by a checksum of their names."""
    names = pc.unique(table["device"])
    is_kept = [zlib.crc32(name.encode()) % parts == 0 for name in names.to_pylist()]
    return table.filter(pc.is_in(table["device"], names.filter(pa.array(is_kept, pa.bool_()))))


def _check_reads(positions: pa.Table, reads: pa.Table, where: str) -> None:
    """Raise TraceContentError if there is no read, or none asks for the time of a position."""
    if not len(reads):
        raise no_reads(str(where), words.count(len(positions), "position"))
    if len(positions):
        t_us, of_reads = epoch_us(positions["ts"]), epoch_us(reads["ts"])
        ends, of_log = ((int(times.min()), int(times.max())) for times in (t_us, of_reads))
        check_reads(ends, of_log, pc.max(reads["window_s"]).as_py(), where)


def check_reads(
    positions_us: tuple[int, int], reads_us: tuple[int, int], longest_window_s: float, where: str
) -> None:
    """Raise TraceContentError if no read asks for the time of a position: see their first and last times."""
    window_us = round(longest_window_s * US_PER_S)
    check_overlap(positions_us, (reads_us[0] - window_us, reads_us[1]), Path(where).name)
