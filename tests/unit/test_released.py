"""The rules alone let go what the server does, when it does."""

from __future__ import annotations

from mudkit.experiment.released import released
from mudkit.systems.radiator import Context, Time, Volume

SAID = [(t_s * 1_000_000, "ann", Context({"ann"}, {"n": t_s})) for t_s in (1, 2, 5, 30)]
CLIENTS = {"ann": {}, "bob": {"slow": True}, "cy": {}}


def gone(function, receivers=("bob", "cy"), **more):
    return [
        (t_us / 1e6, [message.context["n"] for message in entry.batch], entry.recipients)
        for t_us, entry in released(SAID, CLIENTS, receivers, function, 20.0, **more)
    ]


def test_volumes_go_when_they_are_full_and_the_rest_after_the_longest():
    assert gone(lambda sender, receiver: Volume(2)) == [
        (2.0, [1, 2], ["bob", "cy"]), (25.0, [5], ["bob", "cy"]), (50.0, [30], ["bob", "cy"]),
    ]  # fmt: skip


def test_time_fires_between_messages():
    assert [row[:2] for row in gone(lambda sender, receiver: Time(6))] == [(7.0, [1, 2, 5]), (36.0, [30])]


def test_only_those_who_are_asked_for_are_followed_and_nobody_gets_her_own():
    def by_receiver(sender, receiver):
        return Volume(4 if receiver.get("slow") else 1)

    assert {name for _, _, names in gone(by_receiver) for name in names} == {"bob", "cy"}
    assert gone(by_receiver, receivers=["bob"])[0] == (21.0, [1, 2, 5], ["bob"])
    assert gone(by_receiver, receivers=["ann"]) == []


def test_an_empty_list_that_was_due_once_does_not_hang():
    """A queue that was let go leaves its moment behind; nothing waits then."""
    assert len(gone(lambda sender, receiver: Volume(1))) == len(SAID)


def test_problems_are_told():
    problems = []
    gone(lambda sender, receiver: 1 / 0, problems=problems)
    assert "ZeroDivisionError" in str(problems[0])
