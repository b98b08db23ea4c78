"""What stands around a machine, as the machine's process sees it: its host, and the world that runs it.

Hosts, processes and operations are given these and know no more of the kernel, which knows all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

from mudkit.events import Call, Event
from mudkit.fleet.link import Leg, Link

__all__ = ["Runtime", "Site", "VirtualTime"]

_Process = TypeVar("_Process", contravariant=True)
_Operation = TypeVar("_Operation", contravariant=True)


class VirtualTime(Protocol):
    """Virtual time, which goes on while somebody waits."""

    now_us: int
    stands_still: bool
    """Whether nothing is happening: who asks is outside of virtual time."""

    def at(self, t_us: int, action: Callable[[Any], None], argument: Any = None) -> None:
        """Do something at a time."""
        ...

    def run_until(self, done: Callable[[], bool], deadline_us: int, turn_s: float = ...) -> None:
        """Let time go on until something is so, or the deadline has come."""
        ...

    def failed(self, host: Site, system: str, error: Exception, doing: str) -> None:
        """Take note of a failure of a machine or of a callback."""
        ...


class Site(Protocol):
    """A host, as a machine on it sees it."""

    name: str
    number: int
    address: str
    is_online: bool

    @property
    def link(self) -> Link | None:
        """Its link; None: it is a server, which is always reached."""
        ...

    @property
    def network(self) -> str:
        """The kind of its network."""
        ...

    @property
    def context(self) -> Mapping[str, Any]:
        """What it knows of itself, its battery apart."""
        ...

    @property
    def op_ids(self) -> Iterator[int]:
        """Numbers of the calls here."""
        ...

    def snapshot(self) -> Mapping[str, Any]:
        """Give what it knows of itself now."""
        ...

    def held_down(self) -> list[str]:
        """Say what holds its link down: nothing, as long as it is up."""
        ...

    def kill(self) -> None:
        """End its machines at once."""
        ...


class Runtime(VirtualTime, Protocol[_Process, _Operation]):
    """The world, as hosts and processes see it: it runs machines, and hears of all that is to be recorded."""

    seed: int

    def register(self, process: _Process) -> None:
        """Let a machine be reached at its address."""
        ...

    def unregister(self, process: _Process) -> None:
        """Forget a machine that could not be made."""
        ...

    def readdress(self, host: Any, address: str) -> None:
        """Reach the machines of a host at another address from now on."""
        ...

    def soon(self, process: _Process, event: Event) -> None:
        """Let a machine handle an event, now."""
        ...

    def call(self, process: _Process, event: Call) -> None:
        """Let a machine handle what an application asks for."""
        ...

    def was_cut(self, leg: Leg, gone: int) -> None:
        """Take note of a transfer that was cut."""
        ...

    def tell_failures(self) -> None:
        """Warn of what has failed."""
        ...

    @property
    def on_install(self) -> Callable[[_Process], None]:
        """Who hears of a machine that was put on a host."""
        ...

    @property
    def on_operation(self) -> Callable[[_Operation], None]:
        """Who hears of a call."""
        ...

    @property
    def on_answer(self) -> Callable[[_Operation], None]:
        """Who hears of the answer to a call."""
        ...

    @property
    def on_incident(self) -> Callable[[Any, str, str | None], None]:
        """Who hears of what happened to a host: which one, what, and its details."""
        ...

    @property
    def on_link(self) -> Callable[[Any], None]:
        """Who hears that the link of a device has gone up or down."""
        ...
