"""Batches at the back end, with kills at any point and repeated messages, against a model of a few lines.

Rule (table of ``servers/backend.py``): the parts are judged on the records before the batch; all are stored as
consecutive entries of the log, or none; each copy of a batch has the same outcome.
"""

from __future__ import annotations

from itertools import count

from examples import examples
from hypothesis import example, given
from hypothesis import strategies as st
from mud_machines import build_message, sent

from mudkit.delivery.session import last_incarnation
from mudkit.events import LinkUp, Ports, Received, Record
from mudkit.fleet.store import Killed, MemoryStore
from mudkit.systems.mud.messages.parts import Row
from mudkit.systems.mud.servers.backend import BackEnd

KINDS = ("write", "delete", "right version", "wrong version", "add")
PARTS = st.lists(st.tuples(st.sampled_from("abcz"), st.sampled_from(KINDS)), min_size=1, max_size=4)
STEPS = st.lists(st.tuples(PARTS, st.integers(0, 5), st.integers(1, 3)), max_size=12)
"""Batches, each with the crash point at which it is killed first (0: none), and the number of its copies."""
OWNER = {"app": "news", "user": None, "device": None, "expires_s": 1e9}


class Master:
    """Back end that is killed and restarted; its handled events are committed."""

    def __init__(self):
        self.store, self.starts, self.lives = MemoryStore(), count(1), 0
        self.logs = []
        """Entries of each message to a follower."""
        self.start()
        self.handle("gateway", "create", id="1", properties={"split": ["m"]}, claims=OWNER)

    def start(self):
        name = next(self.starts)
        self.lives += 1
        ports = Ports(self.store, lambda n: name.to_bytes(n, "big"), "here")
        self.machine = BackEnd(
            ports, ["gateway"], ["processor"], ["replica"], ["server"], "naming", keep_deleted_us=10**12
        )

    def handle(self, source, kind, kill_at=0, **message):
        """Handle a message, or be killed; return the messages to others than followers."""
        passed = count(1)

        def reach_point(name):
            if next(passed) == kill_at:
                raise Killed

        self.store.crash_point = reach_point
        incarnation = last_incarnation(self.store.get("lineage") or {})
        start = {"start": incarnation} if incarnation else {}
        event = Received(source, build_message(kind, **message, **start), source)
        try:
            effects = self.machine.handle(1, event)
            self.store.commit()
        except Killed:
            self.store.rollback()
            self.start()
            self.machine.handle(1, LinkUp("here", "server"))  # it names its incarnation of the log
            self.store.commit()
            return []
        assert not any(isinstance(effect, Record) for effect in effects), "no message is dropped"
        messages = sent(effects)
        self.logs += [body["entries"] for _, body in messages if body["kind"] == "log" and body["entries"]]
        return [body for _, body in messages if body["kind"] != "log"]

    def rows(self):
        return {row.key: row for _, row in self.store.items("row\nt\n", Row)}


def build_part(key, kind, value, rows):
    """Return the fields of a part, and whether the store must refuse it."""
    row = rows.get(key)
    version = 0 if row is None else row.ver
    part = {"key": key, "type": "blind", "data": {"n": value}, "predicate": None, "replaces": version}
    if kind == "delete":
        return {**part, "data": None}, False
    if kind == "right version":
        return {**part, "type": "conditional"}, False
    if kind == "wrong version":
        return {**part, "type": "conditional", "replaces": version + 1}, True
    if kind == "add":
        return {**part, "data": None, "changes": {"add": {"n": 1}}}, row is None or row.data is None
    return part, False


def expected_data(kind, value, row):
    if kind == "delete":
        return None
    return {"n": row.data["n"] + 1} if kind == "add" else {"n": value}


@examples(120)
@given(STEPS)
@example([([("a", "write"), ("b", "wrong version")], 0, 2), ([("a", "write"), ("b", "write")], 2, 2)])
@example([([("a", "write"), ("z", "write")], 0, 1), ([("a", "write"), ("a", "write")], 0, 1)])
@example([([("a", "write"), ("b", "write")], 0, 1), ([("a", "add"), ("b", "delete"), ("c", "add")], 1, 2)])
def test_batch_is_stored_as_a_whole_or_not_at_all(steps):
    master, numbers = Master(), count(1)
    for parts, kill_at, copies in steps:
        before = master.rows()
        built = [build_part(key, kind, value, before) for value, (key, kind) in enumerate(parts)]
        (first, *others), number = [fields for fields, _ in built], next(numbers)
        for _ in others:
            next(numbers)
        message = {**first, "id": f"w{number}", "number": number, "claims": OWNER} | (
            {"others": others} if others else {}
        )
        keys = [key for key, _ in parts]
        is_odd = len(parts) > 1 and (len(set(keys)) < len(keys) or ("z" in keys and set(keys) != {"z"}))
        refused = next((place for place, (_, must_fail) in enumerate(built) if must_fail), None)
        lives = master.lives
        master.handle("processor", "write", kill_at, **message)
        if master.lives > lives:
            assert master.rows() == before, "a kill between the parts leaves none of them"
        answers = [master.handle("processor", "write", **message) for _ in range(copies)]
        assert answers == answers[:1] * copies, "each copy has the same outcome"
        ((outcome,),) = answers[:1]
        rows = master.rows()
        if is_odd or refused is not None:
            assert "ver" not in outcome
            assert rows == before
            assert outcome.get("place") == (None if is_odd or len(parts) == 1 else refused)
            continue
        results = [outcome, *outcome.get("others", [])]
        assert [result["ver"] for result in results] == [rows[key].ver for key in keys]
        lsns = [result["lsn"] for result in results]
        assert lsns == list(range(lsns[0], lsns[0] + len(parts)))
        for (key, kind), value in zip(parts, count()):
            old = before.get(key)
            assert rows[key].data == expected_data(kind, value, old)
            assert rows[key].ver == (0 if old is None else old.ver) + 1
        assert {key: row for key, row in rows.items() if key not in keys} == {
            key: row for key, row in before.items() if key not in keys
        }
    assert all("following" not in entries[-1] for entries in master.logs), "no follower is sent a part"
