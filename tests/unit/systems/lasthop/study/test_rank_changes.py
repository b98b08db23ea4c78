"""Votes and retractions in the simulator (Last hop 4.4)."""

from __future__ import annotations

import numpy as np
import pytest

from mudkit.errors import ParameterError
from mudkit.systems.lasthop import Expiration, Forwarding, Outcome, RankChanges, Scenario, Spool, play
from mudkit.systems.lasthop.spool.ranked import FOREVER_US
from mudkit.systems.lasthop.study.scenario import Drawn
from mudkit.systems.lasthop.study.simulation import play_online

S = 1_000_000
DAY_US = 86_400 * S


def build_events(arrivals_s, ranks, reads_s, changes, switches_s=()):
    """Return events with changes of ranks: (time in seconds, number of the message, rank)."""
    times, numbers, changed_ranks = zip(*changes, strict=True)
    as_us = [np.array(values, dtype=np.int64) * S for values in (arrivals_s, reads_s, switches_s, times)]
    forever = np.full(len(arrivals_s), FOREVER_US)
    return Drawn(
        as_us[0],
        forever,
        np.array(ranks),
        as_us[1],
        as_us[2],
        True,
        as_us[3],
        np.array(numbers, dtype=np.int64),
        np.array(changed_ranks),
    )


def play_events(drawn, policy, max_messages=8):
    return play(drawn, lambda *callbacks: Spool(0.5, policy, *callbacks), max_messages)


def test_retracted_message_is_not_read_and_was_sent_in_vain():
    drawn = build_events([1, 2], [0.9, 0.8], [9], [(5, 0, -1e9)])
    assert play_events(drawn, Forwarding("on-line")) == Outcome((0, 1), (1,))
    assert play_online(drawn, 0.5, 8) is None, "it knows no changes"


def test_message_that_is_retracted_during_the_delay_is_not_sent():
    """The delay stage of Figure 7: a message may be prefetched when its rank has held for a while."""
    drawn = build_events([1, 2], [0.9, 0.8], [30], [(5, 0, -1e9)])
    assert play_events(drawn, Forwarding("buffer", 4)) == Outcome((0, 1), (1,))
    assert play_events(drawn, Forwarding("buffer", 4, delay_s=10)) == Outcome((1,), (1,))


def test_votes_change_what_is_read_first_and_admit_a_message():
    drawn = build_events([1, 2, 3], [0.6, 0.7, 0.4], [9], [(5, 0, 0.8), (6, 2, 0.9)])
    assert play_events(drawn, Forwarding("on-line"), 2).read_ids == (2, 0)


def test_device_without_a_link_does_not_know_of_a_retraction():
    """It shows the message in the outage, and has lost it afterwards."""
    changes = [(5, 0, -1e9)]
    in_outage = build_events([1, 2], [0.9, 0.8], [6], changes, switches_s=[4, 8])
    after_it = build_events([1, 2], [0.9, 0.8], [9], changes, switches_s=[4, 8])
    assert play_events(in_outage, Forwarding("on-line"), 1).read_ids == (0,)
    assert play_events(after_it, Forwarding("on-line"), 1).read_ids == (1,)


def test_message_that_waits_in_an_outage_is_retracted_at_the_server():
    drawn = build_events([5, 6], [0.9, 0.8], [9], [(7, 0, -1e9)], switches_s=[4, 8])
    assert play_events(drawn, Forwarding("on-line")) == Outcome((1,), (1,))


def test_changes_are_drawn_as_described():
    changes = RankChanges(retracted_share=0.25, votes=3.0, vote=0.05, after=Expiration(600.0))
    drawn = Scenario(400, 2, days=50, rank_changes=changes).draw(7)
    is_retraction = drawn.changed_ranks < 0
    assert is_retraction.sum() / len(drawn.ranks) == pytest.approx(0.25, abs=0.015)
    per_message = np.bincount(drawn.changed[~is_retraction], minlength=len(drawn.ranks))
    retracted = np.zeros(len(drawn.ranks), dtype=bool)
    retracted[drawn.changed[is_retraction]] = True
    assert per_message[~retracted].mean() == pytest.approx(3.0, abs=0.05)
    assert per_message[~retracted].var() == pytest.approx(3.0, abs=0.15), "Poisson"
    age_s = (drawn.changes_us - drawn.arrivals_us[drawn.changed]) / S
    assert age_s[is_retraction].mean() == pytest.approx(600, rel=0.05)
    assert (np.diff(drawn.changes_us) >= 0).all()
    assert ((drawn.changed_ranks[~is_retraction] >= 0) & (drawn.changed_ranks[~is_retraction] <= 1)).all()
    first_vote = np.unique(drawn.changed[~is_retraction], return_index=True)
    added = drawn.changed_ranks[~is_retraction][first_vote[1]] - drawn.ranks[first_vote[0]]
    inner = (drawn.ranks[first_vote[0]] > 0.2) & (drawn.ranks[first_vote[0]] < 0.8)
    assert added[inner].std() == pytest.approx(0.05, rel=0.05)
    ends = dict(zip(drawn.changed[is_retraction], drawn.changes_us[is_retraction], strict=True))
    votes = zip(drawn.changed[~is_retraction], drawn.changes_us[~is_retraction], strict=True)
    assert all(at < ends.get(number, FOREVER_US) for number, at in votes), "nobody votes on what is retracted"


def test_other_events_are_those_of_the_seed_without_changes():
    scenario = Scenario(32, 2, days=20, rank_changes=RankChanges(0.5, 2.0))
    drawn, plain = scenario.draw(3), Scenario(32, 2, days=20).draw(3)
    for name in ("arrivals_us", "ranks", "reads_us", "switches_us", "expires_us"):
        assert (getattr(drawn, name) == getattr(plain, name)).all()
    assert (drawn.changes_us == scenario.draw(3).changes_us).all()
    assert scenario.describe()["rank_changes"]["votes"] == 2.0


def test_changes_later_than_a_week_do_not_come():
    drawn = Scenario(32, 2, days=60, rank_changes=RankChanges(1.0, after=Expiration(30 * 86_400.0))).draw(1)
    assert 0 < len(drawn.changes_us) < 0.3 * len(drawn.ranks)
    assert (drawn.changes_us - drawn.arrivals_us[drawn.changed]).max() <= 7 * DAY_US


@pytest.mark.parametrize(
    "settings",
    [{"retracted_share": 1.5}, {"votes": -1.0}, {"vote": "much"}, {"after": 0.0}, {"after": "soon"}],
)
def test_unusable_changes_are_refused(settings):
    with pytest.raises(ParameterError, match=next(iter(settings))):
        RankChanges(**settings)
