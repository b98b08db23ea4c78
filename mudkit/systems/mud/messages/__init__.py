"""Every message of MUD tables on the wire: who sends it to whom, and what it holds.

Machines check what comes against what its sender may send, at one place each (the names at the end); what is
odd is dropped. That its fields fit each other is checked here, too; that it fits what a machine knows, there.
A record, a reader's data and the properties of a table are the application's, and are checked where they are
used.
"""

from __future__ import annotations

from typing import Final

from mudkit.systems.mud.messages.answers import (
    Complete,
    PartOfAnswer,
    Redirect,
    Refused,
    RegisteredAt,
    StreamOfServer,
    Welcome,
)
from mudkit.systems.mud.messages.cloud import (
    Admin,
    Administered,
    Describe,
    Described,
    Follow,
    Followed,
    Gone,
    Has,
    Log,
    Outcome,
    Part,
    PassedRead,
    PassedRegister,
    PassedUnregister,
    PassedUpdate,
    PassedWrite,
    Registered,
    State,
    StreamOfGenerator,
    StreamOfProcessor,
)
from mudkit.systems.mud.messages.requests import Ask, Asks, Confirmed, Hello
from mudkit.systems.receiving import Accepts

__all__ = [
    "ANSWERS",
    "ASKS",
    "FOR_BACK_END",
    "FOR_CLIENTS",
    "FOR_PROCESSORS",
    "FROM_CLIENTS",
    "FROM_FOLLOWERS",
    "FROM_MASTER",
    "FROM_RECEIVERS",
    "FROM_STORE",
    "GONE",
    "PARTS",
    "POLICIES",
    "READS",
    "REGISTERED",
    "TELLS",
    "TO_STORE",
]

ASKS: Final = Accepts(Ask, Asks)
"""Clients to gateways."""
FROM_CLIENTS: Final = Accepts(Hello, Confirmed)
"""Clients to notification servers."""
ANSWERS: Final = Accepts(PartOfAnswer, RegisteredAt, Refused, Complete, Outcome, Administered)
"""Gateways to clients."""
FOR_CLIENTS: Final = Accepts(Welcome, Redirect, StreamOfServer)
"""Notification servers to clients."""
FOR_BACK_END: Final = Accepts(Describe, Admin)
"""Gateways to the back end."""
FOR_PROCESSORS: Final = Accepts(PassedRead, PassedWrite, PassedRegister, PassedUpdate, PassedUnregister)
"""Gateways to processors."""
TO_STORE: Final = Accepts(PassedRead, PassedWrite, Follow, Has)
"""Processors to the back end."""
READS: Final = Accepts(PassedRead)
"""Processors to replicas."""
FROM_FOLLOWERS: Final = Accepts(PassedRead, Follow, Has)
"""Replicas to the back end."""
FROM_MASTER: Final = Accepts(Log, State)
"""The back end to its followers."""
FROM_STORE: Final = Accepts(Described, Administered, Outcome, Part)
"""The back end to gateways."""
PARTS: Final = Accepts(Part)
"""Replicas to gateways."""
REGISTERED: Final = Accepts(Registered)
"""Processors to gateways."""
TELLS: Final = Accepts(StreamOfProcessor)
"""Processors to notification servers."""
POLICIES: Final = Accepts(StreamOfGenerator, Followed)
"""The generator to notification servers."""
GONE: Final = Accepts(Gone, Confirmed)
"""Notification servers to processors."""
FROM_RECEIVERS: Final = Accepts(Follow, Confirmed)
"""Notification servers to the generator."""
