"""Apps of one phone share the budget of its store, and the messages of writes that have waited."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mud_place import Place

from mudkit import Lab
from mudkit.systems.mud import Client, Cloud, WritePolicy
from mudkit.systems.mud.messages.requests import AppsBatch

GUIDE = Path(__file__).parents[4] / "docs/guides/mud.md"
APPS = ("mail", "news", "chat")
BUDGET = 6


class After(WritePolicy):
    """Policy that delays each write."""

    def __init__(self, delay_s):
        self.delay_s = delay_s

    def delay(self, write, context):
        return self.delay_s


class Phone:
    """Phone with three apps, a table each, and a server that writes into all of them."""

    def __init__(self, apps=APPS, *, records=0, **options):
        self.place = place = Place(replica_lag_s=0.0)
        self.lab = place.lab
        self.apps = {app: place.client("phone", app=app, **options) for app in apps}
        self.other = place.client("other", app="other", user="eve")
        for app, client in self.apps.items():
            client.create(app, acl="public").result()
            for number in range(records):
                self.other.write(app, f"k{number}", {"n": number})
        self.lab.run(minutes=1)

    def counts(self):
        """Return how many committed records each app holds."""
        return {app: client.installed.machine.local.row_count for app, client in self.apps.items()}

    def sent_over(self, minutes=1):
        """Run, and return the messages with writes that the phone sends."""
        heard = []
        self.lab.world.fault_hook = lambda transfer: heard.append(transfer.message) or (0,)
        self.lab.run(minutes=minutes)
        self.lab.world.fault_hook = None
        return [one for one in heard if type(one).__name__ in ("Ask", "AskBatch", "AppsBatch")]


def test_apps_of_a_phone_share_the_budget_of_its_store():
    """Mobius 2: one local store a device."""
    phone = Phone(records=5, max_rows=BUDGET)
    phone.apps["mail"].read("mail").result()
    assert phone.counts() == {"mail": 5, "news": 0, "chat": 0}
    phone.apps["news"].read("news").result()
    assert phone.counts() == {"mail": 2, "news": 4, "chat": 0}
    phone.apps["chat"].read("chat").result()
    assert phone.counts() == {"mail": 2, "news": 2, "chat": 2}


def test_answer_that_another_app_has_evicted_is_not_complete_any_more():
    phone = Phone(records=5, max_rows=BUDGET)
    phone.apps["mail"].read("mail").result()
    phone.apps["news"].read("news").result()
    phone.lab.faults.cut("phone")
    result = phone.apps["mail"].read("mail").result()
    assert (len(result.records), result.is_complete) == (2, False)


def test_budget_holds_after_a_restart_of_the_phone():
    phone = Phone(records=5, max_rows=BUDGET)
    for app, client in phone.apps.items():
        client.read(app).result()
    phone.lab.faults.kill("phone")
    phone.lab.faults.restart("phone")
    phone.lab.run(seconds=1)
    phone.apps["mail"].read("mail").result()
    assert phone.counts() == {"mail": 2, "news": 2, "chat": 2}


STEPS = st.one_of(
    st.tuples(st.just("write"), st.sampled_from(APPS), st.integers(1, 9)),
    st.tuples(st.just("read"), st.sampled_from(APPS), st.just(0)),
    st.tuples(st.sampled_from(["cut", "reconnect", "restart", "wait"]), st.just(""), st.just(0)),
)


@settings(max_examples=15, deadline=None)
@given(st.lists(STEPS, min_size=4, max_size=14))
def test_store_is_never_above_its_budget_and_nothing_pending_is_evicted(steps):
    phone = Phone(records=3, max_rows=BUDGET)
    lab, number = phone.lab, 0
    written = {app: set() for app in APPS}
    for step, app, count in steps:
        if step == "write":
            for _ in range(count):
                number += 1
                phone.apps[app].write(app, f"w{number}", {"n": number})
                written[app].add(f"w{number}")
        elif step == "read":
            phone.apps[app].read(app, offline="answer")
        elif step == "cut":
            lab.faults.cut("phone")
        elif step == "reconnect":
            lab.faults.mend("phone")
        elif step == "restart":
            lab.faults.kill("phone")
            lab.faults.restart("phone")
        lab.run(seconds=20 if step == "wait" else 0.1)
        assert sum(phone.counts().values()) <= BUDGET
    lab.faults.mend("phone")
    lab.run(minutes=5)
    for app in APPS:
        assert written[app] <= set(phone.other.read(app, latest=True).result().records)


@pytest.mark.parametrize("is_killed", [False, True])
def test_writes_of_all_apps_leave_in_one_message_after_an_outage(is_killed):
    """Writes that waited leave in as few messages as fit, over apps as well."""
    phone = Phone()
    phone.lab.faults.cut("phone")
    for number in range(4):
        for app, client in phone.apps.items():
            client.write(app, f"k{number}", {"n": number})
    phone.lab.run(minutes=10)
    if is_killed:
        phone.lab.faults.kill("phone")
    phone.lab.faults.mend("phone")
    if is_killed:
        phone.lab.faults.restart("phone")
    (message,) = phone.sent_over()
    assert isinstance(message, AppsBatch)
    assert [part.client for part in message.parts] == [f"phone/{app}" for app in APPS]
    assert len({part.token for part in message.parts}) == 3
    for app in APPS:
        assert len(phone.other.read(app).result().records) == 4


def test_message_of_several_apps_that_is_lost_is_sent_again_and_applied_once():
    phone = Phone()
    lab = phone.lab
    lab.world.fault_hook = lambda transfer: () if isinstance(transfer.message, AppsBatch) else (0,)
    operations = [client.increment(app, "n", "n", create=True) for app, client in phone.apps.items()]
    lab.run(seconds=30)
    lab.world.fault_hook = lambda transfer: (0, 1_000_000)  # and all arrives twice
    lab.run(minutes=2)
    lab.world.fault_hook = None
    assert [operation.status for operation in operations] == ["ok"] * 3
    for app in APPS:
        assert phone.other.read(app).result().records == {"n": {"n": 1}}


def test_part_of_an_app_with_a_foreign_token_is_refused_alone():
    phone = Phone()
    mail, news = phone.apps["mail"], phone.apps["news"]
    news.installed.machine._connection.use_token(phone.lab.token("phone", "mail"))
    first, then = mail.write("mail", "a", {"n": 1}), news.write("news", "a", {"n": 1})
    phone.lab.run(minutes=1)
    assert (first.status, then.status) == ("ok", "failed")
    assert "another app" in str(then.exception())


def test_delayed_writes_of_other_apps_leave_with_one_whose_delay_is_over():
    """Mobius 7.3: one wake-up of the radio for all delayed writes, those of other apps as well."""
    place = Place(replica_lag_s=0.0)
    clients = {
        app: place.client("phone", app=app, write_policy=After(delay_s))
        for app, delay_s in zip(APPS, (60.0, 600.0, 3600.0), strict=True)
    }
    for app, client in clients.items():
        client.create(app, acl="public").result()
    place.lab.run(minutes=5)
    before = place.lab.bill().query("device == 'phone' and direction == 'up'")["messages"].sum()
    operations = [client.write(app, "a", {"n": 1}) for app, client in clients.items()]
    place.lab.run(seconds=59)
    assert {operation.status for operation in operations} == {"open"}
    place.lab.run(seconds=30)
    assert {operation.status for operation in operations} == {"ok"}
    assert place.lab.bill().query("device == 'phone' and direction == 'up'")["messages"].sum() == before + 1


def measure_outage(phones, writes):
    """Return the messages up and J of three apps, on one phone or three, that write in an outage of an hour."""
    lab = Lab(seed=1)
    cloud = Cloud(lab)
    devices = [lab.device(f"phone {number}") for number in range(phones)]
    clients = [
        Client(devices[number % phones], cloud, app=app, token=lab.token("ann", app, hours=24))
        for number, app in enumerate(APPS)
    ]
    for app, client in zip(APPS, clients, strict=True):
        client.create(app).result()
    lab.run(minutes=1)
    for device in devices:
        lab.faults.cut(device.name)

    def total():
        bill = lab.bill()
        bill = bill[bill["device"].isin([device.name for device in devices])]
        return bill.loc[bill["direction"] == "up", "messages"].sum(), bill["radio_mj"].sum()

    messages, mj = total()
    for number in range(writes):
        for app, client in zip(APPS, clients, strict=True):
            client.write(app, f"k{number}", {"text": "x" * 100})
        lab.run(seconds=3600 / writes)
    for device in devices:
        lab.faults.mend(device.name)
    lab.run(minutes=5)
    assert not any(client.pending().result() for client in clients)
    after = total()
    return int(after[0] - messages), (after[1] - mj) / 1000


@pytest.mark.parametrize("writes", [5, 20, 200])
def test_guide_has_what_writes_of_three_apps_cost_after_an_outage(writes):
    cells = [
        f"{messages:,} | {joules:.1f}" for messages, joules in (measure_outage(n, writes) for n in (1, 3))
    ]
    row = f"| {writes} | {' | '.join(cells)} |"
    assert row in GUIDE.read_text(encoding="utf-8")
