"""Tasks that write files: what a job does on the workers, part by part."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
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

FILE_BYTES = 128 << 20
"""Size at which a file ends and the next one begins."""

GROUP_ROWS = 1 << 20
GROUP_BYTES = 64 << 20
"""Rows and bytes in memory at which a row group is written."""

_MAX_TASKS = 1024
_COPY_BYTES = 4 << 20
_ANSWER_DDL = "name STRING, error STRING, part STRING"
_ANSWER = pa.schema([("name", pa.string()), ("error", pa.string()), ("part", pa.string())])
"""Answer of a task: the part's name, the class of an error, or an empty text; the error or part as JSON."""
_UNSEEN = "unseen"
_FULL_BYTES = 16 << 20

Item = TypeVar("Item")


class PartWriter:
    """Writer of the Parquet files of a task; a context, after which `files` is complete.

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
    is_scratch : bool
        Whether the file is only for the job's own later tasks, so that it is to be written fast, not small.
    """

    def __init__(
        self,
        job: Job,
        folder: str,
        label: str,
        file_bytes: int = FILE_BYTES,
        *,
        is_scratch: bool = False,
    ) -> None:
        self._job, self._folder, self._label, self._file_bytes = job, folder, label, file_bytes
        self._is_scratch = is_scratch
        self._waiting: list[pa.Table] = []
        self._stack = ExitStack()
        self._file: _OpenFile | None = None
        self._rows = 0
        self.files: list[File] = []

    def __enter__(self) -> PartWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._stack.__exit__(kind, error, trace)
            return
        self.end_group()
        self._end_file()

    def write(self, table: pa.Table) -> None:
        """Append rows."""
        self._waiting.append(table)
        if (
            sum(map(len, self._waiting)) >= GROUP_ROWS
            or sum(waiting.nbytes for waiting in self._waiting) >= GROUP_BYTES
        ):
            self.end_group()

    def end_group(self) -> None:
        """Write what waits as a row group."""
        tables = [table for table in self._waiting if len(table)]
        self._waiting = []
        if not tables:
            return
        table = pa.concat_tables(tables, promote_options="default")
        if self._file is not None and not self._file.writer.schema.equals(table.schema):
            self._end_file()
        if self._file is None:
            self.begin_file(table.schema)
        assert self._file is not None
        self._file.writer.write_table(table, row_group_size=len(table))
        self._rows += len(table)
        if self._file.sink.tell() >= self._file_bytes:
            self._end_file()

    def begin_file(self, schema: pa.Schema) -> None:
        """Begin a file, which may stay without rows."""
        name = self._job.new_name(self._folder, f"{self._label}-{len(self.files):05d}")
        staging = self._stack.enter_context(new_file(self._job.path / name))
        sink = self._stack.enter_context(pa.OSFile(str(staging), "wb"))
        form: dict[str, Any] = {"compression": "zstd"}
        if self._is_scratch:
            texts = [field.name for field in schema if pa.types.is_string(field.type)]
            form = {"compression": "lz4", "use_dictionary": texts}
        writer = self._stack.enter_context(pq.ParquetWriter(sink, schema, **form))
        self._file, self._rows = _OpenFile(name, staging, sink, writer), 0

    def _end_file(self) -> None:
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
    writer: pq.ParquetWriter


@contextmanager
def new_file(at: Place) -> Iterator[Path]:
    """Write a file whose name nobody else uses; for a store a temporary file is put there whole."""
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


def write_frame(job: Job, name: str, frame: DataFrame, *, is_recorded: bool = True) -> Part:
    """Write the rows of a DataFrame as one part, a file or more for each task with rows.

    Times are microseconds in UTC, as in a trace.
    """
    schema = to_arrow_schema(frame.schema, timezone="UTC")
    parts = run_on_rows(
        job, name, frame, lambda label, batches: _write_batches(job, label, schema, batches)
    ).values()
    files = tuple(file for part in parts for file in part.files)
    if not files:  # one without rows says which columns there are
        files = _write_batches(job, f"{name}-00000", schema, [], with_empty=True).files
    part = Part(sum(part.counted for part in parts), files)
    check_rows(job, f"the part {name}", part.counted, part.rows)
    if is_recorded:
        job.finish(name, part)
    return part


def _write_batches(
    job: Job, label: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch], *, with_empty: bool = False
) -> Part:
    rows = 0
    with PartWriter(job, job.work, label) as writer:
        if with_empty:
            writer.begin_file(schema)
        for batch in batches:
            rows += len(batch)
            writer.write(pa.Table.from_batches([batch]).cast(schema))
    return Part(rows, tuple(writer.files))


def publish(spark: SparkSession, job: Job, files: Sequence[File]) -> dict[str, Any]:
    """Copy the files of a result from the job's folder to its place; return the manifest."""
    items = {f"file-{number:05d}": file for number, file in enumerate(files)}
    parts = run_tasks(spark, job, lambda name, file: _copy(job, name, file), items, is_recorded=False)
    copied = [file for part in parts.values() for file in part.files]
    rows = sum(file.rows for file in copied)
    check_rows(job, "the result", sum(file.rows for file in files), rows)
    return {"rows": rows, "files": [vars(file) for file in copied]}


def _copy(job: Job, name: str, file: File) -> Part:
    copy = job.new_name("", name.removeprefix("file-"))
    with (job.path / file.name).open("rb") as source, new_file(job.path / copy) as staging:
        with staging.open("wb") as sink:
            while data := source.read(_COPY_BYTES):
                sink.write(data)
        size_bytes = staging.stat().st_size
    return Part(None, (File(copy, file.rows, size_bytes),))


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
    """Do a part in a task, and yield its answer; errors in words are answers, too."""
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
    """Raise Spark's errors in words.

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
