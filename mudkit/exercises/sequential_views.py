"""Exercise of chapter 03: detect reads that go back.

A client never reads an old version of a record after it has read or written a newer one (Mobius 4.1):
monotonic reads and read-your-writes. Operations of one client may overlap, and overlapping ones are
unordered. An operation is over at its end: it precedes one that begins in the same microsecond
(:func:`mudkit.consistency.operation.precedes`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from hypothesis import strategies as st

from mudkit import figures
from mudkit.consistency import History, Status, Verdict, check
from mudkit.exercises.judging import Exercise, PieceError, PlayedScenario

_COLUMNS: Final = 8
"""Distance between the starts of two operations; fits the longest name, as versions have one digit."""
_APART: Final = -3
_GUARANTEES: Final = ("monotonic-reads", "read-your-writes")


class _Move(NamedTuple):
    """Operation that begins after the previous one."""

    client: str
    back: int | None
    """Number of versions that a read lags behind the newest; None: a write."""
    length: int
    """Number of operations that begin while it is in progress, including itself."""
    end: int = _APART
    """Columns from the begin of the operation after these to its end; 0: the two touch."""


def _written(moves: Sequence[_Move]) -> str:
    """Format moves in the notation of histories; overlapping operations of a client are on separate lines."""
    lines: list[tuple[str, str]] = []
    newest = 0
    for number, move in enumerate(moves):
        newest += move.back is None
        version = newest if move.back is None else max(0, newest - move.back)
        name = f"{'w' if move.back is None else 'r'}{version}@{version}"
        if move.length > 1 or move.end != _APART:
            name = f"[{name}".ljust(move.length * _COLUMNS + move.end) + "]"
        begin = (number + 1) * _COLUMNS
        free = (at for at, (client, line) in enumerate(lines) if client == move.client and len(line) < begin)
        at = next(free, len(lines))
        if at == len(lines):
            lines.append((move.client, f"{move.client}:"))
        lines[at] = (move.client, lines[at][1].ljust(begin) + name)
    return "\n".join(line for _, line in sorted(lines, key=lambda entry: entry[0]))


def _play(piece: Callable[..., Any], moves: Sequence[_Move]) -> PlayedScenario:
    """Call the function on a history, and compare it with the checker; return the outcome."""
    text = _written(moves)
    history = History.parse(text)
    operations = [
        {
            "client": operation.client,
            "kind": operation.kind.value,
            "version": operation.content.version,
            "begin": operation.invoked_us,
            "end": operation.answered_us,
        }
        for operation in history
    ]
    verdicts = [check(history, model) for model in _GUARANTEES]
    verdict = next((verdict for verdict in verdicts if verdict.status is Status.ILLEGAL), verdicts[0])
    scenario_lines = "\n".join(f"    {line}" for line in text.splitlines())
    scenario = f"the history\n{scenario_lines}"
    try:
        answer = bool(piece(operations))
    except PieceError as error:
        return PlayedScenario(scenario, str(error), picture=partial(_drawn, verdict))
    return PlayedScenario(scenario, _problem(answer, verdict), picture=partial(_drawn, verdict))


def _drawn(verdict: Verdict) -> Any:
    """Draw the history at which an answer is wrong, as the title says, with its verdict."""
    return figures.history(
        verdict, title=f"The smallest history that fails ({verdict.model}: {verdict.status})"
    )


def _problem(answer: bool, verdict: Verdict) -> str | None:
    """Return how an answer contradicts the checker, in words, or None."""
    if answer == (verdict.status is Status.ILLEGAL):
        return None
    if answer:
        return (
            f"the function returns {answer}, but {' and '.join(_GUARANTEES)} hold: no client's reads go back."
        )
    return f"the function returns {answer}, but {verdict.model} does not hold. {verdict.explanation}"


EXERCISE: Final = Exercise(
    signature="goes_back(operations) -> bool, where each operation has its 'client', its 'kind' ('read' or "
    "'write'), its 'version' (0 of a read: there was no record), its 'begin' and its 'end' in µs",
    property="The function returns True if and only if some client reads an older version than one that it "
    "read or wrote in an operation that ended before the read began, or at that moment.",
    scenarios=st.builds(
        lambda early, moves: [_Move("cy", None, 1)] * early + moves,
        st.integers(0, 2),  # earlier versions, without which few reads would go back
        st.lists(
            st.builds(
                _Move,
                st.sampled_from(["ann", "bob"]),
                st.sampled_from([0, None, 1, 2]),
                st.sampled_from([1, 1, 2, 3]),
                st.sampled_from([_APART, _APART, 0, 1]),
            ),
            min_size=1,
            max_size=7,
        ),
    ),
    play=_play,
    returns="True or False",
)
