"""Tasks: what a system is to do for the users of a fleet, and the testbed on which it does it."""

from mudkit.experiment.tasks.catalogue import FRIENDS_NEARBY, NEWS, PHOTOS, TASKS, TRAFFIC, WARD
from mudkit.experiment.tasks.interest import Interest
from mudkit.experiment.tasks.task import Item, Task
from mudkit.experiment.tasks.testbed import APP, Adapter, Testbed

__all__ = [
    "APP",
    "FRIENDS_NEARBY",
    "NEWS",
    "PHOTOS",
    "TASKS",
    "TRAFFIC",
    "WARD",
    "Adapter",
    "Interest",
    "Item",
    "Task",
    "Testbed",
]
