"""Reports of the use of an app: their content, whom they reach, their cost, and policies learnt from them."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from mudkit import Lab, learning
from mudkit.errors import ParameterError
from mudkit.systems import mud
from mudkit.systems.mud import Artefact
from mudkit.systems.mud.device.usage import REPORT_ITEMS
from mudkit.systems.mud.policies.learner import LearntPolicy
from mudkit.units import distance_km

AT = (30.2711, -97.7437)


class Learner:
    """Learner that keeps what devices have reported, and returns given policies."""

    def __init__(self, *policies):
        self.policies, self.seen = list(policies), []

    def learn(self, usage, seed):
        self.seen.append([row for row in usage.to_pylist() if row["op"] != "change"])
        if isinstance(self.policies[0], Exception):
            raise self.policies[0]
        return self.policies.pop(0) if len(self.policies) > 1 else self.policies[0]


def learnt(action, app="news"):
    return [LearntPolicy(app, Artefact.create("read", 1, [], [[0]], [action]))]


def start(learner=None, *, reports_usage=True, record_reasons=False, link="lte", **more):
    """Return a lab in which ann uses an app, and its cloud and client."""
    lab = Lab(seed=7, record_reasons=record_reasons)
    cloud = mud.Cloud(lab, **({} if learner is None else {"learner": learner, "relearn_h": 6.0}))
    ann = client(lab, cloud, "ann", reports_usage=reports_usage, link=link, **more)
    ann.create("news").result()
    return lab, cloud, ann


def client(lab, cloud, name, *, app="news", link="lte", **more):
    device = lab.devices.get(name) or lab.device(name, link=link, loc=AT)
    return mud.Client(device, cloud, app=app, token=lab.token(name, app, hours=200), **more)


def use(lab, ann, times=REPORT_ITEMS, **more):
    """Read as often as a report has items, and once more: the report of the others goes with that read."""
    for _ in range(times + 1):
        ann.read("news", "topic = 'arts'", utility=mud.freshness(0), **more).result()


def rows(lab):
    return lab.frame("usage").to_dict("records")


def test_reads_and_writes_are_reported_with_what_answered_them():
    lab, _, ann = start(Learner([]))
    ann.write("news", "a", {"topic": "arts", "loc": (30.5, -97.1)}).result()
    ann.write("news", "b", {"topic": "arts"}).result()
    use(lab, ann)
    lab.run(seconds=5)
    first, second, read, again, *_ = rows(lab)
    assert (first["op"], first["device"], first["app"], first["table"]) == ("write", "ann", "news", "news")
    assert distance_km(first["lat"], first["lon"], 30.5, -97.1) < 1
    assert distance_km(second["lat"], second["lon"], *AT) < 1
    assert (read["op"], read["source"], read["records"]) == ("read", "remote", 2)
    assert read["waited_s"] > 0
    assert (read["query"], again["query"]) == (None, "topic = 'arts'")  # told once it is repeated


def test_answers_of_the_device_are_reported_with_their_age():
    lab, _, ann = start(Learner([]))
    ann.write("news", "a", {"topic": "arts"}).result()
    ann.read("news", "key = 'a'").result()
    lab.run(seconds=30)
    ann.read("news", "key = 'a'", utility=mud.freshness(600)).result()
    lab.faults.cut("ann")
    ann.read("news", "topic = 'arts'", offline="answer").result()
    lab.faults.mend("ann")
    use(lab, ann)
    lab.run(seconds=5)
    sources = [row["source"] for row in rows(lab)][1:4]
    assert sources == ["remote", "local", "offline"]
    assert rows(lab)[2]["age_s"] == pytest.approx(30, abs=2)


def test_batches_and_continuous_reads_are_reported():
    """Each write of a batch is one, and of a continuous read its registration, but not of a table of the device."""
    lab, _, ann = start(Learner([]))
    ann.create("notes", where="device").result()
    for table in ("notes", "news"):
        ann.read(table, "topic = 'arts'", type="continuous").result()
    with ann.batch("news") as batch:
        for key in "ab":
            batch.write(key, {"topic": "arts"})
    use(lab, ann)
    lab.run(seconds=5)
    ops = [(row["table"], row["op"]) for row in rows(lab)]
    assert ops[:4] == [("news", "register"), ("news", "write"), ("news", "write"), ("news", "read")]
    assert rows(lab)[0]["source"] is None


def test_write_policy_that_is_taken_back_leaves_writes_to_the_devices_own():
    lab, cloud, ann = start(Learner([]), write_policy=mud.ShippedPolicy())
    for version, action in enumerate((600.0, "own"), 1):
        cloud.ship(Artefact.create("write", version, [], [[0]], [action]), app="news").result()
        lab.run(minutes=1)
        ann.write("news", "a", {"topic": "arts"})
        lab.run(seconds=20)
        assert len(ann.pending().result()) == (1 if action == 600.0 else 0)
        lab.run(hours=1)


def test_processors_report_how_often_the_query_that_is_read_most_changes():
    """Writes count of an app that reports nothing, too; what other queries have does not."""
    lab, cloud, ann = start(Learner([]))
    bob = client(lab, cloud, "bob", app="quiet")
    use(lab, ann)
    lab.run(hours=7)
    for minute in range(4):
        bob.write("news", f"{minute}", {"topic": "arts" if minute % 2 else "sport"}).result()
        lab.run(minutes=2)
    lab.run(hours=1)
    changed = [row for row in rows(lab) if row["op"] == "change"]
    begun = {row["device"] for row in changed if row["records"] == 0}
    assert begun == {address.split("/")[0] for address in cloud.processors}
    assert sum(row["records"] for row in changed) == 2
    assert {(row["table"], row["query"], row["app"]) for row in changed} == {("news", "topic = 'arts'", "")}


def test_processor_that_starts_again_watches_anew():
    lab, cloud, ann = start(Learner([]))
    use(lab, ann)
    lab.run(hours=7)
    server = cloud.processors[0].split("/")[0]
    lab.faults.kill(server)
    lab.faults.restart(server)
    lab.run(hours=1)
    begun = [row["device"] for row in rows(lab) if row["op"] == "change" and row["records"] == 0]
    assert begun.count(server) == 2


def test_places_are_those_of_cells():
    """A query about an area is reported by the middle of a cell, without its text."""
    lab, _, ann = start(Learner([]), cell_km=5.0)
    for _ in range(REPORT_ITEMS + 1):
        ann.read("news", f"within_km(loc, point({AT[0]}, {AT[1]}), 2) AND topic = 'arts'").result()
    lab.run(seconds=5)
    row = rows(lab)[-1]
    assert row["box_km"] == pytest.approx(3.545, abs=1e-3)
    assert row["query"] is None
    assert 0 < distance_km(row["lat"], row["lon"], *AT) < 5 * 2**-0.5 + 0.01
    reports = [json.dumps(one) for one in lab.frame("messages")["content"].tolist() if '"usage"' in one]
    assert reports
    assert not any(str(place) in report for place in AT for report in reports)


@pytest.mark.parametrize(
    ("learner", "consents"), [(None, True), (Learner([]), False)], ids=["no learner", "no consent"]
)
def test_without_learner_or_consent_nothing_is_reported(learner, consents):
    """The bill is equal to the byte: nothing is sent, and nothing says that nothing is."""
    bills = []
    for given, reports in ((learner, consents), (None, False)):
        lab, _, ann = start(given, reports_usage=reports)
        use(lab, ann)
        lab.run(hours=8)
        assert rows(lab) == []
        bills.append(lab.bill().to_dict())
    assert bills[0] == bills[1]


def test_report_opens_no_radio():
    """It leaves in the moment of a message that leaves anyway, and answers of the device cause none."""
    lab, _, ann = start(Learner([]))
    ann.write("news", "a", {"topic": "arts"}).result()
    ann.read("news", "key = 'a'").result()
    lab.run(seconds=60)
    before = lab.bill().set_index(["device", "direction"])["messages"]
    for _ in range(2 * REPORT_ITEMS):
        ann.read("news", "key = 'a'", utility=mud.freshness(3600)).result()
    lab.run(minutes=10)
    assert lab.bill().set_index(["device", "direction"])["messages"].equals(before)
    ann.write("news", "b", {"topic": "arts"}).result()
    lab.run(seconds=5)
    write, report = (
        lab.frame("messages").query("source == 'ann' and kind == 'ask'").tail(2).to_dict("records")
    )
    assert write["sent"] == report["sent"]
    assert len(rows(lab)) == 2 * REPORT_ITEMS + 3


def test_few_items_are_reported_after_six_hours():
    lab, _, ann = start(Learner([]))
    use(lab, ann, times=2)
    lab.run(hours=6.1)
    assert rows(lab) == []
    use(lab, ann, times=0)
    lab.run(seconds=5)
    assert len(rows(lab)) == 3


def test_reports_are_charged_as_policies():
    """Usage is reported for policies alone (Mobius 6)."""
    costs = []
    for reports in (True, False):
        lab, _, ann = start(Learner([]), reports_usage=reports, record_reasons=True)
        use(lab, ann)
        lab.run(seconds=60)
        rows_ = (
            lab.bill(by="reason").query("device == 'ann' and direction == 'up'").set_index("reason")["bytes"]
        )
        costs.append(rows_)
    assert costs[0].drop("policy").equals(costs[1])
    assert costs[0]["policy"] / REPORT_ITEMS < 120  # bytes an item, of which a message shares 700


def test_repeated_report_counts_once_and_lost_items_are_known():
    """Reports are numbered: a repeated message adds nothing, and a lost item is missed."""
    lab, cloud, ann = start(Learner([]))
    lab.faults.messages(repeat_share=1.0)
    use(lab, ann)
    lab.run(seconds=30)
    assert len(rows(lab)) == REPORT_ITEMS
    sample = cloud.installed.machine._sample
    assert sample.lost() == {"ann/news": 0}
    lab.faults.kill("mud-policies")
    use(lab, ann)
    lab.faults.restart("mud-policies")
    use(lab, ann)
    lab.run(seconds=30)
    assert 0 < cloud.installed.machine._sample.lost()["ann/news"] <= 2 * REPORT_ITEMS


def test_usage_is_visible_to_nobody_else():
    """Neither another app of the phone, nor another phone, ever gets a part of it."""
    lab = Lab(seed=7, record_exposure=True)
    cloud = mud.Cloud(lab, learner=Learner([]))
    ann = client(lab, cloud, "ann", reports_usage=True)
    other, bob = client(lab, cloud, "ann", app="maps"), client(lab, cloud, "bob")
    ann.create("news").result()
    other.create("places").result()
    ann.write("news", "a", {"topic": "secret-word"}).result()
    for _ in range(REPORT_ITEMS + 1):
        ann.read("news", "topic = 'secret-topic'", utility=mud.freshness(0)).result()
        other.read("places").result()
        bob.read("news", "topic = 'arts'").result()
    lab.run(minutes=5)
    assert rows(lab)
    parties = {party for party, *_ in lab.trace.exposure.find("secret-topic")}
    assert "mud-policies" in parties
    assert "bob" not in parties


def test_policies_are_learnt_shipped_and_taken_back():
    """A policy in use is not shipped again. A device that answers alone reports within a day."""
    learner = Learner(learnt("local"), learnt("local"), learnt("local"), learnt("own"))
    lab, _, ann = start(learner, read_policy=mud.ShippedPolicy())
    versions = []
    for _ in range(3):
        use(lab, ann)
        lab.run(hours=31)
        versions.append(ann.policies().result()["read"]["version"])
    assert versions == [1, 1, 2]
    assert [len(seen) for seen in learner.seen] == [20, 21, 42, 63]


def test_policies_of_tables_are_learnt_shipped_and_used_alone():
    """One of a table and one for all have versions of their own; each device gets what it lacks."""
    of_news = Artefact.create("read", 1, [], [[0]], ["local"], table="news")
    for_all = Artefact.create("read", 1, [], [[0]], ["remote"])
    learner = Learner([LearntPolicy("news", of_news), LearntPolicy("news", for_all)])
    lab, cloud, ann = start(learner, read_policy=mud.ShippedPolicy())
    ann.create("maps").result()
    use(lab, ann)
    lab.run(hours=7)
    bob = client(lab, cloud, "bob", read_policy=mud.ShippedPolicy())
    lab.run(minutes=1)
    for one in (ann, bob):
        policies = one.policies().result()
        assert {name: policy["version"] for name, policy in policies.items()} == {
            "read": 1,
            "read of news": 1,
        }
        sources = []
        for table in ("news", "maps"):
            one.read(table).result()
            before = lab.bill().query(f"device == '{one.device.name}'")["messages"].sum()
            one.read(table).result()
            sources.append(lab.bill().query(f"device == '{one.device.name}'")["messages"].sum() - before)
        assert sources[0] == 0 < sources[1]


def test_habit_is_learnt_shipped_and_fetched_in_advance():
    """Eight phones look at the menu at about 12:06 each day; from the third day on it is there before.

    Nothing is fetched on the first days, and what is fetched later is read: the bill has no other messages.
    """
    lab = Lab(seed=3, start="2010-03-01")
    learner = learning.Learner()
    cloud = mud.Cloud(lab, learner=learner, relearn_h=24.0)
    phones = [
        mud.Client(
            lab.device(f"phone-{number}", clock_us=lab.start_us),
            cloud,
            app="menus",
            token=lab.token(f"user-{number}", "menus", hours=500),
            prefetch_policy=mud.ShippedPolicy(),
            reports_usage=True,
        )
        for number in range(8)
    ]
    phones[0].create("menus").result()
    phones[0].write("menus", "monday", {"place": "canteen", "dish": "soup"}).result()
    waits = []
    for day in range(7):
        lab.run(hours=24 * day + 12.1 - lab.world.now_us / 3.6e9)
        reads = [phone.read("menus", "place = 'canteen'", utility=mud.freshness(1800)) for phone in phones]
        begun_us = lab.world.now_us
        for operation in reads:
            operation.result()
        waits.append((lab.world.now_us - begun_us) / 1e6)
    assert min(waits[:3]) > 0
    assert waits[-2:] == [0.0, 0.0]
    usage = lab.frame("usage")
    fetched = usage[usage["op"] == "prefetch"]
    local = usage[(usage["op"] == "read") & (usage["source"] == "local")]
    assert 0 < len(fetched) <= len(local) + 2 * len(phones)  # those of the last day are not reported yet
    assert set(fetched["ts"].dt.hour) == {12}


def test_policy_that_nobody_has_is_not_taken_back():
    lab, _, ann = start(Learner(learnt("own")), read_policy=mud.ShippedPolicy())
    use(lab, ann)
    lab.run(hours=7)
    assert ann.policies().result()["read"]["version"] == 0


def test_policy_that_is_taken_back_leaves_reads_to_the_devices_own():
    class Own:
        calls = 0

        def decide(self, query, context, cache):
            self.calls += 1
            return "remote"

    own = Own()
    lab, cloud, ann = start(Learner([]), read_policy=mud.ShippedPolicy(fallback=own))
    for version, action in enumerate(("local", "own"), 1):
        cloud.ship(Artefact.create("read", version, [], [[0]], [action]), app="news").result()
        lab.run(minutes=1)
        before = own.calls
        ann.read("news").result()
        assert (own.calls > before) is (action == "own")


@pytest.mark.parametrize(
    "answer",
    [ZeroDivisionError("odd"), [("news", "nonsense")], [LearntPolicy("news", None)], "nonsense", 3],
    ids=str,
)
def test_learner_that_fails_stops_nothing_and_is_an_incident(answer):
    lab, cloud, ann = start(Learner(answer))
    use(lab, ann)
    lab.run(hours=7)
    assert lab.frame("incidents")["incident"].tolist() == ["learner failed"]
    cloud.ship(Artefact.create("read", 1, [], [[0]], ["local"]), app="news").result()
    use(lab, ann)
    lab.run(hours=7)
    assert lab.frame("incidents")["incident"].tolist() == ["learner failed"] * 2


def test_nothing_is_learnt_while_nothing_is_reported():
    learner = Learner([])
    lab, _, ann = start(learner)
    use(lab, ann)
    lab.run(hours=100)
    assert len(learner.seen) == 2  # the last read was reported a day later
    lab.run(hours=1000)
    assert len(learner.seen) == 2


def test_restarted_generator_learns_from_what_it_has_stored():
    learner = Learner([])
    lab, _, ann = start(learner)
    use(lab, ann)
    lab.run(hours=1)
    lab.faults.kill("mud-policies")
    lab.faults.restart("mud-policies")
    lab.run(hours=7)
    assert [len(seen) for seen in learner.seen] == [REPORT_ITEMS]


def test_user_is_forgotten():
    learner = Learner([])
    lab, cloud, ann = start(learner)
    use(lab, ann)
    bob = client(lab, cloud, "bob", reports_usage=True)
    use(lab, bob)
    lab.run(seconds=5)
    assert cloud.forget("ann").result() == REPORT_ITEMS
    assert cloud.forget("ann").result() == 0
    lab.run(hours=7)
    assert {row["device"] for row in learner.seen[0]} == {"bob"}


def test_old_usage_is_removed():
    learner = Learner([])
    lab = Lab(seed=7)
    cloud = mud.Cloud(lab, learner=learner, relearn_h=1.0, usage_days=1.1)
    ann = client(lab, cloud, "ann", reports_usage=True)
    ann.create("news").result()
    use(lab, ann)
    lab.run(hours=29)
    use(lab, ann)
    lab.run(hours=2)
    assert [len(seen) for seen in learner.seen] == [REPORT_ITEMS, 1 + REPORT_ITEMS, REPORT_ITEMS]


def test_sample_is_bounded(monkeypatch):
    monkeypatch.setattr("mudkit.systems.mud.servers.usage_sample.MAX_ROWS", 30)
    lab, cloud, ann = start(Learner([]))
    for _ in range(3):
        use(lab, ann)
    lab.run(seconds=5)
    assert len(cloud.installed.machine._sample) == 30
    assert len(cloud.installed.store.keys("usage row ")) == 30


@pytest.mark.parametrize("given", [{"relearn_h": 0.0}, {"usage_days": -1.0}, {"relearn_h": float("nan")}])
def test_unusable_times_are_refused(given):
    with pytest.raises(ParameterError, match=next(iter(given))):
        mud.Cloud(Lab(), learner=Learner([]), **given)


def test_unusable_cell_is_refused():
    lab = Lab()
    with pytest.raises(ParameterError, match="cell_km"):
        mud.Client(lab.device("ann"), mud.Cloud(lab), app="news", reports_usage=True, cell_km=0.0)


def test_mined_policies_are_shipped_where_they_differ():
    """Each policy goes to its app, with the next version; one that decides as that in use stays."""
    lab, cloud, ann = start(Learner([]), read_policy=mud.ShippedPolicy())
    local, own = (Artefact.create("read", 1, [], [[0]], [action]) for action in ("local", "own"))
    of_apps = SimpleNamespace(policies=(LearntPolicy("news", local), LearntPolicy("maps", own)))
    shipped = [cloud.ship(of_apps).result() for _ in range(2)]
    lab.run(minutes=1)
    assert shipped == [1, 0]  # that of maps takes nothing back
    assert [policy["version"] for policy in ann.policies().result().values()] == [1]
    taken_back = SimpleNamespace(policies=(LearntPolicy("news", own),))
    assert cloud.ship(taken_back).result() == 1


def test_mined_policies_have_apps_and_one_policy_needs_one():
    _, cloud, _ = start(Learner([]))
    policy = Artefact.create("read", 1, [], [[0]], ["local"])
    with pytest.raises(ParameterError, match="app that the policy is for"):
        cloud.ship(policy)
    for more in ({"app": "news"}, {"to": ["phone"]}):
        with pytest.raises(ParameterError, match="for all devices of its apps"):
            cloud.ship(SimpleNamespace(policies=()), **more)
    damaged = SimpleNamespace(policies=[LearntPolicy("news", SimpleNamespace(document={"format": 2}))])
    with pytest.raises(ParameterError):
        cloud.ship(damaged).result()
