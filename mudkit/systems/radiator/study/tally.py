"""The tables of a broadcast: who got what in counts, and in rows by receiver as far as they can be held.

A broadcast to 60,000 clients makes as many deliveries of a message, and of a million messages more than any
table holds. What goes at one moment to all who get it is one row here, with the number of its receivers. A
group is those who get the same batch at the same moment, whatever the engine: it merges the receivers of
equal aggregates (Radiator 3.1), so cohorts of :class:`~mudkit.systems.radiator.engines.groups.Groups` may be
in one row, and the engines without groups give the same rows.

Measures are made of the counts and are exact. The deliveries one by one are all there up to a limit; beyond
it they are a uniform sample, which is to be looked at and not to be counted.
"""

from __future__ import annotations

import math
from array import array
from itertools import compress
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mudkit.sources.parameters import whole_number
from mudkit.sources.streams import Stream
from mudkit.systems.radiator.api import NAME
from mudkit.systems.radiator.study.broadcast import Aggregate

__all__ = ["BATCHES", "LIMIT", "Tally"]

LIMIT: Final = 10_000_000
"""So many deliveries are kept one by one."""

_TS: Final = pa.timestamp("us", tz="UTC")
_AHEAD: Final = 1 << 12
"""So many draws at once: what a processor's cache holds."""

_Int: TypeAlias = NDArray[np.int64]
_Float: TypeAlias = NDArray[np.float64]

BATCHES: Final = pa.schema(
    [
        pa.field("system", pa.string(), nullable=False),
        pa.field("item", pa.list_(pa.string()), nullable=False),  # the batch's messages, the oldest first
        pa.field("created", pa.list_(_TS), nullable=False),  # of each, when it came to the server
        pa.field("delivered", _TS, nullable=False),  # when the aggregate left the server
        pa.field("latency_s", pa.list_(pa.float64()), nullable=False),  # of each, from created to delivered
        pa.field("size_bytes", pa.int64(), nullable=False),  # as it is sent to one of them
        pa.field("receivers", pa.int64(), nullable=False),  # how many get it
    ]
)
"""One row per (batch, group); what has the name of a column of the deliveries is the same there."""


class Tally:
    """Counts what a broadcast delivers; of contexts and lists of recipients it keeps nothing.

    What grows with the broadcast is 32 bytes for each aggregate and 16 for each message in it; what is kept
    of single deliveries is bounded by the limit (some 30 bytes each, and 100 as a table). Beyond the limit
    they cost limit · log(deliveries / limit) draws: of 60 thousand million, 10 million take about a minute
    of a processor, 100,000 two seconds.

    Parameters
    ----------
    seed : int
        The seed of the sample: the same broadcast, limit and seed give the same rows.
    start_us : int
        Virtual time 0, in µs since 1970 (UTC), as a lab's ``start_us``.
    limit : int
        The number of deliveries that are kept one by one, from 1 on.

    Raises
    ------
    ParameterError
        No seed, no time or no limit.

    Examples
    --------
    >>> tally = Tally(seed=7)
    >>> for gone in broadcast(engine, messages):
    ...     tally.add(gone)
    >>> tally.measures()["deliveries"], tally.batches(), tally.deliveries()
    """

    def __init__(self, *, seed: int = 0, start_us: int = 0, limit: int = LIMIT) -> None:
        self._start_us = whole_number("start_us", start_us, -(1 << 62), 1 << 62)
        self._sample = _Sample(Stream(seed, "radiator deliveries"), whole_number("limit", limit, 1, 1 << 40))
        self._gone_us, self._size_bytes, self._receivers = array("q"), array("q"), array("q")
        self._messages = array("q")
        """Of each row, how many there are; the next two hold them, row after row."""
        self._item, self._created_us = array("q"), array("q")

    def add(self, gone: Aggregate) -> None:
        """Count what goes at one moment to all who get it."""
        self._gone_us.append(gone.gone_us)
        self._size_bytes.append(gone.size_bytes)
        self._receivers.append(len(gone.recipients))
        self._messages.append(len(gone.batch))
        self._item.extend([message.number for message in gone.batch])
        self._created_us.extend([message.arrived_us for message in gone.batch])
        self._sample.add(len(gone.batch), gone.recipients)

    def measures(self) -> dict[str, float]:
        """Sum the broadcast up, from the counts alone.

        Returns
        -------
        dict of str to float
            ``messages`` (a push of an aggregate to a receiver), ``bytes`` (of all pushes), ``deliveries`` (of
            a message to a receiver) and the median of theirs, ``latency_s`` (NaN: there is none), as
            :meth:`mudkit.experiment.Run.measures` gives it.
        """
        receivers = _ints(self._receivers)
        each = np.repeat(receivers, _ints(self._messages))
        return {
            "messages": float(receivers.sum()),
            "bytes": float(receivers @ _ints(self._size_bytes)),
            "deliveries": float(each.sum()),
            "latency_s": _median(self._latency_s(), each),
        }

    def batches(self) -> pa.Table:
        """Give a row for each batch and group, in the order in which they went: :data:`BATCHES`."""
        ends = np.concatenate([[0], np.cumsum(_ints(self._messages))])
        columns = {
            "system": pa.repeat(NAME, len(self._messages)),
            "item": _lists(ends, pa.array(_ints(self._item)).cast(pa.string())),
            "created": _lists(ends, self._times(_ints(self._created_us))),
            "delivered": self._times(_ints(self._gone_us)),
            "latency_s": _lists(ends, pa.array(self._latency_s())),
            "size_bytes": pa.array(_ints(self._size_bytes)),
            "receivers": pa.array(_ints(self._receivers)),
        }
        return pa.table(columns, schema=BATCHES)

    def deliveries(self) -> pa.Table:
        """Give a row for each message and receiver, or a sample of them when there are more than the limit.

        Returns
        -------
        pyarrow.Table
            The deliveries (:data:`mudkit.trace.schema.DELIVERIES`), in the order in which they went. An item
            is the number of its message; ``delivered`` is when the server let it go, for there are no links
            here; nothing expires and nobody reads: ``read``, ``expired`` and ``staleness_s`` are null.
        """
        from mudkit.trace.schema import DELIVERIES  # loading traces takes longer than loading Radiator

        place, receiver = self._sample.rows()
        receivers, messages = _ints(self._receivers), _ints(self._messages)
        came = np.cumsum(receivers * messages)
        row = np.searchsorted(came, place, side="right")
        since = place - (came - receivers * messages)[row]
        which = (np.cumsum(messages) - messages)[row] + since // receivers[row]
        return pa.table(
            {
                "system": pa.repeat(NAME, len(row)),
                "item": pa.array(_ints(self._item)[which]).cast(pa.string()),
                "receiver": pa.array(receiver, pa.string()),
                "created": self._times(_ints(self._created_us)[which]),
                "delivered": self._times(_ints(self._gone_us)[row]),
                "read": pa.nulls(len(row), _TS),
                "expired": pa.nulls(len(row), _TS),
                "latency_s": pa.array(self._latency_s()[which]),
                "staleness_s": pa.nulls(len(row), pa.float64()),
                "status": pa.repeat("unread", len(row)),
            },
            schema=DELIVERIES,
        )

    def _latency_s(self) -> _Float:
        gone_us = np.repeat(_ints(self._gone_us), _ints(self._messages))
        return np.asarray((gone_us - _ints(self._created_us)) / 1e6)

    def _times(self, t_us: _Int) -> pa.Array:
        return pa.array(t_us + self._start_us).cast(_TS)


class _Sample:
    """A uniform sample of pairs of message and receiver, of which it looks at few.

    Each pair has a random key, and those with the smallest keys are the sample. Once there are enough, a pair
    counts only if its key is below the largest of theirs; how many pairs there are up to the next such one is
    geometric, and so those between cost nothing (the skips of reservoir sampling: Li, ACM TOMS 20, 1994).
    """

    def __init__(self, stream: Stream, limit: int) -> None:
        self._stream, self._limit = stream, limit
        self._room = limit + limit // 4 + 1
        self._came = 0
        self._below = 1.0
        """Larger keys are of no use."""
        self._steps, self._last = 0, -1
        """How much was drawn, and the place of the last pair that was."""
        self._next: tuple[_Int, _Float] = np.zeros(0, np.int64), np.zeros(0)
        """What was drawn and has not come: places and keys."""
        self._places, self._keys = array("q"), array("d")
        self._receivers: list[str] = []

    def add(self, messages: int, recipients: list[str]) -> None:
        """Let so many messages go to each of some; pairs come message by message."""
        first, self._came = self._came, self._came + messages * len(recipients)
        while True:
            places, keys = self._next
            here = int(np.searchsorted(places, self._came))
            self._next = places[here:], keys[here:]
            self._places.frombytes(places[:here].tobytes())
            self._keys.frombytes(keys[:here].tobytes())
            which = (places[:here] - first) % len(recipients)
            self._receivers += [recipients[each] for each in which.tolist()]
            if len(self._keys) >= self._room:
                self._forget()
            if len(self._next[0]):
                return
            self._draw()

    def rows(self) -> tuple[_Int, list[str]]:
        """Give the places of the sample, in order, and the receivers."""
        chosen, _ = self._smallest()
        return _ints(self._places)[chosen], list(compress(self._receivers, chosen.tolist()))

    def _draw(self) -> None:
        steps = np.arange(self._steps, self._steps + _AHEAD)
        skip, key = self._stream.pair(0, steps)
        # The chance that a key counts is the bound itself; at first every key does.
        skips = np.log1p(-skip) / math.log1p(-self._below) if self._below < 1.0 else np.zeros(_AHEAD)
        places = self._last + np.cumsum(1 + skips.astype(np.int64))
        self._steps, self._last = self._steps + _AHEAD, int(places[-1])
        self._next = places, key * self._below

    def _smallest(self) -> tuple[NDArray[np.bool_], float]:
        """Say which keys are the smallest, as many as are wanted, and what the largest of them is."""
        keys, last = np.array(self._keys), self._limit - 1
        largest = float(np.partition(keys, last)[last]) if len(keys) > last else 1.0
        return keys <= largest, largest

    def _forget(self) -> None:
        """Keep the smallest keys, and count from now on only what is smaller than the largest of these."""
        chosen, self._below = self._smallest()
        places, keys = _ints(self._places)[chosen], np.array(self._keys)[chosen]
        self._places, self._keys = array("q", places.tobytes()), array("d", keys.tobytes())
        self._receivers = list(compress(self._receivers, chosen.tolist()))


def _ints(values: array[int]) -> _Int:
    return np.array(values, np.int64)  # a copy: an array that is looked at cannot grow


def _lists(ends: _Int, values: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), values)


def _median(values: _Float, counts: _Int) -> float:
    """Give the median of values that each stand for so many."""
    many = int(counts.sum())
    if not many:
        return math.nan
    order = np.argsort(values)
    middle = np.searchsorted(np.cumsum(counts[order]), [(many - 1) // 2, many // 2], side="right")
    return float(values[order][middle].mean())
