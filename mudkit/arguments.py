"""Checks of the arguments of public calls against their annotations, which document what each may be."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial, wraps
from itertools import chain, repeat
from math import isnan
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NamedTuple,
    NoReturn,
    ParamSpec,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

from mudkit.errors import ParameterError, brief, did_you_mean

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")


_Accepts: TypeAlias = Callable[[Any], bool]


class _Check(NamedTuple):
    """Check that an annotation stands for: allowed classes, and a function that accepts further values."""

    kinds: tuple[type, ...]
    accepts: _Accepts | None = None

    def __call__(self, value: Any) -> bool:
        """Return whether a value is allowed."""
        return isinstance(value, self.kinds) or (self.accepts is not None and self.accepts(value))

    def compiled(self) -> _Accepts | None:
        """Return a function for this check; None: it allows everything."""
        kinds, accepts = self
        if self is _ANY or not kinds:
            return accepts
        if accepts is None:
            return lambda value: isinstance(value, kinds)
        return lambda value: isinstance(value, kinds) or accepts(value)


_ANY: Final = _Check((object,))
_MAX_FLOAT: Final = sys.float_info.max


def check_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a public call: arguments that do not fit their annotations raise a ParameterError.

    ``None`` is accepted where an annotation allows it. A number is never NaN, a truth value no number, and a
    text no sequence and always UTF-8. Annotations are compiled at the first call.
    """
    checks: _Checks | None = None

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        nonlocal checks
        if checks is None:
            checks = _checks_of(function)
        by_place, by_name, rest = checks
        for accepts, value in zip(by_place, args):  # noqa: B905 - there may be fewer arguments
            if accepts is not None and not accepts(value):
                _refuse(function, args, kwargs)
        for name in kwargs:
            accepts = by_name.get(name, rest)
            if accepts is not None and not accepts(kwargs[name]):
                _refuse(function, args, kwargs)
        try:
            return function(*args, **kwargs)
        except TypeError:
            _bind(function, args, kwargs)  # raises if the arguments do not fit the signature
            raise

    return checked


class _Checks(NamedTuple):
    """Compiled annotations of a function: functions that accept an argument; None accepts everything."""

    by_place: Iterable[_Accepts | None]
    by_name: Mapping[str, _Accepts | None]
    rest: _Accepts | None


class _Places(tuple[_Accepts | None, ...]):
    """Checks of positional arguments; the last one is for all that follow."""

    def __iter__(self) -> Iterator[_Accepts | None]:
        return chain(super().__iter__(), repeat(self[-1]))


def _checks_of(function: Callable[..., Any]) -> _Checks:
    hints = annotations_of(function)
    parameters = inspect.signature(function).parameters.values()
    by_name = {
        parameter.name: _check_of(hints.get(parameter.name, Any)).compiled() for parameter in parameters
    }
    places = [
        by_name[parameter.name]
        for parameter in parameters
        if parameter.kind not in (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
    ]
    kinds = {parameter.kind: parameter.name for parameter in parameters}
    is_open = inspect.Parameter.VAR_POSITIONAL in kinds
    rest = by_name.get(kinds.get(inspect.Parameter.VAR_KEYWORD, ""))
    return _Checks(_Places(places) if is_open else tuple(places), by_name, rest)


def _bind(function: Callable[..., Any], args: Any, kwargs: Any) -> dict[str, Any]:
    """Return arguments by parameter, or raise ParameterError if they do not fit the signature."""
    signature = inspect.signature(function)
    try:
        return signature.bind(*args, **kwargs).arguments
    except TypeError as error:
        unknown = next((name for name in kwargs if name not in signature.parameters), None)
        raise ParameterError(
            f"{_call_name(function)} takes other arguments.",
            found=str(error),
            expected=f"{function.__name__}{signature}",
            remedy=did_you_mean(unknown, signature.parameters) if unknown else None,
        ) from None


def _refuse(function: Callable[..., Any], args: Any, kwargs: Any) -> NoReturn:
    """Raise the ParameterError for the first argument that does not fit."""
    given, hints = _bind(function, args, kwargs), annotations_of(function)
    for name, parameter in inspect.signature(function).parameters.items():
        values = {name: given[name]} if name in given else {}
        if values and parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            values = {f"{name}[{place}]": value for place, value in enumerate(given[name])}
        elif values and parameter.kind is inspect.Parameter.VAR_KEYWORD:
            values = given[name]
        for where, value in values.items():
            if not fits(value, hint := hints.get(name, Any)):
                raise ParameterError(
                    f"The parameter {where} of {_call_name(function)} is not usable.",
                    where=where,
                    found=brief(value),
                    expected=_in_words(hint),
                    remedy=did_you_mean(value, _options(hint)) if isinstance(value, str) else None,
                )
    raise AssertionError("every argument fits")


def _options(hint: Any) -> list[str]:
    """Return the texts that an annotation lists as its only values."""
    if get_origin(hint) is Literal:
        return [entry for entry in get_args(hint) if isinstance(entry, str)]
    return [text for entry in get_args(hint) for text in _options(entry)]


def check_init(kind: type[C]) -> type[C]:
    """Decorate a class: its constructor checks its arguments as :func:`check_arguments` does."""
    setattr(kind, "__init__", check_arguments(vars(kind)["__init__"]))  # noqa: B010 - mypy refuses the assignment
    return kind


def check_options(call: C) -> C:
    """Decorate a function, or a class: its constructor and public methods.

    An unknown option raises a ParameterError with a suggestion. A call takes 0.2 µs longer.
    """
    if inspect.isclass(call):
        _decorate_calls(call, check_options)
        return call
    function: Any = call
    if getattr(function, "__globals__", None) is globals():  # it is checked already
        return call

    @wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TypeError:
            _bind(function, args, kwargs)  # raises if the arguments do not fit the signature
            raise

    return checked  # type: ignore[return-value]


def check_calls(kind: type[C]) -> type[C]:
    """Decorate a class: its constructor and public methods check their arguments as check_arguments does."""
    _decorate_calls(kind, check_arguments)
    return kind


def _decorate_calls(kind: type, decorate: Callable[[Any], Any]) -> None:
    """Decorate the constructor and the public methods of a class."""
    for name, member in list(vars(kind).items()):
        if name != "__init__" and name.startswith("_"):
            continue
        if isinstance(member, classmethod | staticmethod):
            setattr(kind, name, type(member)(decorate(member.__func__)))
        elif inspect.isfunction(member):
            setattr(kind, name, decorate(member))


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
    return _check_of(hint)(value)


@cache
def _check_of(hint: Any) -> _Check:
    """Compile an annotation into a check."""
    import numpy as np  # decorated calls of modules that do without it load without it

    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _check_of(args[0])
    if origin in (Union, UnionType):
        return _any_of([_check_of(entry) for entry in args])
    if origin is Literal:
        return _Check((), lambda value: any(type(value) is type(entry) and value == entry for entry in args))
    kind = NoneType if hint is None else origin or hint
    if kind is str:
        return _Check((), _is_text)
    if kind is Callable:
        return _Check((), callable)
    if kind is Any or not isinstance(kind, type):
        return _ANY  # also a type variable, or an annotation that cannot be resolved
    if getattr(kind, "_is_protocol", False):
        names = [name for name in dir(kind) if not name.startswith("_")]
        if "__call__" in vars(kind):
            names.append("__call__")
        return _Check((), lambda value: all(hasattr(value, name) for name in names))
    if kind is int:
        return _Check((), partial(_is_number, (int, np.integer)))
    if kind is float:
        return _Check((), partial(_is_number, (int, float, np.integer, np.floating)))
    if kind is bool:
        return _Check((bool, np.bool_))
    if kind is tuple:
        return _Check((), partial(_is_row, (list, tuple, np.ndarray), args))
    if issubclass(kind, Mapping) and args:
        item = _check_of(args[1])
        if args[0] is str and item is _ANY and kind is Mapping:
            return _Check((), _is_fields)
        names_fit = _are_texts if args[0] is str else partial(_fit_all, _check_of(args[0]))
        return _Check((), partial(_is_mapping, kind, names_fit, item))
    if kind in _SEQUENCES:
        return _Check((), partial(_is_sequence, (kind, np.ndarray), _check_of(args[0]) if args else _ANY))
    return _Check((kind,))


def _any_of(checks: Sequence[_Check]) -> _Check:
    functions = [check.accepts for check in checks if check.accepts is not None]
    kinds = tuple(kind for check in checks for kind in check.kinds)
    if len(functions) < 2:
        return _Check(kinds, *functions)
    return _Check(kinds, lambda value: any(accepts(value) for accepts in functions))


def _is_text(value: Any) -> bool:
    return (type(value) is str and value.isascii()) or (isinstance(value, str) and _is_utf8(value))


def _are_texts(values: Iterable[Any]) -> bool:
    try:
        text = "".join(values)
    except TypeError:  # one of them is no text
        return False
    return text.isascii() or _is_utf8(text)


def _fit_all(check: _Check, values: Iterable[Any]) -> bool:
    return check is _ANY or all(check(value) for value in values)


def _is_number(kinds: tuple[type[Any], ...], value: Any) -> bool:
    if not isinstance(value, kinds) or isinstance(value, bool):
        return False
    if isinstance(value, int):
        return float not in kinds or -_MAX_FLOAT <= value <= _MAX_FLOAT
    return not isnan(value)


def _is_fields(value: Any) -> bool:
    """Return whether a value is a mapping of texts to anything."""
    return (type(value) is dict or isinstance(value, Mapping)) and _are_texts(value)


def _is_mapping(
    kind: type[Mapping[Any, Any]], names_fit: Callable[[Iterable[Any]], bool], item: _Check, value: Any
) -> bool:
    if type(value) is not dict and not isinstance(value, kind):
        return False
    return names_fit(value) and (item is _ANY or _fit_all(item, value.values()))


def _is_sequence(kinds: tuple[type[Any], ...], item: _Check, value: Any) -> bool:
    if not isinstance(value, kinds) or isinstance(value, str | bytes | Mapping):
        return False
    # An iterator is not looked at: that would use it up.
    return not isinstance(value, Collection) or _fit_all(item, value)


_SEQUENCES: Final[frozenset[Any]] = frozenset({list, Sequence, Iterable, Collection})


def _is_utf8(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a pair
        return False
    return True


def _is_row(kinds: tuple[type[Any], ...], args: tuple[Any, ...], value: Any) -> bool:
    if not isinstance(value, kinds):
        return False
    if len(args) == 2 and args[1] is Ellipsis:
        return all(fits(entry, args[0]) for entry in value)
    return not args or (
        len(value) == len(args) and all(fits(entry, arg) for entry, arg in zip(value, args, strict=True))
    )


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
    if isinstance(kind, type) and issubclass(kind, Mapping) and len(args) == 2:
        return f"a mapping, each value {_in_words(args[1])}"
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
        return f"{_article(name)} {name}"
    needed = [
        item.name
        for item in inspect.signature(kind).parameters.values()
        if item.default is inspect.Parameter.empty
        and item.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    ]
    return f"{_article(name)} {name}, such as {name}({', '.join(needed)})"


def _article(name: str) -> str:
    return "an" if name[:1] in "AEIOaeio" else "a"
