"""Experiments: a scenario and a system and a seed make a run; runs on the same seeds make a comparison.

Two systems on one seed see the same devices, moves, outages, items and reads, so what differs between them
is the systems'. What parties learnt is computed from what they held.
"""

from mudkit.experiment.comparison import Comparison, compare
from mudkit.experiment.privacy import contacts, learnt, shown
from mudkit.experiment.running import Run, System, run
from mudkit.experiment.scenario import Scenario

__all__ = ["Comparison", "Run", "Scenario", "System", "compare", "contacts", "learnt", "run", "shown"]
