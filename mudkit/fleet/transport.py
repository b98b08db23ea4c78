"""The transport: it carries messages over links and between servers, and charges for them.

A message of a device goes over the device's link to wherever its address leads when it has come up; from
there over the link of the device that it is for, or to a server at once. What does not arrive fails: its
sender learns it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from mudkit.errors import ParameterError, brief
from mudkit.events import Event, Received, Send, SendFailed, size_bytes
from mudkit.fleet.bill import Bill, BillRow
from mudkit.fleet.clock import ARRIVAL, Clock
from mudkit.fleet.device import Device
from mudkit.fleet.host import Host
from mudkit.fleet.link import Direction, Draws, Leg, Link, LinkProfile, Transfer
from mudkit.fleet.process import Process
from mudkit.sources.streams import Stream

__all__ = ["Transport"]

_SERVER_LATENCY_US: Final = 500
"""Between two servers of one data centre."""


class Transport(Clock):
    """Addresses, messages on their way, and the bill of one run.

    Parameters
    ----------
    latency_up, latency_down : Stream
        The random streams of the latencies of all links, towards the network and from it.

    Attributes
    ----------
    hosts : dict of str to Host
        Devices and servers, by name.
    at_address : dict of str to Process
        The machines, by the address at which they are reached now.
    on_leg : callable or None
        Told of every transfer that has left a direction of a link: the leg, how many of its bytes got
        through, and whether it was cut.
    on_fate : callable or None
        Told what became of a message: one of :data:`mudkit.trace.schema.FATES`.
    """

    __slots__ = (
        "_addresses",
        "_bill",
        "_fault_hook",
        "_latencies",
        "_reach",
        "_when_arrived",
        "_when_handed",
        "_when_onward",
        "at_address",
        "hosts",
        "on_fate",
        "on_leg",
    )

    def __init__(self, latency_up: Stream, latency_down: Stream) -> None:
        super().__init__()
        self.hosts: dict[str, Host] = {}
        self.at_address: dict[str, Process] = {}
        self._addresses: set[str] = set()
        self._fault_hook: Callable[[Transfer], Sequence[int]] | None = None
        self._reach: Callable[[Transfer, Link | None], None] = self._hand_over
        """What happens to a message that has come over a link, or to a server."""
        self.on_leg: Callable[[Leg, int, bool], None] | None = None
        self.on_fate: Callable[[Transfer, str], None] | None = None
        self._bill = Bill()
        self._latencies = Draws(latency_up), Draws(latency_down)
        # Bound once: there is one for each event in the heap, and some are looked for by it.
        self._when_arrived = self._arrive
        self._when_onward, self._when_handed = self._onward, self._hand_over_late

    # -- addresses

    def check_free(self, name: str) -> None:
        """Refuse a name that is taken, or is another device's address.

        Raises
        ------
        ParameterError
        """
        if name in self.hosts or name in self._addresses:
            raise ParameterError(
                "There is a device or server of this name.",
                where="name",
                found=brief(name),
                expected="a name of its own for each",
            )

    def register(self, process: Process) -> None:
        """Let a machine be reached at its address."""
        if process.address in self.at_address:
            raise ParameterError(
                "There is a machine at this address.",
                where="name",
                found=process.address,
                expected="a name of its own for each machine of a host",
                remedy="use the one that is there; a cell that is run twice installs twice",
            )
        self.at_address[process.address] = process

    def unregister(self, process: Process) -> None:
        """Forget a machine that could not be made."""
        del self.at_address[process.address]

    def readdress(self, host: Host, address: str) -> None:
        """Reach the machines of a host at another address from now on.

        Raises
        ------
        ParameterError
            It is in use; nothing has changed then.
        """
        others = (each for each in self.hosts.values() if each is not host)
        moved = {address + process.address.removeprefix(host.address): process for process in host.processes}
        taken = [each for each in moved if self.at_address.get(each, moved[each]) is not moved[each]]
        if taken or any(address in (each.address, each.name) for each in others):
            raise ParameterError(
                "This address is in use.",
                where="address",
                found=(taken or [address])[0],
                expected="one of its own for each device",
            )
        for process in host.processes:
            del self.at_address[process.address]
        for each, process in moved.items():
            process.address = each
            self.at_address[each] = process
        self._addresses.discard(host.address)
        self._addresses.add(address)
        host.address = address

    def new_link(self, profile: LinkProfile, name: str) -> Link:
        """Make the link of a device, which charges this bill."""
        return Link(profile, name, self._bill, *self._latencies)

    # -- the bill

    def bill(self) -> Iterator[BillRow]:
        """Give the bill as of now: what is scheduled beyond this moment is not on it."""
        corrections: dict[int, list[float]] = {}
        for host in self.hosts.values():
            if host.link is not None:
                for account, more_bytes, more_mj in host.link.corrections(self.now_us):
                    row = corrections.setdefault(id(account), [0, 0.0])
                    row[0] += more_bytes
                    row[1] += more_mj
        for account in self._bill.accounts():
            more = corrections.get(id(account), (0, 0.0))
            yield BillRow(
                account.system,
                account.device,
                account.direction,
                account.messages,
                account.bytes + int(more[0]),
                account.radio_mj + more[1],
                account.wakeups,
            )

    def used(self, device: Device) -> tuple[int, float]:
        """Return the number of messages of a device and the energy of its radio so far, in mJ."""
        return sum(account.messages for account in self._bill.of_device(device.name)), self.radio_mj(device)

    def radio_mj(self, device: Device) -> float:
        """Say what the radio of a device has taken so far."""
        charged = sum(account.radio_mj for account in self._bill.of_device(device.name))
        return charged + sum(more_mj for _, _, more_mj in device.link.corrections(self.now_us))

    # -- messages

    @property
    def fault_hook(self) -> Callable[[Transfer], Sequence[int]] | None:
        """Asked before a message is handed over: after which delays, in µs; none loses it, two repeat it."""
        return self._fault_hook

    @fault_hook.setter
    def fault_hook(self, fault_hook: Callable[[Transfer], Sequence[int]] | None) -> None:
        self._fault_hook = fault_hook
        self._reach = self._hand_over if fault_hook is None else self._hand_over_through_hook

    def was_cut(self, leg: Leg, gone: int) -> None:
        """Take note of a transfer that was cut, and tell its sender."""
        if self.on_leg is not None:
            self.on_leg(leg, gone, True)
        self._fail(leg.transfer, "cut")

    def under_way(self) -> list[Transfer]:
        """Give the messages that are on their way."""
        transfers = [argument for *_, action, argument in self.event_queue if action is self._when_onward]
        transfers += [argument[0] for *_, action, argument in self.event_queue if action is self._when_handed]
        links = [host.link for host in self.hosts.values() if host.link is not None]
        transfers += [leg.transfer for link in links for way in (link.up, link.down) for leg in way.underway]
        return sorted(transfers, key=lambda transfer: (transfer.sent_us, transfer.source, transfer.to))

    def _send(self, process: Process, effect: Send) -> None:
        to, message, now_us = effect.to, effect.message, self.now_us
        transfer = Transfer(
            process, process.session, process.address, to, message, size_bytes(message), now_us
        )
        host = process.host
        if not host.is_online:
            self._fail(transfer, "no link")
        elif host.link is not None:
            self._begin(transfer, host.link.up)
        else:
            process.sent_bytes += transfer.size_bytes
            target = self.at_address.get(to)
            if target is None or target.host.link is None:
                self.event_queue.add(now_us + _SERVER_LATENCY_US, ARRIVAL, self._when_onward, transfer)
            else:
                self._onward(transfer)

    def _begin(self, transfer: Transfer, direction: Direction) -> None:
        leg = direction.begin(transfer, self.now_us)
        self.event_queue.add(leg.arrive_us, ARRIVAL, self._when_arrived, leg)

    def _arrive(self, leg: Leg) -> None:
        direction = leg.direction
        underway = direction.underway
        if not underway or underway[0] is not leg:  # it was cut
            return
        underway.popleft()
        transfer = leg.transfer
        if self.on_leg is not None:
            self.on_leg(leg, transfer.size_bytes, False)
        if direction.name == "up":
            self._onward(transfer)
        else:
            self._reach(transfer, direction.link)

    def _onward(self, transfer: Transfer) -> None:
        """Go on to where the address leads now: over a device's link, or to a server at once."""
        target = self.at_address.get(transfer.to)
        if target is None:
            self._fail(transfer, "nobody there")
            return
        host = target.host
        if host.link is None:
            self._reach(transfer, None)
        elif host.is_online:
            self._begin(transfer, host.link.down)
        else:
            self._fail(transfer, "no link")

    def _hand_over_through_hook(self, transfer: Transfer, link: Link | None) -> None:
        delays_us = self._fault_hook(transfer) if self._fault_hook is not None else (0,)
        if not delays_us and self.on_fate is not None:
            self.on_fate(transfer, "lost")
        for number, delay_us in enumerate(delays_us):
            copy = transfer
            if number:
                copy = Transfer(
                    transfer.sender,
                    transfer.session,
                    transfer.source,
                    transfer.to,
                    transfer.message,
                    transfer.size_bytes,
                    transfer.sent_us,
                    is_repeat=True,
                )
            self.event_queue.add(self.now_us + delay_us, ARRIVAL, self._when_handed, (copy, link))

    def _hand_over_late(self, what: tuple[Transfer, Link | None]) -> None:
        self._hand_over(*what)

    def _hand_over(self, transfer: Transfer, link: Link | None) -> None:
        target = self.at_address.get(transfer.to)
        if target is None or target.machine is None:
            self._fail(transfer, "nobody there")
            return
        host = target.host
        if host.link is not link:
            self._fail(transfer, "nobody there")
        elif not host.is_online:
            self._fail(transfer, "no link")
        else:
            if self.on_fate is not None:
                self.on_fate(transfer, "repeated" if transfer.is_repeat else "arrived")
            self._handle(target, Received(transfer.source, transfer.message, transfer.sender.host.name))

    def _fail(self, transfer: Transfer, fate: str) -> None:
        if self.on_fate is not None:
            self.on_fate(transfer, fate)
        self.event_queue.add(self.now_us, ARRIVAL, self._failed, transfer)

    def _failed(self, transfer: Transfer) -> None:
        """Tell the sender, unless it was killed since: its next life knows nothing of the message."""
        sender: Process = transfer.sender
        if transfer.session == sender.session:
            self._handle(sender, SendFailed(transfer.to, transfer.message))

    def _handle(self, process: Process, event: Event) -> None:
        """Let a machine handle an event: who runs the machines says how."""
        raise NotImplementedError
