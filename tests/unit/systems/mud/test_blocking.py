"""The client whose calls return results."""

from __future__ import annotations

import pytest

from mudkit import Lab
from mudkit.errors import OperationTimeout, TableProblem
from mudkit.systems.mud import BlockingClient, Client, Cloud


@pytest.fixture
def place():
    lab = Lab(seed=7)
    client = Client(lab.device("ann"), Cloud(lab), app="app", token=lab.token(user="ann", app="app"))
    return lab, BlockingClient(client, timeout_s=60)


def test_calls_return_what_operations_give(place):
    lab, ann = place
    ann.create("t", schema={"n": "number"})
    assert ann.write("t", "a", {"n": 1}) == 1
    assert ann.read("t", "n = 1", latest=True).records == {"a": {"n": 1}}
    ann.alter("t", add={"m": "number"})
    answer = []
    handle = ann.read("t", None, "continuous", callback=answer.append)
    ann.update_data(handle, {"age": 3})
    assert ann.delete("t", "a") == 2
    lab.run(minutes=1)
    ann.unregister(handle)
    ann.drop("t")
    assert answer == []  # it was told of nothing, so nothing is taken back


def test_calls_raise_what_operations_raise_and_wait_no_longer_than_they_may(place):
    lab, ann = place
    ann.create("t")
    with pytest.raises(TableProblem, match="already"):
        ann.create("t")
    lab.faults.cut("ann", minutes=5)
    with pytest.raises(OperationTimeout):
        ann.write("t", "b", {"n": 1})
