"""A share of the receivers: what it does with what it is told, and with functions that fail."""

from __future__ import annotations

import json
import pickle
import re

from radiator_streams import ClientEvent, S

from mudkit.systems.radiator import Shares, Time, Volume, aggregability, joins


@aggregability(key=lambda receiver: receiver["cell"])
def pairs(sender, cell):
    return Volume(2) if sender["cell"] == cell else Time(seconds=60)


def told(number, kind, client, said=None):
    return ClientEvent(number * S, number, client, kind, None if said is None else json.dumps(said))


def context(client, **attributes):
    return {"people": [client], "span_us": None, "attributes": attributes}


def with_clients(shares=None, share=0, of=1):
    engine = (shares or Shares(pairs))(share, of)
    for number, client in enumerate(("ann", "bob", "cy")):
        assert engine.handle(told(number, "register", client, {"cell": 1})) == []
    return engine


def test_what_goes():
    engine = with_clients()
    assert engine.handle(told(3, "context", "ann", context("ann", cell=1, mood="good"))) == []
    ((t_us, numbers, recipients, aggregate, problem),) = engine.handle(
        told(4, "context", "ann", context("ann", cell=1))
    )
    assert (t_us, numbers, recipients, problem) == (4 * S, [3, 4], ["bob", "cy"], None)
    assert json.loads(aggregate) == {
        "people": ["ann"],
        "span_us": [3 * S, 4 * S],
        "attributes": {"cell": [1, 1], "mood": ["good"]},
    }
    assert engine.due_us == float("inf")
    engine.handle(told(5, "context", "bob", context("bob", cell=2)))
    assert engine.due_us == 65 * S
    ((t_us, numbers, recipients, _, _),) = engine.fire(65 * S)
    assert (t_us, numbers, sorted(recipients)) == (65 * S, [5], ["ann", "cy"])


def test_each_receiver_is_in_one_share():
    gone = []
    for share in range(3):
        engine = with_clients(share=share, of=3)
        engine.handle(told(3, "context", "ann", context("ann", cell=1)))
        gone += [one[2] for one in engine.handle(told(4, "context", "ann", context("ann", cell=1)))]
    assert sorted(client for recipients in gone for client in recipients) == ["bob", "cy"]


def test_repeats_and_strangers_and_what_cannot_be_read():
    engine = with_clients()
    event = told(3, "context", "ann", context("ann", cell=1))
    assert [engine.handle(event) for _ in range(2)] == [[], []]
    bad = [
        (told(4, "context", "dan", context("dan", cell=1)), "no such client.*'dan'.*register first"),
        (told(5, "context", "ann")._replace(text="{"), "event 5 of 'ann', context.*'{'"),
        (told(6, "context", "ann", {"people": ["ann"]}), "span_us"),
        (told(7, "context", "ann", [1]), "indices"),
        (told(8, "context", "ann", context("ann") | {"people": "ann"}), "names of people"),
        (told(9, "register", "ann", 5), "a mapping"),
        (told(10, "dance", "ann"), "no such event.*dance"),
    ]
    for event, expected in bad:
        ((t_us, numbers, recipients, aggregate, problem),) = engine.handle(event)
        assert (t_us, numbers, recipients, aggregate) == (event.t_us, (), (), None)
        assert re.search(expected, problem, re.DOTALL), problem
    assert engine.handle(told(11, "tick", "nobody")) == engine.handle(told(12, "unregister", "dan")) == []
    ((_, numbers, _, _, _),) = engine.handle(told(13, "context", "ann", context("ann", cell=1)))
    assert numbers == [3, 13]


def test_a_function_and_a_join_that_fail_lose_nothing():
    def moody(contexts):
        if any(each.get("mood") == "bad" for each in contexts):
            raise ZeroDivisionError("mood")
        return joins.concatenation(contexts)

    start = Shares(pairs, moody)
    engine = with_clients(start)
    engine.handle(told(3, "register", "dan", {}))
    gone = engine.handle(told(4, "context", "ann", context("ann", cell=1, mood="bad")))
    (problem,) = [one[4] for one in gone]
    assert "pairs has failed: A context has no attribute 'cell'" in problem
    assert "sender 'ann', receiver 'dan'" in problem
    gone = engine.handle(told(5, "context", "ann", context("ann", cell=1, mood="bad")))
    (problem,) = [one[4] for one in gone]
    assert "moody has failed: ZeroDivisionError: mood" in problem
    assert "sender 'ann', receiver 'bob', 'cy'" in problem
    # All of it waits on, through what is kept as well; with another join it goes.
    engine = Shares(pairs)(0, 1, pickle.loads(pickle.dumps(engine.kept())))
    assert engine.due_us == 65 * S
    ((_, numbers, recipients, _, _),) = engine.fire(65 * S)
    assert (numbers, sorted(recipients)) == ([4, 5], ["bob", "cy"])
    ((_, numbers, recipients, _, _),) = engine.fire(3604 * S)
    assert (numbers, recipients) == ([4, 5], ["dan"])
