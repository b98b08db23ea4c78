"""Each role of each system, killed at one of its commits and restarted: accepted messages arrive once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from places import SYSTEM_LABS, SystemLab

from mudkit.fleet.store import Killed

POINTS = ("before commit", "after commit")
DOWN_S = 5.0


class Trap:
    """Crash point that counts the commits of a host and kills it at one of them.

    Parameters
    ----------
    place : Place
    host : str
    point : str
        ``before commit`` or ``after commit``.
    number : int
        Number of the commit, from 1; 0 for none.
    """

    def __init__(self, place: SystemLab, host: str, point: str, number: int) -> None:
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
            world.schedule_action(world.now_us + round(DOWN_S * 1e6), self._restart)
            raise Killed

    def _restart(self, _: Any) -> None:
        self._place.lab.faults.restart(self._host)


def run(kind: Callable[[], SystemLab], host: str, point: str, number: int) -> tuple[SystemLab, Trap]:
    place = kind()
    place.lab.run(minutes=1)
    trap = Trap(place, host, point, number)
    place.send_each_minute("text", 4)
    place.lab.run(minutes=30)
    trap.is_armed = False
    place.send_each_minute("last", 1)
    place.lab.run(minutes=10)
    return place, trap


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize(("kind", "role"), [(kind, role) for kind in SYSTEM_LABS for role in kind.hosts])
def test_messages_accepted_around_a_kill_arrive_once(
    kind: Callable[[], SystemLab], role: str, point: str, scaled: Callable[[int, int], int]
) -> None:
    host = kind.hosts[role]
    count = run(kind, host, point, 0)[1].count
    step = max(count // scaled(100, 3), 1)
    for number in range(1, count + 1, step):
        place, trap = run(kind, host, point, number)
        assert trap.count >= number
        assert "last 0" in place.accepted
        missing = [text for text in place.accepted if text not in place.received]
        assert missing == [], number
        assert place.received == sorted(set(place.received), key=place.sent.index), number
