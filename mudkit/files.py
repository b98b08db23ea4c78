"""Files and folders that are written atomically, and the folders of mudkit's cache."""

from __future__ import annotations

import atexit
import difflib
import errno
import glob
import hashlib
import os
import platform
import re
import shutil
import stat
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mudkit.errors import InputMissing, MudkitError, OutputExists, OutputProblem, ParameterError

_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+:/{1,3}\w", re.IGNORECASE)  # a Path has lost a slash of it


def existing(path: str | os.PathLike[str], what: str) -> Path:
    """Return the path, or raise when nothing is there; ``what`` names it in the error, such as "trace"."""
    if not isinstance(path, str | os.PathLike):
        raise ParameterError(
            f"The {what} is named by a path.",
            where=what,
            found=repr(path)[:200],
            expected="a text or a pathlib.Path",
        )
    if not str(path):
        raise ParameterError(
            f"The path of the {what} is empty.",
            where=what,
            found="''",
            expected="a file or folder",
            remedy="name it; in a script, check the variable that was to hold it",
        )
    if _ADDRESS.match(str(path)):
        raise InputMissing(
            f"The {what} is named by an address, which is not read over the network.",
            where=what,
            found=str(path)[:200],
            expected="a file or folder of this machine",
            remedy="download it, and name the file",
        )
    path = Path(path).expanduser()
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


def sha256(path: Path) -> str:
    """Checksum of a file, or of a folder's files with their names, as hexadecimal text."""
    digest = hashlib.sha256()
    for file in [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file()):
        if file != path:
            digest.update(str(file.relative_to(path)).encode() + b"\0")
        with file.open("rb") as handle:
            hashlib.file_digest(handle, lambda: digest)
    return digest.hexdigest()


@contextmanager
def staged_folder(path: str | os.PathLike[str], *, overwrite: str | None = None) -> Iterator[Path]:
    """Fill a folder beside its final place and move it there when the body ends well.

    ``overwrite`` allows to replace a folder all of whose files match this pattern. Whatever stops the body,
    nothing appears at ``path``; after a kill ``.<name>.partial-…`` stays, or between two renames
    ``.<name>.old-…``, which the next writer at this place puts back.
    """
    path = Path(path).expanduser().absolute()
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
def staged_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Write a file beside its final place and move it there when the body ends well."""
    path = Path(path).expanduser().absolute()
    staging = path.parent / f".{path.name}.partial-{uuid.uuid4().hex[:8]}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield staging
        staging.replace(path)
    except OSError as error:
        if isinstance(error, MudkitError):
            raise
        raise output_problem(path, error) from error
    finally:
        with suppress(OSError):
            staging.unlink()


def output_problem(path: Path, error: BaseException) -> OutputProblem:
    """Return the error for a failed write, whichever library raised it (Python, Arrow, Spark)."""
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


def refuse_existing(path: Path, overwrite: str | None) -> None:
    """Refuse a place that holds something, as :func:`staged_folder` does, before long work begins."""
    if not path.exists():
        return
    others = []
    if overwrite is not None and path.is_dir():
        others = sorted(p.name for p in path.iterdir() if not re.fullmatch(overwrite, p.name))
        if not others:
            return
    raise OutputExists(
        f"There is something at {path} already.",
        where=str(path),
        found=f"what mudkit did not make: {', '.join(others[:5])}"
        if others
        else ("a folder" if path.is_dir() else "a file"),
        expected="a place that is free" + (", or an output of the same kind" if overwrite else ""),
        remedy="choose another place, or remove it"
        + ("" if overwrite else "; an output of the same kind is replaced with overwrite (--overwrite)"),
    )


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
    """Create a folder if needed, and check whether files can be written to it."""
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
