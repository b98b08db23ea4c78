"""Every message of last hop, from whom to whom; the check of all that a machine takes (Last hop 3).

A session is ``[incarnation, life, count]``: the identifier of the device's store, which a restore copies;
the start of its machine, 1 or a drawn number; and the number of the session in that start. A stream of
messages to the device belongs to one session and has its name.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType, field

from mudkit.delivery.stream import MAX_EARLY_ITEMS, StreamItem
from mudkit.errors import MudkitError
from mudkit.systems.arguments import is_storable
from mudkit.systems.lasthop.spool.policies import Forwarding, Kind
from mudkit.systems.lasthop.subscription import Mode, Subscription
from mudkit.systems.receiving import Accepts, Count
from mudkit.wire import Value

__all__ = [
    "Ack",
    "Body",
    "Content",
    "DeviceFacts",
    "Fact",
    "FactsAck",
    "Forwarded",
    "FromDevice",
    "FromServer",
    "HasRead",
    "Hello",
    "Identify",
    "LetGo",
    "Offered",
    "Ranks",
    "Read",
    "Retracts",
    "Session",
    "Shown",
    "Shows",
    "Stream",
    "Subscribes",
    "Unsubscribes",
    "Wanted",
    "Wants",
    "Welcome",
]

Content: TypeAlias = dict[str, Value]
"""What a publisher says of a message: the application's own."""
_Text = Annotated[str, Meta(min_length=1, max_length=1 << 16)]
_Rank = Annotated[float, Meta(ge=-1e9, le=1e9)]
_Incarnation = Annotated[str, Meta(pattern="^[0-9a-f]{8}$")]
Session: TypeAlias = tuple[_Incarnation, Count, Count]
"""A store of the device, a start of its machine, and the number of the session in that start."""
_Number = Annotated[int, Meta(ge=1, le=1 << 62)]


# -- what a device tells


class Policy(Struct, frozen=True, forbid_unknown_fields=True):
    """A forwarding policy of a subscription; :class:`Subscription` knows the bounds."""

    kind: Kind
    prefetch_limit: int | str
    expiration_threshold_s: float | str | None
    delay_s: float | str | None


class Wanted(Struct, frozen=True, forbid_unknown_fields=True):
    """A subscription as it is described; :class:`Subscription` knows the bounds (3.2)."""

    topic: _Text
    max: int | None
    threshold: float
    mode: Mode
    policy: Policy
    quiet_h: tuple[float, float] | None
    interrupt: float | None
    at_h: list[float]
    per_day: int | None

    @classmethod
    def of(cls, wanted: Subscription) -> Wanted:
        """Write a subscription as it is sent and stored."""
        forwarding = wanted.forwarding
        policy = Policy(
            forwarding.kind, forwarding.prefetch_limit, forwarding.expiration_threshold_s, forwarding.delay_s
        )
        quiet_h = None if wanted.quiet_h is None else (wanted.quiet_h[0], wanted.quiet_h[1])
        return cls(
            wanted.topic, wanted.max, wanted.threshold, wanted.mode, policy, quiet_h, wanted.interrupt,
            list(wanted.at_h), wanted.per_day,
        )  # fmt: skip

    def subscription(self) -> Subscription:
        """Return the subscription.

        Raises
        ------
        ParameterError
            There can be none such.
        """
        policy = self.policy
        forwarding = Forwarding(
            policy.kind, policy.prefetch_limit, policy.expiration_threshold_s, policy.delay_s
        )
        return Subscription(
            self.topic, self.max, self.threshold, self.mode, forwarding, self.quiet_h, self.interrupt,
            tuple(self.at_h), self.per_day,
        )  # fmt: skip


class _Fact(Struct, frozen=True, tag_field="what"):
    """Something that a device tells of a topic, once and in order."""

    topic: _Text


class Subscribes(_Fact, frozen=True, tag="subscribe"):
    """It wants the topic, or other limits of it (3.2)."""

    subscription: Wanted


class Unsubscribes(_Fact, frozen=True, tag="unsubscribe"):
    """It wants no more of the topic."""


class HasRead(_Fact, frozen=True, tag="read"):
    """These were read there at some time, by the read of that number (4.2: those read offline as well)."""

    at_us: Count
    ids: list[_Text]
    number: Count


class LetGo(_Fact, frozen=True, tag="gone"):
    """These are not there and will not be shown."""

    ids: list[_Text]


class Shown(_Fact, frozen=True, tag="shown"):
    """These were shown, which counts as read."""

    ids: list[_Text]


Fact: TypeAlias = Subscribes | Unsubscribes | HasRead | LetGo | Shown
_Facts = list[tuple[_Number, Fact]]


class _Message(Struct, frozen=True, tag_field="kind"):
    """A message; ``device`` says whose talk it belongs to."""

    device: _Text


class Wants(Struct, frozen=True):
    """All that a device is subscribed to; a part of messages.

    Parameters
    ----------
    topics : dict of str to (int, Wanted)
        Each subscription, with the number of the fact by which it began.
    first : int
        Number of the first fact that the server has not acknowledged.
    base : int
        Number of the last fact that was in the store when the machine started.
    """

    topics: dict[_Text, tuple[Count, Wanted]]
    first: Count
    base: Count


class Hello(_Message, frozen=True, tag="hello"):
    """Device to server: a session begins.

    It says how many messages have room (null: any number), up to where the last session had come, or else
    what is there with its ranks, and the facts that the server has not heard. ``wants`` is there when the
    store of one of them may be an old backup: after a restart of the device, and in answer to a question.
    """

    session: Session
    room: Annotated[int, Meta(ge=1, le=1 << 31)] | None
    after: tuple[_Text, Count] | None
    holds: dict[_Text, dict[_Text, _Rank]]
    facts: _Facts
    wants: Wants | UnsetType = UNSET


class DeviceFacts(_Message, frozen=True, tag="told"):
    """Device to server: the facts that it has not heard."""

    session: Session
    facts: _Facts


class Read(_Message, frozen=True, tag="read"):
    """Device to server: somebody reads at most so many (null: all), is there anything better? (4.5)."""

    session: Session
    topic: _Text
    number: _Number
    most: Annotated[float, Meta(ge=0.0)] | None


class Ack(Struct, frozen=True, tag_field="kind", tag="confirmed", kw_only=True):
    """Device to server: all of a stream has come up to a number, and those that it misses have not."""

    stream: _Text
    seq: Count = field(name="number")
    missing: Annotated[list[_Number], Meta(max_length=MAX_EARLY_ITEMS)] | UnsetType = UNSET
    device: _Text


# -- what a server tells


class Welcome(_Message, frozen=True, tag="welcome"):
    """Server to device: the session has begun, and the facts are known up to a number."""

    session: Session
    seq: Count = field(name="number")


class FactsAck(_Message, frozen=True, tag="heard"):
    """Server to device, in answer to what it told: the facts are known up to a number."""

    session: Session
    seq: Count = field(name="number")


class Identify(_Message, frozen=True, tag="who"):
    """Server to device: it does not know this session, which has to begin anew.

    ``start`` is the incarnation of a server that has just started: a device answers it once, whatever the
    session that the server knows; absent: of a server that has heard this session.
    """

    session: Session
    start: _Incarnation | UnsetType = UNSET


class _Body(Struct, frozen=True, tag_field="what"):
    """What a stream carries: of the subscription to a topic that began with the fact of a number."""

    topic: _Text
    run: _Number


class Forwarded(_Body, frozen=True, tag="message"):
    """A message, to be kept there or shown at once; ``order`` is which it was of all that came (4.5)."""

    id: _Text
    rank: _Rank
    order: Count
    shown: bool
    expires_us: Count | None
    content: Content


class Ranks(_Body, frozen=True, tag="rank"):
    """A message that is there has another rank (3.1)."""

    id: _Text
    rank: _Rank


class Retracts(_Body, frozen=True, tag="retract"):
    """A message is not wanted there any more: its rank has fallen below the threshold (3.1)."""

    id: _Text


class Shows(_Body, frozen=True, tag="show"):
    """Messages that are there are to be shown now."""

    ids: list[_Text]


class Offered(_Body, frozen=True, tag="offered"):
    """All that is better has come, for the read of that number."""

    number: Count


Body: TypeAlias = Forwarded | Ranks | Retracts | Shows | Offered


class Stream(StreamItem[Body], frozen=True, tag_field="kind", tag="stream"):
    """Server to device: the next of a session's stream, see :mod:`mudkit.delivery.stream`."""

    device: _Text


class FromDevice(Accepts[Hello | DeviceFacts | Read | Ack]):
    """What a server takes, from the device of which it is."""

    def __init__(self) -> None:
        super().__init__(Hello, DeviceFacts, Read, Ack)

    def decode(self, message: Struct | Value) -> Hello | DeviceFacts | Read | Ack | None:
        """Give a message as what it is, or None: all that it wants must be something that can be had."""
        decoded = super().decode(message)
        facts = decoded.facts if isinstance(decoded, Hello | DeviceFacts) else []
        wants = decoded.wants if isinstance(decoded, Hello) else UNSET
        told = [fact for _, fact in facts]
        if wants is not UNSET:
            told += [Subscribes(topic, wanted) for topic, (_, wanted) in wants.topics.items()]
        return decoded if all(_can_be_had(fact) for fact in told) else None


class FromServer(Accepts[Welcome | FactsAck | Identify | Stream]):
    """What a device takes, from its server."""

    def __init__(self) -> None:
        super().__init__(Welcome, FactsAck, Identify, Stream)

    def decode(self, message: Struct | Value) -> Welcome | FactsAck | Identify | Stream | None:
        """Give a message as what it is, or None: what it brings must be something that can be stored."""
        decoded = super().decode(message)
        brought = decoded.body if isinstance(decoded, Stream) else None
        return None if isinstance(brought, Forwarded) and not is_storable(brought.content) else decoded


def _can_be_had(fact: Fact) -> bool:
    if not isinstance(fact, Subscribes):
        return True
    try:
        return fact.subscription.subscription().topic == fact.topic
    except MudkitError:
        return False
