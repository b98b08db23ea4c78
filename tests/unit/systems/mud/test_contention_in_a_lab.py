"""Ten devices that count in one record: increments against conditional writes, as the guide has them."""

from __future__ import annotations

from pathlib import Path

import pytest
from mud_place import Place

from mudkit.systems import mud

GUIDE = Path(__file__).parents[4] / "docs" / "guides" / "mud.md"
DEVICES, SECONDS = 10, 60


def increment(client):
    return client.increment("t", "k", "n")


class Merging:
    """Counter of one device by conditional writes: a conflict has the record, which is written again."""

    def __init__(self):
        self.version, self.count = 1, 0

    def __call__(self, client):
        return client.write("t", "k", {"n": self.count + 1}, "conditional", version=self.version)

    def learn(self, operation):
        try:
            self.version, self.count = operation.result(), self.count + 1
        except mud.Conflict as conflict:
            self.version, self.count = conflict.store["ver"], conflict.store["data"]["n"]


def count_together(kind):
    """Return the writes per second that came through, and the bytes and J of all devices for each."""
    place = Place()
    clients = [place.client(f"d{number}") for number in range(DEVICES)]
    clients[0].create("t").result()
    clients[0].write("t", "k", {"n": 0}).result()
    place.lab.run(seconds=60)
    lab, committed = place.lab, []
    ends_us = lab.world.now_us + SECONDS * 1_000_000

    def measure_bill():
        bill = lab.bill()
        bill = bill[bill["device"].str.match(r"d\d")]
        return bill["bytes"].sum(), bill["radio_mj"].sum() / 1000

    def begin(client, write):
        def continue_counting(operation):
            if isinstance(write, Merging):
                write.learn(operation)
            if operation.status == "ok":
                committed.append(operation.result())
            if lab.world.now_us < ends_us:
                write(client).add_done_callback(continue_counting)

        write(client).add_done_callback(continue_counting)

    before = measure_bill()
    for client in clients:
        begin(client, increment if kind == "increment" else Merging())
    lab.run(seconds=SECONDS + 30)
    cost_bytes, energy_j = (after - then for after, then in zip(measure_bill(), before, strict=True))
    (record,) = clients[0].read("t", latest=True).result().records.values()
    assert record["n"] == len(committed) == len(set(committed)), "each counts once"
    count = len(committed)
    return f"{count / SECONDS:.1f} | {cost_bytes / count:,.0f} | {energy_j / count:.2f}"


@pytest.mark.parametrize(
    ("row", "kind"), [("`increment`", "increment"), ("conditional, merged after a conflict", "conditional")]
)
def test_counting_together_costs_what_the_guide_says(row, kind):
    assert f"| {row} | {count_together(kind)} |" in GUIDE.read_text(encoding="utf-8")
