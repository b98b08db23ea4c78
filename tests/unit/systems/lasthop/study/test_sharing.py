"""Several devices of one user: who fetches, who may read, who is told."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudkit.errors import ParameterError
from mudkit.sources.outages import Outages
from mudkit.systems.lasthop import Expiration, Forwarding, Spool
from mudkit.systems.lasthop.spool.ranked import FOREVER_US
from mudkit.systems.lasthop.study.scenario import Drawn, Scenario
from mudkit.systems.lasthop.study.sharing import MODES, Devices, compare_sharing, play_devices
from mudkit.systems.lasthop.study.simulation import beginning, play

S = 1_000_000
NOBODY = (np.empty(0, dtype=np.int64), False)
ALWAYS = (np.empty(0, dtype=np.int64), True)
ON_LINE, ON_DEMAND = Forwarding("on-line"), Forwarding("on-demand")


def devices(arrivals, reads, links, on):
    """Events at whole seconds; the first link is that of the first device."""
    came = np.array(arrivals) * S
    (switches, starts_up), *others = [(np.array(switches, dtype=np.int64) * S, up) for switches, up in links]
    drawn = Drawn(
        came,
        np.full(len(came), FOREVER_US),
        np.linspace(0.9, 0.1, len(came)),
        np.array(reads) * S,
        switches,
        starts_up,
    )
    return Devices(drawn, others, np.array(on))


def test_what_one_has_fetched_the_other_can_read():
    story = devices([1, 2], [10], [([], True), ([], False)], on=[1])
    shared = play_devices(story, ON_LINE, "shared")
    assert (shared.read_ids, shared.copies, shared.handed_over, shared.waste) == ((0, 1), 2, 2, 0.0)
    answer = play_devices(story, ON_LINE, "told")
    assert (answer.read_ids, answer.copies, answer.waste) == ((), 2, 1.0)
    assert answer.loss(shared) == 1.0


def test_who_has_a_link_fetches_for_who_reads():
    story = devices([1], [10], [([5], True), ([5], False)], on=[0])
    assert play_devices(story, ON_DEMAND, "shared").read_ids == (0,)
    assert play_devices(story, ON_DEMAND, "told").read_ids == ()


def test_the_device_that_is_read_on_fetches_if_it_can():
    story = devices([1], [10], [([], True), ([], True)], on=[1])
    assert play_devices(story, ON_DEMAND, "shared").handed_over == 0


def test_reading_on_one_ends_it_on_the_other():
    story = devices([1], [10, 20], [([], True), ([], True)], on=[0, 1])
    assert {mode: play_devices(story, ON_LINE, mode).read_ids for mode in MODES} == {
        "told": (0,),
        "apart": (0, 0),
        "shared": (0,),
    }
    assert play_devices(story, ON_LINE, "apart").read_again == 1
    answer = play_devices(story, ON_LINE, "told")
    assert (answer.copies, answer.unread) == (2, 1)


def test_who_is_away_is_told_later():
    away = devices([1], [10, 20], [([], True), ([5], True)], on=[0, 1])
    assert play_devices(away, ON_LINE, "told").read_ids == (0, 0), "the second one could not know"
    back = devices([1], [10, 20], [([], True), ([5, 15], True)], on=[0, 1])
    assert play_devices(back, ON_LINE, "told").read_ids == (0,)
    offline = devices([1], [10, 20, 40], [([5, 30], True), ([], True)], on=[0, 1, 1])
    assert play_devices(offline, ON_LINE, "told").read_ids == (0, 0), "the first one could not say"
    said = devices([1], [10, 40], [([5, 30], True), ([], True)], on=[0, 1])
    assert play_devices(said, ON_LINE, "told").read_ids == (0,)


def test_what_is_due_before_the_link_goes_is_done_before():
    """Room that an expiration makes at 4 s is filled over the link that goes down at 5 s."""
    story = devices([1, 2], [10], [([5], True)], on=[0])
    expires = np.array([4 * S, FOREVER_US])
    drawn = Drawn(
        story.drawn.arrivals_us,
        expires,
        story.drawn.ranks,
        story.drawn.reads_us,
        story.drawn.switches_us,
        True,
    )
    for mode in MODES:
        assert play_devices(Devices(drawn, [], story.reads_on), Forwarding("buffer", 1), mode).read_ids == (
            1,
        )


SCENARIOS = st.builds(
    Scenario,
    event_frequency=st.sampled_from([8.0, 64.0]),
    user_frequency=st.sampled_from([1.0, 6.0]),
    outages=st.sampled_from([Outages(0.0), Outages(0.5), Outages(0.9, per_day=2.0), Outages(1.0)]),
    expiration=st.sampled_from([None, Expiration(7200.0)]),
    days=st.just(8),
)
POLICIES = st.sampled_from([ON_LINE, ON_DEMAND, Forwarding("buffer", 8), Forwarding.of("unified")])


@given(SCENARIOS, POLICIES, st.sampled_from(MODES), st.integers(0, 1 << 30))
def test_one_device_is_the_simulator(scenario, policy, mode, seed):
    drawn = Devices.draw(scenario, seed, devices=1)
    alone, plain = play_devices(drawn, policy, mode), play(drawn.drawn, beginning(policy, 0.0), 8)
    assert alone.read_ids == plain.read_ids
    assert (alone.copies, alone.handed_over) == (len(plain.forwarded_ids), 0)
    assert alone.waste == plain.waste


@given(SCENARIOS, POLICIES, st.integers(1, 4), st.booleans(), st.integers(0, 1 << 30))
def test_whatever_happens(scenario, policy, count, same_link, seed):
    drawn = Devices.draw(scenario, seed, devices=count, same_link=same_link)
    best = play_devices(drawn, ON_LINE, "shared")
    for mode in MODES:
        run = play_devices(drawn, policy, mode)
        assert 0.0 <= run.waste <= 1.0
        assert 0.0 <= run.loss(best) <= 1.0
        assert run.copies - run.unread == len(run.read_ids), "each read is of a copy"
        if mode == "shared":
            assert run.read_again == 0
            assert run.copies <= len(drawn.drawn.arrivals_us)
        else:
            assert run.handed_over == 0
        if policy is ON_DEMAND:
            assert run.unread == 0
    assert best.loss(best) == 0.0


def test_devices_have_links_of_their_own_or_the_same():
    scenario = Scenario(outages=Outages(0.5), days=10)
    own, same = (Devices.draw(scenario, 3, devices=3, same_link=given) for given in (False, True))
    lengths = {len(own.drawn.switches_us), *(len(switches_us) for switches_us, _ in own.links)}
    assert len(lengths) > 1
    assert all((switches_us == same.drawn.switches_us).all() for switches_us, _ in same.links)
    assert (own.drawn.arrivals_us == same.drawn.arrivals_us).all()
    assert set(own.reads_on.tolist()) == {0, 1, 2}


@pytest.mark.soak
def test_sharing_saves_bytes_and_losses():
    scenario = Scenario(outages=Outages(0.9), days=60)
    table = compare_sharing(scenario, seeds=range(6)).set_index(["mode", "measure"])
    assert list(dict.fromkeys(mode for mode, _ in table.index)) == list(MODES)
    assert (table.loc["told", ["difference", "difference_low", "difference_high"]] == 0.0).all(axis=None)
    for measure in ("waste", "loss", "bytes_per_day"):
        assert table.loc[("shared", measure), "difference_high"] < 0.0
    assert table.loc[("shared", "handed_over_per_day"), "mean"] > 0.0
    assert table.loc[("apart", "read_again"), "mean"] > 0.2
    same = compare_sharing(scenario, same_link=True, seeds=range(6)).set_index(["mode", "measure"])
    assert same.loc[("shared", "loss"), "mean"] > table.loc[("shared", "loss"), "mean"], (
        "links that fail together help less"
    )


def test_what_cannot_be_compared():
    with pytest.raises(ParameterError, match="mode"):
        play_devices(Devices.draw(Scenario(days=1), 1), ON_LINE, "near")
    with pytest.raises(ParameterError, match="devices"):
        Devices.draw(Scenario(days=1), 1, devices=0)
    with pytest.raises(ParameterError, match="seeds"):
        compare_sharing(Scenario(days=1), seeds=[])
    with pytest.raises(ParameterError, match="max"):
        compare_sharing(Scenario(days=1), max=1.5, seeds=[1])


# -- what the spool does with it


def test_what_was_read_elsewhere_leaves_every_queue_once():
    came, gone = [], []
    policy = Forwarding("buffer", 1, expiration_threshold_s=60.0, delay_s=5.0)
    spool = Spool(0.0, policy, lambda m: came.append(m.identity), lambda m: gone.append(m.identity))
    spool.network(0, is_up=True)
    spool.notification(0, "device", 0.9)
    spool.timeout(5 * S)
    spool.notification(5 * S, "prefetch", 0.5)
    spool.timeout(10 * S)
    spool.notification(10 * S, "holding", 0.5, 20 * S)
    spool.notification(10 * S, "delayed", 0.4)
    assert (came, spool.device.size, spool.waiting) == (["device"], 1, 3)
    spool.read_elsewhere(11 * S, ["prefetch", "holding", "nothing", "prefetch"])
    assert (came, gone, spool.waiting) == (["device"], [], 1)
    spool.timeout(15 * S)
    spool.read_elsewhere(16 * S, ["device"])
    assert (came, gone) == (["device", "delayed"], ["device"]), "its room is free at once"
    spool.notification(16 * S, "prefetch", 0.9)
    assert spool.waiting == 0, "what was read stays read"


def test_what_was_read_here_too_is_told_twice_and_counts_once():
    spool = Spool(0.0, ON_LINE, lambda m: None, lambda m: None)
    spool.network(0, is_up=True)
    spool.notification(0, "a", 0.5)
    spool.network(1, is_up=False)
    spool.device.pop()
    spool.read_elsewhere(2, ["a"])
    spool.read_offline(1, ["a"])
    assert (spool.device.size, spool.waiting) == (0, 0)


def test_a_rank_that_falls_after_a_read_that_is_not_told_changes_nothing():
    spool, gone = Spool(0.2, ON_LINE, lambda m: None, lambda m: gone.append(m.identity)), []
    spool.network(0, is_up=True)
    spool.notification(0, "a", 0.5)
    spool.network(1, is_up=False)
    spool.device.pop()
    spool.notification(2, "a", 0.1)
    assert (spool.device.size, gone) == (0, [])
