"""The exercise of chapter 03: say whether a client's reads go back.

A client is never returned an old version of a record after it has seen a newer one (Mobius 4.1), be it one
that it read or one that it wrote: monotonic reads and read-your-writes. But a client may have several
operations under way, and those may cross.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from hypothesis import strategies as st

from mudkit import figures
from mudkit.consistency import History, Status, Verdict, check
from mudkit.exercises.judging import Exercise, PieceError, Played

__all__ = ["EXERCISE"]

_COLUMNS: Final = 8
"""From one operation's beginning to the next one's: a version has one digit, so the longest name fits."""
_GUARANTEES: Final = ("monotonic-reads", "read-your-writes")


class _Move(NamedTuple):
    """An operation; each begins after the one before it."""

    client: str
    back: int | None
    """A read, of the newest version but so many; None: a write."""
    length: int
    """While it is under way, so many others begin, itself included."""


def _written(moves: Sequence[_Move]) -> str:
    """Write moves down in the notation; a client has a line more where operations are under way at once."""
    lines: list[tuple[str, str]] = []
    newest = 0
    for number, move in enumerate(moves):
        newest += move.back is None
        version = newest if move.back is None else max(0, newest - move.back)
        name = f"{'w' if move.back is None else 'r'}{version}@{version}"
        if move.length > 1:
            name = f"[{name}".ljust(move.length * _COLUMNS - 3) + "]"
        begin = (number + 1) * _COLUMNS
        free = (at for at, (client, line) in enumerate(lines) if client == move.client and len(line) < begin)
        at = next(free, len(lines))
        lines[at : at + 1] = [(move.client, (lines[at][1] if at < len(lines) else f"{move.client}:"))]
        lines[at] = (move.client, lines[at][1].ljust(begin) + name)
    return "\n".join(line for _, line in sorted(lines, key=lambda each: each[0]))


def _play(piece: Callable[..., Any], moves: Sequence[_Move]) -> Played:
    text = _written(moves)
    history = History.parse(text)
    operations = [
        {
            "client": each.client,
            "kind": each.kind.value,
            "version": each.content.version,
            "begin": each.invoked_us,
            "end": each.answered_us,
        }
        for each in history
    ]
    verdicts = [check(history, model) for model in _GUARANTEES]
    verdict = next((each for each in verdicts if each.status is Status.ILLEGAL), verdicts[0])
    scenario_lines = "\n".join(f"    {line}" for line in text.splitlines())
    scenario = f"the history\n{scenario_lines}"
    try:
        answer = bool(piece(operations))
    except PieceError as error:
        return Played(scenario, str(error), picture=partial(_drawn, verdict))
    return Played(scenario, _problem(answer, verdict), picture=partial(_drawn, verdict))


def _drawn(verdict: Verdict) -> Any:
    return figures.history(
        verdict, title=f"The smallest history that fails ({verdict.model}: {verdict.status})"
    )


def _problem(answer: bool, verdict: Verdict) -> str | None:
    if answer == (verdict.status is Status.ILLEGAL):
        return None
    if answer:
        return f"the function says {answer}, but {' and '.join(_GUARANTEES)} hold: no client's reads go back."
    return f"the function says {answer}, but {verdict.model} does not hold. {verdict.explanation}"


EXERCISE: Final = Exercise(
    signature="goes_back(operations) -> bool, where each operation has its 'client', its 'kind' ('read' or "
    "'write'), its 'version' (a read's 0: there was no record), its 'begin' and its 'end' in µs",
    property="The function says True just when some client reads an older version than one that it had "
    "read or written, by an operation that was over before the read began.",
    scenarios=st.builds(
        lambda early, moves: [_Move("cy", None, 1)] * early + moves,
        st.integers(0, 2),  # something to read, or few reads would go back
        st.lists(
            st.builds(
                _Move,
                st.sampled_from(["ann", "bob"]),
                st.sampled_from([0, None, 1, 2]),
                st.sampled_from([1, 1, 2, 3]),
            ),
            min_size=1,
            max_size=7,
        ),
    ),
    play=_play,
    returns="True or False",
)
