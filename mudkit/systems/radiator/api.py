"""Radiator's server in a lab, and its client on a device."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import msgspec

from mudkit.checks import Range, check_arguments
from mudkit.errors import ParameterError, brief
from mudkit.events import Host, Installed, Network, Operation
from mudkit.places import Centres, parse_one_centre
from mudkit.systems.displays import OnHost
from mudkit.systems.radiator.chains import Chainability
from mudkit.systems.radiator.context import Context
from mudkit.systems.radiator.device import APP, ClientMachine
from mudkit.systems.radiator.engines.joining import check_join
from mudkit.systems.radiator.functions import check_function
from mudkit.systems.radiator.joins import Join, concatenation
from mudkit.systems.radiator.messages import (
    ContextFields,
    CountPending,
    GetCounters,
    ListClients,
    PropagateContext,
    RegisterClient,
    UnregisterClient,
    check_size,
)
from mudkit.systems.radiator.servers import ServerMachine, Settings
from mudkit.systems.radiator.thresholds import Aggregability, Function
from mudkit.wire import Fields, Value

if TYPE_CHECKING:
    import pandas as pd

NAME: Final = "radiator"
_PORT: Final = "radiator"
_MAX_ID_LENGTH: Final = 512

_Attributes: TypeAlias = Annotated[Fields | None, 'a mapping such as {"p2p_enabled": True}']


@check_arguments
class Server(OnHost):
    """Radiator's server in a lab.

    Parameters
    ----------
    lab : Lab
    aggregability : callable
        Function of the current contexts of a sender and a receiver that returns ``Volume``, ``People`` or
        ``Time``.
    join : callable
        Function that merges contexts into one; see :mod:`mudkit.systems.radiator.joins`.
    chain : float
        Maximum share k of the ``p2p_enabled`` recipients in one chain; 0: the server pushes to each
        recipient.
    chainability : callable, optional
        Function of two clients' contexts that returns how well they fit into one chain; None: all fit.
    compress : bool
        Whether to compress all messages with gzip, requests included.
    echo : bool
        Whether clients receive their own messages (in the paper, they do).
    max_retention_s : float
        Maximum time that a message waits. It is then sent, or dropped if it waits for ``People``.
    silence_s : float
        Time after which a silent client with pending aggregates is removed.
    link_kbps : float, optional
        Capacity of the server's outbound link; None: unlimited.
    name : str
    centres : sequence of str, or mapping of str to str or (float, float), optional
        The data centre in which it stands: the name of a city, or a place by name (:mod:`mudkit.places`). By
        default it is near everything.

    Raises
    ------
    ParameterError
        ``lab`` is no lab, a function is none or takes other arguments, a join lacks a setting, a parameter is
        out of range, or the name is that of a device.

    Attributes
    ----------
    problems : pandas.DataFrame
        This server's part of ``lab.problems``. Each failure of a user function is listed once per function,
        sender and receiver, at most 1,000 of them.
    """

    def __init__(
        self,
        lab: Network,
        aggregability: Function | Aggregability,
        join: Join = concatenation,
        *,
        chain: Annotated[float, Range(0.0, 1.0)] = 0.0,
        chainability: Chainability | None = None,
        compress: bool = True,
        echo: bool = False,
        max_retention_s: Annotated[float, Range(1e-6, 1e9)] = 3600.0,
        silence_s: Annotated[float, Range(1e-6, 1e9)] = 3600.0,
        link_kbps: Annotated[float, Range(1e-3, 1e12)] | None = None,
        name: str = "radiator",
        centres: Centres | None = None,
    ) -> None:
        if chainability is not None:
            check_function("chainability", chainability, ["one", "other"])
        check_join(join)
        decides = aggregability if isinstance(aggregability, Aggregability) else Aggregability(aggregability)
        self.compress = bool(compress)
        settings = Settings(
            decides,
            join,
            chain,
            chainability,
            self.compress,
            bool(echo),
            round(max_retention_s * 1e6),
            round(silence_s * 1e6),
            link_kbps,
        )
        self._lab, self._name = lab, name
        self.installed: Installed = lab.server(name, at=parse_one_centre(centres)).install(
            NAME, lambda ports: ServerMachine(ports, settings), name=_PORT
        )

    @property
    def problems(self) -> pd.DataFrame:
        """Problems of this server so far; see :attr:`mudkit.lab.Lab.problems`."""
        problems = self._lab.problems
        here = (problems["device"] == self._name) & (problems["system"] == NAME)
        return problems[here].reset_index(drop=True)

    def clients(self) -> Operation:
        """Return, by registered client, whether the server believes that it is reachable.

        Handled by :meth:`~mudkit.systems.radiator.servers.ServerMachine._answer_call`.
        """
        return self.installed.call(ListClients())

    def waiting(self) -> Operation:
        """Return the number of pending messages by client.

        Handled by :meth:`~mudkit.systems.radiator.servers.ServerMachine._answer_call`.
        """
        return self.installed.call(CountPending())

    def counts(self) -> Operation:
        """Return ``contexts, aggregates, messages_sent, bytes_sent, dropped, failures`` so far, by name.

        Handled by :meth:`~mudkit.systems.radiator.servers.ServerMachine._answer_call`.
        """
        return self.installed.call(GetCounters())


@check_arguments
class Client(OnHost):
    """Local middleware on a device, installed and registered (Radiator 4.1: setup, register_client).

    Parameters
    ----------
    device : Device
    server : Server
    client_id : str, optional
        None: the name of the device.
    receive : callable, optional
        Called with each received context (the paper's ``receive_callback``). If the device is killed before
        the call, it is called after the restart; if this repeats a context, its ``id`` is the same.
    attributes : mapping, optional
        Attributes of the client's context, beneath what it propagates; ``p2p_enabled``: peers can reach it.

    Raises
    ------
    ParameterError
        ``device`` or ``server`` is none, or the id or the attributes cannot be sent.

    Attributes
    ----------
    registered : Operation
        The last registration; its result raises if another live device has the id.

    Examples
    --------
    >>> from mudkit import Lab
    >>> from mudkit.systems.radiator import Volume
    >>> lab = Lab(seed=7)
    >>> server = Server(lab, lambda sender, receiver: Volume(2))
    >>> ann, bob = (Client(lab.device(name), server) for name in ("ann", "bob"))
    >>> received = []
    >>> cho = Client(lab.device("cho"), server, receive=received.append)
    >>> for client in (ann, bob):
    ...     number = client.propagate_context(Context({client.client_id}, {"doing": "dancing"})).result()
    >>> lab.run(seconds=5)
    >>> sorted(received[0].people), received[0]["doing"]
    (['ann', 'bob'], ['dancing', 'dancing'])
    """

    def __init__(
        self,
        device: Host,
        server: Server,
        client_id: str | None = None,
        receive: Callable[[Context], None] | None = None,
        attributes: _Attributes = None,
    ) -> None:
        self.client_id = device.name if client_id is None else client_id
        if not 1 <= len(self.client_id) <= _MAX_ID_LENGTH:
            raise ParameterError(
                "This is no client id.",
                where="client_id",
                found=brief(client_id, 120),
                expected=f"a text of at most {_MAX_ID_LENGTH} letters",
            )
        if receive is not None:
            check_function("receive", receive, ["context"])
        address, compress = server.installed.address, server.compress
        self.installed: Installed = device.install(
            NAME,
            lambda ports: ClientMachine(ports, self.client_id, device.name, address, compress=compress),
            name=f"{_PORT} {self.client_id}",
        )
        if receive is not None:
            self.installed.listen(APP, receive)
        self.registered = self.register(attributes)

    def _own_facts(self) -> dict[str, Value]:
        """Return the client id and whether it has registered, for the display."""
        return {"client": self.client_id, "registered": self.registered.done()}

    def register(self, attributes: _Attributes = None) -> Operation:
        """Register, or register again with other ``attributes``; done when the server has accepted.

        Handled by :meth:`~mudkit.systems.radiator.device.ClientMachine._begin_registration`.

        Raises
        ------
        ParameterError
            The attributes are no mapping, or JSON cannot encode them. From ``result()``: another live device
            has the id.
        """
        given = _as_json("attributes", dict(attributes or {}))
        self.registered = self.installed.call(RegisterClient(given))
        return self.registered

    def unregister(self) -> Operation:
        """Unregister; the server drops the messages that are pending for this client.

        Handled by :meth:`~mudkit.systems.radiator.device.ClientMachine._unregister`.
        """
        return self.installed.call(UnregisterClient())

    def propagate_context(self, context: Context) -> Operation:
        """Propagate a ``context`` to all other clients; its people need not include this client.

        Handled by :meth:`~mudkit.systems.radiator.device.ClientMachine._propagate`.

        The result is the context's number, once the server has acknowledged it.

        Raises
        ------
        ParameterError
            ``context`` is no Context, or JSON cannot encode it.
        """
        described = _as_json("context", context.to_dict())
        return self.installed.call(PropagateContext(ContextFields.of(Context.from_dict(described))))


def _as_json(where: str, value: dict[str, Value]) -> dict[str, Value]:
    """Return a mapping as it arrives over the network; raise a ParameterError if it cannot be sent."""
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
