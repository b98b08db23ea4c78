"""Commits of outputs: an output is what its manifest names, and the manifest is written last.

While a job works and after it was stopped, its folder stands in the output's folder::

    <output>/_job-<digest>/identity.json       input, options and version of the job
    <output>/_job-<digest>/done/<part>.json    written when a part is complete: its counts and files
    <output>/_job-<digest>/work/…              intermediate files
    <output>/part-…                            files of the output, copied or merged in the job's last step
    <output>/<manifest>                        each file with its rows and bytes; one write, last of all

No data file is renamed, linked or locked, and each has a name that no other process uses, so the place may be
a store that is no POSIX folder. Names that begin with ``_`` are passed over by Spark, Arrow and pandas.

Two jobs at one place with the same identity share finished parts; the first manifest counts, and the other
job reports it. Of jobs with different identities the one that starts last works: it removes the folder of the
other, which finds that out at its next step.
"""

from __future__ import annotations

import functools
import hashlib
import json
import shutil
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mudkit import __version__
from mudkit.errors import EnvironmentProblem, MudkitError, OutputExists, OutputProblem
from mudkit.files import Place, arrow_place, is_file, is_folder, output_problem, sizes_below, staged_file
from mudkit.pipeline.executors import package_folder
from mudkit.pipeline.rows import FORMATS
from mudkit.trace.folder import JOB_FOLDER

FORMAT_VERSION = 1
_JOB = "_job-"
_IDENTITY = "identity.json"
_DATE = "date="
_ENDINGS = tuple(f".{ending}" for ending in FORMATS)
_SHOWN = 5


@dataclass(frozen=True)
class File:
    """A complete file of a job; `name` is relative to the output's folder."""

    name: str
    rows: int
    bytes: int


@dataclass(frozen=True)
class Layout:
    """Names in the folder of an output.

    Attributes
    ----------
    manifest : str
        Name of the file that is written last.
    tables : tuple of str
        Folders of data files, which may have folders of dates; the empty text is the output's own folder.
    """

    manifest: str
    tables: tuple[str, ...]

    def is_own(self, name: str) -> bool:
        """Return whether mudkit may have written a file or folder of this name."""
        is_partial = name.startswith(f".{self.manifest}.partial-")
        is_own = name == self.manifest or name in self.tables or is_partial
        is_date = "" in self.tables and name.startswith(_DATE)
        return is_own or is_date or self.is_data(name) or JOB_FOLDER.fullmatch(name) is not None

    def is_data(self, name: str) -> bool:
        """Return whether a file in the output's folder, by its path there, is a data file."""
        folder, _, file = name.rpartition("/")
        top = folder.partition("/")[0]
        is_rows = file.endswith(".parquet") or (file.startswith("part-") and file.endswith(_ENDINGS))
        return is_rows and ("" if top.startswith(_DATE) else top) in self.tables

    def read(self, path: Place) -> dict[str, Any] | None:
        """Return the manifest as a dict; empty if it is no JSON object, None if there is none."""
        try:
            text = (path / self.manifest).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        with suppress(ValueError):
            manifest = json.loads(text)
            if isinstance(manifest, dict):
                return manifest
        return {}

    def write(self, path: Place, description: Mapping[str, Any]) -> dict[str, Any]:
        """Write the manifest atomically, with the version of the format; return it."""
        whole = {"format_version": FORMAT_VERSION, **description}
        with staged_file(path / self.manifest) as file:
            file.write_text(json.dumps(whole, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        return whole

    def files(self, manifest: Mapping[str, Any] | None) -> list[File]:
        """Return the files that a manifest names; none for None."""
        files = (manifest or {}).get("files", [])
        listed = files if isinstance(files, list) else [file for table in files.values() for file in table]
        return [File(**file) for file in listed]


RESULT = Layout("_manifest.json", ("",))
"""Result of a job: files in one folder, or in folders of dates."""


@dataclass(frozen=True)
class Part:
    """A finished part of a job: its counts (a JSON value) and its files, in order."""

    counted: Any
    files: tuple[File, ...]

    @property
    def rows(self) -> int:
        """Rows of all files."""
        return sum(file.rows for file in self.files)


@dataclass(frozen=True)
class Job:
    """A job and its folder; it is pickled to the executors.

    Attributes
    ----------
    path : Path
        Folder of the output.
    digest : str
        Digest of what the output depends on.
    token : str
        Name of this run, part of the names of its files.
    """

    path: Place
    layout: Layout
    digest: str
    token: str

    @property
    def name(self) -> str:
        """Name of the job's folder, which is removed after the commit."""
        return f"{_JOB}{self.digest}"

    @property
    def folder(self) -> Place:
        """Folder of the job."""
        return self.path / self.name

    @property
    def work(self) -> str:
        """Folder of intermediate files, in the output's."""
        return f"{self.name}/work"

    def new_name(self, folder: str, label: str, format: str = "parquet") -> str:  # noqa: A002
        """Return a name for a new file in a folder of the output, which no other task uses."""
        file = f"part-{label}-{self.token}-{uuid.uuid4().hex[:8]}.{format}"
        return f"{folder}/{file}" if folder else file

    def is_current(self) -> bool:
        """Return whether the job's folder is still seen here; a later job at the place removes it."""
        return is_file(self.folder / _IDENTITY)

    def is_own(self, name: str) -> bool:
        """Return whether this run wrote a file of the output."""
        return f"-{self.token}-" in name.rpartition("/")[2]

    def finish(self, name: str, part: Part) -> None:
        """Record that a part is complete."""
        files = [vars(file) for file in part.files]
        with staged_file(self.folder / "done" / f"{name}.json") as place:
            place.write_text(json.dumps({"counted": part.counted, "files": files}), encoding="utf-8")

    def begin(self, description: str) -> None:
        """Open the job's folder by writing the job's identity, as JSON text, into it."""
        with staged_file(self.folder / _IDENTITY) as file:
            file.write_text(description, encoding="utf-8")

    def identity(self) -> Any:
        """Return the identity that the job began with; None if it has not begun."""
        if not self.is_current():
            return None
        return json.loads((self.folder / _IDENTITY).read_text(encoding="utf-8"))

    def has_finished(self, name: str) -> bool:
        """Return whether a part is recorded as complete."""
        return is_file(self.folder / "done" / f"{name}.json")

    def finished(self) -> dict[str, Part]:
        """Return the complete parts by name: those all of whose files are there."""
        parts = {}
        for name in files_below(self.path):
            part = name.removeprefix(f"{self.name}/done/").removesuffix(".json")
            if name != f"{self.name}/done/{part}.json" or "/" in part or part.startswith("."):
                continue
            with suppress(FileNotFoundError):  # another job has removed it
                noted = json.loads((self.path / name).read_text(encoding="utf-8"))
                files = tuple(File(**file) for file in noted["files"])
                parts[part] = Part(noted["counted"], files)
        unseen = set(self.unseen(file for part in parts.values() for file in part.files))
        return {name: part for name, part in sorted(parts.items()) if unseen.isdisjoint(part.files)}

    def unseen(self, files: Iterable[File]) -> list[File]:
        """Return the files that this machine does not see with their bytes.

        A shared file system may list a folder as it was some seconds ago, but has each file by its name.
        """
        if isinstance(self.path, Path):
            return [file for file in files if _size(self.path / file.name) != file.bytes]
        sizes = files_below(self.path)
        return [file for file in files if sizes.get(file.name) != file.bytes]

    def check_seen(self, files: Iterable[File]) -> None:
        """Raise OutputProblem if this machine does not see files that workers wrote."""
        files = list(files)
        if unseen := self.unseen(files):
            if not self.is_current():
                raise self.lost()
            raise self.not_shared(
                f"The workers wrote {len(files):,} files, of which this machine does not see {len(unseen):,}",
                ", ".join(file.name for file in unseen[:_SHOWN]),
            )

    def not_shared(self, summary: str, found: str) -> OutputProblem:
        """Return the error for a folder that is another one on another machine."""
        return OutputProblem(
            f"{summary}: the folder is not shared.",
            where=str(self.path),
            found=found,
            expected="one folder that this machine and all workers see under the same path",
            remedy="choose a folder on a shared file system, or the address of a store",
        )

    def lost(self) -> OutputProblem:
        """Return the error for a job whose folder another one has removed."""
        return OutputProblem(
            f"Another job began at {self.path}.",
            where=str(self.path),
            found="its files instead of this job's",
            expected="one job at a time at one place",
            remedy="wait for the other job, or choose another place",
        )


@dataclass(frozen=True)
class Committed:
    """A complete output.

    Attributes
    ----------
    manifest : dict
    parts, reused : int
        Number of recorded parts, and of those that a stopped run had finished.
    """

    manifest: dict[str, Any]
    parts: int
    reused: int


def commit(
    path: Place,
    identity: Mapping[str, Any],
    layout: Layout,
    body: Callable[[Job], Mapping[str, Any]],
    *,
    overwrite: bool = False,
    reuse: bool = False,
) -> Committed:
    """Fill a folder by a job, and write its manifest when all is done.

    A body that is killed, interrupted or failed by Spark or Java leaves its finished parts to the next one
    with the same identity. An error about the input or the disk leaves nothing. A complete output that is
    replaced stays complete until then.

    Parameters
    ----------
    path : Path or UPath
        The output's folder, as an absolute path or an address.
    identity : mapping
        JSON values on which the output depends; mudkit's code is added.
    layout : Layout
        Names in the output's folder.
    body : callable
        Writes the files of the output; returns the manifest, with ``files`` (lists of name, rows and bytes).
    overwrite : bool
        Whether to replace an output of this layout.
    reuse : bool
        Whether to return the manifest of a complete output of the same identity, instead of an error.

    Raises
    ------
    OutputExists
        Something else is at ``path``.
    OutputProblem
        It cannot be written, the workers do not share it, or another job began there.
    """
    whole = {**identity, "mudkit": __version__, "code": _code()}
    description = json.dumps(whole, indent=2, sort_keys=True, default=str)
    digest = hashlib.sha256(description.encode()).hexdigest()[:16]
    job = Job(path, layout, digest, uuid.uuid4().hex[:8])
    new_folders = [f for f in path.parents if not f.exists()] if isinstance(path, Path) else []
    try:
        sweep_finished(path, layout)
        complete = layout.read(path) if reuse else None
        if complete is not None and complete.get("job") == digest:
            return Committed(complete, 0, 0)
        refuse_other(path, layout, overwrite=overwrite)
        before = _pin_manifest(path, layout)
        leftovers = _list_unnamed(job, before)
        _begin(job, description)
    except Exception as error:
        if isinstance(error, MudkitError) or (isinstance(path, Path) and not isinstance(error, OSError)):
            raise
        raise output_problem(path, error) from error  # a store's library has errors of its own
    reused = len(job.finished())
    try:
        manifest = _put(job, before, {**body(job), "job": digest})
    except BaseException as error:
        if isinstance(error, Exception) and (other := _by_another(job, before)) is not None:
            _clear(job, own_only=True)
            return Committed(other, reused, reused)
        is_lost = not job.is_current()
        is_of_input = isinstance(error, MudkitError) and not isinstance(error, EnvironmentProblem)
        if is_lost or is_of_input or not job.finished():
            _clear(job, own_only=is_lost)
            _remove_empty(job, new_folders)
        if is_lost and isinstance(error, Exception):
            raise job.lost() from error
        if isinstance(error, OSError) and not isinstance(error, MudkitError):
            raise output_problem(path, error) from error
        raise
    parts = len(job.finished())
    _clean(job, before, leftovers)
    return Committed(manifest, parts, reused)


def refuse_other(path: Place, layout: Layout, *, overwrite: bool) -> None:
    """Raise OutputExists if a place holds what a job must not replace; what a stopped job left may stay."""
    if not path.exists():
        return
    at_folder = is_folder(path)
    names = sorted(file.name for file in path.iterdir()) if at_folder else []
    others = [name for name in names if not layout.is_own(name)]
    is_stopped = layout.manifest not in names and (not names or any(map(JOB_FOLDER.fullmatch, names)))
    if at_folder and not others and (overwrite or is_stopped):
        return
    kind = "a folder" if at_folder else "a file"
    raise OutputExists(
        f"There is something at {path} already.",
        where=str(path),
        found=f"what mudkit did not make: {', '.join(others[:_SHOWN])}" if others else kind,
        expected="a place that is free, or an output of the same kind",
        remedy="choose another place, or remove it; an output of the same kind is replaced with overwrite "
        "(--overwrite)",
    )


def _begin(job: Job, description: str) -> None:
    """Remove the folders of other jobs, and open the one of this job."""
    for name in _job_names(files_below(job.path)):
        if name != job.name:
            remove_tree(job.path / name)
    if not job.is_current():
        job.begin(description)


def _pin_manifest(path: Place, layout: Layout) -> dict[str, Any] | None:
    """Return the manifest at a place; write one that names the files if mudkit 0.2 wrote them without.

    Without it a reader would take the new files for those of the old output.
    """
    manifest = layout.read(path)
    sizes = files_below(path)
    if (manifest is None and _job_names(sizes)) or "files" in (manifest or {}):
        return manifest
    files = [(n, size) for n, size in sizes.items() if layout.is_data(n) and n.endswith(".parquet")]
    if not files:
        return manifest
    import pyarrow.parquet as pq

    tables: dict[str, list[dict[str, Any]]] = {}
    for name, size in files:
        filesystem, text = arrow_place(path / name)
        with filesystem.open_input_file(text) as source:
            rows = pq.read_metadata(source).num_rows
        tables.setdefault(name.partition("/")[0], []).append({"name": name, "rows": rows, "bytes": size})
    listed = [file for table in tables.values() for file in table]
    return layout.write(path, {**(manifest or {}), "files": listed if layout is RESULT else tables})


def _put(job: Job, before: dict[str, Any] | None, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Write the manifest, and return it; OutputProblem if files are missing or another job was here."""
    job.check_seen(job.layout.files(manifest))
    if not job.is_current() or job.layout.read(job.path) != before:
        raise job.lost()
    return job.layout.write(job.path, manifest)


def _by_another(job: Job, before: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the manifest that another run of the same job has written meanwhile, else None."""
    now = job.layout.read(job.path)
    return now if now is not None and now != before and now.get("job") == job.digest else None


def _list_unnamed(job: Job, manifest: Mapping[str, Any] | None) -> list[str]:
    """Return the names of data files and partial manifests that a manifest does not name."""
    named = {file.name for file in job.layout.files(manifest)}
    partial = f".{job.layout.manifest}.partial-"
    return [
        name
        for name in files_below(job.path)
        if (job.layout.is_data(name) and name not in named) or name.startswith(partial)
    ]


def _clean(job: Job, before: Mapping[str, Any] | None, leftovers: Sequence[str]) -> None:
    """Remove what a commit replaced, the job's folder, and what stopped runs left.

    Files that appeared since the job began may be those of a job that still works, which removes them itself.
    """
    replaced = {file.name for file in job.layout.files(before)}
    for name in _list_unnamed(job, job.layout.read(job.path)):
        if name in replaced or name in leftovers or job.is_own(name):
            _remove(job.path / name)
    remove_tree(job.folder)
    for name in _job_names(files_below(job.path)):
        if not is_file(job.path / name / _IDENTITY):  # what a task wrote whose job had been replaced
            remove_tree(job.path / name)
    _remove_empty(job, [])


def _clear(job: Job, *, own_only: bool) -> None:
    """Remove the job's folder, and the files that no manifest names, after a run that wrote no manifest.

    With ``own_only`` files of other runs stay.
    """
    for name in _list_unnamed(job, job.layout.read(job.path)):
        if job.is_own(name) or not own_only:
            _remove(job.path / name)
    remove_tree(job.folder)


def sweep_finished(path: Place, layout: Layout) -> None:
    """Remove what a job left that was stopped after its manifest was written."""
    manifest = layout.read(path)
    if manifest is not None and manifest.get("job"):
        remove_tree(path / f"{_JOB}{manifest['job']}")


def files_below(path: Place) -> dict[str, int]:
    """Return the sizes of all files of an output by their names, also while other jobs remove some."""
    while True:
        try:
            return sizes_below(path)
        except FileNotFoundError:
            continue


def _job_names(files: Iterable[str]) -> set[str]:
    """Return the names of the folders of jobs, of all in which some of the files are."""
    return {top for top in (name.partition("/")[0] for name in files) if JOB_FOLDER.fullmatch(top)}


def _remove_empty(job: Job, parents: Sequence[Path]) -> None:
    """Remove the empty folders of dates and tables, and those that were made for the output."""
    if not isinstance(job.path, Path):
        return
    for table in job.layout.tables:
        folder = job.path / table
        for empty in [*folder.glob(f"{_DATE}*"), *([folder] if table else [])]:
            with suppress(OSError):  # it is a file, or holds something
                empty.rmdir()
    with suppress(OSError):
        for empty in [job.path, *parents]:
            empty.rmdir()


def _remove(file: Place) -> None:
    """Remove a file, if it is there."""
    with suppress(FileNotFoundError):
        file.unlink()


def _size(file: Path) -> int:
    """Return the bytes of a file; -1 if it is not there."""
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return -1


def remove_tree(folder: Place) -> None:
    """Remove a folder with all that is in it; a failure is ignored."""
    if isinstance(folder, Path):
        shutil.rmtree(folder, ignore_errors=True)
    else:
        with suppress(Exception):  # what cannot be removed stays, and is read by nobody
            folder.fs.rm(folder.path, recursive=True)


@functools.cache
def _code() -> str:
    """Return a digest of mudkit's code, because other code must not finish what this one began."""
    digest = hashlib.sha256()
    package = package_folder()
    for name in filter(lambda name: name.endswith(".py"), sizes_below(package)):
        digest.update(name.encode() + b"\0" + (package / name).read_bytes())
    return digest.hexdigest()
