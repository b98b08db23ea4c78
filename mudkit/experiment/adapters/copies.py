"""Code that machines do not share: each has its own copy, with all that the code can reach.

What one machine puts into a global name or a closure is in no other one's, nor with whoever wrote it; and
since somebody would look for it there, it is refused when it is seen (:meth:`Copies.check`). What the
interpreter has once for all (modules that are installed) is not copied.
"""

from __future__ import annotations

import io
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import cloudpickle  # type: ignore[import-untyped]
import numpy as np

from mudkit.errors import ParameterError
from mudkit.experiment.tasks import Testbed
from mudkit.fleet import Host, Process, World
from mudkit.lab import Lab

__all__ = ["Copies"]

_OF_THE_LAB: Final = (Host, Lab, Process, Testbed, World)
_REMEDY: Final = "keep it in here.memory, or in here.store, and send what others are to know"


class Copies:
    """Copies of a function, one for each machine.

    Parameters
    ----------
    code : callable
        The code of whoever writes a machine.

    Raises
    ------
    ParameterError
        It reaches what cannot be copied, such as an open file, or what no machine has at hand: the lab, or
        the testbed.
    """

    def __init__(self, code: Callable[..., Any]) -> None:
        self._code = _written(code)
        self._made: list[Callable[..., Any]] = []

    def make(self) -> Callable[..., Any]:
        """Give one more copy, as the code was at first."""
        made: Callable[..., Any] = cloudpickle.loads(self._code)
        self._made.append(made)
        return made

    def check(self) -> None:
        """Refuse code that has kept something outside of what a machine has at hand.

        Raises
        ------
        ParameterError
        """
        first = cloudpickle.loads(self._code)
        for made in self._made:
            changed = next(_changed(first, made, "", {}), None)
            if changed is not None:
                raise ParameterError(
                    "A machine keeps something outside of its memory and its store.",
                    where=getattr(first, "__name__", type(first).__name__),
                    found=f"{changed.removeprefix('.')}, which it has changed",
                    expected="that machines share nothing: each has its own copy of all that it reaches",
                    remedy=_REMEDY,
                )


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def reducer_override(self, obj: Any) -> Any:
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
            # A class is made with a name by which it is found again, so that one process has it once.
            make, arguments, *rest = reduced
            if len(arguments) > 2 and isinstance(arguments[-2], str):
                return make, (*arguments[:-2], None, arguments[-1]), *rest
        return reduced


def _written(code: Callable[..., Any]) -> bytes:
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
    """Have the module of somebody's code copied, too, which is else only named."""
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


def _changed(first: Any, now: Any, where: str, seen: dict[int, Any]) -> Iterator[str]:
    """Give the names of what two copies have not in common."""
    if id(now) in seen:
        return
    seen[id(now)] = now  # which keeps the number its own
    if isinstance(first, types.FunctionType) and isinstance(now, types.FunctionType):
        yield from _changed(_reached(first), _reached(now), where, seen)
    elif isinstance(first, types.MethodType) and isinstance(now, types.MethodType):
        yield from _changed(first.__self__, now.__self__, where, seen)
    elif isinstance(first, Mapping) and isinstance(now, Mapping):
        if first.keys() != now.keys():
            yield where
        for name in first.keys() & now.keys():
            yield from _changed(first[name], now[name], f"{where}.{name}", seen)
    elif isinstance(first, list | tuple) and isinstance(now, list | tuple):
        if len(first) != len(now):
            yield where
        for one, other in zip(first, now, strict=False):
            yield from _changed(one, other, where, seen)
    elif isinstance(first, type) and isinstance(now, type):
        if first is not now:  # it was copied
            yield from _changed(_data(first), _data(now), f"{where}.{first.__name__}", seen)
    elif isinstance(first, types.ModuleType):
        return
    elif hasattr(first, "__dict__") and hasattr(now, "__dict__"):
        yield from _changed(type(first), type(now), where, seen)
        yield from _changed(vars(first), vars(now), where, seen)
    elif not _is_same(first, now):
        yield where


def _reached(function: types.FunctionType) -> dict[str, Any]:
    """Give what a function reaches by names: globals, closures, defaults, and what it has itself."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    closed = {name: cell.cell_contents for name, cell in cells if _is_full(cell)}
    known = function.__globals__
    named = {name: known[name] for name in _names(function.__code__) & known.keys()}
    defaults = {"defaults": (function.__defaults__, function.__kwdefaults__), "own": dict(function.__dict__)}
    return {**named, **closed, **defaults}


def _names(code: types.CodeType) -> set[str]:
    inner = (each for each in code.co_consts if isinstance(each, types.CodeType))
    return {*code.co_names}.union(*map(_names, inner))


def _is_full(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _data(kind: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(kind).items() if not name.startswith("__")}


def _is_same(first: Any, now: Any) -> bool:
    try:
        return type(first) is type(now) and bool(np.all(first == now))
    except Exception:  # what cannot be compared is nobody's memory
        return True
