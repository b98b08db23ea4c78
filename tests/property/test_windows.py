"""Windows of continuous reads in a lab against a plain sort and cut, after writes, faults and other reader data."""

from __future__ import annotations

from examples import examples
from hypothesis import example, given
from hypothesis import strategies as st

from mudkit import Lab
from mudkit.systems import mud
from mudkit.systems.mud.device import registrations
from mudkit.systems.mud.tables.selection import Selection

KEYS = "abhpqr"
ORDERS = st.sampled_from([None, "n", "n DESC"])
NUMBERS = st.sampled_from([1, 2, 3, None])
GROUPS = st.sampled_from(["x", "y"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.sampled_from(KEYS), NUMBERS, GROUPS | st.none()),
        st.tuples(st.just("delete"), st.sampled_from(KEYS)),
        st.tuples(st.just("data"), GROUPS),
        st.tuples(st.just("remove column")),
        st.tuples(st.just("restart"), st.sampled_from(["device", "processor", "server"])),
        st.tuples(st.just("cut")),
        st.tuples(st.just("wait"), st.sampled_from([0.05, 5.0, 60.0])),
    ),
    max_size=12,
)


class Screen:
    """Window as an application shows it, by the changes of which it was notified."""

    def __init__(self, limit):
        self.limit, self.records, self.changes = limit, {}, []

    def show(self, change):
        self.changes.append(change)
        if change.kind == "remove":
            del self.records[change.key]
        else:
            self.records[change.key] = change.record
        assert len(self.records) <= self.limit


class Run:
    """Lab with a writer and a reader of a window."""

    def __init__(self, where, columns, order, limit):
        self.lab = Lab(seed=5)
        self.cloud = mud.Cloud(self.lab, processors=2, gateways=1, notification_servers=1)
        self.ann, self.bob = (
            mud.Client(self.lab.device(name), self.cloud, app="a", token=self.lab.token(name, "a"))
            for name in ("ann", "bob")
        )
        self.where, self.writer = where, self.ann if where == "cloud" else self.bob
        split = ("g", "q") if where == "cloud" else ()
        self.writer.create("t", split=split, where=where).result()
        self.records, self.group, self.writes, self.is_removed = {}, "x", [], False
        self.selection = Selection.parse(columns, order, limit)
        self.screen = Screen(limit)
        read = self.bob.read(
            "t", "n IS NULL OR n < 3", "continuous", {"group": "x"}, callback=self.screen.show,
            columns=columns, order=order, limit=limit,
        )  # fmt: skip
        self.handle = read.result()
        self.hosts = {
            "device": "bob",
            **{role: next(name for name in self.lab.world.hosts if role in name) for role in ("processor",)},
            "server": self.cloud.notification_servers[0].split("/")[0],
        }

    def do(self, step):
        """Carry out a step."""
        kind, *arguments = step
        if kind == "write":
            key, number, group = arguments
            record = {"w": "wide", **({} if number is None else {"n": number})}
            shown = {"w": "wide"} if self.is_removed else record
            hidden = None if group is None else f"receiver.group = '{group}'"
            self.records[key] = shown, group
            self.writes.append(self.writer.write("t", key, record, predicate=hidden))
            self.lab.run(seconds=0.5)  # one after the other
        elif kind == "delete":
            self.records.pop(arguments[0], None)
            self.writes.append(self.writer.delete("t", arguments[0]))
            self.lab.run(seconds=0.5)
        elif kind == "data":
            (self.group,) = arguments
            self.bob.update_data(self.handle, {"group": self.group})
        elif kind == "remove column":
            self.is_removed = True
            self.writer.alter("t", remove=["n"]).result()
            self.records = {
                key: ({name: value for name, value in record.items() if name != "n"}, group)
                for key, (record, group) in self.records.items()
            }
        elif kind == "restart":
            host = self.hosts[arguments[0]]
            self.lab.faults.kill(host)
            self.lab.run(seconds=1)
            self.lab.faults.restart(host)
            self.bob.listen(self.handle, self.screen.show)
        elif kind == "cut":
            self.lab.faults.cut("bob", minutes=0.3)
        else:
            self.lab.run(seconds=arguments[0])

    def expected(self):
        """Return the records of the window, by a plain sort and cut."""
        visible = {
            key: (record, record)
            for key, (record, group) in self.records.items()
            if group in (None, self.group) and record.get("n", 0) < 3
        }
        cut = self.selection.cut(visible)
        return {key: self.selection.columns_of(record) for key, record in cut.items()}


@examples(30)
@given(
    st.sampled_from(["cloud", "device"]),
    st.sampled_from([None, ["w"], ["n"]]),
    ORDERS,
    st.integers(1, 3),
    STEPS,
    st.booleans(),
)
@example(
    "cloud", ["w"], "n DESC", 2,
    [("write", key, number, None) for key, number in zip(KEYS, (1, 2, 1, 2, 1, 2), strict=True)]
    + [("restart", "processor"), ("wait", 60.0), ("delete", "b"), ("cut",), ("delete", "p")],
    True,
)  # fmt: skip
def test_window_is_the_first_of_what_its_reader_may_see(where, columns, order, limit, steps, has_digests):
    named = registrations.MAX_NAMED_KEYS
    registrations.MAX_NAMED_KEYS = 0 if has_digests else named
    try:
        run = Run(where, columns, order, limit)
        for step in steps:
            run.do(step)
        run.lab.run(minutes=10)
    finally:
        registrations.MAX_NAMED_KEYS = named
    assert all(write.status == "ok" for write in run.writes if write.status != "lost")
    assert run.screen.records == run.expected()
    assert run.bob.await_synced(run.handle).done()
