"""Random faults on MUD tables: 1,000 runs, and mistakes made on purpose, which the campaign must find."""

from __future__ import annotations

import os

import pytest

from mudkit.reproduce.campaign_cells import TRANSITIONS, UNREACHABLE, Table, why_not
from mudkit.reproduce.campaign_faults import COLUMNS
from mudkit.reproduce.campaign_judge import play
from mudkit.reproduce.campaign_runs import Runs, play_all, play_some
from mudkit.systems.mud import copy, processor
from mudkit.systems.mud.asking import Asking
from mudkit.systems.mud.backend import BackEnd
from mudkit.systems.mud.gateway import Gateway
from mudkit.systems.mud.local import Local
from mudkit.systems.mud.watching import Watching
from mudkit.systems.stream import Incoming

RUNS = 1000
REPLAY = "python tests/faults/campaign.py --seed {}"


@pytest.fixture(scope="module")
def found():
    """What 1,000 runs have shown: half of them is done by each of two processes, where there are two cores."""
    found = Runs()
    for runs in play_all(range(RUNS), min(2, os.cpu_count() or 1)):
        found.add(runs)
    return found


def test_faults_break_no_promise(found):
    problems = [f"{REPLAY.format(seed)}\n    {each[:3]}" for seed, each in sorted(found.problems.items())]
    assert not problems, "\n".join(problems)
    assert found.runs == RUNS
    for kind, model in (("committed", "sequential"), ("committed_wio", "sequential-wio")):
        assert found.counts[f"{kind} {model} OK"] > RUNS / 4


def test_whatever_machines_do_happens_with_every_fault(found):
    table = Table(found.cells)
    assert table.unknown() == []
    assert table.missing() == []


def test_what_cannot_happen_is_said_of_cells_that_there_are():
    rows = [f"{machine}: {each}" for machine, all_ in TRANSITIONS.items() for each in all_]
    cells = [(row, column) for row in rows for column in COLUMNS]
    for pattern in UNREACHABLE:
        only = [cell for cell in cells if why_not(*cell, (pattern,))]
        assert only, pattern
        assert pattern[2]
    assert sum(why_not(*cell) is not None for cell in cells) < len(cells) / 20


def test_a_cell_at_0_is_missing_and_marked(found):
    row = "writing: committed"
    cells = found.cells.copy()
    for name, faults in found.cells:
        if name == row and "cut" in faults:
            del cells[name, faults]
    table = Table(cells)
    assert (row, "cut") in table.missing()
    line = next(line for line in str(table).splitlines() if line.startswith(row))
    assert line.split()[-len(COLUMNS) :][COLUMNS.index("cut")] == "0!"


def test_several_processes_find_the_same():
    seeds = range(12)
    one, two = play_some(seeds), Runs()
    for runs in play_all(seeds, 2):
        two.add(runs)
    assert two == one


def test_a_run_that_fails_names_its_seed(monkeypatch):
    monkeypatch.setattr(BackEnd, "_came_of", lambda self, client, number: 1 // 0)
    assert set(play_some([3]).problems) == {3}


def never(*arguments, **named):
    return ()


def applied_again(mistake):
    mistake.setattr(BackEnd, "_came_of", lambda self, client, number: None)


def conditional_writes_always_succeed(mistake):
    mistake.setattr(BackEnd, "_matches", lambda self, message, row, version: True)


def conditional_writes_never_find_their_version(mistake):
    mistake.setattr(BackEnd, "_matches", lambda self, message, row, version: row is None)


def a_replica_may_answer_from_the_past(mistake):
    route = Gateway._route

    def routed(self, ask, described):
        sent = route(self, ask, described)
        return [type(each)(each.to, {**each.message, "least": 0}) if each.message["kind"] == "read" else each
                for each in sent]  # fmt: skip

    mistake.setattr(Gateway, "_route", routed)
    mistake.setattr(Local, "seen", lambda self, name: {})


def a_read_in_order_does_not_wait_for_writes(mistake):
    mistake.setattr(Asking, "_before", lambda self, query: [])


def writes_do_not_wait_for_a_read_in_order(mistake):
    mistake.setattr(Asking, "is_before", lambda self, write: False)


def an_older_version_replaces_a_newer_one(mistake):
    def hold(self, name, row, now_us):
        kept = {each: row[each] for each in ("key", "ver", "data", "predicate")} | {"held_us": now_us}
        self._rows[name, row["key"]] = kept
        self._store.put(f"row\n{name}\n{row['key']}", kept)

    mistake.setattr(Local, "hold", hold)
    mistake.setattr(Local, "seen", lambda self, name: {})


def a_stream_takes_whatever_comes(mistake):
    def take(self, message):
        self.last = message["number"]
        return (message["body"],)

    mistake.setattr(Incoming, "take", take)


def a_new_session_registers_nothing_again(mistake):
    register = Watching._register
    seen = set()

    def once(self, handle):
        if (id(self._store), handle) in seen:
            return ()
        seen.add((id(self._store), handle))
        return register(self, handle)

    mistake.setattr(Watching, "_register", once)


def a_processor_does_not_say_that_it_was_restarted(mistake):
    mistake.setattr(Watching, "_heard", never)


def writers_predicates_are_not_asked(mistake):
    mistake.setattr(copy, "is_visible", lambda row, reader, auth, table: True)
    mistake.setattr(processor, "from_json", lambda sent: None if sent is None else processor_predicate(sent))


def processor_predicate(sent):
    from mudkit.predicates import Predicate

    return Predicate("TRUE") if "receiver" in sent["text"] else Predicate.restored(**sent)


MISTAKES = (
    applied_again,
    conditional_writes_always_succeed,
    conditional_writes_never_find_their_version,
    a_replica_may_answer_from_the_past,
    a_read_in_order_does_not_wait_for_writes,
    writes_do_not_wait_for_a_read_in_order,
    an_older_version_replaces_a_newer_one,
    a_stream_takes_whatever_comes,
    a_new_session_registers_nothing_again,
    a_processor_does_not_say_that_it_was_restarted,
    writers_predicates_are_not_asked,
)


@pytest.mark.parametrize("make", MISTAKES, ids=lambda make: make.__name__)
def test_a_mistake_is_found(make, monkeypatch):
    make(monkeypatch)
    for seed in range(300):
        try:
            if play(seed).problems:
                return
        except (AssertionError, KeyError, TypeError, ValueError):  # it cannot even go on
            return
    raise AssertionError("nobody has noticed")
