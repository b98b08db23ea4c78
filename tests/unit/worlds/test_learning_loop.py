"""Days of a cloud that learns: same drives, policies in use, and what each day costs."""

import pandas as pd
import pyarrow as pa
import pytest

from mudkit import learning
from mudkit.systems.mud import Artefact, LearntPolicy
from mudkit.worlds import LearningDays

PLAN = LearningDays(cars=3, days=3, changes_on=3, reads_per_day=12.0)


class Fixed:
    """Learner that recommends a fixed policy for reads after some nights, and notes what it was given."""

    def __init__(self, *artefacts):
        self._artefacts = artefacts
        self.usage: list[pa.Table] = []

    def learn(self, usage, seed):
        self.usage.append(usage)
        night = len(self.usage) - 1
        return [LearntPolicy("traffic", self._artefacts[night])] if night < len(self._artefacts) else []


def build_policy(leaf, chosen):
    return Artefact.create("read", 1, [], [[0]], [leaf], manifest={"chosen": chosen}, table="traffic")


@pytest.fixture(scope="module")
def ruled():
    return PLAN.run(3)


@pytest.fixture(scope="module")
def shipped():
    learner = Fixed(build_policy("local", "age"), build_policy("own", "own policy"))
    return PLAN.run(3, learner), learner


def test_drives_and_queries_are_the_same_with_and_without_a_learner(ruled, shipped):
    run, _ = shipped
    assert list(run.table["reads"]) == list(ruled.table["reads"])
    assert list(run.table["reports"]) == ["while driving", "while driving", "at any time"]
    first = pd.DataFrame([ruled.table.iloc[0], run.table.iloc[0]])
    assert first["sent_share"].nunique() == first["stale_share"].nunique() == 1


def test_policy_of_the_night_is_in_use_on_the_next_day_until_it_is_taken_back(ruled, shipped):
    run, _ = shipped
    assert list(run.table["policy_in_use"]) == ["own rule", "age", "own rule"]
    assert run.table["sent_share"].iloc[1] < ruled.table["sent_share"].iloc[1]
    assert list(run.learnt["policy_in_use"]) == ["age", "own rule"]


def test_learner_hears_of_all_days_so_far(shipped):
    _, learner = shipped
    sizes = [len(usage) for usage in learner.usage]
    assert len(sizes) == 2
    assert 0 < sizes[0] < sizes[1]
    assert set(learner.usage[1]["op"].to_pylist()) == {"read", "write"}


def test_bills_of_the_days_add_up_to_that_of_the_lab(ruled):
    bill = ruled.lab.bill()
    cars = bill[bill["device"].str.startswith("car")]
    assert ruled.table["messages"].sum() == cars["messages"].sum()
    assert ruled.table["bytes"].sum() == cars["bytes"].sum()
    assert ruled.table["radio_j"].sum() == pytest.approx(cars["radio_mj"].sum() / 1000)


def test_usage_is_empty_without_a_learner(ruled):
    assert ruled.lab.frame("usage").empty
    assert ruled.learnt.empty


def test_parked_cars_report_from_the_day_of_the_change_on(ruled):
    by_day = ruled.table.groupby("reports")["messages"].mean()
    assert by_day["at any time"] > 1.5 * by_day["while driving"]


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1, 6))
def test_policies_save_reads_and_are_careful_after_the_change(seed):
    """Chapter 14: in the nights after the change the limit of stale answers is kept again, on most days."""
    plan = LearningDays()
    learner = learning.Learner(window_s=plan.window_s, completeness=plan.completeness, max_stale=0.15)
    days, own = plan.run(seed, learner).table.set_index("day"), plan.run(seed).table.set_index("day")
    assert days["sent_share"][2:3].mean() < 0.8 * own["sent_share"][2:3].mean()
    assert days["stale_share"][6:7].mean() <= 0.15
