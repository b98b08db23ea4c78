"""Closed loop: drift alarm, and updates of shipped policies."""

from __future__ import annotations

import copy
import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from learning_traces import HORIZON_US, build_labelled_reads
from msgspec.structs import replace

from mudkit.errors import ParameterError
from mudkit.learning import Batch
from mudkit.learning.features import Pairs
from mudkit.systems.mud import AlwaysRemote, Artefact
from mudkit.systems.mud.device.policy_slot import ShippedPolicy
from mudkit.systems.mud.messages.notifications import Policy
from mudkit.systems.mud.policies.artefact import sha256
from mudkit.systems.mud.policies.policies import NearAndRecent
from mudkit.worlds import Commuters, DriftAlarm, close_the_loop, commuters
from mudkit.worlds.commuters import Drive


@pytest.mark.parametrize(
    ("reads", "stale", "is_raised"),
    [
        (100, 8, False),
        (100, 40, True),
        (400, 30, False),
        (400, 2, True),
        (100, 14, False),
        (40, 40, False),
        (40, 0, False),
        (400, 0, True),
    ],
)
def test_alarm_is_raised_when_interval_excludes_promised_shares(reads, stale, is_raised):
    alarm = DriftAlarm(0.05, 0.12)
    half = alarm.add(reads // 2, stale // 2)
    assert half.add(reads - reads // 2, stale - stale // 2).is_raised is is_raised
    assert not alarm.is_raised


def test_wilsons_interval():
    low, high = DriftAlarm(0.0, 1.0).add(10, 1).interval  # Brown, Cai and DasGupta (2001)
    assert (round(low, 4), round(high, 4)) == (0.0179, 0.4042)
    assert DriftAlarm(0.0, 1.0).interval == (0.0, pytest.approx(0.7935, abs=1e-3))


def test_always_remote_is_complete_and_near_and_recent_saves_messages():
    plan = Commuters(cars=3, days=1, every_s=1800.0, reads_per_day=24.0)
    always, rule = (plan.run(2, "2010-03-01", policy) for policy in (AlwaysRemote(), NearAndRecent()))
    assert always.reads["is_sent"].all()
    assert (always.reads["completeness"] == 1).mean() > 0.97  # a report may be in flight
    assert list(always.reads["at_s"]) == list(rule.reads["at_s"])
    assert list(always.reads["points"]) == list(rule.reads["points"])
    local = ~rule.reads["is_sent"]
    assert 0 < local.sum() < len(local)
    assert (rule.reads["missing"][local] > 0).any()
    assert rule.lab.bill()["messages"].sum() < always.lab.bill()["messages"].sum()
    other = plan.run(2, "2010-03-08", AlwaysRemote())
    assert list(other.reads["at_s"]) != list(always.reads["at_s"])


FOR_TWO_HOURS = Artefact.create(
    "read", 1, ["age"], [[0, 7200.0, 1, 2, 2], [0], [1]], ["local", "remote"], manifest={"seed": 1}
)
PLAN = Commuters(cars=10, days=1, every_s=600.0, reads_per_day=48.0, box_km=4.0)
START = "2010-03-08"


def test_loop_hands_its_parameters_to_the_parts(monkeypatch):
    """The docstring: `completeness`, `cost` and `features` are those of `generate_policy`, `writes` a delay."""
    labelled = commuters.LabelledRun("positions", "reads", "labels", "first reads")
    runs, learnt = [], []
    traffic = SimpleNamespace(run=lambda *given, **options: runs.append((given, options)))

    def learn(*given, **options):
        learnt.append((given, options))
        raise StopIteration

    monkeypatch.setattr(commuters, "label_run", lambda run: labelled)
    monkeypatch.setattr(commuters, "generate_write_policy", lambda labelled, match: ("artefact", match))
    monkeypatch.setattr(commuters, "_comes_us", lambda labelled, learnt: f"comes by {learnt}")
    monkeypatch.setattr(commuters, "generate_policy", learn)
    for writes in (None, Batch(30)):
        with pytest.raises(StopIteration):
            close_the_loop(traffic, 5, completeness=0.7, cost="bytes", writes=writes, features="dense")
    options = {"completeness": 0.7, "cost": "bytes", "features": "dense"}
    assert learnt == [
        (("labels", "reads", "positions"), options | {"arrival_us": arrival_us})
        for arrival_us in (None, f"comes by {Batch(30)}")
    ]
    assert [given[0] for given, _ in runs] == [5, 5]
    policies = [options["write_policy"] for _, options in runs]
    assert policies[0] is None
    assert policies[1].fallback.delay({}, {}) == 30 * 60.0


def test_measures_of_a_loop():
    """Check the columns as the docstring of `close_the_loop` has them; all may be stale in the end."""
    labels, recorded = build_labelled_reads(devices=3, days=1)
    pairs = Pairs.of(labels, recorded)
    reads = pd.DataFrame(
        {
            "completeness": [1.0, 0.95, 0.5, 0.0],
            "missing": [0, 1, 3, 9],
            "is_sent": [True, True, False, False],
            "cache_completeness": [1.0, 1.0, 1.0, 0.2],
        }
    )
    bill = pd.DataFrame(
        {
            "device": ["car-0", "car-0", "car-1", "cloud"],
            "direction": ["up", "down", "up", "up"],
            "messages": [1, 2, 4, 8],
            "bytes": [10, 20, 40, 80],
            "radio_mj": [1000.0, 2000.0, 4000.0, 8000.0],
        }
    )
    driven = SimpleNamespace(reads=reads, lab=SimpleNamespace(bill=lambda: bill), point_share=0.75)
    measured = commuters._measure(driven, pairs, 0.9)
    assert measured["reads"] == 4
    assert (measured["sent_share"], measured["stale_share"], measured["missed_share"]) == (0.5, 0.5, 0.75)
    assert measured["completeness"] == pytest.approx(0.6125)
    assert [measured[name] for name in ("messages", "sent_messages", "bytes", "radio_j")] == [7, 5, 70, 7]
    assert measured["point_share"] == 0.75
    driven.reads = pd.concat([reads[2:]] * len(recorded), ignore_index=True)
    all_stale = commuters._measure(driven, pairs, 0.9)
    fetched, sent = {}, 0
    for row in recorded.sort_by("ts").to_pylist():
        if row["ts"].timestamp() - fetched.get(row["device"], -math.inf) > HORIZON_US / 1e6:
            fetched[row["device"]], sent = row["ts"].timestamp(), sent + 1
    assert all_stale["bound_share"] == sent / len(recorded)
    assert all_stale["regret"] == all_stale["sent_share"] - all_stale["bound_share"]


def test_override_applies_only_inside_its_box():
    """Compare the decisions at 20,000 random places, and at an unknown latitude."""
    box = {"south": 30.0, "north": 30.5, "west": -98.0, "east": -97.0}
    overridden = FOR_TWO_HOURS.with_override("remote", **box, version=2)
    assert (overridden.version, overridden.features) == (2, ("age", "lat", "lon"))
    assert overridden.document["manifest"]["seed"] == 1
    rng = np.random.default_rng(0)
    values = np.column_stack(
        [rng.uniform(0, 14_400, 20_000), rng.uniform(29.8, 30.7, 20_000), rng.uniform(-98.4, -96.6, 20_000)]
    )
    for age_s, lat, lon in values.tolist():
        is_inside = 30.0 < lat <= 30.5 and -98.0 < lon <= -97.0
        expected = "remote" if is_inside else FOR_TWO_HOURS.decide((age_s,))
        assert overridden.decide((age_s, lat, lon)) == expected
    assert overridden.decide((5.0, None, -97.5)) == "local"
    both = overridden.with_override("remote", south=31.0, north=31.5, west=-98.0, east=-97.0, version=3)
    assert [both.decide((5.0, lat, -97.5)) for lat in (30.2, 30.7, 31.2)] == ["remote", "local", "remote"]
    assert Artefact.from_document(both.document) == both
    renewed = FOR_TWO_HOURS.renewed(4)
    assert (renewed.version, renewed.nodes) == (4, FOR_TWO_HOURS.nodes)


def test_up_to_age_sends_reads_of_older_answers():
    inside = FOR_TWO_HOURS.with_override("local", south=30.0, north=30.5, west=-98.0, east=-97.0, version=2)
    young = inside.up_to_age(3600.0)
    assert (young.version, young.features) == (2, ("age", "lat", "lon"))
    decisions = [young.decide((age_s, 30.2, -97.5)) for age_s in (10.0, 3600.0, 3601.0, 9000.0, None)]
    assert decisions == ["local", "local", "remote", "remote", "remote"]
    assert Artefact.from_document(young.document) == young


def test_parked_cars_report_only_if_report_when_is_any_time():
    runs = {
        when: Commuters(cars=3, days=1, every_s=600.0, reads_per_day=1.0, report_when=when).run(
            2, START, AlwaysRemote()
        )
        for when in ("any time", "driving")
    }
    assert runs["any time"].written is None
    written = runs["driving"].written
    positions = runs["driving"].lab.trace.table("positions").to_pandas()
    assert 3 < len(written) < len(positions) / 2
    moments = {(row.device, row.ts.value // 1000) for row in positions.itertuples()}
    assert set(written.itertuples(index=False, name=None)) <= moments


def test_learnt_write_policy_is_measured_by_the_delay_before(monkeypatch):
    """See :class:`BatchTree`: no more reads miss writes than under the policy that it matches."""
    given, match = [], Batch(minutes=10.0)
    learner = SimpleNamespace(learn=lambda writes, reads: "learnt")
    monkeypatch.setattr(commuters, "BatchTree", lambda **settings: given.append(settings) or learner)
    monkeypatch.setattr(commuters, "Writes", SimpleNamespace(of=lambda *_: SimpleNamespace(t_us=[7])))
    monkeypatch.setattr(commuters, "ReadRequests", SimpleNamespace(of=lambda *_: None))
    monkeypatch.setattr(
        commuters.learning, "export_policy", lambda learnt, version, *, manifest: (learnt, manifest)
    )
    labelled = SimpleNamespace(first_reads=None, positions=None, reads=None)
    (learnt, manifest), _ = commuters.generate_write_policy(labelled, match)
    assert (given, learnt) == ([{"match": match}], "learnt")
    assert manifest == {"misses no more than": str(match), "writes": 1}


def start_drive():
    drive = Drive(PLAN, 3, START, ShippedPolicy())
    drive.cloud.ship(FOR_TWO_HOURS, app="traffic").result()
    return drive


def get_versions(drive):
    drive.lab.run(seconds=5)
    numbers = [client.policies().result()["read"]["version"] for client in drive.clients]
    return dict(zip([device.name for device in drive.devices], numbers, strict=True))


def test_update_with_a_bad_digest_is_rejected():
    """Damage the update in flight to one of two devices, which keeps its version and reports why."""
    drive = start_drive()
    drive.lab.run(minutes=10)
    names = [device.name for device in drive.devices[:2]]
    update = FOR_TWO_HOURS.with_override("remote", south=0, north=1, west=0, east=1, version=2)

    def damage(body):
        if not isinstance(body, Policy):
            return body
        document = copy.deepcopy(dict(body.document))
        document["nodes"][0][1] = 12.0
        return replace(body, document=document)

    process, *_ = drive.lab.world.hosts[names[0]].processes
    reads = process.machine.continuous_reads
    receive = reads.receive_notification
    reads.receive_notification = lambda now_us, body: receive(now_us, damage(body))
    drive.cloud.ship(update, app="traffic", to=names).result()
    result = get_versions(drive)
    assert [result[name] for name in names] == [1, 2]
    assert set(result.values()) == {1, 2}
    status = drive.clients[0].policies().result()["read"]
    assert "sha256" in status["refused"][0]
    assert status["sha256"] == FOR_TWO_HOURS.document["sha256"]


def test_policy_damaged_in_the_store_is_rolled_back():
    drive = start_drive()
    drive.lab.run(minutes=10)
    name = drive.devices[0].name
    update = FOR_TWO_HOURS.with_override("remote", south=0, north=1, west=0, east=1, version=2)
    drive.cloud.ship(update, app="traffic", to=[name]).result()
    assert get_versions(drive)[name] == 2
    process, *_ = drive.lab.world.hosts[name].processes
    document = copy.deepcopy(dict(process.store.get("policy read in use")))
    document["nodes"][0][1] = 12.0
    process.store.put("policy read in use", document)
    process.store.commit()
    drive.lab.faults.cut(name, minutes=5)  # a retransmitted update must not hide the rollback
    drive.lab.faults.kill(name)
    drive.lab.faults.restart(name)
    status = drive.clients[0].policies().result()["read"]
    assert (status["version"], status["sha256"]) == (1, FOR_TWO_HOURS.document["sha256"])
    assert "sha256" in status["refused"][0]
    drive.lab.run(minutes=10)
    assert get_versions(drive)[name] == 2  # the update is sent again after the rollback is reported


def test_policies_are_shipped_to_some_devices_or_to_all():
    drive = start_drive()
    names = [device.name for device in drive.devices]
    second, third = FOR_TWO_HOURS.renewed(2), FOR_TWO_HOURS.renewed(3)
    drive.cloud.ship(second, app="traffic", to=names[:1]).result()
    drive.cloud.ship(second, app="traffic", to=names[1:2]).result()
    assert [*get_versions(drive).values()] == [2, 2, *[1] * 8]
    with pytest.raises(ParameterError, match="shipped already"):
        drive.cloud.ship(second, app="traffic").result()
    changed = dict(second.document) | {"manifest": {"seed": 2}}
    with pytest.raises(ParameterError, match="shipped already"):
        drive.cloud.ship(changed | {"sha256": sha256(changed)}, app="traffic", to=names).result()
    drive.cloud.ship(third, app="traffic").result()
    assert set(get_versions(drive).values()) == {3}
    drive.lab.faults.kill("mud-notifications-1")
    drive.lab.faults.kill("mud-notifications-2")
    for server in ("mud-notifications-1", "mud-notifications-2"):
        drive.lab.faults.restart(server)
    drive.lab.run(hours=1)
    assert set(get_versions(drive).values()) == {3}
    refused = [client.policies().result()["read"]["refused"] for client in drive.clients]
    assert refused == [[]] * 10
