"""Machines of a device: the SUBLIM client, the client without state, and the publisher (section 3).

Rules of the SUBLIM client:

================  ====================================================================================
link up           attach to the best access point, which may be the current one
context changed   another access point is better: attach there with the next epoch. An automatic variable
                  has changed by more than a share: report, at most once per interval
Attached          this access point serves it; send it the policy and the report that it lacks
Identify          the access point has restarted or lost the state: attach again, with its nonce. From one
                  that does not serve this store: send Left
Behind            a former store, or a newer state of this one, had reached this epoch: attach with the next
taken             the access point knows higher numbers of reports or policies: continue after these
set policy        send with the next number until acknowledged
Deliver           the next one: store in the inbox, notify the application. In any case acknowledge the last
                  one in order. From an access point that does not serve this store: send Left
read              return the inbox; delete what was returned
start             notify the application again of what it may not have got
timer             retransmit the attachment, policy or report that is overdue
================  ====================================================================================

Attachment, policy and report have a deadline each, which other traffic does not postpone.

The client without state (sections 1 and 2) says hello to the nearest access point of either kind, and again
once a minute, because an access point that restarts has forgotten its subscribers.

The publisher stores each message in an outbox until the publish server has acknowledged or refused it; its
rules are those of :mod:`mudkit.delivery.submission`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from mudkit.delivery.notices import FieldsWithId, Notices
from mudkit.delivery.records import delivery
from mudkit.delivery.retransmit import RetransmitTimer
from mudkit.delivery.session import rollback_incident, store_id
from mudkit.delivery.submission import PendingSubmission, Submitter
from mudkit.display import View
from mudkit.errors import PredicateError
from mudkit.events import (
    Call,
    CancelTimer,
    Complete,
    ContextChanged,
    Effect,
    Event,
    LinkDown,
    LinkUp,
    Notify,
    Ports,
    Received,
    Record,
    Send,
    SetTimer,
    TimerFired,
    size_bytes,
)
from mudkit.predicates import Predicate
from mudkit.systems.receiving import record_dropped
from mudkit.systems.sublim._policy.text import PolicyError
from mudkit.systems.sublim.messages import (
    TO_CLIENT,
    TO_PLAIN_CLIENT,
    TO_SUBMITTER,
    Attach,
    Attached,
    Automatic,
    Behind,
    Body,
    Bye,
    CountSubmissions,
    Deliver,
    DeliveryAck,
    Hello,
    Identify,
    InstallPolicy,
    Left,
    PlainMessage,
    PolicyAck,
    PolicyText,
    Problem,
    Publish,
    Read,
    Report,
    ReportAck,
    SetPolicy,
    SubmittedMessage,
)
from mudkit.systems.sublim.servers.plain_access_point import LANGUAGE
from mudkit.systems.sublim.sites import Site, choose_access_point
from mudkit.wire import Fields

APP: Final = "messages"
PROBLEMS: Final = "problems"
"""Name of the application that is notified when a policy fails."""
_AGAIN: Final = "again"
_ATTACH: Final = "attach"
_POLICY: Final = "policy"
_REPORT: Final = "report"
_HELLO: Final = "hello"
_HELLO_INTERVAL_US: Final = 60_000_000


class _Attachment(msgspec.Struct, frozen=True):
    """Access point ``at`` that is to serve the client, and ``origin``, which has before; ``fresh``: none has.

    Stored; ``epoch`` counts its changes.
    """

    epoch: int = 0
    at: str | None = None
    origin: str | None = None
    fresh: bool = True


class _StoredPolicy(msgspec.Struct, frozen=True):
    """Last policy that was set; sent again to an access point that has lost it."""

    seq: int
    policy: PolicyText
    is_set: bool = False


class _StoredMessage(msgspec.Struct, frozen=True):
    """Unread message, or the reason why the policy has failed."""

    item: str
    id: str
    body: Body | msgspec.UnsetType = msgspec.UNSET
    problem: str | msgspec.UnsetType = msgspec.UNSET

    def for_application(self) -> FieldsWithId:
        """Return the message as the application gets it: its fields, with an attribute ``id``."""
        return FieldsWithId({} if isinstance(self.body, msgspec.UnsetType) else self.body, self.id)


class ClientMachine:
    """Client with state. ``every_us`` and ``change_share`` bound the rate of reports."""

    def __init__(
        self, ports: Ports, me: str, sites: Sequence[Site], every_us: int, change_share: float
    ) -> None:
        self._ports = ports
        self._store = ports.store
        self._me = me
        self._sites = sites
        self._every_us = every_us
        self._share = change_share
        self._loc: tuple[float, float] | None = None
        self._automatic: dict[str, float] = {}
        self._has_link = self._is_attached = False
        self._reported: dict[str, float] = {}
        self._reported_us: int | None = None
        self._acked_report = 0  # number of the last acknowledged report
        self._in_flight: RetransmitTimer[str | int] = RetransmitTimer(_AGAIN)
        """The attachment, the policy, and reports by number."""
        self._calls: dict[int, int] = {}  # op_id by number of the policy
        self._nonces: dict[str, str] = {}
        """Nonces of open questions, by access point."""
        self._sessions: dict[str, str | msgspec.UnsetType] = {}
        """Sessions of this start, by access point."""
        self._attached_report = 0
        """Number of the report of the last attachment that was sent."""
        self._notices = Notices(ports.store, _StoredMessage)
        self._returned: list[str] = []
        """Store keys of the messages that a read has returned since."""

    def overview(self) -> View:
        """Return the access point and the automatic variables for the display."""
        at = self._attachment.at
        return View(
            "",
            {
                "access point": at if self._is_attached else f"attaching to {at}" if at else "none",
                "variables": self._automatic,
                "variables reported": self._reported,
            },
        )

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        return [*self._notices.repeat(_build_notification), *self._handle_event(now_us, event)]

    def _handle_event(self, now_us: int, event: Event) -> Sequence[Effect]:
        """Handle one event; :meth:`handle` puts the notifications that a restart repeats before it."""
        match event:
            case Received():
                return self._receive_message(now_us, event)
            case ContextChanged(context=context):
                self._loc = context.get("loc")
                self._automatic = _automatic_variables(context)
                return self._follow_context(now_us)
            case LinkUp():
                self._has_link, self._is_attached = True, False
                return self._attach(now_us)
            case LinkDown():
                self._has_link = self._is_attached = False
                return [*self._in_flight.clear(), CancelTimer(_REPORT)]
            case TimerFired(name="report") if self._is_attached:
                return self._report_changes(now_us)
            case TimerFired(name=Notices.TIMER):
                self._notices.clear()
                self._delete_returned()
            case TimerFired(name="again") if self._has_link:
                return self._retransmit(now_us)
            case Call(op_id=op_id, operation=InstallPolicy(policy=policy)):
                return self._set_policy(now_us, op_id, policy)
            case Call(op_id=op_id, operation=Read()):
                return self._read(op_id, now_us)
        return ()

    def _receive_message(self, now_us: int, event: Received) -> Sequence[Effect]:
        """Handle a message if an access point of this lab has sent it to this store; else drop it."""
        source, message = event.source, TO_CLIENT.decode(event.message)
        is_point = any(site.address == source and site.is_stateful for site in self._sites)
        match message:
            case _ if not is_point or message is None:
                return record_dropped(event)
            case Deliver():
                return (
                    self._receive_delivery(now_us, source, message) if message.subscriber == self._me else ()
                )
            case _ if message.store_id != store_id(self._ports):
                return ()  # for a former store
            case Attached():
                return self._receive_attached(now_us, source, message)
            case Identify(nonce=nonce):
                return self._receive_identify(now_us, source, nonce)
            case Behind():
                return self._receive_behind(now_us, source, message)
            case ReportAck(seq=seq):
                return self._record_report_ack(now_us, seq)
            case PolicyAck(seq=seq, taken=True):
                return self._send_policy_with_number_above(now_us, seq)
            case PolicyAck(seq=seq, problem=problem):
                return self._receive_policy_ack(now_us, seq, problem)

    def _retransmit(self, now_us: int) -> Sequence[Effect]:
        """Retransmit the attachment, the policy or the report if it is overdue."""
        late = self._in_flight.overdue(now_us)
        effects: list[Effect] = []
        if _ATTACH in late:
            effects += self._attach(now_us)
        if _POLICY in late and self._is_attached:
            effects += self._send_policy(now_us)
        if any(isinstance(key, int) for key in late) and self._is_attached:
            effects += self._resend_report(now_us)
        return [*effects, *self._in_flight.restart(now_us)]

    # -- attaching

    @property
    def _attachment(self) -> _Attachment:
        """Stored attachment; before the first one, that of epoch 0."""
        return self._store.get("attachment", _Attachment) or _Attachment()

    def _attach(self, now_us: int) -> Sequence[Effect]:
        """Attach to the best access point; a change of access point is a new epoch, stored.

        If none is in range, it is tried again later.
        """
        stored = self._attachment
        target = self._choose_stateful(stored.at)
        if target is None:
            return self._in_flight.start(now_us, _ATTACH)
        if target != stored.at:
            stored = _Attachment(stored.epoch + 1, target, stored.origin or target, stored.fresh)
            self._store.put("attachment", stored)
        self._is_attached = False
        self._number_report(now_us)
        attach = Attach(
            self._me, stored.epoch, stored.origin or target, stored.fresh, self._last_report,
            Automatic(**self._automatic), store_id(self._ports),
            self._store.get("seen", int) or msgspec.UNSET, self._policy_seq,
            self._nonces.get(target, msgspec.UNSET),
        )  # fmt: skip
        self._attached_report = attach.report
        return Send(target, attach), *self._in_flight.start(now_us, _ATTACH, size_bytes(attach))

    @property
    def _policy_seq(self) -> int | msgspec.UnsetType:
        """Number of the policy that an access point has acknowledged; absent if none is."""
        stored = self._store.get("policy", _StoredPolicy)
        return stored.seq if stored is not None and stored.is_set else msgspec.UNSET

    def _receive_attached(self, now_us: int, source: str, message: Attached) -> Sequence[Effect]:
        """Record that the access point serves this client; send the policy and the changes that it lacks."""
        stored, epoch, report = self._attachment, message.epoch, message.report
        is_late = report < self._attached_report or not self._attached_report
        if epoch != stored.epoch or source != stored.at or is_late or not self._has_link:
            return ()
        self._is_attached = True
        self._nonces.pop(source, None)
        self._sessions[source] = message.session
        answered = [*self._in_flight.settle(now_us, _ATTACH), *self._report_with_number_above(now_us, report)]
        answered += self._record_report_ack(now_us, report)
        if stored.fresh or stored.origin != source:
            self._store.put("attachment", replace(stored, origin=source, fresh=False))
        policy = self._store.get("policy", _StoredPolicy)
        if policy is not None and message.policy is not msgspec.UNSET and message.policy < policy.seq:
            self._store.put("policy", replace(policy, is_set=False))
        changed = self._report_changes(now_us)  # since it attached
        return [*answered, *self._send_policy(now_us), *changed]

    def _receive_behind(self, now_us: int, source: str, message: Behind) -> Sequence[Effect]:
        """Attach again, with an epoch above the one that the access point knows."""
        stored, epoch = self._attachment, message.epoch
        if source != stored.at or not self._has_link:
            return ()
        if not isinstance(message.report, msgspec.UnsetType) and message.report > self._last_report:
            lost = self._skip_reports(message.report)
            self._store.put("attachment", replace(stored, epoch=max(epoch, stored.epoch) + 1))
            return lost, *self._attach(now_us)
        is_late_copy = message.report is not msgspec.UNSET and epoch <= stored.epoch
        if is_late_copy or epoch < stored.epoch or (epoch == stored.epoch and self._is_attached):
            return ()
        self._store.put("attachment", replace(stored, epoch=epoch + 1))
        return self._attach(now_us)

    def _receive_identify(self, now_us: int, source: str, nonce: str) -> Sequence[Effect]:
        """Attach again with the nonce of the question, or say that this client has left."""
        if source != self._attachment.at:
            return self._send_left(source, nonce)
        is_sent = self._nonces.get(source) == nonce and _ATTACH in self._in_flight
        self._nonces[source] = nonce
        return self._attach(now_us) if self._has_link and not is_sent else ()

    def _send_left(self, source: str, nonce: str | msgspec.UnsetType = msgspec.UNSET) -> Sequence[Effect]:
        """Send Left to an access point that does not serve this store any more."""
        attachment = self._attachment
        if attachment.fresh or source in (attachment.at, attachment.origin):
            return ()  # its state may be there
        # Until it is attached, that access point may have the only copy of its state.
        epoch = attachment.epoch if self._is_attached else 0
        return (Send(source, Left(self._me, store_id(self._ports), epoch, nonce)),)

    def _follow_context(self, now_us: int) -> Sequence[Effect]:
        """Attach elsewhere or report, if the change of context requires it."""
        if not self._has_link:
            return ()
        at = self._attachment.at
        if at is None or self._choose_stateful(at) != at:
            return self._attach(now_us)
        return self._report_changes(now_us) if self._is_attached else ()

    def _choose_stateful(self, now: str | None) -> str | None:
        """Return the address of the best access point with SUBLIM; ``now`` is the current one."""
        return choose_access_point([site for site in self._sites if site.is_stateful], self._loc, now)

    # -- automatic variables

    @property
    def _session(self) -> str | msgspec.UnsetType:
        """Session with the current access point, which messages to it repeat."""
        return self._sessions.get(self._attachment.at or "", msgspec.UNSET)

    @property
    def _last_report(self) -> int:
        """Number of the last report that was sent or skipped; 0 before the first."""
        return self._store.get("report", int) or 0

    def _report_changes(self, now_us: int) -> Sequence[Effect]:
        """Report the automatic variables if they have changed enough, or set a timer for when it may."""
        if not _has_changed(self._automatic, self._reported, self._share):
            return ()
        if self._reported_us is not None and now_us - self._reported_us < self._every_us:
            return (SetTimer(_REPORT, self._reported_us + self._every_us - now_us),)
        self._number_report(now_us)
        return self._send_report(now_us)

    def _number_report(self, now_us: int) -> None:
        """Count a report of the present automatic variables, and record that they are reported now."""
        self._store.put("report", self._last_report + 1)
        self._reported, self._reported_us = self._automatic, now_us

    def _send_report(self, now_us: int) -> Sequence[Effect]:
        """Send the last numbered report, in any case, and retransmit it until it is acknowledged."""
        seq = self._last_report
        report = Report(self._me, seq, Automatic(**self._reported), store_id(self._ports), self._session)
        return self._send_until_acked(now_us, seq, report)

    def _record_report_ack(self, now_us: int, seq: int) -> Sequence[Effect]:
        """Record an acknowledgement, which covers all earlier reports."""
        self._acked_report = max(self._acked_report, min(seq, self._last_report))
        return self._settle_reports(now_us, self._acked_report)

    def _settle_reports(self, now_us: int, up_to_seq: int) -> list[Effect]:
        """Stop retransmitting the reports up to a number: acknowledged, or superseded."""
        acked = [seq for seq in self._in_flight if isinstance(seq, int) and seq <= up_to_seq]
        return [effect for seq in acked for effect in self._in_flight.settle(now_us, seq)]

    def _report_with_number_above(self, now_us: int, seq: int) -> Sequence[Effect]:
        """Report under a number above ``seq``: this client has used and forgotten it.

        The incident is recorded. No effect if its last report has a higher number.
        """
        if seq <= self._last_report:
            return ()
        lost = self._skip_reports(seq)
        self._number_report(now_us)
        return (lost, *self._send_report(now_us))

    def _skip_reports(self, seq: int) -> Record:
        """Skip report numbers up to ``seq``, which this store has used and forgotten; return the incident.

        The caller has checked that ``seq`` is above the last number: a lower one would set it back.
        """
        lost = rollback_incident(self._me, f"it does not know its reports {self._last_report + 1} to {seq}")
        self._store.put("report", seq)
        return lost

    def _resend_report(self, now_us: int) -> Sequence[Effect]:
        """Retransmit the last report, which supersedes earlier ones, unless it is acknowledged."""
        stop = self._settle_reports(now_us, self._last_report - 1)
        return [*stop, *self._send_report(now_us)] if self._acked_report < self._last_report else stop

    # -- the policy

    def _set_policy(self, now_us: int, op_id: int, policy: PolicyText) -> Sequence[Effect]:
        """Store a new policy under the next number, and send it once attached; it replaces a pending one."""
        before = self._store.get("policy", _StoredPolicy)
        seq = (before.seq if before is not None else 0) + 1
        self._store.put("policy", _StoredPolicy(seq, policy))
        self._calls[seq] = op_id
        return self._send_policy(now_us) if self._is_attached else ()

    def _receive_policy_ack(
        self, now_us: int, seq: int, problem: Problem | msgspec.UnsetType
    ) -> Sequence[Effect]:
        """Complete the operation that has set this policy, with its error if refused, and earlier ones."""
        stored = self._store.get("policy", _StoredPolicy)
        effects: list[Effect] = []
        if stored is not None and stored.seq == seq:
            effects += self._in_flight.settle(now_us, _POLICY)
            if not stored.is_set:
                self._store.put("policy", replace(stored, is_set=True))
        op_id = self._calls.pop(seq, None)
        if op_id is None:
            return effects
        error = None
        if not isinstance(problem, msgspec.UnsetType):
            error = PolicyError(problem.summary, where=problem.where, found=problem.actual)
        older = [self._calls.pop(number) for number in list(self._calls) if number < seq]
        return [*effects, Complete(op_id, error=error), *(Complete(number) for number in older)]

    def _send_policy_with_number_above(self, now_us: int, seq: int) -> Sequence[Effect]:
        """Send a pending policy under a number above ``seq``: this client has used and forgotten it.

        The incident is recorded. No effect without a pending policy, or if its number is higher.
        """
        stored = self._store.get("policy", _StoredPolicy)
        if stored is None or stored.is_set or stored.seq > seq:
            return ()
        self._store.put("policy", _StoredPolicy(seq + 1, stored.policy))
        if stored.seq in self._calls:
            self._calls[seq + 1] = self._calls.pop(stored.seq)
        lost = rollback_incident(self._me, f"it does not know its policies {stored.seq} to {seq}")
        return (lost, *self._send_policy(now_us))

    def _send_policy(self, now_us: int) -> Sequence[Effect]:
        """Send the stored policy until acknowledged, unless the access point has it."""
        stored = self._store.get("policy", _StoredPolicy)
        if stored is None or stored.is_set:
            return ()
        policy = SetPolicy(self._me, stored.seq, stored.policy, store_id(self._ports), self._session)
        return self._send_until_acked(now_us, _POLICY, policy)

    def _send_until_acked(self, now_us: int, key: str | int, message: Report | SetPolicy) -> Sequence[Effect]:
        """Send a report or a policy to the current access point; retransmit it until acknowledged."""
        at = self._attachment.at
        sent = () if at is None else (Send(at, message),)
        return *sent, *self._in_flight.start(now_us, key, size_bytes(message))

    # -- messages

    def _receive_delivery(self, now_us: int, source: str, message: Deliver) -> Sequence[Effect]:
        """Store and notify a delivery of this session if it is the next; acknowledge the last one in order.

        One of another session is ignored. An access point that does not serve this store is sent Left.
        """
        attachment = self._attachment
        if source not in (attachment.at, attachment.origin):
            return self._send_left(source)
        if message.session != self._sessions.get(source):
            return ()  # of another session; the access point repeats it in this one
        seen = max(self._store.get("seen", int) or 0, message.first - 1)
        effects: list[Effect] = []
        if message.seq == seen + 1:
            seen = message.seq
            self._store.put("seen", seen)
            identifier = f"{store_id(self._ports)} {seen} {message.item}"
            entry = _StoredMessage(message.item, identifier, message.body, message.problem)
            effects += [_build_notification(entry), self._notices.add(entry)]
            if message.body is not msgspec.UNSET:
                self._store.put(f"in {seen:012d}", entry)
                effects.append(delivery(message.item, self._me, delivered_us=now_us))
        effects.append(Send(source, DeliveryAck(self._me, seen, message.session)))
        return effects

    def _read(self, op_id: int, now_us: int) -> Sequence[Effect]:
        """Complete a read with the unread messages; a timer deletes them once the application has them."""
        new = [
            (key, entry)
            for key, entry in self._store.items("in ", _StoredMessage)
            if key not in self._returned
        ]
        self._returned += [key for key, _ in new]
        read = [delivery(entry.item, self._me, read_us=now_us) for _, entry in new]
        timer = [SetTimer(Notices.TIMER, 0)] if new else []
        return [
            *read,
            Complete(op_id, [entry.for_application() for _, entry in new]),
            *timer,
        ]

    def _delete_returned(self) -> None:
        """Delete the messages that reads have returned."""
        for key in self._returned:
            self._store.delete(key)
        self._returned = []


def _build_notification(entry: _StoredMessage) -> Notify:
    """Return the notification of a delivery: of the message, or of the problem of the policy."""
    return (
        Notify(APP, entry.for_application())
        if entry.problem is msgspec.UNSET
        else Notify(PROBLEMS, entry.problem)
    )


def _automatic_variables(context: Fields) -> dict[str, float]:
    """Return the automatic variables in a device's context, without unknown ones."""
    share = context.get("battery_share")
    variables = {
        "battery": round(100.0 * share, 1) if isinstance(share, int | float) else None,
        "bandwidth_kbps": context.get("bandwidth_kbps"),
        "display_px": context.get("display_px"),
    }
    return {name: value for name, value in variables.items() if isinstance(value, int | float)}


def _has_changed(now: Mapping[str, float], before: Mapping[str, float], share: float) -> bool:
    """Return whether a variable appeared, disappeared, or differs by more than a share of its old value."""
    if now.keys() != before.keys():
        return True
    return any(abs(value - before[name]) > share * abs(before[name]) for name, value in now.items())


class PlainClientMachine:
    """Client without state: subscribes to the messages that match a predicate."""

    def __init__(self, ports: Ports, me: str, sites: Sequence[Site], predicate: str) -> None:
        self._me = me
        self._sites = sites
        self._predicate = predicate
        self._condition = Predicate.parse(predicate, language=LANGUAGE)
        self._at: str | None = None
        self._loc: tuple[float, float] | None = None
        self._has_link = False
        self._last: dict[str, int] = {}
        """Number of the last message, by the incarnation of the publish server's log."""
        self._unread: list[PlainMessage] = []

    def overview(self) -> View:
        """Return the access point and the predicate for the display."""
        return View(
            "",
            {"access point": self._at or "none", "condition": self._predicate, "not read": len(self._unread)},
        )

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        match event:
            case Received(source=source):
                message = TO_PLAIN_CLIENT.decode(event.message)
                if message is None or all(site.address != source for site in self._sites):
                    return record_dropped(event)
                if isinstance(message, Identify) or not self._matches(message):
                    return ()  # for the former owner of this address
                incarnation = "" if message.log_incarnation is msgspec.UNSET else message.log_incarnation
                if message.lsn <= self._last.get(incarnation, 0):
                    return ()
                self._last[incarnation] = message.lsn
                self._unread.append(message)
                return delivery(message.item, self._me, delivered_us=now_us), Notify(APP, message.body)
            case ContextChanged(context=context):
                self._loc = context.get("loc")
                if self._has_link and choose_access_point(self._sites, self._loc, self._at) != self._at:
                    return self._send_hello()
            case LinkUp():
                self._has_link = True
                return self._send_hello()
            case LinkDown():
                self._has_link = False
            case TimerFired() if self._has_link:
                return self._send_hello()
            case Call(op_id=op_id, operation=Read()):
                unread, self._unread = self._unread, []
                read = [delivery(plain.item, self._me, read_us=now_us) for plain in unread]
                return [*read, Complete(op_id, [plain.body for plain in unread])]
        return ()

    def _matches(self, message: PlainMessage) -> bool:
        """Return whether the predicate is TRUE of a message; False if it cannot be evaluated."""
        try:
            return self._condition(message.body) is True
        except PredicateError:
            return False

    def _send_hello(self) -> Sequence[Effect]:
        """Send a hello to the nearest access point, a bye to the one before, and set the next timer."""
        before, self._at = self._at, choose_access_point(self._sites, self._loc, self._at)
        timer = SetTimer(_HELLO, _HELLO_INTERVAL_US)
        if self._at is None:
            return (timer,)
        hello = Send(self._at, Hello(self._me, self._predicate))
        if before is None or before == self._at:
            return hello, timer
        return Send(before, Bye(self._me)), hello, timer


class _PendingMessage(PendingSubmission[SubmittedMessage], frozen=True):
    """Message in the outbox of a publisher."""


class PublisherMachine:
    """Publisher on the device ``me``, for the publish server at an address."""

    def __init__(self, ports: Ports, me: str, server: str) -> None:
        self._server = server
        self._submitter = Submitter(ports, me, server, _PendingMessage)

    def overview(self) -> View:
        """Return a display of the server and the counts of messages."""
        return View("", {"server": self._server, **self._submitter.counts()})

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        match event:
            case Call(op_id=op_id, operation=Publish() as request):
                return self._publish(now_us, op_id, request)
            case Call(op_id=op_id, operation=CountSubmissions()):
                return (Complete(op_id, self._submitter.counts()),)
            case Received(source=source):
                message = TO_SUBMITTER.decode(event.message) if source == self._server else None
                if message is None:
                    return record_dropped(event)
                return self._submitter.receive(now_us, message)
        return self._submitter.handle(now_us, event)

    def _publish(self, now_us: int, op_id: int, request: Publish) -> Sequence[Effect]:
        """Submit a message; the result of the operation is its name in the deliveries."""
        name = request.item or f"message {self._submitter.next_name}"
        return self._submitter.submit(now_us, op_id, SubmittedMessage(request.body, request.item), name)
