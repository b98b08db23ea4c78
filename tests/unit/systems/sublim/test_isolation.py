"""A policy reaches its own state and the message; what it does wrong, nobody else notices."""

from __future__ import annotations

import pytest

from mudkit import Lab
from mudkit.systems.sublim import AccessPoint, Policy, PolicyError, PublishServer, Rule, Subscriber, policy
from mudkit.systems.sublim._policy.actions import Keep, Remember, SetField
from mudkit.systems.sublim.messages import InstallPolicy


def ward(**policies):
    lab = Lab(seed=5)
    net = PublishServer(lab)
    AccessPoint(lab, net)
    subscribers = {}
    for name, each in policies.items():
        subscribers[name] = Subscriber(lab.device(name, link="wifi"), net)
        subscribers[name].set_policy(each).result()
    return lab, net, subscribers


def loops(message, state):
    while True:
        pass


def spoils(message, state):
    message["nested"]["a"] = 1


def grows(message, state):
    state.set_property("all", (state.get_property("all") or []) + ["x" * 20_000])
    return message


BAD = {
    "a function that loops": policy(loops),
    "a function that changes what was published": policy(spoils),
    "a function whose state grows": policy(grows),
    "rules whose state grows": Policy("grows", [Rule(None, [Remember({"all": "message.text"})])]),
    "rules whose message grows": Policy(
        "grows", [Rule(None, [SetField({f"f{n}": "message.text" for n in range(9)})])]
    ),
}


@pytest.mark.parametrize("bad", BAD)
def test_the_others_notice_nothing(bad):
    good = Policy(
        "good",
        [Rule(None, [Remember({"count": "coalesce(state.count, 0) + 1"}), Keep(("number", "nested"))])],
    )
    alone = ward(good=good)
    beside = ward(bad=BAD[bad], good=good)
    answer = []
    beside[2]["bad"].on_problem(answer.append)
    got = []
    for lab, net, subscribers in (alone, beside):
        for number in range(8):
            net.publish({"number": number, "nested": {"a": 0}, "text": "x" * 66_000}).result()
        lab.run(minutes=5)
        got.append((subscribers["good"].read().result(), subscribers["good"].state()["variables"]))
    assert got[0] == got[1]
    assert [each["number"] for each in got[0][0]] == list(range(8))
    assert got[0][1] == {"count": 8.0}
    assert len(answer) == 1  # and not once for each message
    problems = beside[0].problems
    assert len(problems) == beside[2]["bad"].state()["stopped"] >= 4
    assert all(detail.startswith("policy of bad: ") for detail in problems["detail"])
    assert set(problems["system"]) == {"sublim"}
    assert alone[0].problems.empty


def test_nobody_reads_the_state_of_another():
    mine = Policy("mine", [Rule(None, [SetField({"seen": "state.secret"})])], variables={"secret": 7})
    theirs = Policy("theirs", [Rule(None, [SetField({"seen": "state.secret"})])], variables={"secret": None})
    lab, net, subscribers = ward(mine=mine, theirs=theirs)
    net.publish({})
    lab.run(seconds=10)
    assert subscribers["mine"].read().result() == [{"seen": 7.0}]
    assert subscribers["theirs"].read().result() == [{"seen": None}]


def test_an_access_point_checks_what_comes_although_the_client_has():
    lab, net, subscribers = ward(doctor=Policy("good", [Rule(None, [Keep(("number",))])]))
    sent = {"rules": [{"do": []}, {"when": "message.a = 1", "do": "drop"}]}
    for policy_, says in (
        (sent, "unreachable"),
        ({"policy": "x", "python": "exit()"}, "Unknown part"),
        ({"function": "os.system"}, "Unknown function"),
        ({"policy": "x" * 70_000}, "too long"),
    ):
        with pytest.raises(PolicyError, match=says):
            subscribers["doctor"].installed.call(InstallPolicy(policy_)).result()
    net.publish({"number": 1, "a": 1})
    lab.run(seconds=10)
    assert subscribers["doctor"].read().result() == [{"number": 1}]  # what was set before goes on
