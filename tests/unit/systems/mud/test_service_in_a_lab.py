"""Apps of one phone share its service: what this saves, and what they keep from each other."""

from __future__ import annotations

from pathlib import Path

import pytest
from mud_place import Place

from mudkit import Lab, consistency
from mudkit.errors import AccessDenied, ParameterError
from mudkit.systems.mud import Client, Cloud
from mudkit.systems.mud.device import fair_shares

GUIDE = Path(__file__).parents[4] / "docs/guides/mud.md"
APPS = ("mail", "news", "chat")


def measure(phones: int, writes_per_hour: int) -> tuple[int, float, float]:
    """Return messages, kB and J of three apps on one phone or three in six hours, each with a continuous read.

    The records are written elsewhere, for the apps in turn.
    """
    lab = Lab(seed=1)
    cloud = Cloud(lab)
    devices = [lab.device(f"phone {number}") for number in range(phones)]
    writer = Client(lab.server("writer"), cloud, app="writer", token=lab.token("eve", "writer"))
    for number, app in enumerate(APPS):
        device = devices[number % phones]
        client = Client(device, cloud, app=app, token=lab.token("ann", app, hours=24))
        writer.create(app, acl="public").result()
        client.read(app, type="continuous", callback=lambda change: None).result()
    lab.run(minutes=1)

    def total() -> tuple[int, int, float]:
        bill = lab.bill()
        bill = bill[bill["device"].isin([device.name for device in devices])]
        return int(bill["messages"].sum()), int(bill["bytes"].sum()), float(bill["radio_mj"].sum())

    before = total()
    for number in range(6 * writes_per_hour):
        writer.write(APPS[number % 3], f"k{number}", {"n": number})
        lab.run(seconds=3600 / writes_per_hour)
    if not writes_per_hour:
        lab.run(hours=6)
    messages, size, mj = (after - first for after, first in zip(total(), before, strict=True))
    return messages, size / 1000, mj / 1000


@pytest.mark.parametrize("writes_per_hour", [0, 20])
def test_guide_has_what_three_apps_cost_on_one_phone_and_on_three(writes_per_hour):
    """Mobius 5: one heartbeat a device; the idle cost of apps does not grow with their number."""
    one, three = measure(1, writes_per_hour), measure(3, writes_per_hour)
    for name, (messages, kb, joules) in (("one", one), ("three", three)):
        row = f"| {writes_per_hour} | {name} | {messages:,} | {kb:.1f} | {joules:,.0f} |"
        assert row in GUIDE.read_text()
    assert one[2] < three[2]


def place_with_two_apps():
    place = Place(replica_lag_s=0.0)
    return place, place.client("ann", app="bank"), place.client("ann", app="game")


def test_table_of_one_app_is_closed_to_another_app_of_the_phone():
    place, bank, game = place_with_two_apps()
    bank.create("accounts", apps=["bank"]).result()
    bank.write("accounts", "a", {"n": 1}).result()
    bank.read("accounts").result()
    for call in (
        lambda: game.read("accounts"),
        lambda: game.read("accounts", type="continuous"),
        lambda: game.write("accounts", "a", {"n": 2}),
    ):
        with pytest.raises(AccessDenied):
            call().result()
    assert place.lab.problems.empty


def test_app_with_the_token_of_another_app_is_refused_by_client_and_cloud():
    place, bank, game = place_with_two_apps()
    bank.create("accounts", apps=["bank"]).result()
    stolen = place.lab.token("ann", "bank")
    with pytest.raises(ParameterError, match="another app"):
        Client(place.lab.devices["ann"], place.cloud, app="thief", token=stolen)
    game.installed.machine._connection.use_token(stolen)
    with pytest.raises(AccessDenied, match="another app"):
        game.read("accounts").result()


def test_second_client_of_an_app_on_a_device_is_refused():
    place, _, _ = place_with_two_apps()
    with pytest.raises(ParameterError, match="exists already"):
        place.client("ann", app="bank")


def test_handle_of_another_app_is_refused():
    _, bank, game = place_with_two_apps()
    bank.create("accounts", apps=["bank"]).result()
    handle = bank.read("accounts", type="continuous").result()
    with pytest.raises(ParameterError, match="no such continuous read"):
        game.unregister(handle).result()


@pytest.mark.parametrize("event", ["unregister", "kill", "address", "outage"])
def test_reads_of_one_app_go_on_when_those_of_another_end(event):
    place, bank, game = place_with_two_apps()
    lab, changes = place.lab, []
    bank.create("accounts", acl="public").result()
    bank.read("accounts", type="continuous", callback=changes.append).result()
    handle = game.read("accounts", type="continuous").result()
    game.unregister(handle).result()
    if event == "kill":
        lab.faults.kill("ann")
        lab.run(seconds=5)
        lab.faults.restart("ann")
    elif event == "address":
        lab.faults.change_address("ann")
    elif event == "outage":
        lab.faults.cut("ann", minutes=50)
    lab.run(hours=2)  # a server would give up a device without heartbeats
    place.client("bob", app="bank").write("accounts", "a", {"n": 1}).result()
    lab.run(minutes=1)
    assert [(change.kind, change.key) for change in changes] == [("upsert", "a")]


@pytest.mark.parametrize("at", ["before commit", "after commit"])
def test_change_is_delivered_once_if_the_phone_is_killed_while_an_app_stores_it(at):
    """The service acknowledges what it forwards: an app that had no time to store it hears of it again."""
    place, bank, game = place_with_two_apps()
    lab, changes = place.lab, []
    bank.create("accounts", acl="public").result()
    bank.read("accounts", type="continuous", callback=changes.append).result()
    game.read("accounts", type="continuous").result()
    lab.run(minutes=1)
    lab.faults.kill("ann", at=at)
    bob = place.client("bob", app="bank")
    bob.write("accounts", "a", {"n": 1}).result()
    lab.run(minutes=1)
    lab.faults.restart("ann")
    lab.run(minutes=1)
    bob.write("accounts", "b", {"n": 1}).result()
    lab.run(minutes=1)
    assert {change.id: (change.kind, change.key) for change in changes} == {
        change.id: ("upsert", key) for change, key in zip(changes, "ab", strict=True)
    }


def test_apps_that_start_together_say_one_hello():
    place, bank, game = place_with_two_apps()
    lab = place.lab
    bank.create("accounts", acl="public").result()
    for client in (bank, game):
        client.read("accounts", type="continuous").result()
    lab.run(minutes=1)
    heard = []
    lab.world.fault_hook = lambda transfer: heard.append(transfer.message) or (0,)
    lab.faults.kill("ann")
    lab.faults.restart("ann")
    lab.run(minutes=1)
    named = [message.apps.keys() for message in heard if type(message).__name__ == "Hello"]
    assert named[0] == {"bank", "game"}
    assert set(map(frozenset, named)) == {frozenset({"bank", "game"})}


def test_equal_reads_of_two_apps_travel_once_where_both_may_see_them():
    """Mobius 6 announces this: what recurs in several apps is joined."""
    place, bank, game = place_with_two_apps()
    lab = place.lab
    for name, has_predicates in (("open", False), ("hidden", True)):
        bank.create(name, writer_predicates=has_predicates).result()
        bank.write(name, "a", {"n": 1}).result()
        for client in (bank, game):
            client.read(name, "n = 2").result()  # now the token of each is verified

    def count_asks(name):
        asks = []
        lab.world.fault_hook = lambda transfer: asks.append(transfer.message) or (0,)
        reads = [client.read(name, "n = 1") for client in (bank, game)]
        results = [read.result() for read in reads]
        lab.world.fault_hook = None
        assert [result.records for result in results] == [{"a": {"n": 1}}] * 2
        return sum(type(message).__name__ == "Ask" for message in asks)

    assert (count_asks("open"), count_asks("hidden")) == (1, 2)


def read_beside_flood_s(flood: int) -> tuple[float, float]:
    """Return how long a read of an app takes while another one reads much over EDGE, and that one's last read."""
    place = Place(replica_lag_s=0.0)
    place.lab.device("ann", link="edge")
    bank, game = place.client("ann", app="bank"), place.client("ann", app="game")
    bank.create("accounts").result()
    bank.write("accounts", "a", {"n": 1}).result()
    flooding = [game.read("accounts", f"n > {number}", latest=True) for number in range(flood)]
    read = bank.read("accounts", latest=True)
    read.result()
    place.lab.run(minutes=10)
    assert {one.status for one in flooding} <= {"ok"}
    last_us = max((one.responded_us for one in flooding), default=read.invoked_us)
    return (read.responded_us - read.invoked_us) / 1e6, (last_us - read.invoked_us) / 1e6


def test_app_that_floods_delays_itself(monkeypatch):
    """The guide has what a read of another app takes, with fair shares and without."""
    (alone_s, _), (beside_s, flood_s) = read_beside_flood_s(0), read_beside_flood_s(400)
    monkeypatch.setattr(fair_shares, "MAX_REQUESTS", 1 << 30)
    monkeypatch.setattr(fair_shares, "MAX_BYTES", 1 << 30)
    unfair_s, unfair_flood_s = read_beside_flood_s(400)
    text = " ".join(GUIDE.read_text().split())
    assert f"{beside_s:.1f} s ({alone_s:.1f} s without the flood, {unfair_s:.1f} s if each" in text
    assert f"the flood {flood_s:.0f} s instead of {unfair_flood_s:.0f} s" in text
    assert beside_s < alone_s + 1 < unfair_s


def test_history_takes_two_apps_of_a_phone_for_two_clients():
    """Mobius 4.1: reads of one client do not go back; apps do not see what another one has stored."""
    place = Place(replica_lag_s=60.0)
    bank, game = place.client("ann", app="bank"), place.client("ann", app="game")
    bank.create("board", acl="public").result()
    bank.write("board", "a", {"n": 1}).result()
    place.lab.run(minutes=2)
    bank.write("board", "a", {"n": 2}).result()
    assert bank.read("board").result().versions == {"a": 2}
    assert game.read("board").result().versions == {"a": 1}  # from a replica that lags behind
    history = place.lab.history()
    assert history["client"].unique().tolist() == ["ann", "ann/mud-game"]
    verdict = consistency.check(history, "monotonic-reads")
    assert verdict.status is consistency.Status.OK
