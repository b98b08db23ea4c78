"""Errors of invalid experiments; test_plans.py covers the numbers of plans."""

from __future__ import annotations

from functools import partial
from math import nan

import numpy as np
import pandas as pd
import pytest

from mudkit import Lab
from mudkit.errors import MudkitError
from mudkit.experiment import (
    NEWS,
    TRAFFIC,
    WARD,
    Afternoon,
    Comparison,
    Interest,
    Mud,
    Scenario,
    StoreAndForward,
    Sublim,
    check_orders,
    compare,
    contacts,
    pareto_front,
    party_views,
    run,
    scoreboard,
    sweep,
)
from mudkit.experiment.adapters.system import meant_by
from mudkit.sources.workloads import Poisson, TripStarts, WakingReads
from mudkit.systems.contrail import Item
from mudkit.worlds import Audience, Crew, DriftAlarm, Inboxes, NewsReader, SyncEngine, Ward
from mudkit.worlds.matching import MatchingLoad, matching_times

TASKS = [TRAFFIC.over(devices=5, hours=0.3), WARD.over(devices=2, hours=0.05)]
SYSTEMS = {"MUD": Mud, "SUBLIM": Sublim}
SMALL = NEWS.over(devices=2, hours=0.1)
MEASURED = pd.DataFrame({"system": ["a", "b"], "useful_share": [1.0, 0.5], "radio_j": [9.0, 1.0]})
COMPARED = Comparison(pd.DataFrame({"system": ["a", "b"], "seed": [1, 1], "x": np.ones(2)}), "a")
PLACE = Item({"loc": (37.5, -122.0)}, b"help me")


def where(parameter, *words):
    """Return a pattern of an error about this parameter with these words."""
    return rf"(?s)where: +{parameter}\b" + "".join(f".*{word}" for word in words)


REFUSED = [
    (partial(Afternoon().run, 7, "moon"), "sender, in clear, all, cloud"),
    (partial(Audience().run, 1, "nobody"), "everyone"),
    (partial(Ward().run, 1, "best"), "no such policy"),
    (partial(NewsReader().compare, {}), "no policy"),
    (partial(Crew().compare, {}), where("engines", "one of each")),
    (partial(Crew().compare, {"mine": SyncEngine()}, []), where("engines, seeds", "one of each")),
    (partial(SyncEngine, "everything"), where("listens", "screens")),
    *((partial(DriftAlarm, low, high), where("low|high")) for low, high in ((-0.1, 0.5), (0.5, 0.4), (0.2, 1.1))),
    (partial(DriftAlarm(0.0, 1.0).add, 3, 4), "stale"),
    *((partial(scoreboard, tasks, systems, seeds), pattern) for tasks, systems, seeds, pattern in (
        ([], SYSTEMS, [1], where("tasks")), (TASKS[:1] * 2, SYSTEMS, [1], where("tasks")), (TASKS, {}, [1], where("systems")),
        (TASKS, SYSTEMS, [], where("seeds")), (TASKS, SYSTEMS, [1, 1], where("seeds")),
        (["news"], SYSTEMS, range(1), where("tasks", r"such as \[NEWS, WARD\]")),
        ("news", SYSTEMS, range(1), where("tasks", r"such as \[NEWS, WARD\]")),
        (TASKS[0], SYSTEMS, range(1), where("tasks", r"such as \[NEWS, WARD\]")), (TASKS, ["MUD"], range(1), where("systems", "by name")),
        (TASKS, {"MUD": "MUD"}, range(1), where("system", "the class itself")),
        (TASKS, SYSTEMS, 2, where("seeds", r"range\(10\)")), (TASKS, SYSTEMS, ["one"], where("seeds", "a whole number")),
    )),
    (partial(run, "news", Mud), "a task, such as NEWS"), (partial(run, TASKS[0], "MUD"), r"ADAPTERS\['MUD'\]"),
    (partial(TASKS[0].over, device=3), where("device", "found: +3", "did you mean 'devices'")),
    *((partial(TRAFFIC.over, **{name: value}), where(name)) for name, value in (
        ("battery_j", 150.0), ("queries", Poisson(per_day=4)), ("receivers", 2),
    )),
    (partial(Inboxes().run, 1, "pigeon"), where("system", "relay")),
    *((partial(pareto_front, MEASURED, x, y), "useful_share") for x, y in (
        ("radio_j", "radio_j"), ("up_kb", "radio_j"), ("system", "radio_j"),
    )),
    *((partial(COMPARED.differences, confidence), "between 0 and 1") for confidence in (0, 1, -1, nan, "high")),
    (partial(MatchingLoad, 5, shape="round"), "skewed"), (partial(matching_times, [10], records=0), "records"),
    *((partial(MatchingLoad, **{"subscriptions": 10, "topics": 2} | load), where(*load)) for load in (
        {"subscriptions": 0}, {"topics": -1}, {"seed": -1},
    )),
    (partial(MatchingLoad(10, 2).records, -1), "count"),
    (partial(check_orders, ["MUD and tea"]), "no such composition"), (partial(check_orders, scenarios=0), "scenarios"),
    (partial(meant_by, Interest("item.rank > 3"), [], "most"), "rule"),
    (partial(party_views, PLACE, "loc >"), "incomplete"), (partial(party_views, Item({"at": object()}), "1 = 1"), "metadata"),
    *((partial(party_views, PLACE, "1 = 1", **more), pattern) for more, pattern in (
        ({"item_id": ""}, "the name of an item"), ({"polling_s": 0.0}, where("polling_s")), ({"link": "smoke"}, "kind of link"),
    )),
    *((partial(plan, **{"devices": 6} | wrong), pattern) for plan in (Scenario, Inboxes) for wrong, pattern in (
        ({"devices": 0}, "devices"), ({"size_bytes": -1}, "size_bytes"), ({"hours": 0}, "hours"), ({"hours": "6"}, "hours"),
        ({"hours": nan}, "hours"), ({"expires_s": 0}, "expires_s"), ({"expires_s": "1"}, "expires_s"),
        ({"items": 24}, "Poisson"), ({"reads": WakingReads}, "Poisson"), ({"link": "smoke"}, "link"),
    )),
    *((partial(Inboxes, **{"devices": 6, "mobility": "commute", "queries": TripStarts()} | wrong), pattern) for wrong, pattern in (
        ({"receivers": 6}, "receivers"), ({"receivers": 1.5}, "receivers"), ({"box_km": -1}, "box_km"), ({"window_s": 0}, "window_s"),
        ({"queries": "trips"}, "Poisson"), ({"mobility": None}, "a mobility"), ({"battery_j": 0}, "battery_j"),
    )),
    *((partial(scoreboard, [SMALL], systems, [1]), pattern) for systems, pattern in (
        ({}, "Expected a mapping"), ([StoreAndForward], "by name"),
        ({"relay": "StoreAndForward"}, "a class or function of the testbed"),
    )),
    *((partial(compare, lambda seed: {"relay": {"x": seed}}, seeds), pattern) for seeds, pattern in (
        ([], "at least one"), (5, "range"), ([1, 2, 1], "each once"), (["one"], "seed"),
    )),
    (partial(compare, lambda seed: {}, [1]), where("play", "each system")),
    *((partial(compare, play, [1]), where("play", "the measures of each system, by its name")) for play in (
        None, 3, "relay", {"relay": {}}, lambda seed: None, lambda seed: [1], lambda seed: {"relay": 3.0},
    )),
    *((partial(compare, lambda seed: {"relay": {"x": seed}}, [1], map=spread), where("map", "a function like map")) for spread in (
        None, 3, "map", [1],
    )),
    (partial(scoreboard, [SMALL], SYSTEMS, [1], map=3), where("map", "a function like map")),
    *((partial(sweep, play, "cost", [1], [1]), where("play", "the measures of each system, by its name")) for play in (
        None, 3, lambda value, seed: None, lambda value, seed: {"relay": 3.0},
    )),
    *((partial(run, task, system, seed), where(about)) for task, system, seed, about in (
        ("rush hour", StoreAndForward, 1, "task"), (Scenario(), StoreAndForward, 1, "task"), (SMALL, "StoreAndForward", 1, "system"),
        (SMALL, StoreAndForward, "one", "seed"),
    )),
    (partial(sweep, lambda value, seed: {}, "cost", []), "nothing to run"),
    (partial(Interest, "me.age > 3"), "no attribute of items"), (partial(Interest, "item.rank >"), "incomplete"),
    (partial(contacts, Lab()), "record_exposure=True"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "pattern"), REFUSED)
def test_invalid_experiments_are_refused(call, pattern):
    with pytest.raises(MudkitError, match=pattern) as caught:
        call()
    assert isinstance(caught.value, ValueError)


def test_least_values_of_a_scenario_are_accepted():
    """An item may be empty, and a run has one phone at least."""
    least = Scenario(devices=1, size_bytes=0, loss_share=0.0, hours=1e-6)
    assert (least.devices, least.size_bytes) == (1, 0)
