"""An oracle for delays by hour: the best that the hour can tell, chosen on the writes it is measured on.

Nobody can use such a table. It estimates how much of the gap to the bound a policy could close that knows of
a write only its hour and whether it is a weekend. It is no proof: the search is a descent and may stop short,
and a tree knows the place, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from mudkit.learning.batching import delayed
from mudkit.learning.costs import CLASSES
from mudkit.learning.writes import ReadRequests, Writes, batches, missed
from mudkit.units import solar_time

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ORACLE_PRICES", "hours_of", "oracle_frontier"]

ORACLE_PRICES: Final = (0.1, 0.2, 0.4)
"""Prices of a read that misses a write, in messages."""
_HOURS: Final = 24
_SATURDAY: Final = 5
_CLASSES: Final = tuple(
    CLASSES.index(minutes) for minutes in (0.0, 10.0, 20.0, 30.0, 60.0, 120.0, CLASSES[-1])
)
_SWEEPS: Final = 2
_POINT: Final = 1e-4
"""A point costs little beside a message: it decides between tables that are else alike."""


def hours_of(t_us: NDArray[np.int64], lon: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the number of the hour in solar time: 0 to 23 on weekdays, 24 to 47 at weekends."""
    hour, weekday = solar_time(t_us, lon)
    return hour.astype(np.int64) + _HOURS * (weekday >= _SATURDAY)


def oracle_frontier(writes: Writes, requests: ReadRequests) -> pd.DataFrame:
    """Choose the delay of each hour by replay, for some prices of a read that misses a write.

    It is coordinate descent, hour after hour, from half an hour everywhere, so a better table may exist.

    Parameters
    ----------
    writes : Writes
    asked : ReadRequests

    Returns
    -------
    pandas.DataFrame
        As of :func:`~mudkit.learning.frontier.write_frontier`, without ``leaves``; with a row of price 0, at
        which nothing is sent.
    """
    import pandas as pd  # loading it takes longer than loading all of mudkit

    hour = hours_of(writes.t_us, writes.lon)

    def shares(table: NDArray[np.int64]) -> tuple[float, float, float]:
        sent = batches(writes, delayed(writes, table[hour]))
        late = float(missed(writes, sent.sent_us, requests).mean())
        return sent.messages / len(hour), sent.points / len(hour), late

    def chosen(price: float) -> NDArray[np.int64]:
        def cost(table: NDArray[np.int64]) -> float:
            messages, points, late = shares(table)
            return messages + _POINT * points + price * late

        table = np.full(2 * _HOURS, CLASSES.index(30.0))
        least = cost(table)
        for _ in range(_SWEEPS):
            before = table.copy()
            for hour_number in np.unique(hour):
                for number in _CLASSES:
                    other = table.copy()
                    other[hour_number] = number
                    if number != table[hour_number] and (its_cost := cost(other)) < least:
                        least, table = its_cost, other
            if np.array_equal(before, table):
                break
        return table

    nothing = np.full(2 * _HOURS, len(CLASSES) - 1)
    rows = [(price, *shares(chosen(price) if price else nothing)) for price in (0.0, *ORACLE_PRICES)]
    return pd.DataFrame(rows, columns=["price", "message_share", "point_share", "missed_share"])
