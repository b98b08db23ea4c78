"""Tables and summaries of objects as HTML and as text, for notebooks, reports and the terminal.

JupyterLab removes ``<style>`` elements and ids from notebooks that are not trusted, so all style is inline.
Colours are inherited, so a table fits a light and a dark page. All content is escaped.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from html import escape
from itertools import islice
from numbers import Integral, Real
from typing import Any, Final, Literal

from mudkit import words
from mudkit.errors import ParameterError

__all__ = ["MAX_COLUMNS", "MAX_ROWS", "Cell", "Displayed", "Shown", "Table", "View", "frame_table", "show"]

MAX_COLUMNS: Final = 7
"""Columns on screen; the others are named below the table."""

MAX_ROWS: Final = 10
"""Rows on screen of an object's display; of a table that a reader asks for, :data:`MAX_SHOWN`."""

MAX_SHOWN: Final = 30
MAX_CELL: Final = 80
"""Characters of a cell; longer texts are cut."""

Align = Literal["left", "right"]

_TABLE: Final = "border-collapse:collapse;font-variant-numeric:tabular-nums;margin:0.4em 0"
_CAPTION: Final = "caption-side:top;text-align:left;padding:0 0 0.4em;opacity:0.85"
_HEAD: Final = "padding:3px 10px;vertical-align:bottom;border-bottom:1px solid currentColor;font-weight:600"
_CELL: Final = "padding:3px 10px;vertical-align:top;overflow-wrap:anywhere;max-width:28em"
_UNIT: Final = "font-weight:normal;opacity:0.75;white-space:nowrap"
_NOTE: Final = "opacity:0.75;margin:0.2em 0"
_LINE: Final = "margin:0.2em 0"
_FACT: Final = "white-space:nowrap;margin-right:1.4em"


@dataclass(frozen=True)
class Cell:
    """Content of a cell that is more than a text.

    Parameters
    ----------
    text : str
    note : str
        Second line, in small print: an interval, for instance.
    is_best : bool
        Marked by weight and a dot: the best value of its column.
    is_faint : bool
        Shown faintly, for instance because a reader may not see it.
    is_marked : bool
        Marked by a bar at its left, for instance because it is pending.
    """

    text: str
    note: str = ""
    is_best: bool = False
    is_faint: bool = False
    is_marked: bool = False

    def __str__(self) -> str:
        return f"{'● ' if self.is_best else ''}{self.text}{f' ({self.note})' if self.note else ''}"


@dataclass(frozen=True)
class Table:
    """Rows of texts under headings.

    Parameters
    ----------
    columns : sequence of str or of (str, str)
        Headings, with the unit if there is one.
    rows : sequence of sequence
        Texts, numbers or :class:`Cell`.
    caption : str
        What the table shows.
    align : sequence of {"left", "right"}, optional
        By default numbers stand at the right.
    has_row_headings : bool
        Whether the first column names its row.
    notes : sequence of str
        Lines below the table.
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
        caption = f"<caption style='{_CAPTION}'>{escape(self.caption)}</caption>" if self.caption else ""
        head = "".join(
            f"<th scope='col' style='{_HEAD};text-align:{side}'>{_heading(column)}</th>"
            for column, side in zip(self.columns, sides, strict=True)
        )
        body = "".join(f"<tr>{self._row(row, sides)}</tr>" for row in self.rows)
        table = (
            f"<table style='{_TABLE}'>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        )
        return table + "".join(f"<p style='{_NOTE}'>{escape(note)}</p>" for note in self.notes)

    def text(self) -> str:
        """Return the table in columns of text."""
        names = [column if isinstance(column, str) else _with_unit(*column) for column in self.columns]
        rows = [[str(_cell(value)) for value in row] for row in self.rows]
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
        if self.align:
            return self.align
        return [
            "right" if _is_numeric(row[at] for row in self.rows) else "left"
            for at in range(len(self.columns))
        ]

    def _row(self, row: Sequence[Any], sides: Sequence[Align]) -> str:
        cells = []
        for at, (value, side) in enumerate(zip(row, sides, strict=True)):
            cell = _cell(value)
            style = f"{_CELL};text-align:{side}"
            if cell.is_faint:
                style += ";opacity:0.65"
            if cell.is_marked:
                style += ";border-left:3px dashed currentColor"
            text = escape(cell.text)
            if cell.is_best:
                text = f"<b>● {text}</b>"
            if cell.note:
                text += f"<br><span style='{_UNIT};font-size:85%'>{escape(cell.note)}</span>"
            is_heading = self.has_row_headings and at == 0
            tag, scope = ("th", " scope='row'") if is_heading else ("td", "")
            weight = ";font-weight:normal" if is_heading else ""
            cells.append(f"<{tag}{scope} style='{style}{weight}'>{text}</{tag}>")
        return "".join(cells)


@dataclass(frozen=True)
class View:
    """What an object shows of itself.

    Parameters
    ----------
    name : str
        Name of the class, or of the object.
    facts : mapping of str to str
        Short values by their names; empty values are left out.
    tables : sequence of Table
    notes : sequence of str
        Sentences below.
    html : str
        Further content that is HTML already, such as an SVG picture.
    """

    name: str
    facts: Mapping[str, str] = field(default_factory=dict)
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()
    html: str = ""

    def line(self) -> str:
        """Return the view in one line."""
        facts = ", ".join(f"{name} {value}".strip() for name, value in self.facts.items() if value)
        return f"<{self.name}{': ' if facts else ''}{_shortened(facts, 200)}>"

    def as_html(self) -> str:
        """Return the view as HTML."""
        facts = "".join(
            f"<span style='{_FACT}'><span style='opacity:0.75'>{escape(name)}</span> "
            f"{escape(_shortened(value))}</span> "
            for name, value in self.facts.items()
            if value
        )
        tables = "".join(table.html() for table in self.tables)
        notes = "".join(f"<p style='{_NOTE}'>{escape(note)}</p>" for note in self.notes)
        head = f"<p style='{_LINE}'><b>{escape(self.name)}</b></p><p style='{_LINE}'>{facts}</p>"
        return f"<div>{head}{tables}{self.html}{notes}</div>"


class Displayed(ABC):
    """Object that shows itself in a notebook and in a terminal.

    A display reads state and nothing else: it runs no virtual time, and takes no time in proportion to the
    data. It never raises.
    """

    __slots__ = ()

    @abstractmethod
    def _view(self) -> View:
        """Return what is shown."""

    def __repr__(self) -> str:
        return self._safe_view().line()

    def _repr_html_(self) -> str:
        return self._safe_view().as_html()

    def _safe_view(self) -> View:
        try:
            return self._view()
        except Exception as error:  # half built, or closed
            return View(
                type(self).__name__, {"not readable:": f"{type(error).__name__}: {error}".split("\n")[0]}
            )


class Shown:
    """Result of :func:`show`: a table, or another display, in a notebook and in a terminal."""

    def __init__(self, html: str, text: str) -> None:
        self._html, self._text = html, text

    def __repr__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        return self._html


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
        ``value`` is nothing that can be shown, or a column does not exist.
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
        notes.append("In small print: from lowest to highest value.")
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
        and all(isinstance(each, Mapping) for each in value)
    ):
        import pandas as pd

        return pd.DataFrame(list(value))
    return None


def _labelled(frame: Any, name: str) -> str | tuple[str, str]:
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
        return [Cell(_text(value)) for value in values], "right" if _is_numeric(values) else "left"
    scale = words.label(name).scale
    values = [float(value) * scale for value in column.tolist()] if scale != 1 else column.tolist()
    places = 0 if column.dtype.kind in "iu" and scale == 1 else words.decimals(values)
    lows = [*head[f"{name}_low"]] if f"{name}_low" in head.columns else []
    highs = [*head[f"{name}_high"]] if f"{name}_high" in head.columns else []
    finite = [value for value in values if math.isfinite(value)]
    wanted = None if best is None or len(set(finite)) < 2 else (min if best == "low" else max)(finite)
    cells = []
    for at, value in enumerate(values):
        note = ""
        if lows and highs and math.isfinite(lows[at]) and math.isfinite(highs[at]) and lows[at] != highs[at]:
            note = words.interval(lows[at] * scale, highs[at] * scale, places)
        cells.append(Cell(words.number(value, places), note, is_best=value == wanted))
    return cells, "right"


def _text(value: Any) -> str:
    """Return any value as a text of a cell."""
    if (
        value is None
        or (isinstance(value, float) and math.isnan(value))
        or type(value).__name__ in ("NaTType", "NAType")
    ):
        return words.NO_VALUE
    if isinstance(value, bool) or type(value).__name__ in ("bool", "bool_"):
        return "yes" if value else "no"
    if isinstance(value, Integral):
        return f"{int(value):,}"
    if isinstance(value, Real):
        return words.number(float(value))
    if isinstance(value, timedelta):
        return words.duration(value.total_seconds())
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d}" if value.time() == time() else f"{value:%Y-%m-%d %H:%M:%S}"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return f"{words.size(len(value))} of bytes"
    if isinstance(value, Mapping):
        return _shortened(", ".join(f"{name}: {_text(each)}" for name, each in islice(value.items(), 20)))
    if isinstance(value, list | tuple | set | frozenset):
        return _shortened(", ".join(map(_text, islice(value, 20))))
    return _shortened(str(value))


def _shortened(text: str, most: int = MAX_CELL) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _cell(value: Any) -> Cell:
    return value if isinstance(value, Cell) else Cell(_text(value))


def _is_numeric(values: Iterable[Any]) -> bool:
    kinds = {
        isinstance(value, Real) and not isinstance(value, bool)
        for value in values
        if value is not None and not isinstance(value, Cell)
    }
    return kinds == {True}


def _heading(column: str | tuple[str, str]) -> str:
    if isinstance(column, str):
        return escape(column)
    return f"{escape(column[0])}<br><span style='{_UNIT}'>{escape(column[1])}</span>"


def _with_unit(name: str, unit: str) -> str:
    return f"{name}, {unit}" if unit else name
