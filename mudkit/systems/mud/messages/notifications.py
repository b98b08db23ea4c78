"""Messages of notification servers: with devices, with processors and the generator, and with each other."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from msgspec import UNSET, Struct, UnsetType, field

from mudkit.delivery.stream import StreamAck, StreamItem
from mudkit.systems.mud.messages.naming import Assignments
from mudkit.systems.mud.messages.partitions import Partitions, read_partitions
from mudkit.systems.mud.messages.parts import Endpoint, app_of, check_consistent
from mudkit.systems.mud.tables.records import SentPredicate
from mudkit.systems.receiving import Accepts, Count, Name
from mudkit.wire import Fields, Value


class Hello(Struct, frozen=True, tag_field="kind", tag="hello", kw_only=True):
    """Service of a device to notification server: its current address and a sign of life (Mobius 5).

    ``endpoint`` has the device and the first of its apps that are to be notified. ``session`` None: it has
    none. ``is_new`` False: a heartbeat. ``policies`` has the version of each kind of policy that the first
    app follows, and ``others`` those of each other app; absent: there is none, or it is a heartbeat. ``seq``
    counts the hellos of a start of the service, which ``incarnation`` identifies. ``nonce`` is that of the
    last :class:`Identify`; absent: there was none since the last welcome. ``tokens`` has the token of each
    app of the device that has one; absent in a heartbeat. ``unanswered`` are the servers that have not
    answered hellos since the last welcome, and ``epoch`` is the highest one that the service has heard of;
    absent: none.
    """

    endpoint: Endpoint
    session: str | None
    is_new: bool
    policies: dict[str, Count]
    incarnation: Name
    seq: Count
    nonce: Name | UnsetType = UNSET
    tokens: dict[Name, str] | UnsetType = UNSET
    others: dict[Name, dict[str, Count]] | UnsetType = UNSET
    unanswered: list[Name] | UnsetType = UNSET
    epoch: Count | UnsetType = UNSET

    @property
    def apps(self) -> dict[str, dict[str, int]]:
        """Versions of the policies of each app that is to be notified."""
        others = {} if self.others is UNSET else self.others
        return {app_of(self.endpoint): self.policies, **others}


class Welcome(Struct, frozen=True, tag_field="kind", tag="welcome"):
    """Notification server to service: the session, which is also the name of its stream.

    ``incarnation`` and ``seq`` are those of the hello.
    """

    session: Name
    incarnation: Name
    seq: Count


class Identify(Struct, frozen=True, tag_field="kind", tag="identify"):
    """Notification server to service: request for a hello with a nonce.

    Sent at a start of the server, and after a hello of another start of the device, which may be a late copy.
    ``epoch`` is that of the server's assignments; absent: they are as installed.
    """

    endpoint: Endpoint
    nonce: Name
    epoch: Count | UnsetType = UNSET


class Redirect(Struct, frozen=True, tag_field="kind", tag="redirect"):
    """Notification server to service: the address of the responsible server.

    ``epoch`` is that of the sender's assignments; absent: they are as installed.
    """

    to: Name
    epoch: Count | UnsetType = UNSET


class Upsert(Struct, frozen=True, tag_field="op", tag="upsert"):
    """Change in a continuous read: a new version of a record, or one that has come into its window.

    The fields are those of :class:`mudkit.systems.mud.messages.parts.Row` that readers may know; ``data`` has
    the columns of the read.
    """

    key: Name
    ver: Count
    data: Fields
    predicate: SentPredicate | None
    ts_us: Count
    lsn: Count


class LeftRead(Struct, frozen=True, tag_field="op", tag="remove"):
    """Change in a continuous read: a record that the reader was sent has left it, or its window.

    ``ver`` None: the reader holds the record and may not know whether it still exists.
    """

    key: Name
    ver: Count | None


class Tell(Struct, frozen=True, tag_field="what", tag="tell", kw_only=True):
    """Processor to notification server to device: a change, aggregates, the end of synchronisation or read.

    The first one of a registration names the ``partitions`` that the processor serves of the read.

    ``state`` is that of the aggregates of the processor's records, for :meth:`Aggregates.combine`.
    ``lsn`` comes with a change; None: the record existed before the registration. ``also`` has the changes of
    the same moment: those of the other records of a batch, and of a window the record that has come into it
    or left it in exchange. ``synced_lsn`` is the log
    position up to which everything was sent. ``ended`` is the reason; ``is_alone`` comes with it and is True
    if other processors have no reason to end the read, else absent. ``has_moved``: the processor serves some
    of its partitions no longer, and has ended its part of the read, which is to be registered anew.
    ``log_incarnation`` is the one in which positions count; absent: the first one.
    """

    endpoint: Endpoint
    session: Name
    handle: Name
    processor: Name
    generation: Count = field(name="life")
    table: Count
    change: Upsert | LeftRead | UnsetType = UNSET
    lsn: Count | UnsetType | None = UNSET
    synced_lsn: Count | UnsetType = field(name="synced", default=UNSET)
    ended: str | UnsetType = UNSET
    is_alone: bool | UnsetType = UNSET
    log_incarnation: Name | UnsetType = field(name="start", default=UNSET)
    state: list[Value] | UnsetType = UNSET
    also: list[Upsert | LeftRead] | UnsetType = UNSET
    partitions: Partitions | UnsetType = field(name="of", default=UNSET)
    has_moved: Literal[True] | UnsetType = field(name="moved", default=UNSET)

    def __post_init__(self) -> None:
        kinds = self.change, self.synced_lsn, self.ended, self.state, self.has_moved
        check_consistent(kinds.count(UNSET) == len(kinds) - 1)
        if self.partitions is not UNSET:
            read_partitions(self.partitions)
        check_consistent(self.also is UNSET or self.change is not UNSET)
        check_consistent((self.change is UNSET) is (self.lsn is UNSET))


class NewGeneration(Struct, frozen=True, tag_field="what", tag="life"):
    """Processor to notification server to devices: its generation, after a start."""

    processor: Name
    generation: Count = field(name="life")


def _version_of(document: Fields) -> int:
    """Return the version of a policy's document; raise ValueError if it has none."""
    version = document.get("version")
    if type(version) is not int or not 0 <= version < 1 << 62:
        raise ValueError("the document has no version")
    return version


class PolicyUpdate(Struct, frozen=True, tag_field="what", tag="policy", kw_only=True):
    """Generator to notification server: a policy; ``to`` None: for all devices, else the devices' names.

    ``policy`` names the slot that it takes on a device: its kind, or its kind and table.
    """

    app: str
    policy: str
    document: Fields
    to: list[str] | None

    def __post_init__(self) -> None:
        _version_of(self.document)

    @property
    def version(self) -> int:
        """Version of the policy."""
        return _version_of(self.document)

    @property
    def kind(self) -> str:
        """Kind of the policy."""
        return self.policy.partition(" ")[0]


class Policy(Struct, frozen=True, tag_field="what", tag="policy", kw_only=True):
    """Notification server to service: a policy for an app; ``policy`` as in :class:`PolicyUpdate`."""

    app: str
    policy: str
    document: Fields

    def __post_init__(self) -> None:
        _version_of(self.document)


class Whereabouts(Struct, frozen=True, tag_field="what", tag="whereabouts"):
    """Processor to notification server: last known address of a device whose session the server has lost.

    ``is_proven``: the app has registered with a token.
    """

    endpoint: Endpoint
    address: Name
    is_proven: bool = False


Notification: TypeAlias = Tell | NewGeneration | Policy
"""Body of the stream from a notification server to a device's service."""

ServerNotification: TypeAlias = Tell | NewGeneration | Whereabouts | PolicyUpdate
"""Body of the stream from a processor (or of the generator: PolicyUpdate) to a notification server."""


class PoliciesRequest(Struct, frozen=True, tag_field="kind", tag="follow"):
    """Notification server to generator: request for all shipped policies."""


class PoliciesFollow(Struct, frozen=True, tag_field="kind", tag="followed"):
    """Generator to notification server: acknowledges the request; the policies follow in a new stream."""


class SessionGone(Struct, frozen=True, tag_field="kind", tag="gone"):
    """Notification server to processor: a session has ended; with ``endpoint``: it is not this app's."""

    session: Name
    endpoint: Endpoint | UnsetType = UNSET


class DeviceMoved(Struct, frozen=True, tag_field="kind", tag="moved"):
    """Notification server to processor: new address of a session's device; sent back to acknowledge it."""

    session: Name
    endpoint: Endpoint
    address: Name


class Occupied(Struct, frozen=True, tag_field="kind", tag="occupied"):
    """Notification server to another one: one of its devices has this address now."""

    address: Name


class Vacated(Struct, frozen=True, tag_field="kind", tag="vacated"):
    """Acknowledges :class:`Occupied`: nothing for its devices is sent to this address any more."""

    address: Name


SERVICE_FROM_NOTIFICATION_SERVER: Final = Accepts[Welcome | Redirect | Identify | StreamItem[Notification]](
    Welcome, Redirect, Identify, StreamItem[Notification]
)

PROCESSOR_FROM_NOTIFICATION_SERVER: Final = Accepts[SessionGone | DeviceMoved | StreamAck | Assignments](
    SessionGone, DeviceMoved, StreamAck, Assignments
)

NOTIFICATION_SERVER_FROM_SERVICE: Final = Accepts[Hello | StreamAck](Hello, StreamAck)

NOTIFICATION_SERVER_FROM_CLOUD: Final = Accepts[
    PoliciesFollow | DeviceMoved | StreamItem[ServerNotification] | Assignments
](PoliciesFollow, DeviceMoved, StreamItem[ServerNotification], Assignments)
"""From processors and the generator."""

NOTIFICATION_SERVER_FROM_ANOTHER: Final = Accepts[Occupied | Vacated](Occupied, Vacated)

GENERATOR_FROM_NOTIFICATION_SERVER: Final = Accepts[PoliciesRequest | StreamAck | Assignments](
    PoliciesRequest, StreamAck, Assignments
)
