from mudkit.systems.lasthop.spool.ranked import Message, Ranked


def message(number, rank):
    return Message(number, rank, number, 0, 1)


def queue(*ranks):
    made = Ranked(3)
    messages = [message(number, rank) for number, rank in enumerate(ranks)]
    for each in messages:
        made.add(each)
    return made, messages


def ids(messages):
    return [each.identity for each in messages]


def test_what_is_taken_out_or_has_a_new_rank_comes_once():
    ranked, (a, b, c) = queue(0.2, 0.9, 0.5)
    ranked.remove(b)
    ranked.rerank(a, 0.8)
    ranked.rerank(a, 0.3)
    assert sorted(ids(ranked)) == [0, 2]
    assert ids(ranked.take(5)) == [2, 0]
    ranked.add(c)
    assert ids(ranked.take(1.0)) == [2]


def test_a_message_that_comes_back_to_a_queue_is_in_it_once():
    ranked, (a,) = queue(0.5)
    ranked.remove(a)
    ranked.add(a)
    assert (ranked.size, ids(ranked.take(5)), ranked.size) == (1, [0], 0)


def test_dead_entries_are_cleared_away():
    ranked, (a, *_) = queue(0.5, 0.4)
    for step in range(10_000):
        ranked.rerank(a, (step % 97 + 1) / 100)
    assert len(ranked._heap) < 100
    for number in range(10_000):
        new = message(number + 10, 0.1)
        ranked.add(new)
        ranked.remove(new)
    assert len(ranked._heap) < 100
    assert sorted(ids(ranked)) == [0, 1]
