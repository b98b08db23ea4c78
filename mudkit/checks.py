"""Checks of arguments against their annotations, and of values that have no annotation of their own."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache, partial, wraps
from itertools import chain, repeat
from math import isfinite, isnan
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NamedTuple,
    NoReturn,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    overload,
)
from weakref import WeakSet
from zoneinfo import ZoneInfo

from mudkit.errors import ParameterError, brief, did_you_mean, listed

C = TypeVar("C")
K = TypeVar("K", bound=type)

_Accepts: TypeAlias = Callable[[Any], bool]
_Rule: TypeAlias = Callable[[str, Any], Any]
"""Takes an argument's name and value; returns the value that the call gets, or raises ParameterError."""

MAX_VALUE_DEPTH: Final = 64
"""Maximum nesting of lists and mappings in an application's value."""


class Range(NamedTuple):
    """Limits of a number, both included: ``Annotated[int, Range(1, 100)]``.

    The call gets an int or a float, as annotated. In ``Annotated[tuple[float, float], Range(0.0, 1.0)]`` the
    limits are those of each number.
    """

    low: float
    high: float

    def rule_of(self, kind: Any) -> _Rule:
        """Return the check of an argument of an annotated type."""
        if get_origin(kind) is tuple:
            return partial(_numbers, self, [self.rule_of(item) for item in get_args(kind)])
        return partial(_whole_number if kind is int else _number, self)


@dataclass(frozen=True, eq=False)  # for the hash: names are often the keys of a dict
class OneOf:
    """Known texts: ``Annotated[str, OneOf(LEVELS)]``, or those of a ``Literal`` if none are given.

    The refusal suggests the nearest one; ``summary`` is its first line.
    """

    known: Iterable[str] | None = None
    summary: str | None = None

    def rule_of(self, kind: Any) -> _Rule:
        """Return the check of an argument of an annotated type."""
        return partial(_known_text, self.known or get_args(kind), self.summary)


@overload
def check_arguments(call: C, /) -> C: ...
@overload
def check_arguments(*, types: Literal[False]) -> Callable[[C], C]: ...
def check_arguments(call: Any = None, /, *, types: bool = True) -> Any:
    """Decorate a call: arguments that do not fit its signature and annotations raise a ParameterError.

    Of a class, the constructor and those public methods are decorated that are not decorated themselves.
    ``None`` is accepted where an annotation allows it. A number is never NaN, a truth value no number, and a
    text no sequence and always UTF-8. Marks in ``Annotated`` are checked last: :class:`Range` and
    :class:`OneOf`. Annotations are compiled at the first call.

    Parameters
    ----------
    types : bool
        False: the call takes values of other types, or refuses them in words of its own. Signature and marks
        are checked.
    """
    if call is None:
        return partial(_decorate, types)
    return _decorate(types, call)


def _decorate(types: bool, call: Any) -> Any:
    """Return a call with its arguments checked; a class is changed in place, with its public methods."""
    if not inspect.isclass(call):
        return _checked(types, call)
    for name, member in list(vars(call).items()):
        if name != "__init__" and name.startswith("_"):
            continue
        if isinstance(member, classmethod | staticmethod):
            setattr(call, name, type(member)(_checked(types, member.__func__)))
        elif inspect.isfunction(member):
            setattr(call, name, _checked(types, member))
    return call


_MARKED: Final = re.compile(r"\bAnnotated\[(.+?), (?:Range|OneOf)\((?:[^()]|\([^()]*\))*\)\]")
_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_CHECKED: Final[WeakSet[Callable[..., Any]]] = WeakSet()
"""Functions that :func:`check_arguments` has returned."""


def _checked(types: bool, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that checks its arguments, and calls another one."""
    if function in _CHECKED:
        return function
    checks: _Checks | None = None
    rules: Sequence[_Placed] = ()
    ruled_names: frozenset[str] = frozenset()
    first_place = sys.maxsize
    """Place of the first argument that has a rule."""

    @wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        nonlocal checks, rules, ruled_names, first_place
        if checks is None:
            checks, rules = _checks_of(function) if types else _UNCHECKED, _rules_of(function)
            ruled_names = frozenset(rule.name for rule in rules)
            first_place = min((rule.place for rule in rules), default=sys.maxsize)
        by_place, by_name, rest = checks
        for accepts, value in zip(by_place, args):  # noqa: B905 - there may be fewer arguments
            if accepts is not None and not accepts(value):
                _refuse(function, args, kwargs)
        for name in kwargs:
            accepts = by_name.get(name, rest)
            if accepts is not None and not accepts(kwargs[name]):
                _refuse(function, args, kwargs)
        if len(args) > first_place or (kwargs and not ruled_names.isdisjoint(kwargs)):
            args = _apply(rules, function, args, kwargs)
        try:
            return function(*args, **kwargs)
        except TypeError:
            _bind(function, args, kwargs)  # raises if the arguments do not fit the signature
            raise

    _CHECKED.add(checked)
    return checked


class _Checks(NamedTuple):
    """Compiled annotations of a function; a check that is None accepts everything."""

    by_place: Iterable[_Accepts | None]
    by_name: Mapping[str, _Accepts | None]
    rest: _Accepts | None


_UNCHECKED: Final = _Checks((), {}, None)


class _Placed(NamedTuple):
    """Rule of a parameter, and its place among positional arguments."""

    place: int
    name: str
    rule: _Rule


class _Places(tuple[_Accepts | None, ...]):
    """Checks of positional arguments; the last one is for all that follow."""

    def __iter__(self) -> Iterator[_Accepts | None]:
        return chain(super().__iter__(), repeat(self[-1]))


def _checks_of(function: Callable[..., Any]) -> _Checks:
    """Return the checks of a function's arguments by type, for arguments by place and by name."""
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


def _rules_of(function: Callable[..., Any]) -> list[_Placed]:
    """Return the rules in a function's annotations, with the places of their arguments."""
    hints = annotations_of(function)
    return [
        _Placed(place if parameter.kind in _POSITIONAL else sys.maxsize, name, rule)
        for place, (name, parameter) in enumerate(inspect.signature(function).parameters.items())
        if (rule := _rule_of(hints.get(name))) is not None
    ]


def _rule_of(hint: Any) -> _Rule | None:
    """Return the check that a mark in an annotation stands for; None: there is no mark."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        mark = next((mark for mark in args[1:] if isinstance(mark, Range | OneOf)), None)
        return None if mark is None else mark.rule_of(args[0])
    if origin in (Union, UnionType) and NoneType in args:
        rule = next(filter(None, map(_rule_of, args)), None)
        return rule and (lambda name, given: given if given is None else rule(name, given))
    return None


def _apply(
    rules: Iterable[_Placed], function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, ...]:
    """Return positional arguments as rules, which may raise, convert them; replace those in ``kwargs``."""
    try:
        for place, name, rule in rules:
            if name in kwargs:
                kwargs[name] = rule(name, kwargs[name])
            elif place < len(args):
                args = (*args[:place], rule(name, args[place]), *args[place + 1 :])
    except ParameterError:
        _bind(function, args, kwargs)  # arguments that do not fit the signature are refused first
        raise
    return args


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
            expected=f"{function.__name__}{_without_marks(signature)}",
            remedy=did_you_mean(unknown, signature.parameters) if unknown else None,
        ) from None


def _without_marks(signature: inspect.Signature) -> inspect.Signature:
    """Return a signature whose annotations are types alone."""
    parameters = [
        parameter.replace(annotation=_MARKED.sub(r"\1", parameter.annotation))
        if isinstance(parameter.annotation, str)
        else parameter
        for parameter in signature.parameters.values()
    ]
    return signature.replace(parameters=parameters)


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


def _call_name(function: Callable[..., Any]) -> str:
    """Return a call's name for messages; that of a class is not followed by ``__init__``."""
    return function.__qualname__.removesuffix(".__init__")


@cache
def annotations_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations of a function's parameters; one that only type checkers can resolve is Any."""
    resolved: dict[str, Any] = {}
    for name, hint in getattr(function, "__annotations__", {}).items():
        try:
            known = vars(sys.modules[function.__module__])
            resolved[name] = eval(hint, known) if isinstance(hint, str) else hint
        except (NameError, AttributeError, TypeError, KeyError):
            resolved[name] = Any
    resolved.pop("return", None)
    return resolved


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
        return _Check((), partial(_is_number, _number_types().whole))
    if kind is float:
        return _Check((), partial(_is_number, _number_types().real))
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
    """Return a check that accepts what at least one of the checks accepts."""
    functions = [check.accepts for check in checks if check.accepts is not None]
    kinds = tuple(kind for check in checks for kind in check.kinds)
    if len(functions) < 2:
        return _Check(kinds, *functions)
    return _Check(kinds, lambda value: any(accepts(value) for accepts in functions))


def _is_text(value: Any) -> bool:
    """Return whether a value is text that UTF-8 can encode."""
    return (type(value) is str and value.isascii()) or (isinstance(value, str) and _is_utf8(value))


def _are_texts(values: Iterable[Any]) -> bool:
    """Return whether all values are text that UTF-8 can encode."""
    try:
        text = "".join(values)
    except TypeError:  # one of them is no text
        return False
    return text.isascii() or _is_utf8(text)


def _fit_all(check: _Check, values: Iterable[Any]) -> bool:
    """Return whether a check accepts all values."""
    return check is _ANY or all(check(value) for value in values)


def _is_number(kinds: tuple[type[Any], ...], value: Any) -> bool:
    """Return whether a value is a number of these kinds; a bool, NaN or an int beyond floats is none."""
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
    """Return whether a value is a mapping of this kind with fitting names and items."""
    if type(value) is not dict and not isinstance(value, kind):
        return False
    return names_fit(value) and (item is _ANY or _fit_all(item, value.values()))


def _is_sequence(kinds: tuple[type[Any], ...], item: _Check, value: Any) -> bool:
    """Return whether a value is a sequence of these kinds with fitting items.

    Those of iterators may be any.
    """
    if not isinstance(value, kinds) or isinstance(value, str | bytes | Mapping):
        return False
    # An iterator is not looked at: that would use it up.
    return not isinstance(value, Collection) or _fit_all(item, value)


_SEQUENCES: Final[frozenset[Any]] = frozenset({list, Sequence, Iterable, Collection})


def _is_utf8(value: str) -> bool:
    """Return whether a text can be encoded as UTF-8; half of a surrogate pair cannot."""
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a pair
        return False
    return True


def _is_row(kinds: tuple[type[Any], ...], args: tuple[Any, ...], value: Any) -> bool:
    """Return whether a value is of these kinds, with as many entries as annotated, all fitting."""
    if not isinstance(value, kinds):
        return False
    if len(args) == 2 and args[1] is Ellipsis:
        return all(fits(entry, args[0]) for entry in value)
    return not args or (
        len(value) == len(args) and all(fits(entry, arg) for entry, arg in zip(value, args, strict=True))
    )


def whole_number(name: str, given: Any, low: int, high: int) -> int:
    """Return an argument as an int; raise ParameterError unless it is whole and from ``low`` to ``high``."""
    return _whole_number(Range(low, high), name, given)


@check_arguments(types=False)
def number(name: str, given: Any, low: float, high: float) -> float:
    """Return an argument as a float if it is a number from ``low`` to ``high``; a truth value is none.

    Parameters
    ----------
    name : str
        Name of the argument, for the error.
    given : object
        Its value.
    low, high : float
        Range, both ends included.

    Raises
    ------
    ParameterError
    """
    return _number(Range(low, high), name, given)


class _NumberTypes(NamedTuple):
    """Types of whole numbers, and of numbers."""

    whole: tuple[type, ...]
    real: tuple[type, ...]


@cache
def _number_types() -> _NumberTypes:
    """Return the types of whole and of real numbers, with NumPy's."""
    import numpy as np  # decorated calls of modules that do without it load without it

    return _NumberTypes((int, np.integer), (int, float, np.integer, np.floating))


def _whole_number(limits: Range, name: str, given: Any) -> int:
    """Return the argument as an int; raise ParameterError unless it is a whole number within the limits."""
    is_whole = isinstance(given, _number_types().whole) and not isinstance(given, bool)
    if not is_whole or not limits.low <= given <= limits.high:
        raise unusable(name, given, f"a whole number {_range_in_words(limits)}")
    return int(given)


def _number(limits: Range, name: str, given: Any) -> float:
    """Return the argument as a float; raise ParameterError unless it is a number within the limits."""
    is_number = isinstance(given, _number_types().real) and not isinstance(given, bool)
    if not is_number or not limits.low <= given <= limits.high:  # NaN is in no range
        raise unusable(name, given, f"a number {_range_in_words(limits)}")
    return float(given)


def _numbers(limits: Range, rules: Sequence[_Rule], name: str, given: Any) -> tuple[Any, ...]:
    """Apply a rule to each of the numbers; raise ParameterError unless there are as many as rules."""
    import numpy as np

    if not isinstance(given, list | tuple | np.ndarray) or len(given) != len(rules):
        raise unusable(name, given, f"{len(rules)} numbers, each {_range_in_words(limits)}")
    return tuple(rule(f"{name}[{place}]", given[place]) for place, rule in enumerate(rules))


def time_zone(name: str, given: Any) -> ZoneInfo:
    """Return the time zone that an argument names; raise ParameterError if it names none."""
    from mudkit.units import zone  # it loads NumPy, and errors and displays do without

    tz = zone(given) if isinstance(given, str) else None
    if tz is None:
        raise unusable(name, given, "a time zone, for instance America/Los_Angeles")
    return tz


def of_kind(name: str, given: Any, *kinds: type, expected: str, remedy: str | None = None) -> None:
    """Raise ParameterError unless an argument is of one of some types; ``expected`` has words for them."""
    if isinstance(given, kinds):
        return
    is_plain = type(given).__module__ == "builtins" and not callable(given)
    named = getattr(given, "__name__", None) if callable(given) else None
    raise ParameterError(
        f"The parameter {name} is not usable.",
        where=name,
        found=brief(given, 120) if is_plain else named or f"a {type(given).__name__}",
        expected=expected,
        remedy=remedy,
    )


def one_of(name: str, given: Any, known: Iterable[str], summary: str | None = None) -> None:
    """Raise ParameterError, which suggests the nearest text, unless an argument is one of the known ones."""
    _known_text(known, summary, name, given)


def _known_text(known: Iterable[str], summary: str | None, name: str, given: Any) -> Any:
    """Return the argument; raise ParameterError, with the nearest known text, unless it is a known one."""
    texts = list(known)
    if given in texts:
        return given
    summary = summary or f"The parameter {name} is not usable."
    remedy = did_you_mean(given, texts)
    raise ParameterError(summary, where=name, found=brief(given), expected=listed(texts), remedy=remedy)


def split_rates(rates: Mapping[str, Any], *kinds: type) -> list[dict[str, Any]]:
    """Split keyword arguments by the dataclass that declares them, one dict for each of ``kinds``."""
    names = [{declared.name for declared in fields(kind)} for kind in kinds]
    known = sorted(set().union(*names))
    for name in rates:
        if name not in known:
            raise ParameterError(
                f"There is no parameter {name!r}.",
                where=name,
                found=brief(rates[name]),
                expected="one of " + ", ".join(known),
                remedy=did_you_mean(name, known),
            )
    return [{name: value for name, value in rates.items() if name in mine} for mine in names]


def _range_in_words(limits: Range) -> str:
    """Describe a range for messages, ends included."""
    return f"from {_limit_in_words(limits.low)} to {_limit_in_words(limits.high)}"


def _limit_in_words(limit: float) -> str:
    """Write a limit without an exponent."""
    if isinstance(limit, int):
        return f"{limit:,}"
    if 0 < abs(limit) < 1e-4:
        return f"{limit:.9f}".rstrip("0")
    return f"{limit:,.12g}"


def unusable(name: str, given: Any, expected: str) -> ParameterError:
    """Return the refusal of an argument; ``expected`` describes what it may be."""
    summary = f"The parameter {name} is not usable."
    return ParameterError(summary, where=name, found=brief(given), expected=expected)


def is_storable(value: Any, deepest: int = MAX_VALUE_DEPTH, *, has_bytes: bool = False) -> bool:
    """Return whether a store returns a value unchanged and a message can carry it.

    ``deepest`` is the allowed nesting of lists and mappings. ``has_bytes`` allows bytes, which JSON cannot
    hold: machines of one lab send them, and stores keep them.
    """
    kind = type(value)
    if kind is str:
        return value.isascii() or _is_utf8(value)
    if kind is int:
        return bool(-(1 << 63) <= value < 1 << 63)
    if kind is float:
        return isfinite(value)
    if value is None or kind is bool or (kind is bytes and has_bytes):
        return True
    if not deepest:
        return False
    if kind is dict:
        return all(
            type(name) is str and is_storable(name) and is_storable(item, deepest - 1, has_bytes=has_bytes)
            for name, item in value.items()
        )
    return kind is list and all(is_storable(item, deepest - 1, has_bytes=has_bytes) for item in value)


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
    return _WORDS.get(kind) or _object_in_words(kind)


def described(words: str) -> Callable[[K], K]:
    """Decorate a class: refusals describe its objects in these words, not by its constructor."""

    def describe(kind: K) -> K:
        _WORDS[kind] = words
        return kind

    return describe


def _object_in_words(kind: Any) -> str:
    """Describe a type for messages; one of mudkit's with the arguments that it requires."""
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
    """Return the article of a name, ``a`` or ``an``."""
    return "an" if name[:1] in "AEIOaeio" else "a"
