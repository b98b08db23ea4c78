"""Isolation of policies: their faults and their state do not affect other subscribers."""

from __future__ import annotations

import pytest

from mudkit import Lab
from mudkit.systems.sublim import AccessPoint, Policy, PolicyError, PublishServer, Rule, Subscriber, policy
from mudkit.systems.sublim._policy.actions import Keep, Remember, SetField
from mudkit.systems.sublim.messages import InstallPolicy


def create_ward(**policies):
    lab = Lab(seed=5)
    net = PublishServer(lab)
    AccessPoint(lab, net)
    subscribers = {}
    for name, policy_ in policies.items():
        subscribers[name] = Subscriber(lab.device(name, link="wifi"), net)
        subscribers[name].set_policy(policy_).result()
    return lab, net, subscribers


def loop_forever(message, state):
    while True:
        pass


def change_message(message, state):
    message["nested"]["a"] = 1


def grow_state(message, state):
    state.set_property("all", (state.get_property("all") or []) + ["x" * 20_000])
    return message


BAD = {
    "a function that loops": policy(loop_forever),
    "a function that changes what was published": policy(change_message),
    "a function whose state grows": policy(grow_state),
    "rules whose state grows": Policy("grows", [Rule(None, [Remember({"all": "message.text"})])]),
    "rules whose message grows": Policy(
        "grows", [Rule(None, [SetField({f"f{n}": "message.text" for n in range(9)})])]
    ),
}


@pytest.mark.parametrize("bad", BAD)
def test_bad_policy_does_not_affect_other_subscribers(bad):
    good = Policy(
        "good",
        [Rule(None, [Remember({"count": "coalesce(state.count, 0) + 1"}), Keep(("number", "nested"))])],
    )
    alone = create_ward(good=good)
    beside = create_ward(bad=BAD[bad], good=good)
    problems_heard = []
    beside[2]["bad"].on_problem(problems_heard.append)
    results = []
    for lab, net, subscribers in (alone, beside):
        for number in range(8):
            net.publish({"number": number, "nested": {"a": 0}, "text": "x" * 66_000}).result()
        lab.run(minutes=5)
        results.append((subscribers["good"].read().result(), subscribers["good"].state()["variables"]))
    assert results[0] == results[1]
    assert [message["number"] for message in results[0][0]] == list(range(8))
    assert results[0][1] == {"count": 8.0}
    assert len(problems_heard) == 1  # not once per message
    problems = beside[0].problems
    assert len(problems) == beside[2]["bad"].state()["stopped"] >= 4
    assert all(detail.startswith("policy of bad: ") for detail in problems["detail"])
    assert set(problems["system"]) == {"sublim"}
    assert alone[0].problems.empty


def test_policies_read_only_their_own_state():
    mine = Policy("mine", [Rule(None, [SetField({"seen": "state.secret"})])], variables={"secret": 7})
    theirs = Policy("theirs", [Rule(None, [SetField({"seen": "state.secret"})])], variables={"secret": None})
    lab, net, subscribers = create_ward(mine=mine, theirs=theirs)
    net.publish({})
    lab.run(seconds=10)
    assert subscribers["mine"].read().result() == [{"seen": 7.0}]
    assert subscribers["theirs"].read().result() == [{"seen": None}]


def test_access_point_validates_policies_itself():
    lab, net, subscribers = create_ward(doctor=Policy("good", [Rule(None, [Keep(("number",))])]))
    unreachable_rule = {"rules": [{"do": []}, {"when": "message.a = 1", "do": "drop"}]}
    for policy_, error in (
        (unreachable_rule, "unreachable"),
        ({"policy": "x", "python": "exit()"}, "Unknown part"),
        ({"function": "os.system"}, "Unknown function"),
        ({"policy": "x" * 70_000}, "too long"),
    ):
        with pytest.raises(PolicyError, match=error):
            subscribers["doctor"].installed.call(InstallPolicy(policy_)).result()
    net.publish({"number": 1, "a": 1})
    lab.run(seconds=10)
    assert subscribers["doctor"].read().result() == [{"number": 1}]  # the policy set before stays
