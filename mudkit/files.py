"""Places of files: paths and addresses; files and folders that are written atomically; mudkit's cache.

A place is a :class:`pathlib.Path` of this machine's file system, or a :class:`upath.UPath` for an address
(``s3://…``, ``webhdfs://…``). Both have the methods ``open, read_text, glob, rglob, iterdir, stat, unlink,
is_file`` and ``/``. A store behind an address need not be a POSIX file system: it may refuse to rename and to
append, and a folder may exist only by the names of its files. So each file is put there once, as a whole.
"""

from __future__ import annotations

import atexit
import difflib
import errno
import glob
import hashlib
import os
import platform
import queue
import re
import shutil
import stat
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias, TypeVar, cast
from urllib.parse import urlsplit
from urllib.request import url2pathname

from mudkit.errors import (
    EnvironmentProblem,
    InputMissing,
    MudkitError,
    OutputExists,
    OutputProblem,
    ParameterError,
)

if TYPE_CHECKING:
    from upath import UPath  # loading it takes longer than loading all of mudkit

Place: TypeAlias = "Path | UPath"
PlaceLike: TypeAlias = "str | os.PathLike[str] | UPath"

T = TypeVar("T")

ANSWER_TIMEOUT_S = 30.0
"""Time in which the host of an address must answer at first."""

_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]+):(/{1,3})(?=\w|\Z)", re.IGNORECASE)
_LOCAL_SCHEMES = ("file", "local")
_BUCKETS = ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az")
_SPARK_SCHEMES = {"s3": "s3a", "gcs": "gs"}
"""Schemes that Spark knows by other names."""


def place(path: PlaceLike, what: str = "file") -> Place:
    """Return the place that a text or path names, without a look whether it is there; ``what`` is for errors.

    A text with ``://`` is an address, but ``file:///a`` is the path ``/a``. Directories of a store are not
    cached: other machines write there.

    Raises
    ------
    ParameterError
        It is no text or path, or empty.
    InputMissing
        No library knows the scheme, or a :class:`pathlib.Path` was made of an address, which has lost a
        slash.
    EnvironmentProblem
        The library for the scheme is not installed.
    """
    if not isinstance(path, str | os.PathLike) and not _is_upath(path):
        raise ParameterError(
            f"The {what} is named by a path or an address.",
            where=what,
            found=repr(path)[:200],
            expected="a text, a pathlib.Path or a upath.UPath",
        )
    if _is_upath(path) and "use_listings_cache" in getattr(path, "storage_options", {}):
        return cast("UPath", path)
    text = str(path)
    if not text:
        raise ParameterError(
            f"The path of the {what} is empty.",
            where=what,
            found="''",
            expected="a file or folder",
            remedy="name it; in a script, check the variable that was to hold it",
        )
    match = _ADDRESS.match(text)
    if match is None:
        return Path(text).expanduser()
    scheme, slashes = match[1].lower(), match[2]
    if scheme in _LOCAL_SCHEMES:
        return _path_of_file_address(text, what)
    if slashes == "/":
        raise InputMissing(
            f"The {what} is named by an address that has lost a slash.",
            where=what,
            found=text[:200],
            expected=f"{text[: match.end(1)]}://…",
            remedy="give the address as a text or a upath.UPath; a pathlib.Path joins its slashes",
        )
    if scheme in ("hdfs", "webhdfs"):
        import mudkit.hadoop  # noqa: F401 - it registers classes for them
    _check_scheme(scheme, text, what)
    from upath import UPath

    options = getattr(path, "storage_options", {})
    text = scheme + text[len(scheme) :]
    if scheme not in ("http", "https"):  # a folder is the same without a slash at its end
        text = text.rstrip("/") if text.rstrip("/").count("/") > 2 else text
    return cast("Place", UPath(text, **{"use_listings_cache": False, **options}))


def _is_upath(path: object) -> bool:
    """Return whether a value is a UPath, whose module takes longer to load than all of mudkit."""
    module = sys.modules.get("upath")
    return module is not None and isinstance(path, module.UPath)


def _path_of_file_address(text: str, what: str) -> Path:
    """Return the path that an address with the scheme ``file`` names (RFC 8089)."""
    parts = urlsplit(text)
    if parts.netloc not in ("", "localhost"):
        raise InputMissing(
            f"The {what} is named by an address of another machine.",
            where=what,
            found=text[:200],
            expected="file:///… with three slashes, for a file of this machine",
            remedy="write the whole path behind file://",
        )
    return Path(url2pathname(text.split(":", 1)[1].removeprefix("//localhost").removeprefix("//")))


def _check_scheme(scheme: str, text: str, what: str) -> None:
    """Raise an error if no library reads addresses with a scheme, or if it is not installed."""
    try:
        import fsspec

        fsspec.get_filesystem_class(scheme)
    except ValueError as error:
        raise InputMissing(
            f"The {what} is named by an address of an unknown scheme.",
            where=what,
            found=text[:200],
            expected="s3, gs, abfss, hdfs, webhdfs, https, file or another scheme of fsspec",
            remedy="check the address; download the file if there is no library for its store",
        ) from error
    except ImportError as error:
        library = getattr(error.__cause__ or error, "name", None) or "universal_pathlib"
        raise EnvironmentProblem(
            f"The library for addresses with {scheme}:// is not installed.",
            where=text[:200],
            found=str(error),
            expected=f"the package {library}",
            remedy=f"pip install {library}; on executors of Spark, too",
        ) from error


def is_folder(place: Place) -> bool:
    """Return whether a place is a folder; an address of the web is a file, whatever a page there lists."""
    return place.is_dir() if isinstance(place, Path) else _is_kind(place, stat.S_ISDIR)


def is_file(place: Place) -> bool:
    """Return whether a place is a file; at an address, raise InputMissing if the store does not say so."""
    return place.is_file() if isinstance(place, Path) else _is_kind(place, stat.S_ISREG)


def _is_kind(at: UPath, fits: Callable[[int], bool]) -> bool:
    """Return whether something of this kind is at the address; raise where that cannot be found out."""
    try:
        return fits(answer(at, at.stat).st_mode)
    except Exception as error:
        if _problem_of(error) == "missing":
            return False
        raise input_problem(at, error, "file") from error


def arrow_place(path: PlaceLike) -> tuple[Any, str]:
    """Return a place for Arrow: its file system (:class:`pyarrow.fs.FileSystem`), and the path in it."""
    from pyarrow import fs

    at = place(path)
    if isinstance(at, Path):
        return fs.LocalFileSystem(), str(at.absolute())
    return fs.PyFileSystem(fs.FSSpecHandler(at.fs)), at.path


def spark_place(path: PlaceLike) -> str:
    """Return a place for Spark: an absolute path, or an address with the scheme that Hadoop knows."""
    at = place(path)
    if isinstance(at, Path):
        return str(at.absolute())
    scheme, rest = str(at).split("://", 1)
    return f"{_SPARK_SCHEMES.get(scheme, scheme)}://{rest}"


def answer(at: UPath, ask: Callable[[], T]) -> T:
    """Return the result of a call to a store; raise TimeoutError if its host does not answer.

    Libraries of stores have timeouts of minutes, or none.
    """
    _ = at.fs  # of this thread: fsspec has a file system, with its connections, for each
    results: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            results.put((ask(), None))
        except BaseException as error:
            results.put((None, error))

    threading.Thread(target=run, daemon=True, name="mudkit-answer").start()
    try:
        result, error = results.get(timeout=ANSWER_TIMEOUT_S)
    except queue.Empty:
        raise TimeoutError(f"no answer within {ANSWER_TIMEOUT_S:g} s") from None
    if error is not None:
        raise error
    return result  # type: ignore[return-value]


def _problem_of(error: BaseException) -> str:
    """Return what an exception of a store is about: ``rights``, ``host``, ``missing``, or an empty text."""
    cause = error.__cause__ and _problem_of(error.__cause__)
    if cause in ("rights", "host"):  # fsspec calls a page missing whose host does not answer
        return cause
    kinds = {kind.__name__ for kind in type(error).__mro__}
    status = getattr(error, "status", None) or getattr(getattr(error, "response", None), "status_code", None)
    if kinds & {"PermissionError", *_CREDENTIALS} or status in (401, 403):
        return "rights"
    if kinds & {"FileNotFoundError", "NotADirectoryError"} or status == 404:
        return "missing"
    if kinds & {"TimeoutError", "gaierror"} or any("Connect" in kind or "Timeout" in kind for kind in kinds):
        return "host"
    return ""


_CREDENTIALS = frozenset(
    (
        "NoCredentialsError",
        "PartialCredentialsError",
        "CredentialRetrievalError",
        "TokenRetrievalError",
        "ClientAuthenticationError",
        "DefaultCredentialsError",
    )
)
"""Exceptions of stores' libraries for credentials that are missing, which are no PermissionError."""

_RIGHTS = "check the credentials: libraries of stores take them from their usual variables and files"
_HOST = "check the host and the port of the address, and the network"


def _message(error: BaseException) -> str:
    """Return the text of the exception that others were raised from."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {error}"[:300]


def store_problem(at: Place, error: BaseException, what: str) -> MudkitError | None:
    """Return the error for a source that its store does not give; None for an exception about its content."""
    if isinstance(error, MudkitError):
        return error
    message = _message(error)
    problem = "" if isinstance(at, Path) else _problem_of(error)
    if problem == "rights":
        return InputMissing(
            f"The store gives no right to read the {what} at {at}.",
            where=str(at),
            found=message,
            expected="a store that lets you read this address",
            remedy=_RIGHTS,
        )
    if problem == "host":
        return InputMissing(
            f"The host of the address {at} does not answer.",
            where=str(at),
            found=message,
            expected=f"the {what} at this address",
            remedy=_HOST,
        )
    if problem == "missing":
        return InputMissing(
            f"There is no {what} at the address {at}.",
            where=str(at),
            found=message,
            expected="a file or folder that exists",
            remedy="check the address",
        )
    return None


def input_problem(at: Place, error: BaseException, what: str) -> MudkitError:
    """Return the error for a source that could not be read, whichever library raised it."""
    is_path = isinstance(at, Path)
    return store_problem(at, error, what) or InputMissing(
        f"There is no {what} that can be read at {at if is_path else f'the address {at}'}.",
        where=str(at),
        found=_message(error),
        expected="a file or folder that exists and may be read",
        remedy="check the path, and who may read it" if is_path else "check the address",
    )


def existing_path(path: PlaceLike, what: str) -> Path:
    """Return the path of a file or folder of this machine; refuse addresses, which are not read here."""
    if is_address(path):
        raise InputMissing(
            f"The {what} is named by an address, which is not read over the network.",
            where=what,
            found=str(path)[:200],
            expected="a file or folder of this machine",
            remedy="download it, and name the file",
        )
    at = place(path, what)
    assert isinstance(at, Path)
    return _existing_path(at, what)


def output_path(path: PlaceLike) -> Path:
    """Return the path of an output that can be on this machine only, ``~`` expanded; refuse addresses."""
    if is_address(path):
        raise OutputProblem(
            "This output is named by an address, and is written on this machine only.",
            where=str(path)[:200],
            found="an address",
            expected="a folder of this machine",
            remedy="write it here, and copy the folder",
        )
    at = place(path, "output")
    assert isinstance(at, Path)
    return at


def is_address(path: PlaceLike) -> bool:
    """Return whether a text or path names an address of a store, also one that has lost a slash."""
    match = _ADDRESS.match(str(path))
    return match is not None and match[1].lower() not in _LOCAL_SCHEMES


def existing(path: PlaceLike, what: str) -> Place:
    """Return a place, or raise when nothing is there; ``what`` names it in the error, such as "trace".

    Raises
    ------
    InputMissing
        There is nothing, or nothing that may be read, or the host of an address does not answer.
    ParameterError, EnvironmentProblem
        As :func:`place`.
    """
    at = place(path, what)
    return _existing_path(at, what) if isinstance(at, Path) else _existing_address(at, what)


def _existing_address(at: UPath, what: str) -> UPath:
    """Return the address; raise InputMissing, with names nearby, where nothing is at it."""
    try:
        answer(at, at.stat)
        return at
    except Exception as error:
        if _problem_of(error) != "missing":
            raise input_problem(at, error, what) from error
    names = _names_in(at.parent)
    if names is None and at.protocol in _BUCKETS and _names_in(at.parents[-1]) is None:
        nearby = f"no bucket {at.drive} that can be read"
    elif names is None:
        nearby = f"no folder {at.parent} either"
    else:
        near = difflib.get_close_matches(at.name, names, n=3, cutoff=0.5)
        nearby = f"in the folder {at.parent}: " + (", ".join(near) or f"{len(names)} other files")
    raise InputMissing(
        f"There is no {what} at the address {at}.",
        where=str(at),
        found=nearby,
        expected="a file or folder that exists",
        remedy="check the address",
    )


def _names_in(folder: UPath) -> list[str] | None:
    """Return the names in a folder of a store; None if it cannot be listed."""
    try:
        return answer(folder, lambda: [at.name for at in folder.iterdir()])
    except Exception:
        return None


def _existing_path(path: Path, what: str) -> Path:
    """Return a path of this machine, or raise when nothing is there."""
    try:
        if path.exists():
            return path
    except OSError as error:  # a name that is too long, a folder that may not be entered
        raise InputMissing(
            f"There is no {what} that can be read at {str(path)[:200]}.",
            found=error.strerror or str(error),
            expected="a file or folder that exists and may be read",
            remedy="check the path and its permissions",
        ) from error
    if path.is_symlink():
        raise InputMissing(
            f"There is no {what} behind the link {path}.",
            where=str(path.absolute()),
            found=f"a link to {path.readlink()}, where nothing is",
            expected="a file or folder that exists",
            remedy="mend the link, or remove it",
        )
    parent = path.parent
    names = [p.name for p in parent.iterdir()] if parent.is_dir() else []
    near = difflib.get_close_matches(path.name, names, n=3, cutoff=0.5)
    raise InputMissing(
        f"There is no {what} at {path}.",
        where=str(path.absolute()),
        found=f"in the folder {parent}: " + (", ".join(near) or f"{len(names)} other files")
        if parent.is_dir()
        else f"no folder {parent} either",
        expected="a file or folder that exists",
        remedy="check the path; a relative path starts from the folder that you are in",
    )


def size_bytes(file: Place) -> int | None:
    """Return the size of a file; None for a page of the web that does not say its own.

    Raises
    ------
    InputMissing
        The store of an address gives no right to the file, or does not answer.
    """
    if isinstance(file, Path):
        return file.stat().st_size
    try:
        size: int | None = answer(file, lambda: file.fs.info(file.path).get("size"))
    except Exception as error:
        raise input_problem(file, error, "file") from error
    return size


def sizes_below(folder: Place) -> dict[str, int]:
    """Return the sizes in bytes of all files in a folder and its folders, by their paths in it, in order.

    A folder that is not there has none. One in it that may not be listed is an error, no empty one.
    """
    if isinstance(folder, Path):
        files: dict[str, int] = {}
        for at, _, names in walk(folder):
            within = Path(at).relative_to(folder).as_posix()
            above = "" if within == "." else f"{within}/"
            paths = ((name, Path(at, name)) for name in names)
            files |= {f"{above}{name}": file.stat().st_size for name, file in paths if file.is_file()}
    else:
        start = folder.path.rstrip("/") + "/"
        files = {name.removeprefix(start): size_bytes for name, size_bytes in _listed(folder.fs, folder.path)}
    return {name: files[name] for name in sorted(files, key=lambda name: name.split("/"))}


def _listed(fs: Any, path: str) -> Iterator[tuple[str, int]]:
    """Yield the paths and sizes of all files below a path of a store; none if it is not there."""
    from fsspec import AbstractFileSystem

    try:
        if type(fs).find is not AbstractFileSystem.find:  # one listing of a bucket
            listing = list(fs.find(path, detail=True).values())
        else:  # find() would pass over folders that may not be listed
            listing = fs.ls(path, detail=True)
    except FileNotFoundError:
        return
    for info in listing:
        name = info["name"].rstrip("/")
        if info["type"] != "directory":
            yield name, int(info["size"])
        elif name != path.rstrip("/"):
            yield from _listed(fs, name)


def walk(folder: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """Walk a folder as :func:`os.walk` does, but do not pass over folders in it that may not be listed."""

    def refuse(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError) or error.filename != str(folder):
            raise error

    return os.walk(folder, onerror=refuse)


@contextmanager
def open_source(file: Place) -> Iterator[IO[bytes]]:
    """Open a file to read its bytes; raise InputMissing where its store refuses, also while it is read."""
    try:
        with file.open("rb") as handle:
            yield handle
    except Exception as error:
        problem = store_problem(file, error, "file")
        if problem is None or problem is error:
            raise
        raise problem from error


def sha256(path: Place) -> str:
    """Return the checksum of a file, or of a folder's files with their names, as hexadecimal text."""
    digest = hashlib.sha256()
    for name in sizes_below(path) if is_folder(path) else [""]:
        if name:
            digest.update(name.encode() + b"\0")
        with open_source(path / name if name else path) as handle:
            hashlib.file_digest(handle, lambda: digest)  # type: ignore[arg-type]
    return digest.hexdigest()


def stamp(path: Place) -> str:
    """Return a checksum of the names, sizes and versions of a file, or of the files below a folder.

    A version is the time of modification, or what a store tells: a checksum, or a time. Hidden files, and
    those that begin with ``_``, do not count.
    """
    digest = hashlib.sha256()
    for name, file in _files_at(path):
        digest.update(f"{name}\0{_size_and_version(file)}\n".encode())
    return digest.hexdigest()


def _files_at(path: Place) -> Iterator[tuple[str, Place]]:
    """Yield names and places: a file itself, or all files below a folder but hidden ones."""
    if not is_folder(path):
        yield path.name, path
        return
    for name in sizes_below(path):
        if not any(part.startswith((".", "_")) for part in name.split("/")):
            yield name, path / name


def _size_and_version(file: Place) -> str:
    """Return a text that differs after a file has changed: its size and time or version."""
    if isinstance(file, Path):
        status = file.stat()
        return f"{status.st_size} {status.st_mtime_ns}"
    info = file.fs.info(file.path)
    known = (info.get(name) for name in VERSIONS)
    return f"{info.get('size')} {next((str(version) for version in known if version is not None), '')}"


VERSIONS = ("ETag", "etag", "LastModified", "last_modified", "modificationTime", "mtime", "created")
"""Names under which stores tell the version of a file, or its time of modification."""


@contextmanager
def staged_folder(path: str | os.PathLike[str], *, overwrite: str | None = None) -> Iterator[Path]:
    """Fill a folder beside its final place and move it there when the body ends well.

    ``overwrite`` allows to replace a folder all of whose files match this pattern. Whatever stops the body,
    nothing appears at ``path``; after a kill ``.<name>.partial-…`` stays, or between two renames
    ``.<name>.old-…``, which the next writer at this place puts back.
    """
    path = output_path(path).absolute()
    _put_back(path)
    refuse_existing(path, overwrite)
    staging = path.parent / f"{_partial(path)}{os.getpid()}-{uuid.uuid4().hex[:8]}"
    new = [folder for folder in path.parents if not folder.exists()]
    try:
        staging.mkdir(parents=True)
        _sweep(path.parent, _partial(path))
        yield staging
        old = None
        if path.exists():
            refuse_existing(path, overwrite)
            old = path.parent / f"{_old(path)}{os.getpid()}-{uuid.uuid4().hex[:8]}"
            path.rename(old)
        staging.rename(path)
        if old is not None:
            shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        if isinstance(error, MudkitError):
            raise
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            refuse_existing(path, None)
        raise output_problem(path, error) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        with suppress(OSError):  # they hold something
            for folder in new:
                folder.rmdir()


@contextmanager
def staged_file(path: PlaceLike) -> Iterator[Path]:
    """Write a file beside its final place and move it there when the body ends well.

    At an address it is put whole, in one write: a store need not know what it is to append or to rename.
    """
    at = place(path)
    if not isinstance(at, Path):
        with tempfile.TemporaryDirectory(prefix="mudkit-") as folder:
            staging = Path(folder) / at.name
            yield staging
            _put(staging, at)
        return
    at = at.absolute()
    staging = at.parent / f".{at.name}.partial-{uuid.uuid4().hex[:8]}"
    try:
        at.parent.mkdir(parents=True, exist_ok=True)
        yield staging
        staging.replace(at)
    except OSError as error:
        if isinstance(error, MudkitError):
            raise
        raise output_problem(at, error) from error
    finally:
        with suppress(OSError):
            staging.unlink()


def _put(file: Path, at: UPath) -> None:
    """Put a file at an address in one write."""
    try:
        if at.protocol == "webhdfs":
            from mudkit.hadoop import put

            put(file, at)
        else:
            at.fs.put_file(str(file), at.path)
    except Exception as error:
        raise output_problem(at, error) from error


def output_problem(path: Place, error: BaseException) -> OutputProblem:
    """Return the error for a failed write, whichever library raised it (Python, Arrow, Spark, a store's)."""
    if not isinstance(path, Path):
        return _store_problem(path, error)
    text = str(error)
    code = getattr(error, "errno", None)
    if code == errno.ENOSPC or "No space left" in text:
        folder = next((p for p in (path, *path.parents) if p.exists()), path)
        free_mb = shutil.disk_usage(folder).free / 1e6
        return OutputProblem(
            f"The disk is full: {path.name} could not be written.",
            where=str(path),
            found=f"{free_mb:.0f} MB free",
            expected="room for the whole output",
            remedy="free some space or choose a place on another disk; nothing was left at the place",
        )
    if code in (errno.EACCES, errno.EPERM, errno.EROFS) or "Permission denied" in text:
        return OutputProblem(
            f"{path.name} could not be written: the place is read-only.",
            where=str(path.parent),
            found=os.strerror(code) if code else "permission denied",
            expected="a folder that you may write to",
            remedy="choose another output folder, or change its permissions",
        )
    return OutputProblem(
        f"{path.name} could not be written.",
        where=str(path),
        found=text or type(error).__name__,
        expected="a place that can be written",
        remedy="choose another output folder",
    )


def _store_problem(at: UPath, error: BaseException) -> OutputProblem:
    """Return the error for a failed write at an address."""
    if isinstance(error, OutputProblem):
        return error
    summary, remedy = {
        "rights": (f"The store gives no right to write {at}.", _RIGHTS),
        "host": (f"The host of the address {at} does not answer.", _HOST),
        "missing": (f"There is no bucket or folder for {at}.", "create it, or check the address"),
    }.get(_problem_of(error), (f"{at} could not be written.", "choose another place"))
    return OutputProblem(
        summary,
        where=str(at),
        found=_message(error),
        expected="an address that can be written",
        remedy=remedy,
    )


def refuse_existing(path: Place, overwrite: str | None) -> None:
    """Refuse a place that holds something, as :func:`staged_folder` does, before long work begins."""
    names = _names_at(path)
    if names is None:
        return
    others = []
    if overwrite is not None and is_folder(path):
        others = sorted(name for name in names if not re.fullmatch(overwrite, name))
        if not others:
            return
    raise OutputExists(
        f"There is something at {path} already.",
        where=str(path),
        found=f"what mudkit did not make: {', '.join(others[:5])}"
        if others
        else ("a folder" if is_folder(path) else "a file"),
        expected="a place that is free" + (", or an output of the same kind" if overwrite else ""),
        remedy="choose another place, or remove it"
        + ("" if overwrite else "; an output of the same kind is replaced with overwrite (--overwrite)"),
    )


def _names_at(path: Place) -> list[str] | None:
    """Return the names in an output folder, of a file none; None if nothing is there."""
    if isinstance(path, Path):
        if not path.exists():
            return None
        return [inner.name for inner in path.iterdir()] if path.is_dir() else []
    try:
        answer(path, path.stat)
        return answer(path, lambda: [inner.name for inner in path.iterdir()]) if is_folder(path) else []
    except Exception as error:
        if _problem_of(error) == "missing":
            return None
        raise output_problem(path, error) from error


def work_folder() -> Path:
    """Create a temporary folder that is removed when this process ends, or by the next one after a kill."""
    parent, prefix = Path(tempfile.gettempdir()), f"mudkit-work-{platform.node()}-"
    _sweep(parent, prefix)
    folder = Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-", dir=parent))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _partial(path: Path) -> str:
    """Begin the name of a folder that is being filled: it tells whose it is."""
    return f".{path.name}.partial-{platform.node()}-"


def _old(path: Path) -> str:
    """Begin the name of a folder that is being replaced."""
    return f".{path.name}.old-{platform.node()}-"


def _put_back(path: Path) -> None:
    """Put back what a process replaced that was killed before its own output was in place."""
    for folder in _left(path.parent, _old(path)):
        if path.exists():
            shutil.rmtree(folder, ignore_errors=True)
        else:
            with suppress(OSError):
                folder.rename(path)


def free_name(path: Path) -> Path:
    """Return the path, with a number appended if it exists or is being written."""
    number, free = 1, path
    while free.exists() or any(path.parent.glob(f".{glob.escape(free.name)}.partial-*")):
        number += 1
        free = path.with_name(f"{path.name}-{number}")
    return free


def sweep_killed(parent: Path, names: str) -> None:
    """Remove what killed processes of this machine left of outputs with such names, a glob pattern."""
    mark = f".partial-{platform.node()}-"
    for left in parent.glob(f".{names}{glob.escape(mark)}*"):
        _sweep(parent, left.name.rpartition(mark)[0] + mark)


def _sweep(parent: Path, prefix: str) -> None:
    """Remove folders that killed processes of this machine left."""
    for folder in _left(parent, prefix):
        shutil.rmtree(folder, ignore_errors=True)


def _left(parent: Path, prefix: str) -> Iterator[Path]:
    """Find folders of processes of this machine that are no more; the number of one is behind the prefix."""
    import psutil  # loading it takes longer than most calls here

    for folder in parent.glob(glob.escape(prefix) + "*"):
        pid = folder.name.removeprefix(prefix).split("-")[0]
        if pid.isdigit() and int(pid) != os.getpid() and not psutil.pid_exists(int(pid)):
            yield folder


def user_cache() -> Path | None:
    """Return the folder of mudkit's cache, which need not exist; None without a home folder.

    ``XDG_CACHE_HOME`` is used on every platform, if it is an absolute path as its specification demands.
    """
    named = os.environ.get("XDG_CACHE_HOME", "")
    if Path(named).is_absolute():
        return Path(named) / "mudkit"
    try:
        home = Path.home()
    except RuntimeError:
        return None
    platform: str = sys.platform  # widened: mypy would call the branches of other platforms unreachable
    if platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "mudkit" / "Cache"
    return home / ("Library/Caches" if platform == "darwin" else ".cache") / "mudkit"


def usable(folder: Path) -> bool:
    """Create a folder if needed; return whether files can be written to it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def temporary_cache() -> Path:
    """Return a temporary folder that only this user can write to.

    Scripts are run from it, so a folder of that name with another owner is not used.
    """
    uid = os.getuid() if hasattr(os, "getuid") else 0
    folder = Path(tempfile.gettempdir()) / f"mudkit-{uid}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
        private = os.name == "nt" or (status.st_uid == uid and not status.st_mode & 0o022)
        if stat.S_ISDIR(status.st_mode) and private and usable(folder):
            return folder
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="mudkit-"))


def cache_folder(name: str) -> Path:
    """Return an existing, writable folder of the cache, by its name."""
    home = user_cache()
    if home is not None and usable(home / name):
        return home / name
    folder = temporary_cache() / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder
