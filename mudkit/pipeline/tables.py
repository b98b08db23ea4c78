"""Tables of a trace as Spark DataFrames, and predicates as columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows
from pyspark.sql import types as T  # noqa: N812 - the name that everybody knows
from pyspark.sql.pandas.functions import arrow_udf

from mudkit.checks import check_arguments
from mudkit.errors import EnvironmentProblem, PredicateError, TraceContentError
from mudkit.files import Place as FilePlace
from mudkit.files import PlaceLike, spark_place
from mudkit.pipeline._session import session
from mudkit.pipeline.executors import check_workers
from mudkit.predicates import Column as Place
from mudkit.predicates import Layout, tree
from mudkit.trace.folder import columns_language, table_files
from mudkit.trace.schema import SCHEMAS

if TYPE_CHECKING:
    from mudkit.predicates import Predicate


@check_arguments(types=False)
def column(p: Predicate, schema: DataFrame | T.StructType | Layout) -> Column:
    """Build a Spark column that evaluates a predicate.

    Parameters
    ----------
    p : Predicate
    schema : DataFrame or StructType or Layout
        Description of the columns. With a DataFrame or its schema, an attribute of the first scope is the
        column of its name; the attributes of another scope are fields of the struct or ``VARIANT`` with the
        scope's name (``receiver.age``: the field ``age`` of the column ``receiver``). Times are seconds since
        1970 UTC; a struct with ``lat`` and ``lon`` or an array of two numbers may be a point; a ``VARIANT``
        has a value of any kind; other types are NULL. A layout describes other cases:
        ``Layout(record="data")`` for one ``VARIANT`` with all attributes.

    Returns
    -------
    Column
        TRUE, FALSE or NULL, exactly as in Python; ``frame.where(column(p, frame))`` keeps what matches.

    Raises
    ------
    PredicateError
        There is no such column (it suggests the nearest), a scope is not bound, or Spark has no form of a
        function: ``lookup``, one of a user without ``spark=``, a time zone that is not constant.

    Notes
    -----
    ``matches`` is the function ``mudkit_matches``, which is added to the session of the DataFrame, or else to
    the one that is active. It needs ``google-re2`` on the executors, and not mudkit.

    Over typed columns the SQL is short. Over a ``VARIANT`` it takes pages where the kinds on both sides are
    unknown (``coalesce(a, b) = coalesce(c, d)``); Spark may then log that it could not compile Java code, and
    interprets it. Its parser caches statements: a session of your own with hundreds of such predicates needs
    ``spark.sql.parser.manageParserCaches``, which :func:`mudkit.pipeline.session` sets.
    """
    if isinstance(schema, Layout):
        layout = schema
    else:
        types = getattr(schema, "schema", schema)
        if not isinstance(types, T.StructType):
            raise PredicateError(
                "This is no schema.",
                found=type(schema).__name__,
                expected="a DataFrame, StructType or Layout",
            )
        layout = _layout(types, p.language.scopes.names)
    written = p.sql(layout)
    if any(
        isinstance(node, tree.Call) and node.function.name == "matches" for node in tree.walk(p.form.root)
    ):
        _register_matches(_session(schema))
    return F.expr(written)


def _layout(schema: T.StructType, scopes: tuple[str, ...]) -> Layout:
    """Return the layout of a DataFrame's columns.

    A struct or VARIANT named as a scope has the data of this scope.
    """
    record: dict[str, str | Place] = {}
    scope_columns: dict[str, str | dict[str, str | Place]] = {scopes[0]: record}
    for top in schema.fields:
        if top.name in scopes[1:] and isinstance(top.dataType, T.VariantType):
            scope_columns[top.name] = top.name
        elif top.name in scopes[1:] and isinstance(top.dataType, T.StructType):
            inside: dict[str, str | Place] = {}
            for field in top.dataType.fields:
                _add(inside, "", top.name, (field.name,), field.dataType)
            scope_columns[top.name] = inside
        else:
            _add(record, "", top.name, (), top.dataType)
    return Layout(**scope_columns)


def _add(
    known: dict[str, str | Place], before: str, name: str, path: tuple[str, ...], kind: T.DataType
) -> None:
    """Add a column to the known ones, and the fields of a struct; a name with a dot is left out."""
    key = before + (path[-1] if path else name)
    if "." in key.removeprefix(before):  # the language cannot express this name
        return
    known[key] = Place(name, _kind(kind), path)
    if isinstance(kind, T.StructType):
        for field in kind.fields:
            _add(known, f"{key}.", name, (*path, field.name), field.dataType)


def _kind(kind: T.DataType) -> str:
    """Return the language's kind of a column of a type; ``null`` for types that it does not have."""
    match kind:
        case T.NumericType() | T.TimestampType():
            return "number"
        case T.DateType() | T.TimestampNTZType():
            return "date"
        case T.StringType():
            return "string"
        case T.BooleanType():
            return "boolean"
        case T.StructType():
            return "struct"
        case T.VariantType():
            return "variant"
        case T.ArrayType(elementType=T.NumericType() | T.TimestampType()):
            return "pair"
    return "null"


def _session(schema: object) -> SparkSession:
    """Return the session of a DataFrame, else the active one, else mudkit's, started if need be."""
    if isinstance(schema, DataFrame):
        return schema.sparkSession
    return SparkSession.getActiveSession() or session()


def _register_matches(spark: SparkSession) -> None:
    """Register the function ``mudkit_matches`` in a session."""
    check_workers(spark)

    # A nested function is pickled by value, so the executors need not import mudkit.
    def mudkit_matches(texts, patterns):  # type: ignore[no-untyped-def]  # noqa: ANN001
        import pyarrow as pa
        import re2

        options = re2.Options()
        options.log_errors = False
        compiled: dict[str, Any] = {}
        matches: list[bool | None] = []
        for text, pattern in zip(texts.to_pylist(), patterns.to_pylist(), strict=True):
            if pattern is not None and pattern not in compiled:
                try:
                    compiled[pattern] = re2.compile(pattern, options)
                except re2.error:
                    compiled[pattern] = None
            known = compiled.get(pattern)
            matches.append(None if text is None or known is None else known.search(text) is not None)
        return pa.array(matches, pa.bool_())

    # PySpark derives the kind of function from Arrow's types.
    mudkit_matches.__annotations__ = dict.fromkeys(("texts", "patterns", "return"), pa.Array)
    make: Any = arrow_udf
    spark.udf.register("mudkit_matches", make(mudkit_matches, "boolean"))


_NO_CLIENT = ("No FileSystem for scheme", "FileSystem not found", "RuntimeDelegateImpl")
"""Signs in errors of Spark that it lacks the client for an address, or a class of it."""

_CLIENTS = {
    "s3a": "org.apache.hadoop:hadoop-aws among the jars of Spark, of the version of its Hadoop",
    "abfss": "org.apache.hadoop:hadoop-azure among the jars of Spark, of the version of its Hadoop",
    "gs": "Google's gcs-connector among the jars of Spark",
    "webhdfs": "org.glassfish.jersey.core:jersey-common among the jars of Spark, or hdfs:// in its place",
}
_SPARK_TYPES = {
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    pa.float64(): "DOUBLE",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.bool_(): "BOOLEAN",
    pa.timestamp("us", tz="UTC"): "TIMESTAMP",
}


def ddl(schema: pa.Schema) -> str:
    """Return an Arrow schema as Spark's DDL."""
    return ", ".join(f"{field.name} {_SPARK_TYPES[field.type]}" for field in schema)


@check_arguments(types=False)
def read(
    spark: SparkSession, path: PlaceLike, table: str, *, where: str | Predicate | None = None
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
    return read_files(spark, table_files(path, table), table, where=where)


def read_files(
    spark: SparkSession, files: Sequence[FilePlace], table: str, *, where: str | Predicate | None = None
) -> DataFrame:
    """Read rows of one table from its files: of a whole table, or of some of its dates."""
    schema = ddl(SCHEMAS[table])
    if not files:
        frame = spark.createDataFrame([], schema)
    else:
        places = [spark_place(file) for file in files]
        with _reading(places[0]):
            frame = spark.read.schema(schema).parquet(*places).select(SCHEMAS[table].names)
    if where is None:
        return frame
    if isinstance(where, str):
        from mudkit.predicates import Predicate  # it loads sqlglot

        where = Predicate.parse(where, language=columns_language(SCHEMAS[table]))
    return frame.where(column(where, frame))


@contextmanager
def _reading(address: str) -> Iterator[None]:
    """Raise EnvironmentProblem, while the body runs, if Spark has no client for the scheme of an address."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        text = str(error)
        lines = [line for line in text.splitlines() if any(sign in line for sign in _NO_CLIENT)]
        if not lines:
            raise
        scheme = address.partition("://")[0]
        raise EnvironmentProblem(
            f"This session of Spark has no client for addresses with {scheme}://.",
            where=address,
            found=lines[0].strip()[:300],
            expected=_CLIENTS.get(scheme, "a file system of Hadoop for this scheme"),
            remedy="start the session with it (config={'spark.jars': …}), or copy the trace into a folder",
        ) from error


def require_columns(frame: DataFrame, table: str, needed: tuple[str, ...]) -> None:
    """Raise TraceContentError if a DataFrame lacks columns of a table, or its times have no zone."""
    if missing := [name for name in needed if name not in frame.columns]:
        raise TraceContentError(
            f"These are not {table}: columns are missing.",
            found=", ".join(frame.columns),
            expected=", ".join(missing),
            remedy=f"read them with pipeline.read(spark, path, '{table}')",
        )
    if "ts" in needed and not isinstance(kind := frame.schema["ts"].dataType, T.TimestampType):
        raise TraceContentError(
            f"The times of these {table} have no zone.",
            where="ts",
            found=kind.simpleString(),
            expected="timestamp, a moment whatever the zone of the session",
            remedy="name the zone in which they were recorded: "
            "F.to_timestamp(F.concat(F.col('ts').cast('string'), F.lit(' Europe/Bucharest')))",
        )
