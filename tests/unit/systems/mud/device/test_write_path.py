"""Writes of a client: what stands on what, and what becomes of it."""

from __future__ import annotations

import pytest

from mudkit import Lab
from mudkit.errors import ParameterError
from mudkit.systems.mud import Client, Cloud, Conflict


@pytest.fixture
def lab():
    return Lab(seed=7)


@pytest.fixture
def jane(lab):
    lab.cloud = Cloud(lab, replicas=0)
    jane = Client(lab.device("jane"), lab.cloud, app="news", token=lab.token("jane", "news"))
    jane.create("news").result()
    return jane


@pytest.fixture
def bob(lab, jane):
    return Client(lab.device("bob"), lab.cloud, app="news", token=lab.token("bob", "news"))


def failed(made):
    with pytest.raises(Conflict) as answer:
        made.result()
    return answer.value


def test_an_unknown_type_of_write_is_refused_with_the_nearest_one(jane):
    with pytest.raises(ParameterError, match="did you mean 'conditional'") as caught:
        jane.write("news", "a", {}, type="conditionl").result()
    assert (caught.value.where, caught.value.found) == ("type", "'conditionl'")


def test_what_stands_on_a_write_that_failed_is_not_tried(lab, jane, bob):
    bob.write("news", "a", {"n": 0}).result()
    lab.faults.cut("jane")
    first = jane.write("news", "a", {"n": 1}, "conditional")
    second = jane.write("news", "a", {"n": 2}, "conditional")
    other = jane.write("news", "b", {"n": 3}, "conditional")
    lab.faults.mend("jane")
    assert failed(first).store["ver"] == 1
    error = failed(second)
    assert "based on" in error.summary
    assert error.local["data"] == {"n": 2}
    assert second.responded_us == first.responded_us
    assert other.result() == 1


def test_a_blind_write_does_not_fall_with_the_one_before(lab, jane, bob):
    bob.write("news", "a", {"n": 0}).result()
    lab.faults.cut("jane")
    first = jane.write("news", "a", {"n": 1}, "conditional")
    second = jane.write("news", "a", {"n": 2}, "blind")
    third = jane.write("news", "a", {"n": 3}, "conditional")
    lab.faults.mend("jane")
    failed(first)
    assert (second.result(), third.result()) == (2, 3)
