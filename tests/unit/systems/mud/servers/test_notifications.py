"""Notification server machine: sessions, addresses, queues, and clients given up."""

from __future__ import annotations

from itertools import count

import pytest
from msgspec import UNSET
from mud_machines import build_message, handle_event, is_dropped, ports, sent

from mudkit.delivery.stream import Outgoing, StreamItem
from mudkit.events import LinkUp, Received, SendFailed, SetTimer, TimerFired
from mudkit.systems.mud.messages.notifications import Welcome
from mudkit.systems.mud.messages.parts import range_index
from mudkit.systems.mud.servers.notifications import HEARTBEAT_US, NotificationServer
from mudkit.tokens import Authority
from mudkit.wire import as_wire

DEAD_US = 2 * HEARTBEAT_US + 60_000_000
AUTHORITY = Authority(bytes(32))
seqs = count(1000)  # above those that tests choose
"""Numbers of hellos."""
LATE_US = 6_000_000
"""After the first retransmission timeout."""


class Harness:
    """Notification server, and the streams of a processor and of a generator to it."""

    def __init__(self, max_waiting=2, max_wait_s=100.0, **arguments):
        self.server = NotificationServer(
            ports("server"),
            AUTHORITY,
            **{"number": 0, "servers": ["server"], **arguments},
            generator="generator",
            naming="naming",
            processors=["processor", "another processor"],
            max_waiting=max_waiting,
            max_wait_s=max_wait_s,
        )
        self.server.handle(0, LinkUp("server", "server"))
        self.stream, self.shipping = Outgoing("processor 1"), Outgoing("generator 1")
        self.endpoints = {}
        """By session."""

    def send_hello(self, name="jane", address=None, session=None, now_us=0, *, is_new=True, policies=None):
        fields = {
            "endpoint": f"{name}/news",
            "session": session,
            "is_new": is_new,
            "policies": policies or {},
        }
        messages = handle_event(self.server, "hello", address or name, now_us, **fields, seq=next(seqs))
        session_name = messages[0][1].get("session")
        self.endpoints[session_name] = f"{name}/news"
        return session_name, messages[1:]

    def build_body(self, session, key="a"):
        change = {"op": "upsert", "key": key, "ver": 1, "data": {}, "predicate": None, "ts_us": 0, "lsn": 7}
        return {
            "what": "tell", "endpoint": self.endpoints[session], "session": session, "handle": "first 1",
            "processor": "processor", "life": 1, "table": 1, "change": change, "lsn": 7,
        }  # fmt: skip

    def send_change(self, session, now_us=0, key="a"):
        return self.send_item(self.build_body(session, key), now_us)

    def send_item(self, body, now_us=0):
        source = "generator" if body["what"] == "policy" else "processor"
        stream = self.shipping if source == "generator" else self.stream
        message = as_wire(stream.add(now_us, body))
        *messages, (to, ack) = handle_event(self.server, source=source, now_us=now_us, **message)
        assert (to, ack["kind"], ack["number"]) == (source, "confirmed", message["number"])
        stream.ack_up_to(message["number"])
        return messages

    def fire_retransmit(self, session, now_us):
        return self.fire_timer(f"again {session}", now_us)

    def fire_timer(self, name, now_us):
        return sent(self.server.handle(now_us, TimerFired(name)))


@pytest.fixture
def harness():
    return Harness()


def list_items(messages):
    return [(to, message["number"]) for to, message in messages if message["kind"] == "stream"]


def list_gone(messages):
    return [(to, message["session"]) for to, message in messages if message["kind"] == "gone"]


def test_items_are_retransmitted_until_acknowledged(harness):
    session, _ = harness.send_hello()
    assert list_items(harness.send_change(session)) == [("jane", 1)]
    assert harness.fire_retransmit(session, 4_999_999) == []
    assert list_items(harness.fire_retransmit(session, LATE_US)) == [("jane", 1)]
    handle_event(harness.server, "confirmed", "jane", stream=session, number=1)
    assert harness.fire_retransmit(session, 10 * LATE_US) == []


def test_clients_of_another_server_are_redirected():
    servers = ["zero", "one"]
    own_device = next(name for name in "abcdefgh" if range_index(name, 2) == 0)
    other_device = next(name for name in "abcdefgh" if range_index(name, 2) == 1)
    harness = Harness(servers=servers)
    assert handle_event(
        harness.server, "hello", other_device, endpoint=f"{other_device}/news", session=None, seq=1
    ) == [(other_device, {"kind": "redirect", "to": "one"})]
    assert harness.send_hello(own_device)[0] is not None


def test_session_continues_only_for_its_endpoint(harness):
    session, _ = harness.send_hello()
    assert harness.send_hello(session=session)[0] == session
    assert harness.send_hello("bob", session=session)[0] != session
    assert harness.send_hello(session=session)[0] == session
    assert harness.send_hello(session="of another life")[0] not in (session, "of another life")
    assert list_gone(harness.send_change(session)) == [("processor", session)]  # replaced by the new one


def test_waiting_items_are_sent_to_the_new_address(harness):
    session, _ = harness.send_hello()
    harness.send_change(session)
    assert list_items(harness.send_hello(session=session, is_new=False)[1]) == []  # a heartbeat
    assert list_items(harness.send_hello(session=session)[1]) == [("jane", 1)]
    assert list_items(harness.send_hello(address="jane@2", session=session, is_new=False)[1]) == [
        ("jane@2", 1)
    ]
    assert list_items(harness.fire_retransmit(session, LATE_US)) == [("jane@2", 1)]


def fail_send(harness, session, to="jane"):
    harness.server.handle(0, SendFailed(f"{to}/mud", StreamItem(session, 1, 1, None)))


def test_unreachable_client_is_sent_nothing_until_its_hello(harness):
    session, _ = harness.send_hello()
    harness.send_change(session)
    fail_send(harness, session, "where he was before")
    assert harness.fire_retransmit(session, 4_999_999) == []  # may be in flight
    assert list_items(harness.fire_retransmit(session, LATE_US)) == [("jane", 1)]
    fail_send(harness, session)
    assert list_items(harness.send_change(session)) == []
    assert harness.fire_retransmit(session, 10 * LATE_US) == []
    assert list_items(harness.send_hello(session=session, is_new=False)[1]) == [("jane", 1), ("jane", 2)]


def test_send_failures_of_other_messages_and_streams_are_ignored(harness):
    session, _ = harness.send_hello()
    harness.server.handle(0, SendFailed("jane/mud", Welcome(session, "first", 1)))
    harness.server.handle(0, SendFailed("jane/mud", StreamItem("another", 1, 1, None)))
    assert list_items(harness.send_change(session)) == [("jane", 1)]


def test_unreachable_client_is_given_up_when_its_queue_is_full(harness):
    session, _ = harness.send_hello()
    for _ in range(4):
        assert list_gone(harness.send_change(session)) == []  # reachable
    handle_event(harness.server, "confirmed", "jane", stream=session, number=4)
    fail_send(harness, session)
    assert [list_gone(harness.send_change(session)) for _ in range(3)] == [[], [], [("processor", session)]]
    assert list_gone(harness.send_change(session)) == [("processor", session)]  # repeated for later items


@pytest.mark.parametrize("trigger", ["told", "timer"])
@pytest.mark.parametrize(("is_reached", "max_us"), [(False, 100_000_000), (True, DEAD_US)])
def test_client_is_given_up_when_an_item_waits_too_long(harness, trigger, is_reached, max_us):
    """Its answer may be late if it is reached: a slow link carries its registrations first."""
    session, _ = harness.send_hello()
    harness.send_change(session, 0)
    if not is_reached:
        fail_send(harness, session)

    def trigger_check(now_us):
        return list_gone(
            harness.send_change(session, now_us)
            if trigger == "told"
            else harness.fire_retransmit(session, now_us)
        )

    assert trigger_check(max_us) == []
    assert trigger_check(max_us + 1) == [("processor", session)]
    assert harness.fire_retransmit(session, max_us + 2) == []


def test_given_up_client_gets_a_new_session_and_others_continue(harness):
    jane, _ = harness.send_hello()
    bob, _ = harness.send_hello("bob")
    harness.send_change(jane, 0)
    fail_send(harness, jane)
    assert list_gone(harness.fire_retransmit(jane, 100_000_001)) == [("processor", jane)]
    assert harness.send_hello(session=jane)[0] != jane
    assert harness.send_hello("bob", session=bob)[0] == bob


def test_silent_client_is_given_up_while_others_send_heartbeats(harness):
    jane, _ = harness.send_hello()
    bob, _ = harness.send_hello("bob")
    harness.send_item({"what": "life", "processor": "processor", "life": 1})
    effects = harness.server.handle(0, TimerFired("sweep"))
    assert effects == [SetTimer("sweep", DEAD_US)]
    for now_us in (HEARTBEAT_US, 2 * HEARTBEAT_US):
        heartbeat_effects = harness.server.handle(now_us, create_heartbeat("bob", bob))
        assert not any(
            isinstance(effect, SetTimer) and effect.name == "sweep" for effect in heartbeat_effects
        )
    assert harness.fire_timer("sweep", DEAD_US - 1) == []
    effects = harness.server.handle(DEAD_US, TimerFired("sweep"))
    assert list_gone(sent(effects)) == [("processor", jane)]
    assert effects[-1] == SetTimer("sweep", 2 * HEARTBEAT_US)


def create_heartbeat(name, session, address=None, **fields):
    hello = {"kind": "hello", "endpoint": f"{name}/news", "session": session, "is_new": False, "policies": {},
             "incarnation": "first", "seq": next(seqs), **fields}  # fmt: skip
    return Received(f"{address or name}/mud", hello)


def test_sweep_timer_is_set_while_sessions_exist(harness):
    def list_sweeps(effects):
        return [effect for effect in effects if isinstance(effect, SetTimer) and effect.name == "sweep"]

    jane, _ = harness.send_hello()
    assert list_sweeps(harness.server.handle(0, create_heartbeat("jane", jane))) == []  # already set
    assert list_sweeps(harness.server.handle(DEAD_US, TimerFired("sweep"))) == []  # no session is left
    hello = create_heartbeat("jane", jane, is_new=True, tokens={})
    assert list_sweeps(harness.server.handle(DEAD_US, hello)) == [SetTimer("sweep", DEAD_US)]


def test_processor_life_is_sent_to_all_others_if_one_is_given_up(harness):
    sessions = [harness.send_hello(device)[0] for device in ("jane", "bob", "cem")]
    harness.send_change(sessions[0], 0)
    fail_send(harness, sessions[0])
    messages = harness.send_item({"what": "life", "processor": "processor", "life": 2}, 200_000_000)
    assert list_gone(messages) == [("processor", sessions[0])]
    assert [to for to, _ in list_items(messages)] == ["bob", "cem"]


def test_duplicate_item_is_sent_once(harness):
    session, _ = harness.send_hello()
    message = as_wire(harness.stream.add(0, harness.build_body(session)))
    assert len(list_items(handle_event(harness.server, source="processor", **message))) == 1
    assert len(list_items(handle_event(harness.server, source="processor", **message))) == 0


def test_overtaking_items_wait_and_are_discarded_after_a_new_life(harness):
    jane, _ = harness.send_hello()
    bodies = [harness.build_body(jane, key) for key in "abcd"]
    a, b, c, d = (as_wire(harness.stream.add(0, body)) for body in bodies)

    def receive(message):
        messages = handle_event(harness.server, source="processor", **message)
        return [message["body"]["change"]["key"] for _, message in messages if message["kind"] == "stream"]

    assert [receive(message) for message in (b, a, d)] == [[], ["a", "b"], []]
    other = Outgoing("another processor 1")
    handle_event(harness.server, source="another processor", **as_wire(other.add(0, bodies[0])))
    assert receive(c) == ["c", "d"]
    e, f = (as_wire(harness.stream.add(0, body)) for body in bodies[:2])
    assert receive(f) == []
    life = Outgoing("processor 2").add(0, {"what": "life", "processor": "p", "life": 2})
    handle_event(harness.server, source="processor", **as_wire(life))
    assert [receive(message) for message in (e, f)] == [[], []]


def test_restarted_server_uses_other_session_names():
    store_ports = ports("server")
    session_names = set()
    for _ in range(2):
        server = NotificationServer(
            store_ports, AUTHORITY, 0, ["server"], ["processor"], "generator", "naming", 2, 100.0
        )
        sent_messages = sent(server.handle(0, LinkUp("server", "server")))
        assert server.handle(0, LinkUp("server", "server")) == ()
        nonces = [message["nonce"] for _, message in sent_messages if message["kind"] == "identify"]
        hello = {"endpoint": "jane/news", "session": None, "is_new": True, "policies": {}, "seq": 1}
        hello |= dict(zip(["nonce"], nonces, strict=False))
        session_names.add(handle_event(server, "hello", "jane", **hello)[0][1]["session"])
    assert session_names == {"server 1.1", "server 2.1"}


def create_policy(version, to=None):
    document = {"version": version}
    return {"what": "policy", "app": "news", "policy": "reads", "to": to, "document": document}


def test_policy_is_sent_to_addressed_followers_that_lack_it():
    harness = Harness(max_waiting=9)
    followed_policies = {"jane": {"reads": 1}, "bob": {"reads": 2}, "cem": {"reads": 1}, "dan": {}}
    for device, policies in followed_policies.items():
        harness.send_hello(device, policies=dict(policies))
    assert [to for to, _ in list_items(harness.send_item(create_policy(2)))] == ["jane", "cem"]
    assert list_items(harness.send_item(create_policy(2))) == [], "all have it, or are being told of it"
    assert [to for to, _ in list_items(harness.send_item(create_policy(3, to=["bob", "dan"])))] == ["bob"]
    _, messages = harness.send_hello("eve", policies={"reads": 2})
    assert list_items(messages) == [], "the third is not for her, the second she has"
    _, messages = harness.send_hello("fay", policies={"reads": 1})
    bodies = [message["body"] for _, message in messages if message["kind"] == "stream"]
    assert [body["document"]["version"] for body in bodies] == [2]


def send_hello(server, seq, incarnation="first", address="jane", **fields):
    return handle_event(
        server, "hello", address, endpoint="jane/news", incarnation=incarnation, seq=seq, **fields
    )


def is_rogue_dropped(server, seq, **fields):
    """Return whether the server drops a hello of another machine on Jane's device."""
    return is_dropped(server, "hello", "jane@rogue", endpoint="jane/news", seq=seq, **fields)


def list_kinds(messages):
    return [(to, message["kind"]) for to, message in messages]


def test_late_duplicate_of_a_hello_is_ignored(harness):
    session = send_hello(harness.server, 5, address="jane@2")[0][1]["session"]
    harness.endpoints[session] = "jane/news"
    assert send_hello(harness.server, 4, address="jane@1") == []
    assert list_items(harness.send_change(session)) == [("jane@2", 1)]


def issue(app="news", device=None, authority=AUTHORITY):
    return authority.issue(app, "jane", expires_s=1.0, device=device)


OTHER_TOKENS = {
    "none": {},
    "of another app": {"news": issue("weather")},
    "under another app": {"weather": issue()},
    "of another device": {"news": issue(device="bobs")},
    "of another authority": {"news": issue(authority=Authority(bytes(31) + b"x"))},
    "no token": {"news": "jane"},
}


@pytest.mark.parametrize("tokens", OTHER_TOKENS.values(), ids=OTHER_TOKENS)
@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize("incarnation", ["first", "rogue"])
def test_session_of_an_app_with_a_token_is_not_taken_over(harness, tokens, is_new, incarnation):
    """The server hears a token, also an expired one, of its app and device; then another machine there."""
    messages = send_hello(harness.server, 5, tokens={"news": issue(device="jane")}, now_us=9_000_000)
    session = messages[0][1]["session"]
    harness.endpoints[session] = "jane/news"
    for name in (session, None):
        fields = {"session": name, "incarnation": incarnation, "is_new": is_new}
        for nonce in ({}, {"nonce": "0"}):
            assert is_rogue_dropped(harness.server, 9, tokens=tokens, **fields, **nonce)
    assert list_items(harness.send_change(session)) == [("jane", 1)]
    ack = {"kind": "confirmed", "stream": session, "number": 1}
    assert harness.server.handle(0, Received("jane@rogue/mud", ack)) == ()
    (item,) = sent(harness.server.handle(LATE_US, TimerFired(f"again {session}")))
    assert item[0] == "jane"


def test_token_takes_a_session_over_that_was_begun_without_one(harness):
    first = send_hello(harness.server, 1, "rogue", address="jane@rogue")[0][1]["session"]
    tokens = {"news": issue()}
    ((_, question),) = send_hello(harness.server, 1, tokens=tokens)
    messages = send_hello(harness.server, 2, tokens=tokens, nonce=question["nonce"])
    (session,) = (message["session"] for _, message in messages if message["kind"] == "welcome")
    assert session != first
    assert is_rogue_dropped(harness.server, 2, incarnation="rogue", session=first)


@pytest.mark.parametrize("tokens", [{}, {"news": issue()}])
def test_heartbeat_counts_only_at_the_address_of_its_session(harness, tokens):
    session = send_hello(harness.server, 1, tokens=tokens)[0][1]["session"]
    (welcome,) = sent(harness.server.handle(0, create_heartbeat("jane", session)))
    assert welcome[1]["kind"] == "welcome"
    for name, address in ((session, "jane@2"), ("another", "jane")):
        ((to, question),) = sent(harness.server.handle(0, create_heartbeat("jane", name, address)))
        assert (to, question["kind"]) == (address, "identify")
    messages = send_hello(
        harness.server, next(seqs), address="jane@2", session=session, tokens=tokens, nonce=question["nonce"]
    )
    assert [message["session"] for _, message in messages if message["kind"] == "welcome"] == [session]


def test_repeated_first_hello_continues_the_session_that_it_has_begun(harness):
    names = {send_hello(harness.server, seq)[0][1]["session"] for seq in (1, 2, 3)}
    assert len(names) == 1


def test_hello_of_another_incarnation_requires_a_nonce(harness):
    session = send_hello(harness.server, 5, "second", address="jane@2")[0][1]["session"]
    harness.endpoints[session] = "jane/news"
    for _ in range(2):  # a late duplicate cannot have it
        ((to, question),) = send_hello(harness.server, 9, "first", address="jane@1")
        assert (to, question["kind"]) == ("jane@1", "identify")
    assert list_items(harness.send_change(session)) == [("jane@2", 1)]
    messages = send_hello(harness.server, 1, "third", address="jane@3", nonce=question["nonce"])
    (welcome,) = (message for _, message in messages if message["kind"] == "welcome")
    assert welcome["session"] != session
    assert (welcome["incarnation"], welcome["seq"]) == ("third", 1)


def test_restarted_server_asks_until_a_hello_carries_its_nonce():
    store_ports = ports("server")
    for _ in range(2):
        server = NotificationServer(
            store_ports, AUTHORITY, 0, ["server"], ["processor"], "generator", "naming", 2, 100.0
        )
        sent_messages = sent(server.handle(0, LinkUp("server", "server")))
        send_hello(server, 1) if not sent_messages[1:] else None
    (*_, (to, question)) = sent_messages
    assert (to, question["kind"]) == ("jane", "identify")
    assert list_kinds(send_hello(server, 2, address="jane@1")) == [("jane@1", "identify")]  # a late duplicate
    resent = sent(server.handle(100_000_000, TimerFired("identify")))
    assert resent == [("jane", question)]
    assert send_hello(server, 3, nonce=question["nonce"])[0][1]["kind"] == "welcome"
    assert sent(server.handle(200_000_000, TimerFired("identify"))) == []


@pytest.mark.parametrize("nonce", [{}, {"nonce": bytes(4).hex()}])
def test_session_of_an_app_with_a_token_is_not_taken_over_after_a_restart(nonce):
    store_ports, tokens = ports("server"), {"news": issue()}
    for life in range(3):
        server = NotificationServer(
            store_ports, AUTHORITY, 0, ["server"], ["processor"], "generator", "naming", 2, 100.0
        )
        *_, (_, question) = sent(server.handle(0, LinkUp("server", "server")))
        if life:
            assert is_rogue_dropped(server, 9, incarnation="rogue", **nonce)
        answer = {"nonce": question["nonce"]} if life else {}
        messages = send_hello(server, 1, f"start {life}", tokens=tokens, **answer)
        assert messages[0][1]["kind"] == "welcome"


def test_client_of_a_restored_server_is_not_replaced_if_it_has_registered_with_a_token(harness):
    for is_proven in (False, True):
        body = {"what": "whereabouts", "endpoint": "bob/news", "address": "bob", "is_proven": is_proven}
        ((to, question),) = harness.send_item(body)
        assert (to, question["kind"]) == ("bob", "identify")
    assert is_dropped(
        harness.server, "hello", "bob@rogue", endpoint="bob/news", seq=1, nonce=question["nonce"]
    )


@pytest.mark.parametrize("restart_us", [0, 7 * DEAD_US])
def test_restarted_server_stops_asking_silent_clients(restart_us):
    store_ports = ports("server")
    for begin_us in (0, restart_us):
        server = NotificationServer(
            store_ports, AUTHORITY, 0, ["server"], ["processor"], "generator", "naming", 2, 100.0
        )
        sent_messages = sent(server.handle(begin_us, LinkUp("server", "server")))
        send_hello(server, 1) if begin_us == 0 and not sent_messages[1:] else None
    last_us = restart_us + DEAD_US - 1
    assert list_kinds(sent(server.handle(last_us, TimerFired("identify")))) == [("jane", "identify")]
    assert sent(server.handle(last_us + 1, TimerFired("identify"))) == []
    assert [key for key, _ in store_ports.store.items("address ")] == []


def list_moved(messages):
    moved = [(to, message["address"]) for to, message in messages if message["kind"] == "moved"]
    return [(to, address.removesuffix("/mud")) for to, address in moved]


def test_new_address_is_sent_to_processors_until_acknowledged(harness):
    session, _ = harness.send_hello()
    harness.send_change(session)
    assert list_moved(harness.send_hello(address="jane@1", session=session)[1]) == [("processor", "jane@1")]
    assert list_moved(harness.send_hello(address="jane@1", session=session)[1]) == []
    late_us = 10_000_000
    assert list_moved(harness.fire_timer("moved", late_us)) == [("processor", "jane@1")]
    acknowledgement = {"session": session, "endpoint": "jane/news", "address": "jane@1/mud"}
    assert handle_event(harness.server, "moved", "processor", late_us, **acknowledgement) == []
    assert harness.fire_timer("moved", 10 * late_us) == []


def test_late_acknowledgement_of_an_old_address_is_corrected(harness):
    session, _ = harness.send_hello()
    harness.send_change(session)
    for address in ("jane@1", "jane@2"):
        harness.send_hello(address=address, session=session)
    acknowledgement = {"session": session, "endpoint": "jane/news", "address": "jane@2/mud"}
    assert handle_event(harness.server, "moved", "processor", **acknowledgement) == []
    late = handle_event(harness.server, "moved", "processor", **{**acknowledgement, "address": "jane@1/mud"})
    assert list_moved(late) == [("processor", "jane@2")]


def test_new_address_is_not_resent_for_a_given_up_client(harness):
    session, _ = harness.send_hello()
    harness.send_change(session)
    harness.send_hello(address="jane@1", session=session)
    harness.fire_timer("sweep", DEAD_US)
    assert list_moved(harness.fire_timer("moved", 2 * DEAD_US)) == []


def test_policy_for_all_replaces_older_ones_only():
    harness = Harness(max_waiting=9)

    def versions_of(name):
        _, messages = harness.send_hello(name, policies={"reads": 0})
        return [
            message["body"]["document"]["version"] for _, message in messages if message["kind"] == "stream"
        ]

    harness.send_item(create_policy(1))
    harness.send_item(create_policy(2))
    assert versions_of("gus") == [2]
    harness.send_item(create_policy(1))  # a late copy
    assert 2 in versions_of("hal")


# -- several apps of a device (Mobius 2 and 5: one notification client, and one heartbeat, for all)


def tell(endpoint, session):
    return {
        "what": "tell", "endpoint": endpoint, "session": session, "handle": "first 1", "processor": "processor",
        "life": 1, "table": 1, "synced": 1,
    }  # fmt: skip


def test_apps_of_a_hello_share_one_session_and_one_stream(harness):
    others = {"chat": {}}
    session = send_hello(harness.server, 1, tokens={"news": issue()}, others=others)[0][1]["session"]
    for number, app in enumerate(("news", "chat"), start=1):
        assert list_items(harness.send_item(tell(f"jane/{app}", session))) == [("jane", number)]


def test_session_carries_nothing_for_an_app_that_no_hello_names(harness):
    session = send_hello(harness.server, 1, tokens={})[0][1]["session"]
    for endpoint in ("jane/chat", "bob/news"):
        ((_, answer),) = harness.send_item(tell(endpoint, session))
        assert answer == {"kind": "gone", "session": session, "endpoint": endpoint}


def test_app_joins_the_session_of_its_device_with_the_policies_that_it_lacks(harness):
    harness.send_item(create_policy(2))
    policy = {**create_policy(1), "app": "chat"}
    harness.send_item(policy)
    session = send_hello(harness.server, 1, policies={"reads": 2})[0][1]["session"]
    others = {"chat": {"reads": 0}}
    messages = send_hello(harness.server, 2, session=session, policies={"reads": 2}, others=others)
    assert [message["session"] for _, message in messages if message["kind"] == "welcome"] == [session]
    bodies = [message["body"] for _, message in messages if message["kind"] == "stream"]
    assert [(body["app"], body["policy"]) for body in bodies] == [("chat", "reads")]


@pytest.mark.parametrize(
    ("tokens", "others"),
    [
        ({}, UNSET),
        ({"chat": issue("chat")}, UNSET),  # news is named without its token
        ({"chat": issue("chat")}, {"chat": {}}),
        ({"news": issue("chat")}, UNSET),
    ],
)
def test_app_that_has_shown_a_token_is_named_only_with_its_token(harness, tokens, others):
    first = send_hello(harness.server, 1, tokens={"news": issue()})[0][1]["session"]
    more = {} if others is UNSET else {"others": others}
    assert is_rogue_dropped(harness.server, 2, session=first, tokens=tokens, **more)


def test_session_of_apps_with_tokens_is_not_taken_over_by_an_app_without_one(harness):
    """An app that has shown no token must come with one that has."""
    session = send_hello(harness.server, 1, tokens={"news": issue()}, others={"mute": {}})[0][1]["session"]
    fields = {"endpoint": "jane/mute", "session": session}
    assert is_dropped(harness.server, "hello", "jane", seq=2, tokens={}, **fields)
    assert not is_dropped(harness.server, "hello", "jane", seq=2, tokens={"news": issue()}, **fields)


def test_restarted_server_knows_the_apps_that_have_shown_a_token():
    store_ports = ports("server")
    arguments = (AUTHORITY, 0, ["server"], ["processor"], "generator", "naming", 2, 100.0)
    server = NotificationServer(store_ports, *arguments)
    server.handle(0, LinkUp("server", "server"))
    tokens = {app: issue(app) for app in ("news", "chat")}
    send_hello(server, 1, tokens=tokens, others={"chat": {}})
    again = NotificationServer(store_ports, *arguments)
    ((to, question),) = [one for one in sent(again.handle(1, LinkUp("server", "server"))) if one[0] == "jane"]
    assert to == "jane"
    fields = {"nonce": question["nonce"], "others": {"chat": {}}}
    assert is_dropped(again, "hello", "jane", endpoint="jane/news", seq=2, tokens={"news": issue()}, **fields)
    assert send_hello(again, 2, tokens=tokens, **fields)


@pytest.mark.parametrize("source", ["jane/rogue", "jane/mud-news", "jane"])
def test_only_the_service_of_a_device_says_hello(harness, source):
    """Another program of the phone cannot: the phone vouches for the name of the service's machine."""
    hello = build_message("hello", endpoint="jane/news", seq=1)
    (effect,) = harness.server.handle(0, Received(source, hello, "jane"))
    assert effect.row["incident"] == "dropped"
