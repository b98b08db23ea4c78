"""What a rule does with a message: actions, one after the other, until one of them drops it.

===========  =========================================================================================
drop         the message is not sent
keep         only these fields are sent
set          a field gets a value
compress     a field becomes smaller, see :func:`~mudkit.systems.sublim._policy.message.compress`
resize       a field becomes no longer than a number of pixels
remember     a manual variable gets a value
forget       a manual variable is removed
every        at most one message in so many seconds; the others are dropped
summary      count, least, greatest and mean of fields over a window of so many seconds, sent with the
             first message after it
call         a method that was registered
===========  =========================================================================================

Values are numbers, truth values, lists, or expressions of the one language as text (``"message.pulse"``,
``"'a text'"``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import signature
from typing import ClassVar, Final, TypeAlias

from mudkit.errors import brief
from mudkit.predicates import Language
from mudkit.systems.sublim._policy.execution import (
    Doing,
    Step,
    check_at_least,
    check_name,
    check_values,
    checked_names,
    value_of,
)
from mudkit.systems.sublim._policy.message import compress, method_of, resize, thawed, thawed_fields
from mudkit.systems.sublim._policy.problems import PolicyError
from mudkit.systems.sublim._policy.state import checked_bytes
from mudkit.systems.sublim._policy.watching import Watched
from mudkit.systems.sublim._policy.windows import Every, Summary
from mudkit.wire import Fields, Value

__all__ = [
    "ACTIONS",
    "Action",
    "Call",
    "Compress",
    "Drop",
    "Every",
    "Forget",
    "Keep",
    "Remember",
    "Resize",
    "SetField",
    "Summary",
    "action_of",
    "described",
]


@dataclass(frozen=True)
class Drop:
    """Do not send the message."""

    NAME: ClassVar = "drop"

    def compiled(self, language: Language) -> Step:
        """Make the step that does it."""
        return lambda doing: False


@dataclass(frozen=True)
class Keep:
    """Send only these fields.

    Parameters
    ----------
    fields : tuple of str
    """

    fields: tuple[str, ...]
    NAME: ClassVar = "keep"

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", checked_names("keep", self.fields))

    def compiled(self, language: Language) -> Step:
        """Make the step that does it."""
        kept = self.fields

        def step(doing: Doing) -> bool:
            out = doing.out
            doing.out = {name: out[name] for name in kept if name in out}
            return True

        return step


@dataclass(frozen=True)
class SetField:
    """Give fields of the message values.

    Parameters
    ----------
    values : mapping of str to object
    """

    values: Fields
    NAME: ClassVar = "set"

    def __post_init__(self) -> None:
        check_values("set", self.values)

    def compiled(self, language: Language) -> Step:
        """Make the step that does it."""
        made = [(name, value_of(each, language)) for name, each in self.values.items()]

        def step(doing: Doing) -> bool:
            doing.out.update({name: value(doing) for name, value in made})
            return True

        return step


@dataclass(frozen=True)
class Compress:
    """Make a field smaller.

    Parameters
    ----------
    field : str
    ratio : float or str
        How many times, or an expression for it.
    """

    field: str
    ratio: float | str
    NAME: ClassVar = "compress"

    def __post_init__(self) -> None:
        check_name("compress", self.field)
        check_at_least("ratio", self.ratio, 1.0)

    def compiled(self, language: Language) -> Step:
        """Make the step that does it."""
        field, ratio = self.field, value_of(self.ratio, language)

        def step(doing: Doing) -> bool:
            compress(doing.out, field, ratio(doing))
            return True

        return step


@dataclass(frozen=True)
class Resize:
    """Make a field no longer than the display is wide.

    Parameters
    ----------
    field : str
    pixels : float or str
        An expression; by default what the device says of itself.
    """

    field: str
    pixels: float | str = "state.display_px"
    NAME: ClassVar = "resize"

    def __post_init__(self) -> None:
        check_name("resize", self.field)
        check_at_least("pixels", self.pixels, 1.0)

    def compiled(self, language: Language) -> Step:
        """Make the step that does it."""
        field, pixels = self.field, value_of(self.pixels, language)

        def step(doing: Doing) -> bool:
            resize(doing.out, field, pixels(doing))
            return True

        return step


@dataclass(frozen=True)
class Remember:
    """Set manual variables; setting an automatic one does nothing.

    Parameters
    ----------
    values : mapping of str to object
    """

    values: Fields
    NAME: ClassVar = "remember"

    def __post_init__(self) -> None:
        check_values("remember", self.values)

    def compiled(self, language: Language) -> Step:
        """Make the step that does it."""
        made = [(name, value_of(each, language)) for name, each in self.values.items()]

        def step(doing: Doing) -> bool:
            for name, value in [(name, value(doing)) for name, value in made]:
                doing.state.set_property(name, value)
            return True

        return step


@dataclass(frozen=True)
class Forget:
    """Remove manual variables; removing an automatic one does nothing.

    Parameters
    ----------
    names : tuple of str
    """

    names: tuple[str, ...]
    NAME: ClassVar = "forget"

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", checked_names("forget", self.names))

    def compiled(self, language: Language) -> Step:
        """Make the step that does it."""

        def step(doing: Doing) -> bool:
            for name in self.names:
                doing.state.remove_property(name)
            return True

        return step


@dataclass(frozen=True)
class Call:
    """Call a method that was registered.

    Parameters
    ----------
    name : str
        As it was given to :func:`~mudkit.systems.sublim._policy.message.method`.
    """

    name: str
    NAME: ClassVar = "call"

    def __post_init__(self) -> None:
        method_of(self.name)

    def compiled(self, language: Language) -> Step:
        """Make the step that does it."""
        called = method_of(self.name)

        def step(doing: Doing) -> bool:
            with Watched():
                made = called(thawed_fields(doing.out), thawed_fields(doing.state.all))
            if made is None:
                return False
            doing.out = thawed_fields(made)
            checked_bytes(doing.out, "the message")
            return True

        return step


Action: TypeAlias = Drop | Keep | SetField | Compress | Resize | Remember | Forget | Every | Summary | Call

ACTIONS: Final[dict[str, Callable[..., Action]]] = {
    each.NAME: each
    for each in (Drop, Keep, SetField, Compress, Resize, Remember, Forget, Every, Summary, Call)
}
"""The actions of rules, by the names that they have in YAML."""
_PLAIN: Final = {"keep": "fields", "set": "values", "remember": "values", "forget": "names", "call": "name"}
"""Actions of one parameter are written without its name."""


def action_of(name: str, given: Value) -> Action:
    """Make an action of its name and what stands after it.

    Raises
    ------
    PolicyError
    """
    if name not in ACTIONS:
        raise PolicyError("There is no such action.", found=brief(name), expected=", ".join(ACTIONS))
    kind = ACTIONS[name]
    if name == "drop":
        if given is not None:
            raise PolicyError("drop takes nothing.", found=brief(given), expected="drop alone")
        return Drop()
    if name in _PLAIN:
        return kind(given)
    known = list(signature(kind).parameters)
    if not isinstance(given, Mapping):
        raise PolicyError(
            f"{name} takes parameters by name.", found=brief(given), expected=f"{{{', '.join(known)}}}"
        )
    if unknown := [each for each in given if each not in known]:
        raise PolicyError(
            f"{name} has no parameter {unknown[0]!r}.", found=brief(unknown[0]), expected=", ".join(known)
        )
    try:
        return kind(**given)
    except TypeError:
        raise PolicyError(
            f"A parameter of {name} is missing.",
            found=", ".join(map(str, given)) or "none",
            expected=", ".join(known),
        ) from None


def described(action: Action) -> Value:
    """Give an action as :func:`action_of` takes it, as JSON can hold it."""
    if isinstance(action, Drop):
        return "drop"
    if action.NAME in _PLAIN:
        return {action.NAME: thawed(getattr(action, _PLAIN[action.NAME]))}
    fields = {name: thawed(getattr(action, name)) for name in action.__dataclass_fields__ if name != "NAME"}
    return {action.NAME: {name: value for name, value in fields.items() if value is not None}}
