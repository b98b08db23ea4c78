"""The first screen of a report, and its headings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Final

__all__ = ["DETAILS", "HEADLINE", "Answer", "FirstScreen"]

DETAILS: Final = "details"
"""Tag of cells that are folded; the first heading among them is what stays to be seen."""

HEADLINE: Final = "application/vnd.mudkit-headline+json"
"""Type of the output that holds the headline of a report as text."""


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
    """

    source: str
    tiles: Sequence[tuple[str, str]]
    headline: str
    reason: str
    assumption: str = ""
    warnings: Sequence[str] = ()

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
        return {"text/plain": repr(self), "text/html": self._repr_html_(), HEADLINE: self.headline}


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
