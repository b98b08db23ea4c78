"""The systems as they enter the scoreboard, each doing a task as its paper would have it done."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from mudkit.experiment.scoreboard.entrants.contrail import Contrail
from mudkit.experiment.scoreboard.entrants.lasthop import LastHop
from mudkit.experiment.scoreboard.entrants.mud import Mud
from mudkit.experiment.scoreboard.entrants.radiator import Radiator
from mudkit.experiment.scoreboard.entrants.sublim import Sublim
from mudkit.experiment.scoreboard.entrants.to_everyone import ToEveryone
from mudkit.experiment.scoreboard.testbed import Adapter, Testbed

__all__ = ["CANNOT", "ENTRANTS", "Contrail", "LastHop", "Mud", "Radiator", "Sublim", "ToEveryone"]

_ALL: Final = (ToEveryone, Mud, LastHop, Contrail, Radiator, Sublim)
ENTRANTS: Final[dict[str, Callable[[Testbed], Adapter]]] = {each.name: each for each in _ALL}
"""The systems that enter, by name; the first is the baseline."""
CANNOT: Final[dict[str, Mapping[str, str]]] = {each.name: each.cannot for each in _ALL}
"""What a system cannot say of a task, in a sentence, by system and task; nothing: all of it."""
