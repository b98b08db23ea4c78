"""Crew with job lists: what each sync engine pays for, and what its users get."""

import math

import pytest

from mudkit.systems import mud
from mudkit.worlds import Crew, SyncEngine

LISTENER = SyncEngine("screens")
QUEUE = SyncEngine("all", write_policy=mud.Later(900))
ASKER = SyncEngine("nothing", write_utility=mud.latency() + mud.energy(per_j_s=60))
NO_USERS = {"looks_per_hour": 0.0, "reports_per_hour": 0.0}


def test_changes_of_the_office_cost_the_phones_that_listen():
    """A continuous read brings every change of its records (Mobius 3.1), wanted or not."""
    plan = NO_USERS | {"phones": 1, "screens": 1, "hours": 1.0}
    quiet, busy = (Crew(**plan, changes_per_hour=rate) for rate in (0.0, 20.0))
    more = {
        name: busy.run(engine, 1)["wakeups_per_hour"] - quiet.run(engine, 1)["wakeups_per_hour"]
        for name, engine in {"listener": LISTENER, "queue": QUEUE, "asker": ASKER}.items()
    }
    assert more["queue"] > 2 * more["listener"] > 0 == more["asker"]


def test_engines_answer_looks_alike_and_differ_in_delays_of_reports():
    crew = Crew(hours=1.0, elsewhere_share=0.0)
    listener, queue, asker = (crew.run(engine, 1) for engine in (LISTENER, QUEUE, ASKER))
    assert listener["looks"] == queue["looks"] == asker["looks"]
    assert listener["local_share"] == queue["local_share"] == 1.0
    assert asker["local_share"] < 0.5
    assert listener["commit_s"] < 1.0 < asker["commit_s"] < queue["commit_s"] <= 900.5


def test_reports_that_wait_at_the_end_are_on_the_bill():
    reports = {"looks_per_hour": 0.0, "changes_per_hour": 0.0, "reports_per_hour": 20.0, "hours": 0.5}
    late = SyncEngine("nothing", write_policy=mud.Later(3000))
    measures = Crew(**reports, phones=1).run(late, 3)
    assert measures["wakeups_per_hour"] > 0
    assert 1200 < measures["commit_s"] < 3001


def test_without_a_network_a_phone_shows_what_its_engine_has_brought():
    crew = Crew(hours=1.0, offline_share=0.5, elsewhere_share=0.3)
    listener, queue, asker = (crew.run(engine, 2) for engine in (LISTENER, QUEUE, ASKER))
    assert queue["incomplete_share"] < listener["incomplete_share"] < asker["incomplete_share"]


def test_measures_without_looks_and_reports_are_not_numbers():
    measures = Crew(**NO_USERS, phones=1, hours=0.1).run(ASKER, 1)
    assert measures["looks"] == measures["j_per_hour"] == 0.0
    assert all(math.isnan(measures[name]) for name in ("local_share", "oldest_s", "commit_s"))


def test_table_has_the_mean_and_the_range_of_the_seeds():
    crew = Crew(hours=0.5)
    table = crew.compare({"listener": LISTENER, "asker": ASKER}, seeds=[1, 2])
    runs = [crew.run(LISTENER, seed)["j_per_hour"] for seed in (1, 2)]
    row = table.set_index("engine").loc["listener"]
    assert row["j_per_hour"] == pytest.approx(sum(runs) / 2)
    assert (row["j_per_hour_low"], row["j_per_hour_high"]) == (min(runs), max(runs))


def test_all_lists_are_drawn_evenly():
    """The plan says that all are drawn evenly: the last one, too."""
    changes = {"phones": 1, "screens": 1, "looks_per_hour": 0.0, "reports_per_hour": 0.0, "hours": 2.0}
    one, two = (Crew(**changes, lists=lists, changes_per_hour=60.0) for lists in (1, 2))
    follow = SyncEngine("screens")
    assert two.run(follow, 1)["kb_per_hour"] < 0.75 * one.run(follow, 1)["kb_per_hour"]
