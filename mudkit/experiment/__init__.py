"""Experiments: systems run, compared and scored on the same fleets, items and faults.

A scenario, a system and a seed make a run; runs on the same seeds make a comparison. A task states which
items are useful to whom, and a scoreboard compares what each system takes to do it. Two systems on one seed
get the same devices, moves, outages, items and reads. What parties learnt is computed from what they held.

Importing the package loads none of its modules; the first use of a name loads its module.
"""

import importlib
from typing import TYPE_CHECKING, Any

from mudkit.errors import did_you_mean

if TYPE_CHECKING:
    from mudkit.experiment.adapters import (
        ADAPTERS,
        CANNOT,
        Contrail,
        Direct,
        LastHop,
        Mud,
        Radiator,
        StoreAndForward,
        Sublim,
        own_machine,
    )
    from mudkit.experiment.audience import Audience
    from mudkit.experiment.caching import CacheBench, Shuffled, nodes
    from mudkit.experiment.chains import COMPOSITIONS
    from mudkit.experiment.closed_loop import Dispatcher, DriftAlarm, close_the_loop, generate_policy, mine
    from mudkit.experiment.commuters import Accident, Commuters
    from mudkit.experiment.comparison import (
        GAINS,
        LABELS,
        Comparison,
        Scoreboard,
        compare,
        front,
        pareto,
        scoreboard,
    )
    from mudkit.experiment.journal import Journal
    from mudkit.experiment.order_checks import PAIRS, PROMISES, SAME, commuting, orders
    from mudkit.experiment.pairs import PartyView, PartyViews, Seen, party_views
    from mudkit.experiment.privacy import contacts, disclosed, knowledge, learnt, shown
    from mudkit.experiment.runs import MEASURES, OF_DEVICES, Run, by_device, run
    from mudkit.experiment.tasks import (
        FRIENDS_NEARBY,
        NEWS,
        PHOTOS,
        TASKS,
        TRAFFIC,
        WARD,
        Interest,
        Item,
        Scenario,
        Task,
    )
    from mudkit.experiment.testbed import Adapter, Testbed
    from mudkit.experiment.traffic import Traffic
    from mudkit.experiment.ward import Ward, pulses

_NAMES = {
    "adapters": (
        "ADAPTERS", "CANNOT", "Contrail", "Direct", "LastHop", "Mud", "Radiator", "StoreAndForward",
        "Sublim", "own_machine",
    ),
    "audience": ("Audience",),
    "caching": ("CacheBench", "Shuffled", "nodes"),
    "chains": ("COMPOSITIONS",),
    "closed_loop": ("Dispatcher", "DriftAlarm", "close_the_loop", "generate_policy", "mine"),
    "commuters": ("Accident", "Commuters"),
    "comparison": (
        "Comparison", "GAINS", "LABELS", "Scoreboard", "compare", "front", "pareto", "scoreboard",
    ),
    "journal": ("Journal",),
    "order_checks": ("PAIRS", "PROMISES", "SAME", "commuting", "orders"),
    "pairs": ("PartyView", "PartyViews", "Seen", "party_views"),
    "privacy": ("contacts", "disclosed", "knowledge", "learnt", "shown"),
    "runs": ("MEASURES", "OF_DEVICES", "Run", "by_device", "run"),
    "tasks": (
        "FRIENDS_NEARBY", "Interest", "Item", "NEWS", "PHOTOS", "Scenario", "TASKS", "TRAFFIC",
        "Task", "WARD",
    ),
    "testbed": ("Adapter", "Testbed"),
    "traffic": ("Traffic",),
    "ward": ("Ward", "pulses"),
}  # fmt: skip
_MODULES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "ADAPTERS",
    "CANNOT",
    "COMPOSITIONS",
    "FRIENDS_NEARBY",
    "GAINS",
    "LABELS",
    "MEASURES",
    "NEWS",
    "OF_DEVICES",
    "PAIRS",
    "PHOTOS",
    "PROMISES",
    "SAME",
    "TASKS",
    "TRAFFIC",
    "WARD",
    "Accident",
    "Adapter",
    "Audience",
    "CacheBench",
    "Commuters",
    "Comparison",
    "Contrail",
    "Direct",
    "Dispatcher",
    "DriftAlarm",
    "Interest",
    "Item",
    "Journal",
    "LastHop",
    "Mud",
    "PartyView",
    "PartyViews",
    "Radiator",
    "Run",
    "Scenario",
    "Scoreboard",
    "Seen",
    "Shuffled",
    "StoreAndForward",
    "Sublim",
    "Task",
    "Testbed",
    "Traffic",
    "Ward",
    "by_device",
    "close_the_loop",
    "commuting",
    "compare",
    "contacts",
    "disclosed",
    "front",
    "generate_policy",
    "knowledge",
    "learnt",
    "mine",
    "nodes",
    "orders",
    "own_machine",
    "pareto",
    "party_views",
    "pulses",
    "run",
    "scoreboard",
    "shown",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    hint = (
        "" if name.startswith("_") else f"; {did_you_mean(name, __all__, otherwise='dir() lists all names')}"
    )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}", name=name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
