"""What Radiator's aggregation would make of a trace: messages and bytes by cell, interval and threshold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from mudkit.errors import ParameterError
from mudkit.pipeline._cells import cells
from mudkit.pipeline.tables import require_columns

__all__ = ["propagation"]


def propagation(
    positions: DataFrame,
    *,
    zooms: Sequence[int] = (14,),
    interval_s: int = 300,
    thresholds: Sequence[int] = (1, 20, 50),
    message_bytes: int = 400,
    aggregate_bytes: int = 400,
) -> DataFrame:
    """Count the messages before and after Radiator's aggregation, for several thresholds at once.

    The model: each position is one context message, and the messages of one cell and one interval share one
    queue with the threshold ``Volume(threshold)``. When the queue holds this many messages, they are released
    as one aggregate (Radiator 3.1: with volume:5, when the queue has 5 elements). The rest is released at the
    end of the interval as one more: n messages become ``ceil(n / threshold)`` aggregates. An aggregate
    of several messages has a fixed size, as joins into a bounding box, a mean or a count have
    (Radiator 3.1); a message that is released alone stays as it is.

    Left out are the recipients (each would get each aggregate: the server sends this many, times the
    recipients, or by chains fewer), their contexts (one threshold holds for all, at all times; Radiator
    applies G anew for each recipient and each message), thresholds of people and time, compression, and
    joins whose size grows with what they join, such as the default concatenation. For all these run the
    system itself (``mudkit.systems.radiator``).

    Parameters
    ----------
    positions : DataFrame
        The positions: ``device, ts, lat, lon``.
    zooms : sequence of int
        Sizes of the cells, levels from 0 to 22 as for :func:`mudkit.pipeline.cells`.
    interval_s : int
        Length of an interval in seconds; intervals start at multiples of it since 1970 UTC. The default are
        the 300 s that the paper gives for traffic (Radiator 2.1).
    thresholds : sequence of int
        Volumes, each at least 1; 1 is no aggregation. The default are those of Radiator 5.
    message_bytes, aggregate_bytes : int
        Size of a message (Radiator 5: 300 to 500 bytes) and of a joined aggregate.

    Returns
    -------
    DataFrame
        ``zoom, x, y, interval_ts, lat, lon`` (the cell's centre), ``threshold, messages_in, aggregates_out,
        bytes_in, bytes_out, devices`` (different senders). Cells without messages are absent.

    Raises
    ------
    ParameterError, TraceContentError
    """
    numbers: dict[str, Any] = {
        "interval_s": interval_s,
        "message_bytes": message_bytes,
        "aggregate_bytes": aggregate_bytes,
    }
    for name, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1 << 31:
            raise ParameterError(
                f"The parameter {name} is not usable.",
                where=name,
                found=repr(value),
                expected="a whole number over 0",
            )
    volumes: list[Any] = sorted(set(thresholds))
    if not volumes or any(isinstance(v, bool) or not isinstance(v, int) or v < 1 for v in volumes):
        raise ParameterError(
            "The thresholds are not usable.",
            where="thresholds",
            found=repr(list(thresholds)),
            expected="whole numbers of messages, each at least 1",
        )
    require_columns(positions, "positions", ("device", "ts", "lat", "lon"))
    no_speed = F.lit(None).cast("double").alias("speed_mps")
    counted = cells(
        positions.select("device", "ts", "lat", "lon", no_speed), zooms=zooms, bucket_s=interval_s
    )
    each = F.explode(F.array([F.lit(volume).cast("bigint") for volume in volumes]))
    held = counted.select("*", each.alias("threshold"))
    messages, threshold = F.col("positions"), F.col("threshold")
    rest = messages % threshold
    alone = F.when(threshold == 1, messages).when(rest == 1, 1).otherwise(0)
    aggregates = F.floor((messages - rest) / threshold) + F.when(rest > 0, 1).otherwise(0)
    return held.select(
        "zoom",
        "x",
        "y",
        F.col("bucket_ts").alias("interval_ts"),
        "lat",
        "lon",
        "threshold",
        messages.alias("messages_in"),
        aggregates.alias("aggregates_out"),
        (messages * message_bytes).alias("bytes_in"),
        (alone * message_bytes + (aggregates - alone) * aggregate_bytes).alias("bytes_out"),
        "devices",
    )
