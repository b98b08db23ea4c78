"""What check answers and says, and where it does not know."""

from __future__ import annotations

import time

import pytest
from consistency_oracle import meets
from random_histories import recorded

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
from mudkit.consistency.models import Form, promising

FORKED = "ann: w0>1   r1   r1\nbob: w0>2   r2   r2"


def test_the_page_of_the_design():
    history = History.parse("ann: w1@1     u1@1\nbob:      u1@1")
    verdict = check(history, model="fork-sequential", key="x")
    assert verdict.status is Status.OK
    seen = {client: [each.label for each in view] for client, view in views(history, key="x").items()}
    assert seen == {name: ["w(x)1@1", "r(x)1@1", "r(x)1@1"] for name in ("ann", "bob")}
    assert "OK" in str(verdict)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("text", ["", "ann: w1…", "ann: r1…\nbob: w2…"])
def test_what_holds_no_answer_proves_nothing(model, text):
    verdict = check(History.parse(text), model)
    assert (verdict.status, verdict.explanation.kind) == (Status.UNKNOWN, "nothing")
    assert "nothing" in str(verdict.explanation)


def test_a_record_that_is_not_there():
    verdict = check(History.parse("ann: w1"), "sequential", key="y")
    assert verdict.status is Status.UNKNOWN
    assert views(History.parse("ann: w1"), key="y") == {}


# -- which reads count


def test_read_types_promise_what_the_paper_says():
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


def test_each_read_type_counts_on_its_own():
    """An uncommitted read may return more than a later committed one (Mobius 4.1)."""
    history = History.parse("ann: w1@1    u2      c1@1 o2@2\nann:      [w2@2         ]")
    for model in ("sequential", "fork-sequential", "monotonic-reads"):
        assert check(history, model).status is Status.OK, model
    mixed = check(history, "fork-sequential", reads=["uncommitted", "committed"])
    assert mixed.status is Status.ILLEGAL
    assert check(history, "fork-sequential", reads="committed").status is Status.OK


def test_reads_that_promise_less_do_not_count():
    history = History.parse("ann: w1@1  u0  \nbob:    c1@1")
    assert check(history, "sequential").status is Status.OK
    assert check(history, "fork-sequential").status is Status.ILLEGAL
    verdict = check(History.parse("ann: w1 u1"), "sequential")
    assert (verdict.status, verdict.explanation.kind) == (Status.UNKNOWN, "no read promises it")
    assert "uncommitted" in verdict.explanation.text
    assert check(History.parse("ann: w1 u1"), "sequential", reads=["comitted"]).status is Status.UNKNOWN


def test_a_failing_type_is_not_hidden_by_another_one():
    history = History.parse("ann: w1@1  c1@1 o0@0")
    assert check(history, "sequential").status is Status.ILLEGAL
    assert check(history, "sequential", reads=["committed"]).status is Status.OK


# -- several records


def test_each_record_is_a_domain_of_its_own():
    """Sequential consistency of each record is not that of both together: Lamport's example."""
    history = History.parse("ann: w(x)1  r(y)0\nbob: w(y)1  r(x)0")
    for model in MODELS:
        expected = Status.ILLEGAL if model == "linearizable" else Status.OK
        assert check(history, model).status is expected, model
    verdict = check(history, "sequential")
    assert set(verdict.views) == {"x", "y"}
    assert verdict.key is None


def test_the_worst_record_decides():
    text = "ann: w(x)1  w(y)1 w(z)1…\nann:                w(z)3  \nbob:      r(y)1 r(y)0"
    verdict = check(History.parse(text), "sequential")
    assert (verdict.status, verdict.key) == (Status.ILLEGAL, "y")
    assert check(History.parse(text), "sequential", key="x").status is Status.OK
    unknown = check(History.parse("ann: w(x)1 w(y)1…"), "sequential")
    assert (unknown.status, unknown.key) == (Status.UNKNOWN, "y")


# -- explanations


def test_a_cycle_is_told_step_by_step():
    verdict = check(History.parse("ann: w1@1 w2@2\nbob:            r2@2 r1@1   r2@2"), "sequential")
    assert verdict.explanation.kind == "cycle"
    names = [(step.first.label, step.then.label) for step in verdict.explanation.steps]
    assert [then for _, then in names] == [first for first, _ in names[1:] + names[:1]]
    assert "bob r(x)1@1 saw what was overwritten by ann w(x)2@2" in str(verdict.explanation)
    assert {each.label for each in verdict.explanation.operations} == {
        "w(x)1@1",
        "w(x)2@2",
        "r(x)2@2",
        "r(x)1@1",
    }


def test_without_versions_each_order_of_the_writes_is_refuted():
    verdict = check(History.parse("ann: w1    r2\nbob: w2 r2   r1"), "linearizable")
    assert verdict.status is Status.ILLEGAL
    wio = check(History.parse("p: [w1 ]\np:  [w2 ]\nq:       r2 r1 "), "sequential-wio")
    assert wio.explanation.kind == "no order"
    assert "With w(x)1 before w(x)2:" in wio.explanation.text
    assert "With w(x)2 before w(x)1:" in wio.explanation.text


def test_session_guarantees_name_the_two_operations():
    verdict = check(History.parse("ann: w1@1 w2@2 r1@1"), "read-your-writes")
    [step] = [each for each in verdict.explanation.steps if "over before" in each.why]
    assert (step.first.label, step.then.label) == ("w(x)2@2", "r(x)1@1")
    assert "read-your-writes" in verdict.explanation.text
    future = check(History.parse("ann: r1 w1"), "writes-follow-reads")
    assert {each.label for each in future.explanation.operations} == {"r(x)1", "w(x)1"}


def test_the_papers_own_trouble():
    """The protocol of Mobius 4.2 does not meet definition 3, and what it does meet has a name."""
    history = History.parse("ann: [w0>1          !2]\nann:      u1           u2\nbob:        w0>2")
    verdict = check(history, "fork-sequential")
    assert (verdict.status, verdict.explanation.kind) == (Status.ILLEGAL, "saw a refused write")
    assert [each.label for each in verdict.explanation.operations] == ["w(x)0>1!2", "r(x)1", "w(x)0>2"]
    weaker = check(history, "fork-sequential-retracted")
    assert weaker.status is Status.OK
    assert "r(x)1" not in [each.label for each in weaker.views["x"]["ann"]]
    for guarantee in ("monotonic-reads", "read-your-writes", "monotonic-writes", "writes-follow-reads"):
        assert check(history, guarantee).status is Status.OK


def test_views_fork_and_say_where():
    result = views(History.parse(FORKED), key="x")
    assert [each.label for each in result["ann"]] == ["w(x)0>1", "r(x)1", "r(x)1"]
    assert [each.label for each in result["bob"]] == ["w(x)0>2", "r(x)2", "r(x)2"]
    assert views(History.parse("ann: w1 r7"), key="x") == {}


@pytest.mark.parametrize("model", ["linearizable", "sequential", "fork-sequential"])
@pytest.mark.parametrize("later", ["d", "w0>1", "w5", "d d", "w0>1 d"])
def test_nobody_expects_what_comes_later(model, later):
    """A refused write that found what it expected stays illegal, whatever its client does long afterwards."""
    for first in ("[w0>5!0]", "w1 [w1>5!1]"):
        for text in (f"ann: {first}", f"ann: {first}          {later}"):
            assert check(History.parse(text), model).status is Status.ILLEGAL, text


# -- bounds


def test_a_history_that_is_too_long_for_the_search_is_unknown():
    history = recorded(1, operations=checker_module.MAX_OPERATIONS + 1, clients=3, versions=False)
    verdict = check(history, "sequential")
    assert (verdict.status, verdict.explanation.kind) == (Status.UNKNOWN, "too large")
    assert "3,000" in verdict.explanation.text


def test_the_time_is_a_bound_as_well():
    """Many writes at once that nobody can order, and one read too many: the search would take for ever."""
    writes = [
        Operation(f"c{n}", 1, "x", Kind.WRITE, n, 100_000, Content(f"v{n}"), outcome=Outcome.OK)
        for n in range(26)
    ]
    reads = [
        Operation(f"r{n}", turn, "x", Kind.READ, at_us, at_us + 1, Content(f"v{value}"))
        for n in range(26)
        for turn, at_us, value in ((0, 200_000, n), (1, 200_010, (n + 1) % 26))
    ]
    began_s = time.monotonic()
    for model in MODELS:
        verdict = check(History([*writes, *reads]), model, within_s=0.05)
        assert verdict.status is not Status.OK or MODELS[model].form is Form.WRITE_ORDER, model
    assert time.monotonic() - began_s < 30  # a guard, not a measurement


def test_many_ways_to_read_it_are_a_bound_as_well():
    """Seven writes of one value, read a dozen times: 7 to the 12th ways."""
    writes = " ".join(["w1"] * 7) + " w2"
    history = History.parse(f"p: {writes}\nq: {' ' * len(writes)}" + " r1 r2 r1" + " r1" * 10)
    verdict = check(history, "sequential", within_s=0.2)
    assert (verdict.status, verdict.explanation.kind) == (Status.UNKNOWN, "too large")


@pytest.mark.parametrize(("writes", "status"), [(30, Status.OK), (29, Status.UNKNOWN)])
def test_ways_that_contradict_themselves_are_left_at_once_and_the_time_bounds_those_too(writes, status):
    """Thirty versions of writes that were never answered, one a write: trying all ways takes for ever."""
    clients = "\n".join(f"p{n}: w1…" for n in range(writes))
    history = History.parse(f"{clients}\nq: " + " ".join(f"r1@{version}" for version in range(1, 31)))
    verdict = check(history, "sequential", within_s=0.2)
    assert verdict.status is status


# -- the table of models


def test_the_table():
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
    """Whichever types count, an uncommitted read may return more than a later committed one (Mobius 4.1)."""
    verdict = check(History.parse(text), "monotonic-reads", reads=["uncommitted", "committed"])
    assert verdict.status is status


@pytest.mark.parametrize("model", MODELS)
def test_two_writes_are_not_taken_for_one_version(model):
    """Two pending writes each name version 5 in their condition, which only the other one could be."""
    history = History.parse("p: w@5>1…\nq: w@5>2…\np:           r1\nq:           r2")
    assert check(history, model).status is (Status.OK if meets(list(history), model) else Status.ILLEGAL)


def test_what_is_taken_out_takes_along_the_unanswered_writes_that_replaced_it():
    """A smaller history must not hold an anomaly that the whole one does not."""
    verdict = check(History.parse("ann: w1   w2  r1\nbob:      w1>3…  r3"), "sequential")
    assert [each.label for each in verdict.explanation.operations] == ["w(x)1", "w(x)2", "r(x)1"]
    assert "Nobody wrote" not in verdict.explanation.text
