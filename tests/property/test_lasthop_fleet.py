"""Guarantees of last hop on a fleet under outages, loss, duplication, moves, wipes and restarts."""

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
from mudkit.systems.lasthop import Forwarding, Publications, Publisher, Subscriber, Subscription
from mudkit.wire import as_wire

S = 1_000_000
PHONES = ("ann", "bob")
STATION = "station"
"""Device of a publisher; what it has published before a wipe is lost if it waits there."""
POINTS = ("before commit", "after commit")
moments = st.integers(0, 60 * S)
RANKS = st.sampled_from([0.0, 0.3, 0.5, 0.7, 1.0])
_PHONE, _DURATION = st.sampled_from(PHONES), st.sampled_from([1, S, 3 * S, 20 * S])
_DEVICE, _MACHINE = st.sampled_from((*PHONES, STATION)), st.sampled_from((*PHONES, STATION, "spool"))
traffic = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), moments, RANKS, st.sampled_from([None, None, None, 2.0, 40.0])),
        st.tuples(st.just("publish"), moments, RANKS, st.none()),
        st.tuples(st.just("rerank"), moments, RANKS, st.integers(0, 20)),
        st.tuples(st.just("read"), moments, _PHONE, st.none()),
    ),
    min_size=5,
    max_size=40,
)
faults = st.lists(
    st.one_of(
        st.tuples(st.just("outage"), moments, _DEVICE, _DURATION),
        st.tuples(st.just("outage"), moments, _DEVICE, _DURATION),
        st.tuples(st.just("kill"), moments, _MACHINE, _DURATION),
        st.tuples(st.just("crash"), moments, _MACHINE, st.sampled_from(POINTS)),
        st.tuples(st.just("mangle"), moments, st.sampled_from([0.0, 0.2, 0.5]), st.none()),
        st.tuples(st.just("burst"), moments, st.none(), st.sampled_from([S // 2, 5 * S, 30 * S])),
        st.tuples(st.just("move"), moments, _DEVICE, st.none()),
        st.tuples(st.just("wipe"), moments, _PHONE, st.none()),
        st.tuples(st.just("limits"), moments, _PHONE, RANKS),
        st.tuples(st.just("again"), moments, _PHONE, st.none()),
    ),
    max_size=20,
)
SUBSCRIPTIONS = st.builds(
    Subscription,
    st.just("news"),
    max=st.sampled_from([0, 1, 3, None]),
    threshold=st.sampled_from([0.0, 0.4]),
    mode=st.sampled_from(["on-demand", "on-demand", "on-line"]),
    policy=st.sampled_from([
        "on-line", "on-demand", "rate", "unified", Forwarding("buffer", 2), Forwarding("unified", 3, "learnt", 7.0)
    ]),
    interrupt=st.sampled_from([None, 0.6]),
    quiet_h=st.sampled_from([None, None, (13.005, 13.01)]),  # the lab starts at 13 h
    at_h=st.sampled_from([(), (), (13.004, 13.015)]),
    per_day=st.sampled_from([None, 0, 2]),
)  # fmt: skip


class Ward:
    """Two phones, a server and a publisher there or on a device, and the faults that are injected into them."""

    def __init__(
        self, subscription: Subscription, capacity: int | None = None, *, is_on_device: bool = False
    ) -> None:
        self.lab = Lab(seed=3)
        self.world = self.lab.world
        self.server = Publications(self.lab)
        self.subscription = subscription
        self.capacity = capacity
        self.subscribers = {
            name: Subscriber(self.lab.device(name, "umts_3g"), self.server, device_capacity=capacity)
            for name in PHONES
        }
        for subscriber in self.subscribers.values():
            subscriber.subscribe(subscription).result()
        self.processes = {name: subscriber.installed for name, subscriber in self.subscribers.items()}
        self.processes["spool"] = self.server.installed
        station = Publisher(self.lab.device(STATION, "lte"), self.server)
        self.processes[STATION] = station.installed
        self.news = (station if is_on_device else self.server).topic("news")
        self.published: dict[str, tuple[float, float | None]] = {}
        self.reranked: set[str] = set()
        self.thresholds = {name: {subscription.threshold} for name in PHONES}
        self.answers: dict[str, Any] = {}
        self.reads: list[Any] = []
        self.shown: Counter[str] = Counter()
        for name, subscriber in self.subscribers.items():
            subscriber.on_message(lambda _, name=name: self.shown.update([name]))
        self.resubscriptions: dict[str, list[Any]] = {name: [] for name in PHONES}
        self.published_before: dict[str, set[str]] = {name: set() for name in PHONES}
        self.delivered: Counter[tuple[str, str]] = Counter()
        self.read_counts: Counter[tuple[str, str]] = Counter()
        self.world.on_record = self.count_record
        self.record_expired()

    def record_expired(self) -> None:
        """Record the expired messages that the server forwards."""
        process = self.processes["spool"]
        make = process._make
        self.forwarded_expired: list[Any] = []

        def make_spy(ports: Any) -> Any:
            machine = make(ports)
            handle = machine.handle
            known: set[tuple[str, int]] = set()

            def handle_and_record(now_us: int, event: Any) -> Any:
                effects = handle(now_us, event)
                for effect in effects:
                    message = as_wire(effect.message) if type(effect) is Send else {}
                    number = (message.get("stream"), message.get("number"))
                    if message.get("kind") == "stream" and number not in known:
                        known.add(number)
                        body = message["body"]
                        if (body.get("expires_us") or math.inf) <= now_us:
                            self.forwarded_expired.append((now_us, body))
                return effects

            machine.handle = handle_and_record
            return machine

        process._make = make_spy
        process.kill()
        process.start()

    def count_record(self, process: Any, effect: Any) -> None:
        row = effect.row
        for column, count in (("delivered_us", self.delivered), ("read_us", self.read_counts)):
            if column in row:
                count[row["item"], row["receiver"]] += 1

    def do(self, step: Any) -> None:
        action, at_us, first, second = step
        self.world.schedule_call(at_us, lambda _: getattr(self, f"do_{action}")(first, second))

    def do_publish(self, rank: float, lifetime_s: float | None) -> None:
        name = f"m{len(self.published)}"
        if self.news.installed.machine is None:
            return
        self.published[name] = rank, lifetime_s
        self.answers[name] = self.news.publish(name, rank, lifetime_s, item=name)

    def do_rerank(self, rank: float, index: int) -> None:
        if self.published and self.news.installed.machine is not None:
            name = list(self.published)[index % len(self.published)]
            self.news.rerank(name, rank)
            self.reranked.add(name)

    def do_read(self, name: str, _: None) -> None:
        self.reads.append(self.subscribers[name].read("news"))

    def do_limits(self, name: str, threshold: float) -> None:
        self.subscribers[name].subscribe(replace(self.subscription, threshold=threshold))
        self.thresholds[name].add(threshold)

    def do_again(self, name: str, _: None) -> None:
        """Unsubscribe and subscribe; earlier messages need not arrive."""
        if self.processes[name].machine is not None:
            self.subscribers[name].unsubscribe("news")
            self.resubscribe(name)

    def do_wipe(self, name: str, _: None) -> None:
        """Restart the phone with an empty store, as another incarnation."""
        self.lab.faults.wipe(name)
        self.resubscribe(name)

    def resubscribe(self, name: str) -> None:
        operation = self.subscribers[name].subscribe(self.subscription)
        self.resubscriptions[name].append(operation)
        operation.add_done_callback(lambda _: self.published_before[name].update(self.published))

    def do_outage(self, name: str, duration_us: int) -> None:
        device = self.lab.devices[name]
        device.link_down("outage")
        self.world.schedule_action(self.world.now_us + duration_us, device.link_up, "outage")

    def do_kill(self, name: str, duration_us: int) -> None:
        self.processes[name].kill()
        self.world.schedule_action(self.world.now_us + duration_us, self.restart, self.processes[name])

    def do_crash(self, name: str, point: str) -> None:
        process = self.processes[name]

        def kill_at(reached: str) -> None:
            if reached == point:
                process.store.crash_point = lambda name: None
                self.world.schedule_action(self.world.now_us + 7 * S, self.restart, process)
                raise Killed

        process.store.crash_point = kill_at

    def do_mangle(self, share: float, _: None) -> None:
        self.share = share
        self.lab.faults.messages(loss_share=share, repeat_share=share, delay_share=share, delay_s=20.0)

    def do_burst(self, _: None, duration_us: int) -> None:
        self.lab.faults.messages(loss_share=1.0)
        self.world.schedule_call(self.world.now_us + duration_us, lambda _: self.do_mangle(self.share, None))

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
                subscriber.subscribe(self.subscription).result()
        self.world.run(1100 * S)


@pytest.mark.soak
@examples(200)
@given(
    traffic,
    faults,
    st.sampled_from([0.0, 0.2, 0.4]),
    SUBSCRIPTIONS,
    st.sampled_from([None, None, 1, 3]),
    st.booleans(),
)
def test_guarantees_hold_under_faults(
    traffic: Any,
    faults: Any,
    share: float,
    subscription: Subscription,
    capacity: int | None,
    is_on_device: bool,
) -> None:
    ward = Ward(subscription, capacity, is_on_device=is_on_device)
    ward.do_mangle(share, None)
    for step in (*traffic, *faults):
        ward.do(step)
    ward.settle()
    assert not ward.forwarded_expired
    assert max(ward.delivered.values(), default=1) == 1
    assert max(ward.read_counts.values(), default=1) == 1
    assert set(ward.read_counts) <= set(ward.delivered)
    for operation in ward.reads:
        if operation.status == "ok":
            messages = operation.result()
            assert len(messages) <= (math.inf if subscription.max is None else subscription.max)
            assert all(m["rank"] >= min(ward.thresholds[operation.process.host.name]) for m in messages)
    for name, subscriber in ward.subscribers.items():
        answer = ward.server.queues(name, "news").result()
        assert answer["on_device"] == subscriber.queue_sizes().result()["news"]
        stored = {key.split("\n")[2] for key, _ in ward.processes[name].store.items("queue\n")}
        spool = ward.processes["spool"].machine
        spooled = spool._subscribers["news"][name].spool
        assert {message.identity for message in spooled.device} == stored
        if capacity is not None:
            assert len(stored) <= capacity
        if subscription.per_day is not None and not ward.resubscriptions[name]:
            assert ward.shown[name] <= subscription.per_day
        if capacity is not None or any(operation.status != "ok" for operation in ward.resubscriptions[name]):
            continue
        # Nothing is lost: waiting messages can still be read.
        subscriber.subscribe("news", max=None, threshold=max(ward.thresholds[name])).result()
        subscriber.read("news").result()
        expected = {
            item
            for item, (rank, lifetime_s) in ward.published.items()
            if rank >= max(ward.thresholds[name]) and lifetime_s is None and item not in ward.reranked
        }
        lost = (
            expected
            - ward.published_before[name]
            - {item for item, reader in ward.read_counts if reader == name}
        )
        assert not [item for item in lost if ward.answers[item].status == "ok"]


@examples(15)
@given(traffic, faults, SUBSCRIPTIONS)
def test_same_steps_give_the_same_run(traffic: Any, faults: Any, subscription: Subscription) -> None:
    runs = []
    for _ in range(2):
        ward = Ward(subscription, 3, is_on_device=True)
        ward.do_mangle(0.2, None)
        for step in (*traffic, *faults):
            ward.do(step)
        ward.settle()
        runs.append(ward.lab)
    for table in ("messages", "deliveries", "bill"):
        assert runs[0].trace.table(table).equals(runs[1].trace.table(table))
