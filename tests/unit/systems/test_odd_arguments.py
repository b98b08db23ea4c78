"""Odd arguments of every public call: a MudkitError in words, or what the annotation of the parameter allows.

The calls are found by walking what ``__all__`` of each system names, and Lab, its devices and its faults: a new
call is covered without being listed. Not called are machines, engines and algorithms, which their drivers call
with what was checked before, and records of results.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import msgspec
import pandas as pd
import pytest

from mudkit import Lab
from mudkit.arguments import annotations_of, check_arguments, fits
from mudkit.errors import MudkitError, ParameterError, brief
from mudkit.sources import Outages
from mudkit.systems import lasthop, radiator

SYSTEMS = ("contrail", "lasthop", "mud", "radiator", "store_and_forward", "sublim")
INNER = (".servers.server", ".servers.relay", ".device.client", ".device.direct", ".messages.")
"""Modules of machines and algorithms: what they are given was checked by the fronts."""

HANDED_OUT = ("lasthop.Lifelines", "lasthop.Situation")
"""Classes whose objects users are given, and never construct."""


class Odd:
    """Something that no call takes."""


def deep(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


ODD: tuple[Any, ...] = (
    None, float("nan"), float("inf"), -1, -1.5, 1 << 70, 10**5000, True, "", "\ud800", "a\nb", "x" * 100_000, b"", b"x",
    [], [1], [[]], deep(1200), {}, {"a": 1}, {1: 2}, {"a": Odd()}, Odd(), Odd, lambda: 1, ("a",), {1, 2}, 5, 3.5,
)  # fmt: skip


STRATEGIES = (
    "._policy.", ".policies.", ".thresholds.", ".check.", ".subscription.", ".engines.", ".spool.", ".study.",
)  # fmt: skip
"""Modules of what machines ask for decisions: only their constructors and functions take what a user gives."""


def methods(kind: type) -> Iterator[str]:
    """Yield the public methods that a front defines itself, not those of collections."""
    for name, member in inspect.getmembers(kind):
        function = getattr(member, "__func__", member)
        own = getattr(function, "__module__", "") or ""
        if not name.startswith("_") and inspect.isfunction(function) and own.startswith("mudkit."):
            yield name


def is_record(kind: type) -> bool:
    """Return whether a dataclass only holds fields, as results do."""
    return dataclasses.is_dataclass(kind) and not hasattr(kind, "__post_init__") and not [*methods(kind)]


def is_front(name: str, value: Any) -> bool:
    if not (inspect.isclass(value) or inspect.isfunction(value)) or get_origin(value) is not None:
        return False
    if any(part in f"{value.__module__}." for part in INNER) or not value.__module__.startswith("mudkit."):
        return False
    if not inspect.isclass(value):
        return True
    return not (
        issubclass(value, Exception | msgspec.Struct)
        or hasattr(value, "_fields")
        or hasattr(value, "handle")
        or getattr(value, "_is_protocol", False)
        or is_record(value)
    )


FRONTS = {
    f"{system}.{name}": value
    for system in SYSTEMS
    for module in [importlib.import_module(f"mudkit.systems.{system}")]
    for name in module.__all__
    if is_front(name, value := getattr(module, name)) and f"{system}.{name}" not in HANDED_OUT
}

SAMPLES: dict[str, Any] = {
    "app": "a", "acl": "app", "topic": "news", "wanted": "TRUE", "predicate": "TRUE", "when": "TRUE", "link": "lte",
    "name": "x", "table": "t", "to": ("d1", "p"), "start": "2010-03-01T13:00", "lat": 1.0, "lon": 1.0,
    "aggregability": radiator.aggregability(key=lambda receiver: 1)(lambda sender, receiver: radiator.Volume(1)),
    "chainability": lambda one, other: 1.0, "receive": lambda context: None, "join": lambda contexts: contexts[0],
    "key": lambda receiver: 1, "sender_key": lambda sender: 1, "source": "policy: x\nrules:\n  - do: []\n",
    "places": {"a": (1.0, 1.0, 1.0)}, "area": (0.0, 0.0, 1.0, 1.0), "drawn": lasthop.Scenario(days=2).draw(1),
    "outages": Outages(0.5), "draws": [lasthop.Scenario(days=2).draw(1)], "cells": {(0, 0): (1.0,) * 24}, "document": {}, "positions": pd.DataFrame({"device": ["a"], "ts": [0], "lat": [0.0], "lon": [0.0]}),
    "make_spool": lambda forward, retract: lasthop.Spool(0.0, lasthop.Forwarding(), forward, retract),
     "plain": {"rules": [{"do": []}]}, "relay": None, "friends": (), "type": "local",
}  # fmt: skip
"""Values of parameters whose annotation does not say enough, by name."""


def hints_of(call: Callable[..., Any]) -> dict[str, Any]:
    function = call.__init__ if inspect.isclass(call) else call  # type: ignore[misc]
    return annotations_of(inspect.unwrap(getattr(function, "__func__", function)))


CHOICES: dict[str, Any] = {"nodes": (("local",), [[0]]), "actions": (["local"],)}
"""The same, where a name stands for several kinds: the first that fits is taken."""


class World:
    """A lab with an object of each front, made of samples of its annotations."""

    def __init__(self) -> None:
        self.lab = Lab(seed=1)
        self.devices = 0
        self.made: dict[type, Any] = {}

    def device(self) -> Any:
        self.devices += 1
        return self.lab.device(f"device-{self.devices}")

    def sample(self, name: str, hint: Any, parameter: inspect.Parameter) -> Any:
        if hint in FRONTS.values() and isinstance(SAMPLES.get(name), hint):
            return SAMPLES[name]
        options = get_args(hint) if get_origin(hint) in (Union, UnionType) else ()
        for each in (hint, *options):
            if inspect.isclass(each):
                if each.__name__ == "Network":
                    return self.lab
                if each.__name__ == "Host":
                    return self.device()
                if each in FRONTS.values():
                    return self.an(each)
        if get_origin(hint) is Sequence and get_args(hint)[0] in FRONTS.values():
            return [self.an(get_args(hint)[0])]
        if parameter.default is not inspect.Parameter.empty:
            return parameter.default
        if get_origin(hint) is Literal:
            return get_args(hint)[0]
        for each in CHOICES.get(name, ()):
            if fits(each, hint):
                return each
        if name in SAMPLES:
            return SAMPLES[name]
        if inspect.isclass(hint) and issubclass(hint, msgspec.Struct):
            return self.an(hint)
        for value in ("x", 1, 1.0, {"a": 1}, {}, [], (), b"x", lambda *given: None, None, ("x", "y")):
            if fits(value, hint):
                return value
        raise AssertionError(f"no sample for {name}: {hint}; add one to SAMPLES")

    def arguments(self, call: Callable[..., Any]) -> dict[str, Any]:
        hints = hints_of(call)
        return {
            name: self.sample(name, hints.get(name, Any), parameter)
            for name, parameter in inspect.signature(call).parameters.items()
            if parameter.kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
            and parameter.default is inspect.Parameter.empty
        }

    def an(self, kind: type) -> Any:
        if kind not in self.made:
            call: Callable[..., Any] = kind
            for front in FRONTS.values():  # some are given by another: a port by its module
                for method in methods(front) if inspect.isclass(front) and front is not kind else ():
                    if getattr(front, method).__annotations__.get("return") == kind.__name__:
                        call = getattr(self.an(front), method)
            self.made[kind] = with_arguments(call, self.arguments(call))
        return self.made[kind]


def with_arguments(call: Callable[..., Any], given: Mapping[str, Any]) -> Any:
    positional, named = [], {}
    for name, parameter in inspect.signature(call).parameters.items():
        if name in given:
            if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
                positional.append(given[name])
            elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
                named |= given[name]
            elif parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                positional += given[name]
            else:
                named[name] = given[name]
    return call(*positional, **named)


def calls() -> Iterator[tuple[str, Callable[[World], Callable[..., Any]]]]:
    for name, front in FRONTS.items():
        if "installed" not in hints_of(front):  # else another front makes it
            yield name, lambda world, front=front: front
        is_asked = inspect.isclass(front) and not any(part in f"{front.__module__}." for part in STRATEGIES)
        for method in methods(front) if inspect.isclass(front) else ():
            if not is_asked and not inspect.ismethod(getattr(front, method)):
                continue  # of a strategy only the constructors
            yield (
                f"{name}.{method}",
                lambda world, front=front, method=method: getattr(world.an(front), method),
            )
    for name in ("lab", "faults", "device"):
        kind = {"lab": Lab, "faults": type(Lab().faults), "device": type(Lab().device("x"))}[name]
        for method in methods(kind):
            yield (
                f"{name}.{method}",
                lambda world, name=name, method=method: getattr(
                    {"lab": world.lab, "faults": world.lab.faults}.get(name) or world.lab.device("z"), method
                ),
            )
    yield "Lab", lambda world: Lab


CALLS = dict(calls())


def outcome(call: Callable[[], Any], *, is_fit: bool, is_called: bool) -> tuple[Any, str]:
    """Return what a call returns, and what is wrong with how it ends."""
    try:
        made = call()
    except MudkitError as error:
        return None, "" if str(error).strip() else "an error without words"
    except Exception as error:
        # What a callable of the user's raises is the user's.
        return None, "" if is_called else f"{type(error).__name__}: {str(error)[:60]}"
    return made, "" if is_fit or hasattr(made, "done") else "taken in silence"


def shown(parameter: str, odd: Any) -> str:
    return f"{parameter}={brief(odd, 30)}"


@pytest.mark.soak(keep=60)
@pytest.mark.parametrize("name", CALLS)
def test_an_odd_argument_is_refused_in_words_or_means_what_its_annotation_says(name: str) -> None:
    warnings.simplefilter("ignore")
    world = World()
    call = CALLS[name](world)
    hints = hints_of(call)
    wrong, waiting = [], []
    for parameter, declared in inspect.signature(call).parameters.items():
        for odd in ODD:
            value: Any = odd
            if declared.kind is inspect.Parameter.VAR_KEYWORD:
                value = {"odd": odd}
            elif declared.kind is inspect.Parameter.VAR_POSITIONAL:
                value = (odd,)
            is_fit = fits(odd, hints.get(parameter, Any))
            given = {**world.arguments(call), parameter: value}
            is_called = is_fit and callable(odd)
            made, problem = outcome(
                lambda given=given: with_arguments(call, given), is_fit=is_fit, is_called=is_called
            )
            if hasattr(made, "done"):
                waiting.append((shown(parameter, odd), is_fit, made))
            elif problem:
                wrong.append(f"{shown(parameter, odd)}: {problem}")
    if waiting:
        world.lab.run(minutes=2)
    for what, is_fit, made in waiting:
        _, problem = outcome(made.result, is_fit=is_fit, is_called=False) if made.done() else (None, "")
        if problem:
            wrong.append(f"{what}: {problem}")
    assert not wrong, "\n".join(wrong)


NAMES = {"Iterable": Iterable, "Sequence": Sequence, "Mapping": Mapping, "Callable": Callable}


class Front:
    """A front such as the walk finds."""

    @check_arguments
    def call(self, number: float, *names: str, flag: bool = False, **more: int) -> str:
        return f"{number} {names} {flag} {more}"


@pytest.mark.parametrize(
    ("given", "named", "where"),
    [
        (("x",), {}, "number"),
        ((True,), {}, "number"),
        ((float("nan"),), {}, "number"),
        ((1, "a", None), {}, "names[1]"),
        ((1,), {"flag": 1}, "flag"),
        ((1,), {"other": "x"}, "other"),
    ],
)
def test_what_does_not_fit_an_annotation_is_named(given: Any, named: Any, where: str) -> None:
    with pytest.raises(ParameterError) as caught:
        Front().call(*given, **named)
    assert caught.value.where == where
    assert caught.value.found
    assert caught.value.expected


def test_other_arguments_than_a_call_takes_are_refused() -> None:
    with pytest.raises(ParameterError, match="takes other arguments"):
        Front().call()  # type: ignore[call-arg]


def test_what_fits_is_taken() -> None:
    assert Front().call(1, "a", flag=True, other=2) == "1 ('a',) True {'other': 2}"


@pytest.mark.parametrize(
    ("value", "hint", "expected"),
    [
        (None, "str | None", True), (None, "str", False), ("a", "Sequence[str]", False), (["a"], "Sequence[str]", True),
        ([1], "Sequence[str]", False), ({"a": 1}, "Mapping[str, int]", True), ({1: 1}, "Mapping[str, int]", False),
        ((1.0, 2), "tuple[float, float]", True), ((1.0,), "tuple[float, float]", False), (print, "Callable[..., Any]", True),
        (5, "Callable[..., Any]", False), (1, "bool", False), (True, "int", False), (object(), "Any", True),
        ("\ud800", "str", False), ("ü", "str", True), (iter("ab"), "Iterable[str]", True),
    ],
)  # fmt: skip
def test_what_an_annotation_allows(value: Any, hint: str, expected: bool) -> None:
    assert fits(value, eval(hint, {**globals(), **NAMES})) is expected
