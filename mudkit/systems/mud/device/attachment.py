"""Messages between the apps of a device and its service (Mobius 2 and 5); they use no link.

Requests (``Ask``, ``AskBatch``) and answers pass the service as they are on the network.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from mudkit.events import local_address
from mudkit.systems.mud.messages.notifications import Notification
from mudkit.systems.mud.messages.parts import PORT
from mudkit.systems.mud.messages.requests import (
    Administered,
    Ask,
    AskBatch,
    ContinuousReadAck,
    LogRestarted,
    Part,
    PartsComplete,
    RequestRefused,
    UsageTaken,
    WriteOutcome,
)
from mudkit.systems.receiving import Accepts

SERVICE: Final = local_address(PORT)
"""Address of the service, for the apps of its device."""


def address_of(app: str) -> str:
    """Return the address of an app's machine, for the service of its device."""
    return local_address(f"{PORT}-{app}")


def app_at(source: str) -> str | None:
    """Return the app whose machine has an address on this device; None: it is no app's."""
    begin = address_of("")
    return source.removeprefix(begin) if source.startswith(begin) else None


class Attach(Struct, frozen=True, tag_field="kind", tag="attach"):
    """App to service, at each start of the app and when this changes.

    ``incarnation`` is that of the app's start. ``policies`` has the version of each kind of shipped policy
    that it follows. ``is_notified``: the notification server may have something to send to it.
    """

    incarnation: str
    token: str | None
    policies: dict[str, int]
    is_notified: bool


class SessionState(Struct, frozen=True, tag_field="kind", tag="session"):
    """Service to app: its session with the notification server; None: it has none.

    ``is_greeted``: the server knows the current address of the device.
    """

    session: str | None
    is_greeted: bool


class PassedOn(Struct, frozen=True, tag_field="kind", tag="forwarded"):
    """Service to app: an item of the session's stream that concerns it."""

    body: Notification


class DeviceShared(Struct, frozen=True, tag_field="kind", tag="shared"):
    """Service to app: other apps are attached, so that its :class:`StoreUse` and delays matter to them."""


class StoreUse(Struct, frozen=True, tag_field="kind", tag="store use"):
    """App to service, once the device is shared, and when this changes: its committed records.

    ``max_rows`` is the most that the app may hold, ``rows`` what it holds, and ``oldest_us`` when the one was
    received that was not received for longest.
    """

    max_rows: int
    rows: int
    oldest_us: int


class EvictRows(Struct, frozen=True, tag_field="kind", tag="evict"):
    """Service to app: evict records, those first that were not received for longest.

    Those beyond ``keep_rows`` go, at least one, as far as they were received by ``until_us``; None: all.
    """

    keep_rows: int
    until_us: int | None


class DelayOver(Struct, frozen=True, tag_field="kind", tag="delay over"):
    """App to service to the other apps: the delay of a write is over, so that all delayed writes leave."""


class GatewayLost(Struct, frozen=True, tag_field="kind", tag="gateway lost"):
    """Service to app: a message to the gateway in use has not arrived; requests go to the next one."""


SERVICE_FROM_APP: Final = Accepts[Attach | Ask | AskBatch | StoreUse | DelayOver](
    Attach, Ask, AskBatch, StoreUse, DelayOver
)
CLIENT_FROM_SERVICE: Final = Accepts[
    SessionState
    | DeviceShared
    | EvictRows
    | DelayOver
    | PassedOn
    | GatewayLost
    | Part
    | ContinuousReadAck
    | RequestRefused
    | PartsComplete
    | WriteOutcome
    | Administered
    | LogRestarted
    | UsageTaken
](
    SessionState,
    DeviceShared,
    EvictRows,
    DelayOver,
    PassedOn,
    GatewayLost,
    Part,
    ContinuousReadAck,
    RequestRefused,
    PartsComplete,
    WriteOutcome,
    Administered,
    LogRestarted,
    UsageTaken,
)
