"""Declarative policies: ordered rules over a message, the subscriber's state and the time.

The first rule whose condition is TRUE fires; if none does, the message is dropped. A condition is a predicate
over ``message`` (as published), ``state`` (automatic and manual variables) and ``clock`` (``clock.now_s``:
time of publication, seconds since 1970, the argument of ``hour`` and ``weekday``). A missing field is NULL,
and a comparison with it is not TRUE. A policy has no other state, no loop and no access to Python.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path as File
from typing import TYPE_CHECKING, ClassVar, Final

from mudkit.checks import check_arguments
from mudkit.display import Cell, Displayed, View, first_rows, one_line
from mudkit.errors import MudkitError, brief
from mudkit.events import size_bytes
from mudkit.files import existing_path
from mudkit.predicates import Language, Predicate
from mudkit.predicates.values import KINDS
from mudkit.systems.sublim._policy.actions import Action, Every, Summary, build_action, describe
from mudkit.systems.sublim._policy.execution import MAX_BOOKS_BYTES, Execution, Step
from mudkit.systems.sublim._policy.function import TooLong, error_text
from mudkit.systems.sublim._policy.message import thaw
from mudkit.systems.sublim._policy.state import (
    AUTOMATIC,
    MAX_VARIABLES,
    LimitExceeded,
    State,
    Tables,
    check_initial_variables,
)
from mudkit.systems.sublim._policy.text import Path, Places, PolicyError, read_yaml
from mudkit.systems.sublim._policy.verdict import (
    DROPPED,
    HELD,
    SENT,
    STOPPED,
    EvaluatedRule,
    Verdict,
    values_read_by,
)
from mudkit.wire import Fields, Value

if TYPE_CHECKING:
    import pandas as pd

MAX_RULES: Final = 64
MAX_ACTIONS: Final = 16
"""Actions of a rule."""

SCOPES: Final = ("message", "state", "clock")
_PARTS: Final = ("policy", "message", "variables", "rules")
_RULE: Final = ("name", "when", "do")
_FIELD_KINDS: Final = (*KINDS, "bytes")
_LANGUAGE: Final = Language(SCOPES, bound=())
_MAX_CONDITION: Final = 200


@check_arguments
@dataclass(frozen=True)
class Rule:
    """Condition, and the actions on a message for which it is TRUE.

    Parameters
    ----------
    when : str or None
        Predicate; None: always TRUE.
    do : Action or sequence of Action
        Actions in order; none: the message is sent unchanged.
    name : str
        Name in explanations; by default ``rule`` and its number.
    """

    when: str | None = None
    do: Action | Sequence[Action] = ()
    name: str = ""

    def __post_init__(self) -> None:
        if len(self.actions) > MAX_ACTIONS:
            raise PolicyError(
                "A rule has too many actions.",
                found=str(len(self.actions)),
                expected=f"at most {MAX_ACTIONS}",
            )

    @property
    def actions(self) -> tuple[Action, ...]:
        """Actions in order."""
        return tuple(self.do) if isinstance(self.do, Sequence) else (self.do,)

    def to_dict(self) -> dict[str, Value]:
        """Return the rule as JSON."""
        return {"name": self.name, "when": self.when, "do": [describe(action) for action in self.actions]}


@dataclass(frozen=True)
class _CompiledRule:
    """Rule with its compiled condition (None: always TRUE) and actions."""

    rule: Rule
    predicate: Predicate | None
    steps: tuple[Step, ...]


class Policy(Displayed):
    """Ordered rules; the first whose condition is TRUE fires.

    Parameters
    ----------
    name : str
    rules : sequence of Rule
    message : mapping of str to str, optional
        Fields of messages and their kinds (``number``, ``string``, ``boolean``, ``point``, ``struct``,
        ``bytes``); a rule that names another field is refused. Without, any field may be named.
    variables : mapping of str to object, optional
        Initial manual variables; a list is a table of the language, for ``lookup``.
    places : Places, optional
        Places of its parts in the text, for errors; set by :meth:`from_yaml`.

    Raises
    ------
    PolicyError
        A part is unknown or invalid; the error names the line of a policy that was read from a text.

    Examples
    --------
    >>> from mudkit.systems.sublim._policy.actions import Drop, Keep
    >>> quiet = Policy("quiet", [Rule("state.battery < 20", Keep(("price",))), Rule()])
    >>> quiet.decide({"price": 7, "chart": b"..."}, {}, {"battery": 10}).out
    {'price': 7}
    """

    kind: ClassVar = "rules"

    @check_arguments
    def __init__(
        self,
        name: str,
        rules: Sequence[Rule],
        *,
        message: Mapping[str, str] | None = None,
        variables: Fields | None = None,
        places: Places | None = None,
    ) -> None:
        self.places = places or Places()
        self.name = name
        self.rules = tuple(
            replace(rule, name=rule.name or f"rule {number}") for number, rule in enumerate(rules, start=1)
        )
        self.message = dict(message or {})
        self.variables: dict[str, Value] = dict(variables or {})
        if not self.rules or len(self.rules) > MAX_RULES:
            raise self.places.error(
                ("rules",), "A policy needs rules.", found=str(len(self.rules)), expected=f"1 to {MAX_RULES}"
            )
        _check_declarations(self.message, self.variables, self.places)
        self.language = self._language()
        self._variables = self._variables_of_books()
        self._books = frozenset(self._variables.values())
        self._room_bytes = MAX_BOOKS_BYTES // max(len(self._books), 1)
        self._compiled = [self._compile(number, rule) for number, rule in enumerate(self.rules)]
        self._decides = [
            (
                number,
                None if compiled.predicate is None else compiled.predicate.form.matches,
                () if compiled.predicate is None else compiled.predicate.constants,
                compiled.steps,
            )
            for number, compiled in enumerate(self._compiled)
        ]

    @classmethod
    @check_arguments
    def from_yaml(cls, source: str | os.PathLike[str]) -> Policy:
        """Read a policy from a YAML file, or from a text of several lines; it is not checked yet.

        Parameters
        ----------
        source : str or path-like
            Name of the file, or the text itself if it contains a line feed.

        Raises
        ------
        InputMissing
            The file does not exist.
        PolicyError
            The text is not a policy; the error names the line.
        """
        if isinstance(source, str) and "\n" in source:
            return cls.from_dict(*read_yaml(source, ""))
        file = existing_path(source, "policy")
        return cls.from_dict(*read_yaml(File(file).read_text(encoding="utf-8"), file.name))

    @classmethod
    @check_arguments
    def from_dict(cls, fields: Value, places: Places | None = None) -> Policy:
        """Build a policy from ``fields`` as of :meth:`to_dict`; ``places`` are its lines, for errors."""
        places = places or Places()
        parts = _check_parts(fields, (), _PARTS, places)
        rules = parts.get("rules")
        if not isinstance(rules, Sequence) or isinstance(rules, str):
            raise places.error(("rules",), "A policy needs a list of rules.", found=brief(rules, 80))
        rules_read = [_build_rule(number, rule, places) for number, rule in enumerate(rules)]
        named: list[Fields] = []
        for part in ("message", "variables"):
            if not isinstance(fields := parts.get(part) or {}, Mapping):
                raise places.error((part,), f"{part} are named.", found=brief(fields, 80))
            named.append(fields)
        message, variables = named
        kinds = {name: str(kind) for name, kind in message.items()}
        return cls(
            str(parts.get("policy", "")), rules_read, message=kinds, places=places, variables=variables
        )

    def to_dict(self) -> dict[str, Value]:
        """Return the policy as JSON, as sent to the access point."""
        return {
            "policy": self.name,
            "message": dict(self.message),
            "variables": thaw(self.variables),
            "rules": [rule.to_dict() for rule in self.rules],
        }

    @check_arguments(types=False)
    def predicate(self, number: int) -> Predicate | None:
        """Return the compiled condition of a rule, from 0; None: always TRUE."""
        return self._compiled[number].predicate

    @check_arguments(types=False)
    def steps(self, number: int) -> tuple[Step, ...]:
        """Return the compiled actions of a rule, from 0."""
        return self._compiled[number].steps

    def fires(
        self,
        message: Fields,
        variables: Fields,
        automatic: Fields,
        now_s: float = 0.0,
    ) -> int | None:
        """Return the index of the rule that fires, or None; arguments as of :meth:`decide`."""
        state = {**variables, **automatic}
        clock, tables = {"now_s": now_s}, Tables(state)
        for number, matches, constants, _ in self._decides:
            if matches is None or matches(constants, tables, message, state, clock):
                return number
        return None

    def decide(
        self,
        message: Fields,
        variables: Fields,
        automatic: Fields,
        now_s: float = 0.0,
    ) -> Verdict:
        """Decide about one message; no argument is changed.

        ``variables`` and ``automatic`` are those of the subscriber, ``now_s`` the time of publication since
        1970.
        """
        state = State(variables, automatic, now_s, self._books)
        everything, clock, tables = state.all, {"now_s": now_s}, Tables(state.all)
        try:
            for number, matches, constants, steps in self._decides:
                if matches is None or matches(constants, tables, message, everything, clock):
                    execution = Execution(message, state, clock, tables, self._room_bytes)
                    for step in steps:
                        if not step(execution):
                            outcome = DROPPED if execution.hold_reason is None else HELD
                            return Verdict.of(outcome, None, number, state, variables, execution.hold_reason)
                    return Verdict.of(SENT, execution.out, number, state, variables)
        except (LimitExceeded, MudkitError, TooLong) as error:
            return Verdict(STOPPED, None, None, variables, str(error))
        except (Exception, SystemExit) as error:  # a registered method may raise anything
            return Verdict(STOPPED, None, None, variables, error_text(error))
        return Verdict(DROPPED, None, None, variables)

    @check_arguments(types=False)
    def explain(
        self,
        message: Fields,
        variables: Fields,
        automatic: Fields,
        now_s: float = 0.0,
    ) -> list[EvaluatedRule]:
        """Return the values of each rule up to the one that fires; arguments as of :meth:`decide`."""
        scopes = {"message": message, "state": {**variables, **automatic}, "clock": {"now_s": now_s}}
        seen = []
        for number, compiled in enumerate(self._compiled):
            truth = True
            named: dict[str, Value] = {}
            if compiled.predicate is not None:
                truth = compiled.predicate(
                    message, state=scopes["state"], clock=scopes["clock"], tables=Tables(scopes["state"])
                )  # type: ignore[assignment]
                named = values_read_by(compiled.predicate, scopes)
            seen.append(EvaluatedRule(number, compiled.rule.name, compiled.rule.when, truth, named))
            if truth is True:
                break
        return seen

    def __reduce__(self) -> tuple[partial[Policy], tuple[str, tuple[Rule, ...]]]:
        """Copy and pickle by the constructor's arguments: compiled rules are functions."""
        parts = partial(Policy, message=self.message, variables=self.variables, places=self.places)
        return parts, (self.name, self.rules)

    def _view(self) -> View:
        """Return the rules for the display."""
        rows = (
            (
                number,
                rule.name,
                Cell(one_line(rule.when or "always", _MAX_CONDITION)),
                [Cell(one_line(describe(action))) for action in rule.actions] or "send",
            )
            for number, rule in enumerate(self.rules, start=1)
        )
        return View(
            "sublim.Policy",
            {"name": self.name, "rules": len(self.rules), "variables": self.variables},
            [first_rows(("rule", "name", "when", "do"), rows, len(self.rules))],
            ["The first rule that holds fires; when none does, the message is dropped."],
        )

    def _language(self) -> Language:
        """Return the language of the conditions; it knows the fields of messages if they are declared."""
        if not self.message:
            return _LANGUAGE
        # Predicates read bytes as NULL.
        fields = {name: "string" if kind == "bytes" else kind for name, kind in self.message.items()}
        return Language(SCOPES, bound=(), schema={"message": fields, "clock": {"now_s": "number"}})

    def _variables_of_books(self) -> dict[tuple[int, int], str]:
        """Return the variable of each action that keeps books, by the positions of rule and action.

        The default name is not an identifier, so no expression, action or other rule can name it.
        """
        variables: dict[tuple[int, int], str] = {}
        sharing: dict[str, Every | Summary] = {}
        for number, rule in enumerate(self.rules):
            for place, action in enumerate(rule.actions):
                if not isinstance(action, Every | Summary):
                    continue
                variables[number, place] = action.variable or f"{action.NAME} {number + 1}.{place + 1}"
                if action.variable and sharing.setdefault(action.variable, action) != action:
                    raise self.places.error(
                        ("rules", number, "do", place),
                        "Two actions that differ keep their books in one variable.",
                        found=f"{action} and {sharing[action.variable]}",
                        expected="equal actions, or a variable each",
                        remedy="leave the variable out: each action then has one of its own",
                    )
        return variables

    def _compile(self, number: int, rule: Rule) -> _CompiledRule:
        """Return a rule with its condition and actions compiled; raise PolicyError with their place."""
        places, path = self.places, ("rules", number)
        predicate = None
        if rule.when is not None:
            with places.at((*path, "when")):
                predicate = Predicate.parse(rule.when, language=self.language)
        steps = []
        for place, action in enumerate(rule.actions):
            with places.at((*path, "do", place)):
                if isinstance(action, Every | Summary):
                    steps.append(action.compile(self.language, self._variables[number, place]))
                else:
                    steps.append(action.compile(self.language))
        return _CompiledRule(rule, predicate, tuple(steps))


def _build_rule(number: int, plain: Value, places: Places) -> Rule:
    """Return the rule of a plain mapping (name, when, do); raise PolicyError with the place of a mistake."""
    path = ("rules", number)
    parts = _check_parts(plain, path, _RULE, places)
    when = parts.get("when")
    if when is not None and not isinstance(when, str):
        raise places.error((*path, "when"), "A condition must be a text.", found=brief(when))
    given = parts.get("do", [])
    listed = given if isinstance(given, list) else [given]
    actions: list[Action] = []
    for position, item in enumerate(listed):
        with places.at((*path, "do", position) if isinstance(given, list) else (*path, "do")):
            if isinstance(item, str):
                actions.append(build_action(item, None))
            elif isinstance(item, Mapping) and len(item) == 1:
                ((name, after),) = item.items()
                actions.append(build_action(name, after))
            else:
                raise PolicyError(
                    "Expected one action.", found=brief(item, 80), expected="drop, or keep: [pulse]"
                )
    with places.at(path):
        return Rule(when, actions, str(parts.get("name") or ""))


def _check_parts(plain: Value, path: Path, known: Sequence[str], places: Places) -> Fields:
    """Return a mapping of known keys unchanged; raise PolicyError for any other value."""
    if not isinstance(plain, Mapping):
        raise places.error(path, "Expected named parts.", found=brief(plain, 80), expected=", ".join(known))
    for name in plain:
        if name not in known:
            raise places.error(
                (*path, name),
                f"Unknown part {name!r}.",
                found=brief(name),
                expected=", ".join(known),
            )
    return plain


def _check_declarations(message: Mapping[str, str], variables: Fields, places: Places) -> None:
    """Raise PolicyError for an unknown kind of field, or initial variables that cannot be kept."""
    for name, kind in message.items():
        if kind not in _FIELD_KINDS:
            raise places.error(
                ("message", name),
                "Unknown kind of field.",
                found=brief(kind),
                expected=", ".join(_FIELD_KINDS),
            )
    if len(variables) > MAX_VARIABLES:
        raise places.error(
            ("variables",),
            "There are too many variables.",
            found=str(len(variables)),
            expected=f"at most {MAX_VARIABLES}",
        )
    for name in variables:
        if name in AUTOMATIC:
            raise places.error(
                ("variables", name),
                "This variable is automatic: the system maintains it.",
                found=name,
                expected="another name",
            )
    with places.at(("variables",)):
        check_initial_variables(variables)


@check_arguments
def decision_table(
    policy: Policy,
    messages: Mapping[str, Fields],
    states: Mapping[str, Fields],
    variables: Fields | None = None,
    now_s: float = 0.0,
) -> pd.DataFrame:
    """Decide about each message in each state, independently; nothing is changed.

    Parameters
    ----------
    policy : Policy
    messages : mapping of str to mapping
        Messages by label.
    states : mapping of str to mapping
        Automatic variables by label.
    variables : mapping, optional
        Manual variables; by default the initial ones of the policy.
    now_s : float
        Time of publication, seconds since 1970.

    Returns
    -------
    pandas.DataFrame
        ``message, state, rule, name, outcome, fields, bytes``: labels, number of the rule from 1 (0: none
        fires) and its name, the outcome as in :class:`Verdict`, and names and size of the fields sent (empty
        and 0 if none are).
    """
    import pandas as pd

    kept = policy.variables if variables is None else variables
    rows = []
    for message, body in messages.items():
        for state, automatic in states.items():
            verdict = policy.decide(body, kept, automatic, now_s)
            rule = -1 if verdict.rule is None else verdict.rule
            name = policy.rules[rule].name if rule >= 0 else "no rule"
            out = verdict.out or {}
            size = size_bytes(out) if out else 0
            rows.append((message, state, rule + 1, name, verdict.outcome, ", ".join(out), size))
    columns = ["message", "state", "rule", "name", "outcome", "fields", "bytes"]
    return pd.DataFrame(rows, columns=columns)
