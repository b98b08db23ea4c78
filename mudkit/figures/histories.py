"""Histories with their verdicts: operations on lanes, and views as branches."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from mudkit import words
from mudkit.checks import of_kind
from mudkit.consistency import Operation, Status, Verdict, seen_writes
from mudkit.display import INK
from mudkit.figures.alternative import described
from mudkit.figures.labels import MIN_WIDTH_PX, Sheet, text_px
from mudkit.figures.style import (
    BLUE,
    GREY,
    LEGEND_BELOW,
    ORANGE,
    SKY,
    TEXT_PX,
    escaped,
    heading,
    lanes,
    styled,
    text_colour,
)
from mudkit.figures.times import time_unit
from mudkit.units import US_PER_S

MAX_OPERATIONS: Final = 80
"""Maximum number of operations of a figure without a contradiction: the first ones."""

MAX_AROUND: Final = 20
"""Maximum number of operations of a figure with one: those of the contradiction, then those around it."""

_LANE_PX, _VIEW_PX, _GAP_PX, _LINE_PX, _BELOW_PX = 58, 58, 80, 16, 100
_END: Final = 1.04
_PLOT_PX: Final = (MIN_WIDTH_PX - 230) / 1.11  # the part of the axis between first and last operation
_IDLE: Final = 8.0  # an idle stretch is drawn at most so many times as long as the median one
_LETTER_PX: Final = 8.45
_NAME_ROWS: Final = 0.3  # distance between two rows of names, in lanes
Id = tuple[str, int, str]


@described
def history(verdict: Verdict, *, title: str = "") -> go.Figure:
    """Draw a history and its verdict.

    Above, each operation is a bar from its invocation to its answer: writes are filled, reads are outlines,
    and an operation without an answer has no end. A dotted arrow leads from a write to each operation that
    saw it. The operations of a contradiction are orange and dashed, with ✗. Names that would overlap are
    shown by the pointer. Below, if views were found, each client's view is a line of operations from left to
    right; views that fork are lines that branch.

    Parameters
    ----------
    verdict : mudkit.consistency.Verdict
        What :func:`mudkit.consistency.check` returns. At most 80 operations are drawn; with a
        contradiction at most 20 and the operations of it: those nearest to it.
    title : str
        Title of the figure; by default model and status.

    Raises
    ------
    ParameterError
        The argument is not a verdict.
    """
    of_kind("verdict", verdict, Verdict, expected="the result of check(history, model)")
    drawn = _chosen(verdict)
    places, lanes = _places(drawn)
    rows = _branch_rows(verdict)
    heights = [(max(places.values(), default=0) + 1) * _LANE_PX, len(rows) * _VIEW_PX][: 2 if rows else 1]
    reason = _wrapped(str(verdict.explanation))
    top_px = 60 + _LINE_PX * (1 + reason.count("<br>"))
    height = sum(heights) + top_px + _BELOW_PX + (_GAP_PX if rows else 0)
    figure = make_subplots(
        rows=len(heights), cols=1, row_heights=heights, vertical_spacing=_GAP_PX / height if rows else 0
    )
    _add_bars(figure, drawn, places, lanes, verdict)
    if rows:
        _add_views(figure, rows, verdict)
    top = heading(title or f"{verdict.model}: {verdict.status}", reason, y=1 - 16 / height, yanchor="top")
    margin, legend = (90, 30, top_px, _BELOW_PX), LEGEND_BELOW | {"y": 0.01}
    return styled(figure, height, margin, top, legend=legend, hovermode="closest")


def _chosen(verdict: Verdict) -> list[Operation]:
    """Return the operations of the verdict's record, of too many those of and around the contradiction."""
    whole = [op for op in verdict.history if verdict.key is None or op.key == verdict.key]
    first = {op.id for op in verdict.explanation.operations}
    most = MAX_AROUND if first else MAX_OPERATIONS
    if len(whole) <= most:
        return whole
    bad_us = [op.invoked_us for op in whole if op.id in first]
    seen = seen_writes(verdict.history)
    causes = {write.id for op in whole if op.id in first and (write := seen.get(op.id)) is not None}

    def distance(op: Operation) -> tuple[bool, bool, int]:
        near_us = min((abs(op.invoked_us - t_us) for t_us in bad_us), default=op.invoked_us)
        return op.id not in first, op.id not in causes, near_us

    kept = {op.id for op in sorted(whole, key=distance)[: max(most, len(first))]}
    return [op for op in whole if op.id in kept]


class _Scale:
    """Virtual time on the axis: idle stretches are shortened to the longest of the others."""

    def __init__(self, drawn: Sequence[Operation]) -> None:
        ends = [op.invoked_us if op.answered_us is None else op.answered_us for op in drawn]
        self.times_us = np.unique([*(op.invoked_us for op in drawn), *ends, 0][: 2 * len(drawn) or 1])
        gaps = np.diff(self.times_us).astype(float)
        self.is_cut = False
        if len(gaps):
            longest = _IDLE * float(np.median(gaps))
            self.is_cut = len(drawn) > 2 and float(gaps.max()) > longest and gaps.max() > 0.3 * gaps.sum()
            if self.is_cut:
                gaps = np.minimum(gaps, longest)
        self.places = np.concatenate([[0.0], np.cumsum(gaps)])
        self.start_us, self.span = int(self.times_us[0]), float(self.places[-1]) or 1.0

    def share(self, t_us: float) -> float:
        """Return the place of a time, from 0 to 1."""
        return float(np.interp(t_us, self.times_us, self.places)) / self.span

    def ticks(self, us: float) -> dict[str, Any]:
        """Return ticks at operations, at least a tenth of the axis apart; none where nothing is cut."""
        if not self.is_cut:
            return {}
        shown: list[int] = []
        for number, place in enumerate(self.places):
            if not shown or place - self.places[shown[-1]] >= 0.1 * self.span:
                shown.append(number)
        since = (self.times_us[shown] - self.start_us) / us
        return {
            "tickvals": self.places[shown] / self.span,
            "ticktext": [words.number(float(t)) for t in since],
        }


def _places(drawn: Sequence[Operation]) -> tuple[dict[Id, int], dict[str, int]]:
    """Return the line of each operation (own lines for concurrent ones), and each client's first."""
    busy: dict[str, list[float]] = {}
    row: dict[Id, int] = {}
    for op in drawn:
        lines = busy.setdefault(op.client, [])
        end = float("inf") if op.answered_us is None else float(op.answered_us)
        free = next((n for n, until in enumerate(lines) if until < op.invoked_us), len(lines))
        lines[free : free + 1] = [end]
        row[op.id] = free
    first: dict[str, int] = {}
    for client in busy:
        first[client] = sum(len(busy[other]) for other in first)
    return {op.id: first[op.client] + row[op.id] for op in drawn}, first


def _add_bars(
    figure: go.Figure,
    drawn: Sequence[Operation],
    places: Mapping[Id, int],
    lanes: Mapping[str, int],
    verdict: Verdict,
) -> None:
    """Add the bars of operations to a figure, their names and their arrows."""
    bad = {op.id for op in verdict.explanation.operations}
    scale = _Scale(drawn)
    span_us = float(scale.times_us[-1] - scale.times_us[0]) or 1.0
    unit, unit_s = time_unit(span_us / US_PER_S)
    us = unit_s * US_PER_S
    # Where nothing is cut, the axis has the unit itself.
    length = 1.0 if scale.is_cut else span_us / us

    def at(op: Operation, is_end: bool) -> tuple[float, float]:
        begin = scale.share(op.invoked_us)
        if not is_end:
            return length * begin, float(places[op.id])
        end = _END if op.answered_us is None else scale.share(op.answered_us)
        return length * max(end, begin + 0.012), float(places[op.id])

    for name, colour, is_filled, chosen in (
        ("write", BLUE, True, [op for op in drawn if op.is_write and op.id not in bad]),
        ("read", SKY, False, [op for op in drawn if not op.is_write and op.id not in bad]),
        ("in the contradiction ✗", ORANGE, False, [op for op in drawn if op.id in bad]),
    ):
        x, y, labels = [], [], []
        for op in chosen:
            (a, lane), (b, _) = at(op, False), at(op, True)
            top, low = lane - 0.14, lane + 0.14
            if op.answered_us is None:  # open at its end
                x += [b, a, a, b, None]
                y += [top, top, low, low, None]
                labels += [_label(op)] * 5
            else:
                x += [a, b, b, a, a, None]
                y += [top, top, low, low, top, None]
                labels += [_label(op)] * 6
        if chosen:
            figure.add_trace(
                go.Scatter(
                    x=x, y=y, mode="lines", name=name, text=labels, hoverinfo="text",
                    fill="toself" if is_filled else None,
                    line={"color": colour, "width": 3 if name.endswith("✗") else 2,
                          "dash": "dash" if name.endswith("✗") else "solid"},
                ), 1, 1,
            )  # fmt: skip
    names = [
        {
            "x": at(op, False)[0],
            "y": places[op.id] - 0.17 - _NAME_ROWS * row,
            "xref": "x",
            "yref": "y",
            "xanchor": "left",
            "yanchor": "bottom",
            "borderpad": 0,
            "showarrow": False,
            "text": escaped(_named(op, bad, verdict)),
            "font": {"size": TEXT_PX, "color": text_colour(ORANGE) if op.id in bad else INK},
        }
        for op, row in _name_rows(drawn, bad, places, lambda op: at(op, False)[0] / length, verdict)
    ]
    figure.update_layout(annotations=names)  # all at once: plotly takes milliseconds for each on its own
    _add_arrows(figure, drawn, bad, seen_writes(verdict.history), at)
    figure.update_yaxes(
        tickvals=list(lanes.values()),
        ticktext=[f"<b>{escaped(name)}</b>" for name in lanes],
        range=[max(places.values(), default=0) + 0.5, -0.6],
        ticks="",
        showline=False,
        row=1,
        col=1,
    )
    since = "; idle stretches are shortened" if scale.is_cut else " after the first operation"
    figure.update_xaxes(
        title_text=f"virtual time, {unit}{since}",
        range=[-0.02 * length, 1.08 * length],
        row=1,
        col=1,
        **scale.ticks(us),
    )


def _name_rows(
    drawn: Sequence[Operation],
    bad: Collection[Id],
    places: Mapping[Id, int],
    share: Callable[[Operation], float],
    verdict: Verdict,
) -> list[tuple[Operation, int]]:
    """Return the operations whose names do not overlap, and 0 or 1: the row of the name above its bar.

    Those of the contradiction come first, and alone may have the upper row; then come writes.
    """
    sheet = Sheet(-np.inf, -np.inf, np.inf, np.inf)
    chosen = []
    for op in sorted(drawn, key=lambda op: (op.id not in bad, not op.is_write)):
        begin = share(op) * _PLOT_PX
        end = begin + text_px(_named(op, bad, verdict))[0] + 4
        tops = [places[op.id] - _NAME_ROWS * row for row in range(1 + (op.id in bad))]
        row = sheet.put([(begin, top, end, top + 0.9 * _NAME_ROWS) for top in tops])
        if row is not None:
            chosen.append((op, row))
    return chosen


def _named(op: Operation, bad: Collection[Id], verdict: Verdict) -> str:
    """Return the name of an operation on the figure, with a mark if it is in the contradiction."""
    return ("✗ " if op.id in bad else "") + _short(op, verdict)


def _add_arrows(
    figure: go.Figure, drawn: Sequence[Operation], bad: Collection[Id], seen: Mapping[Id, Operation], at: Any
) -> None:
    """Add an arrow from each write to the operations that saw it; of a contradiction, to those in it.

    It ends at the answer of an operation that was invoked before the write: the answer knew the write.
    """
    shown = {op.id for op in drawn}
    x: list[float | None] = []
    y: list[float | None] = []
    for op in drawn:
        write = seen.get(op.id)
        if write is None or write.id not in shown or (bad and op.id not in bad):
            continue
        (ax, ay), (bx, by) = at(write, False), at(op, op.invoked_us < write.invoked_us)
        x += [ax, bx, None]
        y += [ay, by, None]
    if x:
        figure.add_trace(
            go.Scatter(
                x=x, y=y, mode="lines+markers", name="was seen by", hoverinfo="skip",
                line={"color": INK, "width": 1, "dash": "dot"},
                marker={"symbol": "arrow", "size": [0, 9, 0] * (len(x) // 3), "angleref": "previous",
                        "color": INK},
            ), 1, 1,
        )  # fmt: skip


def _short(op: Operation, verdict: Verdict) -> str:
    """Return the text of an operation, without the record's key if there is only one."""
    return op.label if verdict.key is None else op.label.replace(f"({op.key})", "", 1)


def _label(op: Operation) -> str:
    """Return the text of an operation for the pointer."""
    until = "never answered" if op.answered_us is None else f"answered {op.answered_us:,} µs"
    when = f"invoked {op.invoked_us:,} µs, {until}"
    return f"<b>{escaped(str(op))}</b><br>{when}<br>{op.outcome.value}"


def branches(
    views: Mapping[str, Sequence[Operation]],
) -> list[tuple[list[str], int, int, list[Operation]]]:
    """Lay views out as a tree: lines with the same beginning share it.

    Returns for each line the clients whose views end on it (with the place, if before its end), the number of
    the line that it leaves (its own: none), the number of operations after which it leaves, and its own
    operations from there on.
    """
    lines: list[tuple[list[str], int, int, list[Operation]]] = []
    for client, view in sorted(views.items(), key=lambda item: -len(item[1])):
        best, shared = len(lines), 0
        for number, (_, _, begin, _) in enumerate(lines):
            whole = _whole(lines, number)
            length = 0
            while length < min(len(whole), len(view)) and whole[length].id == view[length].id:
                length += 1
            if length > max(shared, begin):
                best, shared = number, length
        if best < len(lines) and shared == len(view):
            ends = len(_whole(lines, best))
            lines[best][0].append(client if shared == ends else f"{client} (to {shared - 1})")
        else:
            lines.append(([client], best, shared, list(view[shared:])))
    return lines


def _whole(lines: Sequence[tuple[list[str], int, int, list[Operation]]], number: int) -> list[Operation]:
    """Return all operations of a line of views, with those of the line that it leaves."""
    _, parent, begin, own = lines[number]
    return own if parent == number else _whole(lines, parent)[:begin] + own


def _branch_rows(verdict: Verdict) -> list[tuple[list[str], int, int, list[Operation]]]:
    """Return the lines of a verdict's views; none without views, or if they are too many to draw."""
    if verdict.status is not Status.OK or verdict.key is None or verdict.key not in verdict.views:
        return []
    views = branches(verdict.views[verdict.key])
    return views if sum(len(own) for *_, own in views) <= MAX_OPERATIONS else []


def _add_views(
    figure: go.Figure, rows: Sequence[tuple[list[str], int, int, list[Operation]]], verdict: Verdict
) -> None:
    """Add the lines of views to the lower panel of a figure."""
    longest = max(begin + len(own) for _, _, begin, own in rows)
    texts = {op.id: (op.client, _short(op, verdict)) for *_, own in rows for op in own}
    widest_px = _LETTER_PX * max(len(line) for lines in texts.values() for line in lines)
    has_room = longest * widest_px <= MIN_WIDTH_PX - 180
    for number, (clients, parent, begin, own) in enumerate(rows):
        x: list[float] = [begin + place for place in range(len(own))]
        y = [float(number)] * len(own)
        if parent != number and begin:
            x, y = [begin - 1, *x], [float(parent), *y]
        figure.add_trace(
            go.Scatter(
                x=x, y=y, mode="lines", line={"color": GREY, "width": 2, "dash": "solid"}, hoverinfo="skip",
                showlegend=False, name=f"view of {', '.join(clients)}",
            ), 2, 1,
        )  # fmt: skip
        for is_write in (True, False):
            chosen = [(begin + place, op) for place, op in enumerate(own) if op.is_write == is_write]
            if chosen:
                figure.add_trace(
                    go.Scatter(
                        x=[place for place, _ in chosen], y=[number] * len(chosen),
                        mode="markers+text" if has_room else "markers",
                        text=["<br>".join(map(escaped, texts[op.id])) for _, op in chosen],
                        textposition="top center", textfont={"size": TEXT_PX},
                        hoverinfo="text", showlegend=False,
                        name="writes in views" if is_write else "reads in views",
                        marker={"symbol": "square" if is_write else "circle-open", "size": 11,
                                "color": BLUE if is_write else SKY, "line": {"width": 2}},
                    ), 2, 1,
                )  # fmt: skip
    names = [f"<b>{escaped(', '.join(clients))}</b>" for clients, *_ in rows]
    figure.update_yaxes(**lanes(names, -0.8, 0.4), showline=False, row=2, col=1)
    figure.update_xaxes(
        title_text="views: place in the sequence",
        range=[-0.6, longest - 0.4],
        dtick=1 if longest <= 20 else 5,
        row=2,
        col=1,
    )


def _wrapped(text: str) -> str:
    """Return a text in at most five lines, for plotly."""
    return "<br>".join(map(escaped, textwrap.wrap(text, 80, max_lines=5, placeholder=" …")))
