"""The figures that the first screen of the report propagation writes to summary.json."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from mudkit import intervals
from mudkit.report.joined_accuracy import error_interval
from mudkit.report.joined_messages import SQUARE, Sums
from mudkit.report.page import Measure
from mudkit.units import US_PER_S

if TYPE_CHECKING:
    from mudkit.report.propagating import JoiningStudy

_MEASURES: Final = {
    "way": (
        "",
        "join (messages of a cell), own (a device joins its own of a cell), last (positions) or nothing",
    ),
    "interval_s": ("s", "length of an interval, which is the longest delay"),
    "cells_zoom": ("", "level of the cells"),
    "cell_km": ("km", "side of a cell"),
    "threshold": (
        "messages",
        "a queue is sent as soon as it holds this many; null: not before its interval ends",
    ),
    "bytes_left_share": ("share", "bytes that are sent, of those of all messages"),
    "messages_left_share": ("share", "messages and aggregates that are sent, of all messages"),
    "own_repeats_share": (
        "share",
        "bytes of messages that repeat one of their device in an aggregate, of those that joining saves",
    ),
    "repeated_messages_share": (
        "share",
        "messages that repeat one of their device in an aggregate, of those that joining the messages of "
        "cells saves",
    ),
    "position_error_m": (
        "m",
        "95 % of the positions were reported within this distance of the place that receivers get",
    ),
    "position_median_m": (
        "m",
        "half of the positions were reported within this distance of the place that receivers get",
    ),
    "position_sent_error_m": (
        "m",
        "when that place is sent, the device's last report is within this distance of it, for 95 % of the "
        "positions",
    ),
    "quantity_error": ("", "see the quantity"),
    "delay_s": ("s", "mean time that a message waits"),
    "joined_left_share": (
        "share",
        "bytes left by the combination of the page, if messages of different devices are joined",
    ),
    "own_left_share": (
        "share",
        "bytes left with its cells and interval, if a device joins its own messages only",
    ),
    "different_left_share": ("share", "bytes left with them, if no aggregate holds two messages of a device"),
    "last_left_share": ("share", "bytes left by the best interval, if each device sends its last position"),
    "last_interval_s": ("s", "that interval"),
    "last_same_left_share": (
        "share",
        "bytes left if each device sends its last position at the interval of the cells",
    ),
    "last_same_error_m": (
        "m",
        "95 % of the positions were reported within this distance of these last ones",
    ),
    "half_aggregate_left_share": (
        "share",
        "bytes left by what is recommended, if an aggregate has half of aggregate_bytes",
    ),
    "double_aggregate_left_share": (
        "share",
        "bytes left by what is recommended, if an aggregate has twice aggregate_bytes",
    ),
    "half_fleet_left_share": (
        "share",
        "bytes left by the same way with half of the devices; null: of one device, or if nothing is joined",
    ),
    "receivers": ("devices", "devices of the trace; each receives all that is sent"),
    "positions": ("", "positions that were kept"),
    "received_mb_per_day": ("MB/day", "data that each device receives"),
    "received_by_all_mb_per_day": ("MB/day", "data that all devices receive together"),
    "joined_gain_share": (
        "share",
        "bytes that joining the messages of different devices leaves less than own",
    ),
}
"""Units and definitions of the figures of the first screen."""
_QUANTITY_ERRORS: Final = {
    "speed": ("km/h", "root mean square error of the reported speeds"),
    "devices": ("share", "devices that are counted too many in an interval, of those that are there"),
}


def first_measures(study: JoiningStudy) -> list[Measure]:
    """Return the figures of the first screen, with intervals over days where they are known."""
    sizes, days = study.search.sizes, study.days
    is_used, has_cells = study.verdict != "nothing", study.verdict in ("own", "join")
    messages, distances = [day.messages for day in days], np.array([day.distances for day in days])
    saved = [day.messages * sizes.message_bytes - day.bytes_out(sizes) for day in days]
    repeated = [day.messages - day.told_devices for day in days]
    fewer = [day.messages - day.sent for day in days]
    joins = study.verdict in ("join", "nothing")
    values: dict[str, float | str | intervals.Interval | None] = {
        "way": study.verdict,
        "interval_s": study.interval_s if is_used else None,
        "cells_zoom": study.zoom if has_cells else None,
        "cell_km": study.cell_km if has_cells else None,
        "threshold": study.choice.threshold if study.verdict == "join" else None,
        "bytes_left_share": study.left,
        "messages_left_share": intervals.ratio([day.sent for day in days], messages),
        "own_repeats_share": intervals.ratio([sizes.message_bytes * count for count in repeated], saved)
        if joins
        else study.joined.own_repeats_share(sizes),
        "repeated_messages_share": intervals.ratio(repeated, fewer) if joins else study.joined.repeated_share,
        "position_error_m": error_interval(distances),
        "position_median_m": error_interval(distances, 0.5),
        "position_sent_error_m": error_interval(study.sent_distances),
        "quantity_error": _quantity_interval(days, study.quantity),
        "delay_s": intervals.ratio([day.wait_us / US_PER_S for day in days], messages),
        "joined_left_share": study.joined.left_share(sizes),
        "own_left_share": study.own.left_share(sizes),
        "different_left_share": study.different.left_share(sizes),
        "last_left_share": study.last[1].left_share(sizes) if study.last else None,
        "last_interval_s": study.last[0] if study.last else None,
        "last_same_left_share": study.last_same.left_share(sizes),
        "last_same_error_m": study.last_same.error_m(),
        "half_aggregate_left_share": study.sized[0.5]["bytes_left_share"],
        "double_aggregate_left_share": study.sized[2.0]["bytes_left_share"],
        "half_fleet_left_share": study.half_fleet.left_share(sizes) if study.half_fleet else None,
        "receivers": len(study.source.devices),
        "positions": study.source.count,
        "received_mb_per_day": study.bytes_per_day / 1e6,
        "received_by_all_mb_per_day": len(study.source.devices) * study.bytes_per_day / 1e6,
        "joined_gain_share": study.own.left_share(sizes) - study.joined.left_share(sizes),
    }
    measures = []
    for name, value in values.items():
        unit, text = _QUANTITY_ERRORS[study.quantity] if name == "quantity_error" else _MEASURES[name]
        ends: tuple[float | None, float | None] = (None, None)
        if isinstance(value, intervals.Interval):
            if not is_used:
                text += "; of the best combination, which is not recommended"
            if value.kind == "interval":
                ends = value.low, value.high
            value = value.value
        measures.append(Measure(name, value, unit, f"{text[0].upper()}{text[1:]}.", *ends))
    return measures


def _quantity_interval(days: Sequence[Sums], quantity: str) -> intervals.Interval:
    """Return the error of the quantity with its interval over days."""
    if quantity == "speed":
        squares = intervals.ratio([day.value_squares / SQUARE for day in days], [day.values for day in days])
        low, high = (3.6 * math.sqrt(end) for end in (squares.low, squares.high))
        return replace(squares, value=3.6 * math.sqrt(squares.value), low=low, high=high)
    counted = intervals.ratio([day.told_devices for day in days], [day.devices for day in days])
    return replace(counted, value=counted.value - 1, low=counted.low - 1, high=counted.high - 1)
