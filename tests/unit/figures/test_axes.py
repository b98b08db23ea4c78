"""Axes of all kinds of figures: possible values and readable numbers."""

import re

import numpy as np
import pytest
from figure_gallery import FIGURES

SIGNED = {"latitude", "longitude", "km east", "km north", "east, km", "north, km", "millivolt"}
"""Axes that may have values below zero."""
ROWS = {"views: place", "messages"}
"""Axes of rows, not of numbers."""


def list_axes(figure):
    """Return the axes of a figure that have a title: letter and axis."""
    layout = figure.layout
    return [
        (name[0], layout[name])
        for name in layout
        if re.fullmatch(r"[xy]axis\d*", name)
        and layout[name].title.text
        and layout[name].visible is not False
    ]


@pytest.mark.parametrize("name", FIGURES)
def test_axes_show_no_impossible_values(name, gallery):
    figure = gallery(name)
    for _, axis in list_axes(figure):
        title = axis.title.text
        if (
            any(title.startswith(part) for part in SIGNED | ROWS)
            or axis.ticktext is not None
            or axis.type in ("log", "category")
        ):
            low, high = axis.range or (0, 0)
            assert axis.type != "log" or "%" not in title or high <= 2, title
            continue
        if axis.range is None:
            assert axis.rangemode == "tozero" or "hour" in title, title
            continue
        low, high = axis.range
        if isinstance(low, (int, float)) and "virtual time" not in title:
            assert min(low, high) >= 0, title
            if "%" in title:
                assert max(low, high) <= 100, title


@pytest.mark.parametrize("name", FIGURES)
def test_whiskers_stay_within_possible_values(name, gallery):
    for trace in gallery(name).data:
        for letter in "xy":
            error = getattr(trace, f"error_{letter}", None)
            if error is None or error.array is None or error.visible is False:
                continue
            values = np.asarray(getattr(trace, letter), float)
            below = np.asarray(error.array if error.arrayminus is None else error.arrayminus, float)
            low, high = values - below, values + np.asarray(error.array, float)
            assert np.nanmin(low) >= -1e-9
            assert np.nanmax(high) <= 100 + 1e-9


@pytest.mark.parametrize("name", FIGURES)
def test_numbers_have_no_exponent(name, gallery):
    figure = gallery(name)
    for _, axis in list_axes(figure):
        assert axis.exponentformat not in ("power", "e", "E")
        assert axis.type != "log" or axis.tickformat or axis.ticktext, axis.title.text
    assert not re.search(r"\d\.\d+e[+-]\d", figure.layout.meta["alt"])
