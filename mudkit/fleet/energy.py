"""Energy of a radio: what its transfers are charged, and its states over time.

A radio's power over time, and which transfer pays for it:

* opened: ``promotion_mw`` for ``promotion_us``, paid by the transfer that opens it;
* active: ``active_mw`` while at least one transfer is on its way, paid by the transfer that keeps it active
  longest, and the energy of its bytes by each;
* tail: ``tail_mw`` until ``tail_us`` after the last transfer, or until the next, paid by that last transfer.

Without a network the radio is off: an outage ends the tail.

:class:`Radio` charges transfers when they are scheduled and keeps no state history. :func:`timeline`
reconstructs the states afterwards and integrates the power. A property test checks that both agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from mudkit.fleet.bill import Account

MJ_PER_MW_US: Final = 1e-6
_FOR_EVER_US: Final = 1 << 60


@dataclass(frozen=True)
class RadioProfile:
    """A kind of radio.

    Parameters
    ----------
    name : str
        The same as of the link's profile.
    promotion_us, promotion_mw : int, float
        Duration and power of opening it.
    active_mw : float
        Power while at least one transfer is on its way.
    up_mj_per_kb, down_mj_per_kb : float
        Energy of 1,000 bytes, in addition.
    tail_us, tail_mw : int, float
        Duration and power of the tail.
    """

    name: str
    promotion_us: int
    promotion_mw: float
    active_mw: float
    up_mj_per_kb: float
    down_mj_per_kb: float
    tail_us: int
    tail_mw: float


_LTE_UP, _LTE_DOWN = 438.39 * 0.008, 51.97 * 0.008  # from mW per Mbit/s: 1 kB is 0.008 Mbit
_J_PER_BIT: Final = 8_000 * 1_000
"""In mJ per kB."""
_BLUETOOTH: Final = 5.72e-7 * _J_PER_BIT  # at 685 kbit/s
_WIFI_DIRECT: Final = (6.45e-7 - 1.27e-10 * (5_000 - 2_130)) * _J_PER_BIT

RADIOS: Final = {
    profile.name: profile
    for profile in (
        RadioProfile("lte", 260_000, 1210.7, 1288.04, _LTE_UP, _LTE_DOWN, 11_576_000, 1060.0),
        # The energy of a ramp (3.5 J, GSM 1.7 J) is spread over the time that we let it take.
        RadioProfile("umts_3g", 2_000_000, 1750.0, 0.0, 25.0, 25.0, 12_500_000, 620.0),
        RadioProfile("edge", 1_000_000, 1700.0, 0.0, 36.0, 36.0, 6_000_000, 250.0),
        # 5.9 J to associate; it then stays so until the network is gone.
        RadioProfile("wifi", 2_000_000, 2950.0, 0.0, 7.0, 7.0, _FOR_EVER_US, 0.0),
        RadioProfile("ideal", 0, 0.0, 0.0, 0.0, 0.0, 0, 0.0),
        RadioProfile("bluetooth", 0, 0.0, 0.0, _BLUETOOTH, _BLUETOOTH, 0, 0.0),
        RadioProfile("wifi_direct", 0, 0.0, 0.0, _WIFI_DIRECT, _WIFI_DIRECT, 0, 0.0),
    )
}
"""The radios, by kind of network.

LTE: Huang et al., MobiSys 2012. The others: Balasubramanian et al., IMC 2009 (3G: 0.025 J/KB, tail 0.62 W
for 12.5 s; GSM: 0.036 J/KB, tail 0.25 W for 6 s; WiFi: 0.007 J/KB). Short-range radios: Aalborg University,
"Energy measurements on mobile phones": J per bit at R kbit/s is 5.72e-7 - 4.89e-10 (R - 685) for Bluetooth,
6.45e-7 - 1.27e-10 (R - 2,130) for Wi-Fi, measured on a phone that received.
"""


class Radio:
    """Accounting of one device's radio: O(1) per transfer, exact also for overlapping and cut transfers.

    Each direction carries one transfer after the other, and the schedule has no gaps from now on, so the
    radio's active time is known when a transfer is scheduled. It is charged at once; :meth:`corrections`
    subtracts what has not happened yet.
    """

    __slots__ = (
        "_opener", "_promotion_mj", "_tail_mj", "active_mj_per_us", "active_until_us", "last", "profile",
        "ready_us",
    )  # fmt: skip

    def __init__(self, profile: RadioProfile) -> None:
        self.ready_us = 0
        """Time at which the promotion is complete."""
        self.active_until_us = -(1 << 62)
        """End of the last scheduled transfer."""
        self.last: Account | None = None
        """Account that pays for the current or next tail."""
        self._opener: Account | None = None
        self.switch_profile(profile)

    def switch_profile(self, profile: RadioProfile) -> None:
        """Switch to another kind of radio, for another network; it must be off."""
        self.profile = profile
        self.active_mj_per_us = profile.active_mw * MJ_PER_MW_US
        self._promotion_mj = profile.promotion_us * profile.promotion_mw * MJ_PER_MW_US
        self._tail_mj = profile.tail_us * profile.tail_mw * MJ_PER_MW_US

    def open(self, now_us: int, account: Account) -> int:
        """Charge an account for opening the radio, if it is closed; return when it is ready, in µs."""
        profile, last = self.profile, self.last
        if last is not None:
            tail_us = now_us - self.active_until_us
            if tail_us <= profile.tail_us:
                last.radio_mj += tail_us * profile.tail_mw * MJ_PER_MW_US
                return self.ready_us
            last.radio_mj += self._tail_mj
        account.radio_mj += self._promotion_mj
        account.wakeups += 1
        self.ready_us = ready_us = now_us + profile.promotion_us
        self._opener = account
        return ready_us

    def cut(self, now_us: int) -> None:
        """Switch it off: no tail follows, and a promotion ends halfway."""
        for account, radio_mj in self.corrections(now_us):
            account.radio_mj += radio_mj
        self.last = None
        self.active_until_us = min(self.active_until_us, now_us - 1)  # also if it is opened again at once
        self.ready_us = min(self.ready_us, now_us)

    def corrections(self, now_us: int) -> Iterator[tuple[Account, float]]:
        """Yield differences between what is used and what is charged, by account in mJ; transfers excluded.

        A pending promotion is charged already; a running tail is not charged yet.
        """
        profile = self.profile
        if now_us < self.ready_us and self._opener is not None:
            yield self._opener, (now_us - self.ready_us) * profile.promotion_mw * MJ_PER_MW_US
        if self.last is not None and now_us > self.active_until_us:
            tail_us = min(now_us - self.active_until_us, profile.tail_us)
            yield self.last, tail_us * profile.tail_mw * MJ_PER_MW_US


class CarriedTransfer(NamedTuple):
    """A transfer that has ended, whole or cut: times of its request, first byte, and last byte or cut."""

    direction: str
    begun_us: int
    started_us: int
    ended_us: int
    carried_bytes: int


class Stretch(NamedTuple):
    """A time range in which a radio is in one state: ``idle``, ``promotion``, ``active`` or ``tail``."""

    from_us: int
    to_us: int
    state: str
    power_mw: float


def timeline(
    radio: RadioProfile,
    carried: Sequence[CarriedTransfer],
    downs_us: Sequence[int],
    until_us: int,
    from_us: int = 0,
) -> list[Stretch]:
    """Return the states of a radio between two times, without a gap; it is off after each of ``downs_us``."""
    stretches: list[Stretch] = []
    at_us = from_us
    in_order = sorted(carried, key=lambda transfer: transfer.begun_us)
    for session, off_us in _sessions(radio, in_order, sorted(downs_us)):
        for stretch in _session_stretches(radio, session, min(off_us, until_us)):
            if stretch.to_us <= stretch.from_us:
                continue
            if stretch.from_us > at_us:
                stretches.append(Stretch(at_us, stretch.from_us, "idle", 0.0))
            stretches.append(stretch)
            at_us = stretch.to_us
    if until_us > at_us:
        stretches.append(Stretch(at_us, until_us, "idle", 0.0))
    return stretches


def _sessions(
    radio: RadioProfile, carried: Sequence[CarriedTransfer], downs_us: Sequence[int]
) -> Iterator[tuple[list[CarriedTransfer], int]]:
    """Split transfers, in order of their beginning, into sessions, between which the radio was off.

    Each comes with the time of the first loss of the network after it began, which may be after its tail;
    ``1 << 62``: there is none.
    """
    session: list[CarriedTransfer] = []
    for transfer in carried:
        if session:
            off_us = _off_us(session, downs_us)
            last_us = max(earlier.ended_us for earlier in session)
            if off_us <= transfer.begun_us or transfer.begun_us > last_us + radio.tail_us:
                yield session, off_us
                session = []
        session.append(transfer)
    if session:
        yield session, _off_us(session, downs_us)


def _off_us(session: Sequence[CarriedTransfer], downs_us: Sequence[int]) -> int:
    """Return when the radio is cut: at the first loss of the network after the session began.

    A loss at the very time at which it began was before, unless it ended that transfer.
    """
    first = session[0]
    after = [at for at in downs_us if at > first.begun_us or (at == first.begun_us == first.ended_us)]
    return min(after, default=1 << 62)


def _session_stretches(
    radio: RadioProfile, session: Sequence[CarriedTransfer], end_us: int
) -> Iterator[Stretch]:
    """Yield the states of the radio from its opening to the end of its tail, or to ``end_us``."""
    opened_us = session[0].begun_us
    ready_us = opened_us + radio.promotion_us
    yield Stretch(opened_us, min(ready_us, end_us), "promotion", radio.promotion_mw)
    spans = [
        (transfer, min(transfer.started_us, end_us), min(transfer.ended_us, end_us)) for transfer in session
    ]
    spans = [(transfer, start, end) for transfer, start, end in spans if end > start]
    last_us = max([ready_us, *(end for _, _, end in spans)])
    edges = sorted({ready_us, *(edge for _, *span in spans for edge in span)})
    for start, end in pairwise([*edges, last_us]):
        power_mw, is_active = 0.0, False
        for transfer, first, last in spans:
            if first <= start and end <= last:
                is_active = True
                per_kb = radio.up_mj_per_kb if transfer.direction == "up" else radio.down_mj_per_kb
                # mJ over µs is kW: a million of them are a mW.
                power_mw += transfer.carried_bytes / 1000 * per_kb / (last - first) * 1e6
        if is_active:
            yield Stretch(start, end, "active", radio.active_mw + power_mw)
        else:
            yield Stretch(start, end, "tail", radio.tail_mw)
    if last_us < end_us:
        yield Stretch(last_us, min(last_us + radio.tail_us, end_us), "tail", radio.tail_mw)
