"""The bytes and the radio energy that the messages of a policy take, by the fleet's models of link and radio.

Replay knows when a policy sends, not what a network does to it. Here each message takes the median latency
and the full rate of its link, and the radio carries nothing else: what other traffic would keep awake, or
would share a tail with, is left out. So figures of two policies compare; a lab has the bill.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mudkit.fleet import RADIOS
from mudkit.fleet.energy import MJ_PER_MW_US
from mudkit.fleet.link import profile_of
from mudkit.sources.parameters import number

__all__ = ["RadioModel", "RadioUse"]


class RadioUse(NamedTuple):
    """Bytes and energy of each exchange.

    Attributes
    ----------
    bytes : ndarray of float64, shape (exchanges,)
        The bytes of each exchange, up and down together.
    radio_mj : ndarray of float64, shape (exchanges,)
        The energy of the radio, in millijoules: opening it, carrying, and the tail until the device's next
        exchange.
    """

    bytes: NDArray[np.float64]
    radio_mj: NDArray[np.float64]


@dataclass(frozen=True)
class RadioModel:
    """A link, and how large messages are on it.

    The sizes are those of MUD tables in a lab, of records with a place and a time (a test measures them).

    Parameters
    ----------
    link : str
        The profile of the link, a key of :data:`mudkit.fleet.link.LINKS`.
    query_messages : float
        The messages that a query takes: itself, a part of the answer, and the word that the answer is
        complete.
    query_bytes, answer_bytes : float
        The bytes of a query up, and those that come down besides its points.
    point_bytes : float
        The bytes of a point in an answer.
    batch_bytes, acknowledged_bytes : float
        The bytes of a message with writes up, besides the writes; and those that come down for each write.
    write_bytes : float
        The bytes of a write in such a message.

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
            The device of each query and when it is sent, in microseconds; ordered by device and time.
        points : ndarray of int64, shape (queries,)
            How many points the answer of each query holds.
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
            How many writes each message carries.
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
            The device of each exchange and when it begins, in microseconds; ordered by device and time.
        up_bytes, down_bytes : ndarray of float64, shape (exchanges,)
            The bytes of each message up, and of its answer down.
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
