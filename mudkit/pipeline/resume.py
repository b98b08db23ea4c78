"""Resumable output folders: finished parts survive a kill and are reused.

While a job works and after it was stopped, ``.<place>.resume-<digest>`` exists beside ``<place>``::

    identity.json       input, options and version of the job; its digest is in the folder's name
    out/                files as they will be at the final place
    done/<name>.json    written when all files of a part are complete: the part's counts, and file sizes
    work/               temporary files

A job with the same identity resumes there; one with another identity removes it. The final place appears at
once, by a rename, when all is done.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mudkit import __version__
from mudkit.errors import MudkitError, OutputProblem
from mudkit.files import output_problem, staged_file, staged_folder
from mudkit.pipeline.executors import package_folder

_IDENTITY = "identity.json"


@dataclass(frozen=True)
class Stage:
    """Folder of a job in progress; it is pickled to the executors, which share the file system."""

    folder: Path

    @property
    def out(self) -> Path:
        """Files of the output; names that begin with a dot are not part of it."""
        return self.folder / "out"

    @property
    def work(self) -> Path:
        """Temporary files."""
        return self.folder / "work"

    def finish(self, name: str, counted: Any, files: Iterable[Path]) -> None:
        """Record that a part is complete, with its counts (a JSON value) and all its files."""
        sizes = {file.relative_to(self.folder).as_posix(): file.stat().st_size for file in files}
        with staged_file(self.folder / "done" / f"{name}.json") as place:
            place.write_text(json.dumps({"counted": counted, "files": sizes}), encoding="utf-8")

    def finished(self) -> dict[str, Any]:
        """Return the counts of complete parts by name.

        A task that outlived its driver may have recorded a part whose files were removed meanwhile, so files
        are checked.
        """
        parts = {}
        for file in sorted((self.folder / "done").glob("[!.]*.json")):
            noted = json.loads(file.read_text(encoding="utf-8"))
            if all(_size(self.folder / name) == size for name, size in noted["files"].items()):
                parts[file.stem] = noted["counted"]
        return parts

    def clear(self, is_unfinished: Callable[[Path], bool]) -> None:
        """Remove files of incomplete parts and temporary files that stopped processes left."""
        for folder in (self.out, self.work):
            for file in list(folder.rglob("*")) if folder.is_dir() else []:
                if file.is_file() and (file.name.startswith(".") or is_unfinished(file)):
                    file.unlink(missing_ok=True)


@contextmanager
def resumable(
    path: str | os.PathLike[str], identity: Mapping[str, Any], *, overwrite: str | None = None
) -> Iterator[Stage]:
    """Fill a folder in parts; it appears at its final place when the body ends without an error.

    A body that is killed, interrupted or failed by Spark leaves its finished parts to the next one with the
    same identity (JSON values on which the output depends; mudkit's code is added). A MudkitError, about the
    input or the disk, leaves nothing. Raises OutputExists or OutputProblem if something is at ``path``, if it
    cannot be written, or if another process writes it.
    """
    path = Path(path).expanduser().absolute()
    whole = {**identity, "mudkit": __version__, "code": _code()}
    description = json.dumps(whole, indent=2, sort_keys=True, default=str)
    stage = Stage(path.parent / _name(path, hashlib.sha256(description.encode()).hexdigest()[:16]))
    with _locked(path):
        _remove_stages(path, keep=stage.folder)
        with staged_folder(path, overwrite=overwrite) as final:
            _open(stage, description)
            try:
                yield stage
            except BaseException as error:
                if isinstance(error, MudkitError) or not stage.finished():
                    shutil.rmtree(stage.folder, ignore_errors=True)
                raise
            _link(stage.out, final)
        shutil.rmtree(stage.folder, ignore_errors=True)


def remove_stopped(path: str | os.PathLike[str]) -> None:
    """Remove the folders of stopped jobs beside a complete output, unless a job works there."""
    path = Path(path).expanduser().absolute()
    if any(_stages(path)):
        with suppress(OutputProblem), _locked(path):
            _remove_stages(path, keep=None)


def _name(path: Path, digest: str) -> str:
    return f".{path.name}.resume-{digest}"


def _stages(path: Path) -> Iterator[Path]:
    pattern = re.compile(re.escape(_name(path, "")) + "[0-9a-f]{16}")
    with suppress(OSError):
        yield from [folder for folder in path.parent.iterdir() if pattern.fullmatch(folder.name)]


def _remove_stages(path: Path, keep: Path | None) -> None:
    for folder in _stages(path):
        # If its files are at the final place already, it was stopped in its last step.
        if folder != keep or _is_in_place(folder / "out", path):
            shutil.rmtree(folder, ignore_errors=True)


def _is_in_place(out: Path, path: Path) -> bool:
    first = next((file for file in _files(out)), None)
    with suppress(OSError):
        return first is not None and (path / first.relative_to(out)).samefile(first)
    return False


def _open(stage: Stage, description: str) -> None:
    identity = stage.folder / _IDENTITY
    if not identity.is_file() or identity.read_text(encoding="utf-8") != description:
        shutil.rmtree(stage.folder, ignore_errors=True)
        stage.folder.mkdir(parents=True)
        with staged_file(identity) as file:
            file.write_text(description, encoding="utf-8")
    for folder in (stage.out, stage.work):
        folder.mkdir(exist_ok=True)


def _files(folder: Path) -> Iterator[Path]:
    for file in sorted(folder.rglob("*")):
        if file.is_file() and not any(part.startswith(".") for part in file.relative_to(folder).parts):
            yield file


def _link(out: Path, final: Path) -> None:
    """Link all files to the final place; after a kill they still have their first name."""
    for file in _files(out):
        place = final / file.relative_to(out)
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(file, place)
        except OSError:  # a file system without hard links
            shutil.copy2(file, place)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Lock an output against other processes; the system releases the lock of a killed process."""
    file = path.parent / f".{path.name}.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = _take(file)
    except OSError as error:
        raise output_problem(path, error) from error
    if handle is None:
        raise OutputProblem(
            f"Another process is writing {path}.",
            where=str(file),
            found="a lock that is held",
            expected="one job at a time at one place",
            remedy="wait for it, or choose another place; the lock of a process that ended holds nobody up",
        )
    try:
        yield
    finally:
        file.unlink(missing_ok=True)
        os.close(handle)


def _take(file: Path) -> int | None:
    """Open and lock a file; None when another process has it."""
    while True:
        handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(handle), file.stat()):
                return handle
            os.close(handle)  # the previous owner has removed this file: lock the new one
        except FileNotFoundError:
            os.close(handle)
        except OSError as error:
            os.close(handle)
            if isinstance(error, BlockingIOError):
                return None
            raise


@functools.cache
def _code() -> str:
    """Return a digest of mudkit's code, because other code must not finish what this one began."""
    digest = hashlib.sha256()
    package = package_folder()
    for file in sorted(package.rglob("*.py")):
        digest.update(file.relative_to(package).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return -1
