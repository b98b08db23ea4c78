"""What a machine is: events in, effects out, and the ports that it is given.

A machine decides and does nothing else: it has no clock, no randomness and no socket. Whoever runs it, the
simulated fleet or a real network, hands it events one at a time and carries out the effects that it answers
with. Both sets are closed.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Collection, Generator, Mapping, Sequence, Sized
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, overload

import msgspec

if TYPE_CHECKING:
    import pandas as pd

    from mudkit.tokens import Authority

_T = TypeVar("_T")

__all__ = [
    "Call",
    "CancelTimer",
    "Ciphertext",
    "Complete",
    "ContextChanged",
    "Effect",
    "Entropy",
    "Event",
    "Host",
    "Installed",
    "LinkDown",
    "LinkUp",
    "Machine",
    "Make",
    "Network",
    "Notify",
    "Opaque",
    "Operation",
    "Ports",
    "Received",
    "Record",
    "Send",
    "SendFailed",
    "SetTimer",
    "Store",
    "TimerFired",
    "size_bytes",
]


class Received(msgspec.Struct, frozen=True):
    """A message has arrived.

    Parameters
    ----------
    source : str
        Address of the machine that sent it, as it was when it sent.
    message : object
        What was sent, as it is: machines never change a message.
    host : str
        Name of the host that sent it, for which the network vouches; empty where a network names its hosts by
        their addresses.
    """

    source: str
    message: Any
    host: str = ""

    @property
    def sender(self) -> str:
        """Name of the host that sent it: no field of a message says who its sender is."""
        return self.host or self.source.split("/")[0].split("@")[0]


class SendFailed(msgspec.Struct, frozen=True):
    """A message did not arrive and never will: no link, a link that broke, or nobody at the address."""

    to: str
    message: Any


class TimerFired(msgspec.Struct, frozen=True):
    """A timer that the machine set has run out."""

    name: str


class LinkUp(msgspec.Struct, frozen=True):
    """The device has a network: at the start, after an outage, and after a change of network.

    Parameters
    ----------
    address : str
        Where the machine can be reached from now on.
    network : str
        Name of the link's profile; ``server`` on a server, which has none and never loses its network.
    """

    address: str
    network: str


class LinkDown(msgspec.Struct, frozen=True):
    """The device has lost its network."""


class ContextChanged(msgspec.Struct, frozen=True):
    """What the device knows of itself has changed: place, battery, display, and what its user entered."""

    context: Mapping[str, Any]


class Call(msgspec.Struct, frozen=True):
    """An application asks for something; the machine answers with :class:`Complete`, now or later.

    ``operation`` is one of its system's, a struct whose tag is its name in the trace; or a name, with
    ``arguments``, for machines whose operations have no types.
    """

    op_id: int
    operation: Any
    arguments: Mapping[str, Any] = {}

    @property
    def name(self) -> str:
        """What the operation is called in the trace."""
        return self.operation if isinstance(self.operation, str) else _tag(self.operation)

    @property
    def asked(self) -> Mapping[str, Any]:
        """Its arguments, by name."""
        return self.arguments if isinstance(self.operation, str) else msgspec.structs.asdict(self.operation)


class Send(msgspec.Struct, frozen=True):
    """Send a message to an address: either Received there or SendFailed here follows, unless a machine dies.

    Nobody acknowledges: who must know whether it arrived asks for an answer. Faults lose messages without a
    word and repeat them. Nobody may change a message once it is sent, neither sender nor receiver: both hold
    the same object.
    """

    to: str
    message: Any


class SetTimer(msgspec.Struct, frozen=True):
    """Set a timer; one of that name that is running is replaced."""

    name: str
    delay_us: int


class CancelTimer(msgspec.Struct, frozen=True):
    """Stop a timer; nothing happens when there is none."""

    name: str


class Complete(msgspec.Struct, frozen=True):
    """Answer a call, once: with a result, or with an error that is then raised."""

    op_id: int
    result: Any = None
    error: BaseException | None = None


class Notify(msgspec.Struct, frozen=True):
    """Tell an application of the device something that it did not ask for now."""

    app: str
    payload: Any


class Record(msgspec.Struct, frozen=True):
    """Write a row into a table of the run's trace.

    It names the table (``deliveries``, ``operations``, ``reads`` or ``incidents``) because a row, which has
    any subset of its table's columns, does not say by itself whose it is. An incident has ``incident`` and
    ``detail``: ``failed`` when a function of a user has failed, ``dropped`` when a message came that this
    machine does not take.

    A ``value_hash`` may be a function that gives it: it is called when the operation is answered, or when
    somebody looks, not while an application waits.
    """

    table: str
    row: Mapping[str, Any]


Event: TypeAlias = Received | SendFailed | TimerFired | LinkUp | LinkDown | ContextChanged | Call
Effect: TypeAlias = Send | SetTimer | CancelTimer | Complete | Notify | Record


class Machine(Protocol):
    """One role of a system."""

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """Take one event and decide.

        Nothing that it answers with happens before everything that it stored is committed.
        """
        ...


class Store(Protocol):
    """What outlives a machine that is killed; everything that one ``handle`` does is one transaction."""

    @overload
    def get(self, key: str) -> Any: ...

    @overload
    def get(self, key: str, kind: type[_T]) -> _T | None: ...

    def get(self, key: str, kind: Any = ...) -> Any:
        """Give what is stored under a key, ``None`` when nothing is.

        Parameters
        ----------
        key : str
        kind : type
            What it should be: a struct, or any type that msgspec reads; by default whatever it is.

        Raises
        ------
        StoreError
            It is something else: another version of mudkit has written it.
        """
        ...

    def put(self, key: str, value: Any) -> None:
        """Store a struct, or what JSON can hold, bytes and ciphertexts; :meth:`get` gives the same back.

        Raises
        ------
        ParameterError
            It would come back as something else.
        """
        ...

    def delete(self, key: str) -> None:
        """Forget a key; nothing happens when it is not there."""
        ...

    def keys(self, prefix: str = "") -> Sequence[str]:
        """Give the keys that begin so, in their order; it costs what it gives, not what is stored."""
        ...

    @overload
    def items(self, prefix: str = "") -> Sequence[tuple[str, Any]]: ...

    @overload
    def items(self, prefix: str, kind: type[_T]) -> Sequence[tuple[str, _T]]: ...

    def items(self, prefix: str = "", kind: Any = ...) -> Sequence[tuple[str, Any]]:
        """Give what is stored under the keys that begin so, in their order, as :meth:`get`."""
        ...

    def crash_point(self, name: str, /) -> None:
        """Name a place at which a test may kill the machine."""
        ...


Entropy: TypeAlias = Callable[[int], bytes]
"""``entropy(n)`` gives n random bytes: a named stream in a lab, the operating system's elsewhere."""


class Ports(msgspec.Struct, frozen=True):
    """What a machine is given when it is made, also when it is made again after it was killed."""

    store: Store
    entropy: Entropy
    address: str


Make: TypeAlias = Callable[[Ports], Machine]
"""Makes a machine; called again when it is restarted."""


class Operation(Protocol):
    """A call that has been made: what a system's API gives to who called it."""

    def done(self) -> bool:
        """Return whether it has been answered."""

    def result(self, timeout_s: float = 86_400) -> Any:
        """Give its result or raise its error; virtual time goes on until then."""

    def add_done_callback(self, f: Callable[[Any], None]) -> None:
        """Call ``f`` with this operation when it has been answered."""
        ...

    def __await__(self) -> Generator[Any, None, Any]:
        """Wait for its result in a notebook's cell."""
        ...


class Installed(Protocol):
    """A machine on its host, as its system's API sees it."""

    @property
    def address(self) -> str:
        """Current address."""
        ...

    @property
    def machine(self) -> Any:
        """The machine itself, for displays; None: it was killed."""
        ...

    @property
    def state(self) -> str:
        """``running``, ``killed``, or why it has no network."""
        ...

    @property
    def open(self) -> Sized:
        """Calls that are not answered."""
        ...

    def call(self, operation: msgspec.Struct | str, **arguments: Any) -> Operation:
        """Ask the machine for something (:class:`Call`)."""
        ...

    def listen(self, app: str, callback: Callable[[Any], None]) -> None:
        """Call ``callback`` with the payload of each :class:`Notify` to that application."""
        ...


class Host(Protocol):
    """A device or a server, as a system's API sees it."""

    @property
    def name(self) -> str:
        """Its name in the lab, which never changes."""
        ...

    def install(self, system: str, make: Make, *, name: str = "", watch: Collection[str] = ()) -> Installed:
        """Put a machine on it.

        Parameters
        ----------
        system : str
            The name of the system that the machine's traffic is charged to.
        make : callable
        name : str
            The name that tells the machines of one host apart.
        watch : collection of str
            Measured fields of the context (``loc``, ``battery_share``) whose changes it is told.
        """
        ...


class Network(Protocol):
    """A lab, as a system's API sees it."""

    @property
    def devices(self) -> Mapping[str, Host]:
        """The devices that there are, by name."""
        ...

    @property
    def start_us(self) -> int:
        """What its time 0 is, in µs since 1970."""
        ...

    @property
    def authority(self) -> Authority:
        """Who signs its tokens."""
        ...

    @property
    def problems(self) -> pd.DataFrame:
        """What has failed so far: ``device, ts, detail, system``."""
        ...

    def server(self, name: str) -> Host:
        """Give the server of that name; it is added if there is none."""
        ...


class Ciphertext(bytes):
    """Bytes that nobody without the key can read, in a message or in a store.

    The mark is for the ledger of what each party held; that they are what the mark says is for tests, which
    look for the plaintext in them. In JSON they are text in base64.
    """


if TYPE_CHECKING:
    Opaque: TypeAlias = bytes
else:

    class Opaque(ABC):  # noqa: B024 - bytes are registered as its subclass
        """Type of a struct field for bytes or a :class:`Ciphertext`.

        A :class:`Ciphertext` keeps its mark; msgspec reads fields of type ``bytes`` as plain bytes.
        """

    Opaque.register(bytes)


def _hook(value: Any) -> Any:
    if isinstance(value, Ciphertext):
        return bytes(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


_encode = msgspec.json.Encoder(enc_hook=_hook).encode


def _tag(struct: msgspec.Struct) -> str:
    tag = struct.__struct_config__.tag
    return tag if isinstance(tag, str) else type(struct).__name__


def size_bytes(message: Any) -> int:
    """Give the size of a message as it is sent: bytes as they are, anything else as JSON in UTF-8.

    Bytes inside a message are text in base64, as JSON needs them.

    Raises
    ------
    TypeError
        JSON cannot hold it.
    """
    return len(message) if isinstance(message, bytes) else len(_encode(message))
