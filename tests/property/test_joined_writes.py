"""Writes of an outage that are joined on the device, against the same writes, sent one by one.

Rule (module docstring of ``device/joined_writes.py``): the store has the same record afterwards, and the same
users may read and write it. What the device does not know is not drawn: rules of the stored record with ``old`` or
``new``, and predicates with columns of one that it has not read.
"""

from __future__ import annotations

from contextlib import suppress

from examples import examples
from hypothesis import example, given
from hypothesis import strategies as st

from mudkit import Lab
from mudkit.errors import MudkitError
from mudkit.systems import mud

USERS = ("ann", "bob", "eve")
NUMBERS = st.integers(0, 4)
HIDES_ONE = "n <> 3"
PREDICATES = st.sampled_from([None, "auth.user = 'ann'", "auth.user = 'bob'", HIDES_ONE])
RULES = st.sampled_from([None, "auth.user = 'ann'", "auth.user IN ('ann', 'bob')", "auth.user = 'bob'"])
OWN_RULES = RULES | st.sampled_from(["new.n > old.n", "auth.user = 'ann' AND old.n < 3"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), NUMBERS, PREDICATES, OWN_RULES),
        st.tuples(st.just("delete")),
        st.tuples(st.just("increment")),
        st.tuples(st.just("update"), NUMBERS),
    ),
    min_size=2,
    max_size=5,
)
STORED = st.none() | st.tuples(st.sampled_from(["ann", "bob"]), NUMBERS, PREDICATES, RULES)
"""Record in the store before: its writer, its number, its predicate and its rule; None: there is none."""


def call(client, step):
    """Call a step of an application; return the operation."""
    match step:
        case ("write", n, predicate, rule):
            return client.write("t", "k", {"n": n}, predicate=predicate, may_write=rule)
        case ("delete",):
            return client.delete("t", "k")
        case ("increment",):
            return client.increment("t", "k", "n")
        case ("update", n):
            return client.update("t", "k", {"m": n})
    raise AssertionError(step)


def outcome_of(stored, is_known, steps, *, are_joined):
    """Return what each user reads after the steps, and who may write; each write is of another number."""
    lab = Lab(seed=5)
    cloud = mud.Cloud(lab, gateways=1, processors=1, notification_servers=1)
    clients = {
        name: mud.Client(lab.device(name), cloud, app="a", token=lab.token(name, "a")) for name in USERS
    }
    ann = clients["ann"]
    ann.create("t").result()
    if stored is not None:
        writer, *record = stored
        call(clients[writer], ("write", *record)).result()
    if is_known or (stored is not None and stored[2] == HIDES_ONE):
        ann.read("t", latest=True).result()
    if are_joined:
        lab.faults.cut("ann")
    for step in steps:
        operation = call(ann, step)
        if not are_joined:
            with suppress(MudkitError):
                operation.result()
    lab.faults.mend("ann")
    lab.run(minutes=1)
    assert ann.pending().result() == []
    read = {name: client.read("t", latest=True).result().records for name, client in clients.items()}
    writers = set()
    for number, (name, client) in enumerate(clients.items(), start=10):
        with suppress(MudkitError):
            call(client, ("write", number, None, None)).result()
            writers.add(name)
    return read, writers


@examples(15)
@given(STORED, st.booleans(), STEPS)
@example(("ann", 1, None, "auth.user = 'ann'"), True, [("delete",), ("write", 2, None, None)])
@example(None, False, [("write", 2, "n <> 3", None), ("increment",), ("increment",)])
@example(("ann", 2, "n <> 3", None), True, [("increment",), ("increment",)])
@example(
    None, True, [("write", 1, None, "new.n > old.n"), ("write", 3, None, None), ("write", 2, None, None)]
)
@example(None, False, [("write", 1, "auth.user = 'bob'", None), ("update", 2)])
def test_joined_writes_leave_what_they_would_one_by_one(stored, is_known, steps):
    joined = outcome_of(stored, is_known, steps, are_joined=True)
    assert joined == outcome_of(stored, is_known, steps, are_joined=False)
