"""Judges of what readers write in the chapters: random scenarios, and the smallest one that fails."""

from mudkit.exercises.grading import grade
from mudkit.exercises.judging import Exercise, Played, Verdict
from mudkit.exercises.register import EXERCISES, judge

__all__ = ["EXERCISES", "Exercise", "Played", "Verdict", "grade", "judge"]
