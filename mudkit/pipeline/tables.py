"""Tables of a trace as Spark DataFrames, and Spark's errors as mudkit's."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from mudkit.errors import TraceContentError
from mudkit.files import output_problem, staged_folder
from mudkit.pipeline._column import column
from mudkit.predicates import Predicate
from mudkit.trace.folder import columns_language, table_folder
from mudkit.trace.schema import SCHEMAS

__all__ = ["ddl", "read", "read_folders", "require_columns", "write", "write_files", "writing"]

OUTPUT_NAMES = r"part-.*\.parquet"
"""What is in the folder of a job's result; only a folder with nothing else in it is ever replaced."""

_TIMES = "spark.sql.parquet.outputTimestampType"
_SPARK_TYPES = {
    pa.string(): "STRING",
    pa.float64(): "DOUBLE",
    pa.int64(): "BIGINT",
    pa.bool_(): "BOOLEAN",
    pa.timestamp("us", tz="UTC"): "TIMESTAMP",
}


def ddl(schema: pa.Schema) -> str:
    """Write an Arrow schema as Spark's."""
    return ", ".join(f"{field.name} {_SPARK_TYPES[field.type]}" for field in schema)


def read(
    spark: SparkSession, path: str | os.PathLike[str], table: str, *, where: str | Predicate | None = None
) -> DataFrame:
    """Read one table of a trace folder.

    Parameters
    ----------
    spark : SparkSession
    path : path-like
        A trace folder, as :func:`mudkit.pipeline.ingest` or :meth:`mudkit.trace.Loaded.save` write it.
    table : str
        One of :data:`mudkit.trace.schema.SCHEMAS`.
    where : str or Predicate, optional
        Which rows, in the predicate language over the table's columns; by default all. Spark evaluates it.

    Returns
    -------
    DataFrame
        The table, with the schema of :mod:`mudkit.trace.schema`; it is empty when the trace has no such rows.

    Raises
    ------
    InputMissing, TraceFormatError
        There is no trace at ``path``, or no whole one.
    PredicateError
        ``where`` is no predicate over the table's columns.
    """
    folder = table_folder(path, table)
    return read_folders(spark, [] if folder is None else [folder], table, where=where)


def read_folders(
    spark: SparkSession, folders: Sequence[Path], table: str, *, where: str | Predicate | None = None
) -> DataFrame:
    """Read rows of one table from folders that are known to be there: a whole table, or some of its dates.

    Raises
    ------
    PredicateError
        ``where`` is no predicate over the table's columns.
    """
    schema = ddl(SCHEMAS[table])
    if not folders:
        frame = spark.createDataFrame([], schema)
    else:
        places = [str(folder.absolute()) for folder in folders]
        frame = spark.read.schema(schema).parquet(*places).select(SCHEMAS[table].names)
    if where is None:
        return frame
    if isinstance(where, str):
        where = Predicate.parse(where, language=columns_language(SCHEMAS[table]))
    return frame.where(column(where, frame))


def write(frame: DataFrame, path: str | os.PathLike[str], *, overwrite: bool = False) -> int:
    """Write a job's result as a folder of Parquet files, whole or not at all.

    Parameters
    ----------
    frame : DataFrame
        Rows to write.
    path : path-like
        Folder to create.
    overwrite : bool
        Whether a folder at ``path`` is replaced.

    Returns
    -------
    int
        Rows written.

    Raises
    ------
    OutputExists, OutputProblem
        Something is at ``path``, or it cannot be written; nothing is left behind.
    """
    path = Path(path).expanduser()
    with staged_folder(path, overwrite=OUTPUT_NAMES if overwrite else None) as folder, writing(path):
        # Spark will not write into a folder that is there already, so its files move up by one.
        for file in write_files(frame, folder / "rows"):
            file.rename(folder / file.name)
        shutil.rmtree(folder / "rows")
        return int(ds.dataset(folder, format="parquet").count_rows())


def write_files(frame: DataFrame, folder: Path) -> list[Path]:
    """Write a DataFrame into a folder that is not there yet, and list the files, in order.

    Times are microseconds in UTC, as in a trace; by itself Spark writes a type without a zone, which other
    programs take for local time and cannot read past the year 2262.
    """
    conf = frame.sparkSession.conf
    usual = conf.get(_TIMES)
    conf.set(_TIMES, "TIMESTAMP_MICROS")
    try:
        frame.write.option("compression", "zstd").parquet(str(folder))
    finally:
        conf.set(_TIMES, usual or "INT96")
    return sorted(folder.glob("part-*"))


def require_columns(frame: DataFrame, table: str, needed: tuple[str, ...]) -> None:
    """Refuse a DataFrame that lacks columns of a table.

    Raises
    ------
    TraceContentError
    """
    if missing := [name for name in needed if name not in frame.columns]:
        raise TraceContentError(
            f"These are not {table}: columns are missing.",
            found=", ".join(frame.columns),
            expected=", ".join(missing),
            remedy=f"read them with pipeline.read(spark, path, '{table}')",
        )


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what Spark says of a full disk or a read-only folder into one clear error.

    Raises
    ------
    OutputProblem
    """
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        text = str(error)
        if any(sign in text for sign in ("No space left", "Permission denied", "Read-only file system")):
            raise output_problem(path, error) from error
        raise
