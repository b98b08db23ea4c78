"""Exercise of chapter 11: write a whole machine, which is then entered on the scoreboard.

The judge's task is small: ann and bob want items about arts, cy wants items about sports, and bob changes his
interest. Links are cut, machines are killed and restarted with their stores, messages are lost, late and
repeated. The property does not depend on how a machine works.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import plotly.graph_objects as go
from hypothesis import strategies as st

from mudkit import figures
from mudkit.errors import MudkitError, OperationLost
from mudkit.events import Operation
from mudkit.exercises.judging import FAILURE_TITLE, Exercise, PieceError, PlayedScenario, new_lab
from mudkit.experiment import Item, Scenario, Task, Testbed
from mudkit.experiment.adapters.own import RELAY, Own
from mudkit.fleet.link import Transfer
from mudkit.lab import Lab

_INITIAL_SUBJECTS: Final = {"ann": "arts", "bob": "arts", "cy": "sports"}
_OTHER_SUBJECT: Final = {"arts": "sports", "sports": "arts"}
_FATES: Final = {
    "lost": ("is lost", ()),
    "twice": ("comes again after 15 s", (0, 15_000_000)),
    "late": ("comes 15 s late", (15_000_000,)),
}
"""Faults of a message: in words, and the delays, in µs, after which it arrives."""
_STEP_S: Final = 1.0
_WAIT_S: Final = 12.0
_CALM_S: Final = 120.0
_SILENCE_S: Final = 60.0
_MAX_EVENTS: Final = 5_000
_SIZE_BYTES: Final = 60

_TASK: Final = Task(
    "the judge's",
    "Everybody gets the items about their subject.",
    "item.subject = me.subject",
    Scenario(devices=len(_INITIAL_SUBJECTS), size_bytes=_SIZE_BYTES),
    lambda seed, sender, number, loc: {},
    lambda seed, phones, senders: [{"subject": _INITIAL_SUBJECTS[phone]} for phone in phones],
)


class _Step(NamedTuple):
    """Action of a host, and a fault of one of the next messages: which of them, and how."""

    who: str
    action: str
    fault: tuple[int, str] | None


class _ProblemError(Exception):
    """A property does not hold."""


class _ExerciseTestbed(Testbed):
    """Testbed on which readers can change their subject, and that reports arrivals to the judge."""

    def __init__(self, lab: Lab, on_arrival: Callable[[str, str], None]) -> None:
        super().__init__(_TASK, lab)
        self.subjects = dict(_INITIAL_SUBJECTS)
        self._on_arrival = on_arrival

    def profile(self, phone: str) -> dict[str, Any]:
        """Return the reader's subject of the moment."""
        return {"subject": self.subjects[phone]}

    def record_arrival(self, phone: str, item: str) -> None:
        """Report an arrival to the judge."""
        self._on_arrival(phone, item)


class _Judged(NamedTuple):
    """Published item, and the phones that must and may receive it."""

    item: Item
    published: Operation
    must: set[str]
    """Phones whose subject has been that of the item all the time."""
    may: set[str]

    @property
    def label(self) -> str:
        """Name and subject of the item, for problems."""
        return f"{self.item.name} ({self.item.metadata['subject']})"


class _Trial:
    """Run of a story with the machine under test; raises when a property does not hold."""

    def __init__(self, piece: Callable[..., Any]) -> None:
        self.lab = new_lab()
        for name in _INITIAL_SUBJECTS:
            self.lab.device(name)
        self._piece = piece
        self._handled = 0
        self._testbed = _ExerciseTestbed(self.lab, self._record_arrival)
        self._own: Own | None = None
        self._subjects = {phone: {subject} for phone, subject in _INITIAL_SUBJECTS.items()}
        """Subjects of each phone since the machines last came to rest."""
        self._wants: dict[str, Operation] = {}
        self._items: dict[str, _Judged] = {}
        self._handed: set[tuple[str, str]] = set()
        self._away: dict[str, Callable[[str], None]] = {}
        """Undoes each current cut or kill, by ``"cut bob"`` and the like."""
        self._fault: tuple[int, str] | None = None
        self._passed = 0
        """Messages delivered since the fault was planned."""
        self.events: list[str] = []

    def play(self, story: Sequence[_Step]) -> None:
        """Run a story to its end and check the properties."""
        self._own = Own(self._testbed, self._piece, "mine", self._count)
        self.lab.run(seconds=_STEP_S)
        self.lab.world.fault_hook = self._handle_transfer
        for who, action, fault in story:
            if action != "nothing":
                self._fault, self._passed = fault, 0
                self._step(who, action)
                self.lab.run(seconds=_STEP_S)
        self._come_to_rest()
        self._check_all()
        for phone, subject in self._testbed.subjects.items():
            self._subjects[phone] = {subject}
        for sender, subject in (("cy", "arts"), ("ann", "sports")):
            self._publish(sender, subject)
        self._wait(_CALM_S)
        self._check_all()
        self._check_silence()

    def end(self) -> None:
        """Raise if the machine keeps state outside of its memory, which explains any other problem."""
        if self._own is not None:
            self._own.end()

    def _step(self, who: str, action: str) -> None:
        """Carry out an action of a host: a wait, a fault or its end, another want, or an item."""
        faults = self.lab.faults
        if action == "wait":
            self._wait(_WAIT_S)
        elif action in ("cut", "kill"):
            key = f"{action} {who}"
            if key in self._away:
                self._bring_back(key)
                return
            away, back = (faults.cut, faults.mend) if action == "cut" else (faults.kill, faults.restart)
            self.events.append(f"{_named(who)} is {'cut off' if action == 'cut' else 'killed'}")
            self._away[key] = back
            away(who)
        elif action == "restart":
            if f"kill {who}" not in self._away:
                self.events.append(f"{_named(who)} is killed and restarted")
                faults.kill(who)
                faults.restart(who)
        elif action == "dither":
            self._turn(who)
            self.lab.run(seconds=_STEP_S)
            self._turn(who)
        elif action == "turn":
            self._turn(who)
        else:
            self._publish(who, action)

    def _wait(self, length_s: float) -> None:
        """Run the lab for some seconds, as an event of the story."""
        self.events.append(f"{length_s:g} s pass")
        self.lab.run(seconds=length_s)

    def _bring_back(self, key: str) -> None:
        """End the cut or the kill of a host that is in effect."""
        who = key.partition(" ")[2]
        self.events.append(f"{_named(who)} is {'mended' if key.startswith('cut') else 'restarted'}")
        self._away.pop(key)(who)

    def _publish(self, sender: str, subject: str) -> None:
        """Publish an item, and record who must and who may receive it."""
        name = f"item {len(self._items) + 1}"
        self.events.append(f"{sender} publishes {name} ({subject})")
        others = {phone: subjects for phone, subjects in self._subjects.items() if phone != sender}
        item = Item(name, sender, {"who": sender, "rank": 0.0, "subject": subject}, _SIZE_BYTES, None)
        assert self._own is not None
        self._own.publish(item)
        assert self._own.last_call is not None
        self._items[name] = _Judged(
            item,
            self._own.last_call,
            must={phone for phone, subjects in others.items() if subjects == {subject}},
            may={phone for phone, subjects in others.items() if subject in subjects},
        )

    def _turn(self, who: str) -> None:
        """Change a reader to want the other subject from now on."""
        subject = self._testbed.subjects[who] = _OTHER_SUBJECT[self._testbed.subjects[who]]
        self.events.append(f"{who} now wants {subject}")
        self._subjects[who].add(subject)
        for judged in self._items.values():
            if judged.item.metadata["subject"] != subject:
                judged.must.discard(who)
            elif who != judged.item.sender:
                judged.may.add(who)
        self._send_want(who)

    def _send_want(self, who: str) -> None:
        """Call ``want`` as a reader's application."""
        assert self._own is not None
        self._own.on_move(who)
        assert self._own.last_call is not None
        self._wants[who] = self._own.last_call

    def _come_to_rest(self) -> None:
        """End all faults, repeat wants that were lost, and wait until messages in flight have arrived."""
        self._fault = None
        for key in list(self._away):
            self._bring_back(key)
        self.lab.run(seconds=_STEP_S)
        for who in [who for who, want in self._wants.items() if _is_lost(want)]:
            self.events.append(f"{who} repeats the want")
            self._send_want(who)
        self._wait(_CALM_S)

    def _count(self) -> None:
        """Count an event of the machine; raise when there are too many."""
        self._handled += 1
        if self._handled > _MAX_EVENTS:
            raise _ProblemError(f"it does not come to an end: there were {_MAX_EVENTS:,} events.")

    def _handle_transfer(self, transfer: Transfer) -> Sequence[int]:
        """Raise if a message may not be sent; return a delay in µs for each time it arrives."""
        sender, to = transfer.sender.host.name, self.lab.world.at_address[transfer.to].host.name
        self._check_sent(to, transfer.message)
        self._passed += 1
        if self._fault is None or self._fault[0] != self._passed:
            return (0,)
        words, delays_us = _FATES[self._fault[1]]
        self.events.append(f"a message from {_named(sender)} to {_named(to)} {words}")
        return delays_us

    def _check_sent(self, to: str, message: Any) -> None:
        """Raise if a message brings an item to a host that may not receive it."""
        if to == RELAY or not self._items:
            return
        text = msgspec.json.encode(message, enc_hook=bytes).decode()
        for judged in self._items.values():
            if to not in judged.may and judged.item.content in text:
                why = "who published it" if to == judged.item.sender else "who does not want it"
                raise _ProblemError(f"{to}, {why}, is sent {judged.label}.")

    def _record_arrival(self, phone: str, name: str) -> None:
        """Record an arrival; raise if the item is not wanted there, or has arrived before."""
        judged = self._items[name]
        if phone not in judged.may:
            raise _ProblemError(f"{phone}'s application is handed {judged.label}, which it does not want.")
        if (phone, name) in self._handed:
            raise _ProblemError(f"{phone}'s application is handed {judged.label} twice.")
        self._handed.add((phone, name))

    def _check_all(self) -> None:
        """Raise if a call has no answer, or a reader lacks an item that it must receive."""
        after = f"after {_CALM_S:g} s without faults"
        for who, want in self._wants.items():
            _check_answer(want, f"{who}'s want", after)
        for name, judged in self._items.items():
            _check_answer(judged.published, f"{judged.item.sender}'s publish of {name}", after)
            missing = sorted(judged.must - {phone for phone, item in self._handed if item == name})
            if missing and not _is_lost(judged.published):
                raise _ProblemError(f"{after}, {missing[0]} has not received {judged.label}.")

    def _check_silence(self) -> None:
        """Raise if messages are sent after everything has arrived."""
        before = sum(row.messages for row in self.lab.world.bill())
        self.lab.run(seconds=_SILENCE_S)
        more = sum(row.messages for row in self.lab.world.bill()) - before
        if more:
            raise _ProblemError(
                f"everything has arrived, and within the next minute there are {more} more messages."
            )

    def drawn(self) -> go.Figure:
        """Draw the messages."""
        return figures.message_diagram(
            self.lab,
            lanes=("ann", RELAY, "bob", "cy"),
            title=FAILURE_TITLE,
        )


def _named(host: str) -> str:
    """Return a host in words."""
    return f"the {host}" if host == RELAY else host


def _is_lost(operation: Operation) -> bool:
    """Return whether the machine was killed before it answered, so that the outcome is unknown."""
    if operation.done():
        try:
            operation.result()
        except OperationLost:
            return True
        except Exception:  # an error with which the machine answered
            return False
    return False


def _check_answer(operation: Operation, name: str, when: str) -> None:
    """Raise if a call has no answer, or an error as its answer; one lost by a kill is fine."""
    if not operation.done():
        raise _ProblemError(f"{when}, {name} has not been answered.")
    try:
        operation.result()
    except OperationLost:
        pass
    except Exception as error:
        raise _ProblemError(f"{name} is answered with {type(error).__name__}: {error}") from error


def _play(piece: Callable[..., Any], story: Sequence[_Step]) -> PlayedScenario:
    """Run a story with the machine, and return the outcome."""
    trial = _Trial(piece)
    problem = None
    try:
        try:
            trial.play(story)
        finally:
            trial.end()
    except (PieceError, _ProblemError) as error:
        problem = str(error)
    except MudkitError as error:
        problem = " ".join(filter(None, (error.summary, error.where and f"({error.where})", error.found)))
    scenario = f"ann and bob want arts, cy wants sports. {', '.join(trial.events) or 'That is all'}."
    is_drawn = problem is not None and trial.lab.trace.table("messages").num_rows > 0
    return PlayedScenario(scenario, problem, picture=trial.drawn if is_drawn else None)


_STEPS: Final = (
    ("", "nothing"), ("ann", "arts"), ("ann", "sports"), ("bob", "arts"), ("bob", "turn"), ("bob", "cut"),
    ("ann", "cut"), (RELAY, "restart"), ("bob", "restart"), ("ann", "restart"), (RELAY, "kill"),
    ("", "wait"), ("bob", "dither"), ("ann", "arts"), ("bob", "restart"),
)  # fmt: skip
"""Failures shrink towards "nothing"; too few of the stories that are short from the start fail."""

_FAULTS: Final = (None,) * 8 + tuple((number, fate) for fate in _FATES for number in (1, 2, 3, 4))

EXERCISE: Final = Exercise(
    signature="handle(here, now_us, event) -> effects: a whole machine, on the phones and on the relay; here "
    "has me, is_relay, relay (its address; names are addresses), store, memory and wants(me, item); the "
    "application calls want(me) and publish(item), and receives items by Notify('items', item)",
    property="Each item reaches each application that wants it, except its sender's, exactly once, within "
    "two minutes after all links and machines are back, and no other application; no phone is sent an item "
    "that it does not want, or its own; each call is answered; and when everything has arrived, nothing "
    "more is sent.",
    scenarios=st.lists(
        st.tuples(st.sampled_from(_STEPS), st.sampled_from(_FAULTS)).map(
            lambda drawn: _Step(drawn[0][0], drawn[0][1], drawn[1])
        ),
        min_size=12,
        max_size=12,
    ),
    play=_play,
)
