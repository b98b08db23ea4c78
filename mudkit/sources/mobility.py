"""Models of mobility by name: where the devices of a fleet are, at every moment of a run.

A model is a frozen set of parameters; its ``course`` is one run of one fleet. A device's moves depend on
the seed, the model and the device's name only (in :class:`~mudkit.sources.replay.Replay`: its place in the
fleet), so a device that is added, left out or named earlier changes nothing for the others.
"""

from __future__ import annotations

from mudkit.errors import ParameterError, did_you_mean
from mudkit.sources.commute import Commute
from mudkit.sources.courses import Mobility
from mudkit.sources.grid import ManhattanGrid
from mudkit.sources.waypoint import RandomWaypoint

MOBILITIES: dict[str, Mobility] = {
    "waypoint": RandomWaypoint(),
    "manhattan": ManhattanGrid(),
    "commute": Commute(),
}
"""The models that need no trace, with their defaults."""


def mobility_of(given: str | Mobility) -> Mobility:
    """Return the model of a name; return a model unchanged."""
    model: object = MOBILITIES.get(given) if isinstance(given, str) else given
    # A class has the method too, but is no model yet.
    if isinstance(model, Mobility) and not isinstance(model, type):
        return model
    raise ParameterError(
        "There is no such mobility.",
        where="mobility",
        found=repr(given),
        expected=f"one of {', '.join(MOBILITIES)}, or a model such as Replay(positions)",
        remedy=did_you_mean(given, MOBILITIES),
    )
