"""Machines of a reader's own: one function on each device and a relay, each with its own copy."""

from __future__ import annotations

import inspect
import io
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

import cloudpickle  # type: ignore[import-untyped]
import numpy as np

from mudkit.checks import check_arguments
from mudkit.errors import ParameterError
from mudkit.events import Effect, Event, Installed, Operation, Ports, Store
from mudkit.experiment.tasks import Interest, Item
from mudkit.experiment.testbed import Adapter, Testbed
from mudkit.fleet import Host, Process, World
from mudkit.lab import Lab
from mudkit.units import US_PER_S

_OF_THE_LAB: Final = (Host, Lab, Process, Testbed, World)
_REMEDY: Final = "keep it in here.memory, or in here.store, and send what others are to know"


class Elsewhere:
    """Code in another process, which is copied and compared there."""

    __slots__ = ()

    def differences(self, first: Any) -> list[str]:
        """Return the names of values in which this copy differs from the first one."""
        raise NotImplementedError


class Copies:
    """Copies of a function, one for each machine.

    Code that reaches what cannot be copied, such as an open file, or what no machine has at hand (the lab,
    the testbed), raises a ParameterError.
    """

    def __init__(self, code: Callable[..., Any]) -> None:
        self._code = _pickled(code)
        self._copies: list[Callable[..., Any]] = []

    def make(self) -> Callable[..., Any]:
        """Return a new copy of the original code."""
        copy: Callable[..., Any] = cloudpickle.loads(self._code)
        self._copies.append(copy)
        return copy

    def check(self) -> None:
        """Raise a ParameterError if a copy has kept something outside of what a machine has at hand."""
        first = cloudpickle.loads(self._code)
        for copy in self._copies:
            changed = next(find_changes(first, copy), None)
            if changed is not None:
                raise ParameterError(
                    "A machine keeps something outside of its memory and its store.",
                    where=getattr(first, "__name__", type(first).__name__),
                    found=f"{changed.removeprefix('.')}, which it has changed",
                    expected="that machines share nothing: each has its own copy of all that it reaches",
                    remedy=_REMEDY,
                )


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickler that refuses what belongs to the lab, and gives each copy classes of its own."""

    def reducer_override(self, obj: Any) -> Any:
        """Return how an object is pickled; ParameterError for an object of the lab."""
        if isinstance(obj, _OF_THE_LAB):
            raise ParameterError(
                "A machine has at hand what no device has.",
                where="handle",
                found=type(obj).__name__,
                expected="code that reaches neither the lab nor the testbed",
                remedy=_REMEDY,
            )
        reduced = super().reducer_override(obj)
        if isinstance(obj, type) and isinstance(reduced, tuple):
            # A class is made with an id by which a second load in this process finds it; a copy has its own.
            make, arguments, *rest = reduced
            bound = inspect.signature(make).bind(*arguments)
            if "class_tracker_id" in bound.arguments:
                bound.arguments["class_tracker_id"] = None
                return make, bound.args, *rest
        return reduced


def _pickled(code: Callable[..., Any]) -> bytes:
    """Return a function as bytes, with its module; ParameterError if it reaches what cannot be copied."""
    out = io.BytesIO()
    with _by_value(code):
        try:
            _Pickler(out).dump(code)
        except ParameterError:
            raise
        except Exception as error:  # each kind of thing has its own
            raise ParameterError(
                "A machine's code reaches what cannot be copied.",
                where="handle",
                found=str(error)[:200],
                expected="code and values: each machine is given its own copy",
                remedy="leave out open files, locks, connections and the like",
            ) from error
    return out.getvalue()


@contextmanager
def _by_value(code: Callable[..., Any]) -> Iterator[None]:
    """Pickle the module of the code, too, while the body runs; otherwise only its name would be."""
    module = sys.modules.get(getattr(code, "__module__", None) or type(code).__module__)
    listed = {"__main__", *cloudpickle.list_registry_pickle_by_value()}
    if module is None or module.__name__ in listed or module.__name__.partition(".")[0] == "mudkit":
        yield
        return
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def find_changes(first: Any, now: Any) -> Iterator[str]:
    """Yield the names of values in which two copies differ."""
    return _find_changes(first, now, "", {})


def _find_changes(first: Any, now: Any, where: str, seen: dict[int, Any]) -> Iterator[str]:
    """Yield the names of values in which two objects differ; ``seen`` has those compared already, by id."""
    if id(now) in seen:
        return
    seen[id(now)] = now  # a reference, so that no other object gets this id
    if isinstance(first, Elsewhere) and isinstance(now, Elsewhere):
        yield from (f"{where}{name}" for name in now.differences(first))
    elif isinstance(first, types.FunctionType) and isinstance(now, types.FunctionType):
        yield from _find_changes(_reached(first), _reached(now), where, seen)
    elif isinstance(first, types.MethodType) and isinstance(now, types.MethodType):
        yield from _find_changes(first.__self__, now.__self__, where, seen)
    elif isinstance(first, Mapping) and isinstance(now, Mapping):
        if first.keys() != now.keys():
            yield where
        for name in first.keys() & now.keys():
            yield from _find_changes(first[name], now[name], f"{where}.{name}", seen)
    elif isinstance(first, list | tuple) and isinstance(now, list | tuple):
        if len(first) != len(now):
            yield where
        for one, other in zip(first, now, strict=False):
            yield from _find_changes(one, other, where, seen)
    elif isinstance(first, type) and isinstance(now, type):
        if first is not now:  # a copy
            yield from _find_changes(_data(first), _data(now), f"{where}.{first.__name__}", seen)
    elif isinstance(first, types.ModuleType):
        return
    elif hasattr(first, "__dict__") and hasattr(now, "__dict__"):
        yield from _find_changes(type(first), type(now), where, seen)
        yield from _find_changes(vars(first), vars(now), where, seen)
    elif not _is_same(first, now):
        yield where


def _reached(function: types.FunctionType) -> dict[str, Any]:
    """Return all that a function reaches by name: globals, closures, defaults and attributes."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    closed = {name: cell.cell_contents for name, cell in cells if _is_full(cell)}
    known = function.__globals__
    named = {name: known[name] for name in _names(function.__code__) & known.keys()}
    defaults = {"defaults": (function.__defaults__, function.__kwdefaults__), "own": dict(function.__dict__)}
    return {**named, **closed, **defaults}


def _names(code: types.CodeType) -> set[str]:
    """Return the names that code reads, with those of the functions in it."""
    inner = (constant for constant in code.co_consts if isinstance(constant, types.CodeType))
    return {*code.co_names}.union(*map(_names, inner))


def _is_full(cell: types.CellType) -> bool:
    """Return whether a variable of a closure has a value."""
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _data(kind: Any) -> dict[str, Any]:
    """Return the attributes of a class, without those of Python."""
    return {name: value for name, value in vars(kind).items() if not name.startswith("__")}


def _is_same(first: Any, now: Any) -> bool:
    """Return whether two values are equal; True, too, where they cannot be compared."""
    try:
        return type(first) is type(now) and bool(np.all(first == now))
    except Exception:  # values that cannot be compared do not count
        return True


RELAY: Final = "relay"
"""Name and address of the server."""
ITEMS: Final = "items"
"""Application to which items are delivered."""


class Here:
    """Context of a machine on the host with the address ``me``; created again when the machine is restarted.

    All that one call of ``handle`` puts into the durable ``store`` is stored, or nothing of it. ``memory`` is
    lost at a restart.
    """

    __slots__ = ("_want", "me", "memory", "relay", "store")

    def __init__(self, me: str, store: Store, want: Interest) -> None:
        self.me, self.store, self.relay = me, store, RELAY
        self.memory: dict[Any, Any] = {}
        self._want = want

    @property
    def is_relay(self) -> bool:
        """True on the relay, false on a phone or a feed."""
        return self.me == self.relay

    def wants(self, me: Mapping[str, Any], item: Mapping[str, Any]) -> bool:
        """Return whether a user wants a published item, by what she said of herself in ``want``."""
        return self._want.holds(_placed(item["about"]), _placed(me))


Handle: TypeAlias = Callable[[Here, int, Event], Sequence[Effect]]
"""A whole machine: context, time in µs and event in, effects out."""


class _Machine:
    """Machine of one host: calls the function with what the host has at hand."""

    def __init__(self, handle: Handle, here: Here, seen: Callable[[], None]) -> None:
        self._handle, self._here, self._seen = handle, here, seen

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """Report that an event comes, and return the effects of the function's call for it."""
        self._seen()
        return self._handle(self._here, now_us, event)


class Own:
    """A machine on each device and on a relay, all of the same function.

    Its application calls ``want`` with ``me``, what the phone's user says of herself from now on, and
    ``publish`` with an ``item``: ``name``, ``sender``, ``about``, ``content``, and ``over_us``, the time in
    µs from which it is of no use, or None. It receives items by ``Notify("items", item)``. ``seen`` is called
    before each event that a machine handles.
    """

    def __init__(
        self, testbed: Testbed, handle: Handle, name: str, seen: Callable[[], None] = lambda: None
    ) -> None:
        self._testbed, self._copies = testbed, Copies(handle)
        self.last_call: Operation | None = None
        """The last call of its application."""
        self._published: dict[str, Mapping[str, Any]] = {}

        def make(me: str, ports: Ports) -> _Machine:
            return _Machine(self._copies.make(), Here(me, ports.store, testbed.task.interest), seen)

        hosts = [testbed.lab.server(RELAY), *testbed.lab.devices.values()]
        self._machines: dict[str, Installed] = {
            host.name: host.install(name, partial(make, host.name)) for host in hosts
        }
        for phone in testbed.phones:
            self._machines[phone].listen(ITEMS, partial(self._receive, phone))
            self.on_move(phone)

    def publish(self, item: Item) -> None:
        """Call ``publish`` on its sender's machine."""
        over_us = None
        if item.expires_s is not None:
            over_us = self._testbed.lab.world.now_us + round(item.expires_s * US_PER_S)
        published = {
            "name": item.name,
            "sender": item.sender,
            "about": _listed(item.metadata),
            "content": item.content,
            "over_us": over_us,
        }
        self._published[item.name] = published
        self.last_call = self._machines[item.sender].call("publish", item=published)

    def on_move(self, phone: str) -> None:
        """Call ``want`` on a phone's machine."""
        self.last_call = self._machines[phone].call("want", me=_listed(self._testbed.profile(phone)))

    def on_look(self, phone: str) -> None:
        """Show what has arrived."""
        self._testbed.show(phone)

    def end(self) -> None:
        """Raise a ParameterError if a machine has kept something outside of what it has at hand."""
        self._copies.check()

    def _receive(self, phone: str, payload: Any) -> None:
        """Record the arrival of an item; ParameterError if a machine handed over what nobody published."""
        name = payload.get("name") if isinstance(payload, Mapping) else None
        if not isinstance(name, str) or self._published.get(name) != payload:
            raise ParameterError(
                "The application was handed something that nobody has published.",
                where=phone,
                found=f"Notify({ITEMS!r}, {payload!r})"[:200],
                expected="an item, as it was published",
            )
        self._testbed.record_arrival(phone, name)


@dataclass(frozen=True)
class _Entered:
    """Entry of a machine: makes its adapter for a testbed."""

    handle: Handle
    name: str

    def __call__(self, testbed: Testbed) -> Own:
        return Own(testbed, self.handle, self.name)


@check_arguments(types=False)
def own_machine(handle: Handle, name: str = "mine") -> Callable[[Testbed], Adapter]:
    """Enter a machine on the scoreboard.

    Parameters
    ----------
    handle : callable
        The whole machine: ``handle(here, now_us, event)`` returns its effects.
    name : str
        Name of the machines on the bill.

    Returns
    -------
    callable
        System for :func:`mudkit.experiment.run` and :func:`mudkit.experiment.scoreboard`.

    Examples
    --------
    >>> from mudkit.events import Call, Notify, Received, Send
    >>> from mudkit.experiment.runs import run
    >>> from mudkit.experiment.tasks import WARD
    >>> def handle(here, now_us, event):
    ...     match event:
    ...         case Call(operation="want", arguments=said):
    ...             return [Send(here.relay, said)]
    ...         case Received(source=phone, message={"me": me}):
    ...             here.memory[phone] = me
    ...         case Call(arguments={"item": item}):
    ...             return [Send(here.relay, item)]
    ...         case Received(message=item) if here.is_relay:
    ...             return [Send(who, item) for who, me in here.memory.items() if here.wants(me, item)]
    ...         case Received(message=item):
    ...             return [Notify("items", item)]
    ...     return []
    >>> entry = run(WARD.over(hours=0.1), own_machine(handle))
    >>> entry.system, entry.measures()["useful"] > 0
    ('mine', True)
    """
    return _Entered(handle, name)


def _listed(about: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata with places as lists, as JSON and a store have them."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in about.items()}


def _placed(about: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata with lists as tuples, as predicates take places."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in about.items()}
