"""Compositions of two systems: behaviour by order, and detection of broken promises."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest

from mudkit.experiment import (
    ADAPTERS,
    COMPOSITIONS,
    PAIRS,
    PROMISES,
    SAME_AS_FIRST,
    TASKS,
    Interest,
    Item,
    check_orders,
    commutativity,
    run,
)
from mudkit.experiment import order_checks as p
from mudkit.experiment.adapters import contrail
from mudkit.experiment.adapters.contrail import ContrailPart
from mudkit.experiment.adapters.lasthop import LastHopPart
from mudkit.experiment.adapters.mud import MudPart
from mudkit.experiment.adapters.radiator import RadiatorPart
from mudkit.experiment.adapters.sublim import SublimPart
from mudkit.experiment.adapters.system import meant_by
from mudkit.experiment.chains import Chain
from mudkit.experiment.order_checks import ALONE, Trace, TraceItem, play_trace, smaller, traces

MIN = 60
HIDDEN_FROM_ONE = Trace(
    (10, 40), (TraceItem(20 * MIN, 0, 18), TraceItem(25 * MIN, 1, 0), TraceItem(30 * MIN, 2, 0))
)
CROWD = Trace((20,), tuple(TraceItem((100 + 2 * number) * MIN, number % 3, 0) for number in range(4)))


def check_order(composition, order, trace):
    """Return the outcome of a trace, and for each promise how it was broken."""
    definition = PAIRS[composition][order]
    outcome = play_trace(definition.make, trace)
    return outcome, {promise: PROMISES[promise](outcome) for promise in definition.promises}


def list_batches(outcome):
    """Return minute, phone and senders of each batch."""
    return [
        (round(handed.t_us / 6e7), int(handed.phone[-1]), [int(item.sender[-1]) for item in handed.batch])
        for handed in outcome.handed
    ]


@pytest.mark.parametrize(
    ("hop", "expected"),
    [
        (MudPart, [(20, 1, [0]), (25, 0, [1]), (25, 1, [1]), (30, 0, [2]), (30, 1, [2])]),
        (
            partial(LastHopPart, per_day=2),
            [(20, 0, [0]), (20, 1, [0]), (25, 0, [1]), (25, 1, [1]), (90, 0, [2]), (90, 1, [2])],
        ),
        (RadiatorPart, [(50, 0, [0, 1, 2]), (50, 1, [0, 1, 2])]),
        (SublimPart, [(at, phone, [n]) for n, at in enumerate((20, 25, 30)) for phone in (0, 1)]),
        (ContrailPart, [(at, phone, [n]) for n, at in enumerate((20, 25, 30)) for phone in (0, 1)]),
    ],
)
def test_single_hop_behaves_as_its_system(hop, expected):
    assert sorted(list_batches(play_trace(partial(Chain, hops=[hop]), HIDDEN_FROM_ONE))) == sorted(expected)


def test_predicates_before_aggregation_hide_items_and_deliver_the_rest():
    outcome, broken = check_order(
        "writer predicates and aggregation by time", "MUD, then Radiator", HIDDEN_FROM_ONE
    )
    assert sorted(list_batches(outcome)) == [(50, 1, [0, 1, 2]), (55, 0, [1, 2])]
    assert set(broken.values()) == {None}


@pytest.mark.parametrize(
    ("rule", "young_batches", "broken_promise"),
    [
        ("all writers mean her", [], p.ALL),
        ("a writer means her", [[0, 1, 2]], p.HIDDEN),
        ("item by item", [[1], [2]], None),
    ],
)
def test_predicates_after_aggregation_lose_reveal_or_split_items(rule, young_batches, broken_promise):
    order = f"Radiator, then MUD: {rule}"
    outcome, broken = check_order("writer predicates and aggregation by time", order, HIDDEN_FROM_ONE)
    assert sorted(batch for _, phone, batch in list_batches(outcome) if phone == 0) == young_batches
    assert [promise for promise, answer in broken.items() if answer] == (
        [broken_promise] if broken_promise else []
    )
    order = f"Radiator of k, then MUD: {rule}"
    outcome, broken = check_order("writer predicates and aggregation by people", order, HIDDEN_FROM_ONE)
    assert (broken[p.UNSEEN] is None) == (rule != "item by item")


def test_limit_before_the_predicate_is_spent_on_hidden_items():
    trace = Trace(
        (10,),
        (*(TraceItem((5 + 12 * number) * MIN, 0, 30) for number in range(2)), TraceItem(40 * MIN, 0, 0)),
    )
    for limit, composition in (("Last hop", "a daily limit"), ("SUBLIM", "a rate limit")):
        items = (
            trace.items if limit == "Last hop" else (TraceItem(35 * MIN, 0, 30), TraceItem(40 * MIN, 0, 0))
        )
        name = f"writer predicates and {composition}"
        _, after = check_order(name, f"MUD, then {limit}", replace(trace, items=items))
        assert set(after.values()) == {None}
        outcome, before = check_order(name, f"{limit}, then MUD", replace(trace, items=items))
        broken = [promise for promise, answer in before.items() if answer]
        assert broken == [p.SEEN_PER_DAY if limit == "Last hop" else p.SEEN_SPACED]
        assert "gets 0 of the 1 before midnight" in before[broken[0]]
        assert limit == "Last hop" or outcome.handed == []


def test_daily_limit_after_rate_limit_releases_messages_together():
    trace = Trace((20,), tuple(TraceItem((20 + 15 * number) * MIN, 0, 0) for number in range(4)))
    outcome, broken = check_order("a daily limit and a rate limit", "SUBLIM, then Last hop", trace)
    assert [at for at, _, _ in list_batches(outcome)] == [20, 35, 90, 90]
    assert broken[p.TOO_SOON] == "messages come at 00:00 and 00:00"


def test_aggregation_after_a_daily_limit_exceeds_the_limit():
    trace = Trace((20,), (TraceItem(70 * MIN, 0, 0), TraceItem(110 * MIN, 0, 0), TraceItem(160 * MIN, 0, 0)))
    _, broken = check_order("a daily limit and aggregation by time", "Last hop, then Radiator", trace)
    assert broken[p.TOO_MANY] == "3 messages come after midnight"
    _, broken = check_order("a daily limit and aggregation by time", "Radiator, then Last hop", trace)
    assert broken[p.TOO_MANY] is None


def test_each_place_of_a_rate_limit_breaks_one_promise():
    broken = {}
    for order in PAIRS["a rate limit and sealing"]:
        outcome, checks = check_order("a rate limit and sealing", order, CROWD)
        assert outcome.handed
        broken[order] = [promise for promise, answer in checks.items() if answer]
    assert broken == {
        "SUBLIM, then Contrail, at an access point": [p.READ],
        "Contrail, then SUBLIM, at an access point": [p.READ],
        "Contrail, SUBLIM at each sender": [p.TOO_SOON],
        "Contrail, SUBLIM on the phone": [p.RADIO],
    }


def test_broken_promise_names_the_server_that_read_an_item():
    outcome, broken = check_order(
        "a rate limit and sealing", "Contrail, then SUBLIM, at an access point", CROWD
    )
    assert broken[p.RELAY] is None
    assert "access-point-1" in broken[p.READ]
    assert "contrail" not in broken[p.READ]
    assert outcome.adapter.published[0].content  # otherwise the search proves nothing


def test_relay_without_encryption_breaks_its_promise(monkeypatch):
    """Use modules that do not encrypt."""
    monkeypatch.setattr(contrail, "Module", partial(contrail.Module, encrypted=False))
    outcome = play_trace(partial(Chain, hops=[ContrailPart]), CROWD)
    assert "contrail-" in PROMISES[p.RELAY](outcome)


def test_promises_break_when_batches_are_changed():
    """Change the batches of a run that keeps all promises."""
    outcome = play_trace(partial(Chain, hops=[MudPart]), HIDDEN_FROM_ONE)
    assert PROMISES[p.HIDDEN](outcome) is None
    assert PROMISES[p.ALL](outcome) is None
    handed = outcome.adapter.handed
    hidden = next(batch for batch in handed if batch.batch[0].metadata["least"] == 18)
    handed.append(hidden._replace(phone="phone-00000"))
    assert "a reader of 10 is shown what is hidden from those under 18" in PROMISES[p.HIDDEN](outcome)
    handed.pop()
    handed.append(handed[0])
    assert "2 times" in PROMISES[p.ALL](outcome)
    assert "within" not in (PROMISES[p.TOO_SOON](outcome) or "within")
    assert "before midnight" in PROMISES[p.TOO_MANY](outcome)
    del handed[:]
    assert "never" in PROMISES[p.ALL](outcome)
    assert "0 of the" in PROMISES[p.SEEN_PER_DAY](outcome)
    assert "0 of the" in PROMISES[p.SEEN_SPACED](outcome)


def test_check_orders_reports_counts_and_minimal_counterexamples():
    result = check_orders(["writer predicates and aggregation by time"], scenarios=4, seed=1)
    assert set(result["scenarios"]) == {4}
    first = result[result["order"] == "MUD, then Radiator"]
    assert first["is_kept"].all()
    assert SAME_AS_FIRST not in set(first["promise"])
    lost = result[
        (result["order"] == "Radiator, then MUD: all writers mean her") & (result["promise"] == p.ALL)
    ]
    assert not lost["is_kept"].any()
    counterexample = lost["counterexample"].iloc[0]
    assert counterexample.count("by sender") == 2, "one item that is hidden, and one that is lost with it"
    assert (result["is_kept"] == (result["broken"] == 0)).all()
    assert (result.loc[result["is_kept"], "counterexample"] == "").all()
    row = commutativity(result).iloc[0]
    assert not row["same_shown"]
    assert not row["same_kept"]
    assert "MUD, then Radiator" in row["best"]
    assert result.equals(check_orders(["writer predicates and aggregation by time"], scenarios=4, seed=1))


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize(
    ("composition", "order", "promise"),
    [
        ("a daily limit and a rate limit", "SUBLIM, then Last hop", p.TOO_SOON),
        ("a daily limit and aggregation by time", "Last hop, then Radiator", p.TOO_MANY),
    ],
)
def test_default_traces_break_promises_around_midnight(composition, order, promise):
    result = check_orders([composition])
    row = result[(result["order"] == order) & (result["promise"] == promise)].iloc[0]
    assert 0 < row["broken"] < row["scenarios"] / 2
    assert not row["is_kept"]
    assert "00:00" in row["counterexample"] or "after midnight" in row["counterexample"]


def test_predicates_and_sealing_commute():
    result = check_orders(["writer predicates and sealing"], scenarios=2)
    row = commutativity(result).iloc[0]
    assert row["same_shown"]
    assert row["same_kept"]
    assert row["never"] == p.READ


def test_every_pair_has_orders_with_known_promises():
    assert next(iter(PAIRS)) == ALONE
    assert len(PAIRS) == 1 + 14
    for name, pair in PAIRS.items():
        assert len(pair) >= 2
        for order in pair.values():
            assert order.promises or name == ALONE
            assert set(order.promises) <= set(PROMISES)


def test_traces_depend_only_on_the_seed():
    drawn = list(traces(20, 5))
    assert drawn == list(traces(20, 5)) != list(traces(20, 6))
    assert drawn[:10] == list(traces(10, 5))
    assert {item.min_age for trace in drawn for item in trace.items} == {0, 18, 30}
    assert {item.min_age for trace in traces(20, 5, hides=False) for item in trace.items} == {0}
    for trace in drawn:
        at_s = [item.at_s for item in trace.items]
        assert at_s == sorted(set(at_s))
        assert len(trace.task().profiles(0, ["a"] * len(trace.ages), [])) == len(trace.ages)


def test_smaller_minimizes_a_trace_while_it_breaks():
    trace = Trace((10, 20, 40), tuple(TraceItem(at * MIN, 0, at % 3) for at in range(5, 15)))
    result = smaller(trace, lambda candidate: sum(item.min_age == 2 for item in candidate.items) >= 2)
    assert len(result.items) == 2
    assert len(result.ages) == 1


def test_aggregate_predicate_matches_only_its_receiver():
    interest = Interest("me.age >= item.least AND contains(me.friends, item.who)")
    items = [
        Item(name, name, {"least": least, "who": f"|{name}|"}, 10, None)
        for name, least in (("ann", 18), ("bob", 0))
    ]
    old = {"age": 20, "friends": "|ann|bob|", "name": "cy"}
    young = {**old, "age": 10}
    for rule, expected in (("all", [True, False]), ("any", [True, True])):
        predicate = meant_by(interest, items, rule)
        assert [predicate({}, receiver=reader) for reader in (old, young)] == [*expected]
        predicate = meant_by(interest, items, rule, to="cy")
        assert predicate({}, receiver={**old, "name": "dee"}) is False
        assert predicate({}, receiver=old) is True


@pytest.mark.soak
def test_compositions_run_a_scoreboard_task():
    small = TASKS["traffic alerts"].over(devices=4, hours=1.0, outage=0.0)
    entries = {name: run(small, make, 2, name=name) for name, make in COMPOSITIONS.items()}
    assert {entry.digest for entry in entries.values()} == {run(small, ADAPTERS["MUD"], 2).digest}
    for name, entry in entries.items():
        measures = entry.measures()
        assert measures["useful"] + measures["wasted"], name
        if "Radiator" not in name:
            assert measures["useful"] >= 0.7 * entry.testbed.wanted_count, name


def test_looks_fetch_articles_from_the_spool():
    """Fetch on demand; the task limits the articles of each look."""
    small = TASKS["news with ranks"].over(devices=3, hours=10.0, outage=0.0)
    entry = run(small, COMPOSITIONS["MUD, then Last hop"], 2, record_exposure=False)
    assert entry.measures()["useful"]
    assert entry.measures()["wasted"] < entry.testbed.wanted_count / 2
    assert (entry.deliveries["read"].dropna().value_counts() <= small.max_shown).all()


def test_moving_phones_pay_for_messages_to_their_desk():
    task = TASKS["traffic alerts"].over(devices=4, hours=1.0, outage=0.0)
    entry = run(task, COMPOSITIONS["MUD, then Last hop"], 2, record_exposure=False)
    bill = entry.bill
    uploads = bill[(bill["system"] == "store and forward") & (bill["direction"] == "up")]
    assert (uploads["messages"] > 5).any()
    without_desk = run(task, COMPOSITIONS["Contrail, SUBLIM on the phone"], 2, record_exposure=False).bill
    assert "store and forward" not in set(without_desk["system"])


@pytest.mark.parametrize(
    ("others", "is_broken"),
    [
        ([("ann", p.SPACING_S)], False),
        ([("ann", p.SPACING_S - 1.0)], False),  # the first was longer on its way
        ([("ann", p.SPACING_S - 10.0)], True),
        ([("bob", 1.0)], False),
        ([("bob", 1.0), ("ann", 2.0)], True),
        ([("ann", p.SPACING_S), ("ann", 2 * p.SPACING_S)], False),
    ],
)
def test_messages_to_one_phone_are_spaced(others, is_broken):
    """The promise: "no two messages come within 570 s"."""
    rows = [("ann", 0.0), *others]
    handed = [SimpleNamespace(phone=phone, t_us=round((1000 + at_s) * 1e6)) for phone, at_s in rows]
    assert (PROMISES[p.TOO_SOON](SimpleNamespace(handed=handed)) is not None) is is_broken


def test_every_other_trace_is_large():
    """See the comment in `traces`: 2 to 4 moments are drawn, then 6 to 12; moments of the same minute are one."""
    counts = [len(trace.items) for trace in traces(24, 11)]
    small, large = (counts[first::2] for first in (0, 1))
    assert max(small) == 4
    assert max(large) == 12
