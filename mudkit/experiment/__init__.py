"""Experiments: systems run, compared and scored on the same fleets, items and faults.

A task states which items are useful to whom in a scenario. A task, a system and a seed make a run, and a
scoreboard compares what each system takes to do the task. Two systems on one seed
get the same devices, moves, outages, items and reads. What parties learnt is computed from what they held.
A parameter of the wrong kind or out of range raises a :class:`~mudkit.errors.ParameterError`.

Importing the package loads none of its modules; the first use of a name loads its module.
"""

from typing import TYPE_CHECKING

from mudkit._lazy import lazy_exports

if TYPE_CHECKING:
    from mudkit.experiment.adapters import ADAPTERS, UNSUPPORTED
    from mudkit.experiment.adapters.contrail import Contrail
    from mudkit.experiment.adapters.lasthop import LastHop
    from mudkit.experiment.adapters.mud import Mud
    from mudkit.experiment.adapters.own import own_machine
    from mudkit.experiment.adapters.radiator import Radiator
    from mudkit.experiment.adapters.store_and_forward import StoreAndForward
    from mudkit.experiment.adapters.sublim import Sublim
    from mudkit.experiment.chains import COMPOSITIONS
    from mudkit.experiment.comparison import (
        GAINS,
        LABELS,
        Comparison,
        Scoreboard,
        compare,
        pareto_front,
        scoreboard,
        sweep,
    )
    from mudkit.experiment.contrail_scenarios import (
        Afternoon,
        AfternoonRun,
        ContrailPair,
        PartyView,
        PartyViews,
        Visibility,
        album_keys,
        interest_costs,
        item_latencies_s,
        party_views,
        receiver_radio_mw,
    )
    from mudkit.experiment.order_checks import PAIRS, PROMISES, SAME_AS_FIRST, check_orders, commutativity
    from mudkit.experiment.privacy import cleartext_fields, contacts, disclosures, knowledge, party_knowledge
    from mudkit.experiment.recorded import recorded_task
    from mudkit.experiment.runs import DEVICE_MEASURES, FATES, MEASURES, Run, by_device, run
    from mudkit.experiment.tasks import (
        FRIENDS_NEARBY,
        NEWS,
        PHOTOS,
        TASKS,
        TRAFFIC,
        WARD,
        Interest,
        Item,
        Task,
    )
    from mudkit.experiment.testbed import Adapter, Testbed
    from mudkit.scenario import Scenario
else:
    __getattr__, __dir__ = lazy_exports(__name__)

__all__ = [
    "ADAPTERS",
    "COMPOSITIONS",
    "DEVICE_MEASURES",
    "FATES",
    "FRIENDS_NEARBY",
    "GAINS",
    "LABELS",
    "MEASURES",
    "NEWS",
    "PAIRS",
    "PHOTOS",
    "PROMISES",
    "SAME_AS_FIRST",
    "TASKS",
    "TRAFFIC",
    "UNSUPPORTED",
    "WARD",
    "Adapter",
    "Afternoon",
    "AfternoonRun",
    "Comparison",
    "Contrail",
    "ContrailPair",
    "Interest",
    "Item",
    "LastHop",
    "Mud",
    "PartyView",
    "PartyViews",
    "Radiator",
    "Run",
    "Scenario",
    "Scoreboard",
    "StoreAndForward",
    "Sublim",
    "Task",
    "Testbed",
    "Visibility",
    "album_keys",
    "by_device",
    "check_orders",
    "cleartext_fields",
    "commutativity",
    "compare",
    "contacts",
    "disclosures",
    "interest_costs",
    "item_latencies_s",
    "knowledge",
    "own_machine",
    "pareto_front",
    "party_knowledge",
    "party_views",
    "receiver_radio_mw",
    "recorded_task",
    "run",
    "scoreboard",
    "sweep",
]
