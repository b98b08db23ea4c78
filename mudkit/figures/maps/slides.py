"""Cells over time on an offline map: a slider, and a choice of whose picture it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import folium
import numpy as np
import pyarrow as pa

from mudkit.errors import ParameterError
from mudkit.figures.base.colours import NO_VALUE, Colouring, short_number
from mudkit.figures.base.page import add_call
from mudkit.figures.base.places import column, places, refuse_empty, refuse_off_sphere, texts
from mudkit.figures.maps.ground import map_with_ground
from mudkit.figures.maps.knowledge import Heard, clock, known
from mudkit.units import box_bounds

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["MAX_ROWS", "cell_slides", "knowledge_map"]

MAX_ROWS: Final = 60_000
"""A map holds so many cells, all of its pictures together."""


def cell_slides(
    cells: pa.Table,
    value: str,
    *,
    time: str,
    by: str,
    text: str | None = None,
    label: str | None = None,
    positions: pa.Table | None = None,
    limits: tuple[float, float] | None = None,
    low_is_dark: bool = False,
    first: int = 0,
    height_px: int = 480,
) -> folium.Map:
    """Draw rectangles coloured by a value, a picture for each time; slider and choice work by keyboard.

    Parameters
    ----------
    cells : pyarrow.Table
        ``south, west, north, east`` in degrees, the value, and what is named below; at most ``MAX_ROWS``.
    value : str
        A null value is grey.
    time : str
        Column of the slider's labels; pictures come in the order in which their labels do first.
    by : str
        Column of what is chosen, for instance receivers: each has pictures of its own.
    text : str, optional
        A column that stands under the pointer behind the value.
    label : str, optional
        What the legend says, with the unit; the column's name without it.
    positions : pyarrow.Table, optional
        What the ground is drawn from.
    limits : (float, float), optional
        Ends of the colour scale; those of the values without it.
    low_is_dark : bool
        Whether what counts is low, as speed in a jam.
    first : int
        Number of the picture that is shown first.
    height_px : int

    Returns
    -------
    folium.Map

    Raises
    ------
    ParameterError
        The table lacks a column or has too many rows, or there is no such picture.
    TraceContentError
        A table is empty, or holds a place that is not on the sphere.
    """
    edges = np.column_stack([column(cells, "cells", name) for name in ("south", "west", "north", "east")])
    values = column(cells, "cells", value)
    missing = [name for name in (time, by, text) if name is not None and name not in cells.column_names]
    if missing or len(values) > MAX_ROWS:
        raise ParameterError(
            "These cells cannot be shown over time.",
            where="cells",
            found=f"{len(values):,} rows with {', '.join(cells.column_names)}",
            expected=", ".join(missing) if missing else f"at most {MAX_ROWS:,} rows",
            remedy=None if missing else "larger cells or longer intervals",
        )
    refuse_empty(len(values), "cells")
    for south, west in (edges[:, :2].T, edges[:, 2:].T):
        refuse_off_sphere(south, west, "cells")
    labels, choices = (list(dict.fromkeys(cells.column(name).to_pylist())) for name in (time, by))
    if not 0 <= first < len(labels):
        raise ParameterError(
            "There is no such picture.", where="first", found=str(first), expected=f"0 to {len(labels) - 1}"
        )
    edges[:, 3] = np.where(edges[:, 1] > edges[:, 3], edges[:, 3] + 360.0, edges[:, 3])
    title = label or value
    ground = None if positions is None else places(positions, "positions")
    south, west, north, east = edges.T
    leaflet_map, frame = map_with_ground(
        f"Map over time: {title}", [(south, west), (north, east)], ground, height_px, None
    )
    turn = frame.unwrap((west + east) / 2) - (west + east) / 2
    edges[:, 1] += turn
    edges[:, 3] += turn
    boxes, which = np.unique(np.round(edges, 6), axis=0, return_inverse=True)
    colouring = Colouring.of(values, limits)
    colours, ticks = colouring.colours(), colouring.ticks()
    if low_is_dark:
        colours = [*colours[-2::-1], colours[-1]]
    pictures: list[list[list[Any]]] = [[[] for _ in labels] for _ in choices]
    at_label, at_choice = ({name: at for at, name in enumerate(names)} for names in (labels, choices))
    notes = [short_number(number) for number in values.tolist()]
    if text is not None:
        notes = [f"{number}, {more}" for number, more in zip(notes, texts(cells, "cells", text), strict=True)]
    rows = zip(
        cells.column(by).to_pylist(),
        cells.column(time).to_pylist(),
        which.ravel().tolist(),
        colouring.shades(values),
        notes,
        strict=True,
    )
    for choice, moment, *cell in rows:
        pictures[at_choice[choice]][at_label[moment]].append(cell)
    keys = [[NO_VALUE, "no value"]] if np.isnan(values).any() else []
    legend = {"title": title, "colours": colours[:-1], "ticks": ticks, "keys": keys}
    add_call(leaflet_map, "legend", legend)
    data = {
        "boxes": boxes.tolist(),
        "pictures": pictures,
        "colours": colours,
        "first": first,
        "labels": [str(each) for each in labels],
        "choices": [str(each) for each in choices],
        "title": title,
        "by": by,
    }
    add_call(leaflet_map, "slides", data)
    return leaflet_map


def knowledge_map(
    heard: pd.DataFrame,
    ground: pd.DataFrame,
    receivers: Sequence[str],
    *,
    value: str,
    label: str,
    every_s: float,
    until_s: float,
    first_s: float = 0.0,
    height_px: int = 480,
) -> folium.Map:
    """Draw what each receiver knows at each moment, low values dark.

    Parameters
    ----------
    heard, ground : pandas.DataFrame
        As in :func:`mudkit.figures.maps.knowledge.knowledge`; also ``km``, the side of the cells.
    receivers : sequence of str
    value, label : str
        The column that gives the colour, and what the legend says.
    every_s, until_s : float
        The moments.
    first_s : float
        About the moment that is shown first.
    height_px : int

    Raises
    ------
    ParameterError, TraceContentError
        As :func:`cell_slides`; nothing has come until then.
    """
    import pandas as pd

    moments = np.arange(every_s, until_s + every_s / 2, every_s)
    arranged = Heard(heard)
    parts = [
        known(arranged, receiver, float(t_s)).assign(of=receiver, at=f"at {clock(float(t_s))} min")
        for t_s in moments
        for receiver in receivers
    ]
    rows = pd.concat(parts, ignore_index=True)
    edges = box_bounds(rows["lat"], rows["lon"], rows["km"])._asdict()
    shown = {"known to": rows["of"], "at": rows["at"], value: rows[value].astype(float)}
    shown["told"] = rows["age_s"].map("{:.0f} s old".format)
    labels = list(dict.fromkeys(rows["at"]))
    near = [number for number, t_s in enumerate(moments[-len(labels) :]) if t_s <= first_s] or [0]
    return cell_slides(
        pa.table({**edges, **shown}), value, time="at", by="known to", text="told", label=label,
        low_is_dark=True, positions=pa.table({name: ground[name].to_numpy() for name in ("lat", "lon")}),
        first=near[-1], height_px=height_px,
    )  # fmt: skip
