"""Continuous reads in a lab while partitions move between processors: nothing is missed, nothing comes twice."""

from __future__ import annotations

from random import Random

from examples import examples
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from mudkit import Lab
from mudkit.events import Received
from mudkit.systems import mud
from mudkit.systems.mud.device import registrations
from mudkit.systems.mud.messages.partitions import write_partitions

KEYS = "abhpqr"
SPLIT = ("g", "q")
PARTITIONS = len(SPLIT) + 1
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.sampled_from(KEYS), st.sampled_from([1, 2, 3])),
        st.tuples(st.just("delete"), st.sampled_from(KEYS)),
        st.tuples(st.just("move"), st.integers(0, PARTITIONS - 1), st.integers(0, 1)),
        st.tuples(st.just("assign"), st.integers(0, 3)),
        st.tuples(st.just("restart"), st.sampled_from(["device", "processor"])),
        st.tuples(st.just("cut")),
        st.tuples(st.just("wait"), st.sampled_from([0.0, 0.02, 0.3, 5.0, 60.0])),
    ),
    max_size=14,
)


class Screen:
    """Records of a continuous read as its application shows them, by the changes of which it was notified."""

    def __init__(self):
        self.records, self.versions = {}, {}

    def show(self, change):
        """Apply a change; one that comes twice, or after a later one, is an error."""
        before = self.versions.get(change.key, (0, ""))
        after = change.version or before[0], change.kind
        assert after[0] >= before[0], (change, before)
        assert after != before, change
        self.versions[change.key] = after
        if change.kind == "remove":
            del self.records[change.key]
        else:
            self.records[change.key] = change.record


class Run:
    """Lab with a writer, a reader of all records, of a window and of aggregates, and two processors."""

    def __init__(self, sync, seed, has_delays):
        self.lab = Lab(seed=5)
        self.cloud = mud.Cloud(self.lab, processors=2, gateways=2, notification_servers=1)
        self.ann, self.bob = (
            mud.Client(self.lab.device(name), self.cloud, app="a", token=self.lab.token(name, "a"))
            for name in ("ann", "bob")
        )
        self.ann.create("t", split=SPLIT).result()
        self.screen, self.window, self.counts = Screen(), {}, []
        self.read = self.bob.read(
            "t", "n < 3", "continuous", sync_timestamp=sync, callback=self.screen.show
        ).result()
        self.first = self.bob.read(
            "t", type="continuous", sync_timestamp=0, order="n DESC", limit=2, callback=self.show_window
        ).result()
        self.count = self.bob.read(
            "t",
            type="continuous",
            sync_timestamp=0,
            aggregate="count(*), sum(n)",
            callback=self.counts.append,
        ).result()
        self.servers = [*self.cloud.processors, *self.cloud.gateways]
        self.moved, self.epoch, self.draw = {}, 0, Random(seed)
        self.records, self.writes = {}, []
        if has_delays:
            self.lab.faults.messages(loss_share=0.03, repeat_share=0.05, delay_share=0.3, delay_s=2.0)

    def show_window(self, change):
        if change.kind == "remove":
            del self.window[change.key]
        else:
            self.window[change.key] = change.record
        assert len(self.window) <= 2

    def assign(self, server):
        """Send a server the assignments."""
        (table,) = self.lab.world.hosts["mud-store"].processes[0].machine._copy.tables.values()
        moved = [
            (table.number, write_partitions([partition]), processor)
            for partition, processor in self.moved.items()
        ]
        installed = self.lab.world.at_address[self.cloud.naming].machine.ranges.present
        event = Received(self.cloud.naming, replace(installed, epoch=self.epoch, moved=moved), "mud-names")
        self.lab.world._handle(self.lab.world.hosts[server.split("/")[0]].processes[0], event)

    def restart(self, host):
        """Kill a host and start it again."""
        self.lab.faults.kill(host)
        self.lab.run(seconds=1)
        self.lab.faults.restart(host)
        if host == "bob":
            self.bob.listen(self.read, self.screen.show)
            self.bob.listen(self.first, self.show_window)
            self.bob.listen(self.count, self.counts.append)

    def do(self, step):
        """Carry out a step; some of the servers hear of a move at once, the others later."""
        kind, *arguments = step
        if kind == "write":
            key, number = arguments
            self.records[key] = {"n": number}
            self.writes.append(self.ann.write("t", key, {"n": number}))
        elif kind == "delete":
            self.records.pop(arguments[0], None)
            self.writes.append(self.ann.delete("t", arguments[0]))
        elif kind == "move":
            partition, processor = arguments
            self.moved[partition] = self.cloud.processors[processor]
            self.epoch += 1
            for server in self.draw.sample(self.servers, self.draw.randint(0, 4)):
                self.assign(server)
                self.lab.run(seconds=self.draw.choice([0.0, 0.01, 0.2]))
        elif kind == "assign" and self.epoch:
            self.assign(self.servers[arguments[0]])
        elif kind == "restart":
            role = arguments[0]
            processor = self.cloud.processors[self.draw.randrange(2)].split("/")[0]
            self.restart("bob" if role == "device" else processor)
        elif kind == "cut":
            self.lab.faults.cut("bob", minutes=0.3)
        elif kind == "wait":
            self.lab.run(seconds=arguments[0])

    def end(self):
        """Send all servers the assignments, and wait until everything has come."""
        self.lab.faults.messages()
        for server in self.servers if self.epoch else ():
            self.assign(server)
        self.lab.run(minutes=15)


@examples(30)
@given(st.sampled_from([None, 0]), STEPS, st.integers(0, 9), st.booleans(), st.booleans())
@example(
    0, [("write", key, 1) for key in KEYS] + [("move", 0, 0), ("wait", 0.02), ("write", "a", 3), ("move", 2, 0)],
    1, True, True,
)  # fmt: skip
def test_reads_follow_partitions_that_move(sync, steps, seed, has_delays, has_digests):
    named = registrations.MAX_NAMED_KEYS
    registrations.MAX_NAMED_KEYS = 0 if has_digests else named
    try:
        run = Run(sync, seed, has_delays)
        for step in steps:
            run.do(step)
        run.end()
    finally:
        registrations.MAX_NAMED_KEYS = named
    assert all(write.status == "ok" for write in run.writes)
    matching = {key: record for key, record in run.records.items() if record["n"] < 3}
    assert run.screen.records == matching
    in_order = sorted(run.records, key=lambda key: (-run.records[key]["n"], key))
    assert run.window == {key: run.records[key] for key in in_order[:2]}
    numbers = [record["n"] for record in run.records.values()]
    if run.counts or numbers:
        assert run.counts[-1]["count(*)"] == len(numbers)
        assert run.counts[-1]["sum(n)"] == (sum(numbers) if numbers else None)
    assert all(handle.synced for handle in (run.read, run.first, run.count))
