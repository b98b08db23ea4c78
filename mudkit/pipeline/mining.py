"""Mining of usage of any size on Spark: what a policy generator learns from its sample (Mobius 6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows
from pyspark.sql import types as T  # noqa: N812 - the name that everybody knows
from pyspark.sql.pandas.types import from_arrow_schema

from mudkit import words
from mudkit.checks import Range, check_arguments
from mudkit.display import Displayed, View, first_rows
from mudkit.errors import TraceContentError
from mudkit.files import PlaceLike
from mudkit.pipeline.frames import find_frame, reading_rows
from mudkit.pipeline.patterns import Pattern, find_patterns
from mudkit.pipeline.tables import read, require_columns
from mudkit.pipeline.usage import SparkUsage
from mudkit.trace.schema import USAGE
from mudkit.trace.usage import Usage

_REQUIRED = tuple(field.name for field in USAGE if not field.nullable)
_SPARK_TYPES = {field.name: field.dataType for field in from_arrow_schema(USAGE).fields}
_OPS = ("read", "write", "prefetch", "register", "change")


class Verdict(Protocol):
    """Verdict of a learner on a kind of policy for an app's table: ``mudkit.learning.PolicyVerdict``."""

    @property
    def app(self) -> str:
        """Name of the app."""
        ...

    @property
    def table(self) -> str:
        """Name of the table."""
        ...

    @property
    def kind(self) -> str:
        """Kind of the policy."""
        ...

    @property
    def policy(self) -> Any:
        """The policy, with its app; None: there is too little usage."""
        ...

    @property
    def ships(self) -> bool:
        """True if there is a policy that pays."""
        ...

    @property
    def why(self) -> str:
        """Reason, in words."""
        ...


class Judge(Protocol):
    """Learner that judges usage in this process or on Spark, as ``mudkit.learning.Learner`` does."""

    @property
    def min_devices(self) -> int:
        """Fewest devices that are learnt from."""
        ...

    def judge(self, usage: Usage, seed: int) -> Sequence[Verdict]:
        """Judge each kind of policy of each app and table."""
        ...


@check_arguments(types=False)
@dataclass(frozen=True, repr=False)
class Mined(Displayed):
    """Result of :func:`mine`; :meth:`mudkit.systems.mud.Cloud.ship` ships its policies.

    Attributes
    ----------
    verdicts : tuple of PolicyVerdict
        What was learnt for each app, table and kind of policy, and why it ships or not.
    patterns : tuple of Pattern
        Queries that are read after others, most frequent first.
    rows, devices, sessions : int
        Rows that were learnt from, and devices and sessions that they are of.
    set_aside : dict
        Number of rows that were not, by reason.
    missing : tuple of str
        Columns that the usage does not have, as that of older clients; they count as unknown.
    """

    verdicts: tuple[Verdict, ...]
    patterns: tuple[Pattern, ...]
    rows: int
    devices: int
    sessions: int
    set_aside: dict[str, int]
    missing: tuple[str, ...]

    @property
    def policies(self) -> tuple[Any, ...]:
        """The policies, with their apps: what :meth:`mudkit.learning.Learner.learn` returns."""
        return tuple(one.policy for one in self.verdicts if one.policy is not None)

    def _view(self) -> View:
        facts = {
            "rows": f"{self.rows:,}",
            "devices": f"{self.devices:,}",
            "sessions": f"{self.sessions:,}",
            "policies that pay": sum(one.ships for one in self.verdicts),
            "set aside": f"{sum(self.set_aside.values()):,}" if self.set_aside else None,
        }
        verdicts = [
            (one.app, one.table, one.kind, "yes" if one.ships else "no", one.why) for one in self.verdicts
        ]
        patterns = [
            (one.app, one.query, one.then_query, words.percent(one.support), words.percent(one.confidence),
             words.percent(one.by_chance), one.devices)
            for one in self.patterns
        ]  # fmt: skip
        tables = [
            first_rows(("app", "table", "policy", "ships", "why"), verdicts, len(verdicts)),
            first_rows(
                ("app", "query", "then", "support", "confidence", "by chance", "devices"),
                patterns,
                len(patterns),
                "Queries that are read after others",
            ),
        ]
        notes = [f"Set aside: {count:,} with {reason}." for reason, count in self.set_aside.items()]
        if self.missing:
            notes.append(f"Columns that are missing count as unknown: {', '.join(self.missing)}.")
        return View("Mined", facts, tables, notes)


@check_arguments(types=False)
def mine(
    spark: SparkSession,
    usage: DataFrame | PlaceLike,
    learner: Judge,
    *,
    seed: Annotated[int, Range(0, 2**63 - 1)] = 0,
    gap_s: Annotated[float, Range(1.0, 1e7)] = 1800.0,
    min_support: Annotated[float, Range(1e-6, 1.0)] = 0.01,
    min_confidence: Annotated[float, Range(0.0, 1.0)] = 0.5,
) -> Mined:
    """Mine usage of any size for what a policy generator learns from its sample.

    The policies and verdicts are those of the learner for the same rows and seed, to the byte, wherever they
    are computed: a table with up to 200,000 rows is learnt from in this process, a larger one by Spark's
    tasks. Of very large ones a sample of the devices is learnt from, drawn by their names and the seed: of
    those with about 400,000 reads, and 500,000 intervals for prefetching. What is written is never a sample.

    It also finds which query is read after which other one, by Spark's PrefixSpan. A session ends before a
    pause of ``gap_s``. Only queries that the learner's ``min_devices`` have repeated are in it, and a pattern
    is one of at least as many devices, as often and as surely as stated, and more surely than by chance: when
    each device reads the same at the same times in any order.

    This process holds the rows of one table with up to 200,000, or the sample, and for each device and day of
    the sample the answers of the best policies; not more for more rows.

    Parameters
    ----------
    spark : SparkSession
    usage : DataFrame or path-like
        A trace folder, of this machine or of a store; or the DataFrame, or the name of a table or view, with
        the columns of :data:`mudkit.trace.schema.USAGE`. Columns that may be null may be missing.
    learner : Learner
        What the cloud has: :class:`mudkit.learning.Learner`.
    seed : int
        Which devices are learnt from, and how queries are shuffled.
    gap_s : float
        Pause after which a new session begins, in seconds.
    min_support : float
        Share of the sessions of an app that have a pattern, at least.
    min_confidence : float
        Share of the sessions with the first query of a pattern that have the other one after it, at least.

    Returns
    -------
    Mined

    Raises
    ------
    InputMissing, TraceFormatError
        There is no trace, or no whole one.
    TraceContentError
        The table is not one of usage: columns are missing, or have another type.
    ParameterError
        A parameter is out of range, or the DataFrame is a stream.
    """
    frame = find_frame(spark, usage)
    name = "usage"
    given = read(spark, usage, "usage") if frame is None else frame  # type: ignore[arg-type]
    rows = _columns(given)
    with reading_rows(name):
        reasons = rows.groupBy("reason").agg(
            F.count("*").alias("rows"),
            F.countDistinct(F.when(F.col("op") != "change", F.col("device"))).alias("of"),
        )
        counted = {row.reason: (row.rows, row.of) for row in reasons.collect()}
        kept_rows, devices = counted.pop(None, (0, 0))
        kept = SparkUsage(kept_frame := rows.where("reason IS NULL").drop("reason"))
        verdicts = tuple(learner.judge(kept, seed)) if kept_rows else ()
        patterns = find_patterns(
            kept_frame,
            kept.surveys(learner.min_devices) if kept_rows else (),
            min_devices=learner.min_devices,
            gap_s=gap_s,
            min_support=min_support,
            min_confidence=min_confidence,
            seed=seed,
        )
    return Mined(
        verdicts,
        patterns.patterns,
        kept_rows,
        devices,
        patterns.sessions,
        {reason: count for reason, (count, _) in sorted(counted.items())},
        tuple(name for name in USAGE.names if name not in given.columns),
    )


def _columns(given: DataFrame) -> DataFrame:
    """Return the columns of usage, and why a row is set aside; raise TraceContentError if one cannot be."""
    require_columns(given, "usage", _REQUIRED)
    chosen = []
    for name, kind in _SPARK_TYPES.items():
        if name not in given.columns:
            chosen.append(F.lit(None).cast(kind).alias(name))
            continue
        given_kind = given.schema[name].dataType
        is_number = isinstance(kind, T.DoubleType | T.LongType) and isinstance(given_kind, T.NumericType)
        if not isinstance(given_kind, T.NullType) and given_kind != kind and not is_number:
            raise TraceContentError(
                "A column of this usage has another type.",
                where=name,
                found=given_kind.simpleString(),
                expected=kind.simpleString(),
                remedy=f"convert it: F.col({name!r}).cast({kind.simpleString()!r})",
            )
        chosen.append(F.col(f"`{name}`").cast(kind).alias(name))
    rows = given.select(*chosen)
    reason = F.lit(None).cast("string")
    for words_, is_wrong in reversed(
        [
            *((f"no {name}", F.col(name).isNull()) for name in _REQUIRED),
            ("an unknown op", ~F.col("op").isin(*_OPS)),
            ("an impossible place", _is_outside("lat", -90.0, 90.0) | _is_outside("lon", -180.0, 180.0)),
            ("an impossible size", _is_outside("box_km", 0.0, 1e12) | _is_outside("window_s", 0.0, 1e12)),
        ]
    ):
        reason = F.when(is_wrong, words_).otherwise(reason)
    return rows.withColumn("reason", reason)


def _is_outside(name: str, low: float, high: float) -> Any:
    """Return whether a number is known and not from ``low`` to ``high``; NaN is not."""
    return ~F.coalesce(F.col(name).between(low, high), F.col(name).isNull())
