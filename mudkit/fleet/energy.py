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
from typing import Final, NamedTuple

from mudkit.fleet.bill import Account

__all__ = ["MJ_PER_MW_US", "RADIOS", "Carried", "Radio", "RadioProfile", "Stretch", "timeline"]

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


class Carried(NamedTuple):
    """A transfer that is over, whole or cut.

    Parameters
    ----------
    direction : {'up', 'down'}
    begun_us, started_us, ended_us : int
        It came to the link; its first byte; its last byte, or the cut.
    carried_bytes : int
    """

    direction: str
    begun_us: int
    started_us: int
    ended_us: int
    carried_bytes: int


class Stretch(NamedTuple):
    """A time in which the radio does one thing.

    Parameters
    ----------
    from_us, to_us : int
    state : {'idle', 'promotion', 'active', 'tail'}
    power_mw : float
    """

    from_us: int
    to_us: int
    state: str
    power_mw: float


def timeline(
    radio: RadioProfile,
    carried: Sequence[Carried],
    downs_us: Sequence[int],
    until_us: int,
    from_us: int = 0,
) -> list[Stretch]:
    """Give the stretches of a radio between two times, without a gap.

    Parameters
    ----------
    radio : RadioProfile
    carried : sequence of Carried
        All transfers of a device.
    downs_us : sequence of int
        When it lost its network: the radio is off then.
    until_us, from_us : int
    """
    stretches: list[Stretch] = []
    at_us = from_us
    in_order = sorted(carried, key=lambda each: each.begun_us)
    for session, off_us in _sessions(radio, in_order, sorted(downs_us)):
        for stretch in _session(radio, session, min(off_us, until_us)):
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
    radio: RadioProfile, carried: Sequence[Carried], downs_us: Sequence[int]
) -> Iterator[tuple[list[Carried], int]]:
    """Part the transfers where the radio was off between them; with the time at which it was cut."""
    session: list[Carried] = []
    for transfer in carried:
        if session:
            off_us = _off(session, downs_us)
            last_us = max(each.ended_us for each in session)
            if off_us <= transfer.begun_us or transfer.begun_us > last_us + radio.tail_us:
                yield session, off_us
                session = []
        session.append(transfer)
    if session:
        yield session, _off(session, downs_us)


def _off(session: Sequence[Carried], downs_us: Sequence[int]) -> int:
    """When the radio is cut: at the first loss of the network after the session began.

    A loss at the very time at which it began was before, unless it ended that transfer.
    """
    first = session[0]
    after = [at for at in downs_us if at > first.begun_us or (at == first.begun_us == first.ended_us)]
    return min(after, default=1 << 62)


def _session(radio: RadioProfile, session: Sequence[Carried], end_us: int) -> Iterator[Stretch]:
    opened_us = session[0].begun_us
    ready_us = opened_us + radio.promotion_us
    yield Stretch(opened_us, min(ready_us, end_us), "promotion", radio.promotion_mw)
    begins = [(each, min(each.started_us, end_us), min(each.ended_us, end_us)) for each in session]
    begins = [(each, start, end) for each, start, end in begins if end > start]
    last_us = max([ready_us, *(end for _, _, end in begins)])
    edges = sorted({ready_us, *(edge for _, *span in begins for edge in span)})
    for start, end in zip(edges, [*edges[1:], last_us], strict=True):
        if start >= end_us or end <= start:
            continue
        power_mw, is_active = 0.0, False
        for each, first, last in begins:
            if first <= start and end <= last:
                is_active = True
                per_kb = radio.up_mj_per_kb if each.direction == "up" else radio.down_mj_per_kb
                # mJ over µs is kW: a million of them are a mW.
                power_mw += each.carried_bytes / 1000 * per_kb / (last - first) * 1e6
        if is_active:
            yield Stretch(start, end, "active", radio.active_mw + power_mw)
        else:
            yield Stretch(start, end, "tail", radio.tail_mw)
    if last_us < end_us:
        yield Stretch(last_us, min(last_us + radio.tail_us, end_us), "tail", radio.tail_mw)
