"""Own writes in one's own continuous reads, against what the store has and what is pending, after any faults.

Rule (module docstring of ``device/read_records.py``): what is shown is what the reader may see in the store, with own
pending writes over it; a pending change is followed by one that is not.
"""

from __future__ import annotations

from examples import examples
from hypothesis import example, given
from hypothesis import strategies as st

from mudkit import Lab
from mudkit.systems import mud
from mudkit.systems.mud.policies.policies import NEVER

HELD_KEY = "q"
"""Key whose writes stay on the device."""
KEYS = st.sampled_from(["a", "h", HELD_KEY])
NUMBERS = st.sampled_from([1, 2, 3])
GROUPS = st.sampled_from(["x", "y"])
WHERE = "n < 3"
OWN_WRITES = st.one_of(
    st.tuples(st.just("write"), KEYS, NUMBERS, GROUPS | st.none(), st.sampled_from(["blind", "conditional"])),
    st.tuples(st.just("delete"), KEYS, st.sampled_from(["blind", "conditional"])),
    st.tuples(st.just("increment"), st.sampled_from("ah")),
    st.tuples(st.just("cancel")),
)
STEPS = st.lists(
    st.one_of(
        OWN_WRITES,
        st.tuples(st.just("other"), KEYS, NUMBERS | st.none(), GROUPS | st.none()),
        st.tuples(st.just("kill"), st.sampled_from(["device", "processor", "server"])),
        st.tuples(st.just("cut"), st.sampled_from([0.3, 5.0])),
        st.tuples(st.just("wait"), st.sampled_from([0.01, 0.1, 1.0, 60.0])),
    ),
    max_size=14,
)


class Held:
    """Write policy that keeps the writes of one key."""

    def delay(self, write, context):
        return NEVER if write["key"] == HELD_KEY else None


class Screen:
    """Records as an application shows them by the changes of which it was notified."""

    def __init__(self):
        self.shown, self.last, self.ids = {}, {}, set()

    def show(self, change):
        if change.id in self.ids:
            return  # a kill may repeat it
        self.ids.add(change.id)
        key = change.key
        assert change.is_pending == (change.version is None)
        if change.kind == "upsert":
            assert change.is_new == (key not in self.shown)
            self.shown[key] = change.record
        else:
            assert key in self.shown or self.last[key].is_pending
            self.shown.pop(key, None)
        self.last[key] = change


class Run:
    """Lab with an application that writes and reads, and another writer."""

    def __init__(self, columns):
        self.lab = Lab(seed=5)
        self.cloud = mud.Cloud(self.lab, processors=2, gateways=1, notification_servers=1)
        self.ann, self.bob = (
            mud.Client(
                self.lab.device(name),
                self.cloud,
                app="a",
                token=self.lab.token(name, "a"),
                write_policy=policy,
            )
            for name, policy in (("ann", Held()), ("bob", None))
        )
        self.ann.create("t", split=["g"]).result()
        self.columns, self.screen, self.last = columns, Screen(), None
        self.read = self.ann.read(
            "t", WHERE, "continuous", {"group": "x"}, sync_timestamp=0, callback=self.screen.show,
            columns=columns,
        ).result()  # fmt: skip
        self.hosts = {
            "device": "ann",
            "processor": next(name for name in self.lab.world.hosts if "processor" in name),
            "server": self.cloud.notification_servers[0].split("/")[0],
        }

    def do(self, step):
        """Carry out a step."""
        kind, *arguments = step
        if kind == "write":
            key, n, group, how = arguments
            hidden = None if group is None else f"receiver.group = '{group}'"
            self.last = self.ann.write("t", key, {"n": n, "by": "ann"}, how, hidden)
        elif kind == "delete":
            self.last = self.ann.delete("t", *arguments)
        elif kind == "increment":
            self.last = self.ann.increment("t", arguments[0], "n", create=True)
        elif kind == "cancel":
            if self.last is not None:
                self.last.cancel()
        elif kind == "other":
            key, n, group = arguments
            if n is None:
                self.bob.delete("t", key)
            else:
                hidden = None if group is None else f"receiver.group = '{group}'"
                self.bob.write("t", key, {"n": n, "by": "bob"}, predicate=hidden)
        elif kind == "kill":
            host = self.hosts[arguments[0]]
            self.lab.faults.kill(host)
            self.lab.run(seconds=0.1)
            self.lab.faults.restart(host)
        elif kind == "cut":
            self.lab.faults.cut("ann", minutes=arguments[0])
        else:
            self.lab.run(seconds=arguments[0])

    def expected(self):
        """Return the records of the read: those of the store, with pending writes over them."""
        stored = self.bob.read("t", WHERE, data={"group": "x"}, columns=self.columns, latest=True).result()
        records = dict(stored.records)
        pending = {write["key"]: write for write in self.ann.pending().result()}
        assert pending.keys() <= {HELD_KEY}
        for key, write in pending.items():
            hidden = write.get("predicate") is not None and "'y'" in write["predicate"]["text"]
            records.pop(key, None)
            if write["data"] is not None and write["data"]["n"] < 3 and not hidden:
                names = self.columns or write["data"]
                records[key] = {name: write["data"][name] for name in names}
        return records, pending


@examples(40)
@given(st.sampled_from([None, ["n"]]), STEPS)
@example(None, [("write", "a", 1, None, "blind"), ("kill", "device"), ("wait", 60.0)])
@example(None, [("other", "a", 1, None), ("wait", 1.0), ("write", "a", 2, None, "conditional")])
@example(
    None, [("write", "q", 1, None, "blind"), ("other", "q", 2, None), ("wait", 60.0), ("kill", "device")]
)
@example(None, [("write", "q", 1, "y", "blind"), ("other", "q", 2, None), ("wait", 60.0), ("cancel",)])
@example(["n"], [("cut", 5.0), ("wait", 1.0), ("write", "a", 1, None, "blind"), ("delete", "a", "blind")])
def test_shown_is_what_the_store_has_with_pending_writes_over_it(columns, steps):
    run = Run(columns)
    for step in steps:
        run.do(step)
        snapshot = run.read.snapshot()
        run.lab.run(seconds=0)
        assert snapshot.records == run.screen.shown
    run.lab.run(minutes=10)
    expected, pending = run.expected()
    assert run.screen.shown == expected == run.read.snapshot().records
    assert {key for key, change in run.screen.last.items() if change.is_pending} <= pending.keys()
