"""Calls that a user schedules: functions that a lab calls at given moments of virtual time."""

from __future__ import annotations

import datetime as dt
import inspect
from collections.abc import Callable
from typing import Final

from mudkit import words
from mudkit.display import Displayed, View, one_line
from mudkit.errors import MudkitError, ParameterError, ScheduledCallFailed, brief
from mudkit.fleet.clock import Clock
from mudkit.fleet.recorder import iso_time
from mudkit.units import US_PER_S

_MAX_NAME: Final = 60
"""Maximum length of the name of a function in a display."""


class ScheduledCall(Displayed):
    """A function that a lab calls once, or at intervals, as ``Lab.schedule`` and ``Lab.repeat`` return it.

    Parameters
    ----------
    clock : Clock
        Virtual time.
    call : callable
        Function without arguments.
    start_us : int
        Start of virtual time, µs since 1970 (UTC).
    first_us : int
        Virtual time of the first call.
    every_us : int, optional
        Interval; None: it is called once.
    times : int, optional
        Number of calls; None: unlimited.
    until_us : int, optional
        Latest virtual time of a call; None: unlimited.

    Attributes
    ----------
    count : int
        Number of calls so far.
    """

    def __init__(
        self,
        clock: Clock,
        call: Callable[[], object],
        start_us: int,
        first_us: int,
        every_us: int | None = None,
        times: int | None = None,
        until_us: int | None = None,
    ) -> None:
        check_callable(call)
        self._clock = clock
        self._call = call
        self._start_us = start_us
        self._every_us = every_us
        self._left = 1 if every_us is None else times
        self._until_us = until_us
        self._next_us: int | None = None
        self.count = 0
        self._schedule(first_us)

    @property
    def next_at(self) -> dt.datetime | None:
        """Time of the next call, UTC; None: there is none."""
        return None if self._next_us is None else self._time(self._next_us)

    def cancel(self) -> None:
        """Cancel all further calls; without effect after the last one."""
        self._next_us = None

    def _schedule(self, t_us: int) -> None:
        """Schedule the next call, unless that was the last one."""
        is_over = self._left == 0 or (self._until_us is not None and t_us > self._until_us)
        self._next_us = None if is_over else t_us
        if not is_over:
            self._clock.schedule_call(t_us, self._run)

    def _run(self, _: None) -> None:
        """Call the function, unless it is cancelled; the next call is scheduled before."""
        at_us = self._next_us
        if at_us is None:
            return
        self.count += 1
        self._left = None if self._left is None else self._left - 1
        self._schedule(at_us + (self._every_us or 0))
        try:
            self._call()
        except Exception as error:
            summary = error.summary if isinstance(error, MudkitError) else str(error)
            raise ScheduledCallFailed(
                "A scheduled call has failed, and has ended the run.",
                where=f"{_name_of(self._call)} at {self._time(at_us):%Y-%m-%d %H:%M:%S} UTC",
                found=f"{type(error).__name__}: {one_line(summary, 200)}",
                expected="a function that does not raise, and does not run virtual time",
                remedy=(error.remedy if isinstance(error, MudkitError) else None)
                or "mend the function, and run the lab further; what it called before it failed stays",
            ) from error

    def _time(self, t_us: int) -> dt.datetime:
        """Return a virtual time as a time of the lab's clock."""
        return dt.datetime.fromisoformat(iso_time(self._start_us + t_us))

    def _view(self) -> View:
        """Return the view of a display: what is called, how often it was, and when it is next."""
        every = None if self._every_us is None else words.duration(self._every_us / US_PER_S)
        following = "ended" if self.next_at is None else f"{self.next_at:%Y-%m-%d %H:%M:%S} UTC"
        facts = {"call": _name_of(self._call), "every": every, "called": self.count, "next": following}
        return View("Scheduled call", facts)


def check_callable(call: Callable[[], object]) -> None:
    """Raise ParameterError unless a call is a function that a lab can call without arguments."""
    if inspect.iscoroutinefunction(call):
        raise ParameterError(
            "A lab cannot call an asynchronous function.",
            where="call",
            found=f"async def {_name_of(call)}",
            expected="a function without arguments that returns when it is done",
            remedy="use def, and add_done_callback of the operations that it calls",
        )
    try:
        inspect.signature(call).bind()
    except TypeError:
        raise ParameterError(
            "A lab calls this without arguments.",
            where="call",
            found=f"{_name_of(call)}{inspect.signature(call)}",
            expected="a function without arguments",
            remedy="bind them: lab.schedule(lambda: call(argument), minutes=10)",
        ) from None
    except ValueError:  # written in C, without a signature
        pass


def _name_of(call: Callable[[], object]) -> str:
    """Return the name of a function, for errors and displays."""
    name = getattr(call, "__qualname__", None)
    if name is None:
        return brief(call, _MAX_NAME)
    short, code = name.rpartition("<locals>.")[2], getattr(call, "__code__", None)
    return (
        f"lambda in line {code.co_firstlineno}"
        if short == "<lambda>" and code
        else one_line(short, _MAX_NAME)
    )
