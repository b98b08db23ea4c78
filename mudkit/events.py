"""Machines without I/O: the events they handle, the effects they return, and their ports.

A machine has no clock, no randomness and no socket. Its runtime, the simulated fleet or a real network,
passes it one event at a time and carries out the effects that it returns. Both sets are closed.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Collection, Generator, Mapping, Sequence, Sized
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, TypeVar, overload

import msgspec

from mudkit.checks import described

if TYPE_CHECKING:
    import pandas as pd

    from mudkit.places import Place
    from mudkit.tokens import Authority

_T = TypeVar("_T")

__all__ = [
    "Call",
    "Cancel",
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
        Address of the sending machine at the time of sending.
    message : object
        The message; machines never change it.
    host : str
        Name of the sending host, for which the network vouches; empty where hosts are named by addresses.
    """

    source: str
    message: Any
    host: str = ""

    @property
    def sender(self) -> str:
        """Name of the sending host; no field of a message is trusted for it."""
        return self.host or self.source.split("/")[0].split("@")[0]


class SendFailed(msgspec.Struct, frozen=True):
    """A message did not arrive and never will: no link, a link that broke, or no machine at the address.

    Parameters
    ----------
    to : str
    message : object
    """

    to: str
    message: Any


class TimerFired(msgspec.Struct, frozen=True):
    """A timer of the machine has expired.

    Parameters
    ----------
    name : str
    """

    name: str


class LinkUp(msgspec.Struct, frozen=True):
    """The device has a network: at the start, after an outage, and after a change of network.

    Parameters
    ----------
    address : str
        Address of the machine from now on.
    network : str
        Name of the link's profile; ``server`` on a server, which has none and never loses its network.
    """

    address: str
    network: str


class LinkDown(msgspec.Struct, frozen=True):
    """The device has lost its network."""


class ContextChanged(msgspec.Struct, frozen=True):
    """The context of the device has changed: place, battery, display, or user input.

    Parameters
    ----------
    context : mapping
        The whole context of the device.
    """

    context: Mapping[str, Any]


class Call(msgspec.Struct, frozen=True):
    """An application calls an operation; the machine answers with :class:`Complete`, now or later.

    Parameters
    ----------
    op_id : int
        Number of the operation, unique on the device.
    operation : object
        A struct of the system, whose tag is its name in the trace; or a name, for untyped operations.
    arguments : mapping
        Arguments of an operation that is only a name.
    """

    op_id: int
    operation: Any
    arguments: Mapping[str, Any] = {}

    @property
    def name(self) -> str:
        """Name of the operation in the trace."""
        return self.operation if isinstance(self.operation, str) else _tag(self.operation.__class__)

    @property
    def named_arguments(self) -> Mapping[str, Any]:
        """Arguments by name."""
        return self.arguments if isinstance(self.operation, str) else msgspec.structs.asdict(self.operation)


class Cancel(msgspec.Struct, frozen=True):
    """An application cancels a call; a machine that can still undo it answers with OperationCancelled.

    Parameters
    ----------
    op_id : int
        Number of the operation.
    """

    op_id: int


class Send(msgspec.Struct, frozen=True):
    """Send a message to an address: Received there or SendFailed here follows, unless a machine dies.

    There is no acknowledgement: a sender that needs one asks for an answer. Faults lose messages silently and
    repeat them. Sender and receiver hold the same object, so neither may change it.

    A message to a machine of the same host (:func:`local_address`) uses no link: it arrives right after the
    sender's other effects, costs nothing, and is lost only if the host is killed.

    Parameters
    ----------
    to : str
    message : object
        Bytes, a struct, or plain data that JSON can encode.
    """

    to: str
    message: Any


class SetTimer(msgspec.Struct, frozen=True):
    """Start a timer, or restart the one of that name.

    Parameters
    ----------
    name : str
    delay_us : int
        Time until it fires.
    """

    name: str
    delay_us: int


class CancelTimer(msgspec.Struct, frozen=True):
    """Stop a timer, if it is running.

    Parameters
    ----------
    name : str
    """

    name: str


class Complete(msgspec.Struct, frozen=True):
    """Answer a call, once: with a result, or with an error that is then raised.

    Parameters
    ----------
    op_id : int
    result : object
    error : Exception, optional
        Error of a failed operation.
    """

    op_id: int
    result: Any = None
    error: BaseException | None = None


class Notify(msgspec.Struct, frozen=True):
    """Notify an application on the device: the world runs the callbacks of a listener.

    Parameters
    ----------
    listener : str
        Name under which they were registered with :meth:`Installed.listen`.
    payload : object
    """

    listener: str
    payload: Any


class Record(msgspec.Struct, frozen=True):
    """Write a row into a table of the run's trace.

    An incident has ``incident`` and ``detail``: ``failed`` for an exception in a function of a user,
    ``dropped`` for a message that this machine does not accept. A ``value_hash`` may be a function that
    returns it: it is called when the operation is answered, or when the table is read, not while an
    application waits.

    Parameters
    ----------
    table : str
        ``deliveries``, ``operations``, ``reads`` or ``incidents``.
    row : mapping
        Values by column; any subset of the table's columns.
    """

    table: str
    row: Mapping[str, Any]


Event: TypeAlias = Received | SendFailed | TimerFired | LinkUp | LinkDown | ContextChanged | Call | Cancel
Effect: TypeAlias = Send | SetTimer | CancelTimer | Complete | Notify | Record


class Machine(Protocol):
    """One role of a system."""

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """Handle one event at ``now_us``; return the effects, carried out after a commit of the store."""
        ...


class Store(Protocol):
    """Durable store of a machine; all changes of one ``handle`` call are one transaction.

    In a lab: :class:`mudkit.fleet.store.MemoryStore` or :class:`mudkit.fleet.store.SqliteStore`.
    """

    @overload
    def get(self, key: str) -> Any: ...

    @overload
    def get(self, key: str, kind: type[_T]) -> _T | None: ...

    def get(self, key: str, kind: Any = ...) -> Any:
        """Return the value of a ``key``, ``None`` if there is none.

        Raises
        ------
        StoreError
            The value is not of the type ``kind``: another version of mudkit has written it.
        """
        ...

    def put(self, key: str, value: Any) -> None:
        """Store a struct or JSON data (also bytes, ciphertexts) by key; :meth:`get` returns an equal value.

        Raises
        ------
        ParameterError
            It would be decoded to something else.
        """
        ...

    def delete(self, key: str) -> None:
        """Delete a key, if it exists."""
        ...

    def keys(self, prefix: str = "") -> Sequence[str]:
        """Return the keys with a prefix, sorted; the cost depends on their number only."""
        ...

    @overload
    def items(self, prefix: str = "") -> Sequence[tuple[str, Any]]: ...

    @overload
    def items(self, prefix: str, kind: type[_T]) -> Sequence[tuple[str, _T]]: ...

    def items(self, prefix: str = "", kind: Any = ...) -> Sequence[tuple[str, Any]]:
        """Return keys and values with a prefix, sorted, as :meth:`get`."""
        ...

    def crash_point(self, name: str, /) -> None:
        """Mark a place, by name, at which a test may kill the machine."""
        ...


Entropy: TypeAlias = Callable[[int], bytes]
"""``entropy(n)`` returns n random bytes: a named stream in a lab, the operating system's elsewhere."""


def _has_any_listener(listener: str) -> bool:
    """Return True: every callback is registered."""
    return True


class Ports(msgspec.Struct, frozen=True):
    """A machine's store, entropy and address, passed at its creation and after each restart.

    Parameters
    ----------
    store : Store
    entropy : Entropy
    address : str
        Address of the host on the network.
    has_listener : callable
        Returns whether the application has registered a callback under a listener's name: an application
        that was started again may not have registered it yet.
    """

    store: Store
    entropy: Entropy
    address: str
    has_listener: Callable[[str], bool] = _has_any_listener


Make: TypeAlias = Callable[[Ports], Machine]
"""Creates a machine; called again at each restart."""


Reason: TypeAlias = Literal[
    "payload", "acknowledgement", "heartbeat", "policy", "administration", "retransmission"
]
"""Reason for which a message is sent: data of applications, and requests for them; acknowledgements and
refusals; polls, pings and other signs of life; rules that decide what is sent or kept, and reports for them;
tables, subscriptions, sessions and connections; or anything of these, sent again."""

DEFAULT_TIMEOUT_S: Final = 43_200.0
"""Default limit of the virtual time that waiting for an operation takes: half the life of a lab's token."""


class Operation(Protocol):
    """A call that has been made, as returned by a system's API.

    In a lab: :class:`mudkit.fleet.host.Operation`.
    """

    def done(self) -> bool:
        """Return whether it has been answered."""

    def result(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> Any:
        """Run virtual time until an answer, at most ``timeout_s``; return the result or raise the error."""

    def exception(self) -> BaseException | None:
        """Return its error; None: it has none, or no answer yet."""

    def cancel(self) -> bool:
        """Cancel it, if it has had no effect and can have none any more; return whether it is cancelled."""
        ...

    def add_done_callback(self, f: Callable[[Any], None]) -> None:
        """Call ``f`` with this operation when it has been answered."""
        ...

    def with_result(self, make: Callable[[Any], Any]) -> Operation:
        """Return it, with the result that ``make`` makes of the machine's: an object of the system's API."""
        ...

    def __await__(self) -> Generator[Any, None, Any]:
        """Wait for its result in a notebook's cell."""
        ...


class Installed(Protocol):
    """A machine on its host, as its system's API sees it.

    In a lab: :class:`mudkit.fleet.host.Process`.
    """

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
    def now_us(self) -> int:
        """Present virtual time."""
        ...

    async def run_until(self, is_done: Callable[[], bool], deadline_us: int) -> None:
        """Run virtual time until ``is_done()``, asked after each event, at most to ``deadline_us``."""
        ...

    @property
    def open(self) -> Sized:
        """Calls without an answer."""
        ...

    def call(self, operation: msgspec.Struct | str, **arguments: Any) -> Operation:
        """Call an operation of the machine (:class:`Call`)."""
        ...

    def listen(self, listener: str, callback: Callable[[Any], None], *, is_only: bool = False) -> None:
        """Call ``callback`` with the payload of each :class:`Notify` to a listener of that name.

        ``is_only``: it takes the place of earlier callbacks.
        """
        ...

    def forget_listener(self, listener: str) -> None:
        """Remove the callbacks of a listener."""
        ...


@described("a device of the lab: lab.device(name), or lab.devices[name]")
class Host(Protocol):
    """A device or a server, as a system's API sees it.

    In a lab: :class:`mudkit.fleet.host.Host`, and its subclass :class:`mudkit.fleet.device.Device`.
    """

    @property
    def name(self) -> str:
        """Its name in the lab, which never changes."""
        ...

    def install(self, system: str, make: Make, *, name: str = "", watch: Collection[str] = ()) -> Installed:
        """Install a machine and start it.

        Parameters
        ----------
        system : str
            The system that the machine's traffic is charged to.
        make : callable
        name : str
            Distinguishes the machines of one host.
        watch : collection of str
            Measured fields of the context (``loc``, ``battery_share``) of whose changes it is notified.
        """
        ...


@described("a lab, such as Lab(seed=7)")
class Network(Protocol):
    """A lab, as a system's API sees it: :class:`mudkit.lab.Lab`."""

    @property
    def devices(self) -> Mapping[str, Host]:
        """Devices by name."""
        ...

    @property
    def start_us(self) -> int:
        """Start of virtual time, in µs since 1970."""
        ...

    @property
    def authority(self) -> Authority:
        """Authority that signs its tokens."""
        ...

    @property
    def problems(self) -> pd.DataFrame:
        """Failures so far: ``device, ts, detail, system``."""
        ...

    def server(self, name: str, *, at: Place | None = None) -> Host:
        """Return the server of that name; it is added if there is none. ``at``: its place, degrees."""
        ...

    def access_point(self, name: str, at: Place, range_m: float) -> object:
        """Add an access point, which devices that roam use in its range; see :class:`mudkit.lab.Lab`."""
        ...


class Ciphertext(bytes):
    """Bytes that cannot be read without the key, in a message or in a store; base64 text in JSON.

    The mark is for the ledger of what each party held; tests check it by searching for the plaintext.
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
    """Encode a ciphertext as its bytes; raise TypeError for other values that are not JSON."""
    if isinstance(value, Ciphertext):
        return bytes(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


_encode = msgspec.json.Encoder(enc_hook=_hook).encode


@cache
def _tag(struct: type[msgspec.Struct]) -> str:
    """Return the tag by which a stored struct is recognised, by default the name of its class."""
    tag = struct.__struct_config__.tag
    return tag if isinstance(tag, str) else struct.__name__


LOCALHOST: Final = "localhost"
"""The sender's own host, in addresses of machines; no host has this name."""


def local_address(name: str) -> str:
    """Return the address of a machine of the same host, by its name there, whatever the host's address is."""
    return f"{LOCALHOST}/{name}"


def size_bytes(message: Any) -> int:
    """Return the size of a message on the network: bytes as they are, anything else as UTF-8 JSON.

    Bytes inside a message are base64 text, as JSON requires.

    Parameters
    ----------
    message : object
        Bytes, a struct, or plain data that JSON can encode.

    Raises
    ------
    TypeError
        JSON cannot hold it.
    """
    return len(message) if isinstance(message, bytes) else len(_encode(message))
