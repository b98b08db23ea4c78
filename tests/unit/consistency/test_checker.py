"""Verdicts, explanations and limits of `check`."""

from __future__ import annotations

import time
from itertools import permutations

import pytest
from consistency_oracle import satisfies
from random_histories import simulate_history

from mudkit.consistency import (
    MODELS,
    PROMISES,
    Content,
    History,
    Kind,
    Operation,
    Outcome,
    Status,
    check,
    implied_models,
    views,
)
from mudkit.consistency import checker as checker_module
from mudkit.consistency import verdict as verdict_module
from mudkit.consistency.models import Form, promising

BADNESS = (Status.OK, Status.UNKNOWN, Status.ILLEGAL)
FORKED = "ann: w0>1   r1   r1\nbob: w0>2   r2   r2"


def test_check_and_views_of_a_small_legal_history():
    history = History.parse("ann: w1@1     u1@1\nbob:      u1@1")
    verdict = check(history, model="fork-sequential", key="x")
    assert verdict.status is Status.OK
    seen = {
        client: [operation.label for operation in view] for client, view in views(history, key="x").items()
    }
    assert seen == {name: ["w(x)1@1", "r(x)1@1", "r(x)1@1"] for name in ("ann", "bob")}
    assert "OK" in str(verdict)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("text", ["", "ann: w1…", "ann: r1…\nbob: w2…"])
def test_history_without_answers_is_unknown(model, text):
    verdict = check(History.parse(text), model)
    assert (verdict.status, verdict.explanation.kind) == (Status.UNKNOWN, "nothing")
    assert "nothing" in str(verdict.explanation)


def test_missing_record_is_unknown():
    verdict = check(History.parse("ann: w1"), "sequential", key="y")
    assert verdict.status is Status.UNKNOWN
    assert views(History.parse("ann: w1"), key="y") == {}


# -- selection of reads


def test_read_types_promise_the_models_of_the_paper():
    promises = {
        "uncommitted": "fork-sequential",
        "committed": "sequential",
        "committed_wio": "sequential-wio",
    }
    assert promises == PROMISES
    assert promising("linearizable") == {None}
    assert promising("sequential-wio") == {None, "committed_wio"}
    assert promising("sequential") == {None, "committed", "committed_wio"}
    assert promising("fork-sequential") == {None, "uncommitted", "committed", "committed_wio"}


def test_read_types_are_checked_separately():
    """Allow an uncommitted read to return more than a later committed one (Mobius 4.1)."""
    history = History.parse("ann: w1@1    u2      c1@1 o2@2\nann:      [w2@2         ]")
    for model in ("sequential", "fork-sequential", "monotonic-reads"):
        assert check(history, model).status is Status.OK, model
    mixed = check(history, "fork-sequential", reads=["uncommitted", "committed"])
    assert mixed.status is Status.ILLEGAL
    assert check(history, "fork-sequential", reads="committed").status is Status.OK


def test_reads_with_weaker_promises_are_ignored():
    history = History.parse("ann: w1@1  u0  \nbob:    c1@1")
    assert check(history, "sequential").status is Status.OK
    assert check(history, "fork-sequential").status is Status.ILLEGAL
    verdict = check(History.parse("ann: w1 u1"), "sequential")
    assert (verdict.status, verdict.explanation.kind) == (Status.UNKNOWN, "no read promises it")
    assert "uncommitted" in verdict.explanation.text
    assert check(History.parse("ann: w1 u1"), "sequential", reads=["comitted"]).status is Status.UNKNOWN


@pytest.mark.parametrize(("one", "other"), [*permutations(Status, 2)])
def test_worst_read_type_decides_the_verdict(one, other):
    """Check committed reads and `wio` ones: a search over 7 to the 12th readings ends undecided."""
    reads = {Status.OK: "{0}1 {0}1", Status.UNKNOWN: "{0}1 {0}2" + " {0}1" * 11, Status.ILLEGAL: "{0}9"}
    writes = "w1 " * 7 + "w2 "
    lines = [
        f"{name}: {' ' * len(writes)}{reads[status].format(name)}"
        for name, status in (("c", one), ("o", other))
    ]
    history = History.parse("\n".join([f"p: {writes}", *lines]))
    assert check(history, "sequential", within_s=0.1).status is max(one, other, key=BADNESS.index)
    assert check(history, "sequential", within_s=0.1, reads="committed").status is one


# -- several records


def test_records_are_separate_consistency_domains():
    """Check Lamport's example: each record is sequentially consistent, both together are not."""
    history = History.parse("ann: w(x)1  r(y)0\nbob: w(y)1  r(x)0")
    for model in MODELS:
        expected = Status.ILLEGAL if model == "linearizable" else Status.OK
        assert check(history, model).status is expected, model
    verdict = check(history, "sequential")
    assert set(verdict.views) == {"x", "y"}
    assert verdict.key is None


@pytest.mark.parametrize("statuses", [*permutations(Status)])
def test_worst_record_decides_the_verdict(statuses):
    lines = {Status.OK: "w({0})1 r({0})1", Status.UNKNOWN: "w({0})1…", Status.ILLEGAL: "w({0})1 r({0})0"}
    records = dict(zip("xyz", statuses, strict=True))
    texts = {name: f"{name}: {lines[status].format(name)}" for name, status in records.items()}
    for names in ("xyz", "xy", "yz", "x"):
        verdict = check(History.parse("\n".join(texts[name] for name in names)), "sequential")
        worst = max(names, key=lambda name: BADNESS.index(records[name]))
        is_named = len(names) == 1 or records[worst] is not Status.OK
        assert (verdict.status, verdict.key) == (records[worst], worst if is_named else None)


# -- explanations


def test_cycle_is_explained_step_by_step():
    verdict = check(History.parse("ann: w1@1 w2@2\nbob:            r2@2 r1@1   r2@2"), "sequential")
    assert verdict.explanation.kind == "cycle"
    names = [(step.first.label, step.then.label) for step in verdict.explanation.steps]
    assert [then for _, then in names] == [first for first, _ in names[1:] + names[:1]]
    assert "bob r(x)1@1 saw what was overwritten by ann w(x)2@2" in str(verdict.explanation)
    assert {operation.label for operation in verdict.explanation.operations} == {
        "w(x)1@1",
        "w(x)2@2",
        "r(x)2@2",
        "r(x)1@1",
    }


def test_every_write_order_is_refuted_without_versions():
    verdict = check(History.parse("ann: w1    r2\nbob: w2 r2   r1"), "linearizable")
    assert verdict.status is Status.ILLEGAL
    wio = check(History.parse("p: [w1 ]\np:  [w2 ]\nq:       r2 r1 "), "sequential-wio")
    assert wio.explanation.kind == "no order"
    assert "With w(x)1 before w(x)2:" in wio.explanation.text
    assert "With w(x)2 before w(x)1:" in wio.explanation.text


def test_session_guarantee_explanation_names_both_operations():
    verdict = check(History.parse("ann: w1@1 w2@2 r1@1"), "read-your-writes")
    [step] = [item for item in verdict.explanation.steps if "over before" in item.why]
    assert (step.first.label, step.then.label) == ("w(x)2@2", "r(x)1@1")
    assert "read-your-writes" in verdict.explanation.text
    future = check(History.parse("ann: r1 w1"), "writes-follow-reads")
    assert {item.label for item in future.explanation.operations} == {"r(x)1", "w(x)1"}


def test_mobius_protocol_meets_only_the_retracted_definition():
    """Check that the protocol of Mobius 4.2 violates definition 3 and satisfies its retracted variant."""
    history = History.parse("ann: [w0>1          !2]\nann:      u1           u2\nbob:        w0>2")
    verdict = check(history, "fork-sequential")
    assert (verdict.status, verdict.explanation.kind) == (Status.ILLEGAL, "saw a refused write")
    assert [operation.label for operation in verdict.explanation.operations] == [
        "w(x)0>1!2",
        "r(x)1",
        "w(x)0>2",
    ]
    weaker = check(history, "fork-sequential-retracted")
    assert weaker.status is Status.OK
    assert "r(x)1" not in [operation.label for operation in weaker.views["x"]["ann"]]
    for guarantee in ("monotonic-reads", "read-your-writes", "monotonic-writes", "writes-follow-reads"):
        assert check(history, guarantee).status is Status.OK


def test_views_of_a_forked_history():
    result = views(History.parse(FORKED), key="x")
    assert [operation.label for operation in result["ann"]] == ["w(x)0>1", "r(x)1", "r(x)1"]
    assert [operation.label for operation in result["bob"]] == ["w(x)0>2", "r(x)2", "r(x)2"]
    assert views(History.parse("ann: w1 r7"), key="x") == {}


@pytest.mark.parametrize("model", ["linearizable", "sequential", "fork-sequential"])
@pytest.mark.parametrize("later", ["d", "w0>1", "w5", "d d", "w0>1 d"])
def test_later_operations_do_not_justify_a_refused_write(model, later):
    """Check that a write refused despite a matching condition stays illegal."""
    for first in ("[w0>5!0]", "w1 [w1>5!1]"):
        for text in (f"ann: {first}", f"ann: {first}          {later}"):
            assert check(History.parse(text), model).status is Status.ILLEGAL, text


# -- bounds


def test_history_above_max_operations_is_unknown():
    history = simulate_history(1, operations=checker_module.MAX_OPERATIONS + 1, clients=3, versions=False)
    verdict = check(history, "sequential")
    assert (verdict.status, verdict.explanation.kind) == (Status.UNKNOWN, "too large")
    assert "3,000" in verdict.explanation.text


def test_search_time_is_bounded():
    """Stop a search over many concurrent writes and one read too many, which would not end."""
    writes = [
        Operation(f"c{n}", 1, "x", Kind.WRITE, n, 100_000, Content(f"v{n}"), outcome=Outcome.OK)
        for n in range(26)
    ]
    reads = [
        Operation(f"r{n}", turn, "x", Kind.READ, at_us, at_us + 1, Content(f"v{value}"))
        for n in range(26)
        for turn, at_us, value in ((0, 200_000, n), (1, 200_010, (n + 1) % 26))
    ]
    start_s = time.monotonic()
    for model in MODELS:
        verdict = check(History([*writes, *reads]), model, within_s=0.05)
        assert verdict.status is not Status.OK or MODELS[model].form is Form.WRITE_ORDER, model
    assert time.monotonic() - start_s < 30  # a guard, not a measurement


def test_too_many_readings_are_unknown():
    """Stop a search over 7 to the 12th readings: seven writes of one value, read a dozen times."""
    writes = " ".join(["w1"] * 7) + " w2"
    history = History.parse(f"p: {writes}\nq: {' ' * len(writes)}" + " r1 r2 r1" + " r1" * 10)
    verdict = check(history, "sequential", within_s=0.2)
    assert (verdict.status, verdict.explanation.kind) == (Status.UNKNOWN, "too large")


@pytest.mark.parametrize(("writes", "status"), [(30, Status.OK), (29, Status.UNKNOWN)])
def test_contradictory_readings_are_pruned_within_the_time_limit(writes, status):
    """Assign thirty versions to unanswered writes: an enumeration of all readings would not end."""
    clients = "\n".join(f"p{n}: w1…" for n in range(writes))
    history = History.parse(f"{clients}\nq: " + " ".join(f"r1@{version}" for version in range(1, 31)))
    verdict = check(history, "sequential", within_s=0.2)
    assert verdict.status is status


# -- the table of models


def test_table_of_models():
    weaker = {"sequential", "fork-linearizable", "fork-sequential", "monotonic-reads"}
    assert implied_models("linearizable") >= weaker
    assert "sequential-wio" not in implied_models("linearizable")
    assert "linearizable" not in implied_models("sequential-wio")
    assert implied_models("fork-sequential-retracted") == {"fork-sequential-retracted"}
    for name, model in MODELS.items():
        assert name in implied_models(name)
        assert model.description.endswith(".")
        assert model.source
        assert all(weaker in MODELS for weaker in model.implies)
        assert model.form in Form


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("p: w1@1  w2@2  u2@2  c1@1", Status.OK), ("p: w1@1  w2@2  u2@2  u1@1", Status.ILLEGAL),
        ("p: w1  w2  c1  u2  c1  u2", Status.OK),
    ],
)  # fmt: skip
def test_monotonic_reads_are_per_read_type(text, status):
    """Check each read type alone, also if several types are selected (Mobius 4.1)."""
    verdict = check(History.parse(text), "monotonic-reads", reads=["uncommitted", "committed"])
    assert verdict.status is status


@pytest.mark.parametrize("model", MODELS)
def test_two_writes_do_not_share_a_version(model):
    """Check two pending writes on condition of version 5, which only the other one could be."""
    history = History.parse("p: w@5>1…\nq: w@5>2…\np:           r1\nq:           r2")
    assert check(history, model).status is (Status.OK if satisfies(list(history), model) else Status.ILLEGAL)


def test_minimizing_removes_unanswered_writes_with_their_predecessor():
    """Check that the smaller history has no anomaly that the whole one lacks."""
    verdict = check(History.parse("ann: w1   w2  r1\nbob:      w1>3…  r3"), "sequential")
    assert [operation.label for operation in verdict.explanation.operations] == ["w(x)1", "w(x)2", "r(x)1"]
    assert "Nobody wrote" not in verdict.explanation.text


def test_operation_without_an_answer_is_drawn_to_the_last_time(monkeypatch):
    drawn = []
    monkeypatch.setattr(verdict_module, "lanes", lambda events, *rest: drawn.extend(events) or "")
    str(check(History.parse("ann: w1…\nbob: r1 r0"), "sequential")._view())
    assert [(event.text, event.start, event.end) for event in drawn] == [
        ("w(x)1…", 0, 3), ("r(x)1", 0, 1), ("r(x)0", 2, 3),
    ]  # fmt: skip
