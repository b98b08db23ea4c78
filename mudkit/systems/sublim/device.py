"""Machines of a device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from mudkit.delivery.records import delivery
from mudkit.delivery.retransmit import RetransmitTimer
from mudkit.delivery.session import incarnation, rolled_back
from mudkit.display import View
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
    Send,
    SetTimer,
    TimerFired,
    size_bytes,
)
from mudkit.systems.receiving import dropped
from mudkit.systems.sublim._policy.text import PolicyError
from mudkit.systems.sublim.messages import (
    TO_CLIENT,
    TO_PLAIN_CLIENT,
    Attach,
    Attached,
    Automatic,
    Behind,
    Body,
    Bye,
    Deliver,
    DeliveryAck,
    Hello,
    Identify,
    InstallPolicy,
    Left,
    Plain,
    PolicySet,
    PolicyText,
    Problem,
    Read,
    Report,
    Reported,
    SetPolicy,
)
from mudkit.systems.sublim.sites import Site, best
from mudkit.wire import Fields

__all__ = [
    "APP",
    "PROBLEMS",
    "ClientMachine",
    "PlainClientMachine",
]

APP: Final = "messages"
PROBLEMS: Final = "problems"
"""The application that is told when a policy was stopped."""
_AGAIN: Final = "again"
_ATTACH: Final = "attach"
_POLICY: Final = "policy"
_REPORT: Final = "report"
_HELLO: Final = "hello"
_HELLO_INTERVAL_US: Final = 60_000_000


class _Attachment(msgspec.Struct, frozen=True):
    """Where the client attaches.

    Parameters
    ----------
    epoch : int
        How often it has gone to another access point.
    at : str or None
        The access point that is to serve it.
    origin : str or None
        The one that has served it before.
    fresh : bool
        Whether nobody has served it yet, as far as it knows.
    """

    epoch: int = 0
    at: str | None = None
    origin: str | None = None
    fresh: bool = True


class _Policy(msgspec.Struct, frozen=True):
    """The last policy that was set; an access point that has lost it is told again."""

    seq: int
    policy: PolicyText
    is_set: bool = False


class _Kept(msgspec.Struct, frozen=True):
    """A message that was not read yet."""

    item: str
    body: Body


class ClientMachine:
    """One device's machine.

    Parameters
    ----------
    ports : Ports
    me : str
        Name of the subscriber.
    sites : sequence of Site
        The access points, as they are put up.
    every_us : int
        Time between two reports, at least.
    change_share : float
        The share by which an automatic variable must have changed to be reported.
    """

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
        self._answered = 0  # the last report of which the access point has said that it has it
        self._unanswered: RetransmitTimer[str | int] = RetransmitTimer(_AGAIN)
        """The attachment, the policy, and reports by number."""
        self._calls: dict[int, int] = {}  # op_id by number of the policy

    def overview(self) -> View:
        """Return its access point and variables, as a display shows it."""
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
        match event:
            case Received():
                return self._received(now_us, event)
            case ContextChanged(context=context):
                self._loc = context.get("loc")
                self._automatic = _automatic(context)
                return self._go_on(now_us)
            case LinkUp():
                self._has_link, self._is_attached = True, False
                return self._attach(now_us)
            case LinkDown():
                self._has_link = self._is_attached = False
                return [*self._unanswered.clear(), CancelTimer(_REPORT)]
            case TimerFired(name="report") if self._is_attached:
                return self._report(now_us)
            case TimerFired(name="again") if self._has_link:
                return self._again(now_us)
            case Call(op_id=op_id, operation=InstallPolicy(policy=policy)):
                return self._set_policy(now_us, op_id, policy)
            case Call(op_id=op_id, operation=Read()):
                return self._read(op_id, now_us)
        return ()

    def _received(self, now_us: int, event: Received) -> Sequence[Effect]:
        """Take what access points say to this incarnation."""
        source, message = event.source, TO_CLIENT.decode(event.message)
        is_point = any(site.address == source and site.is_stateful for site in self._sites)
        match message:
            case _ if not is_point or message is None:
                return dropped(event)
            case Deliver():
                return self._take(now_us, source, message) if message.subscriber == self._me else ()
            case _ if message.incarnation != incarnation(self._ports):
                return ()  # to the one that it was
            case Attached():
                return self._attached(now_us, source, message)
            case Identify():
                return self._identify(now_us, source)
            case Behind(epoch=epoch):
                return self._behind(now_us, source, epoch)
            case Reported(seq=seq):
                return self._has_reported(now_us, seq)
            case PolicySet(seq=seq, taken=True):
                return self._policy_beyond(now_us, seq)
            case PolicySet(seq=seq, problem=problem):
                return self._policy_set(now_us, seq, problem)

    def _again(self, now_us: int) -> Sequence[Effect]:
        """Say again what should have been answered by now."""
        late = self._unanswered.overdue(now_us)
        effects: list[Effect] = []
        if _ATTACH in late:
            effects += self._attach(now_us)
        if _POLICY in late and self._is_attached:
            effects += self._say_policy(now_us)
        if any(isinstance(each, int) for each in late) and self._is_attached:
            effects += self._report_late(now_us)
        return [*effects, *self._unanswered.fired(now_us)]

    # -- attaching

    @property
    def _attachment(self) -> _Attachment:
        return self._store.get("attachment", _Attachment) or _Attachment()

    def _attach(self, now_us: int) -> Sequence[Effect]:
        """Go to the best access point; another one than before is a new epoch."""
        stored = self._attachment
        wanted = self._best(stored.at)
        if wanted is None:
            return self._unanswered.sent(now_us, _ATTACH)
        if wanted != stored.at:
            stored = _Attachment(stored.epoch + 1, wanted, stored.origin or wanted, stored.fresh)
            self._store.put("attachment", stored)
        self._is_attached = False
        self._note_report(now_us)
        attach = Attach(
            self._me, stored.epoch, stored.origin or wanted, stored.fresh, self._last_report,
            Automatic(**self._automatic), incarnation(self._ports),
            self._store.get("seen", int) or msgspec.UNSET, self._policy_seq,
        )  # fmt: skip
        return Send(wanted, attach), *self._unanswered.sent(now_us, _ATTACH, size_bytes(attach))

    @property
    def _policy_seq(self) -> int | msgspec.UnsetType:
        stored = self._store.get("policy", _Policy)
        return stored.seq if stored is not None and stored.is_set else msgspec.UNSET

    def _attached(self, now_us: int, source: str, message: Attached) -> Sequence[Effect]:
        stored, epoch, report = self._attachment, message.epoch, message.report
        if epoch != stored.epoch or source != stored.at or not self._has_link:
            return ()
        self._is_attached = True
        answered = [*self._unanswered.answered(now_us, _ATTACH), *self._go_beyond(now_us, report)]
        answered += self._has_reported(now_us, report)
        if stored.fresh or stored.origin != source:
            self._store.put("attachment", replace(stored, origin=source, fresh=False))
        policy = self._store.get("policy", _Policy)
        if policy is not None and message.policy is not msgspec.UNSET and message.policy < policy.seq:
            self._store.put("policy", replace(policy, is_set=False))
        late = self._report_late(now_us) if self._is_late() else ()
        changed = self._report(now_us)  # since it asked
        return [*answered, *late, *self._say_policy(now_us), *changed]

    def _behind(self, now_us: int, source: str, epoch: int) -> Sequence[Effect]:
        stored = self._attachment
        is_old = epoch < stored.epoch or (epoch == stored.epoch and self._is_attached)
        if source != stored.at or is_old or not self._has_link:
            return ()
        self._store.put("attachment", replace(stored, epoch=epoch + 1))
        return self._attach(now_us)

    def _identify(self, now_us: int, source: str) -> Sequence[Effect]:
        attachment = self._attachment
        if source == attachment.at:
            return self._attach(now_us) if self._has_link and self._is_attached else ()
        return self._left(source)

    def _left(self, source: str) -> Sequence[Effect]:
        """Tell an access point that it does not serve this incarnation any more."""
        attachment = self._attachment
        if attachment.fresh or source in (attachment.at, attachment.origin):
            return ()  # perhaps it goes on with what is kept there
        # Before it is attached, that access point may be the only one that has its state.
        epoch = attachment.epoch if self._is_attached else 0
        return (Send(source, Left(self._me, incarnation(self._ports), epoch)),)

    def _go_on(self, now_us: int) -> Sequence[Effect]:
        """See whether it matters that the context has changed."""
        if not self._has_link:
            return ()
        at = self._attachment.at
        if at is None or self._best(at) != at:
            return self._attach(now_us)
        return self._report(now_us) if self._is_attached else ()

    def _best(self, now: str | None) -> str | None:
        return best([site for site in self._sites if site.is_stateful], self._loc, now)

    # -- automatic variables

    @property
    def _last_report(self) -> int:
        return self._store.get("report", int) or 0

    def _report(self, now_us: int) -> Sequence[Effect]:
        if not _differs(self._automatic, self._reported, self._share):
            return ()
        if self._reported_us is not None and now_us - self._reported_us < self._every_us:
            return (SetTimer(_REPORT, self._reported_us + self._every_us - now_us),)
        self._note_report(now_us)
        return self._say_report(now_us)

    def _note_report(self, now_us: int) -> None:
        self._store.put("report", self._last_report + 1)
        self._reported, self._reported_us = self._automatic, now_us

    def _say_report(self, now_us: int) -> Sequence[Effect]:
        seq = self._last_report
        report = Report(self._me, seq, Automatic(**self._reported), incarnation(self._ports))
        return self._say(now_us, seq, report)

    def _has_reported(self, now_us: int, seq: int) -> Sequence[Effect]:
        """Take note of an answer, which is one to all reports before it, too."""
        self._answered = max(self._answered, min(seq, self._last_report))
        return self._forget_reports(now_us, self._answered)

    def _forget_reports(self, now_us: int, up_to_seq: int) -> list[Effect]:
        """Wait no longer for answers to reports up to a number."""
        over = [each for each in self._unanswered if isinstance(each, int) and each <= up_to_seq]
        return [effect for each in over for effect in self._unanswered.answered(now_us, each)]

    def _go_beyond(self, now_us: int, seq: int) -> Sequence[Effect]:
        """Report under a number above those that this client has used and forgotten."""
        if seq <= self._last_report:
            return ()
        lost = rolled_back(self._me, f"it does not know its reports {self._last_report + 1} to {seq}")
        self._store.put("report", seq)
        self._note_report(now_us)
        return (lost, *self._say_report(now_us))

    def _is_late(self) -> bool:
        return self._answered < self._last_report

    def _report_late(self, now_us: int) -> Sequence[Effect]:
        """Say the last report again: it stands for those before it."""
        stop = self._forget_reports(now_us, self._last_report - 1)
        return [*stop, *self._say_report(now_us)] if self._is_late() else stop

    # -- the policy

    def _set_policy(self, now_us: int, op_id: int, policy: PolicyText) -> Sequence[Effect]:
        before = self._store.get("policy", _Policy)
        seq = (before.seq if before is not None else 0) + 1
        self._store.put("policy", _Policy(seq, policy))
        self._calls[seq] = op_id
        return self._say_policy(now_us) if self._is_attached else ()

    def _policy_set(self, now_us: int, seq: int, problem: Problem | msgspec.UnsetType) -> Sequence[Effect]:
        stored = self._store.get("policy", _Policy)
        effects: list[Effect] = []
        if stored is not None and stored.seq == seq:
            effects += self._unanswered.answered(now_us, _POLICY)
            if not stored.is_set:
                self._store.put("policy", replace(stored, is_set=True))
        op_id = self._calls.pop(seq, None)
        if op_id is None:
            return effects
        error = None
        if not isinstance(problem, msgspec.UnsetType):
            error = PolicyError(problem.summary, where=problem.where, found=problem.found)
        older = [self._calls.pop(each) for each in list(self._calls) if each < seq]
        return [*effects, Complete(op_id, error=error), *(Complete(each) for each in older)]

    def _policy_beyond(self, now_us: int, seq: int) -> Sequence[Effect]:
        """Set the policy under a number above those that this client has used and forgotten."""
        stored = self._store.get("policy", _Policy)
        if stored is None or stored.is_set or stored.seq > seq:
            return ()
        self._store.put("policy", _Policy(seq + 1, stored.policy))
        if stored.seq in self._calls:
            self._calls[seq + 1] = self._calls.pop(stored.seq)
        lost = rolled_back(self._me, f"it does not know its policies {stored.seq} to {seq}")
        return (lost, *self._say_policy(now_us))

    def _say_policy(self, now_us: int) -> Sequence[Effect]:
        stored = self._store.get("policy", _Policy)
        if stored is None or stored.is_set:
            return ()
        policy = SetPolicy(self._me, stored.seq, stored.policy, incarnation(self._ports))
        return self._say(now_us, _POLICY, policy)

    def _say(self, now_us: int, key: str | int, message: Report | SetPolicy) -> Sequence[Effect]:
        """Tell the access point something, again if it does not answer."""
        at = self._attachment.at
        sent = () if at is None else (Send(at, message),)
        return *sent, *self._unanswered.sent(now_us, key, size_bytes(message))

    # -- messages

    def _take(self, now_us: int, source: str, message: Deliver) -> Sequence[Effect]:
        attachment = self._attachment
        if source not in (attachment.at, attachment.origin):
            return self._left(source)
        seen = max(self._store.get("seen", int) or 0, message.first - 1)
        effects: list[Effect] = []
        if message.seq == seen + 1:
            seen = message.seq
            self._store.put("seen", seen)
            if not isinstance(message.body, msgspec.UnsetType):
                self._store.put(f"in {seen:012d}", _Kept(message.item, message.body))
                effects.append(Notify(APP, message.body))
                effects.append(delivery(message.item, self._me, delivered_us=now_us))
            else:
                effects.append(Notify(PROBLEMS, message.problem))
        effects.append(Send(source, DeliveryAck(self._me, seen)))
        return effects

    def _read(self, op_id: int, now_us: int) -> Sequence[Effect]:
        new = self._store.items("in ", _Kept)
        for key, _ in new:
            self._store.delete(key)
        read = [delivery(each.item, self._me, read_us=now_us) for _, each in new]
        return [*read, Complete(op_id, [each.body for _, each in new])]


def _automatic(context: Fields) -> dict[str, float]:
    """Give the automatic variables of what the device knows of itself; what it does not know is left out."""
    share = context.get("battery_share")
    variables = {
        "battery": round(100.0 * share, 1) if isinstance(share, int | float) else None,
        "bandwidth_kbps": context.get("bandwidth_kbps"),
        "display_px": context.get("display_px"),
    }
    return {name: value for name, value in variables.items() if isinstance(value, int | float)}


def _differs(now: Mapping[str, float], before: Mapping[str, float], share: float) -> bool:
    if now.keys() != before.keys():
        return True
    return any(abs(value - before[name]) > share * abs(before[name]) for name, value in now.items())


class PlainClientMachine:
    """The machine of a subscriber without state.

    Parameters
    ----------
    ports : Ports
    me : str
    sites : sequence of Site
        All access points: any will do.
    wanted : str
        A predicate over the message.
    """

    def __init__(self, ports: Ports, me: str, sites: Sequence[Site], wanted: str) -> None:
        self._me = me
        self._sites = sites
        self._wanted = wanted
        self._at: str | None = None
        self._loc: tuple[float, float] | None = None
        self._has_link = False
        self._last = 0
        self._unread: list[Plain] = []

    def overview(self) -> View:
        """Return its access point and condition, as a display shows it."""
        return View(
            "",
            {"access point": self._at or "none", "condition": self._wanted, "not read": len(self._unread)},
        )

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        match event:
            case Received(source=source):
                message = TO_PLAIN_CLIENT.decode(event.message)
                if message is None or all(site.address != source for site in self._sites):
                    return dropped(event)
                if message.seq <= self._last:
                    return ()
                self._last = message.seq
                self._unread.append(message)
                return delivery(message.item, self._me, delivered_us=now_us), Notify(APP, message.body)
            case ContextChanged(context=context):
                self._loc = context.get("loc")
                if self._has_link and best(self._sites, self._loc, self._at) != self._at:
                    return self._hello()
            case LinkUp():
                self._has_link = True
                return self._hello()
            case LinkDown():
                self._has_link = False
            case TimerFired() if self._has_link:
                return self._hello()
            case Call(op_id=op_id, operation=Read()):
                unread, self._unread = self._unread, []
                read = [delivery(each.item, self._me, read_us=now_us) for each in unread]
                return [*read, Complete(op_id, [each.body for each in unread])]
        return ()

    def _hello(self) -> Sequence[Effect]:
        before, self._at = self._at, best(self._sites, self._loc, self._at)
        timer = SetTimer(_HELLO, _HELLO_INTERVAL_US)
        if self._at is None:
            return (timer,)
        hello = Send(self._at, Hello(self._me, self._wanted))
        if before is None or before == self._at:
            return hello, timer
        return Send(before, Bye(self._me)), hello, timer
