"""The exercises, by chapter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from mudkit.checks import check_arguments
from mudkit.errors import ParameterError, did_you_mean
from mudkit.exercises import (
    cache_policies,
    context_propagation,
    device_service,
    last_hop,
    learning_loop,
    mud_tables,
    scoreboard,
    sender_filters,
    sequential_views,
    start_here,
    stateful_policies,
    sync_engine,
    traces_on_spark,
    write_batching,
    writer_predicates,
)
from mudkit.exercises.judging import WITHIN_S, Exercise, Judgement, clear_diagrams, judged

EXERCISES: Final[dict[str, Exercise]] = {
    "00_start_here": start_here.EXERCISE,
    "01_mud_tables": mud_tables.EXERCISE,
    "02_writer_predicates": writer_predicates.EXERCISE,
    "03_fork_sequential_views": sequential_views.EXERCISE,
    "04_last_hop": last_hop.EXERCISE,
    "05_sender_filters": sender_filters.EXERCISE,
    "06_context_propagation": context_propagation.EXERCISE,
    "07_stateful_policies": stateful_policies.EXERCISE,
    "08_traces_on_spark": traces_on_spark.EXERCISE,
    "09_cache_policies": cache_policies.EXERCISE,
    "10_write_batching": write_batching.EXERCISE,
    "11_scoreboard": scoreboard.EXERCISE,
    "12_sync_engine": sync_engine.EXERCISE,
    "13_device_service": device_service.EXERCISE,
    "14_learning_loop": learning_loop.EXERCISE,
}
"""Exercise of each chapter, by the chapter's name."""


@check_arguments(types=False)
def judge(chapter: str | Exercise, piece: Callable[..., Any], *, within_s: float = WITHIN_S) -> Judgement:
    """Check a reader's function against the property of a chapter in random scenarios.

    The scenarios are the same at every call. A function that does not end one of them within 10 s, or all of
    them within the time limit, has failed; it is interrupted in the main thread, where cells run. Diagrams of
    older verdicts disappear from their cells.

    Parameters
    ----------
    chapter : str or Exercise
        Name of a chapter, for instance ``00_start_here``, or an exercise of your own.
    piece : callable
        The function that the exercise asks for.
    within_s : float
        Time limit of all scenarios, in seconds of processor time; a function that waits has six times as
        long.

    Returns
    -------
    Judgement
        Whether it passed, and otherwise the smallest scenario that fails, with its diagram.

    Raises
    ------
    ParameterError
        There is no such chapter, the piece cannot be called, or the time limit is not positive.
    """
    exercise = chapter if isinstance(chapter, Exercise) else EXERCISES.get(chapter)
    if exercise is None:
        raise ParameterError(
            "There is no exercise for this chapter.",
            where="chapter",
            found=repr(chapter),
            expected=", ".join(EXERCISES),
            remedy=did_you_mean(chapter, EXERCISES),
        )
    if not callable(piece):
        raise ParameterError(
            "Expected a function.",
            where="piece",
            found=repr(piece),
            expected=exercise.signature,
        )
    if not within_s > 0:
        raise ParameterError(
            "The time limit is not positive.", where="within_s", found=repr(within_s), expected="seconds"
        )
    clear_diagrams()
    return judged(chapter if isinstance(chapter, str) else exercise.piece(), exercise, piece, within_s)
