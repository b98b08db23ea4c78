"""The closed loop: the drift alarm, and updates of shipped policies."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from msgspec.structs import replace

from mudkit.errors import ParameterError
from mudkit.experiment import Commuters, DriftAlarm
from mudkit.experiment.commuters import Drive
from mudkit.systems.mud import AlwaysRemote, Artefact
from mudkit.systems.mud.device.policy_slot import ShippedPolicy
from mudkit.systems.mud.messages import Policy
from mudkit.systems.mud.policies.artefact import sha256
from mudkit.systems.mud.policies.policies import NearAndRecent


@pytest.mark.parametrize(
    ("reads", "stale", "rings"),
    [(100, 8, False), (100, 40, True), (400, 30, False), (400, 2, True), (100, 14, False), (40, 40, False)],
)
def test_the_alarm_rings_when_the_share_can_hardly_be_what_was_promised(reads, stale, rings):
    alarm = DriftAlarm(0.05, 0.12)
    half = alarm.add(reads // 2, stale // 2)
    assert half.add(reads - reads // 2, stale - stale // 2).is_raised is rings
    assert not alarm.is_raised


def test_wilsons_interval():
    low, high = DriftAlarm(0.0, 1.0).add(10, 1).interval  # Brown, Cai and DasGupta (2001) give it so
    assert (round(low, 4), round(high, 4)) == (0.0179, 0.4042)
    assert DriftAlarm(0.0, 1.0).interval == (0.0, pytest.approx(0.7935, abs=1e-3))


def test_who_always_asks_misses_nothing_and_who_does_not_saves():
    plan = Commuters(cars=3, days=1, every_s=1800.0, reads_per_day=24.0)
    always, rule = (plan.run(2, "2010-03-01", policy) for policy in (AlwaysRemote(), NearAndRecent()))
    assert always.reads["is_sent"].all()
    assert (always.reads["completeness"] == 1).mean() > 0.97  # a report may be on its way
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


def test_a_policy_but_inside_a_box():
    """A million places: inside it asks, elsewhere it decides as before; also of what it knows nothing of."""
    box = {"south": 30.0, "north": 30.5, "west": -98.0, "east": -97.0}
    other = FOR_TWO_HOURS.with_override("remote", **box, version=2)
    assert (other.version, other.features) == (2, ("age", "lat", "lon"))
    assert other.document["manifest"]["seed"] == 1
    rng = np.random.default_rng(0)
    values = np.column_stack(
        [rng.uniform(0, 14_400, 20_000), rng.uniform(29.8, 30.7, 20_000), rng.uniform(-98.4, -96.6, 20_000)]
    )
    for age_s, lat, lon in values.tolist():
        is_inside = 30.0 < lat <= 30.5 and -98.0 < lon <= -97.0
        wanted = "remote" if is_inside else FOR_TWO_HOURS.decide((age_s,))
        assert other.decide((age_s, lat, lon)) == wanted
    assert other.decide((5.0, None, -97.5)) == "local"
    both = other.with_override("remote", south=31.0, north=31.5, west=-98.0, east=-97.0, version=3)
    assert [both.decide((5.0, lat, -97.5)) for lat in (30.2, 30.7, 31.2)] == ["remote", "local", "remote"]
    assert Artefact.from_document(both.document) == both
    again = FOR_TWO_HOURS.renewed(4)
    assert (again.version, again.nodes) == (4, FOR_TWO_HOURS.nodes)


def test_a_policy_up_to_an_age_asks_for_what_is_older():
    inside = FOR_TWO_HOURS.with_override("local", south=30.0, north=30.5, west=-98.0, east=-97.0, version=2)
    young = inside.up_to_age(3600.0)
    assert (young.version, young.features) == (2, ("age", "lat", "lon"))
    decided = [young.decide((age_s, 30.2, -97.5)) for age_s in (10.0, 3600.0, 3601.0, 9000.0, None)]
    assert decided == ["local", "local", "remote", "remote", "remote"]
    assert Artefact.from_document(young.document) == young


def test_parked_cars_do_not_report_unless_they_always_do():
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


def begun():
    drive = Drive(PLAN, 3, START, ShippedPolicy())
    drive.cloud.ship(FOR_TWO_HOURS, app="traffic").result()
    return drive


def versions(drive):
    drive.lab.run(seconds=5)
    said = [client.policies().result()["read"]["version"] for client in drive.clients]
    return dict(zip([device.name for device in drive.devices], said, strict=True))


def test_an_update_with_a_bad_digest_is_not_taken():
    """Damaged on its way to one of two devices: that one keeps what it has, and says why."""
    drive = begun()
    drive.lab.run(minutes=10)
    names = [device.name for device in drive.devices[:2]]
    update = FOR_TWO_HOURS.with_override("remote", south=0, north=1, west=0, east=1, version=2)

    def damage(item):
        if not isinstance(item.body, Policy):
            return item
        document = copy.deepcopy(dict(item.body.document))
        document["nodes"][0][1] = 12.0
        return replace(item, body=replace(item.body, document=document))

    (process,) = drive.lab.world.hosts[names[0]].processes
    stream = process.machine._watching.stream
    process.machine._watching.stream = lambda now_us, source, item: stream(now_us, source, damage(item))
    drive.cloud.ship(update, app="traffic", to=names).result()
    result = versions(drive)
    assert [result[name] for name in names] == [1, 2]
    assert set(result.values()) == {1, 2}
    said = drive.clients[0].policies().result()["read"]
    assert "sha256" in said["refused"][0]
    assert said["sha256"] == FOR_TWO_HOURS.document["sha256"]


def test_what_was_damaged_on_the_device_rolls_back():
    drive = begun()
    drive.lab.run(minutes=10)
    name = drive.devices[0].name
    update = FOR_TWO_HOURS.with_override("remote", south=0, north=1, west=0, east=1, version=2)
    drive.cloud.ship(update, app="traffic", to=[name]).result()
    assert versions(drive)[name] == 2
    (process,) = drive.lab.world.hosts[name].processes
    document = copy.deepcopy(dict(process.store.get("policy read in use")))
    document["nodes"][0][1] = 12.0
    process.store.put("policy read in use", document)
    process.store.commit()
    drive.lab.faults.cut(name, minutes=5)  # what is shipped again must not hide the rolling back
    drive.lab.faults.kill(name)
    drive.lab.faults.restart(name)
    said = drive.clients[0].policies().result()["read"]
    assert (said["version"], said["sha256"]) == (1, FOR_TWO_HOURS.document["sha256"])
    assert "sha256" in said["refused"][0]
    drive.lab.run(minutes=10)
    assert versions(drive)[name] == 2  # and once it is heard of, the update is told again


def test_for_more_devices_and_for_all():
    drive = begun()
    names = [device.name for device in drive.devices]
    second, third = FOR_TWO_HOURS.renewed(2), FOR_TWO_HOURS.renewed(3)
    drive.cloud.ship(second, app="traffic", to=names[:1]).result()
    drive.cloud.ship(second, app="traffic", to=names[1:2]).result()
    assert [*versions(drive).values()] == [2, 2, *[1] * 8]
    with pytest.raises(ParameterError, match="shipped already"):
        drive.cloud.ship(second, app="traffic").result()
    changed = dict(second.document) | {"manifest": {"seed": 2}}
    with pytest.raises(ParameterError, match="shipped already"):
        drive.cloud.ship(changed | {"sha256": sha256(changed)}, app="traffic", to=names).result()
    drive.cloud.ship(third, app="traffic").result()
    assert set(versions(drive).values()) == {3}
    drive.lab.faults.kill("mud-notifications-1")
    drive.lab.faults.kill("mud-notifications-2")
    for server in ("mud-notifications-1", "mud-notifications-2"):
        drive.lab.faults.restart(server)
    drive.lab.run(hours=1)
    assert set(versions(drive).values()) == {3}
    refused = [client.policies().result()["read"]["refused"] for client in drive.clients]
    assert refused == [[]] * 10
