"""What last hop promises on the fleet, whatever is cut, lost, repeated, moved, wiped, killed and restarted meanwhile."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from mudkit import Lab
from mudkit.events import Send
from mudkit.fleet.store import Killed
from mudkit.systems.lasthop import Forwarding, Publications, Subscriber, Subscription
from mudkit.wire import as_wire

S = 1_000_000
PHONES = ("ann", "bob")
POINTS = ("before commit", "after commit")
when = st.integers(0, 60 * S)
RANKS = st.sampled_from([0.0, 0.3, 0.5, 0.7, 1.0])
_PHONE, _LONG = st.sampled_from(PHONES), st.sampled_from([1, S, 3 * S, 20 * S])
traffic = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), when, RANKS, st.sampled_from([None, None, None, 2.0, 40.0])),
        st.tuples(st.just("publish"), when, RANKS, st.none()),
        st.tuples(st.just("rerank"), when, RANKS, st.integers(0, 20)),
        st.tuples(st.just("read"), when, _PHONE, st.none()),
    ),
    min_size=5,
    max_size=40,
)
faults = st.lists(
    st.one_of(
        st.tuples(st.just("outage"), when, _PHONE, _LONG),
        st.tuples(st.just("outage"), when, _PHONE, _LONG),
        st.tuples(st.just("kill"), when, st.sampled_from((*PHONES, "spool")), _LONG),
        st.tuples(st.just("crash"), when, st.sampled_from((*PHONES, "spool")), st.sampled_from(POINTS)),
        st.tuples(st.just("mangle"), when, st.sampled_from([0.0, 0.2, 0.5]), st.none()),
        st.tuples(st.just("burst"), when, st.none(), st.sampled_from([S // 2, 5 * S, 30 * S])),
        st.tuples(st.just("move"), when, _PHONE, st.none()),
        st.tuples(st.just("wipe"), when, _PHONE, st.none()),
        st.tuples(st.just("limits"), when, _PHONE, RANKS),
        st.tuples(st.just("again"), when, _PHONE, st.none()),
    ),
    max_size=20,
)
WANTED = st.builds(
    Subscription,
    st.just("news"),
    max=st.sampled_from([0, 1, 3, None]),
    threshold=st.sampled_from([0.0, 0.4]),
    mode=st.sampled_from(["on-demand", "on-demand", "on-line"]),
    policy=st.sampled_from([
        "on-line", "on-demand", "rate", "unified", Forwarding("buffer", 2), Forwarding("unified", 3, "learnt", 7.0)
    ]),
    interrupt=st.sampled_from([None, 0.6]),
    quiet_h=st.sampled_from([None, None, (13.005, 13.01)]),  # the lab begins at 13 h
    at_h=st.sampled_from([(), (), (13.004, 13.015)]),
    per_day=st.sampled_from([None, 0, 2]),
)  # fmt: skip


class Ward:
    """Two phones and a server, and what is done to them."""

    def __init__(self, wanted: Subscription, capacity: int | None = None) -> None:
        self.lab = Lab(seed=3)
        self.world = self.lab.world
        self.server = Publications(self.lab)
        self.wanted = wanted
        self.capacity = capacity
        self.subscribers = {
            name: Subscriber(self.lab.device(name, "umts_3g"), self.server, device_capacity=capacity)
            for name in PHONES
        }
        for each in self.subscribers.values():
            each.subscribe(wanted).result()
        self.processes = {name: each.installed for name, each in self.subscribers.items()}
        self.processes["spool"] = self.server.installed
        self.news = self.server.topic("news")
        self.published: dict[str, tuple[float, float | None]] = {}
        self.fallen: set[str] = set()
        self.thresholds = {name: {wanted.threshold} for name in PHONES}
        self.answers: dict[str, Any] = {}
        self.reads: list[Any] = []
        self.shown: Counter[str] = Counter()
        for name, each in self.subscribers.items():
            each.on_message(lambda _, name=name: self.shown.update([name]))
        self.begun: dict[str, list[Any]] = {name: [] for name in PHONES}
        self.ended: dict[str, set[str]] = {name: set() for name in PHONES}
        self.delivered: Counter[tuple[str, str]] = Counter()
        self.has_read: Counter[tuple[str, str]] = Counter()
        self.world.on_record = self.happened
        self.spy()

    def spy(self) -> None:
        """Look at what the server forwards."""
        process = self.processes["spool"]
        make = process._make
        self.forwarded_expired: list[Any] = []

        def spied(ports: Any) -> Any:
            machine = make(ports)
            handle = machine.handle
            first: set[tuple[str, int]] = set()

            def seen(now_us: int, event: Any) -> Any:
                effects = handle(now_us, event)
                for effect in effects:
                    message = as_wire(effect.message) if type(effect) is Send else {}
                    number = (message.get("stream"), message.get("number"))
                    if message.get("kind") == "stream" and number not in first:
                        first.add(number)
                        body = message["body"]
                        if (body.get("expires_us") or math.inf) <= now_us:
                            self.forwarded_expired.append((now_us, body))
                return effects

            machine.handle = seen
            return machine

        process._make = spied
        process.kill()
        process.start()

    def happened(self, process: Any, effect: Any) -> None:
        row = effect.row
        for what, count in (("delivered_us", self.delivered), ("read_us", self.has_read)):
            if what in row:
                count[row["item"], row["receiver"]] += 1

    def do(self, step: Any) -> None:
        what, at, first, second = step
        self.world.ask_at(at, lambda _: getattr(self, f"do_{what}")(first, second))

    def do_publish(self, rank: float, lasts_s: float | None) -> None:
        name = f"m{len(self.published)}"
        self.published[name] = rank, lasts_s
        self.answers[name] = self.news.publish(name, rank, lasts_s, item=name)

    def do_rerank(self, rank: float, which: int) -> None:
        if self.published:
            name = list(self.published)[which % len(self.published)]
            self.news.rerank(name, rank)
            self.fallen.add(name)

    def do_read(self, name: str, _: None) -> None:
        self.reads.append(self.subscribers[name].read("news"))

    def do_limits(self, name: str, threshold: float) -> None:
        self.subscribers[name].subscribe(replace(self.wanted, threshold=threshold))
        self.thresholds[name].add(threshold)

    def do_again(self, name: str, _: None) -> None:
        """Unsubscribe and subscribe: what came before does not count any more."""
        if self.processes[name].machine is not None:
            self.subscribers[name].unsubscribe("news")
            self.begin(name)

    def do_wipe(self, name: str, _: None) -> None:
        """Let the phone be another one under its name, which begins with nothing."""
        self.lab.faults.wipe(name)
        self.begin(name)

    def begin(self, name: str) -> None:
        begun = self.subscribers[name].subscribe(self.wanted)
        self.begun[name].append(begun)
        begun.add_done_callback(lambda _: self.ended[name].update(self.published))

    def do_outage(self, name: str, lasts_us: int) -> None:
        device = self.lab.devices[name]
        device.link_down("outage")
        self.world.at(self.world.now_us + lasts_us, device.link_up, "outage")

    def do_kill(self, name: str, lasts_us: int) -> None:
        self.processes[name].kill()
        self.world.at(self.world.now_us + lasts_us, self.restart, self.processes[name])

    def do_crash(self, name: str, point: str) -> None:
        process = self.processes[name]

        def kill_at(reached: str) -> None:
            if reached == point:
                process.store.crash_point = lambda name: None
                self.world.at(self.world.now_us + 7 * S, self.restart, process)
                raise Killed

        process.store.crash_point = kill_at

    def do_mangle(self, share: float, _: None) -> None:
        self.share = share
        self.lab.faults.messages(loss_share=share, repeat_share=share, delay_share=share, delay_s=20.0)

    def do_burst(self, _: None, lasts_us: int) -> None:
        self.lab.faults.messages(loss_share=1.0)
        self.world.ask_at(self.world.now_us + lasts_us, lambda _: self.do_mangle(self.share, None))

    def do_move(self, name: str, _: None) -> None:
        self.lab.devices[name].readdress(self.lab.devices[name].next_address())

    def restart(self, process: Any) -> None:
        if process.machine is None:
            process.start()

    def settle(self) -> None:
        self.world.run(300 * S)
        self.lab.faults.messages()
        for process in self.processes.values():
            process.store.crash_point = lambda name: None
            self.restart(process)
        for device in self.lab.devices.values():
            device.link_up("outage")
        self.world.run(1000 * S)
        for subscriber in self.subscribers.values():
            if "news" not in subscriber.queue_sizes().result():  # killed between the two calls
                subscriber.subscribe(self.wanted).result()
        self.world.run(1100 * S)


@pytest.mark.soak
@examples(200)
@given(traffic, faults, st.sampled_from([0.0, 0.2, 0.4]), WANTED, st.sampled_from([None, None, 1, 3]))
def test_what_is_promised(
    traffic: Any, faults: Any, share: float, wanted: Subscription, capacity: int | None
) -> None:
    ward = Ward(wanted, capacity)
    ward.do_mangle(share, None)
    for step in (*traffic, *faults):
        ward.do(step)
    ward.settle()
    assert not ward.forwarded_expired
    assert max(ward.delivered.values(), default=1) == 1
    assert max(ward.has_read.values(), default=1) == 1
    assert set(ward.has_read) <= set(ward.delivered)
    for each in ward.reads:
        if each.status == "ok":
            messages = each.result()
            assert len(messages) <= (math.inf if wanted.max is None else wanted.max)
            assert all(m["rank"] >= min(ward.thresholds[each.process.host.name]) for m in messages)
    for name, subscriber in ward.subscribers.items():
        answer = ward.server.queues(name, "news").result()
        assert answer["on_device"] == subscriber.queue_sizes().result()["news"]
        stored = {key.split("\n")[2] for key, _ in ward.processes[name].store.items("queue\n")}
        spool = ward.processes["spool"].machine
        spooled = spool._subscribers["news"][name].spool
        assert {each.identity for each in spooled.device} == stored
        if capacity is not None:
            assert len(stored) <= capacity
        if wanted.per_day is not None and not ward.begun[name]:
            assert ward.shown[name] <= wanted.per_day
        if capacity is not None or any(each.status != "ok" for each in ward.begun[name]):
            continue
        # Nothing is lost: what still waits is there to be read.
        subscriber.subscribe("news", max=None, threshold=max(ward.thresholds[name])).result()
        subscriber.read("news").result()
        good = {
            item
            for item, (rank, lasts_s) in ward.published.items()
            if rank >= max(ward.thresholds[name]) and lasts_s is None and item not in ward.fallen
        }
        lost = good - ward.ended[name] - {item for item, reader in ward.has_read if reader == name}
        assert not [each for each in lost if ward.answers[each].status == "ok"]


@examples(15)
@given(traffic, faults, WANTED)
def test_the_same_again_is_the_same(traffic: Any, faults: Any, wanted: Subscription) -> None:
    runs = []
    for _ in range(2):
        ward = Ward(wanted, 3)
        ward.do_mangle(0.2, None)
        for step in (*traffic, *faults):
            ward.do(step)
        ward.settle()
        runs.append(ward.lab)
    for table in ("messages", "deliveries", "bill"):
        assert runs[0].trace.table(table).equals(runs[1].trace.table(table))
