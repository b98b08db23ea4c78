"""Adapters: how each system runs in an experiment, one module per system.

One class runs the system alone, where it chooses the items that each phone wants; another one,
``…Part``, runs it as a part of a chain of two systems.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from mudkit.experiment.adapters.contrail import Contrail
from mudkit.experiment.adapters.lasthop import LastHop
from mudkit.experiment.adapters.mud import Mud
from mudkit.experiment.adapters.own import own_machine
from mudkit.experiment.adapters.radiator import Radiator
from mudkit.experiment.adapters.store_and_forward import StoreAndForward
from mudkit.experiment.adapters.sublim import Sublim
from mudkit.experiment.adapters.system import System
from mudkit.experiment.testbed import Adapter, Testbed

__all__ = [
    "ADAPTERS",
    "UNSUPPORTED",
    "Contrail",
    "LastHop",
    "Mud",
    "Radiator",
    "StoreAndForward",
    "Sublim",
    "own_machine",
]

_ALL: Final[tuple[type[System], ...]] = (StoreAndForward, Mud, LastHop, Contrail, Radiator, Sublim)
ADAPTERS: Final[dict[str, Callable[[Testbed], Adapter]]] = {system.label: system for system in _ALL}
"""The systems that the scoreboard compares, by name; the first is the baseline."""
UNSUPPORTED: Final[dict[str, Mapping[str, str]]] = {system.label: system.unsupported for system in _ALL}
"""Sentences on what a system cannot express of a task, by system and task; no entry: nothing."""
