"""Logs of receivers in NMEA 0183, parsed by pynmea2."""

from __future__ import annotations

import datetime as dt
import io
import re
from collections import Counter
from collections.abc import Iterator

from mudkit.errors import TraceFormatError
from mudkit.files import Place
from mudkit.trace.formats.batch import NO_FIX, UNPARSABLE, Batch, Row, batches_of, library
from mudkit.trace.formats.packed import opened, stem

_SENTENCE = re.compile(rb"\$[A-Z]{2}([A-Z]{3}),[^\r\n]*")
_LINE = re.compile(rb"^[^\r\n$]{0,40}\$[A-Z]{2}(RMC|GGA|GLL|GSA|GSV|VTG|ZDA),", re.MULTILINE)
_LOOKED_AT_BYTES = 4096
_MPS_PER_KNOT = 1852 / 3600


def is_nmea(head: bytes) -> bool:
    """Return whether one of a file's first lines is a sentence, perhaps behind the time of its logging."""
    return bool(_LINE.search(head[:_LOOKED_AT_BYTES]))


def read_nmea(file: Place, columns: dict[str, str]) -> Iterator[Batch]:
    """Read the RMC sentences of a log, which alone have date, time and place; the device is the file's stem.

    A sentence with the status V is set aside: the receiver had no fix. Other sentences are no rows; GGA and
    GLL have a time of day without a date.
    """
    rows = _rows(file, stem(file))
    return batches_of(file, rows, ("device", "ts", "lat", "lon", "speed_mps"))


def _rows(file: Place, device: str) -> Iterator[Row]:
    """Yield the RMC sentences of a log as rows; TraceFormatError at the end if it has none."""
    pynmea2 = library("pynmea2", file)
    kinds: Counter[str] = Counter()
    with opened(file) as stream:
        for line in io.BufferedReader(stream):
            if (sentence := _SENTENCE.search(line)) is None:
                continue
            kinds[sentence[1].decode()] += 1
            if sentence[1] != b"RMC":
                continue
            text = sentence[0].decode(errors="replace")
            try:
                message = pynmea2.parse(text, check=True)
                moment = dt.datetime.combine(message.datestamp, message.timestamp)
                row = {"device": device, "ts": f"{moment.replace(tzinfo=None).isoformat()}Z"}
                if message.status != "A":
                    yield row, NO_FIX
                    continue
                row |= {"lat": repr(message.latitude), "lon": repr(message.longitude)}
                if message.spd_over_grnd is not None:
                    row["speed_mps"] = repr(float(message.spd_over_grnd) * _MPS_PER_KNOT)
                yield row, ""
            except (pynmea2.ParseError, ValueError, TypeError, AttributeError, IndexError):
                has_no_fix = re.match(r"\$..RMC,[^,]*,V,", text)
                yield {"device": device, "ts": text}, NO_FIX if has_no_fix else UNPARSABLE
    if not kinds["RMC"]:
        raise TraceFormatError(
            f"{file.name} holds no RMC sentences.",
            where=str(file),
            found=", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common(5)) or "no sentences",
            expected="RMC sentences: of NMEA's positions they alone have a date (GGA and GLL have none)",
            remedy="set the receiver or the logger to record RMC",
        )
