"""Share of the receivers: events, released aggregates, and failing functions."""

from __future__ import annotations

import json
import pickle
import re

from radiator_streams import ClientEvent, S

from mudkit.systems.radiator import Shares, Time, Volume, aggregability, joins


@aggregability(key=lambda receiver: receiver["cell"])
def pairs(sender, cell):
    return Volume(2) if sender["cell"] == cell else Time(seconds=60)


def create_event(number, kind, client, content=None):
    return ClientEvent(number * S, number, client, kind, None if content is None else json.dumps(content))


def describe(client, **attributes):
    return {"people": [client], "span_us": None, "attributes": attributes}


def create_engine(shares=None, share=0, of=1):
    engine = (shares or Shares(pairs))(share, of)
    for number, client in enumerate(("ann", "bob", "cy")):
        assert engine.handle(create_event(number, "register", client, {"cell": 1})) == []
    return engine


def test_aggregates_are_released_on_context_and_on_time():
    engine = create_engine()
    assert engine.handle(create_event(3, "context", "ann", describe("ann", cell=1, mood="good"))) == []
    ((t_us, numbers, recipients, aggregate, problem),) = engine.handle(
        create_event(4, "context", "ann", describe("ann", cell=1))
    )
    assert (t_us, numbers, recipients, problem) == (4 * S, [3, 4], ["bob", "cy"], None)
    assert json.loads(aggregate) == {
        "people": ["ann"],
        "span_us": [3 * S, 4 * S],
        "attributes": {"cell": [1, 1], "mood": ["good"]},
    }
    assert engine.due_us == float("inf")
    engine.handle(create_event(5, "context", "bob", describe("bob", cell=2)))
    assert engine.due_us == 65 * S
    ((t_us, numbers, recipients, _, _),) = engine.fire(65 * S)
    assert (t_us, numbers, sorted(recipients)) == (65 * S, [5], ["ann", "cy"])


def test_each_receiver_belongs_to_one_share():
    recipient_lists = []
    for share in range(3):
        engine = create_engine(share=share, of=3)
        engine.handle(create_event(3, "context", "ann", describe("ann", cell=1)))
        recipient_lists += [
            output[2] for output in engine.handle(create_event(4, "context", "ann", describe("ann", cell=1)))
        ]
    assert sorted(client for recipients in recipient_lists for client in recipients) == ["bob", "cy"]


def test_duplicate_and_invalid_events_are_skipped_or_reported():
    engine = create_engine()
    event = create_event(3, "context", "ann", describe("ann", cell=1))
    assert [engine.handle(event) for _ in range(2)] == [[], []]
    invalid_events = [
        (create_event(4, "context", "dan", describe("dan", cell=1)), "no such client.*'dan'.*register first"),
        (create_event(5, "context", "ann")._replace(text="{"), "event 5 of 'ann', context.*'{'"),
        (create_event(6, "context", "ann", {"people": ["ann"]}), "span_us"),
        (create_event(7, "context", "ann", [1]), "indices"),
        (create_event(8, "context", "ann", describe("ann") | {"people": "ann"}), "names of people"),
        (create_event(9, "register", "ann", 5), "a mapping"),
        (create_event(10, "dance", "ann"), "no such event.*dance"),
    ]
    for event, expected in invalid_events:
        ((t_us, numbers, recipients, aggregate, problem),) = engine.handle(event)
        assert (t_us, numbers, recipients, aggregate) == (event.t_us, (), (), None)
        assert re.search(expected, problem, re.DOTALL), problem
    assert (
        engine.handle(create_event(11, "tick", "nobody"))
        == engine.handle(create_event(12, "unregister", "dan"))
        == []
    )
    ((_, numbers, _, _, _),) = engine.handle(create_event(13, "context", "ann", describe("ann", cell=1)))
    assert numbers == [3, 13]


def test_failing_function_and_join_lose_nothing():
    def moody(contexts):
        if any(context.get("mood") == "bad" for context in contexts):
            raise ZeroDivisionError("mood")
        return joins.concatenation(contexts)

    start = Shares(pairs, moody)
    engine = create_engine(start)
    engine.handle(create_event(3, "register", "dan", {}))
    outputs = engine.handle(create_event(4, "context", "ann", describe("ann", cell=1, mood="bad")))
    (problem,) = [output[4] for output in outputs]
    assert "pairs has failed: A context has no attribute 'cell'" in problem
    assert "sender 'ann', receiver 'dan'" in problem
    outputs = engine.handle(create_event(5, "context", "ann", describe("ann", cell=1, mood="bad")))
    (problem,) = [output[4] for output in outputs]
    assert "moody has failed: ZeroDivisionError: mood" in problem
    assert "sender 'ann', receiver 'bob', 'cy'" in problem
    # All messages keep waiting, also in the kept state; another join releases them.
    engine = Shares(pairs)(0, 1, pickle.loads(pickle.dumps(engine.state())))
    assert engine.due_us == 65 * S
    ((_, numbers, recipients, _, _),) = engine.fire(65 * S)
    assert (numbers, sorted(recipients)) == ([4, 5], ["bob", "cy"])
    ((_, numbers, recipients, _, _),) = engine.fire(3604 * S)
    assert (numbers, recipients) == ([4, 5], ["dan"])
