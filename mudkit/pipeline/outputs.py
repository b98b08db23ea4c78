"""Outputs of jobs: a folder of files in a format, or a table of the catalogue.

A folder is complete by its manifest (:mod:`mudkit.pipeline.commits`). A table is complete by its property
``mudkit_rows``, which is set last, when as many rows are read from it. Its rows are first written to a
folder, as a result is, and then put into the table by one statement that replaces all of its rows. So a job
that is repeated after a kill puts no row there twice, whatever the table's format is. Readers see a
replacement as a whole where the format has transactions (Delta, Iceberg); of files (Parquet, ORC) they may
see half of it while ``mudkit_rows`` is missing.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows
from pyspark.sql import types as T  # noqa: N812 - the name that everybody knows

from mudkit import __version__
from mudkit.checks import check_arguments
from mudkit.display import shows_fields
from mudkit.errors import EnvironmentProblem, OutputExists, OutputProblem, ParameterError
from mudkit.files import Place, PlaceLike, place, spark_place, work_folder
from mudkit.pipeline.commits import RESULT, Committed, File, Job, Part, commit, remove_tree
from mudkit.pipeline.compaction import read_groups
from mudkit.pipeline.failures import explained
from mudkit.pipeline.rows import FORMATS
from mudkit.pipeline.tasks import FILE_BYTES, Group, PartWriter, check_rows, run_tasks, write_frame, writing

_MERGED_BYTES = 32 << 20
"""Bytes of the files that one task writes, unless a file has more."""
_FLAT = "csv"
"""Format without lists and structs."""
_NESTED = (T.ArrayType, T.MapType, T.StructType)
_NO_FORMAT = ("DATA_SOURCE_NOT_FOUND", "Failed to find the data source", "ClassNotFound")
"""Signs in errors of Spark that it lacks a format."""
_NAME = re.compile(r"(?:`[^`]+`|\w+)(?:\.(?:`[^`]+`|\w+)){0,2}")
_DATE = "date"
_MADE_BY, _ROWS = "mudkit_version", "mudkit_rows"
"""Properties of a table: who made it; its rows, when it is complete."""


@check_arguments(types=False)
@shows_fields
@dataclass(frozen=True)
class Files:
    """Folder of files as an output: by dates, in a format for other programs.

    ``pipeline.run_job(spark, "cells", trace, pipeline.Files("counts", format="csv"))``

    Attributes
    ----------
    path : path-like
        The folder to make, or its address.
    format : {'parquet', 'orc', 'csv', 'json'}
        Format of the files; `json` has an object on each line, `csv` no lists and structs.
    date_of : str, optional
        Column of times, or of dates, by whose date in UTC the files are in folders ``date=2008-05-18``. By
        default `ts`, or the first column of times; an empty text for none. Tables of an ingest have `ts`.
    """

    path: PlaceLike
    format: Literal["parquet", "orc", "csv", "json"] = "parquet"
    date_of: str | None = None

    def __str__(self) -> str:
        return str(self.path)


@check_arguments(types=False)
@shows_fields
@dataclass(frozen=True)
class Table:
    """Table of the catalogue as an output.

    ``pipeline.run_job(spark, "cells", trace, pipeline.Table("lake.counts", work="s3://bucket/work"))``

    Attributes
    ----------
    name : str
        Name, with its catalogue and database or without. An ingest makes three tables: with ``_positions``,
        ``_reads`` and ``_rejected`` behind it.
    format : str, optional
        Any format of tables that the session can write, such as `orc` or `iceberg`; by default that of the
        session (``spark.sql.sources.default``).
    work : path-like, optional
        Folder that this machine and the workers share, or an address, where rows stand before they are put
        into the table; a stopped job resumes there. By default a temporary folder of this machine, where none
        resumes.
    date_of : str, optional
        As for :class:`Files`; the table has a partition column ``date``.
    """

    name: str
    format: str | None = None
    work: PlaceLike | None = None
    date_of: str | None = None

    def __str__(self) -> str:
        return f"the table {self.name}"

    @property
    def quoted(self) -> str:
        """Name for SQL."""
        return ".".join(f"`{part}`" for part in _parts(self.name))

    def part(self, table: str) -> Table:
        """Return the output of one table of a trace."""
        names = [*_parts(self.name)[:-1], f"{_parts(self.name)[-1]}_{table}"]
        return Table(".".join(f"`{name}`" for name in names), self.format, self.work)


Output: TypeAlias = "PlaceLike | Files | Table"


def check_output(output: object) -> None:
    """Raise ParameterError if an output is not usable."""
    if isinstance(output, Files) and output.format not in FORMATS:
        raise ParameterError(
            f"Files of the format {output.format} are not written.",
            where="format",
            found=repr(output.format)[:200],
            expected=", ".join(FORMATS),
            remedy="pipeline.Table(name, format=…) has every format that the session can write",
        )
    if isinstance(output, Table) and not _NAME.fullmatch(output.name):
        raise ParameterError(
            "This is no name of a table.",
            where="name",
            found=repr(output.name)[:200],
            expected="table, database.table or catalogue.database.table; odd names in `backticks`",
        )


def _parts(name: str) -> list[str]:
    """Return the parts of a table's name, without quotes."""
    return [part.strip("`") for part in re.findall(r"`[^`]+`|\w+", name)]


def date_column(output: Output, schema: T.StructType, preferred: str = "ts") -> str | None:
    """Return the column by whose dates the rows of an output are divided; None if they are not.

    Raises
    ------
    ParameterError
        There is no such column, it has no dates, or another column is named `date`.
    """
    if not isinstance(output, Files | Table) or output.date_of == "":
        return None
    kinds = {field.name: field.dataType for field in schema.fields}
    of_times = [name for name, kind in kinds.items() if isinstance(kind, T.TimestampType)]
    if output.date_of is None:
        name = preferred if preferred in of_times else next(iter(of_times), None)
        if name is None:
            return None
    else:
        name = output.date_of
    if not isinstance(kinds.get(name), T.TimestampType | T.DateType):
        raise ParameterError(
            f"The column {name} has no dates by which the output could be divided.",
            where="date_of",
            found=kinds[name].simpleString() if name in kinds else f"no such column in {', '.join(kinds)}",
            expected="a column of timestamps or dates; an empty text for one folder",
        )
    if _DATE in kinds and name != _DATE:
        raise ParameterError(
            "The rows have a column named date, as the folders of dates are.",
            where="date_of",
            found=f"the columns {name} and date",
            expected="another name of the column",
            remedy="frame.withColumnRenamed('date', …), date_of='date' or date_of=''",
        )
    return name


def write_output(
    spark: SparkSession,
    output: Output,
    identity: Mapping[str, Any],
    schema: Callable[[], T.StructType],
    write_parts: Callable[[Job, str | None], Sequence[Part]],
    *,
    overwrite: bool,
    preferred: str = "ts",
    **described: Any,
) -> Committed:
    """Write the parts of a result to its output, compacted.

    Parameters
    ----------
    output : path-like, Files or Table
    identity : mapping
        On what the output depends.
    schema : callable
        Returns the columns; called for files by dates, and tables.
    write_parts : callable
        Writes all parts; the column by whose dates rows are divided is its second argument.
    preferred : str
        Column of times that is taken if the output names none.
    **described
        Further entries of the manifest.

    Raises
    ------
    OutputExists, OutputProblem
        Something else is there, or it cannot be written.
    ParameterError, EnvironmentProblem
        The output is not usable, or the session has no such format.
    """
    check_output(output)
    by, files_format, columns = None, "parquet", T.StructType()
    if isinstance(output, Files | Table):
        columns = schema()
        by = date_column(output, columns, preferred)
        identity = {**identity, "by": by}
    if isinstance(output, Files):
        files_format = output.format
        identity = {**identity, "format": files_format}
        _refuse_nested(columns, files_format)

    def fill(at: Place, **options: bool) -> Committed:
        def body(job: Job) -> dict[str, Any]:
            with writing(at):
                return {**described, **publish(spark, job, write_parts(job, by), files_format)}

        return commit(at, identity, RESULT, body, **options)

    if not isinstance(output, Table):
        path = output.path if isinstance(output, Files) else output
        return fill(place(path, "result").absolute(), overwrite=overwrite)
    with table_rows(spark, [(output, columns, by)], overwrite=overwrite) as folder:
        done = fill(folder, overwrite=True, reuse=True)
        files = [File(**file) for file in done.manifest["files"]]
        put_rows(spark, output, columns, by, folder, [(folder / file.name, file.rows) for file in files])
    return done


def _refuse_nested(schema: T.StructType, format: str) -> None:  # noqa: A002
    """Raise ParameterError for columns that a format does not have."""
    nested = [field for field in schema.fields if isinstance(field.dataType, _NESTED)]
    if format == _FLAT and nested:
        raise ParameterError(
            f"The column {nested[0].name} has no form in CSV.",
            where="format",
            found=nested[0].dataType.simpleString(),
            expected="columns of numbers, texts, times and truth values",
            remedy="write it as json, orc or parquet, or take the column apart",
        )


class _ResultFile(NamedTuple):
    """File of a result to be: its date, its number among the date's files, and its row groups."""

    date: str | None
    number: int
    groups: tuple[tuple[str, tuple[int, ...]], ...]


def publish(spark: SparkSession, job: Job, parts: Sequence[Part], format: str) -> dict[str, Any]:  # noqa: A002
    """Merge the files of parts into as few as their dates need, in their order; return the manifest."""
    groups = [Group(*group) for part in parts for group in part.counted]
    if groups:
        items = _plan(groups)
    else:
        items = {"publish-00000": [_ResultFile(None, 0, ((parts[0].files[0].name, ()),))]}

    def merge(name: str, files: Sequence[_ResultFile]) -> Part:
        return Part(None, tuple(written for file in files for written in _merge(job, file, format)))

    merged = run_tasks(spark, job, merge, items, is_recorded=False).values()
    files = [file for part in merged for file in part.files]
    rows = sum(file.rows for file in files)
    check_rows(job, "the result", sum(part.rows for part in parts), rows)
    return {"rows": rows, "files": [vars(file) for file in files]}


def _plan(groups: Sequence[Group]) -> dict[str, list[_ResultFile]]:
    """Divide row groups into files, and these into tasks by name."""
    by_date: dict[str, list[Group]] = {}
    for group in groups:
        by_date.setdefault(group.date or "", []).append(group)
    tasks: list[list[_ResultFile]] = []
    room = 0
    for date, of_date in sorted(by_date.items()):
        for number, (size, chosen) in enumerate(_pieces(of_date)):
            if not tasks or size > room:
                tasks.append([])
                room = _MERGED_BYTES
            tasks[-1].append(_ResultFile(date or None, number, chosen))
            room -= size
    return {f"publish-{number:05d}": files for number, files in enumerate(tasks)}


def _pieces(groups: Sequence[Group]) -> Iterator[tuple[int, tuple[tuple[str, tuple[int, ...]], ...]]]:
    """Divide row groups, in order, into those of a file each; yield their bytes and their numbers by file."""
    chosen: dict[str, list[int]] = {}
    size = 0
    for group in groups:
        if chosen and size + group.bytes > FILE_BYTES:
            yield size, tuple((file, tuple(numbers)) for file, numbers in chosen.items())
            chosen, size = {}, 0
        chosen.setdefault(group.file, []).append(group.number)
        size += group.bytes
    yield size, tuple((file, tuple(numbers)) for file, numbers in chosen.items())


def _merge(job: Job, of: _ResultFile, format: str) -> list[File]:  # noqa: A002
    """Write a file of the result, in a second one what does not fit."""
    folder = "" if of.date is None else f"{_DATE}={of.date}"
    # The size was estimated, and a little more than a file's is no reason for a second one.
    with PartWriter(job, folder, f"{of.number:05d}", 2 * FILE_BYTES, format) as writer:
        for name, numbers in of.groups:
            if not numbers:  # a result without rows: its columns
                writer.begin_file(read_groups(job.path / name, ()).schema)
            for number in numbers:
                writer.write(read_groups(job.path / name, (number,)))
    return writer.files


@contextmanager
def table_rows(
    spark: SparkSession, tables: Sequence[tuple[Table, T.StructType, str | None]], *, overwrite: bool
) -> Iterator[Place]:
    """Yield the folder for the rows of tables, which are made first, to find out whether they can be.

    Raises
    ------
    OutputExists, OutputProblem, EnvironmentProblem
        Something else has the name, the catalogue refuses, or the session has no such format.
    """
    output = tables[0][0]
    if output.work is None:
        parent: Place = work_folder()
    else:
        parent = place(output.work, "folder for work").absolute()
    created: list[Table] = []
    try:
        for table, columns, by in tables:
            with _table_errors(table):
                if _refuse_other(spark, table, overwrite=overwrite):
                    continue
                _create(spark, table, columns, by)
                created.append(table)
        folder = parent / f"rows-{'.'.join(_parts(output.name))}"
        yield folder
    except BaseException:
        for table in created:
            with suppress(Exception):
                if _ROWS not in _properties(spark, table):
                    spark.sql(f"DROP TABLE IF EXISTS {table.quoted}")
        raise
    remove_tree(folder)


def put_rows(
    spark: SparkSession,
    table: Table,
    columns: T.StructType,
    by: str | None,
    base: Place,
    files: Sequence[tuple[Place, int]],
) -> None:
    """Replace the rows of a table by those of Parquet files, and check that as many are read from it."""
    expected = sum(rows for _, rows in files)
    with _table_errors(table), explained():
        expected_columns = _columns(columns, by)
        if not _has_columns(spark, table, expected_columns):
            spark.sql(f"DROP TABLE {table.quoted}")
            _create(spark, table, columns, by)
        spark.sql(f"ALTER TABLE {table.quoted} UNSET TBLPROPERTIES IF EXISTS ('{_ROWS}')")
        reader = spark.read.schema(expected_columns).option("basePath", spark_place(base))
        names = [spark_place(file) for file, _ in files]
        rows = reader.parquet(*names) if names else spark.createDataFrame([], expected_columns)
        order: list[str | Column] = [_DATE] if by is not None else []
        if names:  # so that the table has no more files than the folder
            order.append(F.col("_metadata.file_path"))
        if order:
            rows = rows.repartition(*order).sortWithinPartitions(
                *order, *([] if by in (None, _DATE) else [by])
            )
        rows.select(expected_columns.names).write.mode("overwrite").option(
            "partitionOverwriteMode", "static"
        ).insertInto(table.quoted)
        stored = spark.table(table.quoted).count()
        if stored == expected:
            spark.sql(f"ALTER TABLE {table.quoted} SET TBLPROPERTIES ('{_ROWS}' = '{stored}')")
    if stored != expected:
        raise OutputProblem(
            f"Rows were lost or added: {table} is not complete.",
            where=table.name,
            found=f"{stored:,} rows",
            expected=f"{expected:,} rows",
            remedy="see that nobody else writes to it, and run this again",
        )


def _columns(columns: T.StructType, by: str | None) -> T.StructType:
    """Return the columns of a table, of which that of dates is the last."""
    fields = [T.StructField(f.name, f.dataType) for f in columns.fields if by is None or f.name != _DATE]
    return T.StructType([*fields, *([] if by is None else [T.StructField(_DATE, T.DateType())])])


def _create(spark: SparkSession, table: Table, columns: T.StructType, by: str | None) -> None:
    """Create an empty table of these columns, marked as made by mudkit."""
    expected_columns = _columns(columns, by)
    listed = ", ".join(
        f"`{field.name.replace('`', '``')}` {field.dataType.simpleString()}" for field in expected_columns
    )
    using = f" USING {table.format}" if table.format else ""
    divided = f" PARTITIONED BY (`{_DATE}`)" if by is not None else ""
    properties = f"TBLPROPERTIES ('{_MADE_BY}' = '{__version__}')"
    spark.sql(f"CREATE TABLE {table.quoted} ({listed}){using}{divided} {properties}")


def _has_columns(spark: SparkSession, table: Table, expected_columns: T.StructType) -> bool:
    """Return whether a table has the expected columns, and the format that it is to have."""
    fields = [(field.name, field.dataType) for field in spark.table(table.quoted).schema.fields]
    described = {row[0]: row[1] for row in spark.sql(f"DESCRIBE TABLE EXTENDED {table.quoted}").collect()}
    is_format = table.format is None or described.get("Provider", "").lower() == table.format.lower()
    return is_format and fields == [(field.name, field.dataType) for field in expected_columns.fields]


def _properties(spark: SparkSession, table: Table) -> dict[str, str]:
    """Return the properties of a table."""
    return {row[0]: row[1] for row in spark.sql(f"SHOW TBLPROPERTIES {table.quoted}").collect()}


def _refuse_other(spark: SparkSession, table: Table, *, overwrite: bool) -> bool:
    """Return whether the table exists; raise OutputExists if it must not be replaced."""
    if not spark.catalog.tableExists(table.quoted):
        return False
    try:
        properties = _properties(spark, table)
    except AnalysisException:  # a view
        properties = {}
    if _MADE_BY in properties and (overwrite or _ROWS not in properties):
        return True
    raise OutputExists(
        f"There is a table or view named {table.name} already.",
        where=table.name,
        found=f"a table of {properties[_ROWS]} rows"
        if _MADE_BY in properties
        else "what mudkit did not make",
        expected="a name that is free, or a table that mudkit made",
        remedy="choose another name, or drop it; a table of the same kind is replaced with overwrite=True",
    )


@contextmanager
def _table_errors(table: Table) -> Iterator[None]:
    """Raise Spark's errors about a table, while the body runs, as errors of mudkit."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        if isinstance(error, Py4JError) and len(lines) > 1:
            del lines[0]  # it names a function of Java
        line = next((line for line in lines if any(sign in line for sign in _NO_FORMAT)), "")
        if line:
            raise EnvironmentProblem(
                f"This session of Spark has no tables of the format {table.format}.",
                where=table.name,
                found=line[:300],
                expected="a session that has the format among its jars",
                remedy="start the session with it (config={'spark.jars': …}), or leave format out",
            ) from error
        raise OutputProblem(
            f"{str(table).capitalize()} could not be written.",
            where=table.name,
            found=lines[0][:300],
            expected="a catalogue that makes the table and takes its rows",
            remedy="check the name, its database and your rights",
        ) from error


@check_arguments(types=False)
def write(frame: DataFrame, path: Output, *, overwrite: bool = False) -> int:
    """Write a job's result to a folder, which its manifest makes complete, or to a table.

    Tasks write the rows, and merge them, in their order, into as few files as are needed when all are
    complete; ``_manifest.json``, which names the files with rows and bytes, is written last. Other programs,
    such as pandas and Arrow, read the folder as it is. Times are microseconds in UTC.

    Parameters
    ----------
    frame : DataFrame
        Rows to write.
    path : path-like, Files or Table
        Folder to create, which this machine and the workers share, by default of Parquet files without dates;
        or a table of the catalogue.
    overwrite : bool
        Whether a result of a job at ``path`` is replaced.

    Returns
    -------
    int
        Rows written, as counted by the tasks, and read from the table.

    Raises
    ------
    OutputExists, OutputProblem
        Something is at ``path``, it cannot be written, the workers do not share it, or another job began
        there; nothing is left behind.
    ParameterError, EnvironmentProblem
        There is no such format, or no such column of dates.
    """
    identity = {"job": "write", "run": uuid.uuid4().hex}

    def write_parts(job: Job, by: str | None) -> list[Part]:
        return [write_frame(job, "00000", frame, by, is_recorded=False)]

    done = write_output(
        frame.sparkSession, path, identity, lambda: frame.schema, write_parts, overwrite=overwrite
    )
    return int(done.manifest["rows"])
