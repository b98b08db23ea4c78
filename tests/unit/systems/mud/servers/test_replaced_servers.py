"""Processor, notification server and generator when another notification server gets the range of a dead one."""

from __future__ import annotations

import pytest
from mud_machines import handle_event, is_dropped, ports, sent

from mudkit.delivery.stream import Outgoing
from mudkit.events import Call, LinkUp, TimerFired
from mudkit.predicates import Predicate
from mudkit.predicates.exchange import to_json
from mudkit.systems.mud import Artefact
from mudkit.systems.mud.messages.parts import range_index
from mudkit.systems.mud.operations import Ship
from mudkit.systems.mud.servers.generator import Generator
from mudkit.systems.mud.servers.notifications import NotificationServer
from mudkit.systems.mud.servers.processor import Processor
from mudkit.systems.mud.servers.ranges import SUSPECT_US
from mudkit.tokens import Authority
from mudkit.wire import as_wire

SECOND_US = 1_000_000
OWN, OTHER = (
    next(f"{name}/news" for name in "abcdefgh" if range_index(name, 2) == place) for place in (0, 1)
)
"""Endpoints of the first server and of the second."""
TABLE = {
    "name": "t", "owner": "news", "acl": "public", "split": ["g"], "number": 1, "lsn": 1, "apps": None,
    "schema": None, "removed": {},
}  # fmt: skip
POLICY = Artefact.create("read", 1, ["age"], [[0, 5.0, 1, 2, 2], [0], [1]], ["local", "remote"])


class Role:
    """Machine of a role, with two notification servers, a processor and the naming machine."""

    processor = "p"

    def take(self, kind, source, **fields):
        return handle_event(self.machine, kind, source, SECOND_US, **fields)

    def assign(self, *servers, epoch=1, source="naming"):
        return self.take(
            "assignments", source, epoch=epoch, servers=list(servers), processors=[self.processor]
        )

    def fire(self, name, now_us):
        return sent(self.machine.handle(now_us, TimerFired(name)))


class Matching(Role):
    """Processor with a read of OTHER, in a session of the second server."""

    processor = "me"

    def __init__(self):
        arguments = (["me"], ["master"], [], ["gateway"], ["first", "second"], "naming")
        self.machine = Processor(ports("me"), *arguments)
        self.machine.handle(0, LinkUp("me", "server"))
        turn = bytes(8).hex()
        handle_event(self.machine, "state", "master", lsn=5, tables=[TABLE], rows=[], turn=turn)
        self.lsn, self.requests = 5, 0
        self.register()

    def register(self, session="second 1.1"):
        self.requests += 1
        return self.take(
            "register", "gateway", endpoint=OTHER, session=session, address="old@1", least=5,
            request=self.requests, predicate=to_json(Predicate("TRUE")), table=1, partitions=[0, 1],
        )  # fmt: skip

    def list_told(self):
        """Commit a record; return to whom a change is sent."""
        self.lsn += 1
        row = {"key": "a", "ver": self.lsn, "data": {}, "predicate": None, "ts_us": 0, "lsn": self.lsn}
        entry = {"lsn": self.lsn, "op": "row", "name": "t", "row": row}
        return [
            to for to, message in self.take("log", "master", entries=[entry]) if message["kind"] == "stream"
        ]


class Serving(Role):
    """First notification server, and a processor's stream to it."""

    def __init__(self):
        self.machine = NotificationServer(
            ports("first"), Authority(bytes(32)), 0, ["first", "second"], ["p"], "generator", "naming", 2, 1e3
        )
        self.machine.handle(0, LinkUp("first", "server"))
        self.stream = Outgoing("p 1")

    def say_hello(self, endpoint=OWN, seq=1, **fields):
        return self.take("hello", endpoint.split("/")[0], endpoint=endpoint, seq=seq, **fields)

    def send_item(self, endpoint):
        body = {"what": "whereabouts", "endpoint": endpoint, "address": "old@1"}
        return self.take(source="p", **as_wire(self.stream.add(0, body)))


class Shipping(Role):
    """Policy generator that has shipped a policy."""

    def __init__(self):
        self.machine = Generator(ports("generator"), ["first", "second"], ["p"], "naming", [], None)
        self.machine.handle(0, LinkUp("generator", "server"))
        self.ship(POLICY)

    def ship(self, policy):
        effects = self.machine.handle(0, Call(1, Ship("news", policy.document, None)))
        return [to for to, _ in sent(effects)]


# -- processor


def test_silent_notification_server_is_reported_after_a_while():
    role = Matching()
    assert {to for to, _ in role.fire("again second", SUSPECT_US - 1)} == {"second"}
    *_, last = role.fire("again second", SUSPECT_US + SECOND_US)
    assert last == ("naming", {"kind": "suspect", "address": "second", "epoch": 0})


def test_reads_of_a_replaced_server_end_and_their_devices_are_reported_to_the_new_one():
    role = Matching()
    assert role.list_told() == ["second"]
    acknowledgement, (to, report) = sorted(role.assign("first", "first"), key=lambda one: one[0] == "first")
    assert acknowledgement == ("naming", {"kind": "assigned", "epoch": 1})
    body = report["body"]
    assert (to, body["what"], body["endpoint"], body["address"]) == ("first", "whereabouts", OTHER, "old@1")
    assert role.list_told() == []
    assert role.fire("again second", 60 * SECOND_US) == []


def test_unacknowledged_report_to_a_replaced_server_goes_to_the_new_one():
    role = Matching()
    role.take("gone", "second", session="second 1.1", endpoint=OTHER)
    ((to, report),) = [one for one in role.assign("first", "first") if one[1]["kind"] == "stream"]
    assert (to, report["body"]["what"], report["body"]["endpoint"]) == ("first", "whereabouts", OTHER)


def test_read_is_not_registered_in_a_session_with_another_server_than_the_device_has():
    role = Matching()
    role.assign("first", "first")
    (to, present), (where, report) = role.register()
    assert (to, present["kind"], present["epoch"]) == ("second", "assignments", 1)
    assert (where, report["body"]["what"]) == ("first", "whereabouts")
    assert role.list_told() == []
    role.register("first 1.1")
    assert role.list_told() == ["first"]


def test_generation_is_reported_to_a_server_that_has_its_first_range():
    role = Matching()
    role.assign("first", "first")
    messages = role.assign("second", "first", epoch=2)
    bodies = [(to, message["body"]["what"]) for to, message in messages if message["kind"] == "stream"]
    assert bodies == [("second", "life")]


@pytest.mark.parametrize(("role", "server"), [(Matching, "first"), (Shipping, "first"), (Serving, "p")])
def test_assignments_of_a_lower_epoch_are_corrected_and_odd_ones_dropped(role, server):
    role = role()
    role.assign("first", "first", epoch=3)
    ((to, present),) = role.assign("second", "second", epoch=2, source=server)
    assert (to, present["epoch"], present["servers"]) == (server, 3, ["first", "first"])
    assert role.take("assignments?", "naming") == [("naming", present)]
    for odd in ({"servers": ["first", "a phone"]}, {"servers": ["first"]}, {"servers": []}):
        assert is_dropped(role.machine, "assignments", server, epoch=9, **odd)
        assert is_dropped(role.machine, "assignments", "naming", epoch=9, **odd)
    assert is_dropped(role.machine, "assignments", "a phone", epoch=9, servers=["first", "first"])


# -- notification server


def test_probe_is_answered_with_the_epoch():
    role = Serving()
    role.assign("first", "first", epoch=3)
    answer = {"kind": "alive", "sent_us": 7, "epoch": 3}
    assert role.take("probe", "naming", sent_us=7) == [("naming", answer)]


def test_device_that_has_asked_its_server_in_vain_is_a_reason_to_suspect_it():
    role = Serving()
    redirect = (OTHER.split("/")[0], {"kind": "redirect", "to": "second"})
    assert role.say_hello(OTHER) == [redirect]
    suspect = {"kind": "suspect", "address": "second", "epoch": 0}
    assert role.say_hello(OTHER, unanswered=["second"]) == [redirect, ("naming", suspect)]


def test_server_that_hears_of_a_higher_epoch_asks_for_the_assignments():
    role = Serving()
    assert role.say_hello(epoch=5)[-1] == ("naming", {"kind": "assignments?"})
    assert role.say_hello(OTHER, epoch=5)[-1] == ("naming", {"kind": "assignments?"})


def test_item_for_a_device_of_another_server_is_not_acknowledged():
    role = Serving()
    ((to, present),) = role.send_item(OTHER)
    assert (to, present["kind"], present["epoch"]) == ("p", "assignments", 0)
    role.assign("first", "first")
    (item,) = role.stream.pending_items()
    identify, acknowledgement = role.take(source="p", **as_wire(item))
    assert identify[1]["kind"] == "identify"
    assert identify[1]["epoch"] == 1
    assert acknowledgement[1]["kind"] == "confirmed"


def test_replaced_server_ends_its_sessions_and_redirects():
    role = Serving()
    own = OWN.split("/")[0]
    assert role.say_hello()[0][1]["kind"] == "welcome"
    messages = role.assign("second", "second")
    redirect = {"kind": "redirect", "to": "second", "epoch": 1}
    assert messages == [(own, redirect), ("naming", {"kind": "assigned", "epoch": 1})]
    assert role.say_hello(seq=2) == [(own, redirect)]
    assert [key for key, _ in role.machine._store.items("address ")] == []


def test_addresses_are_announced_to_servers_with_ranges_only():
    role = Serving()
    announced = [to for to, message in role.say_hello() if message["kind"] == "occupied"]
    assert announced == ["second"]
    assert role.fire("occupied", SUSPECT_US + SECOND_US)[-1][1]["kind"] == "suspect"
    role.assign("first", "first")
    assert role.fire("occupied", 60 * SECOND_US) == []
    assert "occupied" not in [message["kind"] for _, message in role.say_hello(OTHER)]


# -- generator


def test_policies_go_to_servers_with_ranges_and_all_of_them_to_one_that_gets_its_first():
    role = Shipping()
    assert role.fire("again second", SUSPECT_US + SECOND_US)[-1][1]["kind"] == "suspect"
    assert [message["kind"] for _, message in role.assign("first", "first")] == ["assigned"]
    assert role.ship(POLICY.renewed(2)) == ["first"]
    messages = role.assign("second", "first", epoch=2)
    items = [(to, message["body"]["document"]["version"]) for to, message in messages if "body" in message]
    assert items == [("second", 2)]
    assert role.ship(POLICY.renewed(3)) == ["first", "second"]


def test_server_that_starts_without_a_range_learns_it_from_the_generator():
    role = Shipping()
    assert [message["kind"] for _, message in role.take("follow", "second")] == ["followed", "stream"]
    role.assign("first", "first")
    messages = role.take("follow", "second")
    assert [message["kind"] for _, message in messages] == ["followed", "assignments"]
