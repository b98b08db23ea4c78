"""Conclusions on polling, pushing and chains under each transport, and which of them flip.

Usage: ``python tools/transports.py [ROW … | scoreboard]``. Writes for each row of the papers its verdict
under each transport, with the requirements that hold or do not; for the scoreboard, the measures of each
system on three tasks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

from mudkit.errors import MudkitError
from mudkit.experiment import NEWS, PHOTOS, TRAFFIC, scoreboard
from mudkit.reproduce import contrail, mobius_overhead, radiator
from mudkit.reproduce.row import Row, judge

ROWS: Final[dict[str, Row]] = {
    row.name: row
    for row in (*contrail.ROWS, *radiator.ROWS, *mobius_overhead.ROWS)
    if row.name in ("C1", "C3", "C4", "C5", "R3", "R6", "M3-remote")
}
TRANSPORTS: Final = ("messages", "https", "mqtt")
SCOREBOARD: Final = "scoreboard"
_MEASURES: Final = ("useful_share", "latency_s", "messages", "down_kb", "radio_j")
_DEVICES, _LENGTH, _SEEDS = 16, 0.5, range(3)


def verdict(row: Row, transport: str) -> str:
    """Return the verdict of a row under a transport with its reason, or why it cannot be measured."""
    measure: Callable[..., Any] = row.measure
    try:
        return ": ".join(judge(row, measure(transport=transport)))
    except MudkitError as error:
        return f"not measured: {str(error).splitlines()[0]}"


def board(transport: str) -> str:
    """Return the measures of each system on three tasks under a transport, as a text."""
    tasks = [
        task.over(devices=_DEVICES, hours=task.scenario.hours * _LENGTH, transport=transport)
        for task in (TRAFFIC, NEWS, PHOTOS)
    ]
    scores = scoreboard(tasks, seeds=_SEEDS, privacy=False)
    return "\n\n".join(
        f"{task}, {transport}\n{scores.table(task, list(_MEASURES)).round(3).to_string()}"
        for task in scores.tasks
    )


def main(names: list[str]) -> None:
    """Write the verdicts of some rows and the scoreboard, or of all."""
    for name in names or [*ROWS, SCOREBOARD]:
        for transport in TRANSPORTS:
            text = board(transport) if name == SCOREBOARD else verdict(ROWS[name], transport)
            sys.stdout.write(f"{name} {transport}: {text}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
