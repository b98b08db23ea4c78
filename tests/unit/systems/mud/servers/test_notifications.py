"""A notification server by itself: who is where, what waits for him, and when he is given up."""

from __future__ import annotations

from itertools import count

import pytest
from mud_machines import ports, sent, told

from mudkit.delivery.stream import Outgoing, StreamItem
from mudkit.events import LinkUp, Received, SendFailed, SetTimer, TimerFired
from mudkit.systems.mud.messages import Welcome, server_of
from mudkit.systems.mud.servers.notifications import HEARTBEAT_US, NotificationServer
from mudkit.wire import as_wire

DEAD_US = 2 * HEARTBEAT_US + 60_000_000
seqs = count(1)
"""Numbers of hellos."""
LATE_US = 6_000_000
"""After the first retransmission timeout."""


class Cell:
    """A server and a processor that tells it something."""

    def __init__(self, max_waiting=2, longest_s=100.0, **named):
        self.server = NotificationServer(
            ports("server"),
            **{"number": 0, "servers": ["server"], **named},
            generator="generator",
            processors=["processor", "another processor"],
            max_waiting=max_waiting,
            max_wait_s=longest_s,
        )
        self.server.handle(0, LinkUp("server", "server"))
        self.stream, self.shipping = Outgoing("processor 1"), Outgoing("generator 1")
        self.endpoints = {}
        """By session."""

    def hello(self, who="jane", address=None, session=None, now_us=0, *, is_new=True, policies=None):
        more = {"endpoint": f"{who}/news", "session": session, "is_new": is_new, "policies": policies or {}}
        said = told(self.server, "hello", address or who, now_us, **more, seq=next(seqs))
        name = said[0][1].get("session")
        self.endpoints[name] = f"{who}/news"
        return name, said[1:]

    def body(self, session, key="a"):
        change = {"op": "upsert", "key": key, "ver": 1, "data": {}, "predicate": None, "ts_us": 0, "lsn": 7}
        return {
            "what": "tell", "endpoint": self.endpoints[session], "session": session, "handle": "first 1",
            "processor": "processor", "life": 1, "table": 1, "change": change, "lsn": 7,
        }  # fmt: skip

    def tell(self, session, now_us=0, key="a"):
        return self.bring(self.body(session, key), now_us)

    def bring(self, body, now_us=0):
        source = "generator" if body["what"] == "policy" else "processor"
        stream = self.shipping if source == "generator" else self.stream
        message = as_wire(stream.add(now_us, body))
        *said, (to, acked) = told(self.server, source=source, now_us=now_us, **message)
        assert (to, acked["kind"], acked["number"]) == (source, "confirmed", message["number"])
        stream.acked(message["number"])
        return said

    def again(self, session, now_us):
        return self.timer(f"again {session}", now_us)

    def timer(self, name, now_us):
        return sent(self.server.handle(now_us, TimerFired(name)))


@pytest.fixture
def cell():
    return Cell()


def numbers(said):
    return [(to, message["number"]) for to, message in said if message["kind"] == "stream"]


def gone(said):
    return [(to, message["session"]) for to, message in said if message["kind"] == "gone"]


def test_who_is_told_something_is_sent_it_until_he_confirms_it(cell):
    session, _ = cell.hello()
    assert numbers(cell.tell(session)) == [("jane", 1)]
    assert cell.again(session, 4_999_999) == []
    assert numbers(cell.again(session, LATE_US)) == [("jane", 1)]
    told(cell.server, "confirmed", "jane", stream=session, number=1)
    assert cell.again(session, 10 * LATE_US) == []


def test_another_server_is_named_to_those_who_are_not_its_own():
    servers = ["zero", "one"]
    mine = next(name for name in "abcdefgh" if server_of(name, 2) == 0)
    others = next(name for name in "abcdefgh" if server_of(name, 2) == 1)
    cell = Cell(servers=servers)
    assert told(cell.server, "hello", others, endpoint=f"{others}/news", session=None, seq=1) == [
        (others, {"kind": "redirect", "to": "one"})
    ]
    assert cell.hello(mine)[0] is not None


def test_a_session_goes_on_for_its_endpoint_only(cell):
    session, _ = cell.hello()
    assert cell.hello(session=session)[0] == session
    assert cell.hello("bob", session=session)[0] != session
    assert cell.hello(session=session)[0] == session
    assert cell.hello(session="of another life")[0] not in (session, "of another life")
    assert gone(cell.tell(session)) == [("processor", session)]  # the new one has replaced it


def test_what_waits_is_sent_where_he_is_now(cell):
    session, _ = cell.hello()
    cell.tell(session)
    assert numbers(cell.hello(session=session, is_new=False)[1]) == []  # a heartbeat
    assert numbers(cell.hello(session=session)[1]) == [("jane", 1)]
    assert numbers(cell.hello(address="jane@2", session=session, is_new=False)[1]) == [("jane@2", 1)]
    assert numbers(cell.again(session, LATE_US)) == [("jane@2", 1)]


def fail(cell, session, to="jane"):
    cell.server.handle(0, SendFailed(to, StreamItem(session, 1, 1, None)))


def test_who_cannot_be_reached_is_sent_nothing_until_he_says_hello(cell):
    session, _ = cell.hello()
    cell.tell(session)
    fail(cell, session, "where he was before")
    assert cell.again(session, 4_999_999) == []  # it may be on its way
    assert numbers(cell.again(session, LATE_US)) == [("jane", 1)]
    fail(cell, session)
    assert numbers(cell.tell(session)) == []
    assert cell.again(session, 10 * LATE_US) == []
    assert numbers(cell.hello(session=session, is_new=False)[1]) == [("jane", 1), ("jane", 2)]


def test_a_failure_of_who_is_not_known_changes_nothing(cell):
    session, _ = cell.hello()
    cell.server.handle(0, SendFailed("jane", Welcome(session, "first", 1)))
    cell.server.handle(0, SendFailed("jane", StreamItem("another", 1, 1, None)))
    assert numbers(cell.tell(session)) == [("jane", 1)]


def test_who_cannot_be_reached_is_given_up_when_too_much_waits(cell):
    session, _ = cell.hello()
    for _ in range(4):
        assert gone(cell.tell(session)) == []  # he can be reached
    told(cell.server, "confirmed", "jane", stream=session, number=4)
    fail(cell, session)
    assert [gone(cell.tell(session)) for _ in range(3)] == [[], [], [("processor", session)]]
    assert gone(cell.tell(session)) == [("processor", session)]  # whoever tells more learns it, too


@pytest.mark.parametrize("how", ["told", "timer"])
def test_who_has_something_waiting_for_too_long_is_given_up(cell, how):
    session, _ = cell.hello()
    cell.tell(session, 0)

    def look(now_us):
        return gone(cell.tell(session, now_us) if how == "told" else cell.again(session, now_us))

    assert look(100_000_000) == []
    assert look(100_000_001) == [("processor", session)]
    assert cell.again(session, 100_000_002) == []


def test_who_is_given_up_is_a_stranger_and_others_are_not(cell):
    jane, _ = cell.hello()
    bob, _ = cell.hello("bob")
    cell.tell(jane, 0)
    assert gone(cell.again(jane, 100_000_001)) == [("processor", jane)]
    assert cell.hello(session=jane)[0] != jane
    assert cell.hello("bob", session=bob)[0] == bob


def test_the_dead_are_found_though_others_live(cell):
    jane, _ = cell.hello()
    bob, _ = cell.hello("bob")
    cell.bring({"what": "life", "processor": "processor", "life": 1})
    effects = cell.server.handle(0, TimerFired("sweep"))
    assert effects == [SetTimer("sweep", DEAD_US)]
    for now_us in (HEARTBEAT_US, 2 * HEARTBEAT_US):
        beat = cell.server.handle(now_us, _hello("bob", bob))
        assert not any(isinstance(each, SetTimer) and each.name == "sweep" for each in beat)
    assert cell.timer("sweep", DEAD_US - 1) == []
    effects = cell.server.handle(DEAD_US, TimerFired("sweep"))
    assert gone(sent(effects)) == [("processor", jane)]
    assert effects[-1] == SetTimer("sweep", 2 * HEARTBEAT_US)


def _hello(who, session):
    hello = {"kind": "hello", "endpoint": f"{who}/news", "session": session, "is_new": False, "policies": {},
             "incarnation": "first", "seq": next(seqs)}  # fmt: skip
    return Received(who, hello)


def test_the_sweep_begins_with_the_first_session_and_ends_with_the_last(cell):
    def sweeps(effects):
        return [each for each in effects if isinstance(each, SetTimer) and each.name == "sweep"]

    jane, _ = cell.hello()
    assert sweeps(cell.server.handle(0, _hello("jane", jane))) == []  # it is set
    assert sweeps(cell.server.handle(DEAD_US, TimerFired("sweep"))) == []  # nobody is left
    assert sweeps(cell.server.handle(DEAD_US, _hello("jane", jane))) == [SetTimer("sweep", DEAD_US)]


def test_a_life_of_a_processor_is_told_to_all_though_some_are_given_up(cell):
    sessions = [cell.hello(who)[0] for who in ("jane", "bob", "cem")]
    cell.tell(sessions[0], 0)
    said = cell.bring({"what": "life", "processor": "processor", "life": 2}, 200_000_000)
    assert gone(said) == [("processor", sessions[0])]
    assert [to for to, _ in numbers(said)] == ["bob", "cem"]


def test_what_comes_twice_is_told_once(cell):
    session, _ = cell.hello()
    message = as_wire(cell.stream.add(0, cell.body(session)))
    assert len(numbers(told(cell.server, source="processor", **message))) == 1
    assert len(numbers(told(cell.server, source="processor", **message))) == 0


def test_what_has_overtaken_something_is_told_after_it_unless_its_processor_has_begun_another_life(cell):
    jane, _ = cell.hello()
    bodies = [cell.body(jane, key) for key in "abcd"]
    a, b, c, d = (as_wire(cell.stream.add(0, body)) for body in bodies)

    def brings(message):
        said = told(cell.server, source="processor", **message)
        return [message["body"]["change"]["key"] for _, message in said if message["kind"] == "stream"]

    assert [brings(each) for each in (b, a, d)] == [[], ["a", "b"], []]
    other = Outgoing("another processor 1")
    told(cell.server, source="another processor", **as_wire(other.add(0, bodies[0])))
    assert brings(c) == ["c", "d"]
    e, f = (as_wire(cell.stream.add(0, body)) for body in bodies[:2])
    assert brings(f) == []
    life = Outgoing("processor 2").add(0, {"what": "life", "processor": "p", "life": 2})
    told(cell.server, source="processor", **as_wire(life))
    assert brings(e) == ["a"]


def test_another_life_of_the_server_has_other_sessions():
    store_ports = ports("server")
    names = set()
    for _ in range(2):
        server = NotificationServer(store_ports, 0, ["server"], ["processor"], "generator", 2, 100.0)
        asked = sent(server.handle(0, LinkUp("server", "server")))
        assert server.handle(0, LinkUp("server", "server")) == ()
        nonces = [message["nonce"] for _, message in asked if message["kind"] == "identify"]
        hello = {"endpoint": "jane/news", "session": None, "is_new": True, "policies": {}, "seq": 1}
        hello |= dict(zip(["nonce"], nonces, strict=False))
        names.add(told(server, "hello", "jane", **hello)[0][1]["session"])
    assert names == {"server 1.1", "server 2.1"}


def shipped(version, to=None):
    document = {"version": version}
    return {"what": "policy", "app": "news", "policy": "reads", "to": to, "document": document}


def test_a_policy_goes_to_those_it_is_for_who_follow_it_and_have_it_not():
    cell = Cell(max_waiting=9)
    follows = {"jane": {"reads": 1}, "bob": {"reads": 2}, "cem": {"reads": 1}, "dan": {}}
    for who, policies in follows.items():
        cell.hello(who, policies=dict(policies))
    assert [to for to, _ in numbers(cell.bring(shipped(2)))] == ["jane", "cem"]
    assert numbers(cell.bring(shipped(2))) == [], "all have it, or are being told of it"
    assert [to for to, _ in numbers(cell.bring(shipped(3, to=["bob", "dan"])))] == ["bob"]
    _, said = cell.hello("eve", policies={"reads": 2})
    assert numbers(said) == [], "the third is not for her, the second she has"
    _, said = cell.hello("fay", policies={"reads": 1})
    bodies = [message["body"] for _, message in said if message["kind"] == "stream"]
    assert [body["document"]["version"] for body in bodies] == [2]


def hello(server, seq, incarnation="first", address="jane", **more):
    return told(server, "hello", address, endpoint="jane/news", incarnation=incarnation, seq=seq, **more)


def kinds(said):
    return [(to, message["kind"]) for to, message in said]


def test_a_late_copy_of_a_hello_changes_nothing(cell):
    session = hello(cell.server, 5, address="jane@2")[0][1]["session"]
    cell.endpoints[session] = "jane/news"
    assert hello(cell.server, 4, address="jane@1") == []
    assert numbers(cell.tell(session)) == [("jane@2", 1)]


def test_a_hello_of_another_start_has_to_carry_a_nonce(cell):
    session = hello(cell.server, 5, "second", address="jane@2")[0][1]["session"]
    cell.endpoints[session] = "jane/news"
    for _ in range(2):  # a late copy cannot answer
        ((to, asked),) = hello(cell.server, 9, "first", address="jane@1")
        assert (to, asked["kind"]) == ("jane@1", "identify")
    assert numbers(cell.tell(session)) == [("jane@2", 1)]
    said = hello(cell.server, 1, "third", address="jane@3", nonce=asked["nonce"])
    (welcome,) = (message for _, message in said if message["kind"] == "welcome")
    assert welcome["session"] != session
    assert (welcome["incarnation"], welcome["seq"]) == ("third", 1)


def test_a_server_that_starts_asks_until_a_hello_carries_its_nonce():
    store_ports = ports("server")
    for _ in range(2):
        server = NotificationServer(store_ports, 0, ["server"], ["processor"], "generator", 2, 100.0)
        asked = sent(server.handle(0, LinkUp("server", "server")))
        hello(server, 1) if not asked[1:] else None
    (*_, (to, question)) = asked
    assert (to, question["kind"]) == ("jane", "identify")
    assert kinds(hello(server, 2, address="jane@1")) == [("jane@1", "identify")]  # a late copy
    again = sent(server.handle(100_000_000, TimerFired("identify")))
    assert again == [("jane", question)]
    assert hello(server, 3, nonce=question["nonce"])[0][1]["kind"] == "welcome"
    assert sent(server.handle(200_000_000, TimerFired("identify"))) == []


def test_who_is_silent_as_long_as_the_dead_are_is_asked_no_more():
    store_ports = ports("server")
    for _ in range(2):
        server = NotificationServer(store_ports, 0, ["server"], ["processor"], "generator", 2, 100.0)
        asked = sent(server.handle(0, LinkUp("server", "server")))
        hello(server, 1) if not asked[1:] else None
    assert kinds(sent(server.handle(DEAD_US - 1, TimerFired("identify")))) == [("jane", "identify")]
    assert sent(server.handle(DEAD_US, TimerFired("identify"))) == []
    assert [key for key, _ in store_ports.store.items("address ")] == []


def moved(said):
    return [(to, message["address"]) for to, message in said if message["kind"] == "moved"]


def test_a_processor_with_reads_is_told_a_new_address_until_it_has_noted_it(cell):
    session, _ = cell.hello()
    cell.tell(session)
    assert moved(cell.hello(address="jane@1", session=session)[1]) == [("processor", "jane@1")]
    assert moved(cell.hello(address="jane@1", session=session)[1]) == []
    late_us = 10_000_000
    assert moved(cell.timer("moved", late_us)) == [("processor", "jane@1")]
    note = {"session": session, "endpoint": "jane/news", "address": "jane@1"}
    assert told(cell.server, "moved", "processor", late_us, **note) == []
    assert cell.timer("moved", 10 * late_us) == []


def test_a_processor_that_has_noted_a_late_copy_is_told_again(cell):
    session, _ = cell.hello()
    cell.tell(session)
    for address in ("jane@1", "jane@2"):
        cell.hello(address=address, session=session)
    note = {"session": session, "endpoint": "jane/news", "address": "jane@2"}
    assert told(cell.server, "moved", "processor", **note) == []
    late = told(cell.server, "moved", "processor", **{**note, "address": "jane@1"})
    assert moved(late) == [("processor", "jane@2")]


def test_the_move_of_a_client_that_was_given_up_is_told_no_more(cell):
    session, _ = cell.hello()
    cell.tell(session)
    cell.hello(address="jane@1", session=session)
    cell.timer("sweep", DEAD_US)
    assert moved(cell.timer("moved", 2 * DEAD_US)) == []
