"""Tracks in XML, read as a stream: any size, in memory bounded by the longest ``gx:Track``.

GPX 1.0 and 1.1 (www.topografix.com/GPX/1/1), TCX v2 (Garmin's TrainingCenterDatabase) and KML 2.2 with the
tracks of ``gx`` (developers.google.com/kml).

The parser is expat itself, without namespaces: elements are known by their local names, so a prefix that
nobody declares does no harm. Nothing outside the file is ever read, and a file that declares entities is
refused: these formats have none, and a few lines of them can stand for gigabytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import NoReturn
from xml.parsers import expat

import pyarrow as pa

from mudkit.errors import TraceFormatError
from mudkit.files import Place
from mudkit.trace.formats.batch import NO_PLACE, WAYPOINT, Batch, Row, batches_of, other_format
from mudkit.trace.formats.documents import refuse_document
from mudkit.trace.formats.packed import opened, peek, stem

MAX_CHARACTERS = 1000
_CHUNK_BYTES = 1 << 18
_COLUMNS = ("device", "ts", "lat", "lon", "speed_mps")
_BLANK = b"\xef\xbb\xbf \t\r\n"
"""Bytes before a document: a signature, blanks."""

_CODES = expat.errors.codes
_JUNK = _CODES[expat.errors.XML_ERROR_JUNK_AFTER_DOC_ELEMENT]
_PERHAPS_BARE = (
    _CODES[expat.errors.XML_ERROR_INVALID_TOKEN],
    _CODES[expat.errors.XML_ERROR_UNDEFINED_ENTITY],
)
"""Errors of expat for an ampersand that begins no reference."""

_BARE = re.compile(rb"&(?!(?:#\d+|#[xX][\da-fA-F]+|amp|lt|gt|quot|apos);)")
_MAX_REFERENCE_BYTES = 16
_UTF16 = (b"\xff\xfe<\0", b"\xfe\xff\0<")


@dataclass(frozen=True)
class _Dialect:
    """Format of XML.

    Attributes
    ----------
    name, root : str
        Name of the format and of its outermost element.
    points : frozenset of str
        Elements that hold a point. One in another replaces it: a placemark with a track is no point.
    fields : dict
        Columns of the elements in a point, with the elements that are directly around; None for any.
        ``place`` is longitude and latitude.
    tracks, track_points : frozenset of str
        Elements whose points belong together, and those that hold these points.
    title : str
        Element that names a track.
    series : frozenset of str
        Elements of ``points`` that hold several points: first times, then places.
    attributes : tuple of str
        Columns that are attributes of a point.
    aside : dict
        Elements of ``points`` that are no positions, with the reason.
    """

    name: str
    root: str
    points: frozenset[str]
    fields: Mapping[str, tuple[str, frozenset[str] | None]]
    tracks: frozenset[str]
    track_points: frozenset[str]
    title: str = "name"
    series: frozenset[str] = frozenset()
    attributes: tuple[str, ...] = ()
    aside: Mapping[str, str] = field(default_factory=dict)


_GPX_POINTS = frozenset(("trkpt", "rtept", "wpt"))
_GPX = _Dialect(
    "GPX",
    "gpx",
    _GPX_POINTS,
    {"time": ("ts", _GPX_POINTS), "speed": ("speed_mps", None)},
    frozenset(("trk",)),
    frozenset(("trkpt",)),
    attributes=("lat", "lon"),
    aside={"wpt": WAYPOINT},
)
_TCX = _Dialect(
    "TCX",
    "TrainingCenterDatabase",
    frozenset(("Trackpoint",)),
    {
        "Time": ("ts", frozenset(("Trackpoint",))),
        "LatitudeDegrees": ("lat", frozenset(("Position",))),
        "LongitudeDegrees": ("lon", frozenset(("Position",))),
        "Speed": ("speed_mps", frozenset(("TPX",))),
    },
    frozenset(("Activity", "Course")),
    frozenset(("Trackpoint",)),
    title="Id",
)
_KML = _Dialect(
    "KML",
    "kml",
    frozenset(("Placemark", "Track")),
    {
        "when": ("ts", frozenset(("TimeStamp", "Track"))),
        "begin": ("ts", frozenset(("TimeSpan",))),
        "coordinates": ("place", frozenset(("Point",))),
        "coord": ("place", frozenset(("Track",))),
    },
    frozenset(("Placemark",)),
    frozenset(("Track",)),
    series=frozenset(("Track",)),
)


def is_xml(head: bytes, root: str) -> bool:
    """Return whether a file may begin like XML with this outermost element."""
    if head.startswith(_UTF16):
        head = head.decode("utf-16", errors="ignore").encode()
    head = head.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    name = root.lower().encode()
    return head.startswith((b"<?xml", b"<" + name, b"<!--")) and b"<" + name in head


def is_gpx(head: bytes) -> bool:
    """Return whether a file begins like GPX."""
    return is_xml(head, _GPX.root)


def is_tcx(head: bytes) -> bool:
    """Return whether a file begins like TCX."""
    return is_xml(head, _TCX.root)


def is_kml(head: bytes) -> bool:
    """Return whether a file begins like KML."""
    return is_xml(head, _KML.root)


def read_gpx(file: Place, columns: dict[str, str]) -> Iterator[Batch]:
    """Read the points of one file: of tracks and of routes, in the order of the file.

    The device is the file's stem; where the file holds several tracks, those of a track are of the device
    ``stem/name``, or ``stem/track 2`` without a name. A point without a time has a null there. The speed is
    the element ``speed`` of the point (GPX 1.0) or among its extensions (Garmin's TrackPointExtension v2,
    OsmAnd), all of them in metres a second. Waypoints are saved places: they have numbers among the rows, and
    are set aside (``Batch.malformed``), since their times tell when they were saved.
    """
    return _read(file, _GPX)


def read_tcx(file: Place, columns: dict[str, str]) -> Iterator[Batch]:
    """Read the trackpoints of one file, with devices as in :func:`read_gpx`; the track's name is its ``Id``.

    The speed is that of Garmin's ActivityExtension v2, in metres a second. A trackpoint without a position,
    as of a treadmill, is set aside.
    """
    return _read(file, _TCX)


def read_kml(file: Place, columns: dict[str, str]) -> Iterator[Batch]:
    """Read placemarks with a ``Point``, and ``gx:Track``; devices as in :func:`read_gpx`.

    The time of a placemark is its ``TimeStamp``, or the begin of its ``TimeSpan``. A track is named by its
    placemark. Placemarks of other geometries are set aside; those without a time have a null there.
    """
    return _read(file, _KML)


def _read(file: Place, dialect: _Dialect) -> Iterator[Batch]:
    """Read the points of a file in batches, in a second pass over it; the first one counts tracks."""
    head = peek(file)
    if not is_xml(head, dialect.root):
        refuse_document(file, head)
        raise other_format(file, f"{dialect.name}: <?xml …?><{dialect.root} …>", head=head)
    escapes = False
    try:
        count = _count_tracks(file, dialect, escapes=escapes)
    except TraceFormatError as error:
        if getattr(error.__cause__, "code", None) not in _PERHAPS_BARE:
            raise
        escapes = True
        count = _count_tracks(file, dialect, escapes=escapes)
    points = _Points(dialect, stem(file), has_several=count > 1)
    rows = (row for _ in _parsed(file, points, escapes=escapes) for row in points.take())
    yield from batches_of(file, rows, _COLUMNS)


def _count_tracks(file: Place, dialect: _Dialect, *, escapes: bool) -> int:
    """Return the number of tracks with points in a file."""
    tracks = _Tracks(dialect)
    for _ in _parsed(file, tracks, escapes=escapes):
        pass
    return tracks.count


class _Tracks:
    """Handler of a parser's events, which counts the tracks that have points."""

    def __init__(self, dialect: _Dialect) -> None:
        self.dialect = dialect
        self.count = 0
        self._is_counted = False

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """Handle the begin of an element: count a track at its first point."""
        local = _local(name)
        if local in self.dialect.tracks:
            self._is_counted = False
        if not self._is_counted and local in self.dialect.track_points:
            self.count += 1
            self._is_counted = True


class _Points(_Tracks):
    """Handler that collects points as rows, too."""

    def __init__(self, dialect: _Dialect, name: str, *, has_several: bool) -> None:
        super().__init__(dialect)
        self.rows: list[Row] = []
        self._stem = name
        self._has_several = has_several
        self._name: str | None = None
        self._path: list[str] = []
        self._text: list[str] | None = None
        self._size = 0
        self._point: dict[str, list[str | None]] | None = None
        self._texts = {*dialect.fields, dialect.title}

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """Handle the begin of an element: a track, a point, or a text in one."""
        local = _local(name)
        self._path.append(local)
        if local in self._texts:
            self._text, self._size = [], 0
            return
        super().start(local, attributes)
        if local in self.dialect.tracks:
            self._name = None
        if local in self.dialect.points:
            self._point = {name: [attributes.get(name)] for name in self.dialect.attributes}

    def text(self, text: str) -> None:
        """Append a part of an element's text; very long texts are cut."""
        if self._text is not None and self._size < MAX_CHARACTERS:
            self._text.append(text)
            self._size += len(text)

    def end(self, name: str) -> None:
        """Handle the end of an element: add its point, or store its text as a value of the point."""
        local = self._path.pop()
        above = self._path[-1] if self._path else ""
        if local in self.dialect.points and self._point is not None:
            self._add(local, self._point)
            self._point = None
        elif self._text is not None and local in self._texts:
            text, self._text = "".join(self._text).strip() or None, None
            column, around = self.dialect.fields.get(local, ("", None))
            if local == self.dialect.title and above in self.dialect.tracks:
                self._name = text
            elif column and self._point is not None and (around is None or above in around):
                self._point.setdefault(column, []).append(text)

    def take(self) -> list[Row]:
        """Return and remove the collected rows."""
        rows, self.rows = self.rows, []
        return rows

    def _add(self, kind: str, values: dict[str, list[str | None]]) -> None:
        """Add the rows of a point or a series of them."""
        device = self._stem
        if self._has_several and kind in self.dialect.track_points:
            device += f"/{self._name or f'track {self.count}'}"
        reason = self.dialect.aside.get(kind, "")
        if "lat" not in values and "place" not in values:
            reason = reason or NO_PLACE
        if kind in self.dialect.series:
            points = [dict(zip(values, texts, strict=True)) for texts in zip_longest(*values.values())]
        else:
            points = [{column: texts[-1] for column, texts in values.items()}]
        for row in points:
            if place := row.pop("place", None):
                row |= zip(("lon", "lat"), re.split(r"[,\s]+", place), strict=False)
            row["device"] = device
            self.rows.append((row, reason))


def _local(name: str) -> str:
    """Return the name of an element without the prefix of its namespace."""
    return name.rpartition(":")[2]


def _chunks(stream: pa.NativeFile) -> Iterator[bytes]:
    """Yield the bytes of a stream, some at a time."""
    while chunk := stream.read(_CHUNK_BYTES):
        yield chunk


def _escaped(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield chunks with ampersands escaped that begin no reference."""
    rest = b""
    for chunk in chunks:
        text = rest + chunk
        place = text.rfind(b"&", max(0, len(text) - _MAX_REFERENCE_BYTES))
        end = len(text) if place < 0 else place
        yield _BARE.sub(b"&amp;", text[:end])
        rest = text[end:]
    yield _BARE.sub(b"&amp;", rest)


def _parser(file: Place, handler: _Tracks) -> expat.XMLParserType:
    """Return the parser of a document, whose events go to a handler."""
    parser = expat.ParserCreate()
    parser.buffer_text = True
    dialect = handler.dialect

    def begin(name: str, attributes: dict[str, str]) -> None:
        if _local(name) != dialect.root:
            raise TraceFormatError(
                f"{file.name} is XML, but no {dialect.name}.",
                where=str(file),
                found=f"the element {_local(name)[:100]!r}",
                expected=f"the element {dialect.root!r}",
                remedy="export the track as GPX, TCX or KML",
            )
        parser.StartElementHandler = handler.start
        handler.start(name, attributes)

    def refuse(name: str, *rest: object) -> NoReturn:
        raise TraceFormatError(
            f"{file.name} declares entities, which {dialect.name} does not need and a harmful file does.",
            where=f"{file}, line {parser.CurrentLineNumber}",
            found=f"the entity {name!r}",
            expected="no entity declarations",
            remedy="remove its DOCTYPE if you trust the file",
        )

    parser.StartElementHandler = begin
    if isinstance(handler, _Points):
        parser.EndElementHandler = handler.end
        parser.CharacterDataHandler = handler.text
    parser.EntityDeclHandler = refuse
    return parser


def _parsed(file: Place, handler: _Tracks, *, escapes: bool) -> Iterator[None]:
    """Parse a file chunk by chunk, and the documents in it one after the other; yield after each chunk.

    With ``escapes``, ampersands that begin no reference are taken for themselves.
    """
    try:
        with opened(file) as stream:
            parser, open_text, begin = _parser(file, handler), b"", 0
            for chunk in _escaped(_chunks(stream)) if escapes else _chunks(stream):
                text = chunk if begin or open_text else chunk.lstrip(_BLANK)
                while text:
                    open_text += text
                    try:
                        parser.Parse(text, False)
                        text = b""
                        open_text, begin = (
                            open_text[parser.CurrentByteIndex - begin :],
                            parser.CurrentByteIndex,
                        )
                    except expat.ExpatError as error:
                        if error.code != _JUNK:
                            raise
                        text = open_text[parser.ErrorByteIndex - begin :]  # another document
                        parser, open_text, begin = _parser(file, handler), b"", 0
                yield
            parser.Parse(b"", True)
            yield
    except TraceFormatError:
        raise
    except (expat.ExpatError, LookupError, ValueError) as error:  # an encoding that Python or expat lacks
        problem = str(error)
        cut = "no element found" in problem or "unclosed" in problem
        raise TraceFormatError(
            f"{file.name} is cut short." if cut else f"{file.name} cannot be read.",
            where=str(file),
            found=problem,
            expected="well-formed XML" + (" to its end" if cut else ""),
            remedy="get the file again; a download or copy may have been stopped"
            if cut
            else "check the file",
        ) from error
