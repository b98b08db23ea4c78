"""Checks of the arguments of public calls against their annotations, which document what each may be."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache, wraps
from math import isnan
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, ParamSpec, TypeVar, Union, get_args, get_origin

import numpy as np

from mudkit.errors import ParameterError, brief

__all__ = ["annotations_of", "check_arguments", "check_calls", "check_init", "fits"]

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")


def check_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a public call: arguments that do not fit their annotations raise a ParameterError.

    An annotation documents what an argument means: ``None`` is accepted where it allows None. A number is
    never NaN, a truth value no number, and a text no sequence and always UTF-8.
    """
    signature = inspect.signature(function)

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise ParameterError(
                f"{_call_name(function)} takes other arguments.",
                found=str(error),
                expected=f"{function.__name__}{signature}",
            ) from None
        for name, hint in annotations_of(function).items():
            if name not in given:
                continue
            kind = signature.parameters[name].kind
            values = {name: given[name]}
            if kind is inspect.Parameter.VAR_POSITIONAL:
                values = {f"{name}[{place}]": value for place, value in enumerate(given[name])}
            elif kind is inspect.Parameter.VAR_KEYWORD:
                values = given[name]
            for where, value in values.items():
                if not fits(value, hint):
                    raise ParameterError(
                        f"The parameter {where} of {_call_name(function)} is not usable.",
                        where=where,
                        found=brief(value),
                        expected=_in_words(hint),
                    )
        return function(*args, **kwargs)

    return checked


def check_init(kind: type[C]) -> type[C]:
    """Decorate a class: its constructor checks its arguments as :func:`check_arguments` does."""
    setattr(kind, "__init__", check_arguments(vars(kind)["__init__"]))  # noqa: B010 - mypy refuses the assignment
    return kind


def check_calls(kind: type[C]) -> type[C]:
    """Decorate a class: its constructor and public methods check their arguments as check_arguments does."""
    for name, member in list(vars(kind).items()):
        if name != "__init__" and name.startswith("_"):
            continue
        if isinstance(member, classmethod | staticmethod):
            setattr(kind, name, type(member)(check_arguments(member.__func__)))
        elif inspect.isfunction(member):
            setattr(kind, name, check_arguments(member))
    return kind


def _call_name(function: Callable[..., Any]) -> str:
    return function.__qualname__.removesuffix(".__init__")


@cache
def annotations_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations of a function's parameters; one that only type checkers can resolve is Any."""
    resolved: dict[str, Any] = {}
    for name, hint in getattr(function, "__annotations__", {}).items():
        try:
            known = inspect.unwrap(function).__globals__ if isinstance(hint, str) else {}
            resolved[name] = eval(hint, dict(known)) if isinstance(hint, str) else hint
        except (NameError, AttributeError, TypeError):
            resolved[name] = Any
    resolved.pop("return", None)
    return resolved


def fits(value: Any, hint: Any) -> bool:
    """Return whether a value is what an annotation allows."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return fits(value, args[0])
    if origin in (Union, UnionType):
        return any(fits(value, item) for item in args)
    if origin is Literal:
        return any(type(value) is type(item) and value == item for item in args)
    if hint is None or hint is NoneType:
        return value is None
    kind = origin or hint
    if kind is Any:
        return True
    if kind is str:
        return isinstance(value, str) and (value.isascii() or _is_utf8(value))
    if kind is Callable:
        return callable(value)
    if not isinstance(kind, type):
        return True  # a variable of types, what cannot be resolved
    if getattr(kind, "_is_protocol", False):
        return all(hasattr(value, name) for name in dir(kind) if not name.startswith("_"))
    if kind in _NUMBERS:
        is_number = isinstance(value, _NUMBERS[kind]) and not isinstance(value, bool | np.bool_)
        return is_number and not (isinstance(value, float | np.floating) and isnan(value))
    if kind is bool:
        return isinstance(value, bool | np.bool_)
    if kind is tuple:
        is_row = isinstance(value, list | tuple | np.ndarray)
        return is_row and (not args or _tuple_fits(value, args))
    if issubclass(kind, Mapping) and args:
        return isinstance(value, kind) and all(
            fits(name, args[0]) and fits(item, args[1]) for name, item in value.items()
        )
    if kind in _SEQUENCES:
        if not isinstance(value, kind | np.ndarray) or isinstance(value, str | bytes | Mapping):
            return False
        is_repeatable = isinstance(value, Collection)  # an iterator is not looked at: that would use it up
        items: Any = value if is_repeatable else ()
        return not args or all(fits(item, args[0]) for item in items)
    return isinstance(value, kind)


_NUMBERS: Final[dict[Any, tuple[type, ...]]] = {
    int: (int, np.integer),
    float: (int, float, np.integer, np.floating),
}
_SEQUENCES: Final[frozenset[Any]] = frozenset({list, Sequence, Iterable, Collection})


def _is_utf8(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a pair
        return False
    return True


def _tuple_fits(value: Any, args: tuple[Any, ...]) -> bool:
    if len(args) == 2 and args[1] is Ellipsis:
        return all(fits(item, args[0]) for item in value)
    return len(value) == len(args) and all(fits(item, arg) for item, arg in zip(value, args, strict=True))


_WORDS: Final[dict[Any, str]] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    bytes: "bytes",
    Callable: "a function",
    Mapping: "a mapping",
    NoneType: "None",
    None: "None",
}


def _in_words(hint: Any) -> str:
    """Describe what an annotation allows."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return next((item for item in args[1:] if isinstance(item, str)), None) or _in_words(args[0])
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(_in_words(item) for item in args))
    if origin is Literal:
        return " or ".join(map(repr, args))
    kind = origin or hint
    if kind is tuple and args and Ellipsis not in args:
        return f"({', '.join(_in_words(item) for item in args)})"
    if (kind in _SEQUENCES or kind is tuple) and args:
        return f"a sequence, each {_in_words(args[0])}"
    return _WORDS.get(kind) or _PROTOCOLS.get(getattr(kind, "__name__", "")) or _object_in_words(kind)


_PROTOCOLS: Final = {
    "Network": "a lab, such as Lab(seed=7)",
    "Host": "a device of the lab: lab.device(name), or lab.devices[name]",
}


def _object_in_words(kind: Any) -> str:
    name = getattr(kind, "__name__", str(kind))
    if not getattr(kind, "__module__", "").startswith("mudkit."):
        return f"a {name}"
    needed = [
        item.name
        for item in inspect.signature(kind).parameters.values()
        if item.default is inspect.Parameter.empty
        and item.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    ]
    return f"a {name}, such as {name}({', '.join(needed)})"
