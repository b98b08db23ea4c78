"""A call to a machine, and its answer: what notebooks wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Final, Protocol

import numpy as np

from mudkit import words
from mudkit.display import Displayed, Table, View, one_line
from mudkit.errors import OperationLost, OperationTimeout, ParameterError, brief
from mudkit.events import Call
from mudkit.fleet.runtime import Site, VirtualTime

__all__ = ["Asked", "Operation"]

_MOST_S: Final = 1_000_000_000
_TURN_S: Final = 0.05
"""Real time after which a waiting cell lets widgets and interrupts live."""


class Asked(Protocol):
    """The machine that was asked, on its host."""

    system: str
    session: int

    @property
    def host(self) -> Site:
        """The host that it runs on."""
        ...

    @property
    def machine(self) -> Any:
        """The machine itself; None: it was killed."""
        ...


class Operation(Displayed):
    """A call that was made, as a future in virtual time.

    Parameters
    ----------
    world : VirtualTime
        The world in which the answer comes.
    process : Asked
        The machine that was asked.
    call : Call
        The operation and its arguments.
    """

    __slots__ = (
        "_callbacks",
        "_error",
        "_has_called_back",
        "_is_due",
        "_result",
        "_world",
        "call",
        "details",
        "invoked_us",
        "process",
        "responded_us",
        "session",
    )  # fmt: skip

    def __init__(self, world: VirtualTime, process: Asked, call: Call) -> None:
        self._world = world
        self.process = process
        self.call = call
        self.invoked_us = world.now_us
        self.responded_us: int | None = None
        self.session = process.session
        """Which life of the machine it was asked in."""
        self.details: dict[tuple[Any, Any], Mapping[str, Any]] | None = None
        """What the machine has said of it for the trace, by table and key of the record that it concerns."""
        self._result: Any = None
        self._error: BaseException | None = None
        self._has_called_back = False
        self._is_due = False
        """Whether the event in which callbacks are called is still to come."""
        self._callbacks: list[Callable[[Operation], None]] | None = None

    def _view(self) -> View:
        facts = {"on": self.process.host.name, "system": self.process.system, "status": self.status}
        tables: Sequence[Table] = ()
        if self._error is not None:
            facts["error"] = f"{type(self._error).__name__}: {one_line(self._error)}"
        elif self.responded_us is None:
            facts["since"] = (
                f"{words.duration(self._world.now_us / 1e6 - self.invoked_us / 1e6)} of virtual time"
            )
        else:
            facts["after"] = words.duration((self.responded_us - self.invoked_us) / 1e6)
            if isinstance(self._result, Displayed):
                tables = self._result._view().tables
            facts["result"] = one_line(self._result)
        return View(f"Operation {self.call.name}", facts, tables)

    @property
    def op_id(self) -> int:
        """Its number: no other call on its host has it."""
        return self.call.op_id

    @property
    def status(self) -> str:
        """``open``, ``ok`` or ``failed``; what was lost with its machine stays open in the history."""
        if self.responded_us is None:
            return "open"
        return "ok" if self._error is None else "failed"

    def done(self) -> bool:
        """Say whether it has an answer, or never will."""
        return self.responded_us is not None or self._error is not None

    def result(self, timeout_s: float = 86_400) -> Any:
        """Let virtual time go on until it is answered, and give the result or raise the error.

        Parameters
        ----------
        timeout_s : float
            Virtual seconds from now; a device without a network would otherwise run for ever.

        Raises
        ------
        OperationTimeout
            There was no answer by then.
        OperationLost
            Its machine was killed before.
        ReentrantRun
            Called by something that happens in virtual time, as a callback does.
        """
        if not self._is_complete():
            self._world.run_until(self._is_complete, self._deadline_us(timeout_s))
        self._has_called_back = self.responded_us is not None or self._error is not None
        return self._outcome(timeout_s)

    def add_done_callback(self, f: Callable[[Operation], None]) -> None:
        """Call ``f`` with this operation when it is answered; at once, if it is.

        What it raises is a failure: told in a :class:`~mudkit.errors.FailureWarning` by whatever lets virtual
        time go on, and kept in ``lab.problems``; the others are called all the same.
        """
        if self._has_called_back:
            f(self)
            return
        if self._callbacks is None:
            self._callbacks = []
        self._callbacks.append(f)
        if self.done() and not self._is_due:
            self._tell_soon()

    def __await__(self) -> Generator[Any, None, Any]:
        """Wait for the result in a notebook's cell, where widgets and interrupts live on meanwhile."""
        timeout_s = 86_400.0
        deadline_us = self._deadline_us(timeout_s)
        while not self._is_complete() and self._world.now_us < deadline_us:
            self._world.run_until(self._is_complete, deadline_us, _TURN_S)
            yield from asyncio.sleep(0).__await__()
        return self._outcome(timeout_s)

    def settle(self, result: Any, error: BaseException | None) -> None:
        """Take the answer; who waits is told in an event of its own."""
        self._result, self._error = result, error
        self.responded_us = self._world.now_us
        if self._callbacks or not self._world.stands_still:
            self._tell_soon()

    def lose(self) -> None:
        """Learn that nobody will ever answer: the machine was killed, or does not run."""
        now_us = self._world.now_us
        self._error = OperationLost(
            f"Nobody will answer {self.call.name!r}.",
            where=f"{self.process.system} on {self.process.host.name}",
            found=f"its machine was killed at {now_us / 1e6:,.3f} s, before it answered"
            if self.process.machine is not None or self.invoked_us < now_us
            else f"its machine does not run at {now_us / 1e6:,.3f} s: it was killed, or the device is off",
            remedy="restart it and ask again; what was asked may have been done or not",
        )
        self._tell_soon()

    def _is_complete(self) -> bool:
        """Say whether it has been answered, and nobody is still to be told."""
        return (self.responded_us is not None or self._error is not None) and not self._is_due

    def _tell_soon(self) -> None:
        self._is_due = True
        self._world.at(self._world.now_us, self._tell)

    def _tell(self, _: None) -> None:
        self._has_called_back, self._is_due = True, False
        while self._callbacks:
            try:
                self._callbacks.pop(0)(self)
            except Exception as error:
                process = self.process
                doing = f"in a callback of <{self.call.name} on {process.host.name}: {self.status}>"
                try:
                    self._world.failed(process.host, process.system, error, doing)
                except Exception:  # it is to come out; the others are called when time goes on again
                    if self._callbacks:
                        self._tell_soon()
                    raise

    def _deadline_us(self, timeout_s: float) -> int:
        is_number = isinstance(timeout_s, int | float | np.integer | np.floating)
        if not is_number or not 0 < timeout_s <= _MOST_S:
            raise ParameterError(
                "This timeout is not usable.",
                where="timeout_s",
                found=brief(timeout_s),
                expected=f"a number of seconds over 0, at most {_MOST_S:,}",
            )
        return self._world.now_us + round(timeout_s * 1e6)

    def _outcome(self, timeout_s: float) -> Any:
        if self._error is not None:
            raise self._error
        if self.responded_us is not None:
            return self._result
        host = self.process.host
        state = "has a network" if host.is_online else "has no network"
        held_down = ", ".join(host.held_down())
        raise OperationTimeout(
            f"{self.call.name!r} was not answered within {timeout_s:,g} s of virtual time.",
            where=f"{self.process.system} on {host.name}",
            found=f"{host.name} {state} ({held_down or host.network}) at {self._world.now_us / 1e6:,.3f} s",
            expected="an answer",
            remedy="mend what keeps it from being answered, or wait longer with timeout_s",
        )
