"""Functions of users, watched: one that does not come to an end is ended.

What is counted is what Python runs: lines, calls, and where a loop is one instruction that jumps to itself
(``while True: pass`` on one line begins no line) its instructions. The count is the same in every run, so is
what is ended. Two things are not counted:

* A call into a library that looks at signals while it works (``10**10**10``, a regular expression that
  backtracks) is ended by a clock after :data:`~mudkit.systems.sublim._policy.limits.MAX_CPU_S` seconds of
  processor time, in the main thread; so is a function that a debugger or a measure of coverage traces
  already.
* A call into a library that does not (``sum(itertools.count())``) **cannot be ended**: the process must be.

Memory is the operating system's affair: it refuses ``"a" * 10**12``, which is a ``MemoryError`` like any
other exception, but grants what it believes to have. A bare ``except:`` around an endless loop catches what
would end it; only ``except Exception`` does not.
"""

from __future__ import annotations

import dis
import signal
import sys
import threading
from collections.abc import Callable
from types import CodeType, FrameType, TracebackType
from typing import Final, TypeAlias

from mudkit.systems.sublim._policy.limits import MAX_CPU_S, MAX_LINES

__all__ = ["TooLong", "Watched", "error_text"]

_KNOWN_CODE: Final = 1024
_Trace: TypeAlias = Callable[[FrameType, str, object], "_Trace | None"]


class TooLong(BaseException):
    """A function does not come to an end: no ``except Exception`` in it may catch this."""


class Watched:
    """Ends what runs inside by :class:`TooLong`, if it runs for too long."""

    __slots__ = ("_before", "_handler", "_is_clocked", "_left")

    def __enter__(self) -> None:
        self._left = MAX_LINES
        self._is_clocked = threading.current_thread() is threading.main_thread() and not any(
            signal.getitimer(signal.ITIMER_VIRTUAL)
        )
        if self._is_clocked:
            self._handler = signal.signal(signal.SIGVTALRM, _late)
            signal.setitimer(signal.ITIMER_VIRTUAL, MAX_CPU_S)
        self._before = sys.gettrace()
        if self._before is None:  # a debugger or a measure of coverage goes first
            sys.settrace(self._trace)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        sys.settrace(self._before)
        if self._is_clocked:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
            signal.signal(signal.SIGVTALRM, self._handler)

    def _trace(self, frame: FrameType, event: str, argument: object) -> _Trace:
        self._left -= 1
        if self._left < 0:
            raise TooLong(f"more than {MAX_LINES} lines for one message")
        if event == "call" and _jumps_to_itself(frame.f_code):
            frame.f_trace_opcodes = True
        return self._trace


def error_text(error: BaseException) -> str:
    """Say what was raised; an error of a user may fail at that, too."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


def _late(number: int, frame: FrameType | None) -> None:
    raise TooLong(f"more than {MAX_CPU_S:g} s of processor time for one message")


_jumping: dict[int, tuple[CodeType, bool]] = {}
"""By ``id``, and kept, so that no other has it: to hash code takes longer than to run some."""


def _jumps_to_itself(code: CodeType) -> bool:
    known = _jumping.get(id(code))
    if known is None:
        if len(_jumping) >= _KNOWN_CODE:
            _jumping.clear()
        known = _jumping[id(code)] = code, _has_tight_loop(code)
    return known[1]


def _has_tight_loop(code: CodeType) -> bool:
    """Look for jumps back over nothing: Python tells a tracer of no line there."""
    empty_from: int | None = None
    for instruction in dis.get_instructions(code):
        if empty_from is None:
            empty_from = instruction.offset
        if instruction.opcode in dis.hasjrel and empty_from <= instruction.argval <= instruction.offset:
            return True
        if instruction.opname not in ("NOP", "EXTENDED_ARG"):
            empty_from = None
    return False
