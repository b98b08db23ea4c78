"""Rows of the papers that compare polling, pushing and chains, by transport: which conclusions flip.

Usage: ``python tools/transports.py [ROW …]``. Writes for each row its verdict under each transport, and the
requirements that hold or do not.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

from mudkit.errors import MudkitError
from mudkit.reproduce import contrail, radiator
from mudkit.reproduce.row import Row, judge

ROWS: Final[dict[str, Row]] = {
    row.name: row
    for row in (*contrail.ROWS, *radiator.ROWS)
    if row.name in ("C1", "C3", "C4", "C5", "R3", "R6")
}
TRANSPORTS: Final = ("messages", "https", "mqtt")


def verdict(row: Row, transport: str) -> str:
    """Return the verdict of a row under a transport with its reason, or why it cannot be measured."""
    measure: Callable[..., Any] = row.measure
    try:
        return ": ".join(judge(row, measure(transport=transport)))
    except MudkitError as error:
        return f"not measured: {str(error).splitlines()[0]}"


def main(names: list[str]) -> None:
    """Write the verdicts of some rows, or of all."""
    for name in names or ROWS:
        for transport in TRANSPORTS:
            sys.stdout.write(f"{name} {transport}: {verdict(ROWS[name], transport)}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
