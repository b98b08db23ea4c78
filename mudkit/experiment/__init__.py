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
    from mudkit.experiment.adapters import ADAPTERS, CANNOT
    from mudkit.experiment.adapters.contrail import Contrail
    from mudkit.experiment.adapters.lasthop import LastHop
    from mudkit.experiment.adapters.mud import Mud
    from mudkit.experiment.adapters.own import own_machine
    from mudkit.experiment.adapters.radiator import Radiator
    from mudkit.experiment.adapters.store_and_forward import Direct, StoreAndForward
    from mudkit.experiment.adapters.sublim import Sublim
    from mudkit.experiment.audience import Audience, AudienceRun
    from mudkit.experiment.caching import CacheBench, CachingRun, Shuffled, nodes
    from mudkit.experiment.chains import COMPOSITIONS
    from mudkit.experiment.closed_loop import Dispatcher, DriftAlarm, close_the_loop, generate_policy, mine
    from mudkit.experiment.commuters import Accident, Commuters, CommutersRun
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
    from mudkit.experiment.traffic import Traffic, TrafficRun
    from mudkit.experiment.ward import Ward, WardRun, pulses

_NAMES = {
    "adapters": (
        "ADAPTERS", "CANNOT", "Contrail", "Direct", "LastHop", "Mud", "Radiator", "StoreAndForward",
        "Sublim", "own_machine",
    ),
    "audience": ("Audience", "AudienceRun"),
    "caching": ("CacheBench", "CachingRun", "Shuffled", "nodes"),
    "chains": ("COMPOSITIONS",),
    "closed_loop": ("Dispatcher", "DriftAlarm", "close_the_loop", "generate_policy", "mine"),
    "commuters": ("Accident", "Commuters", "CommutersRun"),
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
    "traffic": ("Traffic", "TrafficRun"),
    "ward": ("Ward", "WardRun", "pulses"),
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
    "AudienceRun",
    "CacheBench",
    "CachingRun",
    "Commuters",
    "CommutersRun",
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
    "TrafficRun",
    "Ward",
    "WardRun",
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
