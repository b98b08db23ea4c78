"""Random faults on MUD tables: 1,000 runs, and mistakes made on purpose, which the campaign must find."""

from __future__ import annotations

from collections import Counter

import pytest

from mudkit.reproduce.campaign_judge import play
from mudkit.systems.mud import copy, processor
from mudkit.systems.mud.asking import Asking
from mudkit.systems.mud.backend import BackEnd
from mudkit.systems.mud.gateway import Gateway
from mudkit.systems.mud.local import Local
from mudkit.systems.mud.stream import Incoming
from mudkit.systems.mud.watching import Watching

RUNS, PART = 1000, 50
REPLAY = "python tests/faults/campaign.py --seed {}"


@pytest.mark.parametrize("first", range(0, RUNS, PART))
def test_faults_break_no_promise(first):
    counts: Counter[str] = Counter()
    for seed in range(first, first + PART):
        found = play(seed)
        assert not found.problems, f"{REPLAY.format(seed)}\n{found.problems}"
        counts.update(found.counts)
    for fault in ("cut", "kill device", "kill server", "move", "network", "messages"):
        assert counts[fault]
    for kind, model in (("committed", "sequential"), ("committed_wio", "sequential-wio")):
        assert counts[f"{kind} {model} OK"] > PART / 4


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
