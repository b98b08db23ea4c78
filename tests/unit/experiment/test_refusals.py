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
    ADAPTERS,
    NEWS,
    TRAFFIC,
    WARD,
    Afternoon,
    Comparison,
    Direct,
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
from mudkit.worlds import Audience, DriftAlarm, NewsReader, Ward
from mudkit.worlds.matching import MatchingLoad, matching_times

TASKS = [TRAFFIC.over(devices=5, hours=0.3), WARD.over(devices=2, hours=0.05)]
SYSTEMS = {"MUD": Mud, "SUBLIM": Sublim}
SMALL = Scenario(devices=2, hours=0.1)
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
    (partial(TRAFFIC.over, battery_j=150.0), "does not use battery_j"),
    (partial(TRAFFIC.over, queries=Poisson(per_day=4)), "does not use queries"),
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
    *((partial(Scenario, **{"devices": 6, "mobility": "commute", "queries": TripStarts()} | wrong), pattern) for wrong, pattern in (
        ({"devices": 0}, "devices"), ({"receivers": 6}, "receivers"), ({"receivers": 1.5}, "receivers"),
        ({"size_bytes": -1}, "size_bytes"), ({"hours": 0}, "hours"), ({"hours": "6"}, "hours"), ({"hours": nan}, "hours"),
        ({"expires_s": 0}, "expires_s"), ({"expires_s": "1"}, "expires_s"), ({"box_km": -1}, "box_km"), ({"items": 24}, "Poisson"),
        ({"reads": WakingReads}, "Poisson"), ({"queries": "trips"}, "Poisson"), ({"mobility": None}, "a mobility"),
    )),
    *((partial(compare, SMALL, systems, seeds), pattern) for systems, seeds, pattern in (
        ({}, [1], "Expected a mapping"), (SYSTEMS, [], "at least one"), (SYSTEMS, 5, "range"), (SYSTEMS, [1, 2, 1], "each once"),
        ([StoreAndForward], [1], "by name"), (SYSTEMS, ["one"], "seed"),
        ({"relay": "StoreAndForward"}, [1], "a class or function of the testbed"),
    )),
    *((call, pattern) for plan, system, seed, about in (
        ("rush hour", StoreAndForward, 1, "plan"), (Scenario, StoreAndForward, 1, "plan"), (SMALL, "StoreAndForward", 1, "system"),
        (SMALL, StoreAndForward, "one", "seed"), (SMALL, ADAPTERS["MUD"], 1, "system"),
        (NEWS.over(devices=2, hours=0.1), Direct, 1, "system"),
    ) for call, pattern in (
        (partial(run, plan, system, seed), where(about)), (partial(compare, plan, {"it": system}, [seed]), about),
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
