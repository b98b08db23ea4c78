"""DataFrames, views and tables of the catalogue as sources of a trace."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows
from pyspark.sql import types as T  # noqa: N812 - the name that everybody knows

from mudkit.errors import InputMissing, ParameterError, TraceFormatError
from mudkit.pipeline.executors import provide
from mudkit.trace.formats import TableSource
from mudkit.trace.formats.tables import table_batch
from mudkit.trace.options import LoadPlan, Options
from mudkit.trace.parse import Parsed, parse_batch
from mudkit.trace.times import names_zone

_SAMPLED_ROWS = 1000
_READ = (
    T.StringType,
    T.NumericType,
    T.BooleanType,
    T.TimestampType,
    T.TimestampNTZType,
    T.DateType,
    T.ArrayType,
    T.NullType,
)
_SHOWN = 300
_UNNUMBERED = 0
"""Number of each row of a DataFrame, whose rows have no order."""


def find_frame(spark: SparkSession, given: object) -> DataFrame | None:
    """Return the DataFrame, or that of a table or view, by which a source is given; None for anything else.

    Raises
    ------
    ParameterError
        The DataFrame is a stream, or both a table and a file have this name.
    """
    if isinstance(given, DataFrame):
        if given.isStreaming:
            raise ParameterError(
                "A stream has no end, so it is no trace.",
                where="source",
                found="a DataFrame of a stream",
                expected="a DataFrame that is read once",
                remedy="read what has arrived with spark.read; pipeline.event_stream reads events",
            )
        return given
    if not isinstance(given, str) or not _is_table(spark, given):
        return None
    if Path(given).exists():
        raise ParameterError(
            f"Both a table and a file are named {given}.",
            where="source",
            found=f"the table {given} of the catalogue, and {Path(given).absolute()}",
            expected="one of them",
            remedy=f"give spark.table({given!r}), or the path './{given}'",
        )
    return spark.table(given)


def _is_table(spark: SparkSession, name: str) -> bool:
    """Return whether a text is the name of a table or view, with its catalogue and database or without."""
    parts = name.split(".")
    if not 1 <= len(parts) <= 3 or not all(part.strip("`").replace("_", "a").isalnum() for part in parts):
        return False
    try:
        return spark.catalog.tableExists(name)
    except AnalysisException:  # three parts that begin with no catalogue, such as cabs.csv.gz
        return False


def plan_frame(frame: DataFrame, name: str, options: Options) -> tuple[LoadPlan, DataFrame]:
    """Return the plan to load a DataFrame, and the columns that it needs, in the order of the mapping.

    Raises
    ------
    ParameterError, TraceFormatError
        As :func:`mudkit.trace.formats.recognise`.
    """
    fields = dict(_leaf_columns(frame.schema))
    plan = options.plan(pa.table({column: pa.array([], pa.string()) for column in fields}), name)
    columns = plan.source.columns
    names = list(dict.fromkeys(columns.values()))
    flat = frame.select(*(fields[given].alias(given) for given in names))
    for field in flat.schema.fields:  # a column of nulls without a type, which Arrow does not give back
        if isinstance(field.dataType, T.NullType):
            fields[field.name] = F.lit(None).cast("string")
    flat = frame.select(*(fields[given].alias(given) for given in names))
    for field in flat.schema.fields:
        if not isinstance(field.dataType, _READ):
            raise TraceFormatError(
                f"A column of {name} has a type that is not read.",
                where=field.name,
                found=field.dataType.simpleString(),
                expected="a text, a number, a time, or a list of two numbers",
                remedy="convert it with cast, or map another column: columns={'lat': …}",
            )
    provide(frame.sparkSession)
    with reading_rows(name):
        sample = flat.limit(_SAMPLED_ROWS).toArrow()
    rows = flat.toDF(*(f"column_{number}" for number in range(len(names))))  # PySpark would quote no dot
    place = names.index(columns["ts"])
    is_text = isinstance(rows.schema[place].dataType, T.StringType)
    with reading_rows(name):
        zoned = is_text and plan.options.tz == "UTC" and _names_zones(rows.select(f"column_{place}"))
    source = TableSource(Path(name), "table", columns, table=sample, zoned=zoned)
    return replace(plan, source=source), rows


_UNREADABLE = re.compile(r"\[(FAILED_READ_FILE|CANNOT_READ|MALFORMED|FILE_NOT_EXIST)[^\n]*")
_CAUSES = re.compile(r"Caused by: [\w.$]*?(\w+(?:Exception|Error)): ([^\n]*)")
_RIGHTS = ("AccessControlException", "AccessDeniedException", "Permission denied")


@contextmanager
def reading_rows(name: str) -> Iterator[None]:
    """Raise Spark's errors in the body, about the files of a DataFrame, as errors of mudkit."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        text = str(error)
        causes = [f"{kind}: {message}"[:_SHOWN] for kind, message in _CAUSES.findall(text)]
        if refused := [line for line in (*causes, text) if any(word in line for word in _RIGHTS)]:
            raise InputMissing(
                f"Spark has no right to read the rows of {name}.",
                where=name,
                found=refused[0][:_SHOWN],
                expected="files that Spark may read",
                remedy="check the credentials of the session, or the permissions of the files",
            ) from error
        if sign := _UNREADABLE.search(text):
            raise TraceFormatError(
                f"Spark cannot read the rows of {name}.",
                where=name,
                found="; ".join([sign[0][:_SHOWN], *causes[-1:]]),
                expected="whole files with the same columns, which stay as they are",
                remedy="give the files by their paths, which are read one by one, or read them with a schema",
            ) from error
        raise


def parse_rows(plan: LoadPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[Parsed]:
    """Parse the rows of one partition; their numbers are 0, because a DataFrame has no order."""
    columns, name = plan.source.columns, plan.source.path.name
    names = list(dict.fromkeys(columns.values()))
    for rows in batches:
        batch = table_batch(pa.Table.from_batches([rows]).rename_columns(names), columns, name)
        unnumbered = replace(batch, rows=batch.rows * _UNNUMBERED)
        yield parse_batch(plan, plan.source.with_places(unnumbered))


def without_rows(plan: LoadPlan) -> LoadPlan:
    """Return a plan whose source has no rows, to be sent to tasks."""
    assert isinstance(plan.source, TableSource)
    return replace(plan, source=replace(plan.source, table=plan.source.table.slice(0, 0)))


def _names_zones(times: DataFrame) -> bool:
    """Return whether some of the texts of a column name their zone."""

    def find_zones(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        is_zoned = any(names_zone(batch.column(0).cast(pa.string())) for batch in batches)
        yield pa.RecordBatch.from_pydict({"is_zoned": [is_zoned]})

    return any(row[0] for row in times.mapInArrow(find_zones, "is_zoned BOOLEAN").collect())


def _leaf_columns(schema: T.StructType, before: tuple[str, ...] = ()) -> Iterator[tuple[str, Column]]:
    """Iterate over the columns of a schema, and the fields of its structs, named with dots."""
    for field in schema.fields:
        path = (*before, field.name)
        if isinstance(field.dataType, T.StructType):
            yield from _leaf_columns(field.dataType, path)
        else:
            quoted = ".".join(f"`{part.replace('`', '``')}`" for part in path)
            yield ".".join(path), F.col(quoted)
