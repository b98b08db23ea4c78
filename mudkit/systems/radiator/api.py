"""What a notebook holds of Radiator: the server of a lab, and the client on a device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import msgspec

from mudkit.arguments import check_calls
from mudkit.errors import ParameterError, brief
from mudkit.events import Host, Network, Operation
from mudkit.sources.parameters import number, of_kind
from mudkit.systems.arguments import check_device, check_lab
from mudkit.systems.displays import OnHost
from mudkit.systems.radiator.aggregation.functions import check_function, check_join
from mudkit.systems.radiator.aggregation.joins import Join, concatenation
from mudkit.systems.radiator.aggregation.thresholds import Aggregability, Function
from mudkit.systems.radiator.context import Context
from mudkit.systems.radiator.device.client import APP, ClientMachine
from mudkit.systems.radiator.messages import ContextFields
from mudkit.systems.radiator.operations import Clients, Counts, Propagate, Register, Unregister, Waiting
from mudkit.systems.radiator.packing import check_size
from mudkit.systems.radiator.servers.chains import Chainability
from mudkit.systems.radiator.servers.server import ServerMachine
from mudkit.systems.radiator.servers.settings import Settings
from mudkit.wire import Fields, Value

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["NAME", "Client", "Server"]

NAME: Final = "radiator"
_PORT: Final = "radiator"
_LONGEST: Final = 512

_Attributes: TypeAlias = Annotated[Fields | None, 'a mapping such as {"p2p_enabled": True}']


@check_calls
class Server(OnHost):
    """Radiator's server in a lab.

    Parameters
    ----------
    lab : Network
    aggregability : callable
        The function of the current contexts of a sender and a receiver; it gives ``Volume``, ``People`` or
        ``Time``.
    join : callable
        Makes one context of several; see :mod:`mudkit.systems.radiator.aggregation.joins`.
    chain : float
        Share k of the clients that are ``p2p_enabled``, the most that one chain of recipients has; 0: the
        server pushes to each itself.
    chainability : callable, optional
        Whether, or how well, two clients belong into one chain, by their contexts.
    compress : bool
        Whether everything that is sent is gzip, requests included.
    echo : bool
        Whether a client gets its own messages (in the paper all clients get all).
    max_retention_s : float
        No message waits for longer, whatever the function says: it goes then, unless it waits for people:
        then it is dropped.
    silence_s : float
        A client with pending messages that is silent this long is removed.
    link_kbps : float, optional
        Capacity of the server's link; None: without limit.
    name : str
        The name of the server.

    Raises
    ------
    ParameterError
        It is given no lab or no function, a function that takes other arguments than it will be given (a
        join that needs a ``k`` that is not set), a parameter is out of range, or the name is a device's.

    Attributes
    ----------
    problems : pandas.DataFrame
        What has gone wrong at this server: ``device, ts, detail, system``, a part of ``lab.problems``. Each
        problem of its functions is there once, with function, sender and receiver, at most 1,000 of them.
    """

    def __init__(
        self,
        lab: Network,
        aggregability: Function | Aggregability,
        join: Join = concatenation,
        *,
        chain: float = 0.0,
        chainability: Chainability | None = None,
        compress: bool = True,
        echo: bool = False,
        max_retention_s: float = 3600.0,
        silence_s: float = 3600.0,
        link_kbps: float | None = None,
        name: str = "radiator",
    ) -> None:
        check_lab(lab)
        if chainability is not None:
            check_function("chainability", chainability, ["one", "other"])
        check_join(join)
        decides = aggregability if isinstance(aggregability, Aggregability) else Aggregability(aggregability)
        self.compress = bool(compress)
        settings = Settings(
            decides,
            join,
            number("chain", chain, 0.0, 1.0),
            chainability,
            self.compress,
            bool(echo),
            round(number("max_retention_s", max_retention_s, 1e-6, 1e9) * 1e6),
            round(number("silence_s", silence_s, 1e-6, 1e9) * 1e6),
            None if link_kbps is None else number("link_kbps", link_kbps, 1e-3, 1e12),
        )
        self._lab, self._name = lab, name
        self.installed = lab.server(name).install(
            NAME, lambda ports: ServerMachine(ports, settings), name=_PORT
        )

    @property
    def problems(self) -> pd.DataFrame:
        """What has gone wrong here so far; see :attr:`mudkit.lab.Lab.problems`."""
        problems = self._lab.problems
        here = (problems["device"] == self._name) & (problems["system"] == NAME)
        return problems[here].reset_index(drop=True)

    def clients(self) -> Operation:
        """Tell who is registered, and whether the server believes that it is there."""
        return self.installed.call(Clients())

    def waiting(self) -> Operation:
        """Tell how many messages wait for each client."""
        return self.installed.call(Waiting())

    def counts(self) -> Operation:
        """Tell ``contexts, aggregates, messages_sent, bytes_sent, dropped, failures`` so far."""
        return self.installed.call(Counts())


@check_calls
class Client(OnHost):
    """The local middleware on a device, set up and registered (Radiator 4.1: setup, register_client).

    Parameters
    ----------
    device : Host
    server : Server
    client_id : str, optional
        The name of the client; by default that of the device.
    receive : callable, optional
        Called with each context that comes (the paper's ``receive_callback``).
    attributes : mapping, optional
        What the server is to know of this client; ``p2p_enabled``: its peers can reach it. They are part of
        its context, beneath what it propagates.
    machine : callable
        What decides on the device; by default :class:`ClientMachine`.

    Raises
    ------
    ParameterError
        It is given no device or no server, or the id or the attributes cannot be sent.

    Attributes
    ----------
    registered : Operation
        The last registration; its result raises when the id is taken by another live device.

    Examples
    --------
    >>> from mudkit import Lab
    >>> from mudkit.systems.radiator import Volume
    >>> lab = Lab(seed=7)
    >>> server = Server(lab, lambda sender, receiver: Volume(2))
    >>> ann, bob = (Client(lab.device(name), server) for name in ("ann", "bob"))
    >>> came = []
    >>> cho = Client(lab.device("cho"), server, receive=came.append)
    >>> for client in (ann, bob):
    ...     number = client.propagate_context(Context({client.client_id}, {"doing": "dancing"})).result()
    >>> lab.run(seconds=5)
    >>> sorted(came[0].people), came[0]["doing"]
    (['ann', 'bob'], ['dancing', 'dancing'])
    """

    def __init__(
        self,
        device: Host,
        server: Server,
        client_id: str | None = None,
        receive: Callable[[Context], None] | None = None,
        attributes: _Attributes = None,
        machine: type[ClientMachine] = ClientMachine,
    ) -> None:
        check_device(device)
        of_kind("server", server, Server, expected="the server of Radiator, such as Server(lab, function)")
        self.client_id = device.name if client_id is None else client_id
        given: Value = self.client_id
        if not isinstance(given, str) or not 1 <= len(given) <= _LONGEST:
            raise ParameterError(
                "This is no client id.",
                where="client_id",
                found=brief(client_id, 120),
                expected=f"a text of at most {_LONGEST} letters",
            )
        if receive is not None:
            check_function("receive", receive, ["context"])
        address, compress = server.installed.address, server.compress
        self.installed = device.install(
            NAME,
            lambda ports: machine(ports, self.client_id, device.name, address, compress=compress),
            name=f"{_PORT} {self.client_id}",
        )
        if receive is not None:
            self.installed.listen(APP, receive)
        self.registered = self.register(attributes)

    def _own_facts(self) -> dict[str, Value]:
        return {"client": self.client_id, "registered": self.registered.done()}

    def register(self, attributes: _Attributes = None) -> Operation:
        """Register, or register again with other attributes; done when the server has agreed.

        Its result raises when the id is taken by another live device.

        Raises
        ------
        ParameterError
            The attributes are no mapping, or not one that JSON can hold.
        """
        registered: Value = attributes
        if registered is not None and not isinstance(registered, Mapping):
            raise ParameterError(
                "Attributes have names.",
                where="attributes",
                found=brief(registered, 120),
                expected='a mapping such as {"p2p_enabled": True}',
            )
        given = _as_json("attributes", dict(attributes or {}))
        self.registered = self.installed.call(Register(given))
        return self.registered

    def unregister(self) -> Operation:
        """Leave; what waits for this client at the server is dropped."""
        return self.installed.call(Unregister())

    def propagate_context(self, context: Context) -> Operation:
        """Propagate a context to all others; done when the server has it.

        Raises
        ------
        ParameterError
            It is no context, or not one that JSON can hold.
        """
        given: Value | Context = context
        if not isinstance(given, Context):
            raise ParameterError(
                "This is no context.", where="context", found=brief(given, 200), expected="a Context"
            )
        described = _as_json("context", context.describe())
        return self.installed.call(Propagate(ContextFields.of(Context.read(described))))


def _as_json(where: str, value: dict[str, Value]) -> dict[str, Value]:
    """Give it as it is after its way over the network; it can be stored, too."""
    try:
        sent = msgspec.json.encode(value)
        given: dict[str, Value] = msgspec.json.decode(sent)
        msgspec.msgpack.encode(given)  # whole numbers of at most 64 bit
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ParameterError(
            "This cannot be sent.", where=where, found=str(error), expected="what JSON can hold"
        ) from error
    check_size(where, sent)
    return given
