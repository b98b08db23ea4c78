"""Experiments: systems run, compared and scored on the same fleets, items and faults.

A scenario, a system and a seed make a run; runs on the same seeds make a comparison. A task states which
items are useful to whom, and a scoreboard compares what each system takes to do it. Two systems on one seed
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
    from mudkit.experiment.adapters.store_and_forward import Direct, StoreAndForward
    from mudkit.experiment.adapters.sublim import Sublim
    from mudkit.experiment.audience import Audience, AudienceRun
    from mudkit.experiment.caching import CacheBench, CachingRun, ShuffledLabels, tree_nodes
    from mudkit.experiment.chains import COMPOSITIONS
    from mudkit.experiment.commuters import (
        Commuters,
        CommutersRun,
        DriftAlarm,
        close_the_loop,
        generate_policy,
        label_run,
    )
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
    from mudkit.experiment.journal import Journal
    from mudkit.experiment.matching import (
        MATCHING_METHODS,
        PAPER_CURVE,
        READ_PREDICATES,
        WRITER_PREDICATE,
        MatchingLoad,
        matching_times,
    )
    from mudkit.experiment.news import NewsReader
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
        Scenario,
        Task,
    )
    from mudkit.experiment.testbed import Adapter, Testbed
    from mudkit.experiment.traffic import Traffic, TrafficRun
    from mudkit.experiment.ward import Ward, WardRun, pulses
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
    "MATCHING_METHODS",
    "MEASURES",
    "NEWS",
    "PAIRS",
    "PAPER_CURVE",
    "PHOTOS",
    "PROMISES",
    "READ_PREDICATES",
    "SAME_AS_FIRST",
    "TASKS",
    "TRAFFIC",
    "UNSUPPORTED",
    "WARD",
    "WRITER_PREDICATE",
    "Adapter",
    "Afternoon",
    "AfternoonRun",
    "Audience",
    "AudienceRun",
    "CacheBench",
    "CachingRun",
    "Commuters",
    "CommutersRun",
    "Comparison",
    "Contrail",
    "ContrailPair",
    "Direct",
    "DriftAlarm",
    "Interest",
    "Item",
    "Journal",
    "LastHop",
    "MatchingLoad",
    "Mud",
    "NewsReader",
    "PartyView",
    "PartyViews",
    "Radiator",
    "Run",
    "Scenario",
    "Scoreboard",
    "ShuffledLabels",
    "StoreAndForward",
    "Sublim",
    "Task",
    "Testbed",
    "Traffic",
    "TrafficRun",
    "Visibility",
    "Ward",
    "WardRun",
    "album_keys",
    "by_device",
    "check_orders",
    "cleartext_fields",
    "close_the_loop",
    "commutativity",
    "compare",
    "contacts",
    "disclosures",
    "generate_policy",
    "interest_costs",
    "item_latencies_s",
    "knowledge",
    "label_run",
    "matching_times",
    "own_machine",
    "pareto_front",
    "party_knowledge",
    "party_views",
    "pulses",
    "receiver_radio_mw",
    "recorded_task",
    "run",
    "scoreboard",
    "sweep",
    "tree_nodes",
]
