"""The applications of Mobius 3.2 under faults: other seeds, lost messages, machines that are killed."""

from __future__ import annotations

import pytest

from mudkit import Lab
from mudkit.errors import OperationLost
from mudkit.systems.mud import Client, Cloud
from tests.support import mud_applications

OTHERS = {"lossy": {"loss_share": 0.2}, "repeated": {"repeat_share": 0.4, "delay_share": 0.4, "delay_s": 5.0}}


@pytest.fixture
def applications():
    return mud_applications


def three_way(store, local, base):
    return (store - (base - local)) | (local - base)


def trouble(lab: Lab, cloud: Cloud, what: str) -> None:
    """Let go wrong what a test asks for, from now on."""
    if what in OTHERS:
        lab.faults.messages(**OTHERS[what])
    if what == "killed":
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
                lab.world.at(
                    1000 * at_ms, lambda name: (lab.faults.kill(name), lab.faults.restart(name)), server
                )


def happened(lab: Lab, what: str) -> bool:
    """Say whether what was to go wrong did."""
    fates, incidents = lab.frame("messages")["fate"], lab.frame("incidents")["incident"]
    return {
        "nothing": not set(fates) & {"lost", "repeated"},
        "lossy": (fates == "lost").sum() > 5,
        "repeated": (fates == "repeated").sum() > 5,
        "killed": (incidents == "killed").sum() > 10,
    }[what]


@pytest.mark.soak(keep=4)
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("what", ["nothing", "lossy", "repeated", "killed"])
class TestApplications:
    def test_social_news(self, applications, seed, what):
        lab = Lab(seed)
        cloud = Cloud(lab)
        trouble(lab, cloud, what)
        came = applications.social_news(lab, cloud)
        lab.run(hours=1)
        assert came["told of arts"] == {"jane": ["a1"]}
        assert set(came["sports"]) == {"s2"}
        assert came["sports again"] == {"s2": "local"}
        answer = {name: sorted(keys) for name, keys in came["messages"].items()}
        assert answer == {"jane": ["m1", "m2"], "ann": ["m1", "m2"], "bob": ["m1"]}
        assert happened(lab, what)

    def test_experience_sharing(self, applications, seed, what):
        lab = Lab(seed)
        cloud = Cloud(lab)
        trouble(lab, cloud, what)
        came = applications.experience_sharing(lab, cloud)
        lab.run(hours=1)
        assert came["free beer"] == {"jane": ["beer"], "ann": [], "bob": ["beer"]}
        assert came["map, no network"] == {"kiosk": "local"}
        assert came["comments"] == {"jane": ["c1"], "ann": ["c1"], "bob": []}
        assert set(came["band"]) == {"Kernels"}
        assert happened(lab, what)

    @pytest.mark.parametrize("is_killed", [False, True])
    def test_journal(self, applications, seed, what, is_killed):
        lab = Lab(seed)
        cloud = Cloud(lab)
        trouble(lab, cloud, what)
        tablet, phone = devices(lab, cloud)

        def kill():
            lab.faults.kill("jane-tablet")
            lab.run(seconds=5)
            lab.faults.restart("jane-tablet")

        meanwhile = kill if is_killed else lambda: None
        page, merged = applications.journal(lab, tablet, phone, three_way, meanwhile=meanwhile)
        assert page == ["breakfast", "cafe A", "way home"]
        assert merged == [{"breakfast", "way home"}, {"breakfast", "cafe A"}, {"breakfast"}]
        assert tablet.pending().result() == []
        assert happened(lab, what)


def devices(lab, cloud):
    token = lab.token("jane", "journal")
    return [
        Client(lab.device(name), cloud, app="journal", token=token) for name in ("jane-tablet", "jane-phone")
    ]


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_blind_journal_loses_an_edit_and_is_not_told(applications, seed):
    lab = Lab(seed)
    page, merged = applications.journal(lab, *devices(lab, Cloud(lab)), three_way, kind="blind")
    assert page == ["breakfast", "cafe A"]
    assert merged == []


def test_what_is_fresh_for_nothing_is_asked_for_again(applications, monkeypatch):
    monkeypatch.setattr(applications, "MAX_AGE_S", 0.0)
    lab = Lab(1)
    came = applications.social_news(lab, Cloud(lab))
    assert came["sports"] == came["sports again"] == {"s2": "remote"}


def test_who_comes_near_is_reached(applications, monkeypatch):
    """The writer predicate binds late: the same message reaches bob where he is then."""
    people = applications.PEOPLE | {
        "bob": applications.PEOPLE["bob"] | {"loc": applications.PEOPLE["jane"]["loc"]}
    }
    monkeypatch.setattr(applications, "PEOPLE", people)
    lab = Lab(1)
    came = applications.social_news(lab, Cloud(lab))
    lab.run(minutes=1)
    assert sorted(came["messages"]["bob"]) == ["m1", "m2"]


def test_a_killed_application_is_not_told(applications):
    """Else the branch of ``reconcile`` for it would never be taken."""
    lab = Lab(1)
    tablet, _ = devices(lab, Cloud(lab))
    lab.faults.cut("jane-tablet")
    edit = tablet.write("journal", "monday", {"entries": []})
    lab.run(seconds=1)
    lab.faults.kill("jane-tablet")
    lab.faults.restart("jane-tablet")
    with pytest.raises(OperationLost):
        edit.result()
    assert len(tablet.pending().result()) == 1
