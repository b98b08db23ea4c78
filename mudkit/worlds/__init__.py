"""Worlds of the chapters: fleets that move and are measured, run with one system under several settings.

A world is a frozen set of parameters. ``run(seed, …)`` plays it in a :class:`~mudkit.Lab` and returns what a
chapter measures. A parameter of the wrong kind or out of range raises a
:class:`~mudkit.errors.ParameterError`.

Importing the package loads none of its modules; the first use of a name loads its module.
"""

from typing import TYPE_CHECKING

from mudkit._lazy import lazy_exports

if TYPE_CHECKING:
    from mudkit.worlds.apps import PhoneApps
    from mudkit.worlds.audience import Audience, AudienceRun
    from mudkit.worlds.caching import CacheBench, CachingRun, ShuffledLabels
    from mudkit.worlds.commuters import (
        Commuters,
        CommutersRun,
        DriftAlarm,
        close_the_loop,
        generate_policy,
        label_run,
    )
    from mudkit.worlds.crew import Crew, SyncEngine
    from mudkit.worlds.inboxes import Inboxes, InboxesRun
    from mudkit.worlds.journal import Journal
    from mudkit.worlds.learning_loop import LearningDays, LearningDaysRun
    from mudkit.worlds.matching import (
        MATCHING_METHODS,
        PAPER_CURVE,
        READ_PREDICATES,
        WRITER_PREDICATE,
        MatchingLoad,
        matching_times,
    )
    from mudkit.worlds.news import NewsReader
    from mudkit.worlds.traffic import Traffic, TrafficRun
    from mudkit.worlds.ward import Ward, WardRun, pulses
else:
    __getattr__, __dir__ = lazy_exports(__name__)

__all__ = [
    "MATCHING_METHODS",
    "PAPER_CURVE",
    "READ_PREDICATES",
    "WRITER_PREDICATE",
    "Audience",
    "AudienceRun",
    "CacheBench",
    "CachingRun",
    "Commuters",
    "CommutersRun",
    "Crew",
    "DriftAlarm",
    "Inboxes",
    "InboxesRun",
    "Journal",
    "LearningDays",
    "LearningDaysRun",
    "MatchingLoad",
    "NewsReader",
    "PhoneApps",
    "ShuffledLabels",
    "SyncEngine",
    "Traffic",
    "TrafficRun",
    "Ward",
    "WardRun",
    "close_the_loop",
    "generate_policy",
    "label_run",
    "matching_times",
    "pulses",
]
