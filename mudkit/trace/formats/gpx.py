"""GPX 1.0 and 1.1 (www.topografix.com/GPX/1/1), read as a stream: any size, in bounded memory.

The parser is expat itself. Nothing outside the file is ever read, and a file that declares entities is
refused: GPX has none, and a few lines of them can stand for gigabytes.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Callable, Iterator
from io import BufferedReader
from pathlib import Path
from typing import NoReturn
from xml.parsers import expat

import numpy as np
import pyarrow as pa

from mudkit.errors import TraceFormatError
from mudkit.trace.formats.batch import Batch, compression, other_format, peek, refuse_web_page

__all__ = ["is_xml", "read_gpx"]

_CHUNK_BYTES = 1 << 18
_BATCH_ROWS = 1 << 16
MAX_CHARACTERS = 1000
_POINTS = frozenset(("trkpt", "rtept", "wpt"))
_KIND = pa.string()
_UTF16 = (b"\xff\xfe<\0", b"\xfe\xff\0<")


def is_xml(head: bytes) -> bool:
    """Return whether a file may begin like XML with a GPX element."""
    if head.startswith(_UTF16):
        head = head.decode("utf-16", errors="ignore").encode()
    head = head.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    return head.startswith((b"<?xml", b"<gpx")) and b"gpx" in head


def read_gpx(file: Path, columns: dict[str, str]) -> Iterator[Batch]:
    """Read the points of one file: of tracks, of routes and single ones, in the order of the file.

    The device is the file's stem; where the file holds several tracks, those of a track are of the device
    ``stem/name``, or ``stem/track 2`` without a name. A point without a time has a null there. The speed is
    the element ``speed`` of the point (GPX 1.0) or among its extensions (Garmin's TrackPointExtension v2,
    OsmAnd), all of them in metres a second.
    """
    head = peek(file)
    if not is_xml(head):
        refuse_web_page(file, head)
        raise other_format(file, "GPX: <?xml …?><gpx …>", head=head)
    tracks = _Tracks()
    for _ in _parsed(file, tracks):
        pass
    points = _Points(
        re.sub(r"(\.gpx)?(\.gz)?$", "", file.name, flags=re.IGNORECASE), several=tracks.count > 1
    )
    done = 0
    for _ in _parsed(file, points):
        if len(points.device) >= _BATCH_ROWS:
            yield points.take(file, done)
            done = points.done
    if points.device:
        yield points.take(file, done)


class _Tracks:
    """Counter of the tracks of a file."""

    def __init__(self) -> None:
        self.count = 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self.count += _local(name) == "trk"

    end: Callable[[str], None] | None = None
    text: Callable[[str], None] | None = None


class _Points:
    """Points of a file, collected as columns of texts."""

    def __init__(self, stem: str, *, several: bool) -> None:
        self.device: list[str] = []
        self.done = 0
        self._stem = stem
        self._several = several
        self._track = 0
        self._name: str | None = None
        self._path: list[str] = []
        self._into: list[str] | None = None
        self._size = 0
        self._point: dict[str, str | None] = {}
        self._columns: dict[str, list[str | None]] = {"ts": [], "lat": [], "lon": [], "speed_mps": []}

    def start(self, name: str, attributes: dict[str, str]) -> None:
        local = _local(name)
        self._path.append(local)
        if local in _POINTS:
            self._point = {"lat": attributes.get("lat"), "lon": attributes.get("lon")}
        elif local == "trk":
            self._track += 1
            self._name = None
        elif local in ("time", "name", "speed"):
            self._into, self._size = [], 0

    def text(self, text: str) -> None:
        if self._into is not None and self._size < MAX_CHARACTERS:
            self._into.append(text)
            self._size += len(text)

    def end(self, name: str) -> None:
        local = self._path.pop()
        if self._into is not None and local in ("time", "name", "speed"):
            text, self._into = "".join(self._into).strip(), None
            above = self._path[-1] if self._path else ""
            if local == "time" and above in _POINTS:
                self._point["ts"] = text or None
            elif local == "speed" and not _POINTS.isdisjoint(self._path):
                self._point["speed_mps"] = text or None
            elif local == "name" and above == "trk":
                self._name = text or None
        elif local in _POINTS:
            self.device.append(self._device_name(local))
            for column, values in self._columns.items():
                values.append(self._point.get(column))
        elif local == "trk":
            self._name = None

    def _device_name(self, kind: str) -> str:
        if not self._several or kind != "trkpt":
            return self._stem
        return f"{self._stem}/{self._name or f'track {self._track}'}"

    def take(self, file: Path, done: int) -> Batch:
        """Return and remove the collected points."""
        table = pa.table(
            {"device": pa.array(self.device, _KIND)}
            | {name: pa.array(values, _KIND) for name, values in self._columns.items()}
        )
        self.done = done + len(table)
        self.device = []
        self._columns = {name: [] for name in self._columns}
        return Batch(table, np.arange(done + 1, self.done + 1, dtype=np.int64), file.name)


def _local(name: str) -> str:
    return name.rpartition(" ")[2]


def _parsed(file: Path, handler: _Tracks | _Points) -> Iterator[None]:
    """Parse a file chunk by chunk; yield after each chunk."""
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True

    def begin(name: str, attributes: dict[str, str]) -> None:
        if _local(name) != "gpx":
            raise TraceFormatError(
                f"{file.name} is XML, but no GPX.",
                where=str(file),
                found=f"the element {_local(name)!r}",
                expected="the element 'gpx'",
                remedy="export the track as GPX",
            )
        parser.StartElementHandler = handler.start
        handler.start(name, attributes)

    def refuse(name: str, *rest: object) -> NoReturn:
        raise TraceFormatError(
            f"{file.name} declares entities, which GPX does not need and a harmful file does.",
            where=f"{file}, line {parser.CurrentLineNumber}",
            found=f"the entity {name!r}",
            expected="no entity declarations",
            remedy="remove its DOCTYPE if you trust the file",
        )

    parser.StartElementHandler = begin
    parser.EntityDeclHandler = refuse
    if handler.end is not None:
        parser.EndElementHandler = handler.end
    if handler.text is not None:
        parser.CharacterDataHandler = handler.text
    try:
        with _opened(file) as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                parser.Parse(chunk, False)
                yield
            parser.Parse(b"", True)
            yield
    except (expat.ExpatError, zlib.error) as error:
        text = str(error)
        cut = "no element found" in text or "unclosed" in text
        raise TraceFormatError(
            f"{file.name} is cut short." if cut else f"{file.name} cannot be read.",
            where=str(file),
            found=text,
            expected="well-formed XML" + (" to its end" if cut else ""),
            remedy="get the file again; a download or copy may have been stopped"
            if cut
            else "check the file",
        ) from error


def _opened(file: Path) -> gzip.GzipFile | BufferedReader:
    return gzip.open(file) if compression(file) else file.open("rb")
