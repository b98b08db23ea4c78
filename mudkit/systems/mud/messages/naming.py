"""Messages of the naming machine with servers; servers also send each other their assignments."""

from __future__ import annotations

from typing import Final

from msgspec import UNSET, Struct, UnsetType

from mudkit.systems.mud.messages.partitions import Partitions, read_partitions
from mudkit.systems.mud.messages.parts import EncodedError
from mudkit.systems.mud.messages.standbys import Mastership, StoreProbe
from mudkit.systems.receiving import Accepts, Count, Name


class Assignments(Struct, frozen=True, tag_field="kind", tag="assignments"):
    """Notification server of each range of netids, and processor of each range of partitions, in their order.

    ``moved`` has the partitions that another processor serves than that of their range: the number of the
    table, its partitions, and the processor.

    The naming machine sends them to all servers after a change, until they are acknowledged. A server sends
    its own to one that acts by others, or asks. Each ignores those of a lower ``epoch``, which grows with
    each change. Epoch 0: as installed.
    """

    epoch: Count
    servers: list[Name]
    processors: list[Name] = []
    moved: list[tuple[Count, Partitions, Name]] = []

    def __post_init__(self) -> None:
        for _, partitions, _ in self.moved:
            read_partitions(partitions)


class AssignmentsTaken(Struct, frozen=True, tag_field="kind", tag="assigned"):
    """Server to naming machine: acknowledges :class:`Assignments` of this epoch."""

    epoch: Count


class AssignmentsRequest(Struct, frozen=True, tag_field="kind", tag="assignments?"):
    """To the naming machine, or from it: request for the assignments, because there is a higher epoch."""


class Suspect(Struct, frozen=True, tag_field="kind", tag="suspect"):
    """Server to naming machine: another one does not answer; ``epoch`` is the sender's."""

    address: Name
    epoch: Count


class Probe(Struct, frozen=True, tag_field="kind", tag="probe"):
    """Naming machine to server: request for a sign of life; ``sent_us`` names the question."""

    sent_us: Count


class Alive(Struct, frozen=True, tag_field="kind", tag="alive"):
    """Server to naming machine: the answer to :class:`Probe`; ``epoch`` is the sender's."""

    sent_us: Count
    epoch: Count


class TableQuestion(Struct, frozen=True, tag_field="kind", tag="table?"):
    """Naming machine to gateway: request for what it knows of a table; ``sent_us`` names the question."""

    name: Name
    sent_us: Count


class TableAnswer(Struct, frozen=True, tag_field="kind", tag="table"):
    """Gateway to naming machine: number of a table, and its partitions; ``error``: there is none."""

    name: Name
    sent_us: Count
    number: Count = 0
    partitions: Count = 0
    error: EncodedError | UnsetType = UNSET


NAMING_FROM_GATEWAY: Final = Accepts[
    Suspect | AssignmentsTaken | AssignmentsRequest | Assignments | TableAnswer
](Suspect, AssignmentsTaken, AssignmentsRequest, Assignments, TableAnswer)
NAMING_FROM_SERVER: Final = Accepts[Suspect | Alive | AssignmentsTaken | AssignmentsRequest | Assignments](
    Suspect, Alive, AssignmentsTaken, AssignmentsRequest, Assignments
)

GATEWAY_FROM_NAMING: Final = Accepts[Assignments | AssignmentsRequest | TableQuestion | Mastership](
    Assignments, AssignmentsRequest, TableQuestion, Mastership
)
PROCESSOR_FROM_NAMING: Final = Accepts[Assignments | AssignmentsRequest | Probe | Mastership](
    Assignments, AssignmentsRequest, Probe, Mastership
)
REPLICA_FROM_NAMING: Final = Accepts[Mastership](Mastership)
STORE_FROM_NAMING: Final = Accepts[Assignments | AssignmentsRequest | Mastership | StoreProbe](
    Assignments, AssignmentsRequest, Mastership, StoreProbe
)
"""For a store that has standbys, or is one."""
SERVER_FROM_NAMING: Final = Accepts[Assignments | AssignmentsRequest](Assignments, AssignmentsRequest)
"""For the policy generator, and the back end itself."""
NOTIFICATION_SERVER_FROM_NAMING: Final = Accepts[Assignments | AssignmentsRequest | Probe](
    Assignments, AssignmentsRequest, Probe
)
