"""Compositions that the papers do not have: one system behind another, and what which order keeps."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from mudkit.experiment.adapters import ContrailHop, LastHopHop, MudHop, RadiatorHop, SublimHop
from mudkit.experiment.adapters.radiator import LATER_S
from mudkit.experiment.compositions._orders import ALONE, PAIRS, SAME, commuting, orders
from mudkit.experiment.compositions._traces import Said, Trace, traces
from mudkit.experiment.compositions.chain import AtTheEnds, Chain, Handed, Logged
from mudkit.experiment.compositions.promises import PROMISES
from mudkit.experiment.tasks import Adapter, Testbed
from mudkit.systems.radiator import Time

__all__ = [
    "ALONE",
    "COMPOSITIONS",
    "PAIRS",
    "PROMISES",
    "SAME",
    "AtTheEnds",
    "Chain",
    "ContrailHop",
    "Handed",
    "LastHopHop",
    "Logged",
    "MudHop",
    "RadiatorHop",
    "Said",
    "SublimHop",
    "Trace",
    "commuting",
    "orders",
    "traces",
]

_DROPPING: Final = partial(SublimHop, drops=True)
_WAITING: Final = partial(RadiatorHop, until=Time(LATER_S))

COMPOSITIONS: Final[dict[str, Callable[[Testbed], Adapter]]] = {
    "MUD, then Last hop": partial(Chain, hops=[MudHop, LastHopHop]),
    "MUD, then Radiator": partial(Chain, hops=[MudHop, _WAITING]),
    "MUD, then Contrail": partial(Chain, hops=[MudHop, ContrailHop]),
    "Radiator, then MUD": partial(Chain, hops=[_WAITING, partial(MudHop, of_several="each")]),
    "Contrail, then SUBLIM": partial(Chain, hops=[ContrailHop, _DROPPING]),
    "Contrail, SUBLIM on the phone": partial(AtTheEnds, place="receiver"),
}
"""Compositions as they enter the scoreboard, beside :data:`mudkit.experiment.adapters.ADAPTERS`, by name.

A policy at each sender is not among them: how senders learn what readers say of themselves nobody pays for.
"""
