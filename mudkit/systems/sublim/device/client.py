"""The SUBLIM client on a device: it attaches, keeps the automatic variables up to date, and takes messages.

Its rules:

================  ====================================================================================
link up           attach to the best access point; it may be the same as before
context changed   another access point is better: attach there, with the next epoch. An automatic
                  variable has changed by more than a share: report, but not too often
attached          this one serves it from now on; send it what it does not have yet
behind            an older incarnation had got as far as this epoch: attach with the next one
set policy        with the next number, until the access point says that it has it
deliver           the next one: into the inbox, the application is told. In any case say which was last.
                  From an access point that does not serve this incarnation: say that it has left
read              what has come since the last read
timer             the same again of what was not answered
================  ====================================================================================

An attachment, a report and a policy that were not answered have a timer each: what comes and goes meanwhile
does not put any of them off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

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
)
from mudkit.systems.incarnation import incarnation
from mudkit.systems.receiving import dropped
from mudkit.systems.sublim.messages import TO_CLIENT
from mudkit.systems.sublim.policy.problems import PolicyError
from mudkit.systems.sublim.sites import Site, best

__all__ = ["APP", "PROBLEMS", "ClientMachine"]

APP: Final = "messages"
PROBLEMS: Final = "problems"
"""The application that is told when a policy was stopped."""
_RETRY_US: Final = 5_000_000
_ATTACH: Final = "attach again"
_LATE: Final = "report again"
_POLICY: Final = "policy again"
_REPORT: Final = "report"


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
        self._automatic: dict[str, Any] = {}
        self._has_link = self._is_attached = False
        self._reported: dict[str, Any] = {}
        self._reported_us: int | None = None
        self._answered = 0  # the last report of which the access point has said that it has it
        self._said_us: dict[int, int] = {}  # when each report was said that is not answered
        self._calls: dict[int, int] = {}  # op_id by number of the policy

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
                return [CancelTimer(each) for each in (_ATTACH, _LATE, _POLICY, _REPORT)]
            case TimerFired(name="attach again") if self._has_link and not self._is_attached:
                return self._attach(now_us)
            case TimerFired(name="report again") if self._is_attached:
                return self._report_late(now_us)
            case TimerFired(name="policy again") if self._is_attached:
                return self._say_policy()
            case TimerFired(name="report") if self._is_attached:
                return self._report(now_us)
            case Call(op_id=op_id, operation="set_policy", arguments={"policy": policy}):
                return self._set_policy(op_id, policy)
            case Call(op_id=op_id, operation="read"):
                return self._read(op_id, now_us)
        return ()

    def _received(self, now_us: int, event: Received) -> Sequence[Effect]:
        """Take what access points say to this incarnation."""
        source, message = event.source, event.message
        is_point = any(site.address == source and site.is_stateful for site in self._sites)
        if not is_point or not TO_CLIENT(message):
            return dropped(event)
        if message["kind"] == "deliver":
            return self._take(now_us, source, message) if message["subscriber"] == self._me else ()
        if message["incarnation"] != incarnation(self._ports):
            return ()  # to the one that it was
        match message:
            case {"kind": "attached", "epoch": epoch, "report": report}:
                return self._attached(now_us, source, epoch, report)
            case {"kind": "behind", "epoch": epoch}:
                return self._behind(now_us, source, epoch)
            case {"kind": "reported", "number": number}:
                return self._has_reported(now_us, number)
            case {"kind": "policy set", "number": number}:
                return self._policy_set(number, message.get("problem"))
        return ()

    # -- attaching

    def _attach(self, now_us: int) -> Sequence[Effect]:
        """Go to the best access point; another one than before is a new epoch."""
        stored = self._store.get("attachment") or {"epoch": 0, "at": None, "from": None, "fresh": True}
        wanted = self._best(stored["at"])
        if wanted is None:
            return (SetTimer(_ATTACH, _RETRY_US),)
        if wanted != stored["at"]:
            origin = stored["from"] or wanted
            stored = {**stored, "epoch": stored["epoch"] + 1, "at": wanted, "from": origin}
            self._store.put("attachment", stored)
        self._is_attached = False
        self._note_report(now_us)
        attach = {
            "kind": "attach",
            "subscriber": self._me,
            "epoch": stored["epoch"],
            "from": stored["from"],
            "fresh": stored["fresh"],
            "report": self._store.get("report"),
            "automatic": self._automatic,
            "incarnation": incarnation(self._ports),
        }
        return Send(wanted, attach), SetTimer(_ATTACH, _RETRY_US)

    def _attached(self, now_us: int, source: str, epoch: int, report: int) -> Sequence[Effect]:
        stored = self._store.get("attachment")
        if stored is None or epoch != stored["epoch"] or source != stored["at"] or not self._has_link:
            return ()
        self._is_attached = True
        answered = self._has_reported(now_us, report)
        if stored["fresh"] or stored["from"] != source:
            self._store.put("attachment", {**stored, "from": source, "fresh": False})
        late = self._report_late(now_us) if self._is_late() else ()
        changed = self._report(now_us)  # since it asked
        return [CancelTimer(_ATTACH), *answered, *late, *self._say_policy(), *changed]

    def _behind(self, now_us: int, source: str, epoch: int) -> Sequence[Effect]:
        stored = self._store.get("attachment")
        if stored is None or source != stored["at"] or epoch < stored["epoch"] or not self._has_link:
            return ()
        self._store.put("attachment", {**stored, "epoch": epoch + 1})
        return self._attach(now_us)

    def _go_on(self, now_us: int) -> Sequence[Effect]:
        """See whether it matters that the context has changed."""
        if not self._has_link:
            return ()
        stored = self._store.get("attachment")
        if stored is None or self._best(stored["at"]) != stored["at"]:
            return self._attach(now_us)
        return self._report(now_us) if self._is_attached else ()

    def _best(self, now: str | None) -> str | None:
        return best([site for site in self._sites if site.is_stateful], self._loc, now)

    # -- automatic variables

    def _report(self, now_us: int) -> Sequence[Effect]:
        if not _differs(self._automatic, self._reported, self._share):
            return ()
        if self._reported_us is not None and now_us - self._reported_us < self._every_us:
            return (SetTimer(_REPORT, self._reported_us + self._every_us - now_us),)
        self._note_report(now_us)
        return self._say_report(now_us)

    def _note_report(self, now_us: int) -> None:
        self._store.put("report", (self._store.get("report") or 0) + 1)
        self._reported, self._reported_us = self._automatic, now_us

    def _say_report(self, now_us: int) -> Sequence[Effect]:
        number = self._store.get("report")
        message = {
            "kind": "report",
            "subscriber": self._me,
            "number": number,
            "automatic": self._reported,
            "incarnation": incarnation(self._ports),
        }
        is_first = not self._said_us
        self._said_us[number] = now_us
        timer = [SetTimer(_LATE, _RETRY_US)] if is_first else []
        return [Send(self._store.get("attachment")["at"], message), *timer]

    def _has_reported(self, now_us: int, number: int) -> Sequence[Effect]:
        """Take note of an answer; the next report that has none has the deadline that it has."""
        self._answered = max(self._answered, number)
        self._said_us = {each: at_us for each, at_us in self._said_us.items() if each > self._answered}
        if not self._said_us:
            return (CancelTimer(_LATE),)
        return (SetTimer(_LATE, max(min(self._said_us.values()) + _RETRY_US - now_us, 1)),)

    def _is_late(self) -> bool:
        return self._answered < int(self._store.get("report") or 0)

    def _report_late(self, now_us: int) -> Sequence[Effect]:
        """Say the last report again: it stands for those before it."""
        self._said_us = {}
        return self._say_report(now_us) if self._is_late() else ()

    # -- the policy

    def _set_policy(self, op_id: int, policy: Any) -> Sequence[Effect]:
        before = self._store.get("policy")
        number = (before["number"] if before is not None else 0) + 1
        self._store.put("policy", {"number": number, "policy": policy, "is_set": False})
        self._calls[number] = op_id
        return self._say_policy() if self._is_attached else ()

    def _policy_set(self, number: int, problem: Mapping[str, Any] | None) -> Sequence[Effect]:
        stored = self._store.get("policy")
        if stored is not None and stored["number"] == number and not stored["is_set"]:
            self._store.put("policy", {"number": number, "policy": None, "is_set": True})
        op_id = self._calls.pop(number, None)
        if op_id is None:
            return ()
        error = None if problem is None else PolicyError(**problem)
        older = [self._calls.pop(each) for each in list(self._calls) if each < number]
        return [Complete(op_id, error=error), *(Complete(each) for each in older)]

    def _say_policy(self) -> Sequence[Effect]:
        stored = self._store.get("policy")
        if stored is None or stored["is_set"]:
            return ()
        message = {
            "kind": "policy",
            "subscriber": self._me,
            "number": stored["number"],
            "policy": stored["policy"],
            "incarnation": incarnation(self._ports),
        }
        return Send(self._store.get("attachment")["at"], message), SetTimer(_POLICY, _RETRY_US)

    # -- messages

    def _take(self, now_us: int, source: str, message: Mapping[str, Any]) -> Sequence[Effect]:
        attachment = self._store.get("attachment")
        if attachment is None or source not in (attachment["at"], attachment["from"]):
            if attachment is None or attachment["fresh"]:
                return ()  # perhaps it goes on with what is kept there
            left = {"kind": "left", "subscriber": self._me, "incarnation": incarnation(self._ports)}
            return (Send(source, left),)
        number, seen = message["number"], self._store.get("seen") or 0
        seen = max(seen, message["first"] - 1)
        effects: list[Effect] = []
        if number == seen + 1:
            seen = number
            self._store.put("seen", seen)
            if "problem" in message:
                effects.append(Notify(PROBLEMS, message["problem"]))
            else:
                self._store.put(f"in {number:012d}", {"item": message["item"], "body": message["body"]})
                effects.append(Notify(APP, message["body"]))
                row = {"item": message["item"], "receiver": self._me, "delivered_us": now_us}
                effects.append(Record("deliveries", row))
        effects.append(Send(source, {"kind": "got", "subscriber": self._me, "number": seen}))
        return effects

    def _read(self, op_id: int, now_us: int) -> Sequence[Effect]:
        new = self._store.items("in ")
        for key, _ in new:
            self._store.delete(key)
        rows = [{"item": each["item"], "receiver": self._me, "read_us": now_us} for _, each in new]
        return [
            *(Record("deliveries", row) for row in rows),
            Complete(op_id, [each["body"] for _, each in new]),
        ]


def _automatic(context: Mapping[str, Any]) -> dict[str, Any]:
    """Give the automatic variables of what the device knows of itself; what it does not know is left out."""
    share = context.get("battery_share")
    variables = {
        "battery": None if share is None else round(100.0 * share, 1),
        "bandwidth_kbps": context.get("bandwidth_kbps"),
        "display_px": context.get("display_px"),
    }
    return {name: value for name, value in variables.items() if isinstance(value, int | float)}


def _differs(now: Mapping[str, Any], before: Mapping[str, Any], share: float) -> bool:
    if now.keys() != before.keys():
        return True
    return any(abs(value - before[name]) > share * abs(before[name]) for name, value in now.items())
