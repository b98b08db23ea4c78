"""Notification server, back end and processor when other processors get the partitions of a dead one."""

from __future__ import annotations

import pytest
from mud_machines import answer_request, handle_event, is_dropped, ports, sent

from mudkit.delivery.stream import Outgoing
from mudkit.events import LinkUp, SendFailed, TimerFired
from mudkit.systems.mud.messages.notifications import NewGeneration, Whereabouts
from mudkit.systems.mud.servers.backend import BackEnd
from mudkit.systems.mud.servers.notifications import NotificationServer
from mudkit.systems.mud.servers.processor import Processor
from mudkit.systems.mud.servers.ranges import SUSPECT_US
from mudkit.tokens import Authority
from mudkit.wire import as_wire

SECOND_US = 1_000_000


def assign(machine, *processors, epoch=1, source="naming", **fields):
    """Send a machine assignments in which each processor has as many ranges; return what it sends."""
    owners = [*processors] * (24 // len(processors))
    return handle_event(
        machine, "assignments", source, SECOND_US, epoch=epoch, servers=["s"], processors=owners, **fields
    )


def bodies(messages):
    return [message["body"] for _, message in messages if message["kind"] == "stream"]


def suspected(messages):
    return [message["address"] for to, message in messages if message["kind"] == "suspect"]


# -- notification server


@pytest.fixture
def server():
    """Return a notification server that has sessions with two devices."""
    machine = NotificationServer(
        ports("s"), Authority(bytes(32)), 0, ["s"], ["p", "q"], "generator", "naming", 9, 1e3
    )
    machine.handle(0, LinkUp("s", "server"))
    for device in ("ann", "bob"):
        handle_event(machine, "hello", device, endpoint=f"{device}/news", seq=1)
    return machine


def test_devices_are_told_once_that_a_processor_was_replaced(server):
    ended = {"what": "life", "processor": "p", "life": 5}
    assert bodies(assign(server, "q", epoch=5)) == [ended, ended]
    assert bodies(assign(server, "q", epoch=6)) == []


def test_devices_are_not_told_of_a_processor_that_has_still_a_partition(server):
    assert bodies(assign(server, "q", moved=[[7, "0", "p"]])) == []
    assert bodies(assign(server, "q", epoch=2)) == [{"what": "life", "processor": "p", "life": 2}] * 2


def test_replaced_processor_is_corrected_and_only_its_generation_passed_on(server):
    assign(server, "q", epoch=5)
    stream = Outgoing("p 9")
    generation, report = (
        as_wire(stream.add(0, body)) for body in (NewGeneration("p", 9), Whereabouts("cat/news", "cat@1"))
    )
    messages = handle_event(server, source="p", **generation)
    assert bodies(messages) == [{"what": "life", "processor": "p", "life": 9}] * 2
    assert [message["kind"] for to, message in messages if to == "p"] == ["assignments", "confirmed"]
    ((to, answer),) = handle_event(server, source="p", **report)
    assert (to, answer["kind"], answer["epoch"]) == ("p", "assignments", 5)
    assign(server, "q", "p", epoch=6)
    assert handle_event(server, source="p", **report)[-1][1]["kind"] == "confirmed"


def test_processor_that_does_not_acknowledge_an_address_is_reported(server):
    stream = Outgoing("p 1")
    tell = {
        "what": "tell", "endpoint": "ann/news", "session": next(iter(server._sessions)), "handle": "first 1",
        "processor": "p", "life": 1, "table": 1, "synced": 3, "of": "0",
    }  # fmt: skip
    item = as_wire(stream.add(0, NewGeneration("p", 1))) | {"body": tell}
    handle_event(server, source="p", **item)
    name = next(iter(server._sessions))
    moved = handle_event(server, "hello", "ann@2", endpoint="ann/news", seq=2, session=name)
    assert ("p", "moved") in [(to, message["kind"]) for to, message in moved]
    again = sent(server.handle(SUSPECT_US, TimerFired("moved")))
    assert suspected(again) == ["p"]


# -- back end


@pytest.fixture
def back_end():
    machine = BackEnd(ports(), ["g"], ["p", "q"], ["r"], ["s"], "naming", keep_deleted_us=10**9)
    machine.handle(0, LinkUp("here", "server"))
    return machine


def test_back_end_reports_processors_that_acknowledge_nothing(back_end):
    again = [sent(back_end.handle(at_us, TimerFired("again"))) for at_us in (SECOND_US, SUSPECT_US)]
    assert [suspected(messages) for messages in again] == [[], ["p", "q"]]


def test_back_end_reports_a_processor_that_is_not_there_until_it_is_replaced(back_end):
    for to, expected in (("p", ["p"]), ("r", []), ("g", [])):
        assert suspected(sent(back_end.handle(0, SendFailed(to, None)))) == expected
    assert assign(back_end, "q", epoch=5) == [("naming", {"kind": "assigned", "epoch": 5})]
    assert sent(back_end.handle(60 * SECOND_US, SendFailed("p", None))) == []
    assert is_dropped(back_end, "assignments", "naming", epoch=9, servers=["s"], processors=["q"])
    assert handle_event(back_end, "assignments?", "naming")[0][1]["epoch"] == 5


def commit(back_end, *followers):
    """Create a table, and acknowledge it as some followers; return whom the back end has sent it."""
    identity = f"jane/news first.{back_end._copy.lsn}"
    claims = {"app": "news", "user": None, "device": None, "expires_s": 1e9}
    properties = {"name": f"t{back_end._copy.lsn}", "properties": {}}
    messages = handle_event(back_end, "create", "g", id=identity, claims=claims, **properties)
    acknowledge(back_end, *followers)
    return [to for to, message in messages if message["kind"] == "log" and to != "g"]


def follow(back_end, *followers):
    """Request the state as some followers, and acknowledge it."""
    for follower in followers:
        handle_event(back_end, "follow", follower, turn="now")
    acknowledge(back_end, *followers)


def acknowledge(back_end, *followers, lsn=None):
    """Acknowledge the log up to a position, or all; return what the followers are sent."""
    lsn = back_end._copy.lsn if lsn is None else lsn
    return [sent for follower in followers for sent in handle_event(back_end, "has", follower, lsn=lsn)]


def test_back_end_waits_for_a_replaced_processor_only_when_it_is_heard(back_end):
    follow(back_end, "p", "q", "r")
    first = back_end._copy.lsn
    assert commit(back_end, "q", "r") == ["r", "p", "q"]
    assert len(back_end._log.entries) == 1
    assign(back_end, "q", epoch=5)
    assert commit(back_end, "q", "r") == ["r", "q"]
    assert back_end._log.entries == {}
    assert sent(back_end.handle(60 * SECOND_US, TimerFired("again"))) == []
    ((to, answer),) = acknowledge(back_end, "p", lsn=first)
    assert (to, answer["kind"], answer["entries"]) == ("p", "log", [])
    assert answer["after"] == answer["through"] == back_end._copy.lsn
    follow(back_end, "p")
    assert commit(back_end, "q", "r") == ["r", "p", "q"]
    assert len(back_end._log.entries) == 1


def test_back_end_asks_a_processor_that_has_partitions_again(back_end):
    follow(back_end, "p", "q", "r")
    commit(back_end, "q", "r")
    assign(back_end, "q", epoch=5)
    commit(back_end, "q", "r")
    messages = assign(back_end, "p", "q", epoch=6)
    assert [(to, message["kind"]) for to, message in messages] == [("p", "log"), ("naming", "assigned")]
    assert messages[0][1]["after"] == back_end._copy.lsn


def test_spare_that_acknowledges_nothing_is_not_waited_for(back_end):
    follow(back_end, "p", "q", "r")
    assign(back_end, "q", epoch=5)
    assert commit(back_end, "q", "r") == ["r", "p", "q"]
    assert [to for to, _ in sent(back_end.handle(2 * SECOND_US, TimerFired("again")))] == ["p"]
    assert sent(back_end.handle(SUSPECT_US + SECOND_US, TimerFired("again"))) == []
    assert commit(back_end, "q", "r") == ["r", "q"]
    assert back_end._log.entries == {}


def test_late_message_of_a_replaced_processor_is_not_waited_for_without_end(back_end):
    """Else its position would be unknown for ever: no tombstone would be removed, and no entry deleted."""
    follow(back_end, "p", "q", "r")
    assign(back_end, "q", epoch=5)
    commit(back_end, "q", "r")
    back_end.handle(SUSPECT_US + SECOND_US, TimerFired("again"))
    assert back_end._absent == {"p"}
    handled = handle_event(back_end, "read", "p")
    assert [(to, message["kind"]) for to, message in handled] == [("gateway", "part"), ("p", "log")]
    back_end.handle(4 * SUSPECT_US, TimerFired("again"))
    assert commit(back_end, "q", "r") == ["r", "q"]
    assert back_end._log.entries == {}


# -- processor


def test_processor_that_lacks_deleted_entries_begins_anew_with_the_state():
    machine = Processor(ports("p"), ["p", "q"], ["master"], [], ["g"], ["s"], "naming")
    ((_, request),) = [one for one in sent(machine.handle(0, LinkUp("p", "server"))) if one[0] == "master"]
    answer_request(machine, request, 5, [])
    assert [message["kind"] for _, message in handle_event(machine, "log", "master", entries=[])] == ["has"]
    late = handle_event(machine, "log", "master", 9, entries=[], after=5, through=5)
    assert [message["kind"] for _, message in late] == ["has"]
    missing = handle_event(machine, "log", "master", 9, entries=[], after=7, through=7)
    assert [message["kind"] for _, message in missing] == ["stream", "follow"]
    assert bodies(missing)[0]["what"] == "life"
    answer_request(machine, missing[-1][1], 7, [])
    assert machine._log.lsn == 7


def test_processor_that_was_replaced_begins_a_generation_after_the_epoch():
    machine = Processor(ports("p"), ["p", "q"], ["master"], [], ["g"], ["s"], "naming")
    machine.handle(0, LinkUp("p", "server"))
    assert handle_event(machine, "probe", "naming", sent_us=7) == [
        ("naming", {"kind": "alive", "sent_us": 7, "epoch": 0})
    ]
    epoch = 5 * SECOND_US  # a spare begins no generation at each change, which all devices would hear of
    assert [body["life"] for body in bodies(assign(machine, "q", epoch=epoch))] == [epoch + 1]
    assert bodies(assign(machine, "q", epoch=epoch + 7)) == []
    moved = [[7, "0", "p"]]
    again = bodies(assign(machine, "q", epoch=epoch + 8, moved=moved))
    assert [body["life"] for body in again] == [epoch + 9]
    assert bodies(assign(machine, "q", "p", epoch=epoch + 9, moved=moved)) == []


def test_assignments_that_come_before_the_start_of_a_processor_are_kept_for_it():
    """A machine that has restarted may get a message first; it reports its generation once it has begun."""
    machine = Processor(ports("p"), ["p", "q"], ["master"], ["r"], ["gateway"], ["s"], "naming")
    assert bodies(assign(machine, "q")) == []
    assert bodies(sent(machine.handle(SECOND_US, LinkUp("p", "server")))) == [
        {"what": "life", "processor": "p", "life": SECOND_US}
    ]
