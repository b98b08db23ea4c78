"""Options of a load, and the plan that they make of a source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from mudkit.errors import ParameterError
from mudkit.files import sha256
from mudkit.sources.parameters import time_zone
from mudkit.trace.derive import Rule
from mudkit.trace.formats import Source, recognise
from mudkit.trace.values import TIME_UNITS

__all__ = ["MAX_BOX_KM", "MAX_WINDOW_S", "LoadPlan", "Options", "refuse_for_folder"]

MAX_BOX_KM = 20_000.0
MAX_WINDOW_S = 3.2e9
"""A hundred years; a longer window is a mistake."""

FileTable: TypeAlias = Literal["positions", "reads"]
TimeUnit: TypeAlias = Literal["s", "ms", "us", "ns"]


@dataclass(frozen=True)
class Options:
    """Options of a load, with the meanings and defaults of :func:`mudkit.trace.load`."""

    format: str = "auto"
    table: FileTable = "positions"
    tz: str = "UTC"
    time_unit: TimeUnit = "s"
    columns: Mapping[str, str] | None = None
    rule: str | None = None
    box_km: float | None = None
    window_s: float | None = None

    def __post_init__(self) -> None:
        time_zone("tz", self.tz)
        box_km, window_s = self.box_km, self.window_s
        allowed: list[tuple[str, bool, str]] = [
            ("table", self.table in ("positions", "reads"), "positions or reads"),
            ("time_unit", self.time_unit in TIME_UNITS, "one of " + ", ".join(TIME_UNITS)),
            ("box_km", box_km is None or 0 < box_km <= MAX_BOX_KM, "a side over 0 and up to 20,000 km"),
            ("window_s", window_s is None or 0 < window_s <= MAX_WINDOW_S, "seconds over 0 and up to 3.2e9"),
        ]
        for name, is_allowed, expected in allowed:
            if not is_allowed:
                raise ParameterError(
                    f"The parameter {name} is not usable.",
                    where=name,
                    found=repr(getattr(self, name)),
                    expected=expected,
                )

    def plan(self, path: Path) -> LoadPlan:
        """Recognise a file or folder, and return the plan to load it."""
        return LoadPlan.of(recognise(path, self.format, self.columns), self)


def refuse_for_folder(path: Path, **options: object) -> None:
    """Raise an error for options, by the names of :class:`Options`, that have no effect on a trace folder."""
    defaults = {field.name: field.default for field in fields(Options)}
    given = {name: value for name, value in options.items() if value and value != defaults[name]}
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

    ``options.table`` is ``reads`` where the format holds only reads. ``rule`` derives reads from positions;
    ``box_km`` and ``window_s`` are the requests of reads that record none.
    """

    source: Source
    options: Options
    rule: Rule
    box_km: float
    window_s: float

    @classmethod
    def of(cls, source: Source, options: Options) -> LoadPlan:
        """Adapt options to a source.

        Without a rule it is ``none`` for recorded reads, ``occupancy`` if the source records fares, else
        ``trip_start``.
        """
        if source.holds_reads:
            options = replace(options, table="reads")
        if options.rule is not None:
            rule = Rule.parse(options.rule)
        elif options.table == "reads":
            rule = Rule("none")
        else:
            rule = Rule("occupancy" if source.has_occupancy else "trip_start")
        box_km = 20.0 if options.box_km is None else float(options.box_km)
        window_s = 7200.0 if options.window_s is None else float(options.window_s)
        return cls(source, options, rule, box_km, window_s)

    def description(self) -> dict[str, Any]:
        """Return the origin of the trace and every option that shaped it; hashes the files."""
        options = self.options
        return {
            "name": self.source.path.name,
            "format": self.source.format,
            "sha256": sha256(self.source.path),
            "options": {
                "columns": self.source.columns,
                "rule": str(self.rule),
                "table": options.table,
                "tz": options.tz,
                "time_unit": options.time_unit,
                "box_km": self.box_km,
                "window_s": self.window_s,
            },
        }
