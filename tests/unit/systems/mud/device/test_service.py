"""Service of a device: requests and answers of its apps, and its session with the notification server."""

from __future__ import annotations

import pytest
from mud_machines import build_request, sent

from mudkit.events import LinkDown, LinkUp, Received, Record, Send, SendFailed, SetTimer, TimerFired
from mudkit.systems.mud.device.attachment import Attach, DelayOver, EvictRows, StoreUse, address_of
from mudkit.systems.mud.device.greeting import GREET, HEARTBEAT, HELLO
from mudkit.systems.mud.device.service import SEND, DeviceService
from mudkit.systems.mud.servers.notifications import HEARTBEAT_US
from mudkit.tokens import Authority

AUTHORITY = Authority(bytes(32))
INCARNATION = "start of news"
LATE_US = 10_000_000
"""Retransmission timeout of a hello."""


class Service:
    """Service of jane's device, with its link up, and its apps."""

    def __init__(self, *, is_up=True, installed=()):
        self.machine = DeviceService("jane", ["g1", "g2"], ["n1", "n2"], installed)
        if is_up:
            self.machine.handle(0, LinkUp("jane", "lte"))
        self.number = 0

    def attach(self, app="news", *, is_notified=True, token=None, policies=None):
        """Attach an app; return the messages that follow, also at the end of the moment."""
        effects = self.take(address_of(app), Attach(INCARNATION, token, policies or {}, is_notified))
        messages = [one for one in sent(effects) if one[1]["kind"] != "shared"]
        return [*messages, *(self.fire(GREET) if SetTimer(GREET, 0) in effects else [])]

    def take(self, source, message, now_us=0):
        host = "jane" if source.startswith("localhost/") else ""
        return self.machine.handle(now_us, Received(source, message, host))

    def fire(self, name, now_us=0):
        return sent(self.machine.handle(now_us, TimerFired(name)))

    def welcome(self, session="s", seq=1, incarnation=INCARNATION):
        message = {"kind": "welcome", "session": session, "incarnation": incarnation, "seq": seq}
        return states(self.take("n1", message))

    def item(self, number, session="s", endpoint="jane/news", **body):
        """Receive an item of a stream; return to whom its changes went, and the position acknowledged."""
        body = {
            "what": "tell", "endpoint": endpoint, "session": session, "handle": "first 1", "processor": "p",
            "life": 1, "table": 1, "synced": number, **body,
        }  # fmt: skip
        message = {"kind": "stream", "stream": session, "number": number, "first": 1, "body": body}
        messages = sent(self.take("n1", message))
        passed = [(to, one["body"].get("synced")) for to, one in messages if one["kind"] == "forwarded"]
        return passed, [one["number"] for _, one in messages if one["kind"] == "confirmed"]


def states(effects):
    """Return what apps hear of the session."""
    messages = [(to, message) for to, message in sent(effects) if message["kind"] == "session"]
    return [(to, message["session"], message["is_greeted"]) for to, message in messages]


def hellos(messages):
    return [(to, message) for to, message in messages if message["kind"] == "hello"]


def is_dropped(effects):
    return [type(effect) for effect in effects] == [Record]


NEWS, CHAT = address_of("news"), address_of("chat")


@pytest.fixture
def service():
    return Service()


# -- requests


def test_requests_go_to_the_gateway_in_use_and_answers_to_their_apps(service):
    for app in ("news", "chat"):
        service.attach(app, is_notified=False)
    for app in ("news", "chat"):
        request = build_request("first.1", f"jane/{app}", op="drop")
        ((gateway, passed),) = sent(service.take(address_of(app), request))
        assert (gateway, passed["client"]) == ("g1", f"jane/{app}")
        refused = {"kind": "refused", "id": request["id"], "error": {"kind": "TableProblem", "summary": "no"}}
        assert [to for to, _ in sent(service.take(gateway, refused))] == [address_of(app)]


def test_an_app_asks_only_in_its_own_name(service):
    service.attach("news", is_notified=False)
    service.attach("chat", is_notified=False)
    assert is_dropped(service.take(CHAT, build_request("first.1", "jane/news", op="drop")))
    assert is_dropped(service.take("localhost/rogue", build_request("first.1", "jane/news", op="drop")))
    assert is_dropped(service.take(NEWS, build_request("first.1", "bob/news", op="drop")))


def test_an_app_that_is_not_attached_cannot_ask(service):
    assert is_dropped(service.take(NEWS, build_request("first.1", "jane/news", op="drop")))


def test_an_app_does_not_attach_with_the_token_of_another_one(service):
    token = AUTHORITY.issue("bank", "jane", expires_s=100)
    assert is_dropped(service.take(NEWS, Attach(INCARNATION, token, {}, is_notified=True)))
    assert service.fire(GREET) == []


def test_another_program_of_the_device_cannot_attach(service):
    assert is_dropped(service.take("localhost/rogue", Attach(INCARNATION, None, {}, is_notified=True)))


def test_answers_for_a_former_owner_of_the_address_go_to_no_app(service):
    service.attach("news")
    refused = {
        "kind": "refused",
        "id": "bob/news first.1",
        "error": {"kind": "TableProblem", "summary": "no"},
    }
    assert service.take("g1", refused) == ()


@pytest.mark.parametrize("source", ["g1", "n1", NEWS, "elsewhere"])
def test_malformed_messages_are_dropped(service, source):
    service.attach("news")
    assert is_dropped(service.take(source, {"kind": "nonsense"}))


def test_the_next_gateway_is_used_when_one_is_not_reached_and_the_apps_know(service):
    for app in ("news", "chat"):
        service.attach(app, is_notified=False)
    ask = build_request("first.1", "jane/news", op="drop")
    lost = service.machine.handle(0, SendFailed("g1", ask))
    assert sent(lost) == [(NEWS, {"kind": "gateway lost"}), (CHAT, {"kind": "gateway lost"})]
    assert service.machine.handle(0, SendFailed("g1", ask)) == ()  # late: another one is in use
    assert [to for to, _ in sent(service.take(NEWS, ask))] == ["g2"]
    service.machine.handle(0, LinkDown())
    assert service.machine.handle(0, SendFailed("g2", ask)) == ()  # the link was lost, not the gateway


# -- what several apps share


def write_of(app, request="first.1", size_bytes=0):
    return build_request(
        request, f"jane/{app}", op="write", token=f"token of {app}", data={"x": "x" * size_bytes}
    )


def test_apps_hear_once_that_they_share_the_device(service):
    """Bills and work of one app alone are as without a service."""
    notified = []
    for app in ("news", "chat", "mail", "news"):
        effects = service.take(address_of(app), Attach(INCARNATION, None, {}, is_notified=False))
        notified.append([to for to, message in sent(effects) if message["kind"] == "shared"])
    assert notified == [[], [NEWS, CHAT], [address_of("mail")], []]


def test_writes_of_apps_in_one_moment_go_in_one_message_each_with_its_token(service):
    """Mobius 5 and 6: the apps of a device share its connection."""
    for app in ("news", "chat"):
        service.attach(app, is_notified=False)
    asks = [write_of(app) for app in ("news", "chat")]
    for app, ask in zip(("news", "chat"), asks, strict=True):
        assert sent(service.take(address_of(app), ask)) == []
    assert service.fire(SEND) == [("g1", {"kind": "asks of apps", "parts": asks})]
    assert service.fire(SEND) == []


def test_writes_of_one_app_are_its_message_and_go_at_once_while_it_is_alone(service):
    service.attach("news", is_notified=False)
    assert sent(service.take(NEWS, write_of("news"))) == [("g1", write_of("news"))]
    service.attach("chat", is_notified=False)
    service.take(NEWS, write_of("news", "first.2"))
    assert service.fire(SEND) == [("g1", write_of("news", "first.2"))]


def test_writes_at_the_start_of_a_device_wait_for_those_of_all_its_apps():
    service = Service(installed=("news", "chat"))
    service.attach("news", is_notified=False)
    assert sent(service.take(NEWS, write_of("news"))) == []
    service.attach("chat", is_notified=False)
    service.take(CHAT, write_of("chat"))
    ((_, message),) = service.fire(SEND)
    assert [part["client"] for part in message["parts"]] == ["jane/news", "jane/chat"]


def test_a_message_of_several_apps_has_at_most_the_bytes_of_a_batch(service):
    apps = ("news", "chat", "mail")
    for app in apps:
        service.attach(app, is_notified=False)
    for app in apps:
        service.take(address_of(app), write_of(app, size_bytes=12_000))
    (_, first), (_, then) = service.fire(SEND)
    assert [part["client"] for part in first["parts"]] == ["jane/news", "jane/chat"]
    assert then["client"] == "jane/mail"


def test_writes_of_a_link_that_is_lost_wait_for_their_apps_to_send_them_again(service):
    for app in ("news", "chat"):
        service.attach(app, is_notified=False)
    service.take(NEWS, write_of("news"))
    service.machine.handle(0, LinkDown())
    assert service.fire(SEND) == []


def test_reads_do_not_wait_for_the_writes_of_other_apps(service):
    for app in ("news", "chat"):
        service.attach(app, is_notified=False)
    service.take(NEWS, write_of("news"))
    assert [to for to, _ in sent(service.take(CHAT, build_request("first.1", "jane/chat", op="read")))] == [
        "g1"
    ]


def test_delay_that_is_over_is_reported_to_the_other_apps(service):
    for app in ("news", "chat", "mail"):
        service.attach(app, is_notified=False)
    messages = sent(service.take(NEWS, DelayOver()))
    assert messages == [(to, {"kind": "delay over"}) for to in (CHAT, address_of("mail"))]


def test_app_above_its_share_evicts_when_another_one_needs_its_own(service):
    for app in ("news", "chat"):
        service.attach(app, is_notified=False)
    assert service.take(NEWS, StoreUse(10, 8, 100)) == ()
    assert service.take(CHAT, StoreUse(10, 2, 50)) == ()
    assert service.take(CHAT, StoreUse(10, 4, 50)) == (Send(NEWS, EvictRows(6, None)),)


@pytest.mark.parametrize("message", [DelayOver(), StoreUse(10, 8, 100)])
def test_an_app_that_is_not_attached_has_no_store_and_no_delays(service, message):
    assert is_dropped(service.take(NEWS, message))


# -- hellos


def test_an_app_without_reads_needs_no_hello(service):
    assert service.attach(is_notified=False) == []
    assert service.fire(GREET) == []


def test_hello_of_one_app_names_it_and_has_its_token_and_policies(service):
    token = AUTHORITY.issue("news", "jane", expires_s=100)
    ((to, hello),) = service.attach(token=token, policies={"read": 3})
    assert to == "n1"
    assert hello == {
        "kind": "hello", "endpoint": "jane/news", "session": None, "is_new": True, "policies": {"read": 3},
        "incarnation": INCARNATION, "seq": 1, "tokens": {"news": token},
    }  # fmt: skip


def test_apps_that_attach_at_once_share_one_hello(service):
    """Mobius 5: a heartbeat is of a device, not of an app."""
    for app in ("news", "chat"):
        effects = service.take(
            address_of(app), Attach(INCARNATION, f"token of {app}", {"read": 1}, is_notified=True)
        )
        assert effects[0] == SetTimer(GREET, 0)
    service.take(address_of("mute"), Attach(INCARNATION, "token of mute", {}, is_notified=False))
    ((_, hello),) = service.fire(GREET)
    assert (hello["endpoint"], hello["others"]) == ("jane/news", {"chat": {"read": 1}})
    assert set(hello["tokens"]) == {"news", "chat", "mute"}
    assert service.welcome() == [(address_of("mute"), None, False), (NEWS, "s", True), (CHAT, "s", True)]
    ((_, heartbeat),) = service.fire(HEARTBEAT)
    assert not {"tokens", "others"} & set(heartbeat)


def test_another_app_joins_the_session_and_the_others_stay_greeted(service):
    service.attach("news")
    service.welcome()
    ((_, hello),) = service.attach("chat")  # no app is told that it is not greeted
    assert (hello["session"], hello["others"]) == ("s", {"chat": {}})
    assert service.welcome(seq=1) == []  # of a hello that does not name it
    assert service.welcome(seq=2) == [(NEWS, "s", True), (CHAT, "s", True)]


def test_an_app_that_is_in_no_hello_has_no_part_in_a_new_session(service):
    service.attach("news")
    service.attach("chat")
    service.welcome(seq=2)
    service.attach("chat", is_notified=False)
    ((_, hello),) = hellos(
        sent(service.take("n1", {"kind": "identify", "endpoint": "jane/news", "nonce": "n"}))
    )
    assert "others" not in hello
    assert service.welcome("another", seq=3) == [(CHAT, None, False), (NEWS, "another", True)]


def test_heartbeats_end_with_the_last_app_that_is_notified(service):
    for app in ("news", "chat"):
        service.attach(app)
    service.attach("news", is_notified=False)
    assert len(hellos(service.fire(HEARTBEAT))) == 1
    effects = service.take(CHAT, Attach(INCARNATION, None, {}, is_notified=False))
    assert [effect.name for effect in effects if not isinstance(effect, Send)] == [HELLO, HEARTBEAT]


def test_a_welcome_after_the_last_read_has_ended_begins_no_heartbeats(service):
    service.attach()
    service.attach(is_notified=False)
    message = {"kind": "welcome", "session": "s", "incarnation": INCARNATION, "seq": 1}
    assert not [effect for effect in service.take("n1", message) if isinstance(effect, SetTimer)]


def test_a_hello_waits_for_a_link():
    service = Service(is_up=False)
    assert service.attach() == []
    assert service.machine.handle(0, LinkUp("jane", "lte")) == [SetTimer(GREET, 0)]
    assert len(service.fire(GREET)) == 1


def test_an_unanswered_hello_is_sent_again_and_apps_are_not_greeted(service):
    service.attach()
    service.welcome()
    assert SetTimer(HEARTBEAT, HEARTBEAT_US) in service.machine.handle(0, TimerFired(HEARTBEAT))
    messages = service.fire(HELLO, LATE_US)
    assert states([Send(*one) for one in messages]) == [(NEWS, "s", False)]
    ((_, hello),) = hellos(messages)
    assert (hello["is_new"], hello["seq"]) == (True, 3)


def test_a_late_copy_of_a_welcome_is_ignored(service):
    service.attach()
    assert service.welcome("s", 1) == [(NEWS, "s", True)]
    assert service.welcome("s", 1) == []
    assert service.welcome("another", 2, "of a former start") == []


def test_welcome_to_an_outdated_hello_is_ignored(service):
    service.attach()
    service.machine.handle(0, LinkUp("jane@2", "wifi"))
    service.fire(GREET)
    assert service.welcome(seq=1) == []  # it greets the former address
    service.fire(HELLO, LATE_US)
    assert service.welcome(seq=2) == [(NEWS, "s", True)]  # on a slow link it answers the last hello but one


def test_identify_is_answered_with_its_nonce_once_until_a_welcome(service):
    service.attach()
    question = {"kind": "identify", "endpoint": "jane/chat", "nonce": "n"}
    ((_, hello),) = sent(service.take("n1", question))
    assert hello["nonce"] == "n"
    assert sent(service.take("n1", question)) == []
    service.welcome(seq=2)
    service.machine.handle(0, LinkUp("jane", "lte"))
    ((_, hello),) = service.fire(GREET)
    assert "nonce" not in hello
    assert service.take("n1", {**question, "endpoint": "bob/news"}) == ()  # a former owner of this address


def test_redirection_to_the_same_server_sends_no_second_hello_until_one_is_answered(service):
    service.attach()
    assert service.take("n1", {"kind": "redirect", "to": "n1"}) == ()
    ((to, _),) = sent(service.take("n1", {"kind": "redirect", "to": "n2"}))
    assert to == "n2"
    service.welcome(seq=2)
    assert len(hellos(sent(service.take("n2", {"kind": "redirect", "to": "n2"})))) == 1
    assert service.take("n2", {"kind": "redirect", "to": "elsewhere"}) == ()


# -- stream


def test_items_go_once_and_in_order_to_the_apps_that_they_concern(service):
    for app in ("news", "chat"):
        service.attach(app)
    service.welcome(seq=2)
    assert service.item(2, endpoint="jane/chat") == ([], [0])
    assert service.item(1) == ([(NEWS, 1), (CHAT, 2)], [2])
    assert service.item(1) == ([], [2])
    assert service.item(3, endpoint="jane/absent") == ([], [3])


def test_items_of_another_session_are_ignored(service):
    service.attach()
    service.welcome()
    assert service.item(1, session="before") == ([], [])
    service.item(2)
    service.machine.handle(0, LinkUp("jane", "lte"))
    service.fire(GREET)
    service.welcome("another", 2)
    assert service.item(1, session="another") == ([(NEWS, 1)], [1])


def test_a_generation_of_a_processor_concerns_all_apps(service):
    for app in ("news", "chat"):
        service.attach(app)
    service.welcome(seq=2)
    body = {"what": "life", "processor": "p", "life": 2}
    item = {"kind": "stream", "stream": "s", "number": 1, "first": 1, "body": body}
    forwarded = [to for to, message in sent(service.take("n1", item)) if message["kind"] == "forwarded"]
    assert forwarded == [NEWS, CHAT]


# -- servers that do not answer


class Greeter(Service):
    """Service of a device with three notification servers, after its first hello."""

    def __init__(self):
        self.machine = DeviceService("jane", ["g1"], ["n1", "n2", "n3"], ())
        self.machine.handle(0, LinkUp("jane", "lte"))
        self.now_us = 0
        self.attach()

    def miss(self):
        """Miss an answer to a hello; return to whom the next one goes, and the servers that it accuses."""
        self.now_us += LATE_US
        ((to, hello),) = hellos(self.fire(HELLO, self.now_us))
        return to, hello.get("unanswered", [])

    def take_from(self, source, kind, **fields):
        effects = self.machine.handle(self.now_us, Received(source, {"kind": kind, **fields}))
        return [(to, hello.get("epoch")) for to, hello in hellos(sent(effects))]


def test_hello_goes_to_the_next_server_after_two_without_an_answer():
    greeter = Greeter()
    assert [greeter.miss() for _ in range(6)] == [
        ("n1", []), ("n2", ["n1"]), ("n2", ["n1"]),
        ("n3", ["n1", "n2"]), ("n3", ["n1", "n2"]), ("n1", ["n1", "n2", "n3"]),
    ]  # fmt: skip


def test_server_that_has_not_answered_before_gets_one_hello_after_a_redirection():
    greeter = Greeter()
    greeter.miss()
    greeter.miss()
    assert greeter.take_from("n2", "redirect", to="n1") == [("n1", None)]
    assert greeter.miss() == ("n2", ["n1"])
    greeter.take_from("n2", "redirect", to="n3")  # each server that was not tried gets two
    assert [greeter.miss()[0] for _ in range(2)] == ["n3", "n2"]


def test_welcome_ends_the_accusation_and_says_who_serves():
    greeter = Greeter()
    greeter.miss()
    greeter.miss()
    greeter.take_from("n1", "welcome", session="s", incarnation=INCARNATION, seq=1)  # it was late
    ((to, hello),) = hellos(greeter.fire(HEARTBEAT, greeter.now_us))
    assert (to, "unanswered" in hello) == ("n1", False)


def test_unanswered_hello_over_a_former_link_does_not_count():
    greeter = Greeter()
    greeter.miss()
    greeter.machine.handle(greeter.now_us, LinkDown())
    greeter.machine.handle(greeter.now_us, LinkUp("jane", "wifi"))
    greeter.fire(GREET, greeter.now_us)
    assert greeter.miss() == ("n1", [])


def test_redirection_of_a_lower_epoch_is_ignored():
    greeter = Greeter()
    assert greeter.take_from("n1", "redirect", to="n2", epoch=5) == [("n2", 5)]
    assert greeter.take_from("n1", "redirect", to="n3", epoch=4) == []
    assert greeter.take_from("n1", "redirect", to="n3") == []
    assert greeter.take_from("n1", "redirect", to="n3", epoch=6) == [("n3", 6)]


def test_question_of_another_server_is_answered_there_unless_it_is_of_a_lower_epoch():
    greeter = Greeter()
    question = {"endpoint": "jane/news", "nonce": "nonce"}
    assert greeter.take_from("n2", "identify", epoch=5, **question) == [("n2", 5)]
    assert greeter.take_from("n1", "identify", **question) == []
    assert greeter.take_from("n2", "identify", endpoint="jane/news", nonce="other") == [("n2", 5)]
