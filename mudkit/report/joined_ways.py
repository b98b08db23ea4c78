"""The ways of sending that the report propagation compares on the same messages."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from mudkit import words
from mudkit.report.joined_accuracy import distance_m
from mudkit.report.joined_messages import Combination, Sums
from mudkit.report.page import Answer
from mudkit.report.propagating import WAYS, JoiningStudy

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

MEASURES: Final = {
    "left": "bytes left, %",
    "error": "95 % when reported, m",
    "sent": "95 % when sent, m",
}
"""Columns of :func:`drawn`, with the titles of their axes."""


def baselines(study: JoiningStudy) -> pd.DataFrame:
    """Return what other ways leave on the same messages, beside the combination of the page."""
    import pandas as pd

    every = study.choice.interval_s
    different = study.joined_sums.sent(Combination("different", every, study.zoom))
    exact = np.ones((1, 1), dtype=np.int64)  # a last position is the last report when it is sent
    ways: list[tuple[str, int, Sums, NDArray[np.int64]]] = [
        (WAYS["last"], every, study.last_same, exact),
        (
            "last positions, joined by cell",
            every,
            study.last_joined,
            study.last_joined_sent,
        ),
        (WAYS["own"], every, study.own, study.own_sent),
        ("different devices joined, never two messages of one", every, study.different, different),
        (WAYS["join"], every, study.joined, study.joined_sent),
    ]
    if study.last is not None and study.last[0] != every:
        ways.insert(1, (f"{ways[0][0]} every {words.duration(study.last[0])}", *study.last, exact))
    rows = [
        {"way": name, "interval_s": interval_s}
        | study.row(sums)
        | {"position_sent_error_m": distance_m(sent.sum(axis=0))}
        | {"keeps_limits": sums.keeps(study.search.limits, study.quantity)}
        for name, interval_s, sums, sent in ways
    ]
    nothing = {name: 0.0 for name in rows[0] if name not in ("way", "repeated_messages_share")}
    nothing |= {"bytes_left_share": 1.0, "messages_left_share": 1.0}
    first = {"way": WAYS["nothing"]} | nothing | {"interval_s": 0, "keeps_limits": True}
    return pd.DataFrame([first, *rows])


def baselines_answer(study: JoiningStudy) -> Answer:
    """Return which share of the saved messages repeat one of their device, as a heading."""
    sums, sizes = study.joined, study.search.sizes
    share = sums.repeated_share
    if math.isnan(share):
        return Answer("Joining saves nothing", "No two messages share a cell and an interval.")
    alone = words.percent(int(sums.sizes[1][sums.sizes[0] == 1].sum()) / sums.sent)
    if share == 1:
        title = "All messages that joining saves repeat one of their device in the same aggregate"
    elif share:
        title = (
            f"{words.percent(share)} of the messages that joining saves repeat one of their device in the "
            "same aggregate"
        )
    else:
        title = "No message that joining saves repeats one of its device in the same aggregate"
    recommended = {
        "own": f"What is recommended sends {words.count(study.own.sent, 'message')}. ",
        "last": f"What is recommended sends {words.count(study.sums.sent, 'message')}. ",
    }.get(study.verdict, "")
    others = "" if study.verdict == "join" else "If the messages of a cell were joined, whoever sent them, "
    verb = "would be" if others else "are"
    saved = [100 * (1 - way.left_share(sizes)) for way in (study.own, study.different, sums)]
    own, different, both = (words.number(round(points)) for points in saved)
    overlap = saved[0] + saved[1] > saved[2] + 0.5 and min(saved) >= 0.5
    return Answer(
        title,
        f"{recommended}{others}"
        f"{words.count(sums.sent, 'message')} and aggregates {verb} sent; {alone} of them hold one "
        f"message. Of the bytes, joining only the messages of one device saves {own} points, only those of "
        f"different devices {different}, all of them {both}"
        + ("; many messages could be joined in either way." if overlap else "."),
    )


def baselines_shown(study: JoiningStudy, table: pd.DataFrame) -> pd.DataFrame:
    """Return the ways as a table on screen."""
    columns = ["way", "bytes_left_share", "position_error_m", "position_sent_error_m", study.error_column,
               "delay_s", "keeps_limits"]  # fmt: skip
    return table[columns]


def drawn(table: pd.DataFrame) -> pd.DataFrame:
    """Return the ways as bars: ``way``, and a column for each of :data:`MEASURES`."""
    return table.assign(
        left=100 * table["bytes_left_share"],
        error=table["position_error_m"],
        sent=table["position_sent_error_m"],
    )
