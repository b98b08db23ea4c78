"""Injected faults: cut links, killed machines, changed addresses, lost, repeated and delayed messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np

from mudkit.checks import check_arguments, number
from mudkit.errors import ParameterError, brief, did_you_mean, listed
from mudkit.fleet.device import Device
from mudkit.fleet.host import Backup, Host
from mudkit.fleet.kernel import World
from mudkit.fleet.link import Transfer
from mudkit.fleet.store import Killed
from mudkit.sources.streams import Stream, device_number
from mudkit.units import US_PER_S

_DRAWS_AHEAD: Final = 16


@check_arguments
class Faults:
    """Injects faults into one world, at the current virtual time, that is when a method is called.

    What a call begins lasts until it is ended: a cut for its minutes or until :meth:`mend`, a kill until
    :meth:`restart`, faults of messages until :meth:`messages` is called again. Only a kill may be set for
    later, for a crash point of a machine.

    Parameters
    ----------
    world : World
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._stream = Stream(world.seed, "mangled messages")
        self._mangled: Counter[int] = Counter()
        """Number of messages of each pair of hosts for which numbers were drawn."""
        self._draws: dict[int, list[float]] = {}
        """Unused draws, in reverse order."""
        self._cuts = 0
        self.of_messages: dict[str, float] = {}
        """Active faults of messages: shares, and the longest delay in seconds."""

    def cut(self, device: str, minutes: float | None = None) -> None:
        """Disconnect a ``device`` for some ``minutes`` of virtual time; None: until :meth:`mend`.

        Raises
        ------
        ParameterError
            There is no such device, or the minutes are negative.
        """
        host = self._find_device(device)
        delay_us = None if minutes is None else self._checked_us("minutes", minutes, 60 * US_PER_S)
        self._cuts += 1
        why = f"cut {self._cuts}"
        host.link_down(why)
        if delay_us is not None:
            self._world.schedule_action(self._world.now_us + delay_us, self._end_cut, (host, why))

    def _end_cut(self, cut: tuple[Device, str]) -> None:
        """End a cut whose minutes are over, unless it was mended before."""
        host, why = cut
        if why in host.down_reasons():
            host.link_up(why)
            self._world.ended_cuts.append((self._world.now_us, host.name))

    def mend(self, device: str) -> None:
        """End all cuts of a device; other reasons for being offline stay."""
        host = self._find_device(device)
        for why in host.down_reasons():
            if why.startswith("cut "):
                host.link_up(why)

    def kill(self, host: str, *, at: str | None = None) -> None:
        """Kill the machines of a ``host``: now, or when one reaches the crash point ``at`` next.

        Points are ``before commit``, ``after commit``, and those that a machine names in its store; one that
        no machine reaches has no effect.
        """
        target = self._find_host(host)
        if at is None:
            target.kill()
            return
        trap = _CrashTrap(at)
        for process in target.processes:
            process.store.crash_point = trap

    def restart(self, host: str) -> None:
        """Restart the killed machines of a host, with their stores as committed."""
        self._find_host(host).restart()

    def wipe(self, device: str) -> None:
        """Empty the stores of a ``device``, as after a reset or a replacement under the same name.

        Its machines start at once, unless it is off: then when it is switched on.
        """
        host = self._find_device(device)
        host.wipe()
        if host.is_on:
            host.restart()

    def backup(self, host: str) -> Backup:
        """Return a copy of the committed stores of a ``host``, for :meth:`restore`."""
        return self._find_host(host).backup()

    def restore(self, host: str, backup: Backup) -> None:
        """Set the stores of a ``host`` back to its ``backup``.

        A machine that was installed later starts empty.

        Its machines start at once, unless it is off: then when it is switched on.
        """
        restored = self._find_host(host)
        restored.restore(backup)
        if restored.is_on:
            restored.restart()

    def change_address(self, device: str, address: str | None = None) -> str:
        """Change the address of a device within its network, to an unused one if None; return it."""
        host = self._find_device(device)
        given = str(address or host.next_address())
        host.readdress(given)
        return given

    def change_network(self, device: str, link: str, address: str | None = None) -> str:
        """Switch a device to another kind of network, where it has another address; return this."""
        host = self._find_device(device)
        host.change_network(link, address)
        return host.address

    def switch_off(self, device: str) -> None:
        """Switch a device off: its machines are killed, its storage stays."""
        self._find_device(device).switch_off()

    def switch_on(self, device: str) -> None:
        """Switch a device on again."""
        self._find_device(device).switch_on()

    def messages(
        self,
        *,
        loss_share: float = 0.0,
        repeat_share: float = 0.0,
        delay_share: float = 0.0,
        delay_s: float = 0.0,
    ) -> None:
        """Lose, repeat and delay messages from now on; without arguments, stop it.

        Parameters
        ----------
        loss_share, repeat_share, delay_share : float
            Shares of the messages that would arrive, from 0 to 1; nobody is notified of a loss.
        delay_s : float
            The longest delay, uniformly distributed. A delayed message may be overtaken.

        Raises
        ------
        ParameterError
            A share is not from 0 to 1, or the delay is negative.
        """
        shares = {"loss_share": loss_share, "repeat_share": repeat_share, "delay_share": delay_share}
        for name, share in shares.items():
            number(name, share, 0.0, 1.0)
        longest_us = self._checked_us("delay_s", delay_s, US_PER_S)
        if delay_share and not longest_us:
            raise ParameterError(
                "Delayed messages need a delay.",
                where="delay_s",
                found=brief(delay_s),
                expected="over 0 s, with delay_share",
            )

        def fault_hook(transfer: Transfer) -> Sequence[int]:
            """Return the delays of a message at its delivery; none: it is lost, two: it is repeated."""
            # Counted by sender and receiver: what others send and get changes nothing.
            target = self._world.at_address.get(transfer.to)
            to = transfer.to if target is None else target.host.name
            pair = device_number(f"{transfer.sender.host.name}\n{to}")
            draws = self._draws.setdefault(pair, [])
            if not draws:  # for some messages at once: that is most of the work
                first = 4 * (self._mangled[pair] + 1)
                draws += self._stream.uniform(pair, first + np.arange(4 * _DRAWS_AHEAD)).tolist()[::-1]
                self._mangled[pair] += _DRAWS_AHEAD
            draw = [draws.pop() for _ in range(4)]
            if draw[0] < loss_share:
                return ()
            first = int(draw[3] * longest_us) if draw[1] < delay_share else 0
            return (first, first + longest_us) if draw[2] < repeat_share else (first,)

        self._world.fault_hook = fault_hook if any(shares.values()) else None
        self.of_messages = {name: value for name, value in shares.items() if value}

    def _find_host(self, name: str, where: str = "host") -> Host:
        """Return a host by name, or raise ParameterError."""
        if name not in self._world.hosts:
            known = sorted(self._world.hosts)
            raise ParameterError(
                "There is no such device or server.",
                where=where,
                found=brief(name),
                expected=listed(known, "none yet"),
                remedy=did_you_mean(name, known, "add it first: lab.device(name)"),
            )
        return self._world.hosts[name]

    def _find_device(self, name: str) -> Device:
        """Return a device by name, or raise ParameterError if there is none, or it is a server."""
        host = self._find_host(name, "device")
        if not isinstance(host, Device):
            raise ParameterError(
                "A server has no link that could be cut.",
                where="device",
                found=brief(name),
                expected="a device",
                remedy="end the machines of a server with lab.faults.kill(name)",
            )
        return host

    @staticmethod
    def _checked_us(name: str, given: float, unit_us: int) -> int:
        """Convert a parameter to microseconds, or raise ParameterError for one that is not allowed."""
        return round(number(name, given, 0.0, 1e9) * unit_us)


class _CrashTrap:
    """Crash point that kills the machine which reaches the place of this name."""

    def __init__(self, point: str) -> None:
        self._point = point

    def __call__(self, name: str) -> None:
        if name == self._point:
            raise Killed
