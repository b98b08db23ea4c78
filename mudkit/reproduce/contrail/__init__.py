"""The rows of Contrail (Stuedi and others)."""

from __future__ import annotations

from typing import Final

from mudkit.reproduce.contrail import measures
from mudkit.reproduce.row import Required, Row

__all__ = ["ROWS"]

ROWS: Final = (
    Row(
        name="C1",
        source="Contrail 7.1.1, Fig. 6",
        paper="Latencies lie around 4 s at a polling interval of 1 s, and from 1 s to almost 15 s at 8 s; "
        "what the cloud took of that is not said. Here it takes nothing, so the levels are lower. Judged is "
        "the form: evenly over an interval and a visit, plus a way up and a way down.",
        required=(
            # Of the mean of as many draws that are even over the interval.
            Required("standard errors by which a mean differs from the form, at most", "at most", 3),
            # Of 100 even draws the chance of less is 0.0003.
            Required("share of an interval over which latencies spread, at least", "at least", 0.9),
            Required("s by which the longest is beyond the form, at most", "at most", 0),
            Required("steps at which the mean does not rise", "at most", 0),
        ),
        measure=measures.polling,
        minutes=0.3,
    ),
    Row(
        name="C2",
        source="Contrail 7.1.1, Fig. 7",
        paper="At a polling interval of 4 s, a longer idle timeout lowers latencies. A round trip takes "
        "about twice as long as one way.",
        required=(
            # A hundredth of the interval: what the phases of polls leave of it.
            Required("s by which a longer timeout makes it worse, at most", "at most", 0.05),
            Required("s by which the longest timeout differs from no polling at all", "at most", 0.05),
            Required("round trip over one way", "at least", 1.75),
            Required("round trip over one way", "at most", 2.25),
        ),
        measure=measures.idle,
        minutes=0.8,
    ),
    Row(
        name="C3",
        source="Contrail 7.1.2, Fig. 8",
        paper="With a message every 2 s a phone lasts 8 h at a polling interval of 90 s, 4 h at 5 s, and "
        "least when it is always on. What it takes besides its radio is not said: 269 mW is a phone that is "
        "awake with its display off (Carroll and Heiser, USENIX ATC 2010). Polling every 5 s costs as much "
        "as being always on, since the radio's tail is longer.",
        required=(
            # 7.5 h over 4.5 h, and 8.5 h over 3.5 h: what is told as 8 h and 4 h.
            Required("life at 90 s over life at 5 s, 269 mW besides", "at least", 1.67),
            Required("life at 90 s over life at 5 s, 269 mW besides", "at most", 2.43),
            Required("90 s over 5 s, radio", "below", 1, is_shape=True),
            Required("always on over 5 s, radio", "at least", 1, is_shape=True),
        ),
        measure=measures.battery,
        minutes=0.2,
    ),
    Row(
        name="C4",
        source="Contrail 7.1.3, Fig. 9",
        paper="A batch of 2,000 items comes with about 300 of the 350 kbit/s that the network carries up.",
        required=(Required("share of the slower direction", "at least", 0.85),),
        measure=measures.throughput,
        minutes=0.2,
    ),
    Row(
        name="C5",
        source="Contrail 7.1.3, Fig. 10",
        paper="12.5 KB a second at a polling interval of 2 s: interrupted without an idle timeout, steady "
        "with one of 2 s.",
        required=(
            # Something in every other second at most: as many deviate from the mean by all of it.
            Required("variation of a second, idle timeout 0 s", "at least", 1),
            # 8 % of the seconds have two items, and as many none: those near the edge of a bin.
            Required("variation of a second, idle timeout 2 s", "at most", 0.4),
        ),
        measure=measures.steadiness,
        minutes=0.06,
    ),
    Row(
        name="C6",
        source="Contrail 7.2, Fig. 11",
        paper="A message to oneself every 5 s, polling every 5 s: 10 clients and 1 instance 3.9 s, 100 and 1 "
        "6 s, 100 and 10 3.4 s, 980 and 10 9 s, 980 and 20 6.5 s; 980 and 1 collapse. In the paper 49 "
        "clients to an instance are slower with 20 instances than 100 with one: something that they share is "
        "slow there. Here it is not, so that latencies depend on the clients to an instance.",
        required=(
            Required("pairs of 15 in another order than in the paper", "at most", 0),
            Required("pairs of equal clients or instances in another order", "at most", 0, is_shape=True),
            Required("share of items that come, 980 clients, 1 instance", "at most", 0.5, is_shape=True),
            Required("share of items that come, 980 clients, 10 instances", "at least", 0.8, is_shape=True),
        ),
        measure=measures.scale,
        minutes=0.7,
    ),
    Row(
        name="C7",
        source="Contrail 1, 3.4.1",
        paper="Data is uploaded by a device at most once, and only if another device asks for it.",
        required=(
            Required("bytes for an item that nobody asked for", "at most", 0),
            # One of 100 kB, and ten destinations of some 100 bytes.
            Required("upload for ten receivers over one", "at most", 1.1),
            Required("a retransmission to ten over the upload", "at most", 0.05),
        ),
        measure=measures.efficiency,
        minutes=0.02,
    ),
    Row(
        name="C8",
        source="Contrail 1, 3.3",
        paper="Data sent by one device to another is not viewed by any other entity; the cloud cannot tamper "
        "with messages undetected.",
        required=(
            Required("share of private texts that a relay has seen", "at most", 0),
            Required("the same without encryption", "at least", 1),
            Required("share of manipulations that were reported", "at least", 1),
            Required("manipulations", "at least", 10_000),
        ),
        measure=measures.privacy,
        minutes=0.1,
    ),
)
