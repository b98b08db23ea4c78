"""Parts of the campaign: what its steps do, how long faults are in effect, and what its judge requires."""

from __future__ import annotations

from collections import Counter
from random import Random
from types import SimpleNamespace

import pytest

from mudkit.events import Received
from mudkit.lab import Lab
from mudkit.systems.mud import Cloud
from mudkit.verify.campaign.campaign import Campaign
from mudkit.verify.campaign.faults import (
    _TAKES_MINUTES,
    NAMING_KILLED,
    NAMING_RESTORED,
    REPLACED,
    FaultInjector,
)
from mudkit.verify.campaign.judge import Judgement
from mudkit.verify.campaign.observers import _BackEndObserver, _ClientObserver
from mudkit.verify.campaign.trials import Rogue


@pytest.fixture
def injector():
    lab = Lab(1)
    cloud = Cloud(lab, replicas=0, gateways=1, processors=1, notification_servers=1)
    devices = ["one", "two"]
    for name in devices:
        lab.device(name)
    return FaultInjector(lab, cloud, Random(1), devices, (), 600.0, Random(2), Random(3))


def effect_s(injector):
    """Return how long, in s, each fault that is in effect will be."""
    until_us, now_us = injector._until_us, injector._world.now_us
    return {name: (until_us[name] - now_us) / 1e6 for name in injector.in_effect()}


def test_back_end_that_no_client_can_probe_is_counted():
    """The docstring of ``Campaign._probe``: without a client that writes without delay nothing is judged."""
    campaign = Campaign(1)
    campaign._undelayed.clear()
    campaign._probe()
    assert campaign.counts["back ends not probed"] == 1
    assert not campaign.probe


def test_fault_is_in_effect_until_five_minutes_after_its_repair(injector):
    """The docstring of cells.py."""
    world = injector._world
    injector.begin_slow_link("one", 2.0)
    assert effect_s(injector) == {"slow link": 7 * 60.0}
    world.run(round(7 * 60e6))
    assert injector.in_effect() == ("none",)
    (host,) = injector._hosts["store"]
    injector._faults.kill(host)
    (killed,) = injector.in_effect()
    assert effect_s(injector) == {killed: float("inf")}
    injector._faults.restart(host)
    assert effect_s(injector) == {killed: 5 * 60.0, "restart": 5 * 60.0}


def test_device_that_loses_its_address_is_cut_off(injector):
    """The docstring: another device has the address that it has lost just now."""
    taken = set()
    for _ in range(60):
        owned = injector._world.hosts["two"].address
        injector._change_address("one")
        if injector._world.hosts["one"].address == owned:
            assert injector._world.hosts["two"].address != owned
            is_cut = any(why.startswith("cut") for why in injector._world.hosts["two"].down_reasons())
            taken.add(is_cut)
            assert injector.counts["cut"] > 0
            assert round(effect_s(injector)["cut"]) in {
                5 * 60 + round(60 * minutes) for minutes in _TAKES_MINUTES
            }
            injector._until_us.clear()
            injector._faults.mend("two")
    assert taken == {True}


def test_back_end_alone_is_restored_twice(injector):
    """The docstring: its operator sees that the first backup was too old."""
    often, times = {}, Counter()
    for _ in range(200):
        before = injector.counts["restored"]
        restored = []
        injector._faults.restore = lambda host, backup, restored=restored: restored.append(host)
        injector._restore()
        injector._world.run(injector._world.now_us + 3_600_000_000)
        if restored:
            assert len(set(restored)) == 1
            assert injector.counts["restored"] == before + len(restored)
            kind = injector._kind_of[restored[0]]
            often.setdefault(kind, set()).add(len(restored))
            times[kind] += 1
    assert times.most_common(1)[0][0] == "store", "the others follow it"
    assert often.pop("store") == {1, 2}
    assert set(map(frozenset, often.values())) == {frozenset({1})}


def test_back_end_hears_of_a_follower_for_the_first_time_once_in_a_life():
    observer = _BackEndObserver()
    has, follow = ({"kind": kind} for kind in ("has", "follow"))
    heard = [("a", has), ("a", has), ("b", follow), ("b", has), ("c", has)]
    names = [
        name.removeprefix("back end: ")
        for source, message in heard
        for name in observer.names(Received(source, message), [], True)
    ]
    assert names == ["has, the first of a life", "has", "follow", "has", "has, the first of a life"]


def test_shipped_policy_must_be_stored_unless_the_generator_was_restored():
    """The docstring of `_judge_policies`."""

    def judge(ship_version, stored, *, restored_us=None, status="ok"):
        body = {"policy": "read", "document": {"version": stored}}
        store = SimpleNamespace(items=lambda prefix: [] if stored is None else [("policy read", body)])
        operation = SimpleNamespace(status=status, invoked_us=10)
        campaign = SimpleNamespace(
            rolled_back_us={} if restored_us is None else {"generator": restored_us},
            cloud=SimpleNamespace(generator="generator/1"),
            lab=SimpleNamespace(
                world=SimpleNamespace(at_address={"generator/1": SimpleNamespace(store=store)})
            ),
            work=SimpleNamespace(
                ships=[SimpleNamespace(kind="read", version=ship_version, operation=operation)]
            ),
            policies={},
        )
        judgement = SimpleNamespace(campaign=campaign, problems=[])
        Judgement._judge_policies(judgement)
        return len(judgement.problems)

    assert judge(1, None) == judge(2, 1) == 1
    assert judge(1, 1) == judge(1, 2) == 0
    assert judge(1, None, status="open") == 0
    assert judge(1, None, restored_us=10) == 0
    assert judge(1, None, restored_us=9) == 1


def test_steps_renew_tokens_and_write_after_new_reader_data():
    campaign = next(
        campaign for campaign in map(Campaign, range(30)) if campaign.expires_us and campaign.clients
    )
    campaign._step("renew")
    assert sum(map(len, campaign.renewals.values())) == 1
    before = len(campaign.work.writes)
    campaign._step("reader data")
    assert len(campaign.work.writes) == before + 1, "a record that may be hidden"


@pytest.mark.parametrize(
    ("kind", "latest", "has_link", "names"),
    [
        ("committed", False, True, ["committed, asked"]),
        ("committed", True, True, ["committed, asked", "latest, asked"]),
        ("committed", False, False, ["no link"]),
        ("committed_wio", False, False, ["committed_wio, must wait"]),
    ],
)
def test_read_that_is_not_answered_here_is_asked_or_waits(kind, latest, has_link, names):
    call = SimpleNamespace(
        name="read", op_id=1, named_arguments={"aggregate": None, "type": kind, "latest": latest}
    )
    requests = [{"id": "1", "what": {"op": "read"}}] if has_link else []
    observed = [*_ClientObserver()._observe_call(call, [], requests)]
    assert observed == [f"asking: {name}" for name in names]


def test_rogue_hears_no_late_welcome_of_another_machine_at_its_address():
    rogue = Rogue("ann/app", "rog02", ["server"], None, {}, 500_000, 1)
    for incarnation in ("rog01", "rog02"):
        welcome = {"kind": "welcome", "session": "s", "incarnation": incarnation, "seq": 1}
        rogue.handle(0, Received("server", welcome))
        assert rogue.heard == (["welcome"] if incarnation == "rog02" else [])


def test_write_must_be_committed_after_a_kill_of_its_own_program_only():
    """A write that another absorbs later stays out, where another program of the device ends before."""
    campaign = Campaign(1)
    name, client = next(iter(campaign.clients.items()))
    host = campaign.lab.world.hosts[name]
    client.write("t", "a", {"v": "stored"})
    own, *others = host.processes
    campaign.lab.world.on_incident(host, "killed", others[0].name)
    assert campaign.must_commit == {}
    campaign.lab.world.on_incident(host, "killed", own.name)
    assert campaign.must_commit == {"stored": name}


def test_only_notification_server_is_never_killed_for_good(injector):
    injector.inject_names(REPLACED)
    assert injector.counts[REPLACED] == 0


@pytest.mark.parametrize("minutes", [None, 30.0])
def test_server_that_is_to_be_replaced_is_restarted_by_no_other_fault(minutes):
    """The docstring of `is_dead`."""
    lab = Lab(1)
    cloud = Cloud(lab, replicas=0, gateways=1, processors=1, notification_servers=2)
    injector = FaultInjector(lab, cloud, Random(1), [lab.device("one").name], (), 600.0, Random(2), Random(3))
    host = injector._hosts["notifications"][0]
    injector._faults.kill(host)  # its restart is planned
    choices = iter([host, minutes])
    draw = SimpleNamespace(choice=lambda _: next(choices))
    injector._kill_to_be_replaced("notifications", REPLACED, draw)
    assert set(effect_s(injector)) >= {REPLACED}
    injector.inject_names(REPLACED)
    assert injector.counts[REPLACED] == 1
    lab.run(minutes=20)
    for kind in ("notifications killed", "notifications killed after commit", "restored", "restored"):
        for _ in range(20):
            injector.inject(kind)
    injector.heal()
    (process,) = lab.world.hosts[host].processes
    assert process.machine is None
    lab.run(minutes=11)
    assert (process.machine is None) == (minutes is None)


def test_naming_machine_is_restored_as_installed_or_from_a_backup(injector):
    injector.inject_names(NAMING_KILLED)
    assert injector.counts[NAMING_KILLED] == 1
    injector.inject_names(NAMING_RESTORED)
    assert injector.counts[NAMING_RESTORED] == 1
    assert injector._world.hosts["mud-names"].processes[0].machine is not None
