"""Links of 1 kB/s, and pages that are lost or late."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from mudkit import Lab
from mudkit.sources import LinkReplay
from mudkit.systems.contrail import Item, Module, Relay

START = dt.datetime(2010, 3, 1, 13, tzinfo=dt.UTC)
ROWS = 2 * 3600 // 30


def slow_link():
    return LinkReplay(
        pa.table({
            "device": ["x"] * ROWS,
            "ts": pa.array([START + dt.timedelta(seconds=30 * row) for row in range(ROWS)], pa.timestamp("us", "UTC")),
            "up": [True] * ROWS,
            "down_kbps": [8.0] * ROWS,
            "up_kbps": [8.0] * ROWS,
            "latency_ms": [2000.0] * ROWS,
        })
    )  # fmt: skip


class Setup:
    """Ann publishes what Bob's filter accepts; Bob's link may be slow."""

    def __init__(self, slow=False):
        self.lab = Lab(seed=1)
        relay = Relay(self.lab)
        link = slow_link() if slow else "ideal"
        ann = Module(self.lab.device("ann", link="ideal"), relay, friends=["bob"])
        bob = Module(self.lab.device("bob", link=link), relay, friends=["ann"])
        self.source, self.sink = ann.open_port("p"), bob.open_port("p")
        self.received = []
        self.sink.on_item(lambda item: self.received.append(item.payload[:3]))
        self.sink.install_filter("x > 0", to=("ann", "p")).result(timeout_s=900)
        self.lab.run(minutes=10)

    def publish(self, count, size):
        for number in range(count):
            self.source.publish(Item({"x": 1}, b"%03d" % number + b"y" * size))

    def bytes_of_bob(self):
        bill = self.lab.bill()
        return int(bill[bill.device == "bob"].bytes.sum())

    def messages(self, kind):
        messages = self.lab.frame("messages")
        return messages[messages.kind == kind]


@pytest.mark.parametrize(("count", "size"), [(12, 20_000), (1, 60_000)])
def test_each_item_crosses_a_slow_link_about_once(count, size):
    setup = Setup(slow=True)
    before = setup.bytes_of_bob()
    setup.publish(count, size)
    setup.lab.run(minutes=20)
    assert setup.received == [b"%03d" % number for number in range(count)]
    assert setup.bytes_of_bob() - before < 1.7 * count * size


def test_timeout_adapts_to_the_time_of_the_last_page():
    setup = Setup(slow=True)
    setup.publish(12, 20_000)
    setup.lab.run(minutes=20)
    probes, pages = setup.messages("probe"), setup.messages("deliver")
    long = pages[pages.size_bytes > 20_000]
    assert len(long) > 4
    assert probes.sent.max() < long.ended.iloc[0]  # the pages after the first are waited for


def test_lost_page_is_requested_again_when_a_probe_is_answered():
    setup = Setup()
    deliver = setup.lab.world.fault_hook

    def lose_first_page(transfer):
        if type(transfer.message).__name__ == "Deliver" and transfer.message.page:
            setup.lab.world.fault_hook = deliver
            return ()
        return (0,)

    setup.lab.world.fault_hook = lose_first_page
    setup.publish(1, 1000)
    setup.lab.run(minutes=1)
    assert setup.received == [b"000"]
    assert len(setup.messages("probe")) == 1


def test_page_that_comes_late_counts_and_starts_no_second_chain_of_requests():
    setup = Setup()

    def delay_pages(transfer):
        is_page = type(transfer.message).__name__ == "Deliver" and transfer.message.page
        return (45_000_000,) if is_page else (0,)

    setup.lab.world.fault_hook = delay_pages
    setup.publish(3, 1000)
    setup.lab.run(seconds=50)
    assert setup.received == [b"000", b"001", b"002"]
    setup.lab.world.fault_hook = None
    setup.lab.run(minutes=30)
    pages = setup.messages("deliver")
    assert len(setup.received) == 3
    assert (pages.size_bytes > 3000).sum() == 2 + 1  # the first, and those requested after two probes
