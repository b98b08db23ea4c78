"""Table of rows on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mudkit import words
from mudkit.reproduce.outcome import Result
from mudkit.reproduce.row import NOT_MEASURED, NOT_REPRODUCIBLE, REPRODUCED, Row, Say, say_nothing

_STYLES = {REPRODUCED: "green", NOT_REPRODUCIBLE: "red", NOT_MEASURED: "dim"}


def expected(rows: Sequence[Row]) -> str:
    """Return the expected duration of each row, and of all together."""
    parts = ", ".join(f"{row.name} {words.duration(60 * row.minutes)}" for row in rows)
    whole = words.duration(60 * sum(row.minutes for row in rows))
    return f"Expected on two idle cores, {whole} in all: {parts}"


def left_out(results: Sequence[Result], rows: Sequence[Row]) -> str:
    """Describe the rows that a quick run did not measure."""
    measured = {result.row.name for result in results}
    rest = [row for row in rows if row.name not in measured]
    if not rest:
        return "No row is left out."
    lines = []
    for is_speed, heading in ((False, "Left out"), (True, "Left out, of speed")):
        names = [
            f"{row.name} ({words.duration(60 * row.minutes)})" for row in rest if row.is_speed == is_speed
        ]
        if names:
            lines.append(f"{heading}: {', '.join(names)}")
    return "\n".join([*lines, f"mudkit reproduce {rest[0].name} measures one of them."])


def render(results: Sequence[Result], console: Console | None = None) -> None:
    """Print the rows, and their parameters below."""
    console = console or Console()
    table = Table(show_lines=True, expand=True)
    table.add_column("row", width=12)
    table.add_column("the paper says", ratio=2)
    table.add_column("measured: median (lowest–highest)", ratio=3)
    table.add_column("verdict", width=16)
    for result in results:
        row = result.row
        table.add_row(f"{row.name}\n{row.source}", Text(row.paper), _quantities(result), _verdict(result))
    console.print(table)
    for result in results:
        if result.measured:
            console.print(Text(f"{result.row.name}: {parameter_text(result.measured.parameters)}"))


def _quantities(result: Result) -> Text:
    """List the quantities, those with requirements first, marked by whether these hold."""
    if result.measured is None:
        return Text(result.reason, style="dim")
    lines, listed = Text(), set()
    for required in result.row.required:
        quantity = result.measured.quantities.get(required.quantity)
        if quantity is not None:
            listed.add(required.quantity)
            mark = Text("✓ ", style="green") if required.holds(quantity.median) else Text("✗ ", style="red")
            lines.append(mark).append(f"{required.quantity}: {quantity}, {required}\n")
    for name, quantity in result.measured.quantities.items():
        if name not in listed:
            lines.append(f"  {name}: {quantity}\n")
    lines.rstrip()
    return lines


def _verdict(result: Result) -> Text:
    """Return a coloured verdict, and below it the day of the measurement if there is one."""
    verdict = Text(result.verdict, style=_STYLES.get(result.verdict, "yellow"))
    if result.date is not None:
        verdict.append(f"\n{result.date[:10]}", style="default")
    return verdict


def parameter_text(parameters: Mapping[str, Any]) -> str:
    """Format the parameters of a row as one line."""
    return "; ".join(f"{name} {_word(value)}" for name, value in parameters.items())


def _word(value: Any) -> str:
    """Return a parameter's value as text; of mappings and lists, all items separated by commas."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_word(item)}" for name, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_word(item) for item in value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return words.number(value)
    return str(value)


@contextmanager
def show_steps() -> Iterator[Say]:
    """Show the current step on standard error if it is a terminal.

    No thread runs beside the measurement.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        yield say_nothing
        return
    try:
        yield lambda text: print(f"\r\x1b[K{text} …", end="", file=sys.stderr, flush=True)  # noqa: T201
    finally:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)  # noqa: T201
