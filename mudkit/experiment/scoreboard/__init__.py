"""The scoreboard: what each system takes to do the same tasks."""

from mudkit.experiment.scoreboard.board import Scoreboard, pareto, scoreboard
from mudkit.experiment.scoreboard.by_device import OF_DEVICES, by_device
from mudkit.experiment.scoreboard.disclosed import disclosed
from mudkit.experiment.scoreboard.entry import MEASURES, Entry, play
from mudkit.experiment.scoreboard.knowledge import knowledge

__all__ = [
    "MEASURES",
    "OF_DEVICES",
    "Entry",
    "Scoreboard",
    "by_device",
    "disclosed",
    "knowledge",
    "pareto",
    "play",
    "scoreboard",
]
