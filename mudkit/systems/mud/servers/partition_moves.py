"""Moves of partitions that were called at the naming machine, until what they need is known.

A move needs the number of its table, which a gateway knows, and a processor that answers. It is refused if it
has not both in time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from msgspec import UNSET

from mudkit.checks import unusable
from mudkit.errors import MudkitError, ParameterError
from mudkit.events import Complete, Effect, Send, SetTimer
from mudkit.systems.mud.messages.naming import Probe, TableAnswer, TableQuestion
from mudkit.systems.mud.messages.parts import decode_error
from mudkit.systems.mud.operations import Move

MOVE: Final = "move"
"""Timer while moves are open."""
MOVE_US: Final = 10_000_000
"""Time after which a move is refused."""
_AGAIN_US: Final = 1_000_000
"""Time until the questions are repeated."""


@dataclass
class OpenMove:
    """Move that was called at a time; ``number`` is that of the table, None: it is not known yet."""

    move: Move
    called_us: int
    number: int | None = None


class PartitionMoves:
    """Open moves, by the number of their operation; any of the ``gateways`` knows the tables."""

    def __init__(self, gateways: Sequence[str]) -> None:
        self._gateways = gateways
        self._turn = 0
        """Counts on with each question, to the next gateway."""
        self._open: dict[int, OpenMove] = {}

    def begin(self, now_us: int, op_id: int, move: Move) -> Sequence[Effect]:
        """Add a move, and ask for what it needs."""
        timer = () if self._open else (SetTimer(MOVE, _AGAIN_US),)
        self._open[op_id] = opened = OpenMove(move, now_us)
        return [*self._ask(now_us, opened), *timer]

    def _ask(self, now_us: int, opened: OpenMove) -> Sequence[Effect]:
        """Ask the next gateway for the table, unless it is known, and whether the processor answers."""
        effects: list[Effect] = [Send(opened.move.processor, Probe(now_us))]
        if opened.number is None:
            gateway = self._gateways[self._turn % len(self._gateways)]
            self._turn += 1
            effects.append(Send(gateway, TableQuestion(opened.move.table, now_us)))
        return effects

    def record_table(self, answer: TableAnswer) -> Sequence[Effect]:
        """Record what a gateway knows of a table; refuse moves of a table or partition that is not there."""
        effects: list[Effect] = []
        for op_id, opened in list(self._open.items()):
            if opened.move.table != answer.name or answer.sent_us < opened.called_us:
                continue
            error: MudkitError | None = None if answer.error is UNSET else decode_error(answer.error)
            if error is None and opened.move.partition >= answer.partitions:
                expected = (
                    f"at most {answer.partitions - 1}: the table has {answer.partitions} partitions, from 0"
                )
                error = unusable("partition", opened.move.partition, expected)
            if error is None:
                opened.number = answer.number
                continue
            del self._open[op_id]
            effects.append(Complete(op_id, error=error))
        return effects

    def take_ready(self, answered_us: dict[str, int]) -> list[tuple[int, OpenMove]]:
        """Remove and return the moves that have all they need.

        ``answered_us`` has the time of the last question that each processor has answered.
        """
        ready = [
            (op_id, opened)
            for op_id, opened in self._open.items()
            if opened.number is not None and answered_us.get(opened.move.processor, -1) >= opened.called_us
        ]
        for op_id, _ in ready:
            del self._open[op_id]
        return ready

    def ask_again(self, now_us: int) -> Sequence[Effect]:
        """Ask again for what open moves need; refuse those whose time is over."""
        effects: list[Effect] = []
        for op_id, opened in list(self._open.items()):
            if now_us - opened.called_us < MOVE_US:
                effects += self._ask(now_us, opened)
                continue
            del self._open[op_id]
            who = "gateway" if opened.number is None else "processor"
            error = ParameterError(
                f"The {who} has not answered in time, so that nothing was moved.",
                where=who,
                found="no answer" if who == "gateway" else repr(opened.move.processor),
                expected=f"a {who} that answers within {MOVE_US // 1_000_000} s",
                remedy="move it to another processor" if who == "processor" else "start a gateway",
            )
            effects.append(Complete(op_id, error=error))
        return [*effects, SetTimer(MOVE, _AGAIN_US)] if self._open else effects
