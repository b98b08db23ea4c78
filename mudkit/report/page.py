"""The first screen of a report, and its headings."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any, Final

DETAILS: Final = "details"
"""Tag of cells that are folded; the first heading among them is what stays to be seen."""

SUMMARY: Final = "application/vnd.mudkit-summary+json"
"""Type of the output that holds the headline and the measures of a report."""

UNITS: Final = (
    "", "share", "ms", "s", "min", "h", "days", "m", "km", "m/s", "km/h", "B", "kB", "MB", "GB", "J", "kJ",
    "Wh", "devices", "messages", "a day", "messages/day", "MB/day", "GB/day", "J/day", "kJ/day", "price/day",
)  # fmt: skip
"""Units of measures; none for counts and texts."""


@dataclass(frozen=True)
class Measure:
    """Figure of a report's first screen, as ``summary.json`` holds it.

    Parameters
    ----------
    name : str
        Stable name in snake_case, for instance ``sent_share``; ``news_with_ranks.useful_share`` if there are
        several of a kind.
    value : float, str or None
        Shares are from 0 to 1. None: not known.
    unit : str
        One of :data:`UNITS`; empty for counts and texts.
    definition : str
        What it is, in a sentence.
    low, high : float, optional
        The 95 % interval, where there is one.
    """

    name: str
    value: float | str | None
    unit: str
    definition: str
    low: float | None = None
    high: float | None = None

    def document(self) -> dict[str, Any]:
        """Return it as JSON; what is not finite is null, and numbers of NumPy are Python's."""
        fields = {
            name: getattr(value, "item", lambda value=value: value)() for name, value in asdict(self).items()
        }
        return {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in fields.items()
        }


@dataclass(frozen=True)
class FirstScreen:
    """First screen of a report.

    Parameters
    ----------
    source : str
        What was read: file, span, devices, rows set aside.
    tiles : sequence of (str, str)
        Three figures, each with the words below it.
    headline : str
        The recommendation or the finding, in a sentence.
    reason : str
        What it rests on, in a sentence or two: figures, certainty.
    assumption : str
        What it depends on.
    warnings : sequence of str
        What distorts the data.
    measures : sequence of Measure
        The figures of this screen, for ``summary.json``.
    """

    source: str
    tiles: Sequence[tuple[str, str]]
    headline: str
    reason: str
    assumption: str = ""
    warnings: Sequence[str] = ()
    measures: Sequence[Measure] = ()

    def _repr_html_(self) -> str:
        tiles = "".join(
            f"<div class='tile'><b>{_marked(value)}</b><span>{_marked(text)}</span></div>"
            for value, text in self.tiles
        )
        more = f"<p class='soft'>{_marked(self.assumption)}</p>" if self.assumption else ""
        warned = "".join(f"<li>{_marked(warning)}</li>" for warning in self.warnings)
        return (
            f"<p class='read'>{escape(self.source)}</p><div class='tiles'>{tiles}</div>"
            f"<div class='say'><p><strong>{_marked(self.headline)}</strong> {_marked(self.reason)}</p>{more}"
            "</div>"
            + (f"<div class='warn'><p><b>About the data</b></p><ul>{warned}</ul></div>" if warned else "")
        )

    def __repr__(self) -> str:
        return "\n".join([f"{self.headline} {self.reason}", self.assumption, *self.warnings])

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        summary = {"headline": self.headline, "measures": [measure.document() for measure in self.measures]}
        return {"text/plain": repr(self), "text/html": self._repr_html_(), SUMMARY: summary}


@dataclass(frozen=True)
class Answer:
    """Heading that answers a question, and the sentences below it."""

    title: str
    text: str = ""

    def _repr_html_(self) -> str:
        text = f"<p>{_marked(self.text)}</p>" if self.text else ""
        return f"<h2>{_marked(self.title)}</h2>{text}"

    def __repr__(self) -> str:
        return f"{self.title}\n{self.text}"


def _marked(text: str) -> str:
    """Escape a text; what stands between backticks is code, and a number keeps its unit beside it."""
    joined = re.sub(r"(?<=\d) (?=%|(?:km|m|d|h|min|s|kB|MB|GB|J|points?)\b)", "\N{NO-BREAK SPACE}", text)
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(joined, quote=False))
