"""Policies that are Python functions, for trusted notebooks: they run as they are.

A function is given the message, which it cannot change, and the state. It gives back the message to be sent:
the one that was published, or another one (:func:`~mudkit.systems.sublim._policy.message.create_message`);
nothing drops it. What it raises, and what goes beyond a limit (lines run, size of the state and of the
message), stops it for this message only: the state is as it was before, and other subscribers notice
nothing. It is no sandbox: :mod:`~mudkit.systems.sublim._policy.watching` says what cannot be ended.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, TypeAlias

from mudkit.arguments import check_arguments, check_init
from mudkit.display import Displayed, View
from mudkit.systems.sublim._policy.deciding import DROPPED, SENT, STOPPED, Seen, Verdict
from mudkit.systems.sublim._policy.message import frozen_fields, thawed_fields
from mudkit.systems.sublim._policy.problems import PolicyError
from mudkit.systems.sublim._policy.state import Beyond, State, checked_bytes
from mudkit.systems.sublim._policy.watching import TooLong, Watched, error_text
from mudkit.wire import Fields, Value

__all__ = ["FunctionPolicy", "policy"]

Decides: TypeAlias = Callable[[Fields, State], Fields | None]


@check_init
class FunctionPolicy(Displayed):
    """A function as a policy; :func:`policy` makes it.

    Parameters
    ----------
    function : callable
    variables : mapping of str to object
        First values of the manual variables.
    """

    kind: ClassVar = "function"

    def __init__(self, function: Decides, variables: Fields) -> None:
        self.function = function
        self.name = getattr(function, "__name__", "policy")
        self.variables = dict(variables)
        try:
            State(self.variables, {}, 0.0).check()
        except Beyond as error:
            raise PolicyError("These variables cannot be kept.", found=str(error)) from None

    def decide(
        self,
        message: Fields,
        variables: Fields,
        automatic: Fields,
        now_s: float = 0.0,
    ) -> Verdict:
        """Decide about one message, as :meth:`mudkit.systems.sublim.Policy.decide`."""
        state = State(thawed_fields(variables), automatic, now_s)
        try:
            with Watched():
                out = self.function(frozen_fields(message), state)
            made = None if out is None else thawed_fields(out)
            checked_bytes(made, "the message")
            return Verdict.of(DROPPED if made is None else SENT, made, None, state, variables)
        except (Exception, SystemExit, TooLong) as error:  # whatever the function does is its own affair
            why = str(error) if isinstance(error, Beyond | TooLong) else error_text(error)
            return Verdict(STOPPED, None, None, variables, why)

    def explain(
        self,
        message: Fields,
        variables: Fields,
        automatic: Fields,
        now_s: float = 0.0,
    ) -> list[Seen]:
        """Say what it was given: a function has no rules to show."""
        values = {f"message.{name}": each for name, each in message.items()}
        values |= {f"state.{name}": each for name, each in {**variables, **automatic}.items()}
        return [Seen(0, self.name, None, True, values)]

    def __call__(self, message: Fields, state: State) -> Fields | None:
        """Call the function itself."""
        return self.function(message, state)

    def _view(self) -> View:
        return View("sublim.FunctionPolicy", {"name": self.name, "variables": self.variables})


@check_arguments
def policy(
    function: Decides | None = None, /, **variables: Value
) -> FunctionPolicy | Callable[[Decides], FunctionPolicy]:
    """Return a policy that calls a function ``f(message, state)``.

    Parameters
    ----------
    function : callable
    **variables
        First values of the manual variables: ``@policy(patients=[1, 2])``.

    Examples
    --------
    >>> @policy
    ... def calm(message, state):
    ...     return message if message["pulse"] < 50 else None
    >>> calm.decide({"pulse": 40}, {}, {}).out
    {'pulse': 40}
    """
    if function is None:
        return lambda given: FunctionPolicy(given, variables)
    return FunctionPolicy(function, variables)
