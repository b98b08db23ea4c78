"""Guarantees of SUBLIM while a subscriber moves between access points that crash and restart.

`mudkit reproduce S2` runs 1,000 handovers; these are a few walks of many kinds.
"""

from __future__ import annotations

from examples import examples
from hypothesis import example, given
from hypothesis import strategies as st

from mudkit import Lab
from mudkit.fleet.store import MemoryStore
from mudkit.systems.sublim import AccessPoint, PlainSubscriber, Policy, PublishServer, Rule, Subscriber
from mudkit.systems.sublim._policy.actions import Compress, Every, Keep
from mudkit.systems.sublim.check.checker import CONTRADICTION, MORE_ON_LESS, UNREACHABLE, findings
from mudkit.verify.roaming import Roaming


@given(
    st.integers(0, 10_000),
    st.builds(
        Roaming,
        moves=st.integers(0, 15),
        messages=st.integers(1, 60),
        every_s=st.sampled_from([1.0, 5.0, 20.0]),
        crashes=st.integers(0, 20),
        mangled_share=st.sampled_from([0.0, 0.1, 0.3]),
    ),
)
@examples(30)
@example(9, Roaming())  # duplicated state transfers
@example(2, Roaming())  # ten handovers
def test_roaming_loses_and_repeats_nothing_and_keeps_the_state(seed, roaming):
    outcome = roaming.run(seed)
    assert (outcome.lost, outcome.repeated, outcome.wrong_states) == (0, 0, 0)
    assert outcome.published <= roaming.messages
    assert outcome.crashes or outcome.published == roaming.messages


def test_walks_contain_handovers_and_crashes():
    outcomes = [Roaming().run(seed) for seed in range(3)]
    assert sum(outcome.handovers for outcome in outcomes) >= 10
    assert sum(outcome.crashes for outcome in outcomes) >= 10
    assert all(0 < outcome.sent < outcome.published for outcome in outcomes)


@given(st.lists(st.tuples(st.integers(0, 2), st.floats(0.1, 200.0)), min_size=1, max_size=12))
@examples(20)
def test_rate_limit_holds_across_handovers(walk):
    lab = Lab(seed=1, record_messages=False)
    net = PublishServer(lab)
    for number in range(3):
        AccessPoint(lab, net, at=(number * 0.001, 0.0), range_m=80.0)
    device = lab.device("doctor", link="wifi", at=(0.0, 0.0))
    doctor = Subscriber(device, net)
    doctor.set_policy(Policy("limit", [Rule(None, [Every(300)])])).result()
    times_s = []
    for number, (place, wait_s) in enumerate(walk):
        device.set_measured("loc", (place * 0.001, 0.0))
        lab.run(seconds=wait_s)
        net.publish({"number": number}).result()
        times_s.append(lab.world.now_us / 1e6)
    lab.run(minutes=1)
    expected, last_s = [], -300.0
    for number, at_s in enumerate(times_s):
        if at_s - last_s >= 300.0:
            expected.append(number)
            last_s = at_s
    assert [message["number"] for message in doctor.read().result()] == expected


ATOMS = [
    "message.a < 3", "message.a >= 3", "message.a IN (1, 3)", "message.a IS NULL", "message.b = 'x'", "message.f",
    "message.a BETWEEN 1 AND 5", "lookup('l', message.a, 'listed')", "state.battery < 25", "state.battery >= 25",
]  # fmt: skip
conditions = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: (
        st.builds("NOT ({})".format, inner)
        | st.builds("({}) AND ({})".format, inner, inner)
        | st.builds("({}) OR ({})".format, inner, inner)
    ),
    max_leaves=3,
)
MESSAGES = st.fixed_dictionaries(
    {},
    optional={
        "a": st.sampled_from([0, 1, 2, 3, 4, 5, 6, "x", None]),
        "b": st.sampled_from(["x", "y", 1]),
        "f": st.booleans(),
    },
)


@given(
    st.lists(conditions, min_size=2, max_size=6),
    st.lists(
        st.tuples(MESSAGES, st.sampled_from([{}, {"battery": 10}, {"battery": 25}, {"battery": 90}])),
        max_size=20,
    ),
)
@examples(100)
def test_rules_reported_unreachable_never_fire(texts, messages):
    policy = Policy(
        "drawn", [Rule(text, Keep((f"f{n}",))) for n, text in enumerate(texts)], variables={"l": [1, 5]}
    )
    unreachable = {
        finding.rule for finding in findings(policy) if finding.kind in (UNREACHABLE, CONTRADICTION)
    }
    for message, automatic in messages:
        assert policy.decide(message, policy.variables, automatic).rule not in unreachable


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                ["state.battery < {}", "state.battery >= {}", "state.battery <= {} AND message.a < 3"]
            ),
            st.integers(0, 10).map(lambda tenth: tenth * 10),
            st.sampled_from([2, 4, 8, "2 + state.battery / 10", "12 - state.battery / 10"]),
        ),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from([{"a": 1}, {"a": 5}]),
)
@examples(150)
def test_policy_without_findings_sends_no_more_on_lower_battery(specifications, message):
    rules = [Rule(text.format(level), Compress("ecg", ratio)) for text, level, ratio in specifications]
    policy = Policy("drawn", [*rules, Rule(None, Compress("ecg", 2))])
    if any(finding.kind == MORE_ON_LESS for finding in findings(policy)):
        return
    levels = sorted({level + offset for _, level, _ in specifications for offset in (-5, -1, 0, 1, 5)})
    outs = [policy.decide({**message, "ecg": bytes(1_200)}, {}, {"battery": level}).out for level in levels]
    sizes = [len(out["ecg"]) for out in outs]
    assert sizes == sorted(sizes)


ACTIONS = st.one_of(
    st.tuples(st.just("move"), st.integers(0, 2)),
    st.tuples(st.just("wipe"), st.just(0)),
    st.tuples(st.just("kill"), st.integers(0, 2)),
    st.tuples(st.just("publish"), st.just(0)),
    st.tuples(st.just("policy"), st.integers(0, 1)),
    st.tuples(st.just("lose"), st.integers(0, 1)),
)


@given(st.lists(st.tuples(ACTIONS, st.sampled_from([0.0, 0.05, 0.5, 3.0, 20.0])), max_size=14))
@examples(40)
def test_subscriber_recovers_within_two_minutes_of_the_last_fault(actions):
    lab = Lab(seed=1)
    net = PublishServer(lab)
    points = [AccessPoint(lab, net, at=(number * 0.001, 0.0), range_m=80.0) for number in range(3)]
    device = lab.device("doctor", link="wifi", at=(0.0, 0.0))
    doctor = Subscriber(device, net, report_s=2)
    policies = [Policy("all", [Rule()]), Policy("short", [Rule(None, Keep(("n",)))])]
    for (action, index), wait_s in actions:
        match action:
            case "move":
                device.set_measured("loc", (index * 0.001, 0.0))
            case "wipe":
                doctor.installed.kill()
                doctor.installed.store = MemoryStore()
                doctor.installed.start()
            case "kill":
                points[index].installed.kill()
                points[index].installed.start()
            case "publish":
                net.publish({"n": -1})
            case "policy":
                doctor.set_policy(policies[index])
            case "lose":
                lab.faults.messages(loss_share=0.4 * index)
        lab.run(seconds=wait_s)
    lab.faults.messages()
    device.change_context(display_px=777)
    lab.run(minutes=2)
    doctor.set_policy(policies[1]).result(30)
    doctor.read().result()
    for number in range(5):
        net.publish({"n": number, "m": 0}).result()
    lab.run(seconds=20)
    assert doctor.read().result() == [{"n": number} for number in range(5)]
    assert doctor.state()["automatic"]["display_px"] == 777
    assert lab.problems.empty


RESTORES = st.lists(
    st.tuples(
        st.sampled_from(
            ["publish", "move", "backup", "restore", "kill", "cut", "late copies", "address", "take address"]
        ),
        st.integers(0, 2),
        st.sampled_from([0.5, 5.0, 40.0]),
    ),
    max_size=25,
)


@given(RESTORES, st.sampled_from([0.0, 0.2]))
@examples(40)
@example([("late copies", 0, 0.5), ("move", 1, 0.5)], 0.0)
def test_subscriber_recovers_after_restore_of_an_access_point(actions, share):
    lab = Lab(seed=1, record_messages=False)
    net = PublishServer(lab)
    points = [AccessPoint(lab, net, at=(number * 0.001, 0.0), range_m=80.0).name for number in range(3)]
    backups = {name: lab.faults.backup(name) for name in points}
    device = lab.device("doctor", link="wifi", at=(0.0, 0.0))
    others = (lab.device(name, link="wifi", at=(0.001, 0.0)) for name in ("nurse", "porter"))
    received = {"doctor": [], "nurse": [], "porter": []}
    for host, numbers in zip((device, *others), received.values(), strict=True):
        is_plain = host.name == "porter"
        subscriber = PlainSubscriber(host, net, "message.n >= 0") if is_plain else Subscriber(host, net)
        subscriber.on_message(lambda message, numbers=numbers: numbers.append(message["n"]))
    lab.faults.messages(loss_share=share, repeat_share=share, delay_share=share, delay_s=8.0)
    number = 0
    for action, index, wait_s in actions:
        name = points[index]
        if action == "publish":
            net.publish({"n": number})
            number += 1
        elif action == "move":
            device.set_measured("loc", (index * 0.001, 0.0))
        elif action == "backup":
            backups[name] = lab.faults.backup(name)
        elif action == "restore":
            lab.faults.restore(name, backups[name])
        elif action == "kill":
            lab.faults.kill(name)
            lab.faults.restart(name)
        elif action == "late copies":  # half of the messages arrive again after ten minutes
            lab.faults.messages(repeat_share=0.5, delay_s=600)
        elif action == "address":
            lab.faults.change_address("doctor")
        elif action == "take address":
            taker, owner = (("nurse", "doctor"), ("doctor", "nurse"), ("porter", "doctor"))[index]
            if number % 2 and index == 2:
                taker, owner = owner, taker
            address = lab.world.hosts[owner].address
            lab.faults.change_address(owner)
            if address != owner:  # the first address of a device is its name, which no other can have
                lab.faults.change_address(taker, address)
        else:
            lab.faults.cut("doctor", minutes=0.5)
        lab.run(seconds=wait_s)
    lab.faults.messages()
    lab.run(minutes=2)
    for name in received:
        lab.faults.cut(name, minutes=0.5)
    lab.run(minutes=3)
    for offset in range(3):
        net.publish({"n": number + offset})
        lab.run(minutes=1)
    # A late copy of a plain hello counts until the next one: messages of that minute are lost.
    has_late_hello = any(action == "late copies" for action, _, _ in actions)
    for name, numbers in received.items():
        assert numbers == sorted(set(numbers))
        if name != "porter" or not has_late_hello:
            assert numbers[-3:] == [number, number + 1, number + 2]
    messages_before = sum(row.messages for row in lab.world.bill())
    lab.run(hours=1)
    hellos = 60  # of the porter
    assert sum(row.messages for row in lab.world.bill()) - messages_before < 100 + hellos
