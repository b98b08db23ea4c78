"""Tasks that write files: what a job does on the workers, part by part."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from mudkit import errors
from mudkit.files import Place, output_problem, staged_file
from mudkit.pipeline.commits import File, Job, Part
from mudkit.pipeline.executors import provide
from mudkit.pipeline.failures import explained
from mudkit.pipeline.rows import RowWriter, open_writer, rows_by_date

FILE_BYTES = 128 << 20
"""Size at which a file ends and the next one begins."""

GROUP_ROWS = 1 << 20
GROUP_BYTES = 64 << 20
"""Rows and bytes in memory at which a row group is written."""

_MAX_TASKS = 1024
_ANSWER_DDL = "name STRING, error STRING, part STRING"
_ANSWER = pa.schema([("name", pa.string()), ("error", pa.string()), ("part", pa.string())])
"""Answer of a task: the part's name, the class of an error, or an empty text; the error or part as JSON."""
_UNSEEN = "unseen"
_FULL_BYTES = 16 << 20

Item = TypeVar("Item")


class Group(NamedTuple):
    """Rows that were written at once: a row group of a Parquet file, which has rows of one date."""

    file: str
    number: int
    date: str | None
    rows: int
    bytes: int


class PartWriter:
    """Writer of the files of a task; a context, after which `files` and `groups` are complete.

    Rows are collected into row groups of about a million rows. A file ends at about 128 MB, or where the
    columns change.

    Parameters
    ----------
    job : Job
    folder : str
        Folder of the files in the output's, which is created.
    label : str
        Label in the files' names: sorted by it, files are in the order of the parts.
    file_bytes : int
        Size at which a file ends.
    format : str
        One of :data:`mudkit.pipeline.rows.FORMATS`.
    by : str, optional
        Column by whose dates rows are divided into row groups; by default they are not.
    is_scratch : bool
        Whether the file, in Parquet, is only for the job's own later tasks, so that it is to be written fast,
        not small.
    """

    def __init__(
        self,
        job: Job,
        folder: str,
        label: str,
        file_bytes: int = FILE_BYTES,
        format: str = "parquet",  # noqa: A002
        by: str | None = None,
        *,
        is_scratch: bool = False,
    ) -> None:
        self._job, self._folder, self._label, self._file_bytes = job, folder, label, file_bytes
        self._format, self._by, self._is_scratch = format, by, is_scratch
        self._waiting: list[pa.Table] = []
        self._waiting_rows = self._waiting_bytes = 0
        self._stack = ExitStack()
        self._file: _OpenFile | None = None
        self._rows = self._groups_of_file = 0
        self.files: list[File] = []
        self.groups: list[Group] = []

    def __enter__(self) -> PartWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            with suppress(Exception):  # the error above is the one that counts
                if self._file is not None:
                    self._file.writer.close()
            self._stack.__exit__(kind, error, trace)
            return
        self.end_group()
        self._end_file()

    def write(self, table: pa.Table) -> None:
        """Append rows; they are written when they fill a row group."""
        if not len(table):
            return
        self._waiting.append(table)
        self._waiting_rows += len(table)
        self._waiting_bytes += table.nbytes
        if self._waiting_rows >= GROUP_ROWS or self._waiting_bytes >= GROUP_BYTES:
            self.end_group()

    def end_group(self) -> None:
        """Write the rows that wait as one row group, or as one for each date."""
        tables = self._waiting
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0
        if not tables:
            return
        table = pa.concat_tables(tables, promote_options="default")
        for date, rows in rows_by_date(table, self._by) if self._by else ((None, table),):
            self._write_group(date, rows)

    def _write_group(self, date: str | None, table: pa.Table) -> None:
        """Write rows as a row group; begin a file if the columns changed, end it if it is large."""
        if self._file is not None and not self._file.schema.equals(table.schema):
            self._end_file()
        if self._file is None:
            self.begin_file(table.schema)
        assert self._file is not None
        before = self._file.sink.tell()
        self._file.writer.write(table)
        size_bytes = self._file.sink.tell() - before
        self.groups.append(Group(self._file.name, self._groups_of_file, date, len(table), size_bytes))
        self._groups_of_file += 1
        self._rows += len(table)
        if self._file.sink.tell() >= self._file_bytes:
            self._end_file()

    def begin_file(self, schema: pa.Schema) -> None:
        """Begin a file, which may stay without rows."""
        name = self._job.new_name(self._folder, f"{self._label}-{len(self.files):05d}", self._format)
        staging = self._stack.enter_context(new_file(self._job.path / name))
        sink = self._stack.enter_context(pa.OSFile(str(staging), "wb"))
        writer = open_writer(self._format, sink, schema, is_scratch=self._is_scratch)
        self._file = _OpenFile(name, staging, sink, schema, writer)
        self._rows = self._groups_of_file = 0

    def _end_file(self) -> None:
        """Complete the open file, if there is one, and add it to the files."""
        if self._file is not None:
            self._file.writer.close()
            self._file.sink.close()
            size_bytes = self._file.staging.stat().st_size
            self._stack.close()
            self.files.append(File(self._file.name, self._rows, size_bytes))
            self._file = None


class _OpenFile(NamedTuple):
    """A file that is being written; `staging` is a file of this machine."""

    name: str
    staging: Path
    sink: pa.NativeFile
    schema: pa.Schema
    writer: RowWriter


@contextmanager
def new_file(at: Place) -> Iterator[Path]:
    """Yield the place at which to write a new file; for a store a temporary one that is put there whole."""
    if isinstance(at, Path):
        at.parent.mkdir(parents=True, exist_ok=True)
        yield at
    else:
        with staged_file(at) as staging:
            yield staging


def run_tasks(
    spark: SparkSession,
    job: Job,
    work: Callable[[str, Item], Part],
    items: Mapping[str, Item],
    *,
    is_recorded: bool = True,
) -> dict[str, Part]:
    """Run the unfinished parts of a job on the workers; return all of them by name.

    Parameters
    ----------
    work : callable
        Function of a part's name and item, run by a task; it writes the files of the part.
    items : mapping
        Item of each part, by name.
    is_recorded : bool
        Whether a finished part is recorded for a later run.

    Raises
    ------
    MudkitError
        As `work`, or this machine does not see the files of the workers, or another job began at the place.
    """
    finished = job.finished() if is_recorded else {}
    parts = {name: finished[name] for name in items if name in finished}
    todo = [(name, item) for name, item in items.items() if name not in finished]
    if not todo:
        return parts

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                name, item = todo[number]
                yield from _answer(job, name, partial(work, name, item), is_recorded)

    provide(spark)
    numbers = spark.range(0, len(todo), 1, min(len(todo), _MAX_TASKS))
    done = _collect(job, numbers.mapInArrow(run, _ANSWER_DDL))
    parts |= done
    return {name: parts[name] for name in items}


def run_on_rows(
    job: Job, name: str, frame: DataFrame, work: Callable[[str, Iterator[pa.RecordBatch]], Part]
) -> dict[str, Part]:
    """Run a function on the rows of each partition of a DataFrame; return its parts by name.

    Parameters
    ----------
    work : callable
        Function of a part's name and the rows; it writes the files of the part.

    Raises
    ------
    MudkitError
        As :func:`run_tasks`.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        label = f"{name}-{context.partitionId():05d}"
        yield from _answer(job, label, partial(work, label, batches), is_recorded=False)

    provide(frame.sparkSession)
    return dict(sorted(_collect(job, frame.mapInArrow(run, _ANSWER_DDL)).items()))


def write_frame(
    job: Job, name: str, frame: DataFrame, by: str | None = None, *, is_recorded: bool = True
) -> Part:
    """Write the rows of a DataFrame as one part, a file or more for each task with rows.

    Times are microseconds in UTC, as in a trace. What is counted are the row groups, of one date each if a
    column is given by which rows are divided.
    """
    schema = to_arrow_schema(frame.schema, timezone="UTC")
    parts = run_on_rows(
        job, name, frame, lambda label, batches: _write_batches(job, label, schema, batches, by)
    ).values()
    files = tuple(file for part in parts for file in part.files)
    groups = [group for part in parts for group in part.counted["groups"]]
    if not files:  # one without rows says which columns there are
        files = _write_batches(job, f"{name}-00000", schema, [], with_empty=True).files
    part = Part(groups, files)
    check_rows(job, f"the part {name}", sum(part.counted["rows"] for part in parts), part.rows)
    if is_recorded:
        job.finish(name, part)
    return part


def _write_batches(
    job: Job,
    label: str,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    by: str | None = None,
    *,
    with_empty: bool = False,
) -> Part:
    """Write the rows of a partition; without rows no file, except with ``with_empty``."""
    rows = 0
    with PartWriter(job, job.work, label, by=by) as writer:
        if with_empty:
            writer.begin_file(schema)
        for batch in batches:
            rows += len(batch)
            writer.write(pa.Table.from_batches([batch]).cast(schema))
    return Part({"rows": rows, "groups": writer.groups}, tuple(writer.files))


def check_rows(job: Job, what: str, expected: int, found: int) -> None:
    """Raise OutputProblem if rows are missing, or there are too many."""
    if expected != found:
        raise errors.OutputProblem(
            f"Rows were lost or added: {what} is not complete.",
            where=str(job.path),
            found=f"{found:,} rows",
            expected=f"{expected:,} rows",
            remedy="run it again; if the source did not change meanwhile, report this as a defect of mudkit",
        )


def _answer(job: Job, name: str, work: Callable[[], Part], is_recorded: bool) -> Iterator[pa.RecordBatch]:
    """Run a part in a task, and yield its answer; errors of mudkit are answers, too."""
    which = ""
    answer: Any
    try:
        if not job.is_current():
            which, answer = _UNSEEN, {}
        else:
            part = work()
            if is_recorded:
                job.finish(name, part)
            answer = {"counted": part.counted, "files": [vars(file) for file in part.files]}
    except (errors.MudkitError, OSError) as error:
        problem = error if isinstance(error, errors.MudkitError) else output_problem(job.path, error)
        _, (kind_of_error, summary, fields) = problem.__reduce__()
        which, answer = kind_of_error.__name__, {"summary": summary, **fields}
    row = {"name": name, "error": which, "part": json.dumps(answer)}
    yield from pa.Table.from_pylist([row], schema=_ANSWER).to_batches()


def _collect(job: Job, answers: DataFrame) -> dict[str, Part]:
    """Return the parts that tasks have written, which this machine must see."""
    parts: dict[str, Part] = {}
    for name, which, text in answers.collect():
        if which == _UNSEEN:
            if not job.is_current():
                raise job.lost()
            raise job.not_shared(
                "A worker does not see the folder of this job, which this machine sees", str(job.folder)
            )
        if which:
            raise getattr(errors, which)(**json.loads(text))
        answer = json.loads(text)
        parts[name] = Part(answer["counted"], tuple(File(**file) for file in answer["files"]))
    job.check_seen(file for part in parts.values() for file in part.files)
    return parts


@contextmanager
def writing(path: Place) -> Iterator[None]:
    """Raise Spark's errors, while the body runs, as errors of mudkit.

    A full or read-only place is an OutputProblem; for want of memory, scratch disk or a process it is an
    EnvironmentProblem (:func:`mudkit.pipeline.failures.explained`).
    """
    with explained():
        try:
            yield
        except (PySparkException, Py4JError) as error:
            text = str(error)
            is_refused = "Permission denied" in text or "Read-only file system" in text
            if is_refused or ("No space left" in text and _is_full(path)):
                raise output_problem(path, error) from error
            raise


def _is_full(path: Place) -> bool:
    """Return whether a disk is full; elsewhere what Spark wrote last may be on its scratch disk."""
    if not isinstance(path, Path):
        return False
    folder = next(at for at in (path, *path.parents) if at.exists())
    return shutil.disk_usage(folder).free < _FULL_BYTES
