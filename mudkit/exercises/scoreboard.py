"""The exercise of chapter 11: write a whole machine, which is then entered on the scoreboard.

The judge's task is small: ann and bob want what is about arts, cy what is about sports, and bob changes his
mind. Links are cut, machines are killed and come back with their stores, messages are lost, late and
repeated. What must hold says nothing of how a machine does it.
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
from mudkit.exercises.judging import Exercise, PieceError, Played
from mudkit.experiment import Item, Scenario, Task, Testbed
from mudkit.experiment.adapters.own import RELAY, Own
from mudkit.fleet.kernel import raise_failure
from mudkit.fleet.link import Transfer
from mudkit.lab import Lab

__all__ = ["EXERCISE"]

_FIRST: Final = {"ann": "arts", "bob": "arts", "cy": "sports"}
_OTHER: Final = {"arts": "sports", "sports": "arts"}
_FATES: Final = {
    "lost": ("is lost", ()),
    "twice": ("comes again after 15 s", (0, 15_000_000)),
    "late": ("comes 15 s late", (15_000_000,)),
}
"""What happens to a message: in words, and after which delays, in µs, it is handed over."""
_STEP_S: Final = 1.0
_WAIT_S: Final = 12.0
_CALM_S: Final = 120.0
_SILENCE_S: Final = 60.0
_MOST_EVENTS: Final = 5_000
_SIZE_BYTES: Final = 60

_TASK: Final = Task(
    "the judge's",
    "Everybody gets what is about her subject.",
    "item.subject = me.subject",
    Scenario(devices=len(_FIRST), size_bytes=_SIZE_BYTES),
    lambda seed, sender, number, loc: {},
    lambda seed, phones, senders: [{"subject": _FIRST[phone]} for phone in phones],
)


class _Step(NamedTuple):
    """What somebody does, and what becomes of one of the next messages that come somewhere."""

    who: str
    what: str
    trouble: tuple[int, str] | None


class _ProblemError(Exception):
    """A property does not hold."""


class _ExerciseTestbed(Testbed):
    """A testbed on which a reader can change her mind, and that tells the judge of what arrives."""

    def __init__(self, lab: Lab, came: Callable[[str, str], None]) -> None:
        super().__init__(_TASK, lab)
        self.subjects = dict(_FIRST)
        self._came = came

    def profile(self, phone: str) -> dict[str, Any]:
        return {"subject": self.subjects[phone]}

    def record_arrival(self, phone: str, item: str) -> None:
        self._came(phone, item)


class _Judged(NamedTuple):
    """An item, and whose it is.

    Parameters
    ----------
    item : Item
    published : Operation
    must : set of str
        Phones that it is to come to: what their users said of themselves has wanted it all the time.
    may : set of str
        The phones that the item may come to.
    """

    item: Item
    published: Operation
    must: set[str]
    may: set[str]

    @property
    def label(self) -> str:
        return f"{self.item.name} ({self.item.metadata['subject']})"


class _Trial:
    """Plays a story with a machine, and raises when a property does not hold.

    Parameters
    ----------
    piece : callable
        The machine's function that is judged.
    """

    def __init__(self, piece: Callable[..., Any]) -> None:
        self.lab = Lab(seed=1)
        self.lab.world.on_failure = raise_failure  # a piece that raises has not passed
        for name in _FIRST:
            self.lab.device(name)
        self._piece = piece
        self._handled = 0
        self._testbed = _ExerciseTestbed(self.lab, self._arrived)
        self._own: Own | None = None
        self._said = {phone: {subject} for phone, subject in _FIRST.items()}
        """What each has said that she wants, since all have heard of it."""
        self._asked: dict[str, Operation] = {}
        self._items: dict[str, _Judged] = {}
        self._handed: set[tuple[str, str]] = set()
        self._away: dict[str, Callable[[str], None]] = {}
        """Who is cut off or killed, and what brings it back."""
        self._trouble: tuple[int, str] | None = None
        self._passed = 0
        """Messages that came somewhere, since the trouble was thought of."""
        self.events: list[str] = []

    def play(self, story: Sequence[_Step]) -> None:
        """Play a story to its end, and judge it."""
        self._own = Own(self._testbed, self._piece, "mine", self._count)
        self.lab.run(seconds=_STEP_S)
        self.lab.world.fault_hook = self._fault_hook
        for who, what, trouble in story:
            if what != "nothing":
                self._trouble, self._passed = trouble, 0
                self._step(who, what)
                self.lab.run(seconds=_STEP_S)
        self._come_to_rest()
        self._check_all()
        for phone, subject in self._testbed.subjects.items():
            self._said[phone] = {subject}
        for sender, subject in (("cy", "arts"), ("ann", "sports")):
            self._publish(sender, subject)
        self._wait(_CALM_S)
        self._check_all()
        self._check_silence()

    def end(self) -> None:
        """Refuse a piece that keeps something outside: it explains whatever else was seen."""
        if self._own is not None:
            self._own.end()

    # -- what happens

    def _step(self, who: str, what: str) -> None:
        faults = self.lab.faults
        if what == "wait":
            self._wait(_WAIT_S)
        elif what in ("cut", "kill"):
            key = f"{what} {who}"
            if key in self._away:
                self._bring_back(key)
                return
            away, back = (faults.cut, faults.mend) if what == "cut" else (faults.kill, faults.restart)
            self.events.append(f"{_named(who)} is {'cut off' if what == 'cut' else 'killed'}")
            self._away[key] = back
            away(who)
        elif what == "restart":
            if f"kill {who}" not in self._away:
                self.events.append(f"{_named(who)} is killed and restarted")
                faults.kill(who)
                faults.restart(who)
        elif what == "dither":
            self._turn(who)
            self.lab.run(seconds=_STEP_S)
            self._turn(who)
        elif what == "turn":
            self._turn(who)
        else:
            self._publish(who, what)

    def _wait(self, length_s: float) -> None:
        self.events.append(f"{length_s:g} s pass")
        self.lab.run(seconds=length_s)

    def _bring_back(self, key: str) -> None:
        who = key.partition(" ")[2]
        self.events.append(f"{_named(who)} is {'mended' if key.startswith('cut') else 'restarted'}")
        self._away.pop(key)(who)

    def _publish(self, sender: str, subject: str) -> None:
        name = f"item {len(self._items) + 1}"
        self.events.append(f"{sender} publishes {name} ({subject})")
        others = {phone: said for phone, said in self._said.items() if phone != sender}
        item = Item(name, sender, {"who": sender, "rank": 0.0, "subject": subject}, _SIZE_BYTES, None)
        assert self._own is not None
        self._own.publish(item)
        assert self._own.last_call is not None
        self._items[name] = _Judged(
            item,
            self._own.last_call,
            must={phone for phone, said in others.items() if said == {subject}},
            may={phone for phone, said in others.items() if subject in said},
        )

    def _turn(self, who: str) -> None:
        subject = self._testbed.subjects[who] = _OTHER[self._testbed.subjects[who]]
        self.events.append(f"{who} wants {subject} from now on")
        self._said[who].add(subject)
        for judged in self._items.values():
            if judged.item.metadata["subject"] != subject:
                judged.must.discard(who)
            elif who != judged.item.sender:
                judged.may.add(who)
        self._say(who)

    def _say(self, who: str) -> None:
        assert self._own is not None
        self._own.on_move(who)
        assert self._own.last_call is not None
        self._asked[who] = self._own.last_call

    def _come_to_rest(self) -> None:
        """Bring everything back, and let what is under way come; who was not heard asks again."""
        self._trouble = None
        for key in list(self._away):
            self._bring_back(key)
        self.lab.run(seconds=_STEP_S)
        for who in [who for who, asked in self._asked.items() if _is_lost(asked)]:
            self.events.append(f"{who} says again what {who} wants")
            self._say(who)
        self._wait(_CALM_S)

    # -- what is seen of it

    def _count(self) -> None:
        self._handled += 1
        if self._handled > _MOST_EVENTS:
            raise _ProblemError(f"it does not come to an end: there were {_MOST_EVENTS:,} events.")

    def _fault_hook(self, transfer: Transfer) -> Sequence[int]:
        sender, to = transfer.sender.host.name, self.lab.world.at_address[transfer.to].host.name
        self._check_sent(to, transfer.message)
        self._passed += 1
        if self._trouble is None or self._trouble[0] != self._passed:
            return (0,)
        what, delays_us = _FATES[self._trouble[1]]
        self.events.append(f"a message from {_named(sender)} to {_named(to)}, {what}")
        return delays_us

    def _check_sent(self, to: str, message: Any) -> None:
        if to == RELAY or not self._items:
            return
        text = msgspec.json.encode(message, enc_hook=bytes).decode()
        for judged in self._items.values():
            if to not in judged.may and judged.item.content in text:
                why = "who has published it" if to == judged.item.sender else "who does not want it"
                raise _ProblemError(f"{to}, {why}, is sent {judged.label}.")

    def _arrived(self, phone: str, name: str) -> None:
        judged = self._items[name]
        if phone not in judged.may:
            raise _ProblemError(f"{phone}'s application is handed {judged.label}, and does not want it.")
        if (phone, name) in self._handed:
            raise _ProblemError(f"{phone}'s application is handed {judged.label} twice.")
        self._handed.add((phone, name))

    def _check_all(self) -> None:
        after = f"after {_CALM_S:g} s in which nothing went wrong"
        for who, asked in self._asked.items():
            _check_answer(asked, f"{who}'s want", after)
        for name, judged in self._items.items():
            _check_answer(judged.published, f"{judged.item.sender}'s publish of {name}", after)
            missing = sorted(judged.must - {phone for phone, item in self._handed if item == name})
            if missing and not _is_lost(judged.published):
                raise _ProblemError(f"{after}, {missing[0]} has not got {judged.label}.")

    def _check_silence(self) -> None:
        before = sum(row.messages for row in self.lab.world.bill())
        self.lab.run(seconds=_SILENCE_S)
        more = sum(row.messages for row in self.lab.world.bill()) - before
        if more:
            raise _ProblemError(f"all has come, and within the next minute there are {more} more messages.")

    def drawn(self) -> go.Figure:
        """Draw what was sent."""
        return figures.message_diagram(
            self.lab,
            lanes=("ann", RELAY, "bob", "cy"),
            title="The smallest scenario that fails",
        )


def _named(host: str) -> str:
    return f"the {host}" if host == RELAY else host


def _is_lost(operation: Operation) -> bool:
    """Say whether its machine was killed before it answered: it may have been done, or not."""
    if operation.done():
        try:
            operation.result()
        except OperationLost:
            return True
        except Exception:  # what the machine has answered with
            return False
    return False


def _check_answer(operation: Operation, what: str, when: str) -> None:
    if not operation.done():
        raise _ProblemError(f"{when}, {what} has not been answered.")
    try:
        operation.result()
    except OperationLost:
        pass
    except Exception as error:
        raise _ProblemError(f"{what} is answered with {type(error).__name__}: {error}") from error


def _play(piece: Callable[..., Any], story: Sequence[_Step]) -> Played:
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
    return Played(scenario, problem, picture=trial.drawn if is_drawn else None)


_STEPS: Final = (
    ("", "nothing"), ("ann", "arts"), ("ann", "sports"), ("bob", "arts"), ("bob", "turn"), ("bob", "cut"),
    ("ann", "cut"), (RELAY, "restart"), ("bob", "restart"), ("ann", "restart"), (RELAY, "kill"),
    ("", "wait"), ("bob", "dither"), ("ann", "arts"), ("bob", "restart"),
)  # fmt: skip
"""Nothing is what a failure shrinks to: of stories that are short from the start too few fail."""

_TROUBLES: Final = (None,) * 8 + tuple((number, fate) for fate in _FATES for number in (1, 2, 3, 4))

EXERCISE: Final = Exercise(
    signature="handle(here, now_us, event) -> effects: a whole machine, on the phones and on the relay; here "
    "has me, is_relay, relay (its address; names are addresses), store, memory and wants(me, item); the "
    "application calls want(me) and publish(item), and is handed items by Notify('items', item)",
    property="Each item comes once to each application that wants it, its sender's own apart, within two "
    "minutes of all links and machines being back, and to no other; no phone is sent what it does not want, "
    "nor its own item; each call is answered; and when all has come, nothing more is sent.",
    scenarios=st.lists(
        st.tuples(st.sampled_from(_STEPS), st.sampled_from(_TROUBLES)).map(
            lambda drawn: _Step(drawn[0][0], drawn[0][1], drawn[1])
        ),
        min_size=12,
        max_size=12,
    ),
    play=_play,
)
