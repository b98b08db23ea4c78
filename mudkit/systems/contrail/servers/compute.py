"""A compute instance: it does what a gateway asks for, and keeps nothing (Contrail 4.2.2).

What it has begun travels with its questions to storage and comes back with the answers: so each instance can
do everything, and one that dies takes only what is just then in its hands, which devices ask for again.
It takes messages of its cloud's gateways and storages only.

========  ==========================================================================================
join      the device has a queue
send      an item into the cache, or out of it when it is only named; then a copy with one destination
          into the queue of each
retrieve  what the device has got goes out of its queue; what waits goes to it, and its queue to this
          data centre when the device has come here often enough
group     the device joins or leaves a group; filters that wait there for it go into its queue
withdraw  what the device has sent to another one goes out of the queue of that
========  ==========================================================================================
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final
from zlib import crc32

import msgspec

from mudkit.events import Effect, Event, Ports, Received, Send, SetTimer, TimerFired
from mudkit.systems.contrail.messages.cloud import Ask
from mudkit.systems.contrail.messages.storage import ANSWERS, Done, Moved
from mudkit.systems.receiving import Accepts, dropped

__all__ = ["PAGE_BYTES", "Compute"]

PAGE_BYTES: Final = 65_536
"""What goes to a device at a time, unless one message is larger."""
_DONE: Final = "done"
_OF_GATEWAYS: Final = Accepts(Ask)
_OF_STORAGE: Final = Accepts(Done)


class Compute:
    """One instance.

    Parameters
    ----------
    ports : Ports
    units : sequence of str
        Addresses of the storage of all data centres, the same in all instances.
    here : str
        The address of the nearest.
    move_after : int or None
        A queue moves here when its device was here so many times running; None: never.
    service_us : int
        What a request takes; others wait meanwhile.
    gateways : collection of str
        Addresses of the gateways that ask it.
    """

    def __init__(
        self,
        ports: Ports,
        units: Sequence[str],
        here: str,
        move_after: int | None,
        service_us: int,
        gateways: Collection[str],
    ) -> None:
        self._gateways = gateways
        self._units, self._here = units, here
        self._move_after, self._service_us = move_after, service_us
        self._line: deque[Mapping[str, Any]] = deque()
        self._effects: list[Effect] = []

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        self._effects = []
        match event:
            case Received(source=source, message=message) if not self._takes(source, message):
                return dropped(event)
            case Received(message={"kind": "ask"} as message):
                if not self._service_us:
                    self._begin(message)
                else:
                    self._line.append(message)
                    if len(self._line) == 1:
                        self._effects.append(SetTimer(_DONE, self._service_us))
            case TimerFired():
                self._begin(self._line.popleft())
                if self._line:
                    self._effects.append(SetTimer(_DONE, self._service_us))
            case Received(source=source, message={"kind": "done", "results": results, "ctx": ctx}):
                self._go_on(source, results, ctx)
        return self._effects

    def _takes(self, source: str, message: Any) -> bool:
        """Say whether a message is of its own cloud, and makes sense."""
        if source in self._gateways:
            return _OF_GATEWAYS(message) and message["gateway"] == source
        if source not in self._units or not _OF_STORAGE(message):
            return False
        results, ctx = message["results"], message["ctx"]
        return len(results) == len(ctx["asked"]) and all(
            self._is_answer(op, answer)
            for op, answer in [*ctx["results"], *zip((op for _, op in ctx["asked"]), results, strict=True)]
        ) and all(unit in self._units for unit, _ in ctx["todo"]) and _fits(ctx)  # fmt: skip

    def _is_answer(self, op: Mapping[str, Any], answer: Any) -> bool:
        if isinstance(answer, Mapping) and "moved" in answer:
            return _is_a(answer, Moved) and answer["moved"] in self._units and "device" in op
        return _is_a(answer, ANSWERS[op["op"]]) if op["op"] in ANSWERS else answer == "ok"

    def _begin(self, ask: Mapping[str, Any]) -> None:
        what = ask["what"]
        ctx = {"gateway": ask["gateway"], "client": ask["client"], "what": what, "step": what["kind"]}
        match what:
            case {"kind": "join", "device": device, "friends": friends}:
                ops = [{"op": "join", "device": device, "friends": friends}]
            case {"kind": "send", "message": {"kind": "data"} as message}:
                same = {
                    "source": message["from"],
                    "port": message["port"],
                    "item": message["item"],
                    "seq": message["seq"],
                    "epoch": message["epoch"],
                }
                if message["body"] is None:
                    ctx["step"] = "named"
                    ops = [{"op": "cached", **same}]
                else:
                    ctx["step"] = "data"
                    cache = {"op": "cache", "body": message["body"], **same}
                    ops = [cache, *(_append(message, entry) for entry in message["to"])]
            case {"kind": "send", "message": {"group": str(group)} as message}:
                ctx["step"] = "spread"
                ops = [{"op": "spread", "group": group, "filter": message}]
            case {"kind": "send", "message": message}:
                ops = [_append(message, entry) for entry in message["to"]]
            case {"kind": "withdraw", "device": device, "receiver": receiver, "number": number}:
                ops = [{"op": "withdraw", "device": receiver, "source": device, "number": number}]
            case {"kind": "group", "device": device, "group": group, "joins": joins}:
                ops = [{"op": "member" if joins else "unmember", "group": group, "member": device}]
            case {"kind": "pull", "device": device, "got": got, "hold": hold}:
                ops = [{"op": "drop", "device": device, "numbers": got}] if got else []
                watcher = ask["gateway"] if hold else None
                ops.append(
                    {
                        "op": "read",
                        "device": device,
                        "watcher": watcher,
                        "most_bytes": PAGE_BYTES,
                        "here": self._here,
                        "begins": not got,
                    }
                )
            case _:
                return
        self._ask(ctx, [[self._home(op), op] for op in ops], [])

    def _home(self, op: Mapping[str, Any]) -> str:
        """Give the storage where something is looked for first."""
        name = op.get("device") or op.get("group") or op["source"]
        return self._units[crc32(name.encode()) % len(self._units)]

    def _ask(self, ctx: dict[str, Any], todo: list[Any], results: list[Any]) -> None:
        """Let storage do what is next: everything up to where another storage is needed."""
        unit = todo[0][0]
        count = next((at for at, (each, _) in enumerate(todo) if each != unit), len(todo))
        ctx = {**ctx, "asked": todo[:count], "todo": todo[count:], "results": results}
        self._effects.append(Send(unit, {"kind": "do", "ops": [op for _, op in todo[:count]], "ctx": ctx}))

    def _go_on(self, source: str, answers: Sequence[Any], ctx: Mapping[str, Any]) -> None:
        results, again = list(ctx["results"]), []
        for (_, op), answer in zip(ctx["asked"], answers, strict=True):
            if isinstance(answer, Mapping) and "moved" in answer:
                again.append([answer["moved"], {**op, "version": answer["version"]}])
            else:
                results.append([op, answer])
        todo = [*again, *ctx["todo"]]
        kept = {name: ctx[name] for name in ("gateway", "client", "what", "step")}
        if todo:
            self._ask(kept, todo, results)
        else:
            self._finish(kept, results, source)

    def _finish(self, ctx: dict[str, Any], results: Sequence[Any], last: str) -> None:
        what, step = ctx["what"], ctx["step"]
        match step:
            case "named":
                body = results[0][1]
                if body is None:
                    self._tell(ctx, {"kind": "sent", "number": what["number"], "results": None})
                    return
                message = {**what["message"], "body": body}
                self._continue(ctx, [_append(message, entry) for entry in message["to"]])
            case "spread":
                self._continue(ctx, [_append(each, each["to"][0]) for each in results[0][1]])
            case "group":
                filters = results[0][1] if what["joins"] else []
                self._continue(ctx, [_append(each, each["to"][0]) for each in filters])
            case "pull":
                self._retrieved(ctx, results, last)
            case "moved":
                pass
            case _:
                outcomes = [
                    [op["device"], op["entry"]["message"]["to"][0]["port"], answer]
                    for op, answer in results
                    if op["op"] == "append"
                ]
                self._tell(ctx, {"kind": "sent", "number": what["number"], "results": outcomes})

    def _continue(self, ctx: dict[str, Any], ops: Sequence[Mapping[str, Any]]) -> None:
        ctx["step"] = "append"
        if ops:
            self._ask(ctx, [[self._home(op), op] for op in ops], [])
        else:
            self._finish(ctx, [], self._here)

    def _retrieved(self, ctx: Mapping[str, Any], results: Sequence[Any], last: str) -> None:
        what = ctx["what"]
        stored = next(answer for op, answer in results if op["op"] == "read")
        self._tell(
            ctx,
            {
                "kind": "deliver",
                "visit": what["visit"],
                "page": [list(each) for each in stored["page"]],
                "more": stored["more"],
            },
        )
        is_often = self._move_after is not None and stored["times"] >= self._move_after
        if is_often and last != self._here:
            move = {"op": "move", "device": what["device"], "to": self._here}
            self._ask({**ctx, "step": "moved"}, [[last, move]], [])

    def _tell(self, ctx: Mapping[str, Any], message: Mapping[str, Any]) -> None:
        self._effects.append(Send(ctx["gateway"], {"kind": "tell", "to": ctx["client"], "message": message}))


def _append(message: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    """Put a copy with this one destination into its queue (Contrail 4.2.2)."""
    copy = {**message, "to": [entry]}
    if message["kind"] == "data":
        slot, seq = f"data {message['from']}\n{message['port']}\n{message['item']}", message["seq"]
        slot += f"\n{entry['port']}"
    else:
        slot = f"{message['kind']} {message['from']}\n{message['port']}\n{message['slot']}\n{entry['port']}"
        seq = message["number"]
    expires_us = entry.get("expires_us", message.get("expires_us"))
    kept = {"slot": slot, "seq": seq, "expires_us": expires_us, "message": copy}
    return {"op": "append", "device": entry["device"], "entry": kept}


def _is_a(value: Any, what: Any) -> bool:
    try:
        msgspec.convert(value, what)
    except (msgspec.ValidationError, RecursionError):
        return False
    return True


def _fits(ctx: Mapping[str, Any]) -> bool:
    """Say whether a step is one of what a device has asked for, and about it."""
    asked = [
        *(op for _, op in ctx["asked"]),
        *(op for _, op in ctx["todo"]),
        *(op for op, _ in ctx["results"]),
    ]
    kinds = {op["op"] for op in asked}
    match ctx["what"], ctx["step"]:
        case {"kind": "send", "message": {"kind": "data", "body": body}}, "named":
            return body is None and [op["op"] for op in asked] == ["cached"]
        case {"kind": "send", "message": {"kind": "data", "body": bytes()}}, "data":
            return kinds <= {"cache", "append"}
        case {"kind": "send"}, "spread":
            return [op["op"] for op in asked] == ["spread"]
        case {"kind": "send" | "group"}, "append":
            return kinds <= {"append"}
        case {"kind": "send"}, "send":
            return kinds <= {"append"}
        case {"kind": "group", "joins": bool(joins)}, "group":
            return [op["op"] for op in asked] == ["member" if joins else "unmember"]
        case {"kind": "pull"}, "pull":
            return [op["op"] for op in asked].count("read") == 1 and kinds <= {"drop", "read"}
        case {"kind": "pull"}, "moved":
            return kinds <= {"move"}
        case {"kind": "join" | "withdraw" as kind}, step:
            return kind == step and kinds == {kind}
    return False
