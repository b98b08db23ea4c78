"""What a notebook holds of store and forward: the relay of a lab, and the client of a device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mudkit.arguments import check_calls
from mudkit.errors import ParameterError, brief
from mudkit.events import Host, Network, Operation
from mudkit.sources.parameters import of_kind
from mudkit.systems.arguments import check_device, check_lab, is_storable
from mudkit.systems.displays import OnHost
from mudkit.systems.receiving import MAX_BYTES
from mudkit.systems.store_and_forward.device.client import APP, ClientMachine
from mudkit.systems.store_and_forward.messages import MAX_LETTERS
from mudkit.systems.store_and_forward.operations import Read, Submit
from mudkit.systems.store_and_forward.servers.relay import RelayMachine
from mudkit.wire import Value

__all__ = [
    "NAME",
    "Client",
    "Relay",
]

NAME: Final = "store and forward"
_PORT: Final = "sf"
"""Part of its machines' addresses: other systems may have machines on the same hosts."""


@check_calls
class Relay(OnHost):
    """The relay, on a server of its own.

    Parameters
    ----------
    lab : Network
    name : str
        The name of the server.

    Raises
    ------
    ParameterError
        It is given no lab, or the name of a device.
    """

    def __init__(self, lab: Network, name: str = "relay") -> None:
        check_lab(lab)
        self.installed = lab.server(name).install(NAME, RelayMachine, name=_PORT)


@check_calls
class Client(OnHost):
    """The client on a device.

    Parameters
    ----------
    device : Host
    relay : Relay
    machine : callable
        What decides on the device; by default :class:`ClientMachine`.

    Raises
    ------
    ParameterError
        It is given no device, or no relay.

    Examples
    --------
    >>> from mudkit import Lab
    >>> lab = Lab(seed=7)
    >>> relay = Relay(lab)
    >>> ann, bob = (Client(lab.device(name), relay) for name in ("ann", "bob"))
    >>> ann.send("bob", "lunch?").result()
    1
    >>> bob.read().result()
    [{'from': 'ann', 'text': 'lunch?'}]
    """

    def __init__(self, device: Host, relay: Relay, machine: type[ClientMachine] = ClientMachine) -> None:
        check_device(device)
        of_kind("relay", relay, Relay, expected="the relay of the lab, such as Relay(lab)")
        address = relay.installed.address
        self.installed = device.install(NAME, lambda ports: machine(ports, device.name, address), name=_PORT)

    def send(self, to: str, text: str, item: str | None = None) -> Operation:
        """Send a text to a device; the operation is done when the relay has it.

        Parameters
        ----------
        to : str
            Name of a device that has a client, or will have: the relay keeps what is for a name that it does
            not know until a client of that name says hello, for ever if none does.
        text : str
        item : str, optional
            What the deliveries call it; by default the sender and a number.

        Returns
        -------
        Operation
            The operation, which gives the number of the message among those that this client sent.

        Raises
        ------
        ParameterError
            The receiver, the message or the item is no text.
        """
        _check_text("to", to, "the name of a device, such as 'bob'")
        of_kind("text", text, str, expected="a text", remedy="write it as one, for instance with json.dumps")
        if not is_storable(text):
            raise ParameterError(
                "This text cannot be sent.", where="text", found=brief(text, 120), expected="whole characters"
            )
        if len(text) > MAX_BYTES // 8:  # each letter may take six bytes, and the message has more fields
            raise ParameterError(
                "This text is too long to be sent.",
                where="text",
                found=f"{len(text):,} letters",
                expected=f"at most {MAX_BYTES // 8:,}",
                remedy="send it in parts",
            )
        if item is not None:
            _check_text("item", item, "what the deliveries call it")
        return self.installed.call(Submit(to, text, item))

    def read(self) -> Operation:
        """Read what has come since the last time: a list of ``{'from': …, 'text': …}``."""
        return self.installed.call(Read())

    def on_message(self, callback: Callable[[dict[str, str]], None]) -> None:
        """Call ``callback`` with each message when it comes."""
        self.installed.listen(APP, callback)


def _check_text(name: str, given: Value, expected: str) -> None:
    if not isinstance(given, str) or not 0 < len(given) <= MAX_LETTERS or not given.isprintable():
        raise ParameterError(
            "This is no name.",
            where=name,
            found=brief(given, 120),
            expected=f"{expected}: a text of one line, of at most {MAX_LETTERS} letters",
        )
