"""Exercises of the chapters: random scenarios, and the smallest one in which a solution fails."""

from typing import TYPE_CHECKING, Any

from mudkit._lazy import lazy_exports

if TYPE_CHECKING:
    from mudkit.exercises.grading import grade
    from mudkit.exercises.judging import Exercise, Judgement, PlayedScenario
    from mudkit.exercises.parameters import check_parameters
    from mudkit.exercises.register import EXERCISES, judge
else:
    _load, __dir__ = lazy_exports(__name__)

    def __getattr__(name: str) -> Any:
        """Return a public name, or what files of judges for version 0.2 import by its name then."""
        return _load({"Played": "PlayedScenario", "Verdict": "Judgement"}.get(name, name))


__all__ = [
    "EXERCISES",
    "Exercise",
    "Judgement",
    "PlayedScenario",
    "check_parameters",
    "grade",
    "judge",
]
