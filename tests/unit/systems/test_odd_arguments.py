"""Odd arguments of every public call: refused with a MudkitError in words, or allowed by the annotation.

The calls are those of the names in each system's ``__all__``, of Lab, and of its devices and faults, so
that new calls are covered, too. Exceptions are machines, engines and algorithms, whose drivers have checked
the arguments, and records of results.
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
from mudkit.checks import annotations_of, check_arguments, fits
from mudkit.errors import MudkitError, ParameterError, brief
from mudkit.sources import Outages
from mudkit.systems import lasthop, mud, radiator

SYSTEMS = ("contrail", "lasthop", "mud", "radiator", "store_and_forward", "sublim")
INNER = (".servers.server", ".servers.relay", ".device.client", ".device.direct", ".messages.")
"""Modules of machines and algorithms, whose arguments the API has checked."""

RESULT_CLASSES = ("lasthop.Lifelines", "lasthop.Situation")
"""Classes whose objects users receive but never construct."""


class Odd:
    """Class whose objects no call accepts."""


def nest(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


ODD_VALUES: tuple[Any, ...] = (
    None, float("nan"), float("inf"), -1, -1.5, 1 << 70, 10**5000, True, "", "\ud800", "a\nb", "x" * 100_000, b"", b"x",
    [], [1], [[]], nest(1200), {}, {"a": 1}, {1: 2}, {"a": Odd()}, Odd(), Odd, lambda: 1, ("a",), {1, 2}, 5, 3.5,
)  # fmt: skip


STRATEGIES = (
    "._policy.", ".policies.", ".thresholds.", ".check.", ".subscription.", ".engines.", ".spool.", ".study.",
)  # fmt: skip
"""Modules of strategies that machines call: users call only their constructors and functions."""


def list_methods(kind: type) -> Iterator[str]:
    """Yield the public methods that a class defines itself, not those of collections."""
    for name, member in inspect.getmembers(kind):
        function = getattr(member, "__func__", member)
        module = getattr(function, "__module__", "") or ""
        if not name.startswith("_") and inspect.isfunction(function) and module.startswith("mudkit."):
            yield name


def is_record(kind: type) -> bool:
    """Return whether a dataclass only holds fields, as results do."""
    return dataclasses.is_dataclass(kind) and not hasattr(kind, "__post_init__") and not [*list_methods(kind)]


def is_api(name: str, value: Any) -> bool:
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


API = {
    f"{system}.{name}": value
    for system in SYSTEMS
    for module in [importlib.import_module(f"mudkit.systems.{system}")]
    for name in module.__all__
    if is_api(name, value := getattr(module, name)) and f"{system}.{name}" not in RESULT_CLASSES
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
"""Values by the name of the parameter, where its annotation is not enough."""


def read_hints(call: Callable[..., Any]) -> dict[str, Any]:
    function = call.__init__ if inspect.isclass(call) else call  # type: ignore[misc]
    return annotations_of(inspect.unwrap(getattr(function, "__func__", function)))


CHOICES: dict[str, Any] = {"nodes": (("local",), [[0]]), "actions": (["local"],)}
"""The same for names with several annotations: the first value that fits is used."""


class World:
    """Lab with an object of each class of the API, created from samples of its annotations."""

    def __init__(self) -> None:
        self.lab = Lab(seed=1)
        self.devices = 0
        self.objects: dict[type, Any] = {}

    def device(self) -> Any:
        self.devices += 1
        return self.lab.device(f"device-{self.devices}")

    def sample(self, name: str, hint: Any, parameter: inspect.Parameter) -> Any:
        if hint in API.values() and isinstance(SAMPLES.get(name), hint):
            return SAMPLES[name]
        options = get_args(hint) if get_origin(hint) in (Union, UnionType) else ()
        for option in (hint, *options):
            if inspect.isclass(option):
                if option.__name__ == "Network":
                    return self.lab
                if option.__name__ == "Host":
                    return self.device()
                if option in API.values():
                    return self.create(option)
        if get_origin(hint) is Sequence and get_args(hint)[0] in API.values():
            return [self.create(get_args(hint)[0])]
        if parameter.default is not inspect.Parameter.empty:
            return parameter.default
        if get_origin(hint) is Literal:
            return get_args(hint)[0]
        for choice in CHOICES.get(name, ()):
            if fits(choice, hint):
                return choice
        if name in SAMPLES:
            return SAMPLES[name]
        if inspect.isclass(hint) and issubclass(hint, msgspec.Struct):
            return self.create(hint)
        for value in ("x", 1, 1.0, {"a": 1}, {}, [], (), b"x", lambda *given: None, None, ("x", "y")):
            if fits(value, hint):
                return value
        raise AssertionError(f"no sample for {name}: {hint}; add one to SAMPLES")

    def arguments(self, call: Callable[..., Any]) -> dict[str, Any]:
        hints = read_hints(call)
        return {
            name: self.sample(name, hints.get(name, Any), parameter)
            for name, parameter in inspect.signature(call).parameters.items()
            if parameter.kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
            and parameter.default is inspect.Parameter.empty
        }

    def create(self, kind: type) -> Any:
        if kind is mud.ContinuousRead:
            return mud.ContinuousRead(1, self.create(mud.Client))
        if kind not in self.objects:
            call: Callable[..., Any] = kind
            for member in API.values():  # a method may create it, such as a port
                for method in list_methods(member) if inspect.isclass(member) and member is not kind else ():
                    if getattr(member, method).__annotations__.get("return") == kind.__name__:
                        call = getattr(self.create(member), method)
            self.objects[kind] = call_with(call, self.arguments(call))
        return self.objects[kind]


def call_with(call: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    positional, keywords = [], {}
    for name, parameter in inspect.signature(call).parameters.items():
        if name in arguments:
            if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
                positional.append(arguments[name])
            elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
                keywords |= arguments[name]
            elif parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                positional += arguments[name]
            else:
                keywords[name] = arguments[name]
    return call(*positional, **keywords)


def list_calls() -> Iterator[tuple[str, Callable[[World], Callable[..., Any]]]]:
    for name, member in API.items():
        if "installed" not in read_hints(member):  # else another call creates it
            yield name, lambda world, member=member: member
        has_methods = inspect.isclass(member) and not any(
            part in f"{member.__module__}." for part in STRATEGIES
        )
        for method in list_methods(member) if inspect.isclass(member) else ():
            if not has_methods and not inspect.ismethod(getattr(member, method)):
                continue  # only constructors of a strategy
            yield (
                f"{name}.{method}",
                lambda world, member=member, method=method: getattr(world.create(member), method),
            )
    for name in ("lab", "faults", "device"):
        kind = {"lab": Lab, "faults": type(Lab().faults), "device": type(Lab().device("x"))}[name]
        for method in list_methods(kind):
            yield (
                f"{name}.{method}",
                lambda world, name=name, method=method: getattr(
                    {"lab": world.lab, "faults": world.lab.faults}.get(name) or world.lab.device("z"), method
                ),
            )
    yield "Lab", lambda world: Lab


CALLS = dict(list_calls())


def run_call(call: Callable[[], Any], *, is_fit: bool, is_called: bool) -> tuple[Any, str]:
    """Return the result of a call, and the problem with its outcome."""
    try:
        result = call()
    except MudkitError as error:
        return None, "" if str(error).strip() else "an error without words"
    except Exception as error:
        # Errors of a user's callable are the user's.
        return None, "" if is_called else f"{type(error).__name__}: {str(error)[:60]}"
    return result, "" if is_fit or hasattr(result, "done") else "taken in silence"


def format_argument(parameter: str, odd: Any) -> str:
    return f"{parameter}={brief(odd, 30)}"


@pytest.mark.soak(keep=60)
@pytest.mark.parametrize("name", CALLS)
def test_odd_argument_is_refused_in_words_or_fits_its_annotation(name: str) -> None:
    warnings.simplefilter("ignore")
    world = World()
    call = CALLS[name](world)
    hints = read_hints(call)
    problems, waiting = [], []
    for parameter, declared in inspect.signature(call).parameters.items():
        for odd in ODD_VALUES:
            value: Any = odd
            if declared.kind is inspect.Parameter.VAR_KEYWORD:
                value = {"odd": odd}
            elif declared.kind is inspect.Parameter.VAR_POSITIONAL:
                value = (odd,)
            is_fit = fits(odd, hints.get(parameter, Any))
            arguments = {**world.arguments(call), parameter: value}
            is_called = is_fit and callable(odd)
            result, problem = run_call(
                lambda arguments=arguments: call_with(call, arguments), is_fit=is_fit, is_called=is_called
            )
            if hasattr(result, "done"):
                waiting.append((format_argument(parameter, odd), is_fit, result))
            elif problem:
                problems.append(f"{format_argument(parameter, odd)}: {problem}")
    if waiting:
        world.lab.run(minutes=2)
    for argument, is_fit, result in waiting:
        _, problem = run_call(result.result, is_fit=is_fit, is_called=False) if result.done() else (None, "")
        if problem:
            problems.append(f"{argument}: {problem}")
    assert not problems, "\n".join(problems)


NAMES = {"Iterable": Iterable, "Sequence": Sequence, "Mapping": Mapping, "Callable": Callable}


class Example:
    """Class of an API."""

    @check_arguments
    def call(self, number: float, *names: str, flag: bool = False, **more: int) -> str:
        return f"{number} {names} {flag} {more}"


@pytest.mark.parametrize(
    ("positional", "keywords", "where"),
    [
        (("x",), {}, "number"),
        ((True,), {}, "number"),
        ((float("nan"),), {}, "number"),
        ((1, "a", None), {}, "names[1]"),
        ((1,), {"flag": 1}, "flag"),
        ((1,), {"other": "x"}, "other"),
    ],
)
def test_argument_that_does_not_fit_is_named(positional: Any, keywords: Any, where: str) -> None:
    with pytest.raises(ParameterError) as raised:
        Example().call(*positional, **keywords)
    assert raised.value.where == where
    assert raised.value.found
    assert raised.value.expected


def test_missing_argument_is_refused() -> None:
    with pytest.raises(ParameterError, match="takes other arguments"):
        Example().call()  # type: ignore[call-arg]


def test_fitting_arguments_are_accepted() -> None:
    assert Example().call(1, "a", flag=True, other=2) == "1 ('a',) True {'other': 2}"


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
def test_fits(value: Any, hint: str, expected: bool) -> None:
    assert fits(value, eval(hint, {**globals(), **NAMES})) is expected
