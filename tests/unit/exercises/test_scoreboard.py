"""Judge of chapter 11: correct machines are accepted and likely mistakes rejected."""

from __future__ import annotations

import pytest
from judged import check_accepted, check_rejected, mark_soak

from mudkit.errors import ParameterError
from mudkit.events import Call, Notify
from mudkit.exercises import grade, judge
from mudkit.exercises.judging import PieceError
from mudkit.exercises.scoreboard import EXERCISE, _play, _Step
from mudkit.experiment import NEWS, TRAFFIC, Mud, own_machine, run, scoreboard
from mudkit.experiment.adapters.own import RELAY

CHAPTER = "11_scoreboard"
HEAD = "from mudkit.events import Call, Complete, LinkUp, Notify, Received, Send, SendFailed, SetTimer, TimerFired\n"
START = (
    HEAD
    + """
def handle(here, now_us, event):
    match event:
        case Call(op_id=op_id, operation="want", arguments={"me": me}):
            return [Send(here.relay, {"kind": "want", "me": me}), Complete(op_id)]
        case Call(op_id=op_id, operation="publish", arguments={"item": item}):
            return [Send(here.relay, {"kind": "publish", "item": item}), Complete(op_id)]
        case Received(source=source, message={"kind": "want", "me": me}):
            here.memory[source] = me
        case Received(message={"item": item} as message) if here.is_relay:
            return [Send(phone, message) for phone in here.memory]
        case Received(message={"item": item}):
            return [Notify("items", item)]
    return []
"""
)
SOLUTION = (
    HEAD
    + """
def post(here, to, message):
    kept = {**message, "to": to, "name": f"out {to} {message['key']}"}
    here.store.put(kept["name"], kept)
    return [Send(to, kept), SetTimer(kept["name"], 10_000_000)]


def again(here, name):
    kept = [message for _, message in here.store.items(name)]
    return [effect for message in kept for effect in post(here, message["to"], message)]


def deal(here, message):
    store, item, wants = here.store, message.get("item"), f"wants of {message['from']}"
    if item is None:
        if message["at_us"] > (store.get(wants) or {"at_us": -1})["at_us"]:
            store.put(wants, message)
        return []
    if store.get(f"seen {item['name']}"):
        return []
    store.put(f"seen {item['name']}", True)
    if not here.is_relay:
        return [Notify("items", item)]
    said = [each for _, each in store.items("wants of ") if each["from"] != item["sender"]]
    to = [each["from"] for each in said if here.wants(each["me"], item)]
    return [effect for phone in to for effect in post(here, phone, message)]


def handle(here, now_us, event):
    match event:
        case Call(op_id=op_id, operation=kind, arguments=said):
            message = {"kind": kind, "key": f"{kind} {now_us}", "from": here.me, "at_us": now_us, **said}
            return [*post(here, here.relay, message), Complete(op_id)]
        case TimerFired(name=name):
            return again(here, name)
        case LinkUp():
            return again(here, "out ")
        case Received(message={"kind": "ack", "name": name}):
            here.store.delete(name)
        case Received(source=source, message=message):
            return [*deal(here, message), Send(source, {"kind": "ack", "name": message["name"]})]
    return []
"""
)
PEERS = (
    HEAD
    + """
# As Contrail has it: wants go to all senders, and an item from its sender to those who want it.
ALL = ("ann", "bob", "cy")

def keep(here, to, name, message):
    here.store.put(f"out {to} {name}", {**message, "to": to, "ack": f"out {to} {name}"})
    return here.store.items(f"out {to} {name}")

def handle(here, now_us, event):
    put, get, kept = here.store.put, here.store.get, []
    effects = []
    match event:
        case Call(op_id=op_id, operation="want", arguments={"me": me}):
            number = (get("number") or 0) + 1
            put("number", number)
            for each in ALL:
                if each != here.me:
                    kept += keep(here, each, "want", {"kind": "want", "me": me, "number": number})
            effects = [Complete(op_id)]
        case Call(op_id=op_id, operation="publish", arguments={"item": item}):
            for phone, said in here.store.items("want "):
                if here.wants(said["me"], item):
                    kept += keep(here, phone[5:], item["name"], {"kind": "item", "item": item})
            effects = [Complete(op_id)]
        case Received(source=source, message={"kind": "want", "number": number} as want):
            if number > (get(f"want {source}") or {"number": 0})["number"]:
                put(f"want {source}", want)
            effects = [Send(source, {"kind": "ack", "ack": want["ack"], "number": number})]
        case Received(source=source, message={"kind": "item", "item": item, "ack": ack}):
            if not get(f"seen {item['name']}"):
                put(f"seen {item['name']}", 1)
                effects = [Notify("items", item)]
            effects.append(Send(source, {"kind": "ack", "ack": ack}))
        case Received(message={"kind": "ack", "ack": ack} as message):
            if (get(ack) or {}).get("number") == message.get("number"):
                here.store.delete(ack)
        case TimerFired() | LinkUp():
            kept = here.store.items("out ")
    return [*effects, *(Send(message["to"], message) for _, message in kept), *([SetTimer("again", 20_000_000)] * bool(kept))]
"""
)


def load_machine(text, *changes):
    """Run a machine's text with passages replaced, and return its function."""
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    namespace = {"__name__": "answer"}  # without one, cloudpickle looks for functions in all modules
    exec(text, namespace)
    return namespace["handle"]


def change_solution(*changes):
    return load_machine(SOLUTION, *changes)


SEEN = "    if store.get(f\"seen {item['name']}\"):\n        return []\n"
KEPT = '    here.store.put(kept["name"], kept)\n'
TIMER = ', SetTimer(kept["name"], 10_000_000)'
UP = 'return again(here, "out ")'
GET_SEEN, PUT_SEEN = "store.get(f\"seen {item['name']}\")", "store.put(f\"seen {item['name']}\", True)"
ACK = 'return [*deal(here, message), Send(source, {"kind": "ack", "name": message["name"]})]'
NEWER = 'if message["at_us"] > (store.get(wants) or {"at_us": -1})["at_us"]:'
WANTS = ' if here.wants(each["me"], item)'
IN_MEMORY = (
    (KEPT, '    here.memory[kept["name"]] = kept\n'),
    ("here.store.items(name)", "sorted(here.memory.items()) if each.startswith(name)"),
    ("[message for _, message", "[message for each, message"),
    ("here.store.delete(name)", "here.memory.pop(name, None)"),
)
UNTIL_ANSWERED = (
    (KEPT, '    (here.store.put if here.is_relay else here.memory.__setitem__)(kept["name"], kept)\n'),
    (
        "here.store.items(name)]",
        "here.store.items(name)] if here.is_relay else [kept for each, kept in sorted(here.memory.items()) if each.startswith(name)]",
    ),
    (
        "return [*post(here, here.relay, message), Complete(op_id)]",
        'here.memory["ask out " + here.relay + " " + message["key"]] = op_id; return post(here, here.relay, message)',
    ),
    (
        "here.store.delete(name)",
        'here.store.delete(name)\n            here.memory.pop(name, None)\n            return [Complete(here.memory.pop("ask " + name))] if "ask " + name in here.memory else []',
    ),
)
SHARED_STATE = (
    (GET_SEEN, '(here.me, item["name"]) in SEEN'),
    (PUT_SEEN, 'SEEN.add((here.me, item["name"]))'),
    ("def post", "SEEN = set()\n\n\ndef post"),
)
NOT_RECEIVED, TWICE, KEEPS_SENDING = "has not received item", "twice.", "more messages."

RIGHT = {
    "by a relay": load_machine(SOLUTION),
    "from phone to phone": load_machine(PEERS),
    "answers when the relay has it": change_solution(*UNTIL_ANSWERED),
    "the relay leaves it to the phone": change_solution(
        (SEEN, SEEN.replace("if store", "if not here.is_relay and store"))
    ),
}


@pytest.mark.parametrize("piece", mark_soak(RIGHT, "by a relay"))
def test_judge_accepts(piece):
    check_accepted(CHAPTER, piece)


WRONG = {
    "the beginning": (load_machine(START), "is sent item 1"),
    "to all": (change_solution((WANTS, "")), "who does not want it, is sent item"),
    "to the others": (change_solution((WANTS, WANTS.replace("here", "not here"))), "who does not want it, is sent item"),
    "to the first": (change_solution(("for phone in to for", "for phone in to[:1] for")), NOT_RECEIVED),
    "back to the sender": (change_solution((' if each["from"] != item["sender"]', "")), "ann, who published it, is sent item 1"),
    "no second try": (change_solution((TIMER, ""), (UP, "return []")), NOT_RECEIVED),
    "nothing after a restart": (change_solution((UP, "return []")), NOT_RECEIVED),
    "nothing as long as the link is up": (change_solution((TIMER, "")), NOT_RECEIVED),
    "gives up after a second try": (change_solution(("for effect in post(here, message", "for effect in post(here, here.store.delete(message['name']) or message"), ('here.store.put(kept["name"], kept)', 'if "name" not in message: here.store.put(kept["name"], kept)')), NOT_RECEIVED),
    "gives up when it fails": (change_solution(("        case LinkUp():", "        case SendFailed(message={'name': name}):\n            here.store.delete(name)\n        case LinkUp():")), NOT_RECEIVED),
    "forgets what it sends": (change_solution(*IN_MEMORY), NOT_RECEIVED),
    "answers before it has stored": (change_solution((KEPT, '    (here.memory if here.is_relay else dict())[kept["name"]] = kept\n    if not here.is_relay:\n    ' + KEPT), ("here.store.items(name)]", "[*here.store.items(name), *here.memory.items()] if message['name'].startswith(name)]"), ("here.store.delete(name)", "here.store.delete(name)\n            here.memory.pop(name, None)")), NOT_RECEIVED),
    "takes all": (change_solution((SEEN, "")), TWICE),
    "the phone takes all": (change_solution((SEEN, SEEN.replace("if store", "if here.is_relay and store"))), TWICE),
    "forgets what it has seen": (change_solution((GET_SEEN, 'item["name"] in here.memory'), (PUT_SEEN, 'here.memory[item["name"]] = True')), TWICE),
    "sees numbers, not items": (change_solution((GET_SEEN, 'message["at_us"] <= (store.get("seen " + item["sender"]) or -1)'), (PUT_SEEN, 'store.put("seen " + item["sender"], message["at_us"])')), NOT_RECEIVED),
    "acknowledges what is new": (change_solution((ACK, 'is_new = not here.store.get("seen " + message.get("item", {}).get("name", "")); taken = deal(here, message); return taken + [Send(source, {"kind": "ack", "name": message["name"]})] * is_new')), KEEPS_SENDING),
    "acknowledges nothing": (change_solution((ACK, "return deal(here, message)")), KEEPS_SENDING),
    "never heeds an acknowledgement": (change_solution(("here.store.delete(name)", "pass")), KEEPS_SENDING),
    "heeds it for all": (change_solution(("here.store.delete(name)", '[here.store.delete(each) for each, _ in here.store.items("out ")]')), NOT_RECEIVED),
    "forgets wants": (change_solution(('store.put(wants, message)', "here.memory[wants] = message"), ('store.items("wants of ")', "here.memory.items()")), NOT_RECEIVED),
    "the last want to come": (change_solution((NEWER, "if True:")), "item"),
    "the first want": (change_solution((NEWER, "if store.get(wants) is None:")), "item"),
    "an empty item": (change_solution(('[Notify("items", item)]', '[Notify("items", {"name": item["name"]})]')), "handed something that nobody has published"),
    "an item made up": (change_solution(('[Notify("items", item)]', '[Notify("items", {**item, "name": "item 9"})]')), "handed something that nobody has published"),
    "told twice": (change_solution(('[Notify("items", item)]', '[Notify("items", item)] * 2')), TWICE),
    "no answer": (change_solution((", Complete(op_id)]", "]")), "has not been answered."),
    "answered with an error": (change_solution(("Complete(op_id)", 'Complete(op_id, error=ValueError("no"))')), "is answered with ValueError: no"),
    "raises": (change_solution(('"key": f"{kind} {now_us}"', '"key": said["item"]["name"]')), "it raises KeyError: 'item' (line "),
    "gives nothing": (change_solution(('case TimerFired(name=name):\n            return again(here, name)', 'case TimerFired(name=name):\n            again(here, name)')), NOT_RECEIVED),
    "no effects": (lambda here, now_us, event: None, "something that cannot be carried out"),
    "does nothing": (lambda here, now_us, event: [], "has not been answered."),
    "does not end": (change_solution(("10_000_000", "0")), "it does not come to an end"),
    "sends at once what failed": (change_solution(("        case LinkUp():", "        case SendFailed(message={'name': name}):\n            return again(here, name)\n        case LinkUp():")), "it does not come to an end"),
    "keeps something outside": (change_solution(*SHARED_STATE), "A machine keeps something outside of its memory"),
    "too few arguments": (lambda here, event: [], "it raises TypeError"),
}  # fmt: skip


TELLING = ("forgets what it sends", "the phone takes all", "the last want to come")


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize(("piece", "problem"), mark_soak(WRONG, *TELLING))
def test_judge_rejects(piece, problem):
    verdict = check_rejected(CHAPTER, piece, problem)
    assert verdict.failure.scenario.startswith("ann and bob want arts, cy wants sports. ")


def test_scenario_names_all_that_happens():
    """Name each step, so that a reader can repeat a failure by hand."""
    steps = [
        ("bob", "cut", None), ("bob", "restart", None), ("bob", "cut", None), (RELAY, "kill", None),
        (RELAY, "restart", None), (RELAY, "kill", None), ("ann", "arts", (1, "lost")), ("bob", "dither", None),
        ("bob", "turn", None), ("", "wait", None), ("ann", "sports", (1, "late")), ("", "nothing", None),
        ("ann", "cut", None),
    ]  # fmt: skip
    played = EXERCISE.play(load_machine(SOLUTION), [_Step(*step) for step in steps])
    assert played.problem is None
    assert played.scenario == (
        "ann and bob want arts, cy wants sports. bob is cut off, bob is killed and restarted, bob is mended, "
        "the relay is killed, the relay is restarted, ann publishes item 1 (arts), a message from ann to the "
        "relay is lost, bob now wants sports, bob now wants arts, bob now wants sports, 12 s pass, ann "
        "publishes item 2 (sports), a message from ann to the relay comes 15 s late, ann is cut off, ann is "
        "mended, 120 s pass, cy publishes item 3 (arts), ann publishes item 4 (sports), 120 s pass."
    )


def test_smallest_scenario_is_short_and_drawn():
    forgets = judge(CHAPTER, WRONG["forgets what it sends"][0])
    assert len(forgets.failure.scenario.split(", ")) <= 8, forgets.failure.scenario
    figure = forgets.diagram()
    assert list(figure.layout.xaxis.ticktext) == [f"<b>{name}</b>" for name in ("ann", "relay", "bob", "cy")]
    nothing = judge(CHAPTER, WRONG["does nothing"][0])
    assert nothing.diagram() is None


STORIES = [
    (
        [("ann", "arts", (1, "late")), ("bob", "cut", None), (RELAY, "kill", None), ("", "nothing", None), ("bob", "turn", None), (RELAY, "kill", None), ("bob", "cut", (2, "twice"))],
        "ann publishes item 1 (arts), a message from ann to the relay comes 15 s late, bob is cut off, the relay is killed, "
        "bob now wants sports, the relay is restarted, bob is mended, a message from the relay to bob comes again after 15 s, "
        "120 s pass, cy publishes item 2 (arts), ann publishes item 3 (sports), 120 s pass.",
    ),
    (
        [(RELAY, "restart", None), ("", "wait", None), ("cy", "dither", (1, "lost")), ("ann", "kill", None), ("ann", "restart", None), ("bob", "cut", None)],
        "the relay is killed and restarted, 12 s pass, cy now wants arts, a message from cy to the relay is lost, cy now wants sports, "
        "ann is killed, bob is cut off, ann is restarted, bob is mended, "
        "120 s pass, cy publishes item 1 (arts), ann publishes item 2 (sports), 120 s pass.",
    ),
    (
        [("bob", "cut", None), ("bob", "turn", None), ("bob", "restart", None)],
        "bob is cut off, bob now wants sports, bob is killed and restarted, bob is mended, bob repeats the want, "
        "120 s pass, cy publishes item 1 (arts), ann publishes item 2 (sports), 120 s pass.",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("story", "words"), STORIES)
def test_scenario_tells_every_step_in_its_order(story, words):
    """`PlayedScenario.scenario` is what happened, in words: a student repeats the story by hand."""
    piece = RIGHT["answers when the relay has it"]
    played = EXERCISE.play(piece, [_Step(*step) for step in story])
    assert (played.problem, played.scenario) == (None, f"ann and bob want arts, cy wants sports. {words}")


@pytest.mark.soak
def test_machine_is_graded_by_its_name(tmp_path):
    for name, text in (("right", SOLUTION), ("wrong", START)):
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    table = grade([tmp_path / "right.py", tmp_path / "wrong.py"])
    assert table[["exercise", "piece", "verdict"]].to_numpy().tolist() == [
        [CHAPTER, "handle", "passed"],
        [CHAPTER, "handle", "not yet"],
    ]


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("task", [TRAFFIC.over(devices=8, hours=0.5), NEWS.over(devices=6, hours=3)])
def test_solution_delivers_about_as_much_as_mud(task):
    """Run the solution on tasks that are larger than the judge's."""
    board = scoreboard(
        [task], {"MUD": Mud, "mine": own_machine(load_machine(SOLUTION))}, [0, 1], privacy=False
    )
    table = board.table(task.name)
    assert table.loc["mine", "useful"] >= 0.9 * table.loc["MUD", "useful"] > 0
    assert 0 < table.loc["mine", "messages"] < table.loc["MUD", "messages"]


def test_unpublished_item_is_refused():
    task = TRAFFIC.over(devices=4, hours=0.5)

    def invent_item(here, now_us, event):
        return [Notify("items", {"name": "a jam"})] if isinstance(event, Call) else []

    with pytest.raises(ParameterError, match="nobody has published"):
        run(task, own_machine(invent_item))


def test_story_is_drawn_if_it_fails_and_has_a_message():
    """A verdict without a failure, or without any message, has no diagram."""

    def fail(here, now_us, event):
        raise PieceError("it raises ZeroDivisionError")

    story = [_Step("ann", "arts", None)]
    assert _play(fail, story).picture is None
    assert _play(load_machine(SOLUTION), story).picture is None
    failed = _play(load_machine(START), [_Step("bob", "restart", None), *story])
    assert failed.problem
    assert failed.picture is not None
