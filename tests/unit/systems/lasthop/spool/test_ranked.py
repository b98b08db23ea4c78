"""Ranked queue: removals, rank changes, and dead entries."""

from mudkit.systems.lasthop.spool.ranked import _MAX_DEAD, Message, Ranked


def build_message(number, rank):
    return Message(number, rank, number, 0, 1)


def build_queue(*ranks):
    ranked = Ranked(3)
    messages = [build_message(number, rank) for number, rank in enumerate(ranks)]
    for message in messages:
        ranked.add(message)
    return ranked, messages


def list_ids(messages):
    return [message.identity for message in messages]


def test_removed_and_reranked_messages_are_taken_at_most_once():
    ranked, (a, b, c) = build_queue(0.2, 0.9, 0.5)
    ranked.remove(b)
    ranked.rerank(a, 0.8)
    ranked.rerank(a, 0.3)
    assert sorted(list_ids(ranked)) == [0, 2]
    assert list_ids(ranked.take(5)) == [2, 0]
    ranked.add(c)
    assert list_ids(ranked.take(1.0)) == [2]


def test_message_added_again_is_queued_once():
    ranked, (a,) = build_queue(0.5)
    ranked.remove(a)
    ranked.add(a)
    assert (ranked.size, list_ids(ranked.take(5)), ranked.size) == (1, [0], 0)


def test_dead_entries_are_removed():
    ranked, (a, *_) = build_queue(0.5, 0.4)
    for step in range(10_000):
        ranked.rerank(a, (step % 97 + 1) / 100)
    assert len(ranked._heap) < 100
    for number in range(10_000):
        new = build_message(number + 10, 0.1)
        ranked.add(new)
        ranked.remove(new)
    assert len(ranked._heap) < 100
    assert sorted(list_ids(ranked)) == [0, 1]


def test_most_entries_of_a_long_queue_are_alive():
    """See :meth:`Ranked._drop_dead_entries`; a few dead ones are kept in short queues."""
    ranked, messages = build_queue(*[0.5] * 1000)
    for step in range(5000):
        ranked.rerank(messages[step % 1000], 0.6 + step / 10_000)
        assert len(ranked._heap) <= 2 * ranked.size + _MAX_DEAD
    assert sorted(list_ids(ranked)) == list(range(1000))
