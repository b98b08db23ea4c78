"""The scoreboard: what each system takes to do the same tasks."""

from mudkit.experiment.scoreboard._by_device import OF_DEVICES, by_device
from mudkit.experiment.scoreboard._disclosed import disclosed
from mudkit.experiment.scoreboard._knowledge import knowledge
from mudkit.experiment.scoreboard.board import Scoreboard, pareto, scoreboard
from mudkit.experiment.scoreboard.entry import MEASURES, Entry, play

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
