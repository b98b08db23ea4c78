"""Load a phone's log of its screen: the times at which it was unlocked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mudkit.checks import check_arguments
from mudkit.display import shows_fields
from mudkit.errors import TraceContentError, TraceFormatError
from mudkit.files import PlaceLike, existing, is_folder, sha256
from mudkit.trace.formats import UNPARSABLE, Source, dialect_of
from mudkit.trace.parse import (
    EARLIEST_US,
    LATE,
    LATEST_US,
    malformed_rows,
    no_rows,
    refuse_mostly_bad,
)
from mudkit.trace.schema import REJECTED, rejected_by_reason, rejected_rows
from mudkit.trace.times import NO_TIME, times_us
from mudkit.trace.values import numbers, raw_text
from mudkit.units import US_PER_S

if TYPE_CHECKING:
    import pandas as pd

STATUSES = ("off", "on", "locked", "unlocked")
"""Meanings of the numbers 0 to 3 of AWARE's ``screen_status`` (awareframework.com, the sensor Screen)."""

REPEAT_S = 1.0
"""An unlock within this number of seconds after one that counts is a duplicate."""

UNKNOWN_STATUS = "unknown screen status"
REPEATED = "repeated unlock within 1 s"

_NEEDED = ("time", "screen_status")
_WHOSE = ("user", "device", "device_id")
_UNLOCKED = 3
_US_PER_DAY = 86_400 * US_PER_S


@check_arguments(types=False)
@shows_fields
@dataclass(frozen=True)
class UnlockLog:
    """Times at which one phone was unlocked.

    Attributes
    ----------
    times_us : ndarray of int64, shape (unlocks,)
        Microseconds since 1970 in UTC, strictly ascending.
    rejected : pyarrow.Table
        Rejected rows with the schema :data:`mudkit.trace.schema.REJECTED`.
    source : dict
        Provenance: ``name, format, sha256``, ``rows``, ``statuses`` (number of rows of each), ``steps_back``
        (number of times at which the file's clock goes back) and ``first_us, last_us`` of all rows that
        could be read, microseconds.
    """

    times_us: NDArray[np.int64]
    rejected: pa.Table
    source: dict[str, Any] = field(default_factory=dict)

    def rejected_by_reason(self) -> dict[str, int]:
        """Return the number of rejected rows by reason, most frequent first."""
        return rejected_by_reason(self.rejected)

    def summary(self) -> pd.DataFrame:
        """Return a summary of the log: rows of ``what`` and ``value``, both text."""
        import pandas as pd  # loading it takes longer than loading all of mudkit

        first_us, last_us = self.source["first_us"], self.source["last_us"]
        days = (last_us - first_us) / _US_PER_DAY
        rows = [("source", str(self.source["name"])), ("format", str(self.source["format"]))]
        rows += [("rows", f"{self.source['rows']:,}")]
        rows += [(f"rows: screen {name}", f"{count:,}") for name, count in self.source["statuses"].items()]
        rows += [("rejected", f"{len(self.rejected):,}")]
        rows += [(f"rejected: {reason}", f"{count:,}") for reason, count in self.rejected_by_reason().items()]
        if self.source["steps_back"]:
            rows += [("steps back in time", f"{self.source['steps_back']:,}")]
        rows += [
            ("first", str(np.datetime64(first_us, "us").astype("datetime64[s]")) + " UTC"),
            ("last", str(np.datetime64(last_us, "us").astype("datetime64[s]")) + " UTC"),
            ("days", f"{days:.2f}"),
            ("unlocks", f"{len(self.times_us):,}"),
        ]
        if days >= 1:  # of less than a day no rate a day can be told
            rows += [("unlocks a day", f"{len(self.times_us) / days:.1f}")]
        if len(self.times_us) > 1:
            rows += [("median interval", f"{np.median(np.diff(self.times_us)) / US_PER_S:.0f} s")]
        return pd.DataFrame(rows, columns=["what", "value"])


@check_arguments(types=False)
def load_unlocks(path: PlaceLike) -> UnlockLog:
    """Load the moments at which a phone's screen was unlocked.

    Rows are sorted by time: a phone's clock may be set back, and AWARE writes buffered rows later. Unlocks up
    to :data:`REPEAT_S` after a counted one are rejected, as are rows that cannot be read.

    Parameters
    ----------
    path : path-like
        A CSV file of AWARE's sensor Screen (also as ``.gz``), recognised by its columns ``time`` (since 1970
        in UTC) and ``screen_status`` (0 off, 1 on, 2 locked, 3 unlocked). Columns ``user`` and ``device``
        are optional, with one phone only.

    Returns
    -------
    UnlockLog

    Raises
    ------
    InputMissing
        The file does not exist.
    TraceFormatError
        The file is empty, another one, or most of its rows cannot be read.
    TraceContentError
        The file holds no rows, no unlock, or rows of several phones.
    """
    file = existing(path, "phone log")
    if is_folder(file):
        raise TraceFormatError(
            f"{file} is a folder.",
            where=str(file),
            found="a folder",
            expected="one CSV file of AWARE's sensor Screen",
            remedy="name the file itself",
        )
    names = dialect_of(file).names
    if missing := [name for name in _NEEDED if name not in names]:
        raise TraceFormatError(
            f"{file.name} is not a log of AWARE's screen.",
            where=str(file),
            found="the columns " + ", ".join(name[:40] for name in names[:20]),
            expected="a column for each of " + ", ".join(missing),
            remedy="name the file of the sensor Screen, for instance AwareScreen.csv",
        )
    source = Source(file, "csv", {name: name for name in names})
    good, bad = _read(source)
    rows = len(good) + len(bad)
    if not rows:
        raise no_rows(file)
    refuse_mostly_bad(
        file,
        rows,
        bad,
        "a time since 1970 and a screen status from 0 to 3 in each row",
        remedy="check the columns",
    )
    t_us = np.asarray(good["t_us"].to_numpy(), dtype=np.int64)
    status = np.asarray(good["status"].to_numpy(), dtype=np.int64)
    unlocked = np.flatnonzero(status == _UNLOCKED)
    statuses = {name: int(np.count_nonzero(status == i)) for i, name in enumerate(STATUSES)}
    if not len(unlocked):
        raise TraceContentError(
            f"{file.name} holds no unlock.",
            where=str(file),
            found=", ".join(f"{count:,} {name}" for name, count in statuses.items()),
            expected=f"rows with screen_status {_UNLOCKED}",
            remedy="take the log of a phone with a lock screen",
        )
    unlocked = unlocked[np.argsort(t_us[unlocked], kind="stable")]
    counts = _counting(t_us[unlocked])
    again = good.take(pa.array(unlocked[~counts]))
    repeated = rejected_rows(file.name, again["row"], [REPEATED] * len(again), again["raw"])
    description = {
        "name": file.name,
        "format": "aware-screen",
        "sha256": sha256(file),
        "rows": rows,
        "statuses": statuses,
        "steps_back": int(np.count_nonzero(np.diff(t_us) < 0)),
        "first_us": int(t_us.min()),
        "last_us": int(t_us.max()),
    }
    return UnlockLog(t_us[unlocked[counts]], pa.concat_tables([bad, repeated]).sort_by("row"), description)


def _read(source: Source) -> tuple[pa.Table, pa.Table]:
    """Read the rows that can be used (``t_us, status, row, raw``), and those that cannot."""
    name = source.path.name
    kinds = {"t_us": pa.int64(), "status": pa.int64(), "row": pa.int64(), "raw": pa.string()}
    goods, bads = [pa.schema(kinds).empty_table()], [REJECTED.empty_table()]
    phones: set[tuple[str, ...]] = set()
    for batch in source.batches():
        columns = batch.columns
        t_us = times_us(columns["time"].combine_chunks(), "UTC")
        status = numbers(columns["screen_status"].combine_chunks())
        reason = np.select(
            [
                (t_us == NO_TIME) | np.isnan(status),
                (t_us < EARLIEST_US) | (t_us > LATEST_US),
                ~np.isin(status, range(len(STATUSES))),
            ],
            [UNPARSABLE, LATE, UNKNOWN_STATUS],
            default="",
        )
        keep, raw = reason == "", raw_text(columns, batch.delimiter)
        kept = [t_us[keep], status[keep].astype(np.int64), batch.rows[keep]]
        goods.append(pa.table([*kept, raw.filter(pa.array(keep))], schema=pa.schema(kinds)))
        bads.append(rejected_rows(name, batch.rows[~keep], reason[~keep], raw.filter(pa.array(~keep))))
        bads.append(malformed_rows(batch))
        if whose := [column for column in _WHOSE if column in columns.column_names]:
            distinct = columns.select(whose).group_by(whose).aggregate([]).to_pylist()
            phones |= {tuple(str(of[column]) for column in whose) for of in distinct}
    if len(phones) > 1:
        raise TraceContentError(
            f"{name} holds the logs of several phones.",
            where=str(source.path),
            found=f"{len(phones):,} phones: " + ", ".join("/".join(phone) for phone in sorted(phones)[:5]),
            expected="one phone: its unlocks follow each other",
            remedy="write the rows of each phone into a file of its own",
        )
    return pa.concat_tables(goods), pa.concat_tables(bads)


def _counting(t_us: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which of the sorted times are more than :data:`REPEAT_S` after the last one that counts."""
    counts = np.zeros(len(t_us), dtype=np.bool_)
    i = 0
    while i < len(t_us):
        counts[i] = True
        i = int(np.searchsorted(t_us, t_us[i] + int(REPEAT_S * US_PER_S), side="right"))
    return counts
