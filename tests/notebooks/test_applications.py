"""Applications of Mobius 3.2 under faults: other seeds, lost messages, and killed servers."""

from __future__ import annotations

import pytest

from mudkit import Lab
from mudkit.errors import OperationLost
from mudkit.systems.mud import Client, Cloud
from tests.support import mud_applications

MESSAGE_FAULTS = {
    "lossy": {"loss_share": 0.2},
    "repeated": {"repeat_share": 0.4, "delay_share": 0.4, "delay_s": 5.0},
}


@pytest.fixture
def applications():
    return mud_applications


def merge_three_way(store, local, base):
    return (store - (base - local)) | (local - base)


def inject_faults(lab: Lab, cloud: Cloud, fault: str) -> None:
    """Schedule the faults that a test requests."""
    if fault in MESSAGE_FAULTS:
        lab.faults.messages(**MESSAGE_FAULTS[fault])
    if fault == "killed":
        servers = [
            *cloud.processors,
            *cloud.gateways,
            *cloud.notification_servers,
            cloud.back_end,
            *cloud.replicas,
        ]
        for number, address in enumerate(servers):
            server = address.split("/")[0]
            for at_ms in range(300 + 130 * number, 120_000, 1700):
                lab.world.schedule_action(
                    1000 * at_ms, lambda name: (lab.faults.kill(name), lab.faults.restart(name)), server
                )


def has_fault_occurred(lab: Lab, fault: str) -> bool:
    """Return whether the requested faults occurred."""
    fates, incidents = lab.frame("messages")["fate"], lab.frame("incidents")["incident"]
    return {
        "nothing": not set(fates) & {"lost", "repeated"},
        "lossy": (fates == "lost").sum() > 5,
        "repeated": (fates == "repeated").sum() > 5,
        "killed": (incidents == "killed").sum() > 10,
    }[fault]


@pytest.mark.soak(keep=4)
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("fault", ["nothing", "lossy", "repeated", "killed"])
class TestApplications:
    def test_social_news(self, applications, seed, fault):
        lab = Lab(seed)
        cloud = Cloud(lab)
        inject_faults(lab, cloud, fault)
        results = applications.social_news(lab, cloud)
        lab.run(hours=1)
        assert results["told of arts"] == {"jane": ["a1"]}
        assert set(results["sports"]) == {"s2"}
        assert results["sports again"] == {"s2": "local"}
        answer = {name: sorted(keys) for name, keys in results["messages"].items()}
        assert answer == {"jane": ["m1", "m2"], "ann": ["m1", "m2"], "bob": ["m1"]}
        assert has_fault_occurred(lab, fault)

    def test_experience_sharing(self, applications, seed, fault):
        lab = Lab(seed)
        cloud = Cloud(lab)
        inject_faults(lab, cloud, fault)
        results = applications.experience_sharing(lab, cloud)
        lab.run(hours=1)
        assert results["free beer"] == {"jane": ["beer"], "ann": [], "bob": ["beer"]}
        assert results["map, no network"] == {"kiosk": "local"}
        assert results["comments"] == {"jane": ["c1"], "ann": ["c1"], "bob": []}
        assert set(results["band"]) == {"Kernels"}
        assert has_fault_occurred(lab, fault)

    @pytest.mark.parametrize("is_killed", [False, True])
    def test_journal(self, applications, seed, fault, is_killed):
        lab = Lab(seed)
        cloud = Cloud(lab)
        inject_faults(lab, cloud, fault)
        tablet, phone = make_clients(lab, cloud)

        def kill():
            lab.faults.kill("jane-tablet")
            lab.run(seconds=5)
            lab.faults.restart("jane-tablet")

        meanwhile = kill if is_killed else lambda: None
        page, merged = applications.journal(lab, tablet, phone, merge_three_way, meanwhile=meanwhile)
        assert page == ["breakfast", "cafe A", "way home"]
        assert merged == [{"breakfast", "way home"}, {"breakfast", "cafe A"}, {"breakfast"}]
        assert tablet.pending().result() == []
        assert has_fault_occurred(lab, fault)


def make_clients(lab, cloud):
    token = lab.token("jane", "journal")
    return [
        Client(lab.device(name), cloud, app="journal", token=token) for name in ("jane-tablet", "jane-phone")
    ]


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("seed", [1, 2])
def test_blind_journal_loses_an_edit_without_notice(applications, seed):
    lab = Lab(seed)
    page, merged = applications.journal(lab, *make_clients(lab, Cloud(lab)), merge_three_way, kind="blind")
    assert page == ["breakfast", "cafe A"]
    assert merged == []


def test_reads_with_zero_max_age_are_always_remote(applications, monkeypatch):
    monkeypatch.setattr(applications, "MAX_AGE_S", 0.0)
    lab = Lab(1)
    results = applications.social_news(lab, Cloud(lab))
    assert results["sports"] == results["sports again"] == {"s2": "remote"}


def test_message_reaches_a_user_at_the_same_place(applications, monkeypatch):
    """Place bob next to jane: the writer predicate selects him, too."""
    people = applications.PEOPLE | {
        "bob": applications.PEOPLE["bob"] | {"loc": applications.PEOPLE["jane"]["loc"]}
    }
    monkeypatch.setattr(applications, "PEOPLE", people)
    lab = Lab(1)
    results = applications.social_news(lab, Cloud(lab))
    lab.run(minutes=1)
    assert sorted(results["messages"]["bob"]) == ["m1", "m2"]


def test_killed_application_keeps_its_edit_pending(applications):
    """Reach the branch of ``reconcile`` for lost operations."""
    lab = Lab(1)
    tablet, _ = make_clients(lab, Cloud(lab))
    lab.faults.cut("jane-tablet")
    edit = tablet.write("journal", "monday", {"entries": []})
    lab.run(seconds=1)
    lab.faults.kill("jane-tablet")
    lab.faults.restart("jane-tablet")
    with pytest.raises(OperationLost):
        edit.result()
    assert len(tablet.pending().result()) == 1
