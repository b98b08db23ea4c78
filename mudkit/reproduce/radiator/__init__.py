"""The rows of Radiator (Alves and Ferreira)."""

from __future__ import annotations

from typing import Final

from mudkit.reproduce.radiator import bytes_sent, lag, speed
from mudkit.reproduce.row import Required, Row

__all__ = ["ROWS"]

_MOST: Final = f"{lag.LOADS[-1]:g}"
_LEAST: Final = f"{lag.LOADS[0]:g}"

ROWS: Final = (
    Row(
        name="R1",
        source="Radiator 5.2, Fig. 3",
        paper="Of messages of 300 to 500 bytes gzip alone saves 25 % of what the server sends, volume 20 "
        "another 8 %, volume 50 40 % against volume 1. The table is lost. Here volume 20 saves nearly "
        "as much as volume 50: gzip has seen all that repeats by then. Where the bend is depends on "
        "the encoding. The paper's link was saturated: the lag is the worst without gzip, and volume 20 "
        "and 50 lag by less than volume 1.",
        required=(
            Required("steps down, of 3", "at least", 3, is_shape=True),
            Required("lag of no gzip over volume 1, saturated link", "at least", 1.0, is_shape=True),
            Required("lag of volume 20 over volume 1, saturated link", "below", 1.0, is_shape=True),
            Required("lag of volume 50 over volume 1, saturated link", "below", 1.0, is_shape=True),
            Required("share saved by gzip alone", "at least", 0.20),
            Required("share saved by gzip alone", "at most", 0.30),
            Required("share saved by volume 20 on top of gzip", "at least", 0.05),
            Required("share saved by volume 20 on top of gzip", "at most", 0.15),
            Required("share saved by volume 50 on top of gzip", "at least", 0.35),
            Required("share saved by volume 50 on top of gzip", "at most", 0.45),
        ),
        measure=bytes_sent.measure_compression,
        minutes=0.4,
    ),
    Row(
        name="R2",
        source="Radiator 5.3, Fig. 4",
        paper="Chains of 0.02 % of 60,000 clients save 26 % of what the server sends; with 1 %, 4.4 % are "
        "left; what longer chains add becomes less and less. Here 0.02 % saves far more: with 12 "
        "times fewer pushes 26 % would mean that a chain of 12 weighs as much as eight messages. The "
        "lags (+66 % at 0.1 %, +76 % at 1 %) are of 60 and 600 hops, and fit no one delay of a hop.",
        required=(
            Required("share left at k = 1 %", "at most", 0.044 * 1.1),
            Required("share saved at k = 0.02 %", "at least", 0.26),
            Required("steps down, of 6", "at least", 6),
            Required("saved from 0.02 to 0.05 % over saved from 1 to 10 %", "at least", 2.0),
        ),
        measure=bytes_sent.measure_chains,
        minutes=0.03,
    ),
    Row(
        name="R3",
        source="Radiator abstract, 7",
        paper="Chains of 1 % and volume 20: 20 times less of the server's outbound bandwidth without a "
        "longer average delay. Here on a link that pushes to each overload by as much as gives the 42 "
        "s of 5.2.",
        required=(
            Required("times less outbound", "at least", 20.0),
            Required("mean delay over that of pushes to each", "at most", 1.0),
        ),
        measure=lag.measure_headline,
        minutes=0.3,
    ),
    Row(
        name="R4",
        source="Radiator 5.2, Table 3 (lost)",
        paper="Volume 1 lags by 42 s (elsewhere: ms) on a link under stress; holding messages back shortens "
        "the lag. Here by offered load: where the link has room, holding back costs time; where it "
        "has none, it pays.",
        required=(
            Required(f"lag of volume 20 over volume 1 at load {_MOST}", "below", 1.0, is_shape=True),
            Required(f"lag of volume 50 over volume 1 at load {_MOST}", "below", 1.0, is_shape=True),
            Required(f"lag of volume 20 over volume 1 at load {_LEAST}", "at least", 1.0, is_shape=True),
            Required(f"lag of volume 50 over volume 20 at load {_LEAST}", "at least", 1.0, is_shape=True),
            Required("load from which volume 20 pays", "at most", 1.1),
            Required("lag of volume 1 at load 1.084, s", "at least", 32.0),
            Required("lag of volume 1 at load 1.084, s", "at most", 52.0),
        ),
        measure=lag.measure_lag,
        minutes=0.3,
    ),
    Row(
        name="R5",
        source="Radiator 5.2",
        paper="60,000 clients, each with a message a second; no rate of the server survives. Here also what "
        "a function without a key costs, which is asked for each receiver; and how far the query on a "
        "stream lags behind a trace that is played to it.",
        required=(
            Required("messages/s into 5 groups", "at least", 50_000),
            Required("messages/s into 100 groups", "at least", 2_500),
            Required("MB more after all messages than after a tenth", "at most", 100),
            Required("times as fast as Algorithm 3 literally, without a key", "at least", 5),
            Required("longest lag behind the stream over its bound", "at most", 1),
            Required("files of the trace behind the stream", "at most", 2),
            Required("share of the time that batches take", "below", 1),
            Required("lag at the end beside that in the middle", "at most", 1.25),
        ),
        measure=speed.measure,
        minutes=3.0,
        is_speed=True,
    ),
    Row(
        name="R6",
        source="Radiator 3.2",
        paper="From 10 to 100 recipients in a chain, the compressed payload becomes 5 times as large.",
        required=(
            Required("payload of 100 recipients over that of 10", "at least", 4.0),
            Required("payload of 100 recipients over that of 10", "at most", 6.0),
            Required("payload of 1,000 recipients over that of 100", "at least", 1.5, is_shape=True),
            Required(
                "payload of 1,000 recipients over that of 100, over that of 100 over 10",
                "at least",
                1.0,
                is_shape=True,
            ),
        ),
        measure=bytes_sent.measure_payload,
        minutes=0.02,
    ),
)
