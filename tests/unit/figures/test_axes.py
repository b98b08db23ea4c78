"""Axes of all kinds of figures: possible values and readable numbers."""

import re

import numpy as np
import pytest
from figure_gallery import FIGURES

SIGNED = {"latitude", "longitude", "km east", "km north", "east, km", "north, km", "millivolt"}
"""Axes that may have values below zero."""
ROWS = {"views: place", "messages"}
"""Axes of rows, not of numbers."""
WINDOWS = {("signals", "x")}
"""Axes that show the beginning of what there is, as their caller asks for."""


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


def list_ends(trace, letter):
    """Return the numbers of a trace on an axis, with the ends of their whiskers."""
    try:
        values = np.asarray(getattr(trace, letter), float)
    except (TypeError, ValueError):
        return np.empty(0)  # names or times
    error = getattr(trace, f"error_{letter}", None)
    if error is None or error.array is None or error.visible is False:
        return values[np.isfinite(values)]
    below = np.asarray(error.array if error.arrayminus is None else error.arrayminus, float)
    ends = np.concatenate([values - below, values + np.asarray(error.array, float)])
    return ends[np.isfinite(ends)]


@pytest.mark.parametrize("name", FIGURES)
def test_all_values_are_within_the_range_of_their_axis(name, gallery):
    """Figures cut off nothing that they draw."""
    figure = gallery(name)
    for trace in figure.data:
        for letter in "xy":
            axis_name = getattr(trace, f"{letter}axis", None) or letter
            axis = figure.layout[f"{letter}axis{axis_name[1:]}"]
            ends = list_ends(trace, letter)
            has_range = axis.range is not None and isinstance(axis.range[0], (int, float))
            if not has_range or not len(ends) or (name, letter) in WINDOWS:
                continue
            low, high = sorted(axis.range)
            if axis.type == "log":
                ends = np.log10(ends[ends > 0])
            margin = 1e-9 * (high - low)
            assert low - margin <= ends.min(), (trace.name, letter)
            assert ends.max() <= high + margin, (trace.name, letter)


@pytest.mark.parametrize("name", FIGURES)
def test_entries_of_a_legend_have_names(name, gallery):
    figure = gallery(name)
    if figure.layout.showlegend is not False:
        named = [trace for trace in figure.data if trace.type not in ("heatmap", "table")]
        drawn = [trace for trace in named if trace.showlegend is not False]
        assert len(drawn) < 2 or all(trace.name for trace in drawn)
