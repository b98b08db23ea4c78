"""Alternative texts: what a figure shows and its main numbers, in words."""

from __future__ import annotations

import functools
import html
import re
from collections.abc import Callable, Iterable
from datetime import datetime
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any, Final, TypeVar

import numpy as np

from mudkit import words
from mudkit.checks import check_arguments

MAX_LETTERS: Final = 900
_MAX_LISTED: Final = 6
"""Bars or names that are listed one by one; of more, number and range are given."""

_Draw = TypeVar("_Draw", bound=Callable[..., Any])


def described(draw: _Draw) -> _Draw:
    """Decorate a function that returns a figure: the figure holds its text in ``layout.meta``."""

    @check_arguments(types=False)
    @functools.wraps(draw)
    def with_text(*arguments: Any, **named: Any) -> Any:
        figure = draw(*arguments, **named)
        set_text(figure)
        return figure

    return with_text  # type: ignore[return-value]


def redescribed(update: _Draw) -> _Draw:
    """Decorate a function that changes its first argument, a figure: all at once, and the text follows."""

    @check_arguments(types=False)
    @functools.wraps(update)
    def with_text(figure: Any, *arguments: Any, **named: Any) -> None:
        with figure.batch_update():
            update(figure, *arguments, **named)
        set_text(figure)

    return with_text  # type: ignore[return-value]


def set_text(figure: Any) -> None:
    """Store the alternative text of a figure in its ``layout.meta``, beside what else is there."""
    figure.layout.meta = {**(figure.layout.meta or {}), "alt": alternative_text(figure)}


def alternative_text(figure: Any) -> str:
    """Return what a plotly figure shows and its main numbers, at most 900 characters."""
    layout = figure.layout
    sentences = [plain(layout.title.text), plain(layout.title.subtitle.text), _axes(layout)]
    sentences += [_trace(trace, layout) for trace in figure.data]
    text = ". ".join(dict.fromkeys(part.rstrip(".") for part in [*sentences, _notes(layout)] if part))
    return text if len(text) < MAX_LETTERS else f"{text[: MAX_LETTERS - 2]}…"


def _axes(layout: Any) -> str:
    """Return the titles of the visible axes."""
    parts = []
    for letter, way in (("x", "across"), ("y", "up")):
        names = [name for name in layout if re.fullmatch(rf"{letter}axis\d*", name)]
        axes = [layout[name] for name in sorted(names, key=lambda name: (len(name), name))]
        titles = dict.fromkeys(plain(axis.title.text) for axis in axes if axis.visible is not False)
        if named := [title for title in titles if title]:
            parts.append(f"{' and '.join(named)} {way}")
    return "Axes: " + "; ".join(parts) if parts else ""


def _trace(trace: Any, layout: Any) -> str:
    """Return the name of a trace and its main numbers; empty: it is no content of its own."""
    name = ", ".join(part for part in (plain(trace.meta), plain(trace.name)) if part)
    if trace.type == "heatmap":
        return _grid(trace)
    x, y = ([] if values is None else list(values) for values in (trace.x, trace.y))
    if trace.type == "bar":
        return _bars(name, *((y, x) if trace.orientation == "h" else (x, y)))
    is_outline = trace.fill == "toself"
    if not any(map(_is_known, x)):  # an entry of the legend
        return name if re.search(r"\d", name) else ""
    if trace.hoverinfo == "skip" and not (is_outline and _gaps(y)):
        return ""
    if is_outline or _gaps(x):  # each part is a thing of its own
        things = sum(_is_known(a) and not _is_known(b) for a, b in pairwise([*(x if _gaps(x) else y), None]))
        return name if re.search(r": [\d,.]+ ", name) else f"{name}: {things:,}"
    if name == "stretches":  # texts for the pointer
        return ""
    has_texts = trace.text is not None and not isinstance(trace.text, str)
    if has_texts and ("text" in (trace.mode or "") or (name and len(x) <= 2 * _MAX_LISTED)):
        listed = [plain(text) for text in trace.text]
        if layout.xaxis.visible is not False and layout.xaxis.ticktext is None:
            listed = [
                f"{text} ({_readable(a)}, {_readable(b)})" for text, a, b in zip(listed, x, y, strict=True)
            ]
        return f"{name}: " * bool(name) + words.listing(filter(None, listed), 2 * _MAX_LISTED)
    parts = [words.count(len(x), "point")] if len(x) > 1 else []
    parts += [_range(trace, "x", x, layout), _range(trace, "y", y, layout), _colours(trace, layout)]
    numbers = ", ".join(part for part in parts if part)
    return f"{name}: {numbers}" if name else numbers


def _bars(name: str, labels: list[Any], values: list[Any]) -> str:
    """Return labels and values of bars; of many only the range, and where the highest is."""
    begin = f"{name}: " if name else ""
    if len(values) <= _MAX_LISTED:
        pairs = zip(labels, values, strict=True)
        return begin + ", ".join(f"{_readable(label)} {_readable(value)}" for label, value in pairs)
    known = [(value, label) for value, label in zip(values, labels, strict=True) if _is_known(value)]
    if not known:
        return f"{begin}{len(values):,} bars without a value"
    (least, _), (most, highest) = min(known, key=itemgetter(0)), max(known, key=itemgetter(0))
    return (
        f"{begin}{len(values):,} bars from {_readable(least)} to {_readable(most)}, "
        f"the highest at {_readable(highest)}"
    )


def _grid(trace: Any) -> str:
    """Return the rows of a grid with their values."""
    rows = next(rows for rows in (trace.hovertext, trace.text, trace.z) if rows is not None)
    if not len(rows) or not len(trace.x):
        return "no rows"
    listed = "; ".join(f"{_readable(name)}: {_runs(row)}" for name, row in zip(trace.y, rows, strict=True))
    return f"{len(rows)} rows, {_readable(trace.x[0])} to {_readable(trace.x[-1])} across; {listed}"


def _runs(row: Iterable[Any]) -> str:
    """Return the values of a row; equal neighbours are counted."""
    runs = [(value, len(list(group))) for value, group in groupby(map(_readable, row))]
    return ", ".join(f"{value} ({number} times)" if number > 1 else value for value, number in runs)


def _range(trace: Any, letter: str, values: list[Any], layout: Any) -> str:
    """Return the value, or the range of values; empty for places of names."""
    name = getattr(trace, f"{letter}axis") or letter
    axis = layout[f"{letter}axis{name[1:]}"]
    known = [value for value in values if _is_known(value)]
    if not known or axis.visible is False or plain(axis.title.text).endswith("°"):
        return ""  # places on a map are no main numbers
    try:
        low, high = min(known), max(known)
    except TypeError:  # texts beside numbers
        return ""
    ticks = dict(zip(axis.tickvals or (), axis.ticktext or (), strict=False))
    if ticks and not (low in ticks and high in ticks):
        if not all(re.fullmatch(r"[≤ ]*[\d,.]+", str(text)) for text in ticks.values()):
            return ""
        ticks = {}
    first, last = (plain(ticks[value]) if value in ticks else _readable(value) for value in (low, high))
    return f"{letter} {first}" + (f" to {last}" if first != last else "")


def _colours(trace: Any, layout: Any) -> str:
    """Return the range of values that colours stand for."""
    colours = trace.marker.color
    if colours is None or isinstance(colours, str) or not len(colours) or isinstance(colours[0], str):
        return ""
    bar = trace.marker.colorbar if trace.marker.coloraxis is None else layout.coloraxis.colorbar
    known = [float(colour) for colour in colours if _is_known(colour)]
    if not known:
        return ""
    low, high = min(known), max(known)
    return f"{plain(bar.title.text) or 'value'} from {_readable(low)} to {_readable(high)}"


def _notes(layout: Any) -> str:
    """Return the texts on the figure."""
    notes = dict.fromkeys(plain(note.text) for note in layout.annotations or ())
    return words.listing([note for note in notes if note], 3 * _MAX_LISTED)


def _readable(value: Any) -> str:
    """Return a number or a time as people read them, and any text without HTML."""
    if isinstance(value, int | float | np.number):
        return words.number(float(value))
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M}"
    if isinstance(value, np.datetime64):
        return np.datetime_as_string(value, "m").replace("T", " ")
    return plain(value)


def _is_known(value: Any) -> bool:
    """Return whether a value is neither None nor NaN."""
    return value is not None and value == value


def _gaps(values: list[Any]) -> int:
    """Return the number of values that are None or NaN."""
    return sum(not _is_known(value) for value in values)


def plain(text: Any) -> str:
    """Return a text without plotly's HTML."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", "" if text is None else str(text))).split())
