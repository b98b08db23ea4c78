"""Policies of today's push services, beside those of the paper.

A push service knows neither ranks nor reads. It forwards messages as they come, and stores those that a
device cannot receive: up to a number of messages, or the last one of each collapse key, until their time to
live ends.

Documented behaviour:

* Firebase Cloud Messaging on Android stores at most 100 messages that do not collapse. Beyond that it drops
  all stored messages; the app is notified when the device is back, and asks its own server [1]_.
* A message with a collapse key replaces the stored one with that key. For each device four keys are stored,
  with "no determining factor" which [1]_ (here the four that were used last).
* The time to live is from 0 s (never stored) to 28 days, which is the default [2]_.
* High priority is forwarded at once. Normal priority is forwarded while the device is in use, and waits for a
  maintenance window while it dozes [3]_. Windows become rarer the longer a device is unused [4]_; with the
  constants of Android's source it dozes after an hour, and windows of 5 min follow after 1, 2, 4, 6, 6, … h
  [5]_.
* Apple stores one notification for an app on a device, usually the latest, for 30 days at most [6]_.

Our assumptions: the app sends the highest ranks with high priority; only reads are use of the device; the app
sorts messages on the device by rank, and removes those that its server retracts.

References
----------
.. [1] firebase.google.com/docs/cloud-messaging/customize-messages/collapsible-message-types
.. [2] firebase.google.com/docs/cloud-messaging/customize-messages/setting-message-lifespan
.. [3] firebase.google.com/docs/cloud-messaging/android/message-priority
.. [4] developer.android.com/training/monitoring-device-state/doze-standby
.. [5] Android Open Source Project, DeviceIdleController.java
.. [6] developer.apple.com/documentation/usernotifications/sending-notification-requests-to-apns
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final, Literal

from mudkit.checks import check_arguments, number, one_of, whole_number
from mudkit.errors import ParameterError, brief
from mudkit.systems.lasthop.spool.policies import KINDS, Forwarding
from mudkit.systems.lasthop.spool.ranked import FOREVER_US, NOWHERE, Message, Ranked, Take

_STORED, _DROPPED, _DEVICE = range(3)
_DAY_S: Final = 86_400.0
_HOUR_US: Final = 3_600_000_000
_WINDOW_US: Final = 300_000_000
_PAUSES_US: Final = (_HOUR_US, 6 * _HOUR_US)
"""Pause before the first maintenance window; doubles with each window, up to the second value."""
_MAX_KEYS: Final = 4
_REMEMBER_US: Final = 7 * 24 * _HOUR_US


@check_arguments
@dataclass(frozen=True)
class Push:
    """Settings of a push service; the defaults are those of Firebase Cloud Messaging.

    Parameters
    ----------
    stored_limit : int
        Maximum number of messages stored for a device.
    when_full : {'drop all', 'drop oldest', 'drop lowest'}
        Messages dropped when the store overflows; no service drops the lowest rank.
    collapse_keys : int
        Number of keys that the app uses in turn, of which four are stored at a time; 0: messages do not
        collapse.
    time_to_live_s : float
        Maximum storage time in seconds; 0: messages are not stored.
    high_rank : float
        Messages of at least this rank have high priority. Of the notifications of 3,953 phones 22 % had one
        of the two highest of five priorities (Weber et al., MuC 2019): of uniform ranks those from 0.78 on.
    in_use_s : float
        Time in seconds after a read during which the device does not doze; infinite: it never does.
    synchronised : int
        Number of dropped messages, the latest, that the app fetches from its own server; 0: all are lost.

    Raises
    ------
    ParameterError
        A number is out of range, or ``when_full`` is unknown.
    """

    stored_limit: int = 100
    when_full: Literal["drop all", "drop oldest", "drop lowest"] = "drop all"
    collapse_keys: int = 0
    time_to_live_s: float = 28 * _DAY_S
    high_rank: float = 0.78
    in_use_s: float = 3600.0
    synchronised: int = 0

    kind = "push"

    def __post_init__(self) -> None:
        whole_number("stored_limit", self.stored_limit, 1, 1 << 31)
        whole_number("collapse_keys", self.collapse_keys, 0, 1 << 31)
        whole_number("synchronised", self.synchronised, 0, 1 << 31)
        number("time_to_live_s", self.time_to_live_s, 0.0, 30 * _DAY_S)
        number("high_rank", self.high_rank, -math.inf, math.inf)
        number("in_use_s", self.in_use_s, 0.0, math.inf)

    @classmethod
    def apple(cls) -> Push:
        """Return the settings of Apple's service: the latest notification of an app, without dozing."""
        return cls(1, "drop oldest", time_to_live_s=30 * _DAY_S, high_rank=-math.inf, in_use_s=math.inf)


def policy_of(given: str | Forwarding | Push, **settings: int | float | str | None) -> Forwarding | Push:
    """Return a policy, or build one by its kind: those of the paper, or ``push``."""
    if given != "push" and not isinstance(given, Push):
        if isinstance(given, str):
            one_of("policy", given, (*KINDS, "push"), "There is no such forwarding policy.")
        return Forwarding.of(given, **settings)
    if settings:
        raise ParameterError(
            "A push service has no such settings.",
            where=", ".join(settings),
            found=brief(settings),
            expected="none of them",
            remedy="leave them out, or take the policy 'buffer'",
        )
    return given if isinstance(given, Push) else Push()


class PushSpool:
    """A push service and its app for one device, with the interface of :class:`Spool`."""

    def __init__(self, threshold: float, policy: Push, forward: Take, retract: Take) -> None:
        self._threshold = threshold
        self._policy = policy
        self._forward, self._retract = forward, retract
        self._stored: dict[Hashable, Message] = {}
        """Stored messages in order of arrival."""
        self._dropped: dict[Hashable, Message] = {}
        """Dropped messages that the app will fetch from its server."""
        self.device = Ranked(_DEVICE)
        self._known: dict[Hashable, Message] = {}
        self._finished: set[Hashable] = set()
        self._finished_us: deque[tuple[int, Hashable]] = deque()
        self._ends: list[tuple[int, int, Message]] = []
        """Ends of storage times, and expirations on the device."""
        self._order = 0
        self.is_up = False
        self.due_us = self._used_until_us = self._window_us = FOREVER_US
        self._pause_us = _PAUSES_US[0]
        self._start_use(0)

    @property
    def waiting(self) -> int:
        """Number of messages stored at the push service."""
        return len(self._stored)

    def notification(
        self, now_us: int, identity: Hashable, rank: float, expires_us: int = FOREVER_US
    ) -> None:
        """Add a message, or change the rank of one."""
        self.timeout(now_us)
        if identity in self._known:
            self._change_rank(now_us, self._known[identity], rank)
            return
        if not rank >= self._threshold or expires_us <= now_us or identity in self._finished:
            return
        self._order += 1
        message = Message(identity, rank, self._order, now_us, expires_us)
        self._known[identity] = message
        if self.is_up and self._may_go_at_once(now_us, message):
            self._deliver(message)
        else:
            self._store_or_end(now_us, message)

    def is_on_device(self, identity: Hashable) -> bool:
        """Return whether a message is on the device."""
        message = self._known.get(identity)
        return message is not None and message.place == _DEVICE

    def read(self, now_us: int, max_messages: float) -> list[Message]:
        """Read the best messages on the device; the read starts use, which delivers the stored ones first."""
        self.timeout(now_us)
        self._start_use(now_us)
        self._deliver_ready(now_us)
        taken = self.device.take(max_messages)
        for message in taken:
            self._finish(now_us, message)
        return taken

    def read_offline(self, at_us: int, identities: Iterable[Hashable], requested: float = 0) -> None:
        """Record an earlier read on the device; it counts as use of the device."""
        self.drop(at_us, identities)
        self._start_use(at_us)

    def drop(self, now_us: int, identities: Iterable[Hashable]) -> None:
        """Record messages that are no longer on the device."""
        for identity in identities:
            message = self._known.get(identity)
            if message is not None and message.place in (_DEVICE, NOWHERE):
                if message.place == _DEVICE:
                    self.device.remove(message)
                self._finish(now_us, message)

    def network(self, now_us: int, *, is_up: bool) -> None:
        """Record a change of the link."""
        self.timeout(now_us)
        self.is_up = is_up
        self._deliver_ready(now_us)

    def timeout(self, now_us: int) -> None:
        """Remove messages that expired or exceeded their time to live, and open maintenance windows."""
        ends = self._ends
        while self.due_us <= now_us:
            at_us = self.due_us
            while ends and ends[0][0] <= at_us:
                self._end_if_over(at_us, heappop(ends)[2])
            if self._window_us <= at_us:
                self._used_until_us = at_us + _WINDOW_US
                self._pause_us = min(2 * self._pause_us, _PAUSES_US[1])
                self._window_us = self._used_until_us + self._pause_us
                self._deliver_ready(at_us)
            self._recompute_due()

    # -- internal

    def _start_use(self, now_us: int) -> None:
        """Start a period of use; the device dozes after it."""
        self._pause_us = _PAUSES_US[0]
        if self._policy.in_use_s == math.inf:
            self._used_until_us = self._window_us = FOREVER_US
        else:
            self._used_until_us = now_us + round(self._policy.in_use_s * 1e6)
            self._window_us = self._used_until_us + self._pause_us
        self._recompute_due()

    def _recompute_due(self) -> None:
        """Set ``due_us`` to the first end of a message or the next window; ``FOREVER_US``: there is none."""
        self.due_us = min(self._ends[0][0] if self._ends else FOREVER_US, self._window_us)

    def _may_go_at_once(self, now_us: int, message: Message) -> bool:
        """Return whether a message is forwarded without a maintenance window: in use, or of high priority."""
        return now_us <= self._used_until_us or message.rank >= self._policy.high_rank

    def _deliver(self, message: Message) -> None:
        """Forward a message to the device, where it stays until it expires."""
        self.device.add(message)
        self._schedule_end(message.expires_us, message)
        self._forward(message)

    def _deliver_ready(self, now_us: int) -> None:
        """Deliver the stored messages that may go now, and dropped ones that the app fetches."""
        if not self.is_up:
            return
        ready = [message for message in self._stored.values() if self._may_go_at_once(now_us, message)]
        for message in ready:
            del self._stored[message.identity]
            self._deliver(message)
        if now_us <= self._used_until_us:
            for message in self._dropped.values():
                self._deliver(message)
            self._dropped.clear()

    def _store_or_end(self, now_us: int, message: Message) -> None:
        """Store a message for later, in place of that of its collapse key; drop others if it is full."""
        policy, stored = self._policy, self._stored
        until_us = min(message.expires_us, now_us + round(policy.time_to_live_s * 1e6))
        if until_us <= now_us:
            self._finish(now_us, message)
            return
        if policy.collapse_keys:
            for other in [
                other for other in stored.values() if self._collapse_key(other) == self._collapse_key(message)
            ]:
                self._forget(now_us, other)
        message.place = _STORED
        stored[message.identity] = message
        self._schedule_end(until_us, message)
        if policy.collapse_keys and len(stored) > _MAX_KEYS:
            self._forget(now_us, next(iter(stored.values())))
        if len(stored) <= policy.stored_limit:
            return
        match policy.when_full:
            case "drop all":
                dropped = list(stored.values())
            case "drop oldest":
                dropped = [next(iter(stored.values()))]
            case _:
                dropped = [min(stored.values(), key=lambda other: (other.rank, -other.order))]
        for other in dropped:
            self._drop(now_us, other)

    def _collapse_key(self, message: Message) -> int:
        """Return the collapse key of a message: the app uses its keys in turn."""
        return message.order % self._policy.collapse_keys

    def _drop(self, now_us: int, message: Message) -> None:
        """Drop a message for lack of room; the app's own server keeps the latest of these."""
        if not self._policy.synchronised:
            self._forget(now_us, message)
            return
        del self._stored[message.identity]
        message.place = _DROPPED
        self._dropped[message.identity] = message
        self._schedule_end(message.expires_us, message)
        if len(self._dropped) > self._policy.synchronised:
            self._forget(now_us, next(iter(self._dropped.values())))

    def _end_if_over(self, at_us: int, message: Message) -> None:
        """Remove a message at a time set for it, unless it has moved and stays."""
        if message.place == _STORED or (message.place != NOWHERE and message.expires_us <= at_us):
            self._forget(at_us, message)

    def _schedule_end(self, at_us: int, message: Message) -> None:
        """Set a time at which a message may end: of its storage, or its expiration."""
        if at_us < FOREVER_US:
            heappush(self._ends, (at_us, message.order, message))
            self.due_us = min(self.due_us, at_us)

    def _change_rank(self, now_us: int, message: Message, rank: float) -> None:
        """Change the rank of a message; below the threshold the app retracts it."""
        on_device = message.place == _DEVICE
        if not rank >= self._threshold:
            self._forget(now_us, message)
            if on_device:
                self._retract(message)
        elif on_device:
            self.device.rerank(message, rank)
        else:
            message.rank = rank
            self._deliver_ready(now_us)

    def _forget(self, now_us: int, message: Message) -> None:
        """Remove a message from where it is, and finish it."""
        if message.place == _DEVICE:
            self.device.remove(message)
        self._stored.pop(message.identity, None)
        self._dropped.pop(message.identity, None)
        self._finish(now_us, message)

    def _finish(self, now_us: int, message: Message) -> None:
        """Forget a message except for its name."""
        message.place = NOWHERE
        del self._known[message.identity]
        self._finished.add(message.identity)
        self._finished_us.append((now_us, message.identity))
        while self._finished_us[0][0] < now_us - _REMEMBER_US:
            self._finished.discard(self._finished_us.popleft()[1])
