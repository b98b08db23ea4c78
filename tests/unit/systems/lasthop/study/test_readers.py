"""The reader's view: counted again by a simulator of its own, in plain Python."""

from __future__ import annotations

import math
from statistics import mean, median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudkit.sources import Outages
from mudkit.systems.lasthop import Expiration, Forwarding, Push, Scenario, score_policies, simulate
from mudkit.systems.lasthop.spool.ranked import FOREVER_US
from mudkit.systems.lasthop.study import readers
from mudkit.systems.lasthop.study.logs import drawn_from
from mudkit.systems.lasthop.study.readers import COUNTS, Reader
from mudkit.systems.lasthop.study.simulation import play, spool_factory

HOUR = 3_600_000_000
DAY = 24 * HOUR


def replay(messages, reads, outages, *, limit, max_messages, keep_back_us=0):
    """Return which messages were forwarded, when each was read, and the number of reads in vain.

    ``messages`` are (arrival, expiration or None, rank) of acceptable ones, ``outages`` (begin, end). A log
    ends with its last arrival, read or change of the link.
    """
    events = [(time, 0, False) for time, _ in outages] + [(time, 0, True) for _, time in outages]
    events += [(message[0], 1, number) for number, message in enumerate(messages)]
    events += [(time, 3, None) for time in reads]
    last = max(event[0] for event in events)
    expirations = [
        (message[1], 2, number) for number, message in enumerate(messages) if message[1] is not None
    ]
    events += [expiration for expiration in expirations if expiration[0] <= last]
    has_link, server, device, forwarded, read_at, in_vain = True, set(), set(), set(), {}, 0

    def by_rank(numbers):
        return sorted(numbers, key=lambda number: (-messages[number][2], number))

    for time, kind, what in sorted(events, key=lambda event: event[:2]):
        if kind == 0:
            has_link = what
        elif kind == 1:
            server.add(what)
        elif kind == 2:
            server.discard(what)
            device.discard(what)
        else:
            taken = by_rank(server | device if has_link else device)[:max_messages]
            forwarded |= set(taken) & server
            in_vain += not has_link and len(taken) < max_messages and len(server) > 0
            server -= set(taken)
            device -= set(taken)
            read_at |= dict.fromkeys(taken, time)
        if has_link:
            may_go = [
                number
                for number in by_rank(server)
                if messages[number][1] is None or messages[number][1] - messages[number][0] >= keep_back_us
            ]
            while may_go and len(device) < limit:
                device.add(may_go[0])
                server.remove(may_go[0])
                forwarded.add(may_go.pop(0))
    return forwarded, read_at, in_vain


def count_again(messages, reads, outages, **setting):
    """Return waste, loss, share of reads in vain, mean and median of the delays in seconds."""
    most = setting["max_messages"]
    forwarded, read_at, in_vain = replay(messages, reads, outages, **setting)
    _, online, _ = replay(messages, reads, outages, limit=math.inf, max_messages=most)
    _, shown, _ = replay(messages, reads, [], limit=math.inf, max_messages=most)
    could = set(online) or set(shown)
    delays = [max(read_at[number] - shown[number], 0) / 1e6 for number in read_at.keys() & shown.keys()]
    return (
        len(forwarded - set(read_at)) / len(forwarded) if forwarded else 0.0,
        len(could - set(read_at)) / len(could) if could else 0.0,
        in_vain / len(reads),
        mean(delays) if delays else 0.0,
        median(delays) if delays else math.nan,
    )


@st.composite
def logs(draw):
    """Draw arrivals with ranks and expirations, reads and outages within three days, no two at one moment."""
    times = draw(st.lists(st.integers(0, 3 * DAY - 1), min_size=8, max_size=60, unique=True))
    reads = draw(st.integers(1, len(times) // 3))
    switches = 2 * draw(st.integers(0, (len(times) - reads) // 4))
    rest = times[reads + switches :]
    lasting = st.one_of(st.none(), st.integers(1, 2 * DAY).map(lambda lasts: 2 * lasts + 1))
    messages = sorted((time, draw(lasting), draw(st.integers(0, 4))) for time in rest)
    # Twice the time, and odd: expirations meet nothing else.
    messages = [(2 * time, lasts and 2 * time + lasts, rank) for time, lasts, rank in messages]
    down = sorted(2 * time for time in times[reads : reads + switches])
    return messages, sorted(2 * time for time in times[:reads]), list(zip(down[::2], down[1::2], strict=True))


@given(logs(), st.integers(0, 6), st.integers(0, 5), st.sampled_from([0.0, 3600.0, 86_400.0]))
def test_study_counts_what_a_plain_simulator_counts(log, limit, most, keep_back_s):
    messages, reads, outages = log
    drawn = drawn_from(
        [message[0] for message in messages],
        reads,
        ranks=[message[2] for message in messages],
        expires_us=[FOREVER_US if message[1] is None else message[1] for message in messages],
        outages_us=outages or None,
    )
    setting = Forwarding("buffer", limit, expiration_threshold_s=keep_back_s)
    row = score_policies([drawn], {"it": setting}, max=most).iloc[0]
    again = count_again(
        messages, reads, outages, limit=limit, max_messages=most, keep_back_us=keep_back_s * 1_000_000
    )
    measured = [row[name] for name in ("waste", "loss", "empty_read_share", "delay_s", "delay_median_s")]
    assert measured == pytest.approx(again, nan_ok=True)


def see(drawn, policy, max_messages=8, threshold=0.0):
    return Reader(drawn, threshold, max_messages).see(
        play(drawn, spool_factory(policy, threshold), max_messages)
    )


@given(logs(), st.integers(0, 5), st.sampled_from([0.0, 3600.0, 86_400.0]))
def test_limits_that_keep_nothing_back_give_the_same(log, most, keep_back_s):
    """Find the view of each limit, also of those that are not run since a lower one keeps nothing back."""
    messages, reads, outages = log
    drawn = drawn_from(
        [message[0] for message in messages],
        reads,
        ranks=[message[2] for message in messages],
        expires_us=[FOREVER_US if message[1] is None else message[1] for message in messages],
        outages_us=outages or None,
    )
    reader = Reader(drawn, 0.0, most)
    for limit in (0, 1, 2, 4, 8, 64, 16, 1024):
        policy = Forwarding("buffer", limit, expiration_threshold_s=keep_back_s)
        assert reader.view(policy).by_day().tolist() == see(drawn, policy, most).by_day().tolist()


def test_limits_that_keep_nothing_back_are_run_once(monkeypatch):
    """Send 10 messages before the first read: any limit from 10 on keeps nothing back."""
    runs = []
    monkeypatch.setattr(readers, "play", lambda *arguments: runs.append(1) or play(*arguments))
    reader = Reader(drawn_from(np.arange(10) * HOUR, [12 * HOUR]), 0.0, 8)
    seen = {limit: reader.view(Forwarding("buffer", limit)) for limit in (9, 10, 11, 1 << 20)}
    assert len(runs) == 2
    assert seen[10] is seen[11] is seen[1 << 20]


def test_reads_in_long_outages_are_those_in_vain():
    """Read every 12 hours, with no link at the reads of days 3 and 5, before which something arrives."""
    arrivals = np.arange(240) * HOUR
    reads = np.arange(1, 20) * 12 * HOUR + 1
    outages = [[day * DAY + 2 * HOUR, day * DAY + 20 * HOUR] for day in (2, 4)]
    drawn = drawn_from(arrivals, reads, outages_us=outages)
    seen = see(drawn, Forwarding("on-demand"), 100)
    assert reads[seen.empty].tolist() == [2 * DAY + 12 * HOUR + 1, 4 * DAY + 12 * HOUR + 1]
    assert seen.by_day("odd")[:, COUNTS.index("empty")].tolist() == [0, 1, 1, 0, 0]
    assert not seen.by_day("even")[:, COUNTS.index("empty")].any()
    assert seen.delays_s().max() == 12 * 3600
    # The reader asks for no more than lies on the device: nothing is in vain, though something waits.
    assert not see(drawn, Forwarding("buffer", 2), 2).empty.any()


def test_messages_read_at_the_start_of_a_log_are_read():
    """See :func:`drawn_from`: a log begins at its first arrival or read, which may be the same moment."""
    seen = see(drawn_from([HOUR, 2 * HOUR], [HOUR, 3 * HOUR]), Forwarding("on-line"))
    assert not seen.wasted.any()
    assert seen.delay_us.tolist() == [0, 0]


def test_nothing_waits_nothing_is_in_vain():
    drawn = drawn_from([0, HOUR], [2 * HOUR, 5 * HOUR], ranks=[0.5, -1.0], outages_us=[[3 * HOUR, 6 * HOUR]])
    assert not see(drawn, Forwarding("on-demand")).empty.any()
    assert see(drawn, Forwarding("on-demand"), threshold=-2.0).empty.sum() == 0
    late = drawn_from([0, 4 * HOUR], [2 * HOUR, 5 * HOUR], outages_us=[[3 * HOUR, 6 * HOUR]])
    assert see(late, Forwarding("on-line")).empty.tolist() == [False, True]
    over = drawn_from([4 * HOUR], [5 * HOUR], expires_us=[5 * HOUR], outages_us=[[3 * HOUR, 6 * HOUR]])
    assert not see(over, Forwarding("on-line")).empty.any()


@pytest.mark.parametrize("policy", [Forwarding("buffer", 4), Forwarding.of("unified"), Push()])
@pytest.mark.parametrize("outage", [0.0, 0.5, 1.0])
def test_counts_match_the_simulator(policy, outage):
    run = simulate(
        days=12, outage=outage, outages_per_day=2.0, expiration=Expiration(50_000.0), policy=policy, seed=3
    )
    drawn = Scenario(outages=Outages(outage, 2.0), expiration=Expiration(50_000.0), days=12).draw(3)
    row = score_policies([drawn], {"it": policy}).iloc[0]
    assert (row["waste"], row["loss"]) == pytest.approx((run.waste, run.loss))


def test_halves_add_up_to_all_days():
    drawn = Scenario(outages=Outages(0.5, 2.0), days=9).draw(1)
    seen = see(drawn, Forwarding("buffer", 4))
    assert len(seen.by_day("odd")) == 5
    halves = seen.by_day("odd").sum(axis=0) + seen.by_day("even").sum(axis=0)
    assert halves == pytest.approx(seen.by_day().sum(axis=0))
    assert len(seen.delays_s("odd")) + len(seen.delays_s("even")) == len(seen.delays_s())
    assert seen.by_day()[:, COUNTS.index("delay_h")].sum() == pytest.approx(seen.delays_s().sum() / 3600)


def test_read_without_a_link_is_in_vain_if_messages_wait_beyond_it():
    """Two messages are on the device, and a third one arrives in the outage, in which she reads."""
    drawn = drawn_from([HOUR, 2 * HOUR, 5 * HOUR], [6 * HOUR], outages_us=[[3 * HOUR, 8 * HOUR]])
    outcome = play(drawn, spool_factory(Forwarding("on-line"), 0.0), 8)
    assert outcome.per_read == (2,)
    assert Reader(drawn, 0.0, 8).see(outcome).empty.tolist() == [True]


def test_policies_of_the_last_comparison_are_not_played_again(monkeypatch):
    """A study compares the same few policies under each price; of more of them it forgets the oldest."""
    played = []

    def count_and_play(drawn, make_spool, max_messages):
        played.append(max_messages)
        return play(drawn, make_spool, max_messages)

    monkeypatch.setattr(readers, "play", count_and_play)
    drawn = Scenario(event_frequency=64.0, days=4).draw(1)
    views = [
        Reader.of(drawn, 0.0, 8).view(policy)
        for policy in (Forwarding("buffer", 1), Forwarding("buffer", 2), Forwarding("buffer", 1))
    ]
    assert len(played) == 2
    assert views[2] is views[0]
    for threshold, max_messages in ((0.0, 4), (1.0, 8)):
        assert Reader.of(drawn, threshold, max_messages).view(Forwarding("buffer", 1)) is not views[0]
    for limit in range(3, 3 + readers._MAX_VIEWS):
        Reader.of(drawn, 0.0, 8).view(Forwarding("buffer", limit))
    before = len(played)
    again = Reader.of(drawn, 0.0, 8).view(Forwarding("buffer", 1))
    assert len(played) == before + 1
    assert np.array_equal(again.by_day(), views[0].by_day())
