"""A device's link: two directions, each first in, first out; nothing arrives while it is down."""

from __future__ import annotations

import functools
from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from math import exp, inf, isnan
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from mudkit.errors import ParameterError, brief, did_you_mean
from mudkit.fleet.bill import Account, Bill
from mudkit.fleet.energy import RADIOS, CarriedTransfer, Radio
from mudkit.sources.streams import Stream, device_number

_STEPS: Final = 16
_DEVICES: Final = 256
_BYTES_PER_KBPS_US: Final = 1.25e-4


@dataclass(frozen=True)
class LinkProfile:
    """A kind of network.

    Parameters
    ----------
    name : str
        Also of its radio, see :data:`mudkit.fleet.energy.RADIOS`.
    latency_ms, latency_spread : float
        One-way latency: the median, and the standard deviation of its logarithm.
    up_kbps, down_kbps : float
        Throughput in kilobits per second.
    """

    name: str
    latency_ms: float
    latency_spread: float
    up_kbps: float
    down_kbps: float


LINKS: Final = {
    profile.name: profile
    for profile in (
        LinkProfile("wifi", 8.0, 0.4, 20_000.0, 40_000.0),
        LinkProfile("lte", 35.0, 0.25, 5_640.0, 12_740.0),
        LinkProfile("umts_3g", 100.0, 0.4, 500.0, 1_500.0),
        LinkProfile("edge", 300.0, 0.5, 80.0, 180.0),
        LinkProfile("ideal", 0.0, 0.0, inf, inf),
    )
}
"""The kinds of network, by name.

LTE: the medians of Huang et al., MobiSys 2012 (12.74 Mbit/s down, 5.64 up, 70 ms round trip). The others are
choices of that order. The ideal one has neither latency nor limit, and costs nothing.
"""


def profile_of(name: Any) -> LinkProfile:
    """Return a profile by name, or raise ParameterError."""
    if not isinstance(name, str) or name not in LINKS:
        raise ParameterError(
            "There is no such kind of link.",
            where="link",
            found=brief(name),
            expected=f"{', '.join(LINKS)}, or measured ones (LinkReplay)",
            remedy=did_you_mean(name, LINKS),
        )
    return LINKS[name]


class Curve:
    """Measured throughput: cumulative bytes by time, piecewise linear.

    The pieces start at ``from_us``, ascending, and the last ends at ``until_us``. Where ``kbps`` is NaN, and
    after the end, it is ``otherwise_kbps``.
    """

    __slots__ = ("_bytes", "_kbps", "_us")

    def __init__(self, from_us: ArrayLike, until_us: int, kbps: ArrayLike, otherwise_kbps: float) -> None:
        edges = np.append(np.asarray(from_us, dtype=np.int64), until_us)
        rates = np.asarray(kbps, dtype=np.float64)
        rates = np.where(np.isnan(rates), otherwise_kbps, rates)
        carried = np.concatenate([[0.0], np.cumsum(np.diff(edges) * rates * _BYTES_PER_KBPS_US)])
        self._us: list[int] = edges.tolist()
        self._bytes: list[float] = carried.tolist()
        self._kbps: list[float] = [*rates.tolist(), otherwise_kbps]

    @property
    def max_kbps(self) -> float:
        """Highest measured throughput, or the one after the end if that is higher."""
        return max(self._kbps)

    def end_us(self, start_us: int, size_bytes: int) -> int:
        """Return the time in µs at which a transfer that starts at ``start_us`` is complete."""
        aim = self._carried_until(start_us) + size_bytes
        piece = bisect_left(self._bytes, aim) - 1 if aim > 0 else 0
        rate = self._kbps[piece] * _BYTES_PER_KBPS_US
        after_us = (aim - self._bytes[piece]) / rate if rate else 0.0
        return max(int(self._us[piece] + after_us), start_us) + 1

    def carried_bytes(self, start_us: int, end_us: int) -> int:
        """Return the number of bytes that can be carried between two times."""
        return int(self._carried_until(end_us) - self._carried_until(start_us))

    def _carried_until(self, t_us: int) -> float:
        """Return the number of bytes that can be carried from the beginning to a time."""
        piece = max(bisect_right(self._us, t_us) - 1, 0)
        return self._bytes[piece] + (t_us - self._us[piece]) * self._kbps[piece] * _BYTES_PER_KBPS_US


class Instant:
    """The curve of a link without limit."""

    __slots__ = ()
    max_kbps: Final = 1e12

    def end_us(self, start_us: int, size_bytes: int) -> int:
        """Return when a transfer is complete: at once."""
        return start_us

    def carried_bytes(self, start_us: int, end_us: int) -> int:
        """Return a number of bytes above any message's size."""
        return 1 << 62


INSTANT: Final = Instant()


class Transfer(msgspec.Struct, frozen=True):
    """A message on its way; ``start_number`` is that of the start of the machine that sent it."""

    sender: Any
    start_number: int
    source: str
    to: str
    message: Any
    size_bytes: int
    sent_us: int
    is_repeat: bool = False


class Leg(msgspec.Struct, frozen=True, eq=False):
    """A transfer on one direction of a link; each is equal to itself only.

    It was queued at ``begun_us``; its first and last byte leave at ``start_us`` and ``end_us``. It pays for
    the active radio from ``paid_from_us`` on.
    """

    transfer: Transfer
    direction: Any
    account: Account
    begun_us: int
    start_us: int
    end_us: int
    arrive_us: int
    paid_from_us: int

    def has_left(self, now_us: int) -> bool:
        """Return whether it has left its direction before now: no cut of the link concerns it."""
        return self.arrive_us < now_us


@functools.cache
def _rates(profile: LinkProfile, direction: str) -> tuple[float, float, float, float]:
    """Return µs and mJ per byte, and the latency's median in µs and its spread.

    Cached, so that all devices of a large fleet share the same objects in the processor's caches.
    """
    radio, up = RADIOS[profile.name], direction.endswith("up")
    us_per_byte = 8_000.0 / (profile.up_kbps if up else profile.down_kbps)
    mj_per_byte = (radio.up_mj_per_kb if up else radio.down_mj_per_kb) / 1000.0
    return us_per_byte, mj_per_byte, profile.latency_ms * 1000.0, profile.latency_spread


class Draws:
    """Standard normal draws for the latencies of messages, in blocks of neighbouring devices.

    Each draw is a function of the device and the step, so blocks change no value.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._devices: list[int] = []
        self._drawn: dict[tuple[int, int], NDArray[np.float64]] = {}

    def add_device(self, device: int) -> int:
        """Register a device by its number; return its index for :meth:`take_draws`."""
        self._devices.append(device)
        return len(self._devices) - 1

    def take_draws(self, place: int, step: int) -> array[float]:
        """Return a block of draws of a device, those from ``step`` on, in reverse order, to be popped."""
        group, row = divmod(place, _DEVICES)
        drawn = self._drawn.get((group, step))
        if drawn is None or row >= len(drawn):
            numbers = np.array(self._devices[group * _DEVICES : (group + 1) * _DEVICES], dtype=np.uint64)
            steps = np.arange(step, step + _STEPS)
            drawn = self._stream.normal(numbers[:, None], steps)[:, ::-1].copy()
            self._drawn.pop((group, step - 2 * _STEPS), None)
            self._drawn[group, step] = drawn
        return array("d", drawn[row].tobytes())


class Direction:
    """One direction of a device's link: it carries one transfer after the other, and charges each."""

    __slots__ = (
        "_draws", "_last_arrival_us", "_left", "_place", "_step", "account", "curve", "free_us", "latency_us",
        "link", "mj_per_byte", "name", "radio", "sender", "spread", "underway", "us_per_byte",
    )  # fmt: skip

    def __init__(self, link: Link, name: str, draws: Draws, device: int) -> None:
        self.link = link
        self.radio = link.radio
        self.name = name
        self._draws = draws
        self._place = draws.add_device(device)
        self._step = 0
        self._left = array("d")
        self._last_arrival_us = 0
        self.sender: Any = None
        """Process that sent last; ``account`` is its account."""
        self.account: Account
        self.free_us = 0
        self.underway: deque[Leg] = deque()
        """In order of arrival; one that has left it may stay until the end of its way to a server."""
        self.curve: Curve | Instant | None = None
        """Measured throughput, which replaces the profile's."""
        self.adopt_profile(link.profile)

    def adopt_profile(self, profile: LinkProfile) -> None:
        """Use the rates of another network's profile; what was measured does not apply there."""
        self.us_per_byte, self.mj_per_byte, self.latency_us, self.spread = _rates(profile, self.name)
        self.curve = INSTANT if self.us_per_byte == 0.0 else None  # what was measured was another network

    def enqueue(self, transfer: Transfer, now_us: int) -> Leg:
        """Queue a transfer behind those under way: compute its times, and charge its bytes and energy."""
        if transfer.sender is not self.sender:
            self.sender = sender = transfer.sender
            self.account = self.link.bill.account(sender.system, self.link.device, self.name)
        size, radio, account = transfer.size_bytes, self.radio, self.account
        active_until_us = radio.active_until_us
        # Conditions instead of max(), and the radio's books kept here: this is done for every message.
        start_us = now_us if now_us > self.free_us else self.free_us
        ready_us = radio.open(now_us, account) if now_us > active_until_us else radio.ready_us
        if ready_us > start_us:
            start_us = ready_us
        if self.curve is None:
            end_us = start_us + int(size * self.us_per_byte) + 1
        else:
            end_us = self.curve.end_us(start_us, size)
        left = self._left
        if not left:
            left = self._left = self._draws.take_draws(self._place, self._step)
            self._step += _STEPS
        arrive_us = end_us + int(self.latency_us * exp(self.spread * left.pop()))
        if arrive_us < self._last_arrival_us:
            arrive_us = self._last_arrival_us
        charged_mj = size * self.mj_per_byte
        paid_from_us = start_us if start_us > active_until_us else active_until_us
        if end_us > paid_from_us:
            charged_mj += (end_us - paid_from_us) * radio.active_mj_per_us
        if end_us >= active_until_us:
            radio.active_until_us = end_us
            radio.last = account
        account.messages += 1
        account.bytes += size
        account.radio_mj += charged_mj
        self.free_us, self._last_arrival_us = end_us, arrive_us
        leg = Leg(transfer, self, account, now_us, start_us, end_us, arrive_us, paid_from_us)
        self.underway.append(leg)
        return leg

    def cut(self, now_us: int) -> list[tuple[Leg, int]]:
        """Cancel all transfers under way that have not left it, and refund what they have not used.

        Return each with its bytes sent.
        """
        cut, left = [], []
        for leg, unused_bytes, unused_mj in self.unused_charges(now_us):
            if leg.has_left(now_us):
                left.append(leg)
                continue
            leg.account.bytes -= unused_bytes
            leg.account.radio_mj -= unused_mj
            cut.append((leg, leg.transfer.size_bytes - unused_bytes))
        self.underway = deque(left)
        self.free_us = min(self.free_us, now_us)
        self._last_arrival_us = min(self._last_arrival_us, now_us)
        return cut

    def unused_charges(self, now_us: int) -> Iterator[tuple[Leg, int, float]]:
        """Yield each transfer under way with the bytes and mJ that are charged but not used yet."""
        for leg in self.underway:
            unused_bytes = leg.transfer.size_bytes - self._sent_bytes(leg, now_us)
            active_us = max(leg.end_us - max(leg.paid_from_us, now_us), 0)
            active_mj = active_us * self.radio.active_mj_per_us
            yield leg, unused_bytes, unused_bytes * self.mj_per_byte + active_mj

    def _sent_bytes(self, leg: Leg, now_us: int) -> int:
        """Return how many bytes of a transfer have been sent by now."""
        size_bytes = leg.transfer.size_bytes
        if now_us >= leg.end_us:
            return size_bytes
        if now_us <= leg.start_us:
            return 0
        if self.curve is not None:
            return min(self.curve.carried_bytes(leg.start_us, now_us), size_bytes)
        return int(size_bytes * (now_us - leg.start_us) / (leg.end_us - leg.start_us))


class SplitDirection(Direction):
    """Direction of a link whose bill is split: it charges each transfer to the account of its reason."""

    __slots__ = ()

    def enqueue(self, transfer: Transfer, now_us: int) -> Leg:
        """Queue a transfer as :meth:`Direction.enqueue`."""
        bill, self.sender = self.link.bill, transfer.sender
        reason = "" if bill.sort is None else bill.sort(transfer)
        self.account = bill.account(transfer.sender.system, self.link.device, self.name, reason)
        return super().enqueue(transfer, now_us)


class Link:
    """A device's link: an up and a down direction, which share one radio; ``prefix`` is of their names."""

    __slots__ = (
        "bill",
        "device",
        "down",
        "down_kbps",
        "latency_ms",
        "profile",
        "profiles",
        "radio",
        "up",
        "up_kbps",
    )

    def __init__(
        self, profile: LinkProfile, device_name: str, bill: Bill, up: Draws, down: Draws, prefix: str = ""
    ) -> None:
        self.bill = bill
        self.profile = profile
        self.profiles = [(0, profile)]
        """All profiles so far, each with the time from which it applies."""
        self.down_kbps, self.up_kbps = profile.down_kbps, profile.up_kbps
        """Current throughput."""
        self.latency_ms = profile.latency_ms
        self.device = device_name
        self.radio = Radio(RADIOS[profile.name])
        device = device_number(device_name)
        direction = Direction if bill.sort is None else SplitDirection
        self.up = direction(self, prefix + "up", up, device)
        self.down = direction(self, prefix + "down", down, device)

    def switch_network(self, profile: LinkProfile, now_us: int) -> None:
        """Switch to another kind of network; the caller has ended what was under way."""
        self.profile = profile
        self.profiles.append((now_us, profile))
        self.down_kbps, self.up_kbps = profile.down_kbps, profile.up_kbps
        self.latency_ms = profile.latency_ms
        self.radio.switch_profile(RADIOS[profile.name])
        for direction in (self.up, self.down):
            direction.adopt_profile(profile)

    def limit(self, down_kbps: float, up_kbps: float) -> None:
        """Set the throughput from now on; what is under way keeps its times."""
        self.down_kbps, self.up_kbps = down_kbps, up_kbps
        self.down.us_per_byte, self.up.us_per_byte = 8_000.0 / down_kbps, 8_000.0 / up_kbps

    def set_measured(self, down_kbps: float, up_kbps: float, latency_ms: float) -> None:
        """Set the latency, and the throughput that is shown, from now on; NaN: as in the profile.

        Transfers are timed by the curves of the recording instead.
        """
        profile = self.profile
        self.down_kbps = profile.down_kbps if isnan(down_kbps) else down_kbps
        self.up_kbps = profile.up_kbps if isnan(up_kbps) else up_kbps
        self.latency_ms = profile.latency_ms if isnan(latency_ms) else latency_ms
        self.up.latency_us = self.down.latency_us = self.latency_ms * 1000.0

    def carried_so_far(self, now_us: int) -> list[CarriedTransfer]:
        """Return the transfers that have not left the link, as if they had ended now."""
        return [
            CarriedTransfer(
                direction.name,
                leg.begun_us,
                min(leg.start_us, now_us),
                min(leg.end_us, now_us),
                leg.transfer.size_bytes - unused_bytes,
            )
            for direction in (self.up, self.down)
            for leg, unused_bytes, _ in direction.unused_charges(now_us)
            if not leg.has_left(now_us)
        ]

    def corrections(self, now_us: int) -> Iterator[tuple[Account, int, float]]:
        """Yield differences between what is used and what is charged: account, bytes, mJ."""
        for direction in (self.up, self.down):
            for leg, unused_bytes, unused_mj in direction.unused_charges(now_us):
                yield leg.account, -unused_bytes, -unused_mj
        for account, radio_mj in self.radio.corrections(now_us):
            yield account, 0, radio_mj
