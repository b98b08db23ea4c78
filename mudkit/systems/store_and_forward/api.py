"""Notebook API of store and forward: the relay of a lab, the client of a device, and one without a relay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mudkit.checks import check_arguments
from mudkit.errors import ParameterError, brief
from mudkit.events import Host, Installed, Network, Operation
from mudkit.places import Centres, parse_one_centre
from mudkit.systems.displays import OnHost
from mudkit.systems.receiving import MAX_BYTES
from mudkit.systems.store_and_forward.device import APP, DIRECT, ClientMachine, DirectMachine
from mudkit.systems.store_and_forward.messages import MAX_LETTERS, Read, SendText
from mudkit.systems.store_and_forward.servers import RelayMachine

NAME: Final = "store and forward"
_PORT: Final = "sf"
"""Suffix of the addresses of its machines; other systems may have machines on the same hosts."""


@check_arguments
class Relay(OnHost):
    """The relay, on a server of its own.

    Parameters
    ----------
    lab : Network
    name : str
    centres : sequence of str, or mapping of str to str or (float, float), optional
        The data centre in which it stands: the name of a city, or a place by name (:mod:`mudkit.places`). By
        default it is near everything.

    Raises
    ------
    ParameterError
        ``lab`` is not a lab, ``name`` is the name of a device, or there is no such city.
    """

    def __init__(self, lab: Network, name: str = "relay", *, centres: Centres | None = None) -> None:
        server = lab.server(name, at=parse_one_centre(centres))
        self.installed: Installed = server.install(NAME, RelayMachine, name=_PORT)


@check_arguments
class Client(OnHost):
    """The client on a device.

    Parameters
    ----------
    device : Host
    relay : Relay
    machine : type
        Machine that decides on the device; a subclass may override :meth:`ClientMachine.is_next`.

    Raises
    ------
    ParameterError
        ``device`` is not a device, or ``relay`` is not a relay.

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
        address = relay.installed.address
        self.installed: Installed = device.install(
            NAME, lambda ports: machine(ports, device.name, address), name=_PORT
        )

    def send(self, to: str, text: str, item: str | None = None) -> Operation:
        """Send a text to a device; done when the relay has stored it, with the message's sequence number.

        Handled by :meth:`~mudkit.systems.store_and_forward.device.ClientMachine._send_text`.

        Parameters
        ----------
        to : str
            Name of the receiving device. The relay queues messages for an unknown name until a client of
            that name says hello.
        text : str
            Text of at most 2,097,152 characters.
        item : str, optional
            Name of the message in the deliveries; None: sender and number.

        Raises
        ------
        ParameterError
            ``to``, ``text`` or ``item`` is not a text, or is too long.
        """
        return self.installed.call(_build_send_text(to, text, item))

    def read(self) -> Operation:
        """Return the messages received since the last read: a list of ``{'from': …, 'text': …}``.

        Handled by :meth:`~mudkit.systems.store_and_forward.device.ClientMachine._read`.

        Each has an attribute ``id``: a message that a kill prevented from being returned is returned again.
        At most 65,536 messages wait to be read; then the oldest is deleted, which is an incident.
        """
        return self.installed.call(Read())

    def on_message(self, callback: Callable[[dict[str, str]], None]) -> None:
        """Call ``callback`` with each message on arrival.

        If the device is killed before the callback, it is called after the restart; if this repeats a
        message, ``message.id`` is the same.
        """
        self.installed.listen(APP, callback)


@check_arguments
class DirectClient(OnHost):
    """The baseline without a relay: a message that cannot be sent, or received, now is lost.

    Parameters
    ----------
    device : Host

    Raises
    ------
    ParameterError
        ``device`` is not a device.

    Examples
    --------
    >>> from mudkit import Lab
    >>> lab = Lab(seed=7)
    >>> ann, bob = (DirectClient(lab.device(name)) for name in ("ann", "bob"))
    >>> ann.send("bob", "lunch?").result()
    >>> lab.run(seconds=10)
    >>> bob.read().result()
    1
    """

    def __init__(self, device: Host) -> None:
        self.installed: Installed = device.install(
            DIRECT, lambda ports: DirectMachine(ports, device.name), name=DIRECT
        )
        self._sender, self._sent = device.name, 0

    def send(self, to: str, text: str, item: str | None = None) -> Operation:
        """Send a text to a device, once; done at once.

        Handled by :meth:`~mudkit.systems.store_and_forward.device.DirectMachine.handle`.

        Parameters
        ----------
        to : str
            Name of the receiving device.
        text : str
            Text of at most 2,097,152 characters.
        item : str, optional
            Name of the message, which travels with it; None: sender and number.

        Raises
        ------
        ParameterError
            ``to``, ``text`` or ``item`` is not a text, or is too long.
        """
        self._sent += 1
        name = f"{self._sender} {self._sent}" if item is None else item
        return self.installed.call(_build_send_text(to, text, name))

    def read(self) -> Operation:
        """Return the number of messages received since the last read, without their texts.

        Handled by :meth:`~mudkit.systems.store_and_forward.device.DirectMachine.handle`.
        """
        return self.installed.call(Read())


def _build_send_text(to: str, text: str, item: str | None) -> SendText:
    """Return the operation that sends a text; raise ParameterError unless it and the names can be sent."""
    _check_text("to", to, "the name of a device, such as 'bob'")
    if len(text) > MAX_BYTES // 8:  # a character takes up to six bytes, and there are other fields
        raise ParameterError(
            "This text is too long to be sent.",
            where="text",
            found=f"{len(text):,} letters",
            expected=f"at most {MAX_BYTES // 8:,}",
            remedy="send it in parts",
        )
    if item is not None:
        _check_text("item", item, "what the deliveries call it")
    return SendText(to, text, item)


def _check_text(name: str, given: str, expected: str) -> None:
    """Raise a ParameterError unless a name is one line of at most MAX_LETTERS."""
    if not 0 < len(given) <= MAX_LETTERS or not given.isprintable():
        raise ParameterError(
            "Expected a name.",
            where=name,
            found=brief(given, 120),
            expected=f"{expected}: a text of one line, of at most {MAX_LETTERS} letters",
        )
