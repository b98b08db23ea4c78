"""A subscriber's agent on an access point: state, policy, and what waits to be delivered (section 4)."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

from mudkit.events import Effect, Record, Send, SetTimer, Store, size_bytes
from mudkit.systems.sublim.policy.deciding import SENT, STOPPED, Verdict
from mudkit.systems.sublim.policy.function import FunctionPolicy
from mudkit.systems.sublim.policy.policy import Policy

__all__ = ["AGAIN", "WAITING", "WINDOW", "Agent", "AnyPolicy", "fresh"]

WINDOW: Final = 8
"""So many messages are on their way to a device at a time; the others wait, and move with the state."""
WAITING: Final = 5_000
"""So many messages wait for a device that is away; beyond, the oldest goes."""
AGAIN: Final = "again "
_AGAIN_US: Final = 5_000_000
_AGAIN_US_PER_BYTE: Final = 400
_SHOWN: Final = 200

AnyPolicy = Policy | FunctionPolicy


def fresh(next_number: int) -> dict[str, Any]:
    """Give the parcel of a subscriber of whom nobody has heard: the next message is the first."""
    record = {
        "epoch": 0, "address": "", "report": 0, "automatic": {}, "variables": {}, "next": next_number,
        "last": 0, "policy": 0, "stopped": 0, "skipped": 0, "incarnation": "",
    }  # fmt: skip
    return {"record": record, "policy": None, "out": []}


class Agent:
    """One subscriber's, as long as this access point serves it.

    Parameters
    ----------
    store : Store
    name : str
        The name of the subscriber.
    policy : Policy or FunctionPolicy or None
        None: everything is sent as it is.
    """

    def __init__(self, store: Store, name: str, policy: AnyPolicy | None) -> None:
        self._store = store
        self.name = name
        self.policy = policy
        self.record: dict[str, Any] = store.get(f"agent {name}")
        self._waiting = deque(entry for _, entry in store.items(f"out {name}\n"))
        self._on_way: deque[tuple[int, int]] = deque()
        """How large each of those under way is, and when it has to be sent again."""
        self._timer_us: int | None = None
        self.is_away = False

    @staticmethod
    def install(store: Store, name: str, state: Mapping[str, Any]) -> None:
        """Store what a parcel brings."""
        store.put(f"agent {name}", state["record"])
        store.put(f"policy {name}", state["policy"])
        for entry in state["out"]:
            store.put(_key(name, entry["number"]), entry)

    def pack(self) -> dict[str, Any]:
        """Give all that moves with the subscriber."""
        return {
            "record": self.record,
            "policy": self._store.get(f"policy {self.name}"),
            "out": list(self._waiting),
        }

    def remove(self) -> None:
        """Forget it: it is a parcel now."""
        self._store.delete(f"agent {self.name}")
        self._store.delete(f"policy {self.name}")
        for entry in self._waiting:
            self._store.delete(_key(self.name, entry["number"]))

    def change(self, **fields: Any) -> None:
        """Change its record."""
        self.record = {**self.record, **fields}
        self._store.put(f"agent {self.name}", self.record)

    def reported(self, number: int, automatic: Mapping[str, Any]) -> None:
        """Take automatic variables, unless newer ones have come."""
        if number > self.record["report"]:
            self.change(report=number, automatic=dict(automatic))

    def belongs_to(self, incarnation: str) -> None:
        """Go on for another incarnation of the client, which counts its reports and policies from 1."""
        if incarnation != self.record["incarnation"]:
            self.change(incarnation=incarnation, report=0, policy=0)

    def use(self, number: int, sent: Any, policy: AnyPolicy) -> None:
        """Decide by another policy from the next message on; it begins with its own first variables."""
        self.policy = policy
        self._store.put(f"policy {self.name}", sent)
        self.change(policy=number, variables=dict(policy.variables), stopped=0)

    def skip(self, first: int) -> None:
        """Take note that messages before a number are no longer to be had."""
        missed = first - self.record["next"]
        if missed > 0:
            self.change(next=first, skipped=self.record["skipped"] + missed)

    def decide(self, now_us: int, message: Mapping[str, Any]) -> Sequence[Effect]:
        """Decide about the next message; what is to be sent waits behind what was decided before."""
        record = self.record
        verdict = self.verdict(message["body"], message["at_s"])
        variables = verdict.variables
        stopped = record["stopped"] + (verdict.outcome == STOPPED)
        entry = None
        failed: list[Effect] = []
        if verdict.outcome == STOPPED:
            detail = f"policy of {self.name}: {verdict.problem}"[:_SHOWN]
            failed.append(Record("incidents", {"incident": "failed", "detail": detail}))
        if verdict.outcome == SENT:
            entry = {"number": record["last"] + 1, "item": message["item"], "body": verdict.out}
        elif verdict.outcome == STOPPED and stopped == 1:  # told once: a policy may fail for every message
            entry = {"number": record["last"] + 1, "item": message["item"], "problem": verdict.problem}
        self.change(
            next=message["number"] + 1,
            variables=variables,
            stopped=stopped,
            last=record["last"] + (entry is not None),
        )
        self._store.crash_point("decided, not in the queue")
        if entry is None:
            return failed
        self._put(entry)
        row = {"item": message["item"], "receiver": self.name, "created_us": message["created_us"]}
        created = [Record("deliveries", row)] if "body" in entry else []
        return [*failed, *created, *self.deliver(now_us)]

    def verdict(self, body: Mapping[str, Any], at_s: float) -> Verdict:
        """Say what would be decided about a message now."""
        variables, automatic = self.record["variables"], self.record["automatic"]
        if self.policy is None:
            return Verdict(SENT, dict(body), None, variables)
        return self.policy.decide(body, variables, automatic, at_s)

    def deliver(self, now_us: int) -> Sequence[Effect]:
        """Send what the window has room for."""
        if self.is_away or len(self._on_way) >= min(WINDOW, len(self._waiting)):
            return ()
        first = self._waiting[0]["number"]
        sent: list[Effect] = []
        while len(self._on_way) < min(WINDOW, len(self._waiting)):
            entry = self._waiting[len(self._on_way)]
            message = {"kind": "deliver", "subscriber": self.name, "first": first, **entry}
            sent.append(Send(self.record["address"], message))
            size = size_bytes(entry)
            under_way = size + sum(each for each, _ in self._on_way)
            self._on_way.append((size, now_us + _AGAIN_US + _AGAIN_US_PER_BYTE * under_way))
        return [*sent, *self._timer(now_us)]

    def again(self, now_us: int) -> Sequence[Effect]:
        """Send again what nobody has confirmed."""
        self._on_way.clear()
        self._timer_us = None
        return self.deliver(now_us)

    def acked(self, now_us: int, number: int) -> Sequence[Effect]:
        """Forget what the device has, and go on."""
        before = len(self._waiting)
        while self._waiting and self._waiting[0]["number"] <= number:
            self._store.delete(_key(self.name, self._waiting.popleft()["number"]))
            if self._on_way:
                self._on_way.popleft()
        if len(self._waiting) == before:
            return ()
        return self.deliver(now_us) or self._timer(now_us)

    def _put(self, entry: dict[str, Any]) -> None:
        if len(self._waiting) >= WAITING:
            gone = self._waiting.popleft()
            self.change(skipped=self.record["skipped"] + 1)
            if self._on_way:
                self._on_way.popleft()
            self._store.delete(_key(self.name, gone["number"]))
        self._waiting.append(entry)
        self._store.put(_key(self.name, entry["number"]), entry)

    def _timer(self, now_us: int) -> Sequence[Effect]:
        """Set the timer for the oldest that is on its way: what is sent after it does not put it off."""
        if not self._on_way or self._on_way[0][1] == self._timer_us:
            return ()
        self._timer_us = self._on_way[0][1]
        return (SetTimer(AGAIN + self.name, max(self._timer_us - now_us, 1)),)


def _key(name: str, number: int) -> str:
    return f"out {name}\n{number:012d}"
