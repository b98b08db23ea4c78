"""Options of a load: interpretation of the columns, default requests of reads, and their rule."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from mudkit.errors import ParameterError
from mudkit.files import sha256
from mudkit.sources.parameters import time_zone
from mudkit.trace.derive import Rule
from mudkit.trace.formats import Source
from mudkit.trace.values import TIME_UNITS

__all__ = ["MAX_BOX_KM", "MAX_WINDOW_S", "LoadPlan", "Options", "refuse_for_folder"]

MAX_BOX_KM = 20_000.0
MAX_WINDOW_S = 3.2e9
"""A hundred years; a longer window is a mistake."""


FileTable: TypeAlias = Literal["positions", "reads"]
TimeUnit: TypeAlias = Literal["s", "ms", "us", "ns"]


@dataclass(frozen=True)
class Options:
    """Interpretation of the columns of a file.

    Parameters
    ----------
    table : {'positions', 'reads'}
        What the rows of the file are.
    tz : str
        Time zone (IANA name) of times without one.
    time_unit : {'s', 'ms', 'us', 'ns'}
        Unit of numeric times, counted from 1970-01-01 UTC.
    box_km : float
        Default side of the square that a read requests, in km; above 0, up to 20,000.
    window_s : float
        Default time that a read requests, in seconds; above 0, up to 3.2e9.
    """

    table: FileTable = "positions"
    tz: str = "UTC"
    time_unit: TimeUnit = "s"
    box_km: float = 20.0
    window_s: float = 7200.0

    def __post_init__(self) -> None:
        time_zone("tz", self.tz)
        allowed: list[tuple[str, Any, bool, str]] = [
            ("table", self.table, self.table in ("positions", "reads"), "positions or reads"),
            ("time_unit", self.time_unit, self.time_unit in TIME_UNITS, "one of " + ", ".join(TIME_UNITS)),
            ("box_km", self.box_km, 0 < self.box_km <= MAX_BOX_KM, "a side over 0 and up to 20,000 km"),
            ("window_s", self.window_s, 0 < self.window_s <= MAX_WINDOW_S, "seconds over 0 and up to 3.2e9"),
        ]
        for name, value, fine, expected in allowed:
            if not fine:
                raise ParameterError(
                    f"The parameter {name} is not usable.", where=name, found=repr(value), expected=expected
                )

    @classmethod
    def of(
        cls, table: FileTable, tz: str, time_unit: TimeUnit, box_km: float | None, window_s: float | None
    ) -> Options:
        """Build options from arguments; ``None`` for ``box_km`` or ``window_s`` is the default."""
        sizes = {"box_km": box_km, "window_s": window_s}
        return cls(table, tz, time_unit, **{k: float(v) for k, v in sizes.items() if v is not None})


def refuse_for_folder(path: Path, **options: object) -> None:
    """Raise an error for options that have no effect on a trace folder."""
    usual = {"format": "auto", "table": "positions", "tz": "UTC", "time_unit": "s"}
    given = {name: value for name, value in options.items() if value and value != usual.get(name)}
    if given:
        raise ParameterError(
            "A trace folder holds its rows and reads already.",
            where=", ".join(given),
            found=", ".join(f"{name}={value!r}" for name, value in given.items()) + f" for {path}",
            expected="no such option",
            remedy="leave it out, or start from the source file",
        )


@dataclass(frozen=True)
class LoadPlan:
    """Everything that determines the trace that a file becomes; built by :meth:`of`.

    Attributes
    ----------
    source : Source
        File or folder, and its reader.
    options : Options
        Interpretation of its columns; ``table`` is ``reads`` where the format holds only reads.
    rule : Rule
        Rule that derives reads from positions.
    """

    source: Source
    options: Options
    rule: Rule

    @classmethod
    def of(cls, source: Source, options: Options, rule: str | None) -> LoadPlan:
        """Adapt options to a source, and choose the rule.

        ``rule`` is a text for :meth:`mudkit.trace.derive.Rule.parse`; ``None`` is ``none`` for recorded
        reads, ``occupancy`` if the source records fares, else ``trip_start``.
        """
        if source.holds_reads:
            options = replace(options, table="reads")
        if rule is not None:
            return cls(source, options, Rule.parse(rule))
        if options.table == "reads":
            return cls(source, options, Rule("none"))
        return cls(source, options, Rule("occupancy" if source.has_occupancy else "trip_start"))

    def description(self) -> dict[str, Any]:
        """Return the origin of the trace and every option that shaped it; hashes the files."""
        return {
            "name": self.source.path.name,
            "format": self.source.format,
            "sha256": sha256(self.source.path),
            "options": {"columns": self.source.columns, "rule": str(self.rule), **asdict(self.options)},
        }
