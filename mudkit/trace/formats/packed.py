"""Packed files: gzip, bz2, xz, zst, and zip with one file in it, recognised by content and not by name."""

from __future__ import annotations

import lzma
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePath, PurePosixPath

import pyarrow as pa

from mudkit.errors import TraceFormatError
from mudkit.files import Place, store_problem
from mudkit.trace.formats.batch import HEAD_BYTES, empty, unreadable

MAX_LAYERS = 3
"""Maximum number of times that a file is packed."""

READ_ERRORS = (
    pa.ArrowException,
    EOFError,
    NotImplementedError,  # a method of compression that zipfile lacks
    OSError,
    UnicodeDecodeError,
    lzma.LZMAError,
    zipfile.BadZipFile,
    zlib.error,
)
"""Exceptions of libraries for a file that is damaged."""

_MAGIC = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bz2",
    b"\xfd7zXZ\0": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PK\x03\x04": "zip",
    b"PK\x05\x06": "zip",
}
_MAGIC_BYTES = max(map(len, _MAGIC))
_SUFFIXES = (".gz", ".bz2", ".xz", ".zst", ".zip")
_PACKED_FACTOR = 5
_WORKBOOKS = {"xl/": "an xlsx workbook", "content.xml": "an OpenDocument file", "word/": "a docx document"}


def text_bytes(name: str, size_bytes: int) -> int:
    """Estimate the size of a file's content as text, by the suffixes of its name."""
    suffixes = {suffix.lower() for suffix in PurePosixPath(name).suffixes[-2:]}
    return size_bytes * (_PACKED_FACTOR if suffixes & {*_SUFFIXES, ".parquet"} else 1)


def bare_name(file: Place | PurePath) -> str:
    """Return the name of a file without the suffixes of packing."""
    name = file.name
    while name.lower().endswith(_SUFFIXES):
        name = name[: name.rindex(".")]
    return name


def stem(file: Place | PurePath) -> str:
    """Return the name of a file without any suffix, which names its device."""
    return Path(bare_name(file)).stem


@contextmanager
def opened(file: Place) -> Iterator[pa.NativeFile]:
    """Open the content of a file, unpacked.

    Raises
    ------
    TraceFormatError
        The file is damaged, here or while the stream is read; or it is an archive of several files.
    """
    try:
        with ExitStack() as stack:
            yield _unpacked(file, _layers(file), stack)
    except READ_ERRORS as error:
        raise unreadable(file, error) from error
    except Exception as error:  # those of stores' libraries need not be a READ_ERROR
        problem = store_problem(file, error, "file")
        if problem is None or problem is error:
            raise
        raise problem from error


def is_packed(file: Place) -> bool:
    """Return whether the content of a file is packed."""
    with ExitStack() as stack:
        magic = _unpacked(file, [], stack).read(_MAGIC_BYTES)
    return any(magic.startswith(start) for start in _MAGIC)


def _layers(file: Place) -> list[str]:
    """Return how a file is packed, from outside to inside."""
    layers: list[str] = []
    while True:
        with ExitStack() as stack:
            magic = _unpacked(file, layers, stack).read(_MAGIC_BYTES)
        layer = next((name for start, name in _MAGIC.items() if magic.startswith(start)), None)
        if layer is None:
            return layers
        if len(layers) == MAX_LAYERS or (layers and layer == "zip"):
            raise _unpack_it(file, " inside ".join([layer, *reversed(layers)]))
        layers.append(layer)


def _unpacked(file: Place, layers: list[str], stack: ExitStack) -> pa.NativeFile:
    """Open a file that is packed in these layers."""
    stream = stack.enter_context(_stream(file))
    for layer in layers:
        if layer == "zip":
            archive = stack.enter_context(_archive(file, stream, stack))
            stream = pa.PythonFile(stack.enter_context(archive.open(_member(file, archive))), mode="r")
        elif layer == "xz":
            stream = pa.PythonFile(stack.enter_context(lzma.open(stream)), mode="r")  # noqa: SIM115
        else:
            stream = stack.enter_context(pa.CompressedInputStream(stream, layer))
    return stream


def _archive(file: Place, stream: pa.NativeFile, stack: ExitStack) -> zipfile.ZipFile:
    """Open an archive, whose end is read first: a copy of it where a web server sends whole files alone."""
    if isinstance(file, Path):
        return zipfile.ZipFile(file)
    try:
        return zipfile.ZipFile(stream)
    except ValueError:
        copy = stack.enter_context(tempfile.TemporaryFile(prefix="mudkit-"))  # noqa: SIM115
        with file.open("rb") as whole:
            shutil.copyfileobj(whole, copy)
        return zipfile.ZipFile(copy)


def _stream(file: Place) -> pa.NativeFile:
    """Open a file without unpacking it."""
    if isinstance(file, Path):
        return pa.OSFile(str(file))
    return pa.PythonFile(file.open("rb"), mode="r")


def _member(file: Place, archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    """Return the only file of an archive, or its only KML file (KMZ)."""
    members = [
        member
        for member in archive.infolist()
        if not (member.is_dir() or member.filename.startswith("__MACOSX/"))
        and not Path(member.filename).name.startswith(".")
    ]
    for part, kind in _WORKBOOKS.items():
        if any(member.filename.startswith(part) for member in members):
            raise TraceFormatError(
                f"{file.name} is {kind}.",
                where=str(file),
                found=", ".join(member.filename for member in members[:3]),
                expected="a table as text, such as CSV",
                remedy="save the sheet as CSV, and load that",
            )
    maps = [member for member in members if member.filename.lower().endswith(".kml")]
    if len(members) != 1 and len(maps) != 1:
        names = ", ".join(member.filename for member in members[:5]) + (", …" if len(members) > 5 else "")
        raise _unpack_it(
            file, f"a zip of {len(members):,} files: {names}" if names else "a zip without files"
        )
    member = (members if len(members) == 1 else maps)[0]
    if member.flag_bits & 1:
        raise _unpack_it(file, f"{member.filename}, locked with a password")
    return member


def _unpack_it(file: Place, found: str) -> TraceFormatError:
    """Return the error for a file that is packed in another way."""
    return TraceFormatError(
        f"{file.name} is packed in a way that is not read.",
        where=str(file),
        found=found,
        expected=f"one file, packed at most {MAX_LAYERS} times, with gzip, bz2, xz, zst or zip",
        remedy="unpack it into a folder, and load the folder or the file in it",
    )


@contextmanager
def on_disk(file: Place) -> Iterator[Path]:
    """Return the path of a file's content: a temporary copy, if it is packed or in a store."""
    with opened(file) as stream:
        if isinstance(file, Path) and isinstance(stream, pa.OSFile):
            yield file
            return
        with tempfile.NamedTemporaryFile(prefix="mudkit-", suffix=Path(bare_name(file)).suffix) as copy:
            shutil.copyfileobj(stream, copy)
            copy.flush()
            yield Path(copy.name)


def peek(file: Place) -> bytes:
    """Return the first 64 KiB of a file's content; it must not be empty."""
    with opened(file) as stream:
        head: bytes = stream.read(HEAD_BYTES)
    if not head.strip():
        raise empty(file)
    return head
