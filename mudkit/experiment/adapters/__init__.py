"""Adapters: how each system does what an experiment asks of it, in a module a system.

An experiment asks in three ways. A run (:func:`mudkit.experiment.run`) has items for receivers that it names;
a task (:mod:`mudkit.experiment.tasks`) has items of which each phone wants some; a composition
(:mod:`mudkit.experiment.compositions`) puts one system behind another, each a hop of a chain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from mudkit.experiment.adapters.contrail import Contrail, ContrailAdapter, ContrailHop
from mudkit.experiment.adapters.lasthop import LastHop, LastHopAdapter, LastHopHop
from mudkit.experiment.adapters.mud import MudAdapter, MudHop
from mudkit.experiment.adapters.own import own_machine
from mudkit.experiment.adapters.radiator import Radiator, RadiatorAdapter, RadiatorHop
from mudkit.experiment.adapters.store_and_forward import Direct, StoreAndForward, ToEveryone
from mudkit.experiment.adapters.sublim import Sublim, SublimAdapter, SublimHop
from mudkit.experiment.testbed import Adapter, Testbed

__all__ = [
    "ADAPTERS",
    "CANNOT",
    "Contrail",
    "ContrailAdapter",
    "ContrailHop",
    "Direct",
    "LastHop",
    "LastHopAdapter",
    "LastHopHop",
    "MudAdapter",
    "MudHop",
    "Radiator",
    "RadiatorAdapter",
    "RadiatorHop",
    "StoreAndForward",
    "Sublim",
    "SublimAdapter",
    "SublimHop",
    "ToEveryone",
    "own_machine",
]

_ALL: Final = (ToEveryone, MudAdapter, LastHopAdapter, ContrailAdapter, RadiatorAdapter, SublimAdapter)
ADAPTERS: Final[dict[str, Callable[[Testbed], Adapter]]] = {each.name: each for each in _ALL}
"""The systems that the scoreboard compares, by name; the first is the baseline."""
CANNOT: Final[dict[str, Mapping[str, str]]] = {each.name: each.cannot for each in _ALL}
"""What a system cannot say of a task, in a sentence, by system and task; nothing: all of it."""
