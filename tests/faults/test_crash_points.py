"""Each role of each system, killed at one of its commits and restarted: what was accepted is there, once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from places import PLACES, Place

from mudkit.fleet.store import Killed

POINTS = ("before commit", "after commit")
DOWN_S = 5.0


class Trap:
    """Counts the commits of a host, and kills it at one of them.

    Parameters
    ----------
    place : Place
    host : str
    point : str
        ``before commit`` or ``after commit``.
    number : int
        The commit, from 1 on; 0: none.
    """

    def __init__(self, place: Place, host: str, point: str, number: int) -> None:
        self.count, self.is_armed = 0, True
        self._place, self._host, self._point, self._number = place, host, point, number
        for process in place.lab.world.hosts[host].processes:
            process.store.crash_point = self

    def __call__(self, point: str) -> None:
        if point != self._point or not self.is_armed:
            return
        self.count += 1
        if self.count == self._number:
            world = self._place.lab.world
            world.at(world.now_us + round(DOWN_S * 1e6), self._restart)
            raise Killed

    def _restart(self, _: Any) -> None:
        self._place.lab.faults.restart(self._host)


def run(kind: Callable[[], Place], host: str, point: str, number: int) -> tuple[Place, Trap]:
    place = kind()
    place.lab.run(minutes=1)
    trap = Trap(place, host, point, number)
    place.speak("text", 4)
    place.lab.run(minutes=30)
    trap.is_armed = False
    place.speak("last", 1)
    place.lab.run(minutes=10)
    return place, trap


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize(("kind", "role"), [(kind, role) for kind in PLACES for role in kind.hosts])
def test_what_is_accepted_around_a_kill_arrives_once(
    kind: Callable[[], Place], role: str, point: str, scaled: Callable[[int, int], int]
) -> None:
    host = kind.hosts[role]
    count = run(kind, host, point, 0)[1].count
    step = max(count // scaled(100, 3), 1)
    for number in range(1, count + 1, step):
        place, trap = run(kind, host, point, number)
        assert trap.count >= number
        assert "last 0" in place.accepted
        # An application that is killed with its device is not told of the item at hand: it has it.
        is_killed_with_it = point == "after commit" and role in ("receiver", "reader", "subscriber", "device")
        missing = [text for text in place.accepted if text not in place.heard]
        assert len(missing) <= is_killed_with_it, (number, missing)
        assert place.heard == sorted(set(place.heard), key=place.said.index), number
