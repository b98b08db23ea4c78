"""Policies that are Python functions, for trusted notebooks, and the bounds on their run time.

A function gets the message, which it cannot change, and the state. It returns the message to send: the
published one, or another one (:func:`~mudkit.systems.sublim.create_message`); None drops it. An exception, or
exceeding a limit (lines run, size of state and message), stops it for this message only; its state is
unchanged, and other subscribers are not affected. It is not a sandbox.

The limit on lines counts Python's trace events: lines, calls, and the instructions of a loop that is a
single jump to itself (``while True: pass`` on one line begins no line). The count, and so the outcome, is the
same in every run. Not counted:

* A call into a library that checks for signals (``10**10**10``, a backtracking regular expression) is
  interrupted after :data:`MAX_CPU_S` seconds of processor time, in the main thread; so is a function that is
  already traced, by a debugger or a coverage tool.
* A call into a library that does not (``sum(itertools.count())``) **cannot be interrupted**, except by ending
  the process.

Memory is left to the operating system: it refuses ``"a" * 10**12``, which raises a ``MemoryError`` like any
other exception. A bare ``except:`` around an endless loop catches the interruption; ``except Exception`` does
not.
"""

from __future__ import annotations

import dis
import gc
import signal
import sys
import threading
from collections.abc import Callable
from types import CodeType, FrameType, TracebackType
from typing import ClassVar, Final, TypeAlias

from mudkit.checks import check_arguments
from mudkit.display import Displayed, View
from mudkit.systems.sublim._policy.message import freeze_fields, thaw_fields
from mudkit.systems.sublim._policy.state import LimitExceeded, State, check_bytes, check_initial_variables
from mudkit.systems.sublim._policy.verdict import DROPPED, SENT, STOPPED, EvaluatedRule, Verdict
from mudkit.wire import Fields, Value

MAX_LINES: Final = 20_000
"""Lines of Python that a policy function or a registered method may run for one message."""
MAX_CPU_S: Final = 2.0
"""Processor time that it may use; lines inside a library call are not counted."""

_KNOWN_CODE: Final = 1024
_Trace: TypeAlias = Callable[[FrameType, str, object], "_Trace | None"]


class TooLong(BaseException):
    """Exceeded run time of a function. Not an Exception, so ``except Exception`` does not catch it."""


class RunLimit:
    """Context manager that raises :class:`TooLong` when its body runs for too long."""

    __slots__ = ("_before", "_collects", "_handler", "_is_clocked", "_left")

    def __enter__(self) -> None:
        # A collection of a large heap exceeds the limit, and what is raised in it is not propagated.
        self._collects = gc.isenabled()
        gc.disable()
        self._left = MAX_LINES
        self._is_clocked = threading.current_thread() is threading.main_thread() and not any(
            signal.getitimer(signal.ITIMER_VIRTUAL)
        )
        if self._is_clocked:
            self._handler = signal.signal(signal.SIGVTALRM, _raise_too_long)
            signal.setitimer(signal.ITIMER_VIRTUAL, MAX_CPU_S)
        self._before = sys.gettrace()
        if self._before is None:  # keep the trace function of a debugger or coverage tool
            sys.settrace(self._trace)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        sys.settrace(self._before)
        if self._is_clocked:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
            signal.signal(signal.SIGVTALRM, self._handler)
        if self._collects:
            gc.enable()

    def _trace(self, frame: FrameType, event: str, argument: object) -> _Trace:
        """Count a trace event of Python; raise TooLong beyond MAX_LINES."""
        self._left -= 1
        if self._left < 0:
            raise TooLong(f"more than {MAX_LINES} lines for one message")
        if event == "call" and _jumps_to_itself(frame.f_code):
            frame.f_trace_opcodes = True
        return self._trace


def error_text(error: BaseException) -> str:
    """Return type and text of an exception; a user's exception may fail in ``str``."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


def _raise_too_long(number: int, frame: FrameType | None) -> None:
    """Raise TooLong: handler of the signal when the processor time is used up."""
    raise TooLong(f"more than {MAX_CPU_S:g} s of processor time for one message")


_jumping: dict[int, tuple[CodeType, bool]] = {}
"""Results by ``id`` of the code, which is referenced so that the id stays unique; hashing code is slow."""


def _jumps_to_itself(code: CodeType) -> bool:
    """Return whether code has a tight loop, as :func:`_has_tight_loop` does, and cache it."""
    known = _jumping.get(id(code))
    if known is None:
        if len(_jumping) >= _KNOWN_CODE:
            _jumping.clear()
        known = _jumping[id(code)] = code, _has_tight_loop(code)
    return known[1]


def _has_tight_loop(code: CodeType) -> bool:
    """Return whether code has a jump back over nothing, for which Python emits no line event."""
    empty_from: int | None = None
    for instruction in dis.get_instructions(code):
        if empty_from is None:
            empty_from = instruction.offset
        if instruction.opcode in dis.hasjrel and empty_from <= instruction.argval <= instruction.offset:
            return True
        if instruction.opname not in ("NOP", "EXTENDED_ARG"):
            empty_from = None
    return False


Decides: TypeAlias = Callable[[Fields, State], Fields | None]


class FunctionPolicy(Displayed):
    """Policy that calls a function; :func:`policy` creates it.

    Parameters
    ----------
    function : callable
        ``f(message, state)``, which returns the message to send, or None.
    variables : mapping of str to object
        Initial manual variables.
    """

    kind: ClassVar = "function"

    @check_arguments
    def __init__(self, function: Decides, variables: Fields) -> None:
        self.function = function
        self.name = getattr(function, "__name__", "policy")
        self.variables = dict(variables)
        check_initial_variables(self.variables)

    def decide(
        self,
        message: Fields,
        variables: Fields,
        automatic: Fields,
        now_s: float = 0.0,
    ) -> Verdict:
        """Decide about one message, see :meth:`mudkit.systems.sublim.Policy.decide`."""
        state = State(thaw_fields(variables), automatic, now_s)
        try:
            with RunLimit():
                out = self.function(freeze_fields(message), state)
            result = None if out is None else thaw_fields(out)
            check_bytes(result, "the message")
            return Verdict.of(DROPPED if result is None else SENT, result, None, state, variables)
        except (Exception, SystemExit, TooLong) as error:  # a user's function may raise anything
            why = str(error) if isinstance(error, LimitExceeded | TooLong) else error_text(error)
            return Verdict(STOPPED, None, None, variables, why)

    @check_arguments(types=False)
    def explain(
        self,
        message: Fields,
        variables: Fields,
        automatic: Fields,
        now_s: float = 0.0,
    ) -> list[EvaluatedRule]:
        """Return the values passed to the function as a single rule; arguments as of :meth:`decide`."""
        values = {f"message.{name}": value for name, value in message.items()}
        values |= {f"state.{name}": value for name, value in {**variables, **automatic}.items()}
        return [EvaluatedRule(0, self.name, None, True, values)]

    def __call__(self, message: Fields, state: State) -> Fields | None:
        """Call the function itself."""
        return self.function(message, state)

    def _view(self) -> View:
        """Return name and variables for the display."""
        return View("sublim.FunctionPolicy", {"name": self.name, "variables": self.variables})


@check_arguments
def policy(
    function: Decides | None = None, /, **variables: Value
) -> FunctionPolicy | Callable[[Decides], FunctionPolicy]:
    """Return a policy that calls a function ``f(message, state)``; also a decorator.

    Parameters
    ----------
    function : callable
    **variables
        Initial manual variables: ``@policy(patients=[1, 2])``.

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
