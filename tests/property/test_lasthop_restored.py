"""Any sequence of restores, of a spool and of a device: what is lost or read twice is an incident.

A restored spool sends no message twice that was read, and loses none of its backup.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from mudkit import Lab
from mudkit.systems.lasthop import Publications, Publisher, Subscriber, Subscription

MAX_BACKUPS = 4
spool_steps = st.one_of(
    st.tuples(st.just("publish"), st.sampled_from([0.2, 0.5, 1.0])),
    st.tuples(st.just("publish and backup"), st.sampled_from([0.2, 0.5, 1.0])),
    st.tuples(st.just("read"), st.sampled_from([0, 1, 1, 90])),
    st.tuples(st.just("read"), st.sampled_from([0, 1, 1, 90])),
    st.tuples(st.just("restore"), st.integers(0, MAX_BACKUPS - 1)),
    st.tuples(st.just("restore"), st.integers(0, MAX_BACKUPS - 1)),
    st.tuples(st.just("restart"), st.sampled_from(["jane", "station", "spool"])),
    st.tuples(st.sampled_from(["cut", "mend"]), st.none()),
    st.tuples(st.just("mangle"), st.sampled_from([0.0, 0.3])),
)
device_steps = st.one_of(
    st.tuples(st.just("back up device"), st.none()),
    st.tuples(st.just("restore device"), st.integers(0, MAX_BACKUPS - 1)),
)
SUBSCRIPTIONS = st.builds(
    Subscription,
    st.just("news"),
    max=st.sampled_from([1, None]),
    mode=st.sampled_from(["on-demand", "on-demand", "on-line"]),
    policy=st.sampled_from(["on-line", "on-demand", "unified"]),
    interrupt=st.sampled_from([None, 0.6]),
)


class Reader:
    """A reader, a publisher at the server or on a device, and a spool that is restored from its backups."""

    def __init__(self, subscription: Subscription, *, is_on_device: bool) -> None:
        self.lab = Lab(seed=1)
        self.server = Publications(self.lab)
        self.jane = Subscriber(self.lab.device("jane", link="lte"), self.server)
        self.jane.subscribe(subscription).result()
        publisher = Publisher(self.lab.device("station", link="lte"), self.server)
        self.news = (publisher if is_on_device else self.server).topic("news")
        self.published: list[str] = []
        self.accepted: set[str] = set()
        self.received: Counter[str] = Counter()
        self.jane.on_message(lambda message: self.received.update([message["text"]]))
        self.backups: list[tuple[Any, int]] = []
        self.device_backups: list[Any] = []
        self.lost: set[str] = set()
        """Messages that were published after a backup that was restored."""

    def do(self, action: str, argument: Any) -> None:
        faults = self.lab.faults
        match action:
            case "publish":
                self.published.append(f"m{len(self.published)}")
                self.news.publish(self.published[-1], argument).result()
            case "read":
                self.jane.read("news").add_done_callback(self.count)
                self.lab.run(minutes=argument)
            case "publish and backup":
                self.do("publish", argument)
                self.backups = [*self.backups, (faults.backup("spool"), len(self.published))][-MAX_BACKUPS:]
            case "restore" if self.backups:
                backup, count = self.backups[argument % len(self.backups)]
                faults.restore("spool", backup)
                self.lost.update(self.published[count:])
            case "back up device":
                self.device_backups = [*self.device_backups, faults.backup("jane")][-MAX_BACKUPS:]
            case "restore device" if (
                self.device_backups
            ):  # apart from restores of the spool: one side remembers
                self.reach()
                faults.restore("jane", self.device_backups[argument % len(self.device_backups)])
                self.reach()
            case "restart":
                self.lab.run(seconds=1)  # a kill at the moment of a callback may repeat it
                faults.kill(argument)
                faults.restart(argument)
            case "cut":
                faults.cut("jane")
            case "mend":
                faults.mend("jane")
            case "mangle":
                faults.messages(loss_share=argument, repeat_share=argument, delay_share=argument, delay_s=600)

    def count(self, operation: Any) -> None:
        if operation.status == "ok":
            self.received.update(message["text"] for message in operation.result())

    def reach(self) -> None:
        self.lab.faults.messages()
        self.lab.faults.mend("jane")
        self.lab.run(minutes=5)

    def settle(self) -> None:
        self.reach()
        self.lab.run(hours=2)
        for _ in range(len(self.published) + 1):
            self.do("read", 2)


@examples(200)
@given(SUBSCRIPTIONS, st.lists(spool_steps, min_size=6, max_size=25), st.booleans())
def test_restored_spool_sends_nothing_twice_and_loses_nothing_of_its_backup(
    subscription: Subscription, steps: list[tuple[str, Any]], is_on_device: bool
) -> None:
    reader = Reader(subscription, is_on_device=is_on_device)
    for action, argument in steps:
        reader.do(action, argument)
    reader.settle()
    assert max(reader.received.values(), default=1) == 1
    assert set(reader.published) - reader.lost <= set(reader.received)


@examples(200)
@given(
    SUBSCRIPTIONS,
    st.lists(st.one_of(spool_steps, device_steps, device_steps), min_size=6, max_size=25),
    st.booleans(),
)
def test_restores_of_both_sides_are_recognised(
    subscription: Subscription, steps: list[tuple[str, Any]], is_on_device: bool
) -> None:
    reader = Reader(subscription, is_on_device=is_on_device)
    for action, argument in steps:
        reader.do(action, argument)
    reader.settle()
    incidents = reader.lab.frame("incidents").incident.tolist()
    if max(reader.received.values(), default=1) > 1:
        assert "rolled back" in incidents
    for rank in (0.2, 1.0):
        reader.do("publish", rank)
    reader.settle()
    assert [reader.received[text] for text in reader.published[-2:]] == [1, 1]
    messages = len(reader.lab.frame("messages"))
    reader.lab.run(hours=2)
    assert len(reader.lab.frame("messages")) == messages
