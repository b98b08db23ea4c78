"""Thresholds at which the report propagation sends queues early, and what they cost."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from mudkit import words
from mudkit.report.joined_messages import Combination, Sums, Way
from mudkit.report.joining import Choice
from mudkit.report.page import Answer
from mudkit.report.propagating import JoiningStudy

if TYPE_CHECKING:
    import pandas as pd


def threshold_table(study: JoiningStudy) -> pd.DataFrame:
    """Return what thresholds leave at the interval and cell of the page; 1: nothing is joined."""
    import pandas as pd

    early = study.choice if study.early is None else study.early
    chosen = None if study.verdict == "own" else early.threshold
    largest = _largest(study)
    sizes = sorted({1, *(size for size in study.thresholds if size < largest), *([chosen] if chosen else [])})
    early_sums = study.joined_sums.together([partial(_early, study, size) for size in sizes])
    rows = [
        {"threshold": f"{size:,}" if size > 1 else "1, nothing joined"} | study.row(sums)
        for size, sums in zip(sizes, early_sums, strict=True)
    ]
    rows[0][study.error_column] = 0.0  # what is sent by itself names its device, and tells its speed
    rows.append({"threshold": "any, none is sent early"} | study.row(_early(study, None)))
    return pd.DataFrame(rows)


def _largest(study: JoiningStudy) -> int:
    """Messages in the fullest queue."""
    if study.verdict == "own":
        return study.joined_sums.fullest(_combination(study, "own"))
    return int(study.search.tried[study.best_key].sizes[0].max())


def _early(study: JoiningStudy, threshold: int | None) -> Sums:
    """Return the sums with another threshold: of a device's own messages, if that is recommended."""
    if study.verdict == "own":
        if threshold is None:
            return study.own
        return study.joined_sums.sums(_combination(study, "own", threshold))
    if threshold is None:
        return study.search.tried[study.best_key]
    for choice in (study.choice, study.early):
        if choice is not None and threshold == choice.threshold:
            return choice.sums
    return study.joined_sums.sums(_combination(study, "join", threshold))


def _combination(study: JoiningStudy, way: Way, threshold: int = 0) -> Combination:
    """Return the interval and cell of the page, with another way and threshold."""
    return Combination(way, study.choice.interval_s, study.zoom, threshold)


def threshold_answer(study: JoiningStudy) -> Answer:
    """Return what the threshold of the page costs, as a heading."""
    whole, sizes, largest = _early(study, None), study.search.sizes, _largest(study)
    fullest = f"The fullest queue holds {words.count(largest, 'message')}."
    if largest < 2:
        return Answer("No queue ever holds two messages", fullest)
    if study.verdict == "own":
        early = min((size for size in study.thresholds if 1 < size < largest), default=None)
        if early is None:
            return Answer("No threshold that is compared would send a queue early", fullest)
        other = _early(study, early)
        text = (
            f"Each device joins its own messages, as recommended, and sends none early. {fullest} Sent "
            f"at {early:,}, messages would wait {words.duration(other.delay_s)} on average, not "
            f"{words.duration(whole.delay_s)}."
        )
        points = round(100 * (other.left_share(sizes) - whole.left_share(sizes)), 1)
        return Answer(
            f"Sending as soon as a device has {words.count(early, 'message')} would cost "
            f"{words.count(points, 'point')}",
            text,
        )
    instead = study.instead()
    if study.early is not None:
        return _early_answer(study, study.early, whole)
    if study.choice.threshold is None:
        return Answer(
            "Sending queues early, when they are full, would leave over 5 % more bytes",
            f"{instead}{fullest}",
        )
    cost = 100 * (study.choice.sums.left_share(sizes) - whole.left_share(sizes))
    if not study.search.is_allowed(*study.best_key):
        why = "Without a threshold a limit is broken."
    else:
        why = (
            "It is the smallest threshold that leaves at most 5 % more bytes than the best combination, "
            "and the mean wait falls by at least half."
        )
    points = round(cost, 1)
    return Answer(
        f"Sending a queue as soon as it holds {words.count(study.choice.threshold, 'message')} costs "
        f"{words.count(points, 'point')}",
        f"{instead}Messages wait {words.duration(study.choice.sums.delay_s)} on average; if none was sent "
        f"early, {words.duration(whole.delay_s)}. {why}",
    )


def _early_answer(study: JoiningStudy, early: Choice, whole: Sums) -> Answer:
    """Return what a threshold that is not recommended would cost, as a heading."""
    sizes = study.search.sizes
    points = round(100 * (early.sums.left_share(sizes) - whole.left_share(sizes)), 1)
    cost = words.count(points, "point")
    sooner = words.duration(whole.delay_s - early.sums.delay_s)
    text = (
        f"Messages would wait {words.duration(early.sums.delay_s)} on average, not "
        f"{words.duration(whole.delay_s)}"
    )
    errors = [sums.quantity_error(study.quantity) for sums in (whole, early.sums)]
    if study.quantity == "devices" and errors[1] > errors[0]:
        now, then = (words.number(1 + error) for error in errors)
        text += f", but counts of devices would be {then} times the truth, not {now}"
    if early.sums.keeps(study.search.limits, study.quantity):
        why = "queues are sent early only if that at least halves the mean wait"
    else:
        why = "it breaks a limit"
    return Answer(
        f"Sending a queue as soon as it holds {early.threshold:,} messages would cost {cost} and shorten "
        f"the mean wait by {sooner}",
        f"{study.instead()}{text}. It is not recommended: {why}.",
    )


def thresholds_shown(study: JoiningStudy, table: pd.DataFrame) -> pd.DataFrame:
    """Return the thresholds as a table on screen."""
    columns = ["threshold", "bytes_left_share", "messages_left_share", "position_error_m",
               study.error_column, "delay_s", "repeated_messages_share"]  # fmt: skip
    return table[columns]
