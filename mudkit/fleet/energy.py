"""What a radio takes: it is opened, it is active while something is carried, and it stays on for a tail.

A radio's power over time, and who pays for it:

* opened: ``promotion_mw`` for ``promotion_us``, paid by the transfer that opens it;
* active: ``active_mw`` while at least one transfer is on its way, paid by the transfer that keeps it active
  longest, and the energy of its bytes by each;
* tail: ``tail_mw`` until ``tail_us`` after the last transfer, or until the next, paid by that last transfer.

Without a network the radio is off: an outage ends the tail.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from mudkit.fleet.bill import Account

__all__ = ["MJ_PER_MW_US", "RADIOS", "Radio", "RadioProfile"]

MJ_PER_MW_US: Final = 1e-6
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
        RadioProfile("ideal", 0, 0.0, 0.0, 0.0, 0.0, 0, 0.0),
    )
}
"""The radios, by kind of network.

LTE: Huang et al., MobiSys 2012. The others: Balasubramanian et al., IMC 2009 (3G: 0.025 J/KB, tail 0.62 W
for 12.5 s; GSM: 0.036 J/KB, tail 0.25 W for 6 s; WiFi: 0.007 J/KB).
"""


class Radio:
    """The radio of one device, as a bookkeeper: O(1) a transfer, exact also for what overlaps and is cut.

    Each direction carries one transfer after the other, and what is scheduled covers the time from now on
    without a gap; so the radio's active time is known when a transfer is scheduled. What is scheduled is
    charged at once; :meth:`corrections` gives back what has not happened yet.
    """

    __slots__ = ("_opener", "active_mj_per_us", "active_until_us", "last", "profile", "ready_us")

    def __init__(self, profile: RadioProfile) -> None:
        self.ready_us = 0
        """When it is open: nothing is carried before."""
        self.active_until_us = -(1 << 62)
        """The end of the last transfer that is scheduled."""
        self.last: Account | None = None
        """Who pays the tail that runs or will run."""
        self._opener: Account | None = None
        self.use(profile)

    def use(self, profile: RadioProfile) -> None:
        """Become another radio; it must be off."""
        self.profile = profile
        self.active_mj_per_us = profile.active_mw * MJ_PER_MW_US

    def open(self, now_us: int, account: Account) -> int:
        """Open it if it is closed, while nothing is scheduled, and say when it is ready."""
        profile, last = self.profile, self.last
        tail_us = now_us - self.active_until_us
        closed = last is None or tail_us > profile.tail_us
        if last is not None:
            if closed:
                tail_us = profile.tail_us
            last.radio_mj += tail_us * profile.tail_mw * MJ_PER_MW_US
            self.last = None
        if closed:
            account.radio_mj += profile.promotion_us * profile.promotion_mw * MJ_PER_MW_US
            account.wakeups += 1
            self.ready_us = now_us + profile.promotion_us
            self._opener = account
        return self.ready_us

    def cut(self, now_us: int) -> None:
        """Switch it off: no tail follows, and a promotion ends halfway."""
        for account, radio_mj in self.corrections(now_us):
            account.radio_mj += radio_mj
        self.last = None
        self.active_until_us = min(self.active_until_us, now_us - 1)  # also if it is opened again at once
        self.ready_us = min(self.ready_us, now_us)

    def corrections(self, now_us: int) -> Iterator[tuple[Account, float]]:
        """Give what differs now from what is charged, transfers apart: by account, in mJ.

        The part of a promotion that is still to come is charged already; the tail that runs is not yet.
        """
        profile = self.profile
        if now_us < self.ready_us and self._opener is not None:
            yield self._opener, (now_us - self.ready_us) * profile.promotion_mw * MJ_PER_MW_US
        if self.last is not None and now_us > self.active_until_us:
            tail_us = min(now_us - self.active_until_us, profile.tail_us)
            yield self.last, tail_us * profile.tail_mw * MJ_PER_MW_US
