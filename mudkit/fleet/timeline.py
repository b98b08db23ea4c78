"""What a radio did over time: its states and its power, from what it carried and when it had no network.

The bookkeeper (:class:`mudkit.fleet.energy.Radio`) charges as it goes and never sees a state; this looks back
and integrates. That both give the same energy is a property test.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mudkit.fleet.energy import RadioProfile

__all__ = ["Carried", "Stretch", "timeline"]


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
