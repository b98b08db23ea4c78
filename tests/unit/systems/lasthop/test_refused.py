"""Errors for invalid settings: parameter, value found, and value expected."""

from __future__ import annotations

from functools import partial
from math import nan

import pytest

from mudkit.errors import MudkitError
from mudkit.systems.lasthop import (
    Expiration,
    Forwarding,
    Push,
    Scenario,
    Subscription,
    expected_waste,
    query,
    simulate,
    simulate_grid,
)
from mudkit.systems.lasthop.spool.ranked import FOREVER_US
from mudkit.systems.lasthop.study.logs import drawn_from
from mudkit.systems.lasthop.study.sizing import Prices, score_policies, size_prefetch
from mudkit.systems.lasthop.study.sweeping import compare_policies
from mudkit.systems.lasthop.subscription import PlaceSubscription

EVENTS = Scenario(days=2).draw(2)
SHORT = {"days": 5, "outage": 0.5}


def forward_all(situation):
    return situation.waiting


def build_policy(rule):
    return {"policy": Forwarding("rule", rule=rule)}


REFUSED_SETTINGS = [
    (Push, [
        {"stored_limit": 0}, {"stored_limit": 1.5}, {"when_full": "drop"}, {"collapse_keys": -1}, {"time_to_live_s": -1.0},
        {"time_to_live_s": 1e9}, {"high_rank": nan}, {"in_use_s": -1}, {"synchronised": -1},
    ]),
    (Scenario, [
        {"event_frequency": -1.0}, {"user_frequency": -0.1}, {"expiring_share": 1.5}, {"days": 0}, {"days": 1.5},
        {"reads_cv": -0.1}, {"event_frequency": nan}, {"event_frequency": "32"},
    ]),
    (partial(Expiration, 5.0), [{"law": "pareto"}]),
    (partial(Subscription, "news"), [
        {"max": -1}, {"max": 2.5}, {"threshold": nan}, {"threshold": "high"}, {"mode": "sometimes"}, {"policy": "everything"},
        {"quiet_h": (22, 22)}, {"quiet_h": (22, 25)}, {"quiet_h": (1, 2, 3)}, {"interrupt": "loud"}, {"at_h": (8, -1)},
        {"per_day": -1},
    ]),
    (Subscription, [{"topic": ""}, {"topic": 3}, {"topic": "two\nlines"}]),
    (partial(simulate, days=1), [
        {"event_frequency": -1}, {"user_frequency": -0.5}, {"max": -1}, {"max": 2.5}, {"max": "all"}, {"outage": 1.01},
        {"outage": -0.1}, {"outages_per_day": 0}, {"outages_per_day": -1}, {"expiration": -5}, {"expiration": 0},
        {"expiration": "1 h"}, {"expiration": [60, 120]}, {"expiration": True}, {"expiring_share": 2}, {"days": 0},
        {"seed": 1.5}, {"threshold": None}, {"policy": "buffered"}, {"policy": None}, {"prefetch_limit": -1},
        {"expiration_threshold_s": -1.0}, {"reads_cv": 2.0},
    ]),
    *((partial(simulate, policy=policy, days=1), [{"prefetch_limit": 16}, {"expiration_threshold_s": 5.0}])
      for policy in ("push", Push.apple())),
    (partial(expected_waste, user_frequency=1, max=4, event_frequency=32), [
        {"user_frequency": -1}, {"max": 1.5}, {"event_frequency": "32"},
    ]),
    (partial(size_prefetch, [EVENTS]), [{"days": "first"}, {"max": -1}, {"threshold": "low"}]),
    (Prices, [{"wasted": -1.0}, {"lost": nan}, {"empty_read": "5"}, {"delay_hour": -0.1}]),
    (partial(score_policies, [EVENTS], {"b": Forwarding("on-line")}), [{"days": "first"}, {"max": -1}, {"threshold": nan}]),
    (partial(compare_policies, {"a": Scenario()}, {"b": Forwarding("on-line")}), [{"max": -1}, {"threshold": nan}]),
    (partial(drawn_from, arrivals_us=[1, 2], reads_us=[3]), [
        {"ranks": [1.0]}, {"expires_us": [FOREVER_US]}, {"outages_us": [3, 4]}, {"reads_us": [0.5]}, {"arrivals_us": [[1, 2]]},
    ]),
]  # fmt: skip
"""Functions, and settings that each refuses by name."""

REFUSED_CALLS = [
    *((partial(Forwarding, **settings), error) for settings, error in (
        ({"kind": "online"}, "'online'"), ({"prefetch_limit": -1}, "-1"), ({"prefetch_limit": 2.5}, "2.5"),
        ({"prefetch_limit": "taught"}, "taught"), ({"expiration_threshold_s": -1.0}, "-1"),
        ({"expiration_threshold_s": True}, "True"), ({"delay_s": "soon"}, "soon"), ({"remembers_reads": 1}, "True or False"),
        ({"kind": "on-line", "remembers_reads": True}, "forwards everything at once"),
    )),
    *((partial(Forwarding, **settings), "of the kind 'rule' has a rule") for settings in (
        {"kind": "rule"}, {"kind": "rule", "rule": 3}, {"kind": "buffer", "rule": forward_all},
    )),
    *((partial(Scenario, **settings), r"an (Expiration|Outages), such as") for settings in (
        {"expiration": "1 h"}, {"expiration": 60}, {"outages": 0.5},
    )),
    *((partial(Expiration, mean_s), "expiration|mean_s") for mean_s in (0.0, "1 h")),
    (partial(Subscription, "news", **build_policy(forward_all)), "cannot store a rule"),
    (partial(Forwarding.of, Forwarding("buffer", 16), prefetch_limit=8), "settings of its own"),
    (partial(simulate, policy=Forwarding("buffer", 16), prefetch_limit=8, days=1), "settings of its own"),
    *((partial(simulate, days=3, **build_policy(rule)), error) for rule, error in (
        (lambda situation: [*situation.waiting, *situation.waiting], "is not waiting"),
        (lambda situation: [*situation.device, *situation.waiting[:1]], "is not waiting"),
        (lambda situation: [item.identity for item in situation.waiting], "is not waiting"),
        (lambda situation: None, "returns the items to forward"),
    )),
    *((partial(PlaceSubscription, Subscription("traffic {place}"), places), "place") for places in (
        {}, None, {"": (1, 2, 3)}, {"a": (1, 2)}, {"a": (91, 2, 3)}, {"a": (1, 2, -3)}, {"a": "there"},
    )),
    (partial(size_prefetch, []), "0 draws"),
    (partial(score_policies, [EVENTS], {}), "0 policies"),
    (partial(size_prefetch, [EVENTS], limits=[]), "0 limits"),
    (partial(size_prefetch, [EVENTS], limits=[-1]), "prefetch_limit"),
    (partial(compare_policies, {"a": Scenario()}, {}), "0 policies"),
    *((partial(simulate_grid, *arguments), error) for arguments, error in (
        (({"maximum": [1]},), "did you mean 'max"), (({"max": [1]}, {"maks": 1}), "maks"), (({"max": [1]}, {"max": 1}), "both"),
        (({"seed": [1]},), "seeds=range"), (({"max": 8},), "each value a sequence"),
        (({"policy": "buffer"},), "each value a sequence"), (({"max": []},), "0 of max"), (({"max": [1]}, None, []), "0 seeds"),
        (({"max": [1]}, None, 5), "a sequence, each a whole number"), (({"max": [1, -1]}, SHORT), "-1"),
        (({"outage": [0.5, 1.5]}, {"days": 5}), "1.5"),
    )),
    *((partial(query, text), error) for text, error in (
        ("kind =", "incomplete"), ("receiver.age > 3 AND rank > 1", "receiver"), ("sender.name = kind", "sender"),
        ("lookup('t', kind, 'x') = 1", "lookup"),
    )),
    (partial(drawn_from, [1], [3], outages_us=[[1, 5], [4, 6]]), "outages, row 1"),
    (partial(drawn_from, [1], [3], ranks=[nan]), "rank"),
    (partial(drawn_from, [5], [9], expires_us=[5]), "expires at"),
]  # fmt: skip
"""Calls, and patterns of their errors."""

CALLS = [
    (partial(function, **settings), f"where: +{next(iter(settings))}")
    for function, refused in REFUSED_SETTINGS
    for settings in refused
]


@pytest.mark.parametrize(("call", "error"), [*CALLS, *REFUSED_CALLS])
def test_invalid_settings_raise_a_descriptive_error(call, error):
    with pytest.raises(MudkitError, match=error) as caught:
        call()
    assert isinstance(caught.value, ValueError)
    assert caught.value.expected
