"""The plan of a load: a recognised source, options that fit it, and the rule by which reads are derived."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from mudkit.files import sha256
from mudkit.trace.derive import Rule
from mudkit.trace.formats import Source
from mudkit.trace.options import Options

__all__ = ["LoadPlan"]


@dataclass(frozen=True)
class LoadPlan:
    """All that decides which trace a file becomes; made by :meth:`of`.

    Attributes
    ----------
    source : Source
        The file or folder, and what reads it.
    options : Options
        How its columns are to be understood; ``table`` is ``reads`` where the format holds only reads.
    rule : Rule
        How reads are derived from positions.
    """

    source: Source
    options: Options
    rule: Rule

    @classmethod
    def of(cls, source: Source, options: Options, rule: str | None) -> LoadPlan:
        """Fit options to a source, and choose the rule.

        Parameters
        ----------
        source : Source
            What :func:`mudkit.trace.formats.recognise` recognised.
        options : Options
            What the caller asks for.
        rule : str or None
            A rule as :meth:`mudkit.trace.derive.Rule.parse` reads it. None: ``none`` for recorded reads,
            ``occupancy`` where the source says when a taxi has a fare, else ``trip_start``.

        Raises
        ------
        ParameterError
            There is no such rule.
        """
        if source.holds_reads:
            options = replace(options, table="reads")
        if rule is not None:
            return cls(source, options, Rule.parse(rule))
        if options.table == "reads":
            return cls(source, options, Rule("none"))
        return cls(source, options, Rule("occupancy" if source.has_occupancy else "trip_start"))

    def description(self) -> dict[str, Any]:
        """Say where the trace comes from and every option that shaped it; reads the files for their hash."""
        return {
            "name": self.source.path.name,
            "format": self.source.format,
            "sha256": sha256(self.source.path),
            "options": {"columns": self.source.columns, "rule": str(self.rule), **asdict(self.options)},
        }
