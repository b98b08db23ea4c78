"""The rows of SUBLIM."""

from __future__ import annotations

from typing import Final

from mudkit.reproduce.row import Required, Row
from mudkit.reproduce.sublim import picu, roaming

__all__ = ["ROWS"]

ROWS: Final = (
    Row(
        name="S1",
        source="SUBLIM 5",
        paper="PICU, rules R1 to R4; its figure is lost, and with it how one Timestamp is meant for several "
        "patients: it starves all but one.",
        required=(
            Required("share of situations that are right", "at least", 1),
            Required("share of messages on which rules and function agree", "at least", 1),
            Required("messages", "at least", 10_000),
            Required("patients starved by a limit for each", "at most", 0),
            Required("patients starved by one Timestamp", "at least", 3),
        ),
        measure=picu.measure_rules,
        minutes=0.02,
    ),
    Row(
        name="S2",
        source="SUBLIM 3",
        paper="Servers on access points serve those who are attached to them; how the state follows who "
        "walks on is not said.",
        required=(
            Required("handovers", "at least", 1_000),
            Required("crashes", "at least", 500),
            Required("lost", "at most", 0),
            Required("repeated", "at most", 0),
            Required("wrong states", "at most", 0),
        ),
        measure=roaming.measure,
        minutes=0.5,
    ),
    Row(
        name="S3",
        source="SUBLIM 4",
        paper="None: policies are compiled, so that the server handles any number of them efficiently.",
        required=(
            Required("decisions/s", "at least", 20_000),
            Required("decisions/s with 100 live keys", "at least", 20_000),
        ),
        measure=picu.measure_speed,
        minutes=0.1,
        is_speed=True,
    ),
)
