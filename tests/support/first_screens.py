"""Numbers in the text of a report's first screen, and whether its summary.json has them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import NamedTuple

import nbformat

from mudkit.report import Summary, read_summary
from mudkit.report.page import SUMMARY

_S = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0, "day": 86_400.0, "days": 86_400.0}
_UNITS = {name: ("s", factor) for name, factor in _S.items()} | {
    "m": ("m", 1.0), "km": ("m", 1000.0), "m/s": ("m/s", 1.0), "km/h": ("m/s", 1 / 3.6),
    "%": ("share", 0.01), "point": ("share", 0.01), "points": ("share", 0.01), "share": ("share", 1.0),
    "B": ("B", 1.0), "kB": ("B", 1e3), "MB": ("B", 1e6), "GB": ("B", 1e9),
    "bytes": ("B", 1.0), "MB/day": ("B", 1e6), "GB/day": ("B", 1e9), "J": ("J", 1.0), "kJ": ("J", 1e3),
}  # fmt: skip
"""Dimension and factor of the units of texts and of measures; a number of anything else is a count."""
_NUMBER = r"[−-]?\d[\d,]*(?:\.\d+)?"
_UNIT = "|".join(sorted(map(re.escape, _UNITS), key=len, reverse=True))
_AMOUNT = rf"(?:{_NUMBER} ?(?:{_UNIT})(?![\w/])(?: \d+ (?:h|min|s)(?!\w))?|{_NUMBER})"
_TOKEN = re.compile(rf"(?<![\w.])(?:<|>)?({_AMOUNT})")
_BARE = re.compile(rf"({_NUMBER})(?=(?: to | · ){_NUMBER}(?: to {_NUMBER})?(?: (?:{_UNIT})(?![\w/])))")
_BEHIND = re.compile(rf"({_NUMBER} ?({_UNIT})) \(({_NUMBER}) to ({_NUMBER})\)")
_DATE = re.compile(
    r"\b\d{1,2} (?:January|February|March|April|May|June|July|August|September|October|November|December)"
    r"(?: \d{4})?(?:, \d{1,2}:\d{2}(?::\d{2})?)?|\b\d{1,2}:\d{2}\b|\b\d{4}-\d{2}-\d{2}\b"
)


class Number(NamedTuple):
    """A number of a text: its value in the base unit of a dimension, and what rounding may have taken."""

    text: str
    dimension: str
    value: float
    error: float


def numbers_in(text: str) -> Iterator[Number]:
    """Yield the numbers of a text with their units; an interval's first end has the unit of its second."""
    text = _DATE.sub(" ", text)
    text = _BEHIND.sub(r"\1 (\3 \2 to \4 \2)", text)
    text = _BARE.sub(lambda match: f"{match[1]} {_unit_behind(text, match.end())}", text)
    for match in _TOKEN.finditer(text):
        value = error = 0.0
        dimension = "count"
        for part in re.finditer(rf"({_NUMBER}) ?({_UNIT})?(?![\w/])", match[1]):
            digits, unit = part[1].replace(",", "").replace("−", "-"), part[2]
            dimension, factor = _UNITS.get(unit or "", ("count", 1.0))
            value += factor * float(digits)
            places = len(digits.partition(".")[2])
            error = factor * 10.0**-places
        yield Number(match[0].strip(), dimension, abs(value), 0.5000001 * error)


def _unit_behind(text: str, at: int) -> str:
    match = re.compile(rf"(?: to | · ){_NUMBER}(?: to {_NUMBER})? ({_UNIT})(?![\w/])").match(text, at)
    return match[1] if match else ""


def first_screen(folder: Path) -> str:
    """Return the text of the first screen of a finished report."""
    notebook = nbformat.read(folder / "report.ipynb", as_version=4)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    html = next(output["data"]["text/html"] for output in outputs if SUMMARY in output.get("data", {}))
    text = unescape(re.sub(r"<[^>]+>", "", re.sub(r"</(?:p|div|li|span|b)>", "\n", html)))
    return text.replace("\N{NO-BREAK SPACE}", " ")


def missing_numbers(folder: Path, exceptions: dict[str, str]) -> list[str]:
    """Return the lines with numbers that are neither in summary.json, nor a parameter, nor an exception.

    Exceptions are patterns of texts, with the reason of each.
    """
    summary = read_summary(folder)
    text = first_screen(folder)
    texts = [measure.value for measure in summary.measures.values() if isinstance(measure.value, str)]
    for shown in sorted(texts, key=len, reverse=True):
        text = text.replace(shown, " ") if any(map(str.isdigit, shown)) else text
    for pattern in exceptions:
        text = re.sub(pattern, " ", text)
    known = list(_known(summary)) + list(_parameters(folder))
    return [
        f"{number.text}  in: {line.strip()[:160]}"
        for line in text.splitlines()
        for number in numbers_in(line)
        if not any(
            dimension == number.dimension and abs(abs(value) - number.value) <= number.error + 1e-9
            for dimension, value in known
        )
    ]


def _known(summary: Summary) -> Iterator[tuple[str, float]]:
    for measure in summary.measures.values():
        dimension, factor = _UNITS.get(measure.unit, ("count", 1.0))
        for value in (measure.value, measure.low, measure.high):
            if isinstance(value, int | float):
                yield dimension, factor * value


def _parameters(folder: Path) -> Iterator[tuple[str, float]]:
    """Yield the parameters of a run by dimension; a share may be shown as what is left of it."""
    for name, value in json.loads((folder / "manifest.json").read_text())["parameters"].items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            unit = {"minutes": "min"}.get(name.rpartition("_")[2], name.rpartition("_")[2])
            if unit in _UNITS:
                dimension, factor = _UNITS[unit]
                yield dimension, factor * value
            elif 0 <= value <= 1:
                yield from (("share", value), ("share", 1 - value), ("count", value))
            else:
                yield "count", value
