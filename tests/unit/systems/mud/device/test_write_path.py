"""Write path of a client: chains of conditional and blind writes after a conflict."""

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


def expect_conflict(write):
    with pytest.raises(Conflict) as caught:
        write.result()
    return caught.value


def test_unknown_write_type_is_refused_with_a_suggestion(jane):
    with pytest.raises(ParameterError, match="did you mean 'conditional'") as caught:
        jane.write("news", "a", {}, type="conditionl").result()
    assert (caught.value.where, caught.value.found) == ("type", "'conditionl'")


def test_conditional_write_based_on_a_failed_write_is_not_sent(lab, jane, bob):
    bob.write("news", "a", {"n": 0}).result()
    lab.faults.cut("jane")
    first = jane.write("news", "a", {"n": 1}, "conditional")
    second = jane.write("news", "a", {"n": 2}, "conditional")
    other = jane.write("news", "b", {"n": 3}, "conditional")
    lab.faults.mend("jane")
    assert expect_conflict(first).store["ver"] == 1
    error = expect_conflict(second)
    assert "based on" in error.summary
    assert error.local["data"] == {"n": 2}
    assert second.responded_us == first.responded_us
    assert other.result() == 1


def test_blind_write_succeeds_after_a_failed_write(lab, jane, bob):
    bob.write("news", "a", {"n": 0}).result()
    lab.faults.cut("jane")
    first = jane.write("news", "a", {"n": 1}, "conditional")
    second = jane.write("news", "a", {"n": 2}, "blind")
    third = jane.write("news", "a", {"n": 3}, "conditional")
    lab.faults.mend("jane")
    expect_conflict(first)
    assert (second.result(), third.result()) == (2, 3)
