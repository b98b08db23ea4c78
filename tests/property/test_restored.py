"""A device or server that comes back from an old backup: what is accepted from then on arrives, and nobody loops."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from places import PLACES, Place

from mudkit import Lab

MAX_MESSAGES = 400
"""Of a quiet hour after the restore, all machines together: somebody who loops sends thousands."""
HOW = ("quiet", "with traffic", "two restores", "a later backup")


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(
    ("kind", "role"),
    [(kind, role) for kind in PLACES for role in kind.hosts],
)
def test_what_is_accepted_after_a_restore_arrives_and_nobody_loops(
    kind: Callable[[], Place], role: str, how: str
) -> None:
    place = kind()
    lab, host = place.lab, place.hosts[role]
    lab.run(minutes=1)
    place.speak("before", 2)
    backups = [lab.faults.backup(host)]
    place.speak("later", 5)
    backups.append(lab.faults.backup(host))
    place.speak("last", 3)
    for number, backup in enumerate(
        {"two restores": [backups[1], backups[0]], "a later backup": backups}.get(how, backups[:1])
    ):
        if how == "with traffic":
            for each in range(5):
                place.say(f"on its way {each}")
        lab.faults.restore(host, backup)
        if number == 0 and how in ("two restores", "a later backup"):
            place.speak("between", 3)
    if how != "with traffic":
        lab.run(minutes=5)
    place.accepted.clear()
    place.speak("after", 12)
    lab.run(hours=2)
    assert len(place.accepted) == 12
    assert [text for text in place.heard if text.startswith("after")] == place.accepted
    asked = _messages(lab)
    lab.run(hours=1)
    assert _messages(lab) - asked < MAX_MESSAGES


def _messages(lab: Lab) -> int:
    return sum(row.messages for row in lab.world.bill())
