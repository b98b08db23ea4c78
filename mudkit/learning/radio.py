"""The bytes and the radio energy that the messages of a policy take, by the fleet's models of link and radio.

Each message takes the median latency and the full rate of its link, and the radio carries nothing else. So
figures of two policies compare; a lab has the bill.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mudkit.checks import check_arguments, number
from mudkit.fleet import RADIOS
from mudkit.fleet.energy import MJ_PER_MW_US
from mudkit.fleet.link import profile_of


class RadioUse(NamedTuple):
    """Bytes, up and down, and radio energy of exchanges, with the tail until the device's next one."""

    bytes: NDArray[np.float64]
    radio_mj: NDArray[np.float64]


@check_arguments(types=False)
@dataclass(frozen=True)
class RadioModel:
    """A link, and how large messages are on it.

    The sizes are those of MUD tables in a lab, of records with a place and a time (a test measures them).

    Parameters
    ----------
    link : str
        The profile of the link, a key of :data:`mudkit.fleet.link.LINKS`.
    query_messages : float
        Messages of a query: itself, a part of the answer, and the end of the answer.
    query_bytes, answer_bytes, point_bytes : float
        Bytes of a query up, and those that come down for its answer and for each point in it.
    batch_bytes, write_bytes, acknowledged_bytes : float
        Bytes of a message with writes up, those of each write in it, and those that come down for each.

    Raises
    ------
    ParameterError
        There is no such link, or a size is none.
    """

    link: str = "lte"
    query_messages: float = 3.0
    query_bytes: float = 645.0
    answer_bytes: float = 390.0
    point_bytes: float = 158.0
    batch_bytes: float = 205.0
    acknowledged_bytes: float = 213.0
    write_bytes: float = 295.0

    def __post_init__(self) -> None:
        profile_of(self.link)
        for name in fields(self)[1:]:
            number(name.name, getattr(self, name.name), 0.0, 1e9)

    def queries(
        self, device: NDArray[np.int64], t_us: NDArray[np.int64], points: NDArray[np.int64]
    ) -> RadioUse:
        """Charge queries that are sent.

        Parameters
        ----------
        device, t_us : ndarray of int64, shape (queries,)
            Device and time of each query; ordered by device and time.
        points : ndarray of int64, shape (queries,)
            Points in the answer of each query.
        """
        down = self.answer_bytes + self.point_bytes * points.astype(np.float64)
        return self.exchanges(device, t_us, np.full(len(t_us), self.query_bytes), down)

    def messages(
        self, device: NDArray[np.int64], t_us: NDArray[np.int64], writes: NDArray[np.int64]
    ) -> RadioUse:
        """Charge messages with writes: see :meth:`queries`.

        Parameters
        ----------
        writes : ndarray of int64, shape (messages,)
            Writes in each message.
        """
        many = writes.astype(np.float64)
        up = self.batch_bytes + self.write_bytes * many
        return self.exchanges(device, t_us, up, self.acknowledged_bytes * many)

    def exchanges(
        self,
        device: NDArray[np.int64],
        t_us: NDArray[np.int64],
        up_bytes: NDArray[np.float64],
        down_bytes: NDArray[np.float64],
    ) -> RadioUse:
        """Charge exchanges of a message up and its answer down, as :class:`mudkit.fleet.energy.Radio` does.

        Parameters
        ----------
        device, t_us : ndarray of int64, shape (exchanges,)
            Device and start of each exchange; ordered by device and time.
        up_bytes, down_bytes : ndarray of float64, shape (exchanges,)
            Bytes of each message up, and of its answer down.
        """
        profile, radio = profile_of(self.link), RADIOS[self.link]
        carrying_us = 8_000.0 * (up_bytes / profile.up_kbps + down_bytes / profile.down_kbps)
        waiting_us = 2_000.0 * profile.latency_ms
        same = np.equal(device[1:], device[:-1])
        gap_us = np.where(same, np.diff(t_us) - (carrying_us + waiting_us)[:-1], np.inf)
        idle_us = np.full(len(t_us), np.inf)  # until the next exchange of the device: the last tail runs out
        closed = np.ones(len(t_us), dtype=np.bool_)
        while len(t_us):  # what opens the radio ends later, so the next may find it open
            idle_us[:-1] = gap_us - radio.promotion_us * closed[:-1]
            finds = np.append(True, idle_us[:-1] > radio.tail_us)
            if np.array_equal(finds, closed):
                break
            closed = finds
        tail_us = waiting_us + np.clip(idle_us, 0.0, radio.tail_us)
        radio_mj = (
            (radio.up_mj_per_kb * up_bytes + radio.down_mj_per_kb * down_bytes) / 1000.0
            + MJ_PER_MW_US * radio.active_mw * carrying_us
            + MJ_PER_MW_US * radio.tail_mw * tail_us
            + MJ_PER_MW_US * radio.promotion_mw * radio.promotion_us * closed
        )
        return RadioUse(up_bytes + down_bytes, radio_mj)
