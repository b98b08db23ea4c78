"""Count what servers and phones know in the runs of the report scoreboard."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from mudkit import words
from mudkit.experiment import Scoreboard, Task
from mudkit.experiment.privacy import OTHERS, PHONE, RELAY, SERVERS
from mudkit.report.page import Answer

if TYPE_CHECKING:
    import pandas as pd

KNOWN_LABELS: Final = {
    "items_read": "items that servers read",
    "items_not_for_it": "unwanted items on phones",
    "pairs": "pairs that servers know",
    "places_share": "tasks in which servers know places of phones",
    "interests_share": "tasks in which servers know interests of users",
    "places_by_others_share": "tasks in which other devices know places of phones",
    "interests_by_others_share": "tasks in which other devices know interests of users",
}
_KNOWN_SHARES: Final = tuple(name for name in KNOWN_LABELS if name.endswith("_share"))


def list_known(board: Scoreboard) -> pd.DataFrame:
    """Return what parties know, a row a task and system; places and interests as shares of the phones."""
    import pandas as pd

    rows = []
    for task in board.tasks:
        for system in board.systems:
            known, disclosed = (
                entry[(entry["task"] == task) & (entry["system"] == system)].set_index("party")
                for entry in (board.privacy, board.disclosures)
            )
            rows.append(
                {
                    "task": task,
                    "system": system,
                    "items_read": known.loc[SERVERS, "items_read"],
                    "items_read_by_relay": known["items_read"].get(RELAY, math.nan),
                    "items_not_for_it": known.loc[PHONE, "items_not_for_it"],
                    "pairs": known.loc[SERVERS, "pairs"],
                    "places_share": disclosed.loc[SERVERS, "places"],
                    "interests_share": disclosed.loc[SERVERS, "interests"],
                    "places_by_others_share": disclosed.loc[OTHERS, "places"],
                    "interests_by_others_share": disclosed.loc[OTHERS, "interests"],
                }
            )
    return pd.DataFrame(rows)


def sum_known(board: Scoreboard, tasks: Sequence[Task]) -> pd.DataFrame:
    """Return what servers and phones know with each system: sums over tasks of the first seed.

    Of places and interests it is in how many tasks they are known, and of which share of the phones there if
    not of all: ``1 of 3``, ``1 of 3 (50 % of phones)``.
    """
    phones = {task.name: task.scenario.devices for task in tasks}
    table = list_known(board)
    table["items_not_for_it"] *= table["task"].map(phones)  # it is that of a phone
    groups = table.groupby("system", sort=False)
    sums = groups[[name for name in KNOWN_LABELS if name not in _KNOWN_SHARES]].sum()
    for name in _KNOWN_SHARES:
        sums[name] = groups[name].agg(_tasks_in_words)
    return sums[list(KNOWN_LABELS)].reset_index()


def _tasks_in_words(shares: pd.Series) -> str:
    """Return in how many tasks something is known, by the shares of the phones of which it is."""
    known = shares[shares > 0]
    text = f"{len(known)} of {len(shares)}"
    if known.empty or (known == 1).all():
        return text
    return f"{text} ({words.span(known.min(), known.max(), words.percent)} of phones)"


def known_answer(known: pd.DataFrame) -> Answer:
    """Return which systems keep items from servers, as a heading; ``known`` is from :func:`sum_known`."""
    blind = [words.quoted(str(name)) for name in known.loc[known["items_read"] == 0, "system"]]
    if not blind:
        title = "Every system lets servers read items"
    elif len(blind) == len(known):
        title = "No server reads an item"
    else:
        title = f"Only {words.joined(blind)} {'keeps' if len(blind) == 1 else 'keep'} items from servers"
    return Answer(
        title,
        f"{_told_to_others(known)}Searched for in every byte that servers and phones held in the "
        "runs of the first seed: what is compressed but not encrypted counts as read.",
    )


def _told_to_others(known: pd.DataFrame) -> str:
    """Return of which systems other devices know places or interests, in sentences."""
    sentences = []
    for row in known.to_dict("records"):
        parts = [
            f"the {what} in {row[name]} {'task' if row[name].endswith(' of 1') else 'tasks'}"
            for name, what in (
                ("places_by_others_share", "places of phones"),
                ("interests_by_others_share", "interests of users"),
            )
            if not row[name].startswith("0 of")
        ]
        if parts:
            system = words.quoted(str(row["system"]))
            sentences.append(f"With {system} other devices know {words.joined(parts)}. ")
    return "".join(sentences)
