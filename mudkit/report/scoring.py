"""What the report scoreboard shows of a scoreboard: tables in words, and sentences computed from them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mudkit import words
from mudkit.experiment import LABELS, MEASURES, Scoreboard, Task, commuting
from mudkit.experiment.privacy import OTHERS, PHONE, RELAY, SERVERS

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "all_differences",
    "all_measured",
    "as_text",
    "asked",
    "cannot",
    "in_percent",
    "meanings",
    "pairs",
    "privacy",
    "results",
    "same",
    "unbeaten",
]

_BY_A_RELAY = "of them by a relay"
_SHOWN = ("task", "wants", "devices", "feeds", "hours", "items", "size", "link", "outage", "seen")


def asked(tasks: Sequence[Task]) -> pd.DataFrame:
    """Say what the tasks are: a row each."""
    import pandas as pd

    rows = [{"question": task.question, **task.describe()} for task in tasks]
    table = pd.DataFrame(rows)
    return table[["question", *(name for name in _SHOWN if name in table.columns)]]


def same(scoreboard: Scoreboard) -> str:
    """Say how much was compared, and that it was the same for all."""
    runs = scoreboard.runs
    is_same = bool((runs.groupby(["task", "seed"])["digest"].nunique() == 1).all())
    wanted = runs.drop_duplicates(["task", "seed"])["wanted"].sum()
    return (
        f"**{len(runs):,} runs**: {len(scoreboard.tasks)} tasks, {len(scoreboard.systems)} systems, "
        f"{runs['seed'].nunique()} seeds; {wanted:,} pairs of an item and a phone that wanted it. All "
        f"systems saw {'the same' if is_same else '**not the same**'} devices, moves, links, outages, items "
        f"and looks."
    )


def unbeaten(fronts: Mapping[str, pd.DataFrame], systems: Sequence[str]) -> str:
    """Say who is on the front of each task, and who on all of them.

    Parameters
    ----------
    fronts : mapping of str to pandas.DataFrame
        The table that :func:`mudkit.experiment.front` gives, for each task.
    systems : sequence of str
        The systems in the order in which they are listed.
    """
    best = {task: set(table.loc[table["is_best"], "system"]) for task, table in fronts.items()}
    lines = [
        f"- {task}: **{', '.join(name for name in systems if name in names) or 'nobody'}**"
        for task, names in best.items()
    ]
    always = [name for name in systems if all(name in names for names in best.values())]
    verdict = (
        f"Not beaten in any task: **{', '.join(always)}**." if always else "Nobody is unbeaten in all tasks."
    )
    return "\n".join([*lines, "", verdict])


def as_text(measured: pd.DataFrame) -> pd.DataFrame:
    """Write measures, as :meth:`Scoreboard.measured` gives them: a row a measure, a column a system."""
    import pandas as pd

    rows: dict[str, dict[str, str]] = {}
    for row in measured.to_dict("records"):
        mean, low, high = row["mean"], row["low"], row["high"]
        places = words.decimals([mean, low, high])
        text = words.number(mean, places)
        text += f" ({words.interval(low, high, places)})" if low == low and low < high else ""
        rows.setdefault(LABELS[row["measure"]], {})[str(row["system"])] = text
    return pd.DataFrame([{"measure": label, **cells} for label, cells in rows.items()])


def all_measured(scoreboard: Scoreboard, confidence: float) -> pd.DataFrame:
    """Give the measures of all tasks, ``task`` before the columns of :meth:`Scoreboard.measured`."""
    import pandas as pd

    tables = [scoreboard.measured(task, confidence).assign(task=task) for task in scoreboard.tasks]
    table = pd.concat(tables, ignore_index=True)
    return table[["task", *(name for name in table.columns if name != "task")]]


def all_differences(scoreboard: Scoreboard, confidence: float) -> pd.DataFrame:
    """Give the paired differences of all tasks, ``task`` before :meth:`Scoreboard.differences`'s columns."""
    import pandas as pd

    tables = [scoreboard.differences(task, confidence).assign(task=task) for task in scoreboard.tasks]
    table = pd.concat(tables, ignore_index=True)
    return table[["task", *(name for name in table.columns if name != "task")]]


def results(differences: pd.DataFrame, measures: Sequence[str]) -> pd.DataFrame:
    """Give the differences in some measures whose intervals do not cross 0.

    Without intervals, of one seed, there is none.
    """
    import pandas as pd

    rows = [
        (
            row["task"],
            LABELS[row["measure"]],
            row["system"],
            row["baseline"],
            row["mean"],
            f"{row['difference']:+,.3g} ({row['difference_low']:+,.3g} to {row['difference_high']:+,.3g})",
        )
        for row in differences.to_dict("records")
        if row["measure"] in measures and (row["difference_low"] > 0 or row["difference_high"] < 0)
    ]
    return pd.DataFrame(rows, columns=["task", "measure", "system", "baseline", "mean", "difference"])


def privacy(scoreboard: Scoreboard) -> pd.DataFrame:
    """Give who knows what, a row a task and system; places and wants as shares of the phones."""
    import pandas as pd

    rows = []
    for task in scoreboard.tasks:
        for system in scoreboard.systems:
            read, said = (
                each[(each["task"] == task) & (each["system"] == system)].set_index("party")
                for each in (scoreboard.privacy, scoreboard.disclosed)
            )
            rows.append(
                {
                    "task": task,
                    "system": system,
                    "items read by servers": read.loc[SERVERS, "items_read"],
                    _BY_A_RELAY: read["items_read"].get(RELAY, math.nan),
                    "and not for it, by a phone": read.loc[PHONE, "items_not_for_it"],
                    "pairs known to servers": read.loc[SERVERS, "pairs"],
                    **{
                        f"{label} known to {who}": said.loc[party, what]
                        for what, label in (("places", "place"), ("wants", "want"))
                        for party, who in ((SERVERS, "servers"), (OTHERS, OTHERS))
                    },
                }
            )
    return pd.DataFrame(rows)


def in_percent(table: pd.DataFrame) -> pd.DataFrame:
    """Write what is known of places and wants in percent, – for what there is not; see :func:`privacy`."""
    shares = [name for name in table.columns if str(name).startswith(("place known", "want known"))]
    texts = {name: table[name].map(words.percent) for name in shares}
    return table.assign(**{_BY_A_RELAY: table[_BY_A_RELAY].map(words.number), **texts})


def cannot(scoreboard: Scoreboard, sentences: Mapping[str, Mapping[str, str]]) -> pd.DataFrame:
    """Say what the systems cannot express of the tasks: a row for each that cannot."""
    import pandas as pd

    rows = [
        (task, system, sentences[system][task])
        for task in scoreboard.tasks
        for system in scoreboard.systems
        if task in sentences.get(system, {})
    ]
    return pd.DataFrame(rows, columns=["task", "system", "what it cannot"])


def pairs(tried: pd.DataFrame) -> pd.DataFrame:
    """Give of each pair of systems which orders keep the most promises, and whether the order matters.

    Parameters
    ----------
    tried : pandas.DataFrame
        What :func:`~mudkit.experiment.orders` gives.
    """
    rows = commuting(tried)
    rows["order"] = (rows["same_shown"] & rows["same_kept"]).map(
        {True: "has made no difference", False: "matters"}
    )
    labels = {"composition": "put together", "order": "order", "best": "keep most", "never": "no order keeps"}
    return rows[list(labels)].rename(columns=labels)


def meanings(measures: Mapping[str, str] = MEASURES) -> str:
    """Say what the measures mean."""
    return "\n".join(f"- *{LABELS[name]}*: {text}" for name, text in measures.items())
