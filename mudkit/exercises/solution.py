"""A solution in a process of its own, which answers the judge's calls over a pipe.

The judge and its scenarios stay in the parent process. The parent sends pickles. The solution sends JSON,
from which the parent builds data only: values of Python, and data classes of mudkit and of the file of
exercises. Everything else stays in the solution's process, and the parent holds a :class:`Remote` that refers
to it. A solution can therefore answer, but not set a verdict.

Each message is answered before the next one. While one side waits for an answer, the other may call back: a
function that the judge passes as an argument, or the store of a machine.
"""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import importlib
import io
import json
import multiprocessing
import os
import pickle
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from time import process_time
from typing import Any, Final, NamedTuple, NoReturn

import msgspec
import numpy as np
import psutil

from mudkit.errors import MudkitError, ParameterError, brief
from mudkit.exercises.judges import JUDGES
from mudkit.exercises.judging import Overtime, PieceError, error_text
from mudkit.exercises.pieces import read_source
from mudkit.experiment.adapters.own import Copies, Elsewhere, Here, find_changes
from mudkit.fleet.store import MemoryStore
from mudkit.progress import VARIABLE

_CHAPTERS: Final = Path(__file__).parent.parent / "notebooks"
_STORE_CALLS: Final = frozenset({"get", "put", "delete", "keys", "items"})
_MAX_BYTES: Final = 1 << 26
"""Longest message of a solution. Four letters that it writes to a pipe itself name a greater length."""
FORK: Final = multiprocessing.get_context("fork")
"""A forked process has loaded mudkit."""
_BASES: Final[tuple[Any, ...]] = (
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    bytearray,
    list,
    tuple,
    set,
    frozenset,
    dict,
)
_COLLECTIONS: Final[dict[str, Any]] = {kind.__name__: kind for kind in (list, tuple, set, frozenset)}
_NUMBERS: Final[dict[str, Any]] = {kind.__name__: kind for kind in (complex, Decimal, Fraction)}
_TIMES: Final[dict[str, Any]] = {kind.__name__: kind for kind in (dt.datetime, dt.date, dt.time)}


class SolutionEnded(BaseException):
    """The process of a solution has ended. Not an Exception: it is not the outcome of a scenario."""


def _containers(values: Any) -> Iterator[Any]:
    """Yield the lists, sets and dictionaries in values, and the attributes of objects of a lecturer's own."""
    open_, seen = [values], set[int]()
    while open_:
        value = open_.pop()
        if id(value) in seen:
            continue
        kind = type(value)
        if kind.__module__ == JUDGES and hasattr(value, "__dict__") and not isinstance(value, type):
            seen.add(id(value))
            yield value
            open_ += vars(value).values()
        elif kind in (list, dict, set, bytearray, tuple):
            seen.add(id(value))
            if kind is not tuple:
                yield value
            if kind is not bytearray:
                open_ += value.values() if kind is dict else value


def _content(container: Any) -> Any:
    """Return a copy of what a container holds, as a built-in type."""
    return dict(vars(container)) if type(container) not in _BASES else container.copy()


def _refill(container: Any, content: Any) -> None:
    """Replace what a container holds."""
    if isinstance(container, list | bytearray):
        container[:] = content
        return
    target = container if isinstance(container, dict | set) else vars(container)
    target.clear()
    target.update(content)


def _is_same(before: Any, now: Any) -> bool:
    """Return whether two contents are of the same objects."""
    if isinstance(before, set | bytearray):
        return bool(before == now)
    if len(before) != len(now):
        return False
    pairs = zip(before, now, strict=True)
    return all(one is other for one, other in pairs) and (
        not isinstance(before, dict) or all(before[name] is now[name] for name in before)
    )


# The parent's side


class _Name(NamedTuple):
    """Description of an object that stays in the solution's process."""

    number: int
    kind: str
    """Module and name of its class, if that is one of mudkit's."""
    text: str
    is_callable: bool


class Remote(Elsewhere):
    """An object in the process of a solution: its calls, public attributes and items are those there.

    It passes for an instance of the class of mudkit that the object has.
    """

    __slots__ = ("_name", "_solution")

    def __init__(self, solution: Solution, name: _Name) -> None:
        self._solution, self._name = solution, name

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """The class of mudkit that the object has."""
        module, _, kind = self._name.kind.rpartition(":")
        return getattr(sys.modules.get(module), kind, Remote) if module else Remote

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Call the object in its process."""
        return self._solution.ask("call", self._name.number, "", arguments, options)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._solution.ask("attribute", self._name.number, name)

    def __bool__(self) -> bool:
        return bool(self._solution.ask("truth", self._name.number))

    def __iter__(self) -> Iterator[Any]:
        return iter(self._solution.ask("list", self._name.number))

    def __repr__(self) -> str:
        return self._name.text

    def __reduce__(self) -> tuple[Any, ...]:
        # cloudpickle copies a machine: the copy is made where the original is.
        number = self._solution.ask("copies", self._name.number)
        return _copy_of, (id(self._solution), number)

    def differences(self, first: Any) -> list[str]:
        """Return the names of values in which the object, in its process, differs from the first one."""
        return list(self._solution.ask("differences", self._name.number, "", (first,)))


_running: dict[int, Solution] = {}
"""Solutions by their id; copies of machines find theirs by it."""


def _copy_of(solution: int, number: int) -> Any:
    """Return a new copy of an object in the process of a running solution."""
    return _running[solution].ask("copy", number)


class Solution:
    """The process of a solution, from the parent's side.

    Parameters
    ----------
    file : path
        Notebook or Python file.
    exercise, piece : str
        Names of the exercise and of its function.
    """

    def __init__(self, file: Path, exercise: str, piece: str) -> None:
        self._lent: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._remotes: dict[int, Remote] = {}
        self._ended = ""
        """Why the process was killed."""
        self._pipe, its_end = Pipe()
        self._process = FORK.Process(target=_serve, args=(its_end, file, exercise, piece))
        self._process.start()
        its_end.close()
        _running[id(self)] = self

    def load(self) -> Remote:
        """Run the code that defines the function; raise PieceError if that fails."""
        loaded: Remote = self.ask("load")
        return loaded

    def ask(self, act: str, number: int = 0, name: str = "", arguments: Any = (), options: Any = None) -> Any:
        """Request an act on an object in the process, and return the answer."""
        if self._ended:
            raise PieceError(self._ended)
        mutable = list(_containers((arguments, options)))
        try:
            self._send((act, number, name, arguments, options or {}))
            while True:
                kind, *content = self._receive()
                if kind == "back":
                    self._call_back(*content)
                    continue
                if kind == "raised":
                    self._raise(*content)
                answer, changes = content
                for place, changed in changes:
                    _refill(mutable[place], self._decoded(changed, mutable))
                return self._decoded(answer, mutable)
        except (PieceError, MudkitError):
            raise
        except Overtime:
            self.end("it did not end.")
            raise
        except (TypeError, ValueError, LookupError, AttributeError, RecursionError, OverflowError) as error:
            self.end("its answer was not usable.")
            raise PieceError(f"its answer cannot be sent to the judge: {type(error).__name__}.") from error

    def used_s(self) -> float:
        """Return the processor time of both processes, in seconds."""
        with contextlib.suppress(psutil.Error):  # it has ended
            used = psutil.Process(self._process.pid).cpu_times()
            return process_time() + float(used.user + used.system)
        return process_time()

    def is_function(self, loaded: Remote) -> bool:
        """Return whether an object of the process can be called."""
        return loaded._name.is_callable

    def end(self, reason: str = "it has ended.") -> None:
        """Kill the process and those that it has started."""
        self._ended = reason
        _running.pop(id(self), None)
        with contextlib.suppress(psutil.Error):
            for process in psutil.Process(self._process.pid).children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    process.kill()
        self._process.kill()
        self._process.join()
        self._pipe.close()

    def _send(self, message: Any) -> None:
        """Send a message to the solution; SolutionEnded if its process has ended."""
        out = io.BytesIO()
        _Pickler(self, out).dump(message)
        try:
            self._pipe.send_bytes(out.getvalue())
        except OSError:
            self._raise_ended()

    def _receive(self) -> list[Any]:
        """Return the next message of the solution.

        SolutionEnded if its process has ended or writes to the pipe.
        """
        try:
            message = json.loads(self._pipe.recv_bytes(_MAX_BYTES))
        except (EOFError, OSError, ValueError):  # also what a solution has written to the pipe itself
            self._raise_ended()
        if not isinstance(message, list) or not message:
            self._raise_ended()
        return message

    def _raise_ended(self) -> NoReturn:
        """End the process, and raise SolutionEnded with its status."""
        status = None
        with contextlib.suppress(psutil.Error):  # join would wait for ever: its sentinel is closed
            status = psutil.Process(self._process.pid).wait(timeout=1.0)
        self.end()
        if status is None:
            raise SolutionEnded("it wrote to the pipe over which the judge calls it")
        raise SolutionEnded(f"it ended the process with status {status}")

    def _raise(self, text: str, error: list[Any] | None) -> NoReturn:
        """Raise the error of an answer: ParameterError if it has the fields of one, else PieceError."""
        if error is not None:
            raise ParameterError(error[0], found=error[1], expected=error[2], remedy=error[3], where=error[4])
        raise PieceError(text)

    def _call_back(self, number: int, name: str, arguments: Any, options: Any) -> None:
        """Call an object that was lent to the solution, and answer with the result."""
        lent = self._lent[number]
        try:
            given = [self._decoded(value, []) for value in arguments]
            named = {key: self._decoded(value, []) for key, value in options.items()}
            if isinstance(lent, MemoryStore):
                if name not in _STORE_CALLS:
                    raise AttributeError(name)
                lent = getattr(lent, name)
            answer = True, lent(*given, **named)
        except Exception as error:
            answer = False, error if _is_picklable(error) else RuntimeError(str(error))
        self._send(answer)

    def lend(self, value: Any) -> int:
        """Lend an object to the solution, once; return the number under which it may call the object."""
        if id(value) not in self._numbers:
            self._numbers[id(value)] = len(self._lent)
            self._lent.append(value)  # a reference, so that no other object gets this id
        return self._numbers[id(value)]

    def is_lent(self, value: Any) -> bool:
        """Return whether the solution already has an object's number."""
        return id(value) in self._numbers

    def _decoded(self, code: Any, mutable: list[Any]) -> Any:
        """Build a value from JSON; only data classes of mudkit and of the file of exercises are built."""
        if not isinstance(code, list):
            return code
        kind, *rest = code
        decode = self._decoded
        if kind in _COLLECTIONS:
            return _COLLECTIONS[kind](decode(item, mutable) for item in rest[0])
        if kind == "dict":
            return {decode(key, mutable): decode(value, mutable) for key, value in rest[0]}
        if kind == "given":
            return mutable[rest[0]]
        if kind in ("bytes", "bytearray"):
            return {"bytes": bytes, "bytearray": bytearray}[kind](base64.b64decode(rest[0]))
        if kind == "float":
            return float(rest[0])
        if kind == "int":
            return int(rest[0], 16)
        if kind in _NUMBERS:
            return _NUMBERS[kind](rest[0])
        if kind in _TIMES:
            return _TIMES[kind].fromisoformat(rest[0])
        if kind == "timedelta":
            return dt.timedelta(*rest[0])
        if kind == "numpy":
            dtype = np.dtype(rest[0])
            array = np.frombuffer(base64.b64decode(rest[2]), dtype=dtype).reshape(rest[1]).copy()
            return array if rest[3] else array[()]
        if kind == "data":
            data = _data_class(rest[0])
            if data is None:
                raise TypeError(f"{rest[0]} is no data class")
            values = {name: decode(value, mutable) for name, value in rest[1].items()}
            return data(**values)
        if kind == "enum":
            data = _data_class(rest[0])
            if data is None or not issubclass(data, Enum):
                raise TypeError(f"{rest[0]} is no enumeration")
            return data[rest[1]]
        if kind == "parts":
            data = _data_class(rest[0])
            if data is None:
                raise TypeError(f"{rest[0]} is no data class")
            return data.from_dict(decode(rest[1], mutable))
        name = _Name(*rest)
        return self._remotes.setdefault(name.number, Remote(self, name))


def _is_picklable(value: Any) -> bool:
    """Return whether a value can be pickled and read back."""
    try:
        pickle.loads(pickle.dumps(value))
    except Exception:
        return False
    return True


def _data_class(path: str) -> Any:
    """Return a data class of mudkit or of the file of exercises by module and name; None for others."""
    module, _, name = path.rpartition(":")
    if module != JUDGES and not module.startswith("mudkit."):
        return None
    if module not in sys.modules and not module.endswith("__main__"):
        importlib.import_module(module)
    kind = getattr(sys.modules.get(module), name, None)
    return kind if _is_data(kind) else None


def _is_data(kind: Any) -> bool:
    """Return whether the fields of its objects are all that a class holds."""
    if not isinstance(kind, type) or kind.__qualname__ != kind.__name__:
        return False
    if kind.__module__ != JUDGES and not kind.__module__.startswith("mudkit."):
        return False
    if is_dataclass(kind):
        return all(field.init for field in fields(kind))
    if issubclass(kind, msgspec.Struct | Enum):
        return True
    return (issubclass(kind, tuple) and hasattr(kind, "_fields")) or _has_parts(kind)


def _has_parts(kind: Any) -> bool:
    """Return whether a class has its own conversions to and from a dict."""
    return hasattr(kind, "from_dict") and hasattr(kind, "to_dict")


class _Pickler(pickle.Pickler):
    """Pickles what the judge sends: functions and stores stay here, and are lent."""

    def __init__(self, solution: Solution, out: io.BytesIO) -> None:
        super().__init__(out, protocol=5)
        self._solution = solution

    def persistent_id(self, value: Any) -> Any:
        """Return the number of an object that stays in its process; None: it is pickled."""
        kind = type(value)
        if kind is Remote:
            return "yours", value._name.number
        if (
            kind is types.MethodType
            or (kind is types.FunctionType and "<" in value.__qualname__)
            or (kind is types.BuiltinMethodType and not isinstance(value.__self__, types.ModuleType))
        ):
            return "function", self._solution.lend(value)
        if kind is MemoryStore:
            return "store", self._solution.lend(value)
        if kind is Here:
            if self._solution.is_lent(value):
                return "here", self._solution.lend(value)
            return "here", self._solution.lend(value), value.me, value.store, value.wants
        return None

    def reducer_override(self, value: Any) -> Any:
        """Return how a read-only mapping is pickled; others as they are."""
        if isinstance(value, types.MappingProxyType):
            return types.MappingProxyType, (dict(value),)
        return NotImplemented


# The solution's side


class _LentStore:
    """Store of a machine, in the judge's process."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def get(self, key: str, kind: Any = Any) -> Any:
        """Return the value of a key, converted to a type; None without one."""
        value = self._call("get", key)
        return value if kind is Any or value is None else msgspec.convert(value, kind)

    def put(self, key: str, value: Any) -> None:
        """Store the value of a key."""
        if isinstance(value, msgspec.Struct):
            value = msgspec.to_builtins(value, builtin_types=(bytes, bytearray))
        self._call("put", key, value)

    def delete(self, key: str) -> None:
        """Delete a key."""
        self._call("delete", key)

    def keys(self, prefix: str = "") -> Any:
        """Return the keys with a prefix."""
        return self._call("keys", prefix)

    def items(self, prefix: str = "", kind: Any = Any) -> Any:
        """Return the pairs of key and value with a prefix, values converted to a type."""
        pairs = self._call("items", prefix)
        return pairs if kind is Any else [(key, msgspec.convert(value, kind)) for key, value in pairs]


class _Here(Here):
    """Context of a machine, in the solution's process: its memory is here, its store at the judge."""

    __slots__ = ("_wants",)

    def __init__(self, me: str, store: Any, wants: Callable[..., bool]) -> None:
        super().__init__(me, store, None)  # type: ignore[arg-type]
        self._wants = wants

    def wants(self, me: Any, item: Any) -> bool:
        """Return whether a user wants an item, by the rule of the one who made the context."""
        return self._wants(me, item)


class _Server:
    """The solution's side of the pipe."""

    def __init__(self, pipe: Connection, file: Path, exercise: str, piece: str) -> None:
        self._pipe, self._file = pipe, file
        self._exercise, self._piece = exercise, piece
        self._objects: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._heres: dict[int, Here] = {}

    def run(self) -> None:
        """Answer requests until the pipe is closed."""
        while True:
            self._serve(self._receive())

    def _serve(self, request: Any) -> None:
        """Answer one request, with the changes of the containers that came with it, or with the error."""
        act, number, name, arguments, options = request
        given = [(value, _content(value)) for value in _containers((arguments, options))]
        try:
            answer = self._act(act, number, name, arguments, options)
            places = {id(value): place for place, (value, _) in enumerate(given)}
            changes = [
                [place, self._coded(_content(value), places)]
                for place, (value, before) in enumerate(given)
                if not _is_same(before, _content(value))
            ]
            code = self._named(answer) if act == "load" else self._coded(answer, places)
            message = ["returned", code, changes]
        except EOFError:
            raise
        except (Exception, SystemExit, GeneratorExit) as error:
            fields = None
            if isinstance(error, ParameterError) and act in ("copies", "copy", "differences"):
                fields = [error.summary, error.found, error.expected, error.remedy, error.where]
            message = ["raised", error_text(error, __file__), fields]
        self._send(message)

    def _act(self, act: str, number: int, name: str, arguments: Any, options: Any) -> Any:
        """Return the result of an act on an object of this process."""
        if act == "load":
            return self._load()
        value = self._objects[number]
        match act:
            case "call":
                return value(*arguments, **options)
            case "attribute":
                return getattr(value, name)
            case "truth":
                return bool(value)
            case "list":
                return list(value)
            case "copies":
                return self._number(Copies(value))
            case "copy":
                return value.make()
            case "differences":
                return list(find_changes(arguments[0], value))
        raise ValueError(act)

    def _load(self) -> Any:
        """Load the function in the folder of its file or, if a file is missing there, of the chapters."""
        module = sys.modules["__main__"] = types.ModuleType("__main__")
        source = read_source(self._file)
        try:
            return source.load(self._piece, self._exercise, vars(module))
        except FileNotFoundError:
            os.chdir(_CHAPTERS)  # a submission may read files that lie beside the chapters
            loaded = source.load(self._piece, self._exercise, vars(module))
            os.chdir(self._file.parent)
            return loaded

    def _call_back(self, number: int, name: str, *arguments: Any, **options: Any) -> Any:
        """Call an object of the judge, and return its answer; what it calls here is answered meanwhile."""
        codes = [self._coded(value, {}) for value in arguments]
        self._send(
            ["back", number, name, codes, {key: self._coded(value, {}) for key, value in options.items()}]
        )
        while len(answer := self._receive()) != 2:
            self._serve(answer)  # what it was called with is called
        is_returned, value = answer
        if not is_returned:
            raise value
        return value

    def _send(self, message: Any) -> None:
        """Send a message as JSON."""
        self._pipe.send_bytes(json.dumps(message).encode())

    def _receive(self) -> Any:
        """Return the next message, with the objects of the judge in it replaced."""
        return _Unpickler(self, io.BytesIO(self._pipe.recv_bytes())).load()

    def lent(self, kind: str, number: int, *state: Any) -> Any:
        """Return what stands here for an object of the judge, of a kind and with a number."""
        if kind == "yours":
            return self._objects[number]
        if kind == "here":
            return self._heres.setdefault(number, _Here(*state)) if state else self._heres[number]
        if kind == "store":
            return _LentStore(lambda name, *arguments: self._call_back(number, name, *arguments))
        return lambda *arguments, **options: self._call_back(number, "", *arguments, **options)

    def _number(self, value: Any) -> int:
        """Return the number of an object, which from now on stays here under it."""
        if id(value) not in self._numbers:
            self._numbers[id(value)] = len(self._objects)
            self._objects.append(value)
        return self._numbers[id(value)]

    def _coded(self, value: Any, places: dict[int, int]) -> Any:
        """Return a value as JSON; what is no data stays here, and the judge gets its number."""
        try:
            return self._code(value, places)
        except RecursionError:
            return self._named(value)

    def _code(self, value: Any, places: dict[int, int]) -> Any:
        """Return a value as JSON; containers that came with the request by their place in it."""
        kind = type(value)
        if value is None or kind is bool or kind is str:
            return value
        if id(value) in places:
            return ["given", places[id(value)]]
        if kind is int:
            return value if -(1 << 53) < value < 1 << 53 else ["int", hex(value)]
        if kind is float:
            return ["float", value.hex()] if value - value != 0 else value  # JSON has no infinity
        if kind in _COLLECTIONS.values():
            return [kind.__name__, [self._code(item, places) for item in value]]
        if kind in (dict, types.MappingProxyType):
            pairs = [[self._code(key, places), self._code(item, places)] for key, item in value.items()]
            return ["dict", pairs]
        if kind in (bytes, bytearray):
            return [kind.__name__, base64.b64encode(value).decode()]
        if isinstance(value, np.generic | np.ndarray) and not value.dtype.hasobject:
            content = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
            return ["numpy", value.dtype.str, list(value.shape), content, isinstance(value, np.ndarray)]
        if kind.__name__ in _NUMBERS and kind is _NUMBERS[kind.__name__]:
            return [kind.__name__, str(value)]
        if kind.__name__ in _TIMES and kind is _TIMES[kind.__name__]:
            return [kind.__name__, value.isoformat()]
        if kind is dt.timedelta:
            return ["timedelta", [value.days, value.seconds, value.microseconds]]
        path = f"{kind.__module__}:{kind.__name__}"
        if _is_data(kind) and not isinstance(value, type):
            if isinstance(value, Enum):
                return ["enum", path, value.name]
            if _has_parts(kind):
                return ["parts", path, self._code(value.to_dict(), places)]
            return ["data", path, {name: self._code(part, places) for name, part in _parts(value)}]
        for base in _BASES:
            if isinstance(value, base):  # of a class that the judge does not know
                return self._code(base(value), places)
        return self._named(value)

    def _named(self, value: Any) -> list[Any]:
        """Return the JSON for an object that stays here."""
        kind = type(value)
        path = f"{kind.__module__}:{kind.__name__}" if kind.__module__.startswith("mudkit.") else ""
        return ["named", self._number(value), path, brief(value, 200), callable(value)]


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a data object."""
    if is_dataclass(value):
        names = [field.name for field in fields(value)]
    elif isinstance(value, msgspec.Struct):
        names = list(value.__struct_fields__)
    else:
        names = list(value._fields)
    return ((name, getattr(value, name)) for name in names)


class _Unpickler(pickle.Unpickler):
    """Unpickler that puts the solution's own objects, and stand-ins, in the place of numbers."""

    def __init__(self, server: _Server, content: io.BytesIO) -> None:
        super().__init__(content)
        self._server = server

    def persistent_load(self, named: Any) -> Any:
        """Return the object of a number."""
        return self._server.lent(*named)


def _serve(pipe: Connection, file: Path, exercise: str, piece: str) -> None:
    """Answer a judge's calls of a solution, in the process that :class:`Solution` has forked."""
    close_inherited(pipe.fileno())
    os.environ[VARIABLE] = "0"
    os.chdir(file.parent)  # as in JupyterLab, where files beside the notebook are found
    # Before packages that are installed, but after Python's own modules.
    place = next((place for place, name in enumerate(sys.path) if "site-packages" in name), len(sys.path))
    sys.path.insert(place, str(file.parent))
    with contextlib.suppress(EOFError, OSError):  # the judge has ended
        _Server(pipe, file, exercise, piece).run()


def close_inherited(kept: int) -> None:
    """Close all files of a forked process but one, and give it no input and no output."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    os.closerange(3, kept)
    os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))
