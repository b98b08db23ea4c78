"""The rows of Last hop (Zagorodnov and Johansen)."""

from __future__ import annotations

from typing import Final

from mudkit.reproduce.lasthop import expiration, prefetch, speed, waste
from mudkit.reproduce.row import Required, Row

__all__ = ["ROWS"]

_DOWN: Final = tuple(f"{share:.0%} downtime" for share in expiration.DOWNTIMES)
_OFTEN: Final = tuple(f"{often} a day" for often in prefetch.OFTEN)

ROWS: Final = (
    Row(
        name="L1",
        source="Last hop 4.2, Fig. 1",
        paper="Waste of on-line forwarding by overflow: 1 - uf·Max/ef, and not below 0. The figure itself is "
        "lost.",
        required=(
            Required("largest error of the formula", "at most", 0.02),
            Required("points", "at least", 56),
        ),
        measure=waste.measure_formula,
        minutes=0.2,
    ),
    Row(
        name="L2",
        source="Last hop 4.2",
        paper="A user who reads at most 32 messages once a day of 32 wastes nothing; with Max 4, 88 %.",
        required=(
            Required("waste, Max 4", "at least", 0.865),
            Required("waste, Max 4", "at most", 0.885),
            # Where all can just be read, what waits is a random walk: it is never 0 at the end of a year, and
            # has the tolerance of the formula.
            Required("waste, Max 32", "at most", 0.02),
        ),
        measure=waste.measure_examples,
        minutes=0.02,
    ),
    Row(
        name="L3",
        source="Last hop 4.2, Fig. 3",
        paper="Prefetching up to a limit (ef 32, Max 8, uf 2): waste and loss are both below 1 % between 16 "
        "and 64, and waste levels off at 50 %. How often the network goes down is not said.",
        required=(
            *(Required(f"loss at {limit}, {often}", "below", 0.01) for often in _OFTEN for limit in (16, 64)),
            # Not only at both ends: from 16 on, up to the largest limit.
            *(Required(f"band begins at, {often}", "at most", 16) for often in _OFTEN),
            *(Required(f"waste at 16, {often}", "below", 0.01) for often in _OFTEN),
            *(Required(f"waste at 64, {often}", "at most", 0.011) for often in _OFTEN),
            *(Required(f"waste at the largest limit, {often}", "at least", 0.48) for often in _OFTEN),
            *(Required(f"waste at the largest limit, {often}", "at most", 0.51) for often in _OFTEN),
            Required("steps up to 16 at which the loss rises", "at most", 0),
            Required("steps from 64 on at which the waste falls", "at most", 0),
        ),
        measure=prefetch.measure_limits,
        minutes=1.5,
    ),
    Row(
        name="L4",
        source="Last hop 4.2, Fig. 2",
        paper="The loss of on-demand forwarding (ef 32, Max 8) grows exponentially with the downtime to just "
        "below 100 %, and is 0 again at 100 %.",
        required=(
            Required("loss at 0% downtime", "at most", 0),
            Required("loss at 100% downtime", "at most", 0),
            Required("steps before total outage at which the loss falls", "at most", 0),
            Required("downtime at which the loss is largest", "at least", 0.95),
            # Exponential, and not in proportion: whoever reads often loses hardly anything at half.
            Required("loss at 50 % over loss at 95 %, 8 a day", "below", 0.25),
        ),
        measure=prefetch.measure_on_demand,
        minutes=0.4,
    ),
    Row(
        name="L5",
        source="Last hop 4.3, Fig. 4 and 5",
        paper="Expiration times from 16 s to 3 days (ef 32, Max unlimited): the waste of on-line forwarding "
        "falls with the time and with the reads a day; at 95 % downtime the loss of on-demand forwarding "
        "rises and falls again; 4.2 hours are near its top with 2 reads a day. With a better network "
        "it is lower.",
        required=(
            Required("steps at which waste rises with the time", "at most", 0),
            Required("points at which waste rises with the reads a day", "at most", 0),
            Required("waste at 16 s, 2 a day", "at least", 0.99),
            Required("steps at which the loss turns, its peak apart", "at most", 0),
            Required("h at which the loss is largest, 2 a day", "at least", 2.0),
            Required("h at which the loss is largest, 2 a day", "at most", 8.0),
            Required("loss at 3 days over the largest, 2 a day", "below", 0.9),
            Required("largest loss, 2 a day, 50 % downtime over 95 %", "below", 0.9),
        ),
        measure=expiration.measure_times,
        minutes=0.6,
    ),
    Row(
        name="L6",
        source="Last hop 4.3, Fig. 6",
        paper="What expires sooner than a threshold is not prefetched (ef 32, uf 2; 90 % downtime by the "
        "caption, 95 % by the text): at 8 h waste and loss of messages that last 5.7 days are very small, "
        "and for those of 4.2 h no threshold has both small.",
        required=(
            *(
                Required(f"{value} at 8 h, 5.7 days, {down}", "at most", expiration.LITTLE)
                for down in _DOWN
                for value in ("waste", "loss")
            ),
            *(
                Required(f"the best threshold's waste or loss, 4.2 h, {down}", "at least", 0.2, is_shape=True)
                for down in _DOWN
            ),
            *(
                Required(f"steps at which waste rises or loss falls, {down}", "at most", 0, is_shape=True)
                for down in _DOWN
            ),
        ),
        measure=expiration.measure_thresholds,
        minutes=0.8,
    ),
    Row(
        name="L7",
        source="Last hop 4",
        paper="None: each of its runs lasts a virtual year.",
        required=(
            Required("ms for a run of two scenarios", "below", 50),
            Required("s for Figure 3 with ten seeds", "below", 60),
            Required("s for a year driven by the kernel", "below", 2),
            Required("share of years in which the kernel forwards and reads the same", "at least", 1),
            Required("share of runs in which simpy's model forwards and reads the same", "at least", 1),
        ),
        measure=speed.measure,
        minutes=2.0,
        is_speed=True,
    ),
)
