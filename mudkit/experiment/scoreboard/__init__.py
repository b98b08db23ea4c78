"""The scoreboard: tasks that every system can be given, and what each takes to do them."""

from mudkit.experiment.scoreboard.board import Scoreboard, pareto, scoreboard
from mudkit.experiment.scoreboard.by_device import OF_DEVICES, by_device
from mudkit.experiment.scoreboard.disclosed import disclosed
from mudkit.experiment.scoreboard.entrants import CANNOT, ENTRANTS
from mudkit.experiment.scoreboard.entry import MEASURES, Entry, play
from mudkit.experiment.scoreboard.interest import Interest
from mudkit.experiment.scoreboard.knowledge import knowledge
from mudkit.experiment.scoreboard.task import Item, Task
from mudkit.experiment.scoreboard.tasks import FRIENDS_NEARBY, NEWS, PHOTOS, TASKS, TRAFFIC, WARD
from mudkit.experiment.scoreboard.testbed import APP, Adapter, Testbed

__all__ = [
    "APP",
    "CANNOT",
    "ENTRANTS",
    "FRIENDS_NEARBY",
    "MEASURES",
    "NEWS",
    "OF_DEVICES",
    "PHOTOS",
    "TASKS",
    "TRAFFIC",
    "WARD",
    "Adapter",
    "Entry",
    "Interest",
    "Item",
    "Scoreboard",
    "Task",
    "Testbed",
    "by_device",
    "disclosed",
    "knowledge",
    "pareto",
    "play",
    "scoreboard",
]
