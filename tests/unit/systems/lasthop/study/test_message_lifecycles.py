"""Lifecycle of each message, compared with the run."""

from __future__ import annotations

from functools import partial

import pytest

from mudkit.sources.outages import Outages
from mudkit.systems.lasthop import (
    Expiration,
    Forwarding,
    Scenario,
    Spool,
    lifelines,
    message_lifecycles,
    play,
)
from mudkit.systems.lasthop.spool.ranked import FOREVER_US
from mudkit.systems.lasthop.study.scenario import DAY_US


@pytest.mark.parametrize("share", [0.0, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("seed", range(4))
def test_lifecycles_match_the_run(share, seed):
    drawn = Scenario(outages=Outages(share, per_day=2.0), expiration=Expiration(50_000.0), days=12).draw(seed)
    create_spool = partial(Spool, 0.1, Forwarding("buffer", 16))
    outcome, table = play(drawn, create_spool, 8), message_lifecycles(drawn, create_spool, 8)
    forwarded, read = table[table["forwarded_us"] >= 0], table[table["read_us"] >= 0]
    assert len(table) == len(drawn.arrivals_us)
    assert set(forwarded["message"]) == set(outcome.forwarded_ids)
    assert set(read["message"]) == set(outcome.read_ids)
    for name, identities in (("forwarded_us", outcome.forwarded_ids), ("read_us", outcome.read_ids)):
        times_us = [table[name][identity] for identity in identities]
        assert times_us == sorted(times_us)
    assert set(read["read_us"]) <= set(drawn.reads_us.tolist())
    assert (read["read_us"] >= read["forwarded_us"]).all()
    assert (read["read_us"] < read["expires_us"]).all()
    assert (forwarded["forwarded_us"] >= forwarded["came_us"]).all()
    assert (forwarded["forwarded_us"] < forwarded["expires_us"]).all()
    assert share == 1.0 or read.groupby("read_us").size().max() <= 8


def test_messages_without_expiration_have_the_maximum_time():
    table = message_lifecycles(Scenario(days=2).draw(0), partial(Spool, 0.0, Forwarding("on-demand")), 8)
    assert set(table["expires_us"]) == {FOREVER_US}
    assert (table["forwarded_us"] == table["read_us"]).all()
    assert table["came_us"].max() < 2 * DAY_US


def test_lifelines_compute_waste_and_loss_on_the_same_events():
    policies = {"on-line": Forwarding("on-line"), "on demand": Forwarding("on-demand")}
    result = lifelines(Scenario(8.0, 2.0, Outages(0.6, 4.0), days=3), policies, max=2, seed=1)
    table = result.table().set_index("policy")
    assert list(table.columns) == ["forwarded", "read", "waste", "loss"]
    assert table.loc["on-line", "loss"] == table.loc["on demand", "waste"] == 0
    assert table.loc["on-line", "waste"] == pytest.approx(10 / 22)
    assert table.loc["on demand", "loss"] == pytest.approx(8 / 12)
    assert "on demand" in result._repr_html_()
