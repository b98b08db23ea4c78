"""What is measured, at small sizes and untimed."""

import math

import pytest

from mudkit.errors import EnvironmentProblem, ParameterError
from mudkit.predicates import Predicate
from mudkit.reproduce import capacity, compiling, growth, kernel, lab, matching, mobius
from mudkit.reproduce.workload import TEXTS, Workload

M1, M2 = mobius.ROWS
F1, F5 = lab.ROWS


@pytest.fixture(scope="module")
def m1():
    return matching.measure(
        subscriptions=600, fewer=200, hard=300, topics=20, hot_topics=2, records=40, updates=30,
        partitions=(1, 5, 20), runs=2,
    )  # fmt: skip


def test_m1_measures_all_that_is_required(m1):
    assert {required.figure for required in M1.required} <= set(m1.figures)
    for name, figure in m1.figures.items():
        assert math.isfinite(figure.median), name
        assert figure.low <= figure.median <= figure.high, name
    assert m1.figures["share of records on which both agree"].low == 1
    assert m1.parameters["subscriptions"] == 600


def test_m1_tells_the_hard_shapes(m1):
    for shape in ("ranges", "wide", "skewed", "near"):
        assert m1.figures[f"{shape}: µs a record"].median > 0
    assert m1.figures["near: µs for 10 moves and a record"].median > 0


def test_a_difference_between_index_and_one_by_one_is_noticed(monkeypatch):
    assert matching._agreement(Workload(300, 2)) == 1
    whole = matching.one_by_one
    monkeypatch.setattr(matching, "one_by_one", lambda *pair: whole(*pair)[:2])
    assert 0 < matching._agreement(Workload(300, 2)) < 1


def test_m2_measures_all_that_is_required():
    found = capacity.measure(subscriptions=2000, topics=[10], seeds=[1])
    assert {required.figure for required in M2.required} <= set(found.figures)
    assert found.figures["subscriptions held"].median == 2000
    assert 10 < found.figures["MB before the first"].median < found.figures["MB at the peak"].median < 500


def test_m2_says_when_the_process_ends_early(monkeypatch):
    monkeypatch.setattr(capacity, "_CODE", "raise MemoryError('no room')")
    with pytest.raises(EnvironmentProblem, match="no room"):
        capacity.measure(subscriptions=10, topics=[1], seeds=[1])


def test_f5_measures_all_that_is_required():
    found = compiling.measure(texts=3, calls=5, runs=2)
    assert {required.figure for required in F5.required} <= set(found.figures)
    assert all(figure.low > 0 for figure in found.figures.values())


def test_the_kernel_small():
    found = kernel.measure(devices=20, hours=1, repeats=1, fleet=30, fleet_hours=2, seeds=[3])
    assert {required.figure for required in F1.required} <= set(found.figures)
    assert found.figures["positions"].median == 30 * 121
    # A report each ten minutes and its acknowledgement; only the first device reports at the first moment and at the last.
    assert found.figures["messages"].median == (30 * 12 + 1) * 2 - 1
    assert 0 < found.figures["MB before"].median <= found.figures["MB at the peak, large fleet"].median


def test_a_fleet_whose_process_ends_early_says_so():
    with pytest.raises(EnvironmentProblem, match="ended before it was done"):
        kernel.measure(devices=1, hours=1, repeats=1, fleet=0, fleet_hours=1, seeds=[1])


def test_new_texts_are_of_new_shapes():
    texts = compiling._renamed(compiling.PLAIN, 5)
    assert len({Predicate(text, low=1, high=2).signature for text in texts}) == 5


def test_the_papers_curve():
    assert matching.papers_messages_per_s(1) == 5000
    assert round(matching.papers_messages_per_s(1000)) == 69
    assert "69 at 1,000" in M1.paper


def test_the_fit_is_a_line():
    many = [1, 10, 100, 1000]
    base, per_s, power = matching._fit(many, [3e-6, 21e-6, 201e-6, 2001e-6])
    assert (round(base, 9), round(per_s), round(power, 2)) == (1, 500_000, 1)
    for slower, expected in ((lambda n: 1e-6 * n**2, 2), (lambda n: 1e-6 * n**0.5, 0.5), (lambda n: 1e-6, 0)):
        assert matching._fit(many, [slower(n) for n in many])[2] == pytest.approx(expected, abs=0.01)
    assert matching._fit(many, [3e-6, 21e-6, 2001e-6, 201e-6])[2] < 0  # shuffled


@pytest.mark.parametrize("shape", TEXTS)
def test_workloads_say_the_same_again(shape):
    a, b, c = (list(Workload(50, 3, seed, shape).draw()) for seed in (1, 1, 2))
    assert a == b != c
    assert Workload(50, 3, 1, shape).records(5) == Workload(50, 3, 1, shape).records(5)
    assert len({name for name, *_ in a}) == 50


@pytest.mark.parametrize(
    ("subscriptions", "topics", "shape"), [(200, 20, "box"), (20_000, 20, "box"), (3000, 9, "ranges")]
)
def test_a_record_reaches_about_five(subscriptions, topics, shape):
    load = Workload(subscriptions, topics, shape=shape)
    found = load.index().match_many(load.records(2000))
    assert 4.5 < sum(map(len, found)) / 2000 < 5.5


def test_a_shape_that_is_none():
    with pytest.raises(ParameterError, match="skewed"):
        Workload(5, shape="round")


@pytest.mark.parametrize("shape", TEXTS)
def test_all_ways_find_the_same(shape):
    table = growth.growth([50, 400], topics=4, records=30, shape=shape)
    ours = table[table["way"] != growth.PAPER]
    assert list(table["way"]) == 2 * [*growth.WAYS, growth.PAPER]
    assert (ours["agree"] == 1).all()
    assert ours["reached"].gt(0).all()
    assert list(ours.loc[ours["way"] == growth.WAYS[0], "looked_at"]) == [50, 400]


def test_growth_takes_positive_numbers():
    with pytest.raises(ParameterError, match="0 records"):
        growth.growth([10], records=0)
