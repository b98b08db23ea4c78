"""Experiments: a scenario and a system and a seed make a run; runs on the same seeds make a comparison.

Two systems on one seed see the same devices, moves, outages, items and reads, so what differs between them
is the systems'. What parties learnt is computed from what they held.
"""

from typing import TYPE_CHECKING

from mudkit._lazy import lazy_exports

if TYPE_CHECKING:
    from mudkit.experiment._party_views import party_views
    from mudkit.experiment.comparison import Comparison, compare
    from mudkit.experiment.contrail_pair import ContrailPair, item_latencies_s, receiver_radio_mw
    from mudkit.experiment.matching import (
        MATCHING_METHODS,
        PAPER_CURVE,
        READ_PREDICATES,
        WRITER_PREDICATE,
        MatchingLoad,
        matching_times,
    )
    from mudkit.experiment.privacy import contacts, learnt, shown
    from mudkit.experiment.running import Run, System, run
    from mudkit.experiment.scenario import Scenario
else:
    __getattr__, __dir__ = lazy_exports(__name__)

__all__ = [
    "MATCHING_METHODS",
    "PAPER_CURVE",
    "READ_PREDICATES",
    "WRITER_PREDICATE",
    "Comparison",
    "ContrailPair",
    "MatchingLoad",
    "Run",
    "Scenario",
    "System",
    "compare",
    "contacts",
    "item_latencies_s",
    "learnt",
    "matching_times",
    "party_views",
    "receiver_radio_mw",
    "run",
    "shown",
]
