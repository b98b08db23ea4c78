"""Messages between devices and the spooling server, and operations of applications (Last hop 3).

A session is ``[store_id, incarnation, count]``: the identifier of the device's store; the incarnation of its
machine, 1 or a drawn number; and the number of the session in that incarnation. A stream of messages to the
device belongs to one session and has its name.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType, field

from mudkit.checks import is_storable
from mudkit.delivery.stream import MAX_EARLY_ITEMS, StreamItem
from mudkit.delivery.submission import Submission, SubmitAck, SubmitHello, SubmitUnknown, SubmitWelcome
from mudkit.errors import MudkitError
from mudkit.systems.lasthop.spool.policies import Forwarding, Kind
from mudkit.systems.lasthop.subscription import Mode, PlaceSubscription, Subscription
from mudkit.systems.receiving import Accepts, Count
from mudkit.wire import Value

Content: TypeAlias = dict[str, Value]
"""Fields of a message, as its publisher gave them."""
_Text = Annotated[str, Meta(min_length=1, max_length=1 << 16)]
_Rank = Annotated[float, Meta(ge=-1e9, le=1e9)]
_StoreId = Annotated[str, Meta(pattern="^[0-9a-f]{8}$")]
_Nonce = _StoreId
Session: TypeAlias = tuple[_StoreId, Count, Count]
"""Store id and incarnation of the device, and number of the session in that incarnation."""
_Number = Annotated[int, Meta(ge=1, le=1 << 62)]


# -- operations of applications


class Subscribe(Struct, frozen=True, tag_field="operation", tag="subscribe"):
    """Operation: subscribe the device to a topic, or change the limits (3.2)."""

    subscription: Subscription


class Unsubscribe(Struct, frozen=True, tag_field="operation", tag="unsubscribe"):
    """Operation: end the device's subscription to a topic (3.2)."""

    topic: str


class Read(Struct, frozen=True, tag_field="operation", tag="read"):
    """Operation: read the best messages of a topic (3.2)."""

    topic: str


class Follow(Struct, frozen=True, tag_field="operation", tag="follow"):
    """Operation: subscribe to a topic while the device is at one of several places (3.3)."""

    following: PlaceSubscription


class Unfollow(Struct, frozen=True, tag_field="operation", tag="unfollow"):
    """Operation: end a :class:`Follow`, by its topic."""

    topic: str


class QueueSizes(Struct, frozen=True, tag_field="operation", tag="queue_sizes"):
    """Operation: count the messages of each topic on the device."""


class Publish(Struct, frozen=True, tag_field="operation", tag="publish"):
    """Operation: publish a message, at the server or on the device of a publisher (3.1).

    Fields as of :meth:`mudkit.systems.lasthop.Topic.publish`.
    """

    topic: str
    rank: float
    expires_us: int | None
    content: Content
    item: str | None


class Rerank(Struct, frozen=True, tag_field="operation", tag="rerank"):
    """Operation: change the rank of a message, at the server or on the device of a publisher (3.1)."""

    topic: str
    identity: str
    rank: float


class CountSubmissions(Struct, frozen=True, tag_field="operation", tag="submissions"):
    """Operation: count the submissions of a publisher that are pending, were refused, or have expired."""


class Queues(Struct, frozen=True, tag_field="operation", tag="queues"):
    """Operation: count the messages of a topic that wait at the server for a device.

    And those that are on the device, as far as the server knows.
    """

    device: str
    topic: str


# -- device to server


class PolicyFields(Struct, frozen=True, forbid_unknown_fields=True):
    """A forwarding policy in a message or a store; :class:`Subscription` checks the ranges."""

    kind: Kind
    prefetch_limit: int | str
    expiration_threshold_s: float | str | None
    delay_s: float | str | None
    remembers_reads: bool | UnsetType = UNSET


class SubscriptionFields(Struct, frozen=True, forbid_unknown_fields=True):
    """A subscription in a message or a store; :class:`Subscription` checks the ranges (3.2)."""

    topic: _Text
    max: int | None
    threshold: float
    mode: Mode
    policy: PolicyFields
    quiet_h: tuple[float, float] | None
    interrupt: float | None
    at_h: list[float]
    per_day: int | None

    @classmethod
    def of(cls, subscription: Subscription) -> SubscriptionFields:
        """Convert a subscription, to be sent or stored."""
        forwarding = subscription.forwarding
        policy = PolicyFields(
            forwarding.kind,
            forwarding.prefetch_limit,
            forwarding.expiration_threshold_s,
            forwarding.delay_s,
            forwarding.remembers_reads or UNSET,
        )
        quiet_h = None if subscription.quiet_h is None else (subscription.quiet_h[0], subscription.quiet_h[1])
        return cls(
            subscription.topic, subscription.max, subscription.threshold, subscription.mode, policy, quiet_h,
            subscription.interrupt, list(subscription.at_h), subscription.per_day,
        )  # fmt: skip

    def subscription(self) -> Subscription:
        """Return the subscription; raise ParameterError if a value is out of range."""
        policy = self.policy
        forwarding = Forwarding(
            policy.kind,
            policy.prefetch_limit,
            policy.expiration_threshold_s,
            policy.delay_s,
            remembers_reads=policy.remembers_reads is True,
        )
        return Subscription(
            self.topic, self.max, self.threshold, self.mode, forwarding, self.quiet_h, self.interrupt,
            tuple(self.at_h), self.per_day,
        )  # fmt: skip


class _Fact(Struct, frozen=True, tag_field="what"):
    """Event on a device that concerns a topic; the server handles each once, in order of their numbers."""

    topic: _Text


class Subscribed(_Fact, frozen=True, tag="subscribe"):
    """The user subscribed to the topic, or changed the limits (3.2)."""

    subscription: SubscriptionFields


class Unsubscribed(_Fact, frozen=True, tag="unsubscribe"):
    """The subscription ended."""


class HasRead(_Fact, frozen=True, tag="read"):
    """The read with a number took these messages at a time, perhaps without a link (4.2)."""

    at_us: Count
    ids: list[_Text]
    number: Count


class Dropped(_Fact, frozen=True, tag="gone"):
    """These messages are not on the device, or no longer, and will not be shown."""

    ids: list[_Text]


class Shown(_Fact, frozen=True, tag="shown"):
    """These messages were shown, which counts as read."""

    ids: list[_Text]


Fact: TypeAlias = Subscribed | Unsubscribed | HasRead | Dropped | Shown
_Facts = list[tuple[_Number, Fact]]


class _Message(Struct, frozen=True, tag_field="kind"):
    """A message of the protocol between the server and a device."""

    device: _Text


class Subscriptions(Struct, frozen=True):
    """All subscriptions of a device, and the state of its log of facts, as part of a hello.

    ``topics`` has each with the number of the fact by which it began, and the highest ``order`` of its
    messages on the device. ``first`` is the first fact that the device still has; facts up to ``acked`` were
    acknowledged. The others answer Identify: its ``nonce``, and in ``base`` the last fact that both sides
    share, if the server's next one is not the device's (null: it is).
    """

    topics: dict[_Text, tuple[Count, SubscriptionFields, Count]]
    first: Count
    acked: Count
    base: Count | None = None
    nonce: _Nonce | UnsetType = UNSET


class Hello(_Message, frozen=True, tag="hello"):
    """Device to server: begin a session.

    ``room`` is the capacity (null: unlimited); ``after`` the last session and its last item; or else
    ``holds`` the messages on the device with their ranks; ``facts`` those not acknowledged, or not known to
    the server. ``wants`` is present when a store may be an old backup: after a restart of the device, and in
    answer to Identify.
    """

    session: Session
    room: Annotated[int, Meta(ge=1, le=1 << 31)] | None
    after: tuple[_Text, Count] | None
    holds: dict[_Text, dict[_Text, _Rank]]
    facts: _Facts
    wants: Subscriptions | UnsetType = UNSET


class DeviceFacts(_Message, frozen=True, tag="told"):
    """Device to server: the facts that are not acknowledged, in a session that has begun."""

    session: Session
    facts: _Facts


class ReadRequest(_Message, frozen=True, tag="read"):
    """Device to server: the user reads up to ``most`` messages (null: all); send any better ones (4.5)."""

    session: Session
    topic: _Text
    number: _Number
    most: Annotated[float, Meta(ge=0.0)] | None


class Ack(Struct, frozen=True, tag_field="kind", tag="confirmed", kw_only=True):
    """Device to server: all items of a stream arrived up to a number, except for the missing ones."""

    stream: _Text
    seq: Count = field(name="number")
    missing: Annotated[list[_Number], Meta(max_length=MAX_EARLY_ITEMS)] | UnsetType = UNSET
    device: _Text


# -- server to device


class Welcome(_Message, frozen=True, tag="welcome"):
    """Server to device: the session has begun; facts are acknowledged up to a number."""

    session: Session
    seq: Count = field(name="number")


class FactsAck(_Message, frozen=True, tag="heard"):
    """Server to device: all facts are acknowledged up to a number."""

    session: Session
    seq: Count = field(name="number")


class Identify(_Message, frozen=True, tag="who"):
    """Server to device: the session is unknown; begin another one, whose hello carries the nonce.

    ``known`` is the last incarnation of the device at the server, and the number of its last fact there. A
    server that has just started has ``restarted``: a device answers this once, whatever session the server
    knows. It is absent if the server has received a message of this session.
    """

    session: Session
    nonce: _Nonce
    known: tuple[str, Count, Count]
    restarted: bool | UnsetType = UNSET


class _Body(Struct, frozen=True, tag_field="what"):
    """Item of a stream, for the subscription to a topic that began with the fact ``subscribed_seq``."""

    topic: _Text
    subscribed_seq: _Number = field(name="run")


class Forwarded(_Body, frozen=True, tag="message"):
    """A message of a topic for the device, which queues it, or shows it at once if ``shown``.

    ``order`` numbers the arrivals at the server (4.5).
    """

    id: _Text
    rank: _Rank
    order: Count
    shown: bool
    expires_us: Count | None
    content: Content


class RankChange(_Body, frozen=True, tag="rank"):
    """A message on the device has another rank (3.1)."""

    id: _Text
    rank: _Rank


class Retraction(_Body, frozen=True, tag="retract"):
    """The rank of a message has dropped below the threshold: remove it (3.1)."""

    id: _Text


class ShowRequest(_Body, frozen=True, tag="show"):
    """Show these queued messages now."""

    ids: list[_Text]


class ReadComplete(_Body, frozen=True, tag="offered"):
    """All better messages for the read with a number have been sent."""

    number: Count


Body: TypeAlias = Forwarded | RankChange | Retraction | ShowRequest | ReadComplete


class StreamMessage(StreamItem[Body], frozen=True, tag_field="kind", tag="stream"):
    """Server to device: the next item of a session's stream, see :mod:`mudkit.delivery.stream`."""

    device: _Text


# -- publisher to server, and back

# Sessions and acknowledgements: :mod:`mudkit.delivery.submission`, for publishers as in section 2.


class PublishedMessage(Struct, frozen=True, tag_field="what", tag="publish"):
    """A message that a publisher submits (3.1).

    ``item`` is its name; null: the topic and the name of the submission. ``created_us`` is when it was
    published, and ``expires_us`` when it expires (null: never). The server refuses a rank that is out of
    range.
    """

    topic: _Text
    rank: float
    content: Content
    created_us: Count
    expires_us: Count | None
    item: _Text | None


class RankUpdate(Struct, frozen=True, tag_field="what", tag="rerank"):
    """A message that was published has another rank (3.1)."""

    topic: _Text
    id: _Text
    rank: float


Publication: TypeAlias = PublishedMessage | RankUpdate
"""Publication that a publisher submits."""
FromPublisher: TypeAlias = SubmitHello | Submission[Publication]
"""Publisher to server: begin a session; a message or a change of a rank, once and in order (2, 3.1)."""
ToPublisher: TypeAlias = SubmitWelcome | SubmitAck | SubmitUnknown
"""Server to publisher: the name of the session; carried out or refused; say hello again."""


# -- decoding


class FromDevice(Accepts[Hello | DeviceFacts | ReadRequest | Ack | FromPublisher]):
    """Decoder of the messages that the server accepts from a device."""

    def __init__(self) -> None:
        super().__init__(Hello, DeviceFacts, ReadRequest, Ack, SubmitHello, Submission[Publication])

    def decode(
        self, message: Struct | Value
    ) -> Hello | DeviceFacts | ReadRequest | Ack | FromPublisher | None:
        """Decode a message; None if it is malformed or a subscription in it is out of range."""
        decoded = super().decode(message)
        facts = [fact for _, fact in decoded.facts] if isinstance(decoded, Hello | DeviceFacts) else []
        subscriptions = decoded.wants if isinstance(decoded, Hello) else UNSET
        if subscriptions is not UNSET:
            facts += [Subscribed(topic, fields) for topic, (_, fields, _) in subscriptions.topics.items()]
        return decoded if all(_is_valid_fact(fact) for fact in facts) else None


class FromServer(Accepts[Welcome | FactsAck | Identify | StreamMessage]):
    """Decoder of the messages that a device accepts from its server."""

    def __init__(self) -> None:
        super().__init__(Welcome, FactsAck, Identify, StreamMessage)

    def decode(self, message: Struct | Value) -> Welcome | FactsAck | Identify | StreamMessage | None:
        """Decode a message; None if it is malformed or its content cannot be stored."""
        decoded = super().decode(message)
        body = decoded.body if isinstance(decoded, StreamMessage) else None
        return None if isinstance(body, Forwarded) and not is_storable(body.content) else decoded


def _is_valid_fact(fact: Fact) -> bool:
    """Return whether the subscription in a fact, if it has one, is within the ranges and of its topic."""
    if not isinstance(fact, Subscribed):
        return True
    try:
        return fact.subscription.subscription().topic == fact.topic
    except MudkitError:
        return False


class ForPublisher(Accepts[ToPublisher]):
    """Decoder of the messages that a publisher accepts from its server."""

    def __init__(self) -> None:
        super().__init__(SubmitWelcome, SubmitAck, SubmitUnknown)
