"""Operations as futures: their errors, and calls that the application cancels."""

from __future__ import annotations

import pytest

from mudkit.errors import OperationCancelled, TableProblem


@pytest.fixture
def ann(place):
    ann = place.client("ann")
    ann.create("t").result()
    ann.write("t", "k", {"n": 1}).result()
    return ann


def latest(client):
    return client.read("t", latest=True).result().records["k"]


def test_exception_is_the_error_or_none(place, ann):
    done, refused = ann.write("t", "k", {"n": 2}), ann.increment("t", "gone", "n")
    assert (done.exception(), refused.exception()) == (None, None), "there is no answer yet"
    place.lab.run(seconds=10)
    assert done.exception() is None
    assert isinstance(refused.exception(), TableProblem)


@pytest.mark.parametrize(
    "call",
    [
        lambda c: c.write("t", "k", {"n": 5}),
        lambda c: c.write("t", "k", {"n": 5}, "conditional"),
        lambda c: c.delete("t", "k"),
        lambda c: c.increment("t", "k", "n"),
    ],
    ids=["blind", "conditional", "delete", "increment"],
)
def test_write_that_was_never_sent_is_cancelled_without_effect(place, ann, call):
    place.lab.faults.cut("ann", minutes=5)
    called, heard = call(ann), []
    called.add_done_callback(heard.append)
    assert called.cancel()
    assert called.cancel(), "it stays cancelled"
    assert isinstance(called.exception(), OperationCancelled)
    with pytest.raises(OperationCancelled):
        called.result()
    assert ann.pending().result() == []
    assert heard == [called]
    ann.write("t", "other", {"n": 1})
    place.lab.run(minutes=6)
    assert latest(ann) == {"n": 1}


def test_write_that_was_sent_joined_or_followed_is_not_cancelled(place, ann):
    sent = ann.write("t", "k", {"n": 2})
    assert not sent.cancel()
    assert sent.result() == 2
    assert not sent.cancel(), "it has its answer"
    place.lab.faults.cut("ann", minutes=5)
    joined = [ann.increment("t", "k", "n") for _ in range(2)]
    followed = ann.write("t", "other", {"n": 1}, "conditional")
    last = ann.write("t", "other", {"n": 2}, "conditional")
    assert not any(operation.cancel() for operation in (*joined, followed))
    assert last.cancel(), "nothing follows the last one"
    place.lab.run(minutes=6)
    assert latest(ann) == {"n": 4}
    assert followed.result() == 1


def test_write_that_the_policy_delays_is_cancelled(place, ann):
    from mud_place import Place

    class Later:
        def delay(self, write, context):
            return 60.0

    place = Place()
    ann = place.client("ann", write_policy=Later())
    ann.create("t").result()
    first, second = ann.write("t", "a", {"n": 1}), ann.write("t", "b", {"n": 1})
    assert first.cancel()
    place.lab.run(minutes=3)
    assert second.result() == 1
    assert set(ann.read("t", latest=True).result().records) == {"b"}


@pytest.mark.parametrize("type_", ["committed", "uncommitted", "committed_wio"])
def test_read_without_an_answer_is_cancelled(place, ann, type_):
    place.lab.faults.cut("ann", minutes=5)
    ann.write("t", "k", {"n": 2}, "conditional")
    read = ann.read("t", type=type_, offline="wait")
    assert read.cancel()
    assert isinstance(read.exception(), OperationCancelled)
    following = ann.write("t", "k", {"n": 3}, "conditional")
    place.lab.run(minutes=6)
    assert following.result() == 3


def test_write_behind_a_cancelled_read_leaves(place, ann):
    """A committed_wio read keeps later writes back until it is answered, or cancelled."""
    place.lab.faults.cut("ann", minutes=5)
    read = ann.read("t", type="committed_wio", offline="wait")
    write = ann.write("t", "k", {"n": 2})
    assert read.cancel()
    place.lab.run(minutes=6)
    assert write.result() == 2


def test_read_behind_a_cancelled_write_is_answered(place, ann):
    place.lab.faults.cut("ann", minutes=5)
    write = ann.write("t", "k", {"n": 2})
    read = ann.read("t", type="committed_wio", offline="wait")
    assert write.cancel()
    assert read.result().records == {"k": {"n": 1}}
