"""Restore of a device or server from an old backup: later messages arrive, and no machine loops."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from places import SYSTEM_LABS, SystemLab

from mudkit import Lab

MAX_MESSAGES = 400
"""Limit of a quiet hour after the restore, for all machines together; a loop sends thousands."""
VARIANTS = ("quiet", "with traffic", "two restores", "a later backup")


@pytest.mark.soak(keep=52)  # about two variants of each role
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    ("kind", "role"),
    [(kind, role) for kind in SYSTEM_LABS for role in kind.hosts],
)
def test_messages_accepted_after_a_restore_arrive_without_loops(
    kind: Callable[[], SystemLab], role: str, variant: str
) -> None:
    place = kind()
    lab, host = place.lab, place.hosts[role]
    lab.run(minutes=1)
    place.send_each_minute("before", 2)
    backups = [lab.faults.backup(host)]
    place.send_each_minute("later", 5)
    backups.append(lab.faults.backup(host))
    place.send_each_minute("last", 3)
    for number, backup in enumerate(
        {"two restores": [backups[1], backups[0]], "a later backup": backups}.get(variant, backups[:1])
    ):
        if variant == "with traffic":
            for index in range(5):
                place.send(f"on its way {index}")
        lab.faults.restore(host, backup)
        if number == 0 and variant in ("two restores", "a later backup"):
            place.send_each_minute("between", 3)
    if variant != "with traffic":
        lab.run(minutes=5)
    place.accepted.clear()
    place.send_each_minute("after", 12)
    lab.run(hours=2)
    assert len(place.accepted) == 12
    assert [text for text in place.received if text.startswith("after")] == place.accepted
    messages_before = _count_messages(lab)
    lab.run(hours=1)
    assert _count_messages(lab) - messages_before < MAX_MESSAGES


def _count_messages(lab: Lab) -> int:
    return sum(row.messages for row in lab.world.bill())
