"""Tables and summaries of objects as HTML and as text, for notebooks, reports and the terminal.

JupyterLab removes ``<style>``, ``<svg>``, ids and some properties from notebooks that are not trusted, so all
style is inline, pictures are images, and long words have places to break. Colours are inherited, so a table
fits a light and a dark page. All content is escaped.
"""

from __future__ import annotations

import math
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import date, datetime, time, timedelta
from html import escape
from itertools import islice
from numbers import Integral, Real
from typing import Any, Final, Literal, TypeVar

from mudkit import words
from mudkit.checks import check_arguments
from mudkit.errors import ParameterError

INK: Final = "#7b7b7b"
"""Grey of text and lines of pictures: 4.2:1 on white and on a dark ground, so that they fit both."""

MAX_COLUMNS: Final = 7
"""Columns on screen; the others are named below the table."""

_C = TypeVar("_C")

MAX_ROWS: Final = 10
"""Rows on screen of an object's display; of a table that a reader asks for, :data:`MAX_SHOWN`."""

MAX_SHOWN: Final = 30
MAX_CELL: Final = 80
"""Characters of a cell; longer texts are cut."""

_MAX_LINE: Final = 300
_MAX_NESTED: Final = 3
_MAX_ITEMS: Final = 20
_MAX_DIGITS: Final = 40

Align = Literal["left", "right"]

_TABLE: Final = "border-collapse:collapse;font-variant-numeric:tabular-nums;line-height:1.4;margin:0.4em 0"
_CAPTION: Final = "caption-side:top;text-align:left;padding:0 0 0.4em;opacity:0.85"
_HEAD: Final = "padding:3px 8px;vertical-align:bottom;border-bottom:1px solid currentColor;font-weight:600"
_CELL: Final = "padding:3px 8px;vertical-align:top"
_WORDS: Final = "text-align:left;max-width:28em"
_NAMES: Final = "text-align:left;white-space:nowrap"
_MAX_NAME: Final = 16
"""Characters of the longest text of a column whose texts stay in one line."""

_MAX_WORD: Final = 30
"""Characters of the longest word that is kept whole however narrow its column is."""

_WORD_PART: Final = 12

_MAX_CAPTION_EM: Final = 22
_NUMBER: Final = "text-align:right;white-space:nowrap"
_UNIT: Final = "font-weight:normal;opacity:0.75;white-space:nowrap"
_NOTE: Final = "opacity:0.75;margin:0.2em 0"
_LINE: Final = "margin:0.2em 0"
_FACTS: Final = "margin:0.2em 0;line-height:1.6"
_TEXT: Final = "margin:0.4em 0;background:none;color:inherit;overflow-x:auto;white-space:pre"
_FACT: Final = "display:inline-block;margin-right:1.4em"


@dataclass(frozen=True)
class Cell:
    """Content of a cell: a text after ``strong`` words, with a ``note`` in small print below.

    ``edge`` colours a bar at the left, ``is_marked`` dashes it (pending); ``is_best`` adds weight and a dot.
    """

    text: str
    note: str = ""
    strong: str = ""
    edge: str = ""
    is_best: bool = False
    is_faint: bool = False
    is_marked: bool = False
    is_code: bool = False

    def __str__(self) -> str:
        best = "● " if self.is_best else ""
        words_ = " ".join(part for part in (self.strong, self.text.replace("\n", "; ")) if part)
        return f"{best}{words_}{f' ({self.note})' if self.note else ''}"

    def html(self) -> str:
        """Return the content of a ``<td>``."""
        text = _breakable(self.text).replace("\n", "<br>")
        if self.is_code:
            text = f"<code style='background:none;color:inherit'>{text}</code>"
        if self.is_best:
            text = f"<b>● {text}</b>"
        if self.strong:
            text = f"<b>{escape(self.strong)}</b>{' ' if text else ''}{text}"
        if self.note:
            text += f"<br><span style='{_UNIT};font-size:85%'>{escape(self.note)}</span>"
        bar = "dashed currentColor" if self.is_marked else f"solid {escape(self.edge)}" if self.edge else ""
        style = f"border-left:3px {bar};padding-left:6px" if bar else ""
        if self.is_faint:
            style += f"{';' if style else ''}opacity:0.65"
        return f"<div style='{style}'>{text}</div>" if style else text


@dataclass(frozen=True)
class Table:
    """Rows of texts, numbers, :class:`Cell`, or lists of cells, under headings that may have a unit.

    Numbers are at the right by default; the first column may name its row.
    """

    columns: Sequence[str | tuple[str, str]]
    rows: Sequence[Sequence[Any]]
    caption: str = ""
    align: Sequence[Align] = ()
    has_row_headings: bool = True
    notes: Sequence[str] = ()

    def html(self) -> str:
        """Return a ``<table>`` with its notes."""
        sides = self._sides()
        wide = min(len(self.caption) / 2, _MAX_CAPTION_EM)  # it would be as narrow as the table
        caption = (
            f"<caption style='{_CAPTION};min-width:{wide:g}em'>{escape(self.caption)}</caption>"
            if self.caption
            else ""
        )
        head = "".join(
            f"<th scope='col' style='{_HEAD};text-align:{side}'>{_heading(column)}</th>"
            for column, side in zip(self.columns, sides, strict=True)
        )
        styles = [self._style(at, side) for at, side in enumerate(sides)]
        body = "".join(f"<tr>{self._row(row, styles)}</tr>" for row in self.rows)
        table = (
            f"<table style='{_TABLE}'>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        )
        return table + "".join(f"<p style='{_NOTE}'>{escape(note)}</p>" for note in self.notes)

    def text(self) -> str:
        """Return the table in columns of text."""
        names = [column if isinstance(column, str) else _with_unit(*column) for column in self.columns]
        rows = [["; ".join(map(str, _cells(value))) for value in row] for row in self.rows]
        widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
        sides = self._sides()
        lines = [
            "  ".join(
                text.rjust(width) if side == "right" else text.ljust(width)
                for text, width, side in zip(line, widths, sides, strict=True)
            ).rstrip()
            for line in [names, *rows]
        ]
        return "\n".join([*([self.caption] if self.caption else ()), *lines, *self.notes])

    def _sides(self) -> Sequence[Align]:
        """Return the alignment of each column; without one set, columns of numbers are at the right."""
        if self.align:
            return self.align
        return [
            "right" if _is_numeric(row[at] for row in self.rows) else "left"
            for at in range(len(self.columns))
        ]

    def _style(self, at: int, side: Align) -> str:
        """Return the style of the cells of a column."""
        if side == "right":
            return f"{_CELL};{_NUMBER}"
        texts = [f"{cell.strong} {cell.text}".strip() for row in self.rows for cell in _cells(row[at])]
        longest = max((len(line) for text in texts for line in text.split("\n")), default=0)
        return f"{_CELL};{_NAMES if longest <= _MAX_NAME else _WORDS}"

    def _row(self, row: Sequence[Any], styles: Sequence[str]) -> str:
        """Return the HTML cells of a row."""
        cells = []
        for at, (value, style) in enumerate(zip(row, styles, strict=True)):
            is_heading = self.has_row_headings and at == 0
            tag, scope = ("th", " scope='row'") if is_heading else ("td", "")
            style += ";font-weight:normal" if is_heading else ""
            content = "<br>".join(cell.html() for cell in _cells(value)).replace("</div><br>", "</div>")
            cells.append(f"<{tag}{scope} style='{style}'>{content}</{tag}>")
        return "".join(cells)


@dataclass(frozen=True)
class View:
    """Display of an object: facts, tables and a picture; what is empty is left out."""

    name: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()
    text: str = ""
    picture: str = ""

    def line(self) -> str:
        """Return the view in one line."""
        facts = ", ".join(" ".join(f"{name} {value}".split()) for name, value in self._facts())
        return f"<{_shortened(self.name)}{': ' if facts else ''}{_shortened(facts, _MAX_LINE)}>"

    def html(self) -> str:
        """Return the view as HTML."""
        facts = "".join(
            f"<span style='{_FACT}'><span style='opacity:0.75'>{_breakable(name)}</span> {_breakable(value)}"
            "</span> "
            for name, value in self._facts()
        )
        tables = "".join(table.html() for table in self.tables if table.rows)
        wrap = "" if "\n" in self.text else "-wrap"
        text = f"<pre style='{_TEXT}{wrap}'>{escape(self.text)}</pre>" if self.text else ""
        notes = "".join(f"<p style='{_NOTE}'>{escape(_shortened(note, 400))}</p>" for note in self.notes)
        head = f"<p style='{_LINE}'><b>{escape(_shortened(self.name))}</b></p>"
        return f"<div>{head}<p style='{_FACTS}'>{facts}</p>{text}{self.picture}{tables}{notes}</div>"

    def _facts(self) -> list[tuple[str, str]]:
        """Return names and texts of the facts, without those that are empty; 0 and False are not."""
        empty: tuple[Any, ...] = (None, "", (), [], {})
        return [
            (name, _text(value))
            for name, value in self.facts.items()
            if not any(value is item or (type(value) is type(item) and value == item) for item in empty)
        ]


class Displayed:
    """Object that shows itself in a notebook and in a terminal.

    A display reads state and nothing else: no virtual time, no work in proportion to the data, no exception.
    """

    __slots__ = ()

    def _view(self) -> View:
        """Return what is shown."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return self._safe_view().line()

    def _repr_html_(self) -> str:
        return self._safe_view().html()

    def _safe_view(self) -> View:
        """Return the view, or, where a part of it raises, one that names the error. Never raise."""
        try:
            view = self._view()
            view.line(), view.html()  # a value's own text may raise, too
        except Exception as error:  # half built, or closed
            return View(type(self).__name__, {"not readable:": f"{type(error).__name__}: {one_line(error)}"})
        return view


def shows_fields(kind: type[_C]) -> type[_C]:
    """Decorate a dataclass or NamedTuple of results: it shows its fields, tables by their first rows."""
    for name in ("__repr__", "_repr_html_", "_safe_view"):
        setattr(kind, name, vars(Displayed)[name])
    setattr(kind, "_view", _view_of_fields)  # noqa: B010 - mypy refuses the assignment
    return kind


def _view_of_fields(result: Any) -> View:
    """Return a view of a result's fields: tables for frames, counts of collections, texts of others."""
    facts: dict[str, Any] = {}
    tables = []
    for name in getattr(result, "_fields", None) or [declared.name for declared in fields(result)]:
        value, label = getattr(result, name), name.replace("_", " ")
        kind = type(value).__module__.partition(".")[0]
        if kind in ("pandas", "pyarrow"):
            facts[label] = words.count(len(value), "row", "rows")
            tables.append(
                frame_table(_frame(value.head(MAX_ROWS) if kind == "pandas" else value[:MAX_ROWS]), label)
            )
        elif isinstance(value, Sequence | Mapping) and not isinstance(value, str):
            facts[label] = f"{len(value):,}"
        elif value is not None:
            facts[label] = one_line(value, 60)
    return View(type(result).__name__, facts, tables[:2])


def first_rows(
    columns: Sequence[str | tuple[str, str]],
    rows: Iterable[Sequence[Any]],
    size: int,
    caption: str = "",
) -> Table:
    """Return the table of the first of ``size`` rows, of which no more are taken."""
    shown = list(islice(rows, MAX_ROWS))
    notes = [f"The first {len(shown)} of {size:,}."] if size > len(shown) else []
    return Table(columns, shown, caption, notes=notes)


@dataclass(frozen=True)
class Event:
    """Box on a lane over columns from 0; open without an end, if it was never answered."""

    lane: str
    text: str
    start: int
    end: int
    is_open: bool = False


def lanes(events: Sequence[Event], arrows: Sequence[tuple[int, int]], described: str) -> str:
    """Draw events on lanes as an image with alternative text; arrows go between indices of events."""
    names = list(dict.fromkeys(event.lane for event in events))
    left = 20 + 8 * min(max((len(name) for name in names), default=0), 20)
    step = 16 + 8 * min(max((len(event.text) for event in events), default=1), 18)
    width = left + step * (1 + max((event.end for event in events), default=0)) + 12
    rows, places = _rows(events, names)
    drawn = []
    for row, name in enumerate(rows):
        y = 34 + 56 * row
        if name != (rows[row - 1] if row else None):
            drawn.append(_words(4, y + 4, _shortened(name, 20), "start"))
        # Boxes are clear, so the lane ends at them.
        boxes = sorted(
            (event.start, event.end) for event, at in zip(events, places, strict=True) if at == row
        )
        edges = [
            left,
            *(x for a, b in boxes for x in (left + step * a + 6, left + step * (b + 1) - 6)),
            width - 4,
        ]
        drawn += [
            f"<line x1='{x1}' y1='{y}' x2='{x2}' y2='{y}' stroke-opacity='0.3'/>"
            for x1, x2 in zip(edges[::2], edges[1::2], strict=True)
            if x1 < x2
        ]
    middles = []
    for event, row in zip(events, places, strict=True):
        y, x = 34 + 56 * row, left + step * event.start + 6
        wide = step * (event.end - event.start + 1) - 12
        dashes = " stroke-dasharray='5 3'" if event.is_open else ""
        drawn.append(
            f"<rect x='{x}' y='{y - 13}' width='{wide}' height='26' rx='4' fill-opacity='0'{dashes}/>"
        )
        drawn.append(_words(x + wide / 2, y + 4, _shortened(event.text, 18), "middle"))
        middles.append((x + wide / 2, y))
    for first, then in arrows:
        drawn.append(_arrow(middles[first], middles[then]))
    return _image(width, 12 + 56 * len(rows), drawn, described)


def _rows(events: Sequence[Event], names: Sequence[str]) -> tuple[list[str], list[int]]:
    """Return the lane of each row, and the row of each event; overlapping events get a row each."""
    rows: list[str] = []
    places = [0] * len(events)
    for name in names:
        first = len(rows)
        ends: list[int] = []
        mine = [at for at, event in enumerate(events) if event.lane == name]
        for at in sorted(mine, key=lambda at: events[at].start):
            free = next((row for row, end in enumerate(ends) if end < events[at].start), len(ends))
            ends[free : free + 1] = [events[at].end]
            places[at] = first + free
        rows += [name] * len(ends)
    return rows, places


@dataclass(frozen=True)
class Branch:
    """Node of a decision tree: a question, or a leaf's decision with a note such as its number of cases."""

    text: str
    note: str = ""
    yes: Branch | None = None
    no: Branch | None = None


def tree(root: Branch, described: str) -> str:
    """Draw a small decision tree as an image with alternative text, a line per node."""
    drawn: list[str] = []
    ends = [0.0, 0.0]
    waiting: list[tuple[Branch, str, int, float]] = [(root, "", 0, 0.0)]
    while waiting:
        branch, answer, level, above = waiting.pop()
        x, y = 8 + 78 * level, ends[1] + 24
        if answer:
            drawn.append(f"<path d='M{x - 66} {above + 7:g} V{y - 4:g} H{x - 34}' stroke-opacity='0.5'/>")
            drawn.append(_words(x - 30, y, answer, "start", size=12))
        is_leaf = branch.yes is None and branch.no is None
        text, note = _shortened(branch.text, 40), _shortened(branch.note, 40)
        drawn.append(_words(x, y, text, "start", " font-weight='bold'" if is_leaf else ""))
        wide = x + 8.2 * len(text) + 10
        if note:
            drawn.append(_words(wide, y, note, "start", size=12))
        ends = [max(ends[0], wide + 7.5 * len(note)), y]
        for child, its in ((branch.no, "no"), (branch.yes, "yes")):
            if child is not None:
                waiting.append((child, its, level + 1, y))
    return _image(ends[0] + 10, ends[1] + 12, drawn, described)


def _words(x: float, y: float, text: str, anchor: str, more: str = "", *, size: int = 13) -> str:
    """Return SVG text at a place; `anchor` is its alignment and `more` are further attributes."""
    return (
        f"<text x='{x:g}' y='{y:g}' text-anchor='{anchor}' font-size='{size}' stroke='none' "
        f"fill='currentColor'{more}>{escape(text)}</text>"
    )


def _arrow(first: tuple[float, float], then: tuple[float, float]) -> str:
    """Draw a bent arrow; its head has no marker, since markers have ids."""
    (x1, y1), (x2, y2) = first, then
    down = 1 if y2 > y1 else -1
    y1, y2 = y1 + 13 * down, y2 - 13 * down if y1 != y2 else y2 - 13
    if first[1] == then[1]:
        y1 = first[1] - 13
        path = f"M{x1:g} {y1:g} Q{(x1 + x2) / 2:g} {y1 - 22:g} {x2:g} {y2:g}"
        angle = math.atan2(22, (x2 - x1) / 2)
    else:
        path = f"M{x1:g} {y1:g} L{x2:g} {y2:g}"
        angle = math.atan2(y2 - y1, x2 - x1)
    head = " ".join(
        f"L{x2 - 9 * math.cos(angle + turn):.4g} {y2 - 9 * math.sin(angle + turn):.4g} M{x2:g} {y2:g}"
        for turn in (0.45, -0.45)
    )
    return f"<path d='{path} {head}' fill='none' stroke-width='1.6'/>"


def _image(width: float, height: float, drawn: Sequence[str], described: str) -> str:
    """Return an image; as an element of its own it would lose all but its words where it is not trusted."""
    svg = (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width:g} {height:g}' width='{width:g}' "
        f"height='{height:g}' color='{INK}' stroke='currentColor' fill='none' "
        f"font-family='system-ui, sans-serif'>{''.join(drawn)}</svg>"
    )
    data = b64encode(svg.encode()).decode()
    return (
        f"<img alt='{escape(_shortened(described, 600))}' width='{width:g}' height='{height:g}' "
        f"style='max-width:100%;height:auto;display:block' src='data:image/svg+xml;base64,{data}'>"
    )


class Shown:
    """Result of :func:`show`: a table, or another display, in a notebook and in a terminal."""

    def __init__(self, html: str, text: str) -> None:
        self._html, self._text = html, text

    def __repr__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        return self._html


@check_arguments(types=False)
def show(
    value: Any,
    caption: str = "",
    *,
    rows: int = MAX_SHOWN,
    columns: int | Sequence[str] = MAX_COLUMNS,
    labels: Mapping[str, str] | None = None,
    best: Mapping[str, Literal["low", "high"]] | None = None,
) -> Shown:
    """Return a table, or any object that displays itself, in the one form of all tables.

    A column ``x`` with columns ``x_low`` and ``x_high`` is shown as a value with its interval. Headings and
    units follow from the names of the columns (:mod:`mudkit.words`).

    Parameters
    ----------
    value : pandas.DataFrame, pandas.Series, pyarrow.Table, mapping, sequence of mappings, or display
        A mapping is shown as a row for each of its entries; a display is an object with ``_repr_html_``.
    caption : str
        What the table shows.
    rows : int
        Largest number of rows on screen; the note below the table says how many there are.
    columns : int or sequence of str
        Largest number of columns, or the names of those to show, in order.
    labels : mapping of str to str, optional
        Headings by column, in place of those that follow from the names.
    best : mapping of str to {"low", "high"}, optional
        Columns whose lowest or highest value is marked.

    Raises
    ------
    ParameterError
        ``value`` cannot be shown, or a column does not exist.
    """
    if isinstance(value, Table):
        table = value
    elif (frame := _frame(value)) is not None:
        table = frame_table(frame, caption, rows=rows, columns=columns, labels=labels, best=best)
    elif hasattr(value, "_repr_html_"):
        text = f"{caption}\n{value!r}" if caption else repr(value)
        head = f"<p style='{_CAPTION}'>{escape(caption)}</p>" if caption else ""
        return Shown(head + value._repr_html_(), text)
    else:
        raise ParameterError(
            "Expected a table or an object that displays itself.",
            where="show(value)",
            found=type(value).__name__,
            expected="a DataFrame, an Arrow table, a mapping, a list of mappings, or an object of mudkit",
            remedy="the notebook shows other values by itself: write the name alone",
        )
    return Shown(table.html(), table.text())


def frame_table(
    frame: Any,
    caption: str = "",
    *,
    rows: int = MAX_ROWS,
    columns: int | Sequence[str] = MAX_COLUMNS,
    labels: Mapping[str, str] | None = None,
    best: Mapping[str, Literal["low", "high"]] | None = None,
) -> Table:
    """Return the table of a DataFrame; the parameters are those of :func:`show`."""
    names: list[str] = []
    for name in map(str, frame.columns):
        names.append(name if name not in names else f"{name} ({names.count(name) + 1})")
    frame = frame.set_axis(names, axis=1)
    notes = []
    if not isinstance(columns, int):
        if unknown := [name for name in columns if name not in names]:
            raise ParameterError(
                "There is no such column.",
                where="columns",
                found=repr(unknown[0]),
                expected=words.listing(names, 20),
            )
        chosen = list(columns)
    else:
        bounds = {f"{name}_{end}" for name in names for end in ("low", "high")}
        whole = [name for name in names if name not in bounds]
        chosen = whole[:columns]
        if len(whole) > columns:
            notes.append(f"Not shown: {words.listing(whole[columns:], 8)}.")
    head = frame.head(rows)
    if len(frame) > rows:
        notes.insert(0, f"The first {rows:,} of {len(frame):,} rows.")
    shown = [_column(head, name, (best or {}).get(name)) for name in chosen]
    headings = [(labels or {}).get(name) or _labelled(frame, name) for name in chosen]
    if any(cell.note for cells, _ in shown for cell in cells):
        notes.append("In small print: the interval, or the range of fewer than five repetitions.")
    return Table(
        headings,
        list(zip(*(cells for cells, _ in shown), strict=True)),
        caption,
        [side for _, side in shown],
        has_row_headings=bool(shown) and shown[0][1] == "left",
        notes=notes if len(frame) else [*notes, "No rows."],
    )


def _frame(value: Any) -> Any:
    """Return a DataFrame of tabular data; None: the value is none."""
    kind = type(value).__module__.partition(".")[0]
    if kind == "pandas" and hasattr(value, "columns"):
        has_names = any(name is not None for name in value.index.names)
        return value.reset_index() if has_names else value
    if kind == "pandas" and hasattr(value, "to_frame"):
        return value.rename(value.name or "value").rename_axis(value.index.name or "").reset_index()
    if kind == "pyarrow" and hasattr(value, "to_pandas"):
        return value.to_pandas()
    if isinstance(value, Mapping):
        import pandas as pd

        return pd.DataFrame({"": list(map(str, value)), "value": pd.Series([*value.values()], dtype=object)})
    if (
        isinstance(value, Sequence)
        and not isinstance(value, str | bytes)
        and all(isinstance(row, Mapping) for row in value)
    ):
        import pandas as pd

        return pd.DataFrame(list(value))
    return None


def _labelled(frame: Any, name: str) -> str | tuple[str, str]:
    """Return a column's heading in words, with its unit for numbers that have one."""
    label = words.label(name)
    is_number = frame[name].dtype.kind in "iuf"
    return (
        (label.words, label.unit)
        if label.unit and is_number
        else (label.words if is_number else name.replace("_", " "))
    )


def _column(head: Any, name: str, best: str | None) -> tuple[list[Cell], Align]:
    """Return the cells of a column, and the side that they are aligned to."""
    column = head[name]
    if column.dtype.kind not in "iuf":
        values = column.tolist()
        if any(isinstance(value, datetime) and _has_time(value) for value in values):
            return [Cell(_moment(value)) for value in values], "left"
        cells = [value if isinstance(value, Cell) else Cell(_text(value)) for value in values]
        return cells, "right" if _is_numeric(values) else "left"
    scale = words.label(name).scale
    values = [float(value) * scale for value in column.tolist()] if scale != 1 else column.tolist()
    places = 0 if column.dtype.kind in "iu" and scale == 1 else words.decimals(values)
    lows = [*head[f"{name}_low"]] if f"{name}_low" in head.columns else []
    highs = [*head[f"{name}_high"]] if f"{name}_high" in head.columns else []
    finite = [value for value in values if math.isfinite(value)]
    best_text = None
    if best is not None and len({words.number(value, places) for value in finite}) > 1:
        best_text = words.number((min if best == "low" else max)(finite), places)
    cells = []
    for at, value in enumerate(values):
        note = ""
        if lows and highs and math.isfinite(lows[at]) and math.isfinite(highs[at]) and lows[at] != highs[at]:
            ends = [words.number(end * scale, places) for end in (lows[at], highs[at])]
            note = f"{ends[0]} to {ends[1]}" if ends[0] != ends[1] else ""
        text = words.number(value, places)
        cells.append(Cell(text, note, is_best=text == best_text))
    return cells, "right"


def _has_time(value: datetime) -> bool:
    """Return whether a timestamp has a time of day; midnight and NaT have none."""
    return value == value and value.time() != time()  # NaT is not equal to itself


def _moment(value: Any) -> str:
    """Return a date with its time, at midnight too: others of its column have one."""
    is_moment = isinstance(value, datetime) and value == value
    return f"{value:%Y-%m-%d %H:%M:%S}" if is_moment else _text(value)


def _text(value: Any, depth: int = 0) -> str:
    """Return any value as a text of a cell; nested values up to a depth, and the first of many."""
    if (
        value is None
        or (isinstance(value, float) and math.isnan(value))
        or type(value).__name__ in ("NaTType", "NAType")
    ):
        return words.NO_VALUE
    if isinstance(value, bool) or type(value).__name__ in ("bool", "bool_"):
        return "yes" if value else "no"
    if isinstance(value, Integral):
        number = int(value)
        digits = number.bit_length() * 0.30103
        return f"{number:,}" if digits < _MAX_DIGITS else f"a number of {digits:,.0f} digits"
    if isinstance(value, Real):
        return words.number(float(value))
    if isinstance(value, timedelta):
        return words.duration(value.total_seconds())
    if isinstance(value, datetime):
        return _moment(value) if _has_time(value) else f"{value:%Y-%m-%d}"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return f"{words.size(len(value))} of bytes"
    if isinstance(value, Mapping | list | tuple | set | frozenset):
        if depth == _MAX_NESTED:
            return "…"
        if isinstance(value, Mapping):
            parts = [f"{name}: {_text(item, depth + 1)}" for name, item in islice(value.items(), _MAX_ITEMS)]
        else:
            parts = [_text(item, depth + 1) for item in islice(value, _MAX_ITEMS)]
        return _shortened(", ".join([*parts, *(["…"] if len(value) > _MAX_ITEMS else [])]))
    return _shortened(str(value))


def one_line(value: Any, most: int = MAX_CELL) -> str:
    """Return a text, a number or a nested value in one line of limited length."""
    return " ".join((_shortened(value, most) if isinstance(value, str) else _text(value)).split())


def _shortened(text: str, most: int = MAX_CELL) -> str:
    """Cut a text; replace surrogates, which cannot be encoded."""
    text = text if len(text) <= most else f"{text[: most - 1]}…"
    return text.encode(errors="replace").decode()


def _cells(value: Any) -> list[Cell]:
    """Return the cells that stand in one place."""
    if isinstance(value, list) and value and all(isinstance(cell, Cell) for cell in value):
        return value
    return [value if isinstance(value, Cell) else Cell(_text(value))]


def _is_numeric(values: Iterable[Any]) -> bool:
    """Return whether the values are numbers and nothing else, apart from None, lists and styled cells."""
    kinds = {
        isinstance(value, Real) and not isinstance(value, bool)
        for value in values
        if value is not None and not isinstance(value, Cell | list)
    }
    return kinds == {True}


def _breakable(text: str) -> str:
    """Escape a text, and mark where its long words may be broken."""
    parts = (
        "<wbr>".join(escape(word[at : at + _WORD_PART]) for at in range(0, len(word), _WORD_PART))
        if len(word) > _MAX_WORD
        else escape(word)
        for word in re.split(r"(\s+)", text)
    )
    return "".join(parts)


def _heading(column: str | tuple[str, str]) -> str:
    """Return the HTML of a column's heading, with the unit below the name."""
    if isinstance(column, str) or not column[1]:
        return escape(column if isinstance(column, str) else column[0])
    return f"{escape(column[0])}<br><span style='{_UNIT}'>{escape(column[1])}</span>"


def _with_unit(name: str, unit: str) -> str:
    """Return a name and its unit on one line."""
    return f"{name}, {unit}" if unit else name
