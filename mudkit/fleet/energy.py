"""What a radio takes: it is opened, it is active while something is carried, and it stays on for a tail.

A radio's power over time, and who pays for it:

* opened: ``promotion_mw`` for ``promotion_us``, paid by the transfer that opens it;
* active: ``active_mw`` while at least one transfer is on its way, paid by the transfer that keeps it active
  longest, and the energy of its bytes by each;
* tail: ``tail_mw`` until ``tail_us`` after the last transfer, or until the next, paid by that last transfer.

Without a network the radio is off: an outage ends the tail.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mudkit.fleet.bill import Account

__all__ = ["RADIOS", "Radio", "RadioProfile"]

_MJ_PER_MW_US: Final = 1e-6
_FOR_EVER_US: Final = 1 << 60


@dataclass(frozen=True)
class RadioProfile:
    """A kind of radio.

    Parameters
    ----------
    name : str
    promotion_us, promotion_mw : int, float
        Opening it.
    active_mw : float
        While something is carried, whatever it is.
    up_mj_per_kb, down_mj_per_kb : float
        What 1,000 bytes take besides.
    tail_us, tail_mw : int, float
    """

    name: str
    promotion_us: int
    promotion_mw: float
    active_mw: float
    up_mj_per_kb: float
    down_mj_per_kb: float
    tail_us: int
    tail_mw: float


def _lte(up_mw_per_mbps: float, down_mw_per_mbps: float) -> tuple[float, float]:
    """Turn power in proportion to the rate into energy in proportion to the bytes: 1 kB is 0.008 Mbit."""
    return up_mw_per_mbps * 0.008, down_mw_per_mbps * 0.008


_LTE_UP, _LTE_DOWN = _lte(438.39, 51.97)

RADIOS: Final = {
    each.name: each
    for each in (
        RadioProfile("lte", 260_000, 1210.7, 1288.04, _LTE_UP, _LTE_DOWN, 11_576_000, 1060.0),
        # The energy of a ramp (3.5 J, GSM 1.7 J) is spread over the time that we let it take.
        RadioProfile("umts_3g", 2_000_000, 1750.0, 0.0, 25.0, 25.0, 12_500_000, 620.0),
        RadioProfile("edge", 1_000_000, 1700.0, 0.0, 36.0, 36.0, 6_000_000, 250.0),
        # 5.9 J to associate; it then stays so until the network is gone.
        RadioProfile("wifi", 2_000_000, 2950.0, 0.0, 7.0, 7.0, _FOR_EVER_US, 0.0),
    )
}
"""LTE: Huang et al., MobiSys 2012. The others: Balasubramanian et al., IMC 2009 (3G: 0.025 J/KB, tail 0.62 W
for 12.5 s; GSM: 0.036 J/KB, tail 0.25 W for 6 s; WiFi: 0.007 J/KB)."""


class Radio:
    """The radio of one device, as a bookkeeper: O(1) a transfer, exact also for what overlaps and is cut.

    Each direction carries one transfer after the other, and what is scheduled covers the time from now on
    without a gap; so the radio's active time is known when a transfer is scheduled.
    """

    __slots__ = ("_last", "_opener", "active_until_us", "profile", "ready_us")

    def __init__(self, profile: RadioProfile) -> None:
        self.profile = profile
        self.ready_us = 0
        """When it is open: nothing is carried before."""
        self.active_until_us = -(1 << 62)
        """The end of the last transfer that is scheduled."""
        self._last: Account | None = None  # who pays the tail that runs or will run
        self._opener: Account | None = None

    def open(self, now_us: int, account: Account) -> int:
        """Open it if it is closed, while nothing is scheduled, and say when it is ready."""
        profile = self.profile
        gap = now_us - self.active_until_us
        if gap > profile.tail_us or self._last is None:
            self._settle(profile.tail_us)
            account.radio_mj += profile.promotion_us * profile.promotion_mw * _MJ_PER_MW_US
            account.wakeups += 1
            self.ready_us = now_us + profile.promotion_us
            self._opener = account
        else:
            self._settle(gap)
        return self.ready_us

    def carry(self, start_us: int, end_us: int, account: Account) -> int:
        """Schedule a transfer, and say from when on it pays for the radio being active."""
        paid_from = start_us if start_us > self.active_until_us else self.active_until_us
        if end_us > paid_from:
            account.radio_mj += (end_us - paid_from) * self.profile.active_mw * _MJ_PER_MW_US
        if end_us >= self.active_until_us:
            self.active_until_us = end_us
            self._last = account
        return paid_from

    def cut(self, now_us: int) -> None:
        """Switch it off: no tail follows, and a promotion ends halfway."""
        if now_us < self.ready_us and self._opener is not None:
            unused_us = self.ready_us - now_us
            self._opener.radio_mj -= unused_us * self.profile.promotion_mw * _MJ_PER_MW_US
        if now_us > self.active_until_us:
            self._settle(min(now_us - self.active_until_us, self.profile.tail_us))
        self._last = None
        self.active_until_us = min(self.active_until_us, now_us - 1)  # also if it is opened again at once
        self.ready_us = min(self.ready_us, now_us)

    def refund(self, now_us: int, paid_from_us: int, end_us: int, account: Account) -> None:
        """Give back what a transfer paid for the time after it was cut."""
        unused = end_us - max(paid_from_us, now_us)
        if unused > 0:
            account.radio_mj -= unused * self.profile.active_mw * _MJ_PER_MW_US

    def running_tail(self, now_us: int) -> tuple[Account, float] | None:
        """Give who pays the tail that runs now, and what it has taken so far, in mJ."""
        if self._last is None or now_us <= self.active_until_us:
            return None
        spent_us = min(now_us - self.active_until_us, self.profile.tail_us)
        return self._last, spent_us * self.profile.tail_mw * _MJ_PER_MW_US

    def _settle(self, tail_us: int) -> None:
        if self._last is not None:
            self._last.radio_mj += tail_us * self.profile.tail_mw * _MJ_PER_MW_US
            self._last = None
