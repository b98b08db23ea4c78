"""Tables of a broadcast: exact counts, and single deliveries up to a limit.

A broadcast to 60,000 clients has as many deliveries per message; a million messages exceed any table. Here,
all recipients of a batch at one moment are one row with their number, in every engine: equal aggregates share
an entry (Radiator 3.1), so several cohorts of :class:`~mudkit.systems.radiator.engines.groups.Groups` may be
in one row. Beyond the limit, single deliveries are a uniform sample, for inspection and not for counting.
"""

from __future__ import annotations

import math
from array import array
from itertools import compress
from typing import Annotated, Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mudkit.checks import Range, check_arguments
from mudkit.sources.streams import Stream
from mudkit.systems.radiator.api import NAME
from mudkit.systems.radiator.study.broadcast import Aggregate

DEFAULT_LIMIT: Final = 10_000_000
"""Default number of single deliveries that are kept."""

_TS: Final = pa.timestamp("us", tz="UTC")
_DRAWS: Final = 1 << 12
"""Number of random draws at a time; fits into a processor's cache."""

_Int: TypeAlias = NDArray[np.int64]
_Float: TypeAlias = NDArray[np.float64]

BATCHES: Final = pa.schema(
    [
        pa.field("system", pa.string(), nullable=False),
        pa.field("item", pa.list_(pa.string()), nullable=False),  # numbers of the messages, oldest first
        pa.field("created", pa.list_(_TS), nullable=False),  # arrival of each message at the server
        pa.field("delivered", _TS, nullable=False),  # departure of the aggregate from the server
        pa.field(
            "latency_s", pa.list_(pa.float64()), nullable=False
        ),  # per message, from created to delivered
        pa.field("size_bytes", pa.int64(), nullable=False),  # sent to one receiver
        pa.field("receivers", pa.int64(), nullable=False),  # number of receivers
    ]
)
"""One row per (batch, group); columns as in the deliveries where names are equal."""


@check_arguments(types=False)
class Tally:
    """Counts of a broadcast's deliveries, without contexts and lists of recipients.

    Memory is 32 bytes per aggregate and 16 per message in it, plus the bounded single deliveries (about 30
    bytes each, 100 as a table). Beyond the limit, sampling costs limit · log(deliveries / limit) draws: for
    6·10¹⁰ deliveries, a limit of 10 million takes about a minute of CPU time, 100,000 two seconds.

    Parameters
    ----------
    seed : int
        Seed of the sample; the same broadcast, limit and seed yield the same rows.
    start_us : int
        Virtual time 0, in µs since 1970 (UTC), as a lab's ``start_us``.
    limit : int
        Maximum number of single deliveries that are kept, from 1 on.

    Raises
    ------
    ParameterError
        A parameter is out of range.

    Examples
    --------
    >>> from mudkit.systems.radiator import Aggregability, ClientLists, Context, Message, Volume, broadcast
    >>> pairs = Aggregability(lambda sender, receiver: Volume(2))
    >>> engine = ClientLists(pairs, retention_us=60_000_000)
    >>> for client in ("ann", "bob", "cy"):
    ...     _ = engine.register(0, client, {})
    >>> times_us = [1_000_000, 2_000_000, 3_000_000, 4_000_000]
    >>> messages = [Message(n, "ann", us, Context({"ann"}, {}, (us, us))) for n, us in enumerate(times_us)]
    >>> tally = Tally(seed=7)
    >>> for aggregate in broadcast(engine, messages):
    ...     tally.add(aggregate)
    >>> tally.measures()["deliveries"], tally.batches()["receivers"].to_pylist()
    (8.0, [2, 2])
    """

    @check_arguments
    def __init__(
        self,
        *,
        seed: Annotated[int, Range(-(1 << 63), (1 << 64) - 1)] = 0,
        start_us: Annotated[int, Range(-(1 << 62), 1 << 62)] = 0,
        limit: Annotated[int, Range(1, 1 << 40)] = DEFAULT_LIMIT,
    ) -> None:
        self._start_us = start_us
        self._sample = _Sample(Stream(seed, "radiator deliveries"), limit)
        self._gone_us, self._size_bytes, self._receivers = array("q"), array("q"), array("q")
        self._messages = array("q")
        """Number of messages by row; the next two arrays contain them row after row."""
        self._item, self._created_us = array("q"), array("q")

    def add(self, aggregate: Aggregate) -> None:
        """Count an aggregate and its recipients."""
        self._gone_us.append(aggregate.sent_us)
        self._size_bytes.append(aggregate.size_bytes)
        self._receivers.append(len(aggregate.recipients))
        self._messages.append(len(aggregate.batch))
        self._item.extend([message.number for message in aggregate.batch])
        self._created_us.extend([message.arrived_us for message in aggregate.batch])
        self._sample.add(len(aggregate.batch), aggregate.recipients)

    def measures(self) -> dict[str, float]:
        """Return the measures of the broadcast, computed from the counts.

        ``messages`` (pushes of an aggregate to a receiver), ``bytes`` of all pushes, ``deliveries`` (of a
        message to a receiver) and their median ``latency_s`` (NaN without deliveries), as in
        :meth:`mudkit.experiment.Run.measures`.
        """
        receivers = _as_int_array(self._receivers)
        by_message = np.repeat(receivers, _as_int_array(self._messages))
        return {
            "messages": float(receivers.sum()),
            "bytes": float(receivers @ _as_int_array(self._size_bytes)),
            "deliveries": float(by_message.sum()),
            "latency_s": _median(self._latency_s(), by_message),
        }

    def batches(self) -> pa.Table:
        """Return a row per batch and group in order of departure; schema :data:`BATCHES`."""
        ends = np.concatenate([[0], np.cumsum(_as_int_array(self._messages))])
        columns = {
            "system": pa.repeat(NAME, len(self._messages)),
            "item": _list_array(ends, pa.array(_as_int_array(self._item)).cast(pa.string())),
            "created": _list_array(ends, self._timestamps(_as_int_array(self._created_us))),
            "delivered": self._timestamps(_as_int_array(self._gone_us)),
            "latency_s": _list_array(ends, pa.array(self._latency_s())),
            "size_bytes": pa.array(_as_int_array(self._size_bytes)),
            "receivers": pa.array(_as_int_array(self._receivers)),
        }
        return pa.table(columns, schema=BATCHES)

    def deliveries(self) -> pa.Table:
        """Return a row per message and receiver, or a uniform sample if there are more than the limit.

        The schema is :data:`mudkit.trace.schema.DELIVERIES`, in order of departure. ``item`` is the number of
        the message, ``delivered`` the departure from the server; ``read``, ``expired`` and ``staleness_s``
        are null.
        """
        from mudkit.trace.schema import DELIVERIES  # slower to import than Radiator itself

        place, receiver = self._sample.rows()
        receivers, messages = _as_int_array(self._receivers), _as_int_array(self._messages)
        ends = np.cumsum(receivers * messages)
        row = np.searchsorted(ends, place, side="right")
        since = place - (ends - receivers * messages)[row]
        which = (np.cumsum(messages) - messages)[row] + since // receivers[row]
        return pa.table(
            {
                "system": pa.repeat(NAME, len(row)),
                "item": pa.array(_as_int_array(self._item)[which]).cast(pa.string()),
                "receiver": pa.array(receiver, pa.string()),
                "created": self._timestamps(_as_int_array(self._created_us)[which]),
                "delivered": self._timestamps(_as_int_array(self._gone_us)[row]),
                "read": pa.nulls(len(row), _TS),
                "expired": pa.nulls(len(row), _TS),
                "latency_s": pa.array(self._latency_s()[which]),
                "staleness_s": pa.nulls(len(row), pa.float64()),
                "status": pa.repeat("unread", len(row)),
            },
            schema=DELIVERIES,
        )

    def _latency_s(self) -> _Float:
        """Return the latency of each message of each aggregate, seconds."""
        sent_us = np.repeat(_as_int_array(self._gone_us), _as_int_array(self._messages))
        return np.asarray((sent_us - _as_int_array(self._created_us)) / 1e6)

    def _timestamps(self, t_us: _Int) -> pa.Array:
        """Return virtual times as timestamps."""
        return pa.array(t_us + self._start_us).cast(_TS)


class _Sample:
    """Uniform sample of (message, receiver) pairs by reservoir sampling with skips (Li, ACM TOMS 20, 1994).

    Each pair has a random key, and the pairs with the smallest keys are the sample. Once it is full, the
    number of pairs up to the next one that enters is geometric, so that pairs in between cost nothing.
    """

    def __init__(self, stream: Stream, limit: int) -> None:
        self._stream, self._limit = stream, limit
        self._room = limit + limit // 4 + 1
        self._count = 0
        self._below = 1.0
        """Upper bound of the keys that can enter the sample."""
        self._steps, self._last = 0, -1
        """Number of draws, and the place of the last drawn pair."""
        self._next: tuple[_Int, _Float] = np.zeros(0, np.int64), np.zeros(0)
        """Places and keys of drawn pairs that have not occurred yet."""
        self._places, self._keys = array("q"), array("d")
        self._receivers: list[str] = []

    def add(self, messages: int, recipients: list[str]) -> None:
        """Add the pairs of a number of messages and their recipients, message by message."""
        first, self._count = self._count, self._count + messages * len(recipients)
        while True:
            places, keys = self._next
            here = int(np.searchsorted(places, self._count))
            self._next = places[here:], keys[here:]
            self._places.frombytes(places[:here].tobytes())
            self._keys.frombytes(keys[:here].tobytes())
            which = (places[:here] - first) % len(recipients)
            self._receivers += [recipients[index] for index in which.tolist()]
            if len(self._keys) >= self._room:
                self._discard_excess()
            if len(self._next[0]):
                return
            self._draw_pairs()

    def rows(self) -> tuple[_Int, list[str]]:
        """Return the places of the sample, in order, and the receivers."""
        chosen, _ = self._choose_smallest()
        return _as_int_array(self._places)[chosen], list(compress(self._receivers, chosen.tolist()))

    def _draw_pairs(self) -> None:
        """Draw the next pairs that enter the sample: their places and keys."""
        steps = np.arange(self._steps, self._steps + _DRAWS)
        skip, key = self._stream.pair(0, steps)
        # A key is below the bound with a probability equal to it; at first every key is.
        skips = np.log1p(-skip) / math.log1p(-self._below) if self._below < 1.0 else np.zeros(_DRAWS)
        places = self._last + np.cumsum(1 + skips.astype(np.int64))
        self._steps, self._last = self._steps + _DRAWS, int(places[-1])
        self._next = places, key * self._below

    def _choose_smallest(self) -> tuple[NDArray[np.bool_], float]:
        """Return a mask of the ``limit`` smallest keys, and the largest of these."""
        keys, last = np.array(self._keys), self._limit - 1
        largest = float(np.partition(keys, last)[last]) if len(keys) > last else 1.0
        return keys <= largest, largest

    def _discard_excess(self) -> None:
        """Keep the rows with the smallest random keys; from now on only smaller keys than these enter."""
        chosen, self._below = self._choose_smallest()
        places, keys = _as_int_array(self._places)[chosen], np.array(self._keys)[chosen]
        self._places, self._keys = array("q", places.tobytes()), array("d", keys.tobytes())
        self._receivers = list(compress(self._receivers, chosen.tolist()))


def _as_int_array(values: array[int]) -> _Int:
    """Return a copy as a NumPy array, because an array with exported buffers cannot grow."""
    return np.array(values, np.int64)  # a copy, because an array with exported buffers cannot grow


def _list_array(ends: _Int, values: pa.Array) -> pa.Array:
    """Return a column of lists: ``values``, divided at ``ends``."""
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), values)


def _median(values: _Float, counts: _Int) -> float:
    """Return the median of values with multiplicities."""
    total = int(counts.sum())
    if not total:
        return math.nan
    order = np.argsort(values)
    middle = np.searchsorted(np.cumsum(counts[order]), [(total - 1) // 2, total // 2], side="right")
    return float(values[order][middle].mean())
