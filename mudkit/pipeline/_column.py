"""A predicate as a column of Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows
from pyspark.sql import types as T  # noqa: N812 - the same
from pyspark.sql.pandas.functions import arrow_udf

from mudkit.errors import PredicateError
from mudkit.pipeline._session import session
from mudkit.predicates import Column as Place
from mudkit.predicates import Layout, Predicate, tree

__all__ = ["column"]


def column(p: Predicate, schema: DataFrame | T.StructType | Layout) -> Column:
    """Build a Spark column that evaluates a predicate.

    Parameters
    ----------
    p : Predicate
    schema : DataFrame or StructType or Layout
        What the columns are. With a DataFrame or its schema, an attribute of the first scope is the column of
        its name, and the attributes of another scope are the fields of the struct that is called like the
        scope (``receiver.age``: the field ``age`` of the column ``receiver``), or what a ``VARIANT`` of that
        name holds. Times are seconds since 1970 UTC; a struct with ``lat`` and ``lon`` or an array of two
        numbers may be a point; a ``VARIANT`` holds a value of any kind; other types are NULL. Where this does
        not fit, give a layout: ``Layout(record="data")`` for one ``VARIANT`` with all attributes.

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

    Over columns with types the SQL is short. Over a ``VARIANT``, whose values may be of any kind, it takes
    pages where kinds are open on both sides (``coalesce(a, b) = coalesce(c, d)``); Spark may then log that it
    could not compile Java code, and interprets instead. Its parser remembers what it has seen: a session of
    your own that takes hundreds of such predicates needs ``spark.sql.parser.manageParserCaches``, which
    :func:`mudkit.pipeline.session` sets.
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
    written = p.sql("spark", layout)
    if any(
        isinstance(node, tree.Call) and node.function.name == "matches" for node in tree.walk(p.form.root)
    ):
        _register_matches(_session(schema))
    return F.expr(written)


def _layout(schema: T.StructType, scopes: tuple[str, ...]) -> Layout:
    record: dict[str, str | Place] = {}
    scope_columns: dict[str, str | dict[str, str | Place]] = {scopes[0]: record}
    for each in schema.fields:
        if each.name in scopes[1:] and isinstance(each.dataType, T.VariantType):
            scope_columns[each.name] = each.name
        elif each.name in scopes[1:] and isinstance(each.dataType, T.StructType):
            inside: dict[str, str | Place] = {}
            for field in each.dataType.fields:
                _add(inside, "", each.name, (field.name,), field.dataType)
            scope_columns[each.name] = inside
        else:
            _add(record, "", each.name, (), each.dataType)
    return Layout(**scope_columns)


def _add(
    known: dict[str, str | Place], before: str, name: str, path: tuple[str, ...], kind: T.DataType
) -> None:
    """Add a column, and what is inside it when it is a struct."""
    key = before + (path[-1] if path else name)
    if "." in key.removeprefix(before):  # the language has no way to say this name
        return
    known[key] = Place(name, _kind(kind), path)
    if isinstance(kind, T.StructType):
        for field in kind.fields:
            _add(known, f"{key}.", name, (*path, field.name), field.dataType)


def _kind(kind: T.DataType) -> str:
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
    if isinstance(schema, DataFrame):
        return schema.sparkSession
    return SparkSession.getActiveSession() or session()


def _register_matches(spark: SparkSession) -> None:
    # A function inside a function goes to the executors as code, not as a name of a module of mudkit.
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

    # The types of Arrow tell PySpark what kind of function it is.
    mudkit_matches.__annotations__ = dict.fromkeys(("texts", "patterns", "return"), pa.Array)
    make: Any = arrow_udf
    spark.udf.register("mudkit_matches", make(mudkit_matches, "boolean"))
