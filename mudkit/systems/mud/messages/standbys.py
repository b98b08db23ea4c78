"""Messages of a back end that has standbys: who is the master, copies of its store, suspicions and probes.

What the naming machine decides is in :mod:`mudkit.systems.mud.servers.elections`, and what masters and
standbys do in :mod:`mudkit.systems.mud.servers.store_server`.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

from msgspec import Meta, Struct

from mudkit.systems.mud.messages.parts import check_consistent
from mudkit.systems.receiving import Accepts, Count, Name
from mudkit.wire import Value

Seq: TypeAlias = Annotated[int, Meta(ge=-1, le=1 << 62)]
"""Number of a change of the store in a term; -1: the standby has no copy of this term yet."""
Key: TypeAlias = Annotated[str, Meta(min_length=1)]


class StoreChange(Struct, frozen=True):
    """Changes of the store in one event of the back end: the new values of keys, and the deleted keys."""

    values: list[tuple[Key, Value]]
    deleted: list[Key] = []


class Mastership(Struct, frozen=True, tag_field="kind", tag="mastership"):
    """The store that is the back end's master, and those that have all that it has acknowledged.

    ``epoch`` grows with each change; of two, the higher one counts, from any server. ``term`` is the epoch
    with which this start of the master began, and ``former_term`` the term before it; ``incarnation`` is that
    of the start. ``members`` are the stores that can take over from the master, and itself. Epoch 0: as
    installed, when no start is the master yet.
    """

    epoch: Count
    term: Count
    former_term: Count
    master: Name
    members: list[Name]
    incarnation: str = ""

    def __post_init__(self) -> None:
        check_consistent(self.master in self.members and self.former_term <= self.term <= self.epoch)


class MastershipTaken(Struct, frozen=True, tag_field="kind", tag="mastership taken"):
    """Server to naming machine: acknowledges :class:`Mastership` of this epoch."""

    epoch: Count


class MastershipRequest(Struct, frozen=True, tag_field="kind", tag="mastership?"):
    """To the naming machine or a store: request for the mastership that it knows."""


class SuspectStore(Struct, frozen=True, tag_field="kind", tag="suspect store"):
    """To the naming machine: a store does not answer; a master names itself after a start.

    ``known`` is the mastership that the sender knows.
    """

    address: Name
    known: Mastership


class StoreProbe(Struct, frozen=True, tag_field="kind", tag="store?"):
    """Naming machine to store: request for a sign of life; ``sent_us`` names the question."""

    sent_us: Count


class StoreAlive(Struct, frozen=True, tag_field="kind", tag="store alive"):
    """Store to naming machine: answer to :class:`StoreProbe`.

    It has the changes of the master of ``term`` up to the number ``seq``. ``known`` is the mastership that it
    knows, and ``incarnation`` that of its start.
    """

    sent_us: Count
    term: Count
    seq: Count
    incarnation: Name
    known: Mastership


class Admission(Struct, frozen=True, tag_field="kind", tag="admit"):
    """Master to naming machine: a standby has all of the store. ``epoch`` is the known one."""

    address: Name
    epoch: Count


class StoreChanges(Struct, frozen=True, tag_field="kind", tag="changes"):
    """Master to standby: the next changes of the store after the number ``after_seq``, or none.

    ``sent_us`` names the question: its acknowledgement is a lease from that time on.
    """

    term: Count
    after_seq: Count
    changes: list[StoreChange]
    sent_us: Count


class StoreCopy(Struct, frozen=True, tag_field="kind", tag="copy"):
    """Master to standby: the whole store at the number ``seq``."""

    term: Count
    seq: Count
    values: list[tuple[Key, Value]]
    sent_us: Count


class CopyAck(Struct, frozen=True, tag_field="kind", tag="copied"):
    """Standby to master: it has the changes of a term up to ``seq``; -1: it needs the whole store.

    ``sent_us`` is that of the message; 0: it answers none, and the standby is no member yet.
    """

    term: Count
    seq: Seq
    sent_us: Count


FromStore: TypeAlias = StoreChanges | StoreCopy | CopyAck | Mastership | MastershipRequest
STORE_FROM_STORE: Final = Accepts[FromStore](StoreChanges, StoreCopy, CopyAck, Mastership, MastershipRequest)
STORE_FROM_SERVER: Final = Accepts[Mastership | MastershipRequest](Mastership, MastershipRequest)
"""From all servers that use the back end, which accepts more."""
FromServer: TypeAlias = Mastership | MastershipTaken | MastershipRequest | SuspectStore
ELECTIONS_FROM_SERVER: Final = Accepts[FromServer](
    Mastership, MastershipTaken, MastershipRequest, SuspectStore
)
ELECTIONS_FROM_STORE: Final = Accepts[FromServer | StoreAlive | Admission](
    Mastership, MastershipTaken, MastershipRequest, SuspectStore, StoreAlive, Admission
)
