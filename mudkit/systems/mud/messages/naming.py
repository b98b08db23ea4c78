"""Messages of the naming machine with servers; servers also send each other their assignments."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from mudkit.systems.receiving import Accepts, Count, Name


class Assignments(Struct, frozen=True, tag_field="kind", tag="assignments"):
    """Notification server of each range of netids, in the order of the ranges.

    The naming machine sends them to all servers after a change, until they are acknowledged. A server sends
    its own to one that acts by others, or asks. Each ignores those of a lower ``epoch``, which grows with
    each change. Epoch 0: as installed.
    """

    epoch: Count
    servers: list[Name]


class AssignmentsTaken(Struct, frozen=True, tag_field="kind", tag="assigned"):
    """Server to naming machine: acknowledges :class:`Assignments` of this epoch."""

    epoch: Count


class AssignmentsRequest(Struct, frozen=True, tag_field="kind", tag="assignments?"):
    """To the naming machine, or from it: request for the assignments, because there is a higher epoch."""


class Suspect(Struct, frozen=True, tag_field="kind", tag="suspect"):
    """Server to naming machine: a notification server does not answer; ``epoch`` is the sender's."""

    address: Name
    epoch: Count


class Probe(Struct, frozen=True, tag_field="kind", tag="probe"):
    """Naming machine to notification server: request for a sign of life; ``sent_us`` names the question."""

    sent_us: Count


class Alive(Struct, frozen=True, tag_field="kind", tag="alive"):
    """Notification server to naming machine: the answer to :class:`Probe`; ``epoch`` is the sender's."""

    sent_us: Count
    epoch: Count


NAMING_FROM_SERVER: Final = Accepts[Suspect | Alive | AssignmentsTaken | AssignmentsRequest | Assignments](
    Suspect, Alive, AssignmentsTaken, AssignmentsRequest, Assignments
)

SERVER_FROM_NAMING: Final = Accepts[Assignments | AssignmentsRequest](Assignments, AssignmentsRequest)
"""For the processors and the generator."""

NOTIFICATION_SERVER_FROM_NAMING: Final = Accepts[Assignments | AssignmentsRequest | Probe](
    Assignments, AssignmentsRequest, Probe
)
