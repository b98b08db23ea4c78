"""Guarantees that the campaign's judge and its observers check, each seen violated and kept."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from mudkit.errors import AccessDenied, MudkitError
from mudkit.events import Received, Send
from mudkit.systems.mud import Change
from mudkit.verify.campaign.bugs import Catch
from mudkit.verify.campaign.cells import Table
from mudkit.verify.campaign.judge import Judgement
from mudkit.verify.campaign.neighbours import STEPS, VAULT, Neighbours
from mudkit.verify.campaign.observers import _GatewayObserver, _outcome, _ReplicaObserver
from mudkit.verify.campaign.read_problems import (
    list_first_state_problems,
    list_shown_problems,
    list_watch_problems,
)
from mudkit.verify.campaign.work import MAIN, SIDE, Burst, ReaderData, Watch


class Answered:
    """Operation with a result, an error, or neither."""

    invoked_us = responded_us = 5
    start_number = 1

    def __init__(self, result: Any = None, status: str = "ok", **arguments: Any) -> None:
        self._result, self.status = result, status
        self.call = SimpleNamespace(named_arguments=arguments)
        self.process = SimpleNamespace(host=SimpleNamespace(name="ann"))

    def done(self) -> bool:
        return self.status in ("ok", "failed")

    def result(self) -> Any:
        if isinstance(self._result, Exception):
            raise self._result
        return self._result


def failed(error: Exception) -> Answered:
    return Answered(error, "failed")


def judge(check: str, *arguments: Any, **campaign: Any) -> list[str]:
    """Return the problems that one check finds in a run."""
    judgement = object.__new__(Judgement)
    judgement.campaign = SimpleNamespace(
        bases={}, replaces={}, must_commit={}, losses={}, pending={}, rolled_back_us={}, **campaign
    )
    judgement.problems = []
    judgement._repeated_writes = []
    getattr(judgement, check)(*arguments)
    return judgement.problems


def work(**lists: Any) -> SimpleNamespace:
    return SimpleNamespace(**{"writes": [], "reads": [], "watches": [], "log": {}, **lists})


def write(table: str, value: str, operation: Answered, kind: str = "blind") -> SimpleNamespace:
    return SimpleNamespace(
        table=table, key="a", kind=kind, value=value, operation=operation, client="ann", number=1
    )


def test_write_must_be_retransmitted_while_other_traffic_continues():
    bursts = [Burst("ann", 0.5, None, 3.0), Burst("bob", 9.0, None, None)]
    (problem,) = judge("_judge_bursts", bursts=bursts)
    assert "bob" in problem
    assert "every 9 s" in problem


def test_every_acknowledged_write_of_a_recreated_table_must_be_committed_once():
    """Also behind writes of other tables, which are judged elsewhere."""
    writes = [write(MAIN, "1", Answered(1)), write(SIDE, "2", Answered(2)), write(SIDE, "3", Answered(3))]
    rows = [{"key": "a", "ver": 3, "lsn": 3, "data": {"v": "3"}}]
    (problem,) = judge("_judge_side", rows, work=work(writes=writes))
    assert problem == "'2' was acknowledged, and was committed 0 times"


def test_blind_write_must_not_fail():
    writes = [write(MAIN, "1", failed(AccessDenied("It may not write.")))]
    (problem,) = judge("_judge_writes", [], work=work(writes=writes))
    assert problem.startswith("a blind write failed")


@pytest.mark.parametrize(
    ("version", "at_us", "status", "count"),
    [(2, 4, "ok", 1), (3, 4, "ok", 0), (2, 6, "ok", 0), (2, 4, "failed", 0)],
)
def test_read_must_not_show_what_its_device_knows_to_be_older(version, at_us, status, count):
    """Mobius 4.1: of changes that it was notified of before the call."""
    watch = Watch("ann", MAIN, None, None, [])
    watch.notified.append(SimpleNamespace(kind="upsert", key="a", version=3))
    watch.notified_us.append(at_us)
    result = SimpleNamespace(versions={"a": version})
    read = Answered(result if status == "ok" else MudkitError("gone"), status, table=MAIN)
    assert len(judge("_judge_pushed", work=work(watches=[watch], reads=[read]))) == count


@pytest.mark.parametrize(("source", "count"), [({"a": "local"}, 0), ({"a": "remote"}, 1), ({}, 1)])
def test_read_must_not_show_a_table_that_a_read_of_the_latest_versions_found_replaced(
    monkeypatch, source, count
):
    """Unless pending writes of its device have answered that one (Mobius 4.2)."""
    monkeypatch.setattr(Judgement, "_tables", {"1": 2}, raising=False)
    monkeypatch.setattr(Judgement, "_created", [2, 6], raising=False)
    pending = write(SIDE, "2", Answered(status="open"))
    pending.operation.responded_us = None
    results = [
        SimpleNamespace(records={key: {"v": "2"} for key in source}, source=source),
        SimpleNamespace(records={"a": {"v": "1"}}, source={"a": "local"}),
    ]
    reads = [
        Answered(results[0], table=SIDE, type="uncommitted", latest=True),
        Answered(results[1], table=SIDE, type="committed", latest=False),
    ]
    for op_id, read in enumerate(reads):
        read.op_id, read.call.name = op_id, "read"
    creations = [Answered(), Answered()]
    for creation in creations:
        creation.responded_us = 1
    written = [write(SIDE, "1", Answered(1, table=SIDE, type="blind")), pending]
    written[0].operation.op_id, written[0].operation.call.name = 2, "write"
    written[0].operation.responded_us = 2
    problems = judge("_judge_tables", work=work(writes=written, reads=reads, creations=creations))
    assert len(problems) == count


@pytest.mark.parametrize(("version", "count"), [(0, 0), (1, 1)])
def test_followers_have_the_policy_that_is_stored_or_none(version, count):
    process = SimpleNamespace(store=SimpleNamespace(items=lambda prefix: []))
    problems = judge(
        "_judge_policies",
        work=work(ships=[]),
        cloud=SimpleNamespace(generator="generator/1"),
        lab=SimpleNamespace(world=SimpleNamespace(at_address={"generator/1": process})),
        policies={"ann": {"read": {"version": version, "refused": None}}},
    )
    assert len(problems) == count


@pytest.mark.parametrize(("data", "count"), [(["x"], 1), (["x", "y"], 0)])
def test_first_state_must_have_the_records_that_were_visible_throughout(data, count):
    """It is not judged where the reader has sent other data since, by which other records are visible."""
    readers = [ReaderData({"team": team}, 0) for team in data]
    watch = Watch("ann", MAIN, None, 0.0, readers, Answered(), synced_after=[0], synced_us=[9])
    row = {"key": "a", "ts_us": 1, "data": {"v": "1"}, "predicate": None}
    problems = [*list_first_state_problems(SimpleNamespace(expires_us={}, work=work()), watch, [row])]
    assert len(problems) == count


def make_applications(pending: list[str], records: dict[str, Any]) -> SimpleNamespace:
    """Return a campaign with a device that shows some records, and has writes of some keys."""
    read = SimpleNamespace(
        waiting=0, stored=SimpleNamespace(is_paused=False, has_begun=True),
        records=SimpleNamespace(shown=lambda: records),
    )  # fmt: skip
    machine = SimpleNamespace(
        continuous_reads=SimpleNamespace(has_read=lambda handle: True, read_of=lambda handle: read),
        local=SimpleNamespace(
            pending_keys=lambda table: pending,
            newest_write=lambda table, key: SimpleNamespace(data={"v": "1"}, predicate=None, changes=None),
        ),
    )
    installed = SimpleNamespace(machine=SimpleNamespace(observed=machine))
    return SimpleNamespace(expires_us={}, clients={"ann": SimpleNamespace(installed=installed)})


@pytest.mark.parametrize(("pending", "is_shown", "words"), [
    (["a"], True, None), (["a"], False, "its device has"), ([], True, "no write of it is"),
])  # fmt: skip
def test_application_must_show_what_its_device_has_and_what_is_pending(pending, is_shown, words):
    watch = Watch("ann", MAIN, None, 0.0, [ReaderData({}, 0)], Answered(1))
    if is_shown:
        watch.show(Change("upsert", "a", {"v": "1"}, None, is_new=True, is_pending=True), 5)
    campaign = make_applications(pending, {"a": (None, {"v": "1"})})
    problems = [*list_shown_problems(campaign, watch)]
    assert len(problems) == (words is not None)
    assert all(words in problem for problem in problems)


def test_application_must_show_its_own_writes():
    watch = Watch("ann", MAIN, None, 0.0, [ReaderData({}, 0)], Answered(1))
    (problem,) = list_shown_problems(make_applications(["a"], {}), watch)
    assert "shown as pending: False" in problem


@pytest.mark.parametrize(("pending", "count"), [([], 1), ([{"key": "a", "name": MAIN}], 0)])
def test_last_version_must_be_notified_unless_an_own_write_is_before_it(pending, count):
    """An own write that does not match hides the record as long as it is pending."""
    watch = Watch("ann", MAIN, "n = 1", 0.0, [ReaderData({}, 0)], Answered(1))
    row = {"key": "a", "ver": 2, "data": {"n": 1}, "predicate": None, "ts_us": 5, "lsn": 7}
    campaign = SimpleNamespace(expires_us={}, pending={"ann": pending})
    assert len([*list_watch_problems(campaign, watch, [row])]) == count


def test_pending_change_is_followed_by_what_was_there_before():
    """It is no version that comes twice, as it would be without the pending change."""
    watch = Watch("ann", MAIN, None, 0.0, [ReaderData({}, 0)], Answered(1))
    before = Change("upsert", "a", {"v": "1"}, 1)
    for change in (before, Change("upsert", "a", {"v": "2"}, None, is_pending=True), before):
        watch.show(change, 5)
    assert judge("_judge_order", watch) == []
    watch.show(before, 5)
    assert len(judge("_judge_order", watch)) == 1


def test_others_must_be_refused_the_tables_of_an_app():
    peeks = [
        Answered(status="open"), failed(AccessDenied("The table is another app's.")),
        failed(MudkitError("It is lost.")), Answered("a secret"),
    ]  # fmt: skip
    own = SimpleNamespace(key="own", version=None, is_pending=True)
    change = SimpleNamespace(key="a", version=1, is_pending=False)
    neighbours = SimpleNamespace(_peeked=[{"ended": "refused"}, own, change], _peeks=peeks)
    changed, lost, read = Neighbours.seen(neighbours)
    assert ("key='a'" in changed, "It is lost" in lost, "a secret" in read) == (True, True, True)


@pytest.mark.parametrize(
    ("version", "status", "count"), [(1, "ok", 1), (2, "ok", 0), (1, "open", 0), (1, "failed", 0)]
)
def test_an_app_must_be_notified_of_the_last_version_of_its_records(version, status, count):
    """An open or failed continuous read is judged elsewhere."""
    log = {
        lsn: {"op": "row", "name": VAULT, "row": {"key": "a", "ver": ver}} for lsn, ver in ((1, 1), (2, 2))
    }
    account = SimpleNamespace(
        is_judged=True, operation=Answered(status=status), changes=[Change("upsert", "a", {}, version)]
    )
    assert len(Neighbours.missed(SimpleNamespace(_log=log, _accounts={"ann": account}))) == count


def test_each_step_of_other_apps_is_executed():
    done = []
    methods = ("_deposit", "_pry", "_steal", "_read_briefly", "_flood")
    neighbours = SimpleNamespace(
        _draw=SimpleNamespace(choice=min),
        _accounts={"ann": None},
        **{name: lambda device, name=name: done.append((name, device)) for name in methods},
    )
    for step in STEPS:
        Neighbours.act(neighbours, step)
    assert done == [(name, "ann") for name in methods]


def test_catch_states_the_size_of_the_smallest_contradiction():
    assert str(Catch(7, "sequential", "it was lost", 1)) == "seed 7, 1 operation: it was lost"
    assert str(Catch(7, "sequential", "it was lost", 2)) == "seed 7, 2 operations: it was lost"
    assert str(Catch(7, "a promise", "it was lost", None)) == "seed 7, violated: a promise: it was lost"


def routed(op="write", refused=None, **what):
    """Return a request as servers pass it on, as far as transitions are named by it."""
    what = {"op": op, "type": "blind", "data": {"v": "1"}, **what}
    return {"kind": "routed", "what": what, "verified": {"refused": refused}}


WRITE = routed()


@pytest.mark.parametrize(
    ("message", "outcome", "is_kept", "name"),
    [
        (WRITE, {"ver": 1}, True, "blind write committed"),
        (routed(data=None), {"ver": 2}, True, "blind delete committed"),
        (routed(type="conditional"), {"conflict": {"ver": 3}}, True, "conflict"),
        (routed(type="conditional"), {"conflict": None}, True, "conflict, hidden or none"),
        (routed(refused={"kind": "x"}), {"error": {"kind": "x"}}, True, "write, token refused"),
        (WRITE, {"error": {"kind": "AccessDenied"}}, True, "write, refused"),
        (WRITE, {"ver": 1}, False, "write, known already"),
        (WRITE, {"error": {"kind": "MudkitError"}}, False, "write, late copy"),
        (WRITE, None, False, "write, late copy"),
    ],
)
def test_outcomes_of_writes_at_the_back_end(message, outcome, is_kept, name):
    """A write whose outcome is kept for the first time is new; another has the same number as an earlier one."""
    assert _outcome(message, [] if outcome is None else [outcome], is_kept) == name


@pytest.mark.parametrize(
    ("sent", "name"),
    [
        (routed(refused={"kind": "TokenExpired"}), "write with a refused token"),
        (WRITE, "write passed on"),
        (routed("read"), "read passed on"),
        ({"kind": "refused", "error": {"kind": "TableProblem"}}, "table refused"),
        ({"kind": "refused", "error": {"kind": "AccessDenied"}}, "token or access refused"),
        ({"kind": "restarted"}, "restarted"),
    ],
)
def test_requests_are_passed_on_or_refused_at_once_or_with_the_tables(sent, name):
    for message, before in (({"kind": "ask"}, []), ({"kind": "state"}, ["gateway: tables"])):
        observed = _GatewayObserver().names(Received("x", message), [Send("y", sent)], True)
        assert [*observed] == [*before, f"gateway: {name}"]


def test_cells_that_have_not_occurred_are_missing_and_transitions_without_a_row_unknown():
    row, column = next((row, column) for row, column in Table(Counter()).missing())
    assert Table(Counter()).unknown() == []
    table = Table(Counter({(row, (column,)): 1, ("back end: yawns", (column,)): 1}))
    assert (row, column) not in table.missing()
    assert table.unknown() == ["back end: yawns"]


def test_replicas_answer_reads_or_pass_them_on_and_follow_the_log():
    observer = _ReplicaObserver()
    events = [
        ({"kind": "state"}, {"kind": "has", "lsn": 3}),
        ({"kind": "log"}, {"kind": "has", "lsn": 4}),
        (routed("read"), {"kind": "part"}),
        (routed("read"), routed("read")),
    ]
    names = [
        name
        for message, sent in events
        for name in observer.names(Received("x", message), [Send("y", sent)], True)
    ]
    assert names == [
        "follower: state", "follower: log, next", "replica: read, answered", "replica: read, passed on to the back end",
    ]  # fmt: skip
