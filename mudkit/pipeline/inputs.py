"""Inputs of an ingest, which tasks parse: files, large ones in segments, or the rows of a DataFrame."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from mudkit import errors
from mudkit.files import VERSIONS, Place
from mudkit.pipeline.commits import Job, Part
from mudkit.pipeline.frames import parse_rows, reading_rows, without_rows
from mudkit.pipeline.tasks import run_on_rows, run_tasks
from mudkit.trace.formats import Segment, number_rows
from mudkit.trace.options import LoadPlan
from mudkit.trace.parse import Parsed, parsed_batches

Write: TypeAlias = Callable[[str, Iterable[Parsed]], Part]
"""Writes parsed rows as the part of a job with a name."""

PART_BYTES = 64 << 20
"""Text that a task parses at most, unless it cannot be split."""
_MIN_PARTS = 64  # where there is as much text: so that all cores have something to do
_MIN_BYTES = 32 << 20
"""Text of a segment at least, unless a file has less: to start a task takes as long as to parse 5 MB."""
_ROW_BYTES = 45
"""Average length of a row of text."""


@dataclass(frozen=True)
class SourceFile:
    """A file of a source, as the driver saw it before its bytes were read.

    ``version`` is the time of modification, or what a store tells: a checksum, or a time.
    """

    path: Place
    size_bytes: int
    version: str

    @classmethod
    def of(cls, path: Place) -> SourceFile:
        """Return a file with its present size and version."""
        if isinstance(path, Path):
            status = path.stat()
            return cls(path, status.st_size, str(status.st_mtime_ns))
        info = path.fs.info(path.path)
        versions = [str(info[name]) for name in VERSIONS if info.get(name) is not None]
        return cls(path, info.get("size") or 0, versions[0] if versions else "")

    def check(self) -> None:
        """Raise InputMissing if the file is not there, TraceContentError if it has changed."""
        try:
            now = SourceFile.of(self.path)
        except FileNotFoundError as error:
            raise errors.InputMissing(
                f"A worker does not see the file {self.path.name}, which was there when the job began.",
                where=str(self.path),
                found="no such file",
                expected="files that this machine and all workers see under the same path",
                remedy="put them on a shared file system or into a store, and check that nobody removes them",
            ) from error
        if now != self:
            raise errors.TraceContentError(
                f"The file {self.path.name} changed while it was read.",
                where=str(self.path),
                found=f"{now.size_bytes:,} bytes, where there were {self.size_bytes:,}"
                if now.size_bytes != self.size_bytes
                else "another time of modification",
                expected="a file that stays as it is, and is the same one on all machines",
                remedy="wait until it is complete, or copy it, and run this again",
            )


@dataclass(frozen=True)
class FileInput:
    """Files, told by their names, sizes and times of modification: the driver reads no rows but the first."""

    plan: LoadPlan
    files: tuple[SourceFile, ...]
    text_bytes: int

    @classmethod
    def of(cls, plan: LoadPlan) -> FileInput:
        """Return the files of a plan with their present sizes and versions."""
        return cls(plan, tuple(map(SourceFile.of, plan.source.files())), sum(plan.source.sizes()))

    @property
    def rows(self) -> int | None:
        """Number of rows, where it is known before they are parsed."""
        return None

    @property
    def described(self) -> dict[str, Any]:
        """Description of the input in the manifest, which tells it from others."""
        digest = hashlib.sha256()
        source = self.plan.source
        for name, file in zip(source.members or (source.path.name,), self.files, strict=True):
            digest.update(f"{name}\0{file.size_bytes}\0{file.version}\n".encode())
        size_bytes = sum(file.size_bytes for file in self.files)
        return {"input": {"files": len(self.files), "bytes": size_bytes, "digest": digest.hexdigest()}}

    def parse(self, spark: SparkSession, job: Job, write: Write) -> dict[str, Part]:
        """Parse all rows in tasks, which pass them to ``write``; return the parts by name."""
        plan, known = self.plan, {file.path: file for file in self.files}
        max_bytes = min(max(self.text_bytes // _MIN_PARTS, 1), PART_BYTES)
        segments = plan.source.segments(max(max_bytes, _MIN_BYTES))
        if uncounted := [part for part in segments if part.rows_before is None]:
            counted = number_rows(uncounted, _count(spark, job, plan, known, uncounted))
            order = {path: number for number, path in enumerate(known)}
            others = [part for part in segments if part.rows_before is not None]
            segments = sorted([*others, *counted], key=lambda part: order[part.file])
        # If the source begins with local times, whether others name a zone is found here, for all tasks.
        next(parsed_batches(plan, [plan.source.beginning(part) for part in segments[:1]]), None)

        def parse(name: str, group: Sequence[Segment]) -> Part:
            return write(name, _parsed(plan, known, group))

        texts = dict(zip(known, plan.source.sizes(), strict=True))
        sizes = [part.size_bytes or texts[part.file] for part in segments]
        groups = _groups(segments, sizes, max_bytes)
        return run_tasks(spark, job, parse, {f"files-{n:05d}": group for n, group in enumerate(groups)})


@dataclass(frozen=True)
class FrameInput:
    """The rows of a DataFrame, which are counted first: what the tasks parse must be as many."""

    plan: LoadPlan
    frame: DataFrame
    rows: int
    call: str

    @classmethod
    def of(cls, plan: LoadPlan, frame: DataFrame) -> FrameInput:
        """Count the rows of a DataFrame."""
        with reading_rows(plan.source.path.name):
            rows = frame.count()
        return cls(plan, frame, rows, uuid.uuid4().hex)

    @property
    def text_bytes(self) -> int:
        """Size of the rows as text, about."""
        return self.rows * _ROW_BYTES

    @property
    def described(self) -> dict[str, Any]:
        """Description of the input in the manifest, which tells it from others.

        Nobody can tell whether a table has changed since a job was stopped: each call is an input of its own.
        """
        columns = self.frame.schema.simpleString()
        return {"input": {"rows": self.rows, "columns": columns, "call": self.call}}

    def parse(self, spark: SparkSession, job: Job, write: Write) -> dict[str, Part]:
        """Parse all rows in tasks, which pass them to ``write``; return the parts by name."""
        plan = without_rows(self.plan)

        def parse(name: str, batches: Iterator[pa.RecordBatch]) -> Part:
            return write(name, parse_rows(plan, batches))

        with reading_rows(plan.source.path.name):
            return run_on_rows(job, "rows", self.frame, parse)


Input: TypeAlias = FileInput | FrameInput


def _count(
    spark: SparkSession,
    job: Job,
    plan: LoadPlan,
    known: Mapping[Place, SourceFile],
    segments: Sequence[Segment],
) -> list[int | None]:
    """Return the number of rows of each segment, counted in tasks; None where a format cannot tell."""

    def count(name: str, group: Sequence[Segment]) -> Part:
        for part in group:
            known[part.file].check()
        return Part([plan.source.count_rows(part) for part in group], ())

    groups = _groups(segments, [part.size_bytes for part in segments], PART_BYTES)
    items = {f"count-{n:05d}": group for n, group in enumerate(groups)}
    return [count for part in run_tasks(spark, job, count, items).values() for count in part.counted]


def _parsed(plan: LoadPlan, known: Mapping[Place, SourceFile], group: Sequence[Segment]) -> Iterator[Parsed]:
    """Yield the parsed rows of some segments; raise TraceContentError if a file changes meanwhile."""
    for part in group:
        known[part.file].check()
        yield from parsed_batches(plan, [part])
        known[part.file].check()


def _groups(segments: Sequence[Segment], sizes: Sequence[int], max_bytes: int) -> list[tuple[Segment, ...]]:
    """Divide segments, in order, into groups that one task parses; GeoLife has 18,670 files."""
    groups: list[list[Segment]] = []
    room = 0
    for part, size in zip(segments, sizes, strict=True):
        if size > room:
            groups.append([])
            room = max_bytes
        groups[-1].append(part)
        room -= size
    return list(map(tuple, groups))
