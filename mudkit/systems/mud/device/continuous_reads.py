"""The client's continuous reads: registered at the processors, told over the notification server.

Rules (Mobius 5):

============  ======================================================================================
register      kept durably; asked for when there is a session with a notification server
welcome       another session than before: everything is registered again
life          a processor has begun another life: what it knew of is registered again
tell          passed on, unless it came before; where the reader then is in the log is kept
synced        what was there already has come whole
ended         the cloud has ended it, and says why; if one processor alone has, the others are told
policy        put in the slot of its kind
heartbeat     tell the server that this client lives
============  ======================================================================================

Registered again, a processor is told up to where its log has come here, which records this reader was told
of, and which table that was: another one of the same name is none of it. So nothing is missed, and nothing is
told twice. What has come in the moment in which a device is
killed counts as told: the application that was to hear it is gone, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mudkit.errors import ParameterError
from mudkit.events import CancelTimer, Complete, Effect, Notify, Ports, Send, SetTimer
from mudkit.predicates.exchange import to_json
from mudkit.systems.mud.device.connection import Connection
from mudkit.systems.mud.device.local import Local
from mudkit.systems.mud.device.policy_slot import PolicySlot
from mudkit.systems.mud.operations import Register, Unregister, UpdateData
from mudkit.systems.mud.problems import from_json
from mudkit.systems.mud.result import Change
from mudkit.systems.mud.servers.notifications import HEARTBEAT_US
from mudkit.systems.mud.tables.replica import detached
from mudkit.systems.stream import Incoming

__all__ = ["HEARTBEAT", "HELLO", "ContinuousReads"]

HEARTBEAT: Final = "heartbeat"
HELLO: Final = "hello"
_HELLO_US: Final = 10_000_000


class ContinuousReads:
    """The continuous reads of one client.

    Parameters
    ----------
    ports : Ports
    local : Local
    connection : Connection
    servers : sequence of str
        The notification servers: the first one knows who is responsible.
    slots : sequence of PolicySlot
        The slots of the policies that this client follows.
    """

    def __init__(
        self,
        ports: Ports,
        local: Local,
        connection: Connection,
        servers: Sequence[str],
        slots: Sequence[PolicySlot],
    ) -> None:
        self._store = ports.store
        self._local = local
        self._connection = connection
        self._servers, self._server = servers, servers[0]
        self._policy_slots = slots
        self._session: str | None = None
        self._is_greeted = False
        """Whether the server knows where this client is now."""
        self._incoming: dict[str, Incoming] = {}
        self._readings: dict[int, dict[str, Any]] = {
            each["handle"]: each for _, each in ports.store.items("reading ")
        }
        self._lives: dict[str, int] = {}
        """The latest life of each processor that was heard of."""
        self._registered: dict[int, dict[str, int]] = {}
        """In which life each processor has a continuous read."""
        self._requests: dict[int, int] = {}
        """The last registration that was asked for of each continuous read."""
        self._since_asked: dict[int, tuple[dict[str, int], dict[str, int]]] = {}
        """Of those that are not answered: where the reader was in the logs when it was asked for first, and
        the oldest life of each processor that has told more since."""
        self._calls: dict[int, int] = {}

    def register(self, now_us: int, op_id: int, asked: Register) -> Sequence[Effect]:
        """Begin a continuous read."""
        sync = asked.sync_timestamp
        if sync is not None and sync < 0:
            raise ParameterError(
                "This is no time of the store.",
                where="sync_timestamp",
                found=repr(sync),
                expected="seconds from the beginning of the lab, 0 or more; None for nothing that is there",
            )
        handle = self._local.next_number("count of handles")
        reading = {
            "handle": handle,
            "data_seq": 1,
            "name": asked.table,
            "predicate": to_json(asked.predicate),
            "reader": dict(asked.reader),
            "sync_us": None if sync is None else round(sync * 1e6),
            "since": {},
            "held": {},
            "listener": asked.listener,
            "table": None,
        }
        self._readings[handle] = reading
        self._save(reading)
        self._calls[handle] = op_id
        effects: list[Effect] = []
        if not self._is_greeted:
            effects += self.hello()
        if self._session is not None:
            effects += self._register(handle)
        return effects

    def change(self, op_id: int, asked: UpdateData) -> Sequence[Effect]:
        """Give a continuous read other reader data."""
        reading = self._known(asked.handle)
        reading["reader"] = dict(asked.reader)
        reading["data_seq"] += 1
        self._save(reading)
        return self._tell("update_data", reading, op_id)

    def unregister(self, op_id: int, asked: Unregister) -> Sequence[Effect]:
        """End a continuous read, and the call that began it if that was never answered."""
        reading = self._known(asked.handle)
        self._forget(reading)
        began = self._calls.pop(reading["handle"], None)
        effects = [*self._tell("unregister", reading, op_id)]
        if began is not None:
            effects.append(Complete(began, reading["handle"]))
        return effects if self._is_notified else [*effects, *self.down()]

    def hello(self) -> Sequence[Effect]:
        """Tell the notification server where this client is, if there is something to be told."""
        self._is_greeted = False
        if not self._connection.is_up or not self._is_notified:
            return ()
        return self._hello(is_new=True), SetTimer(HELLO, _HELLO_US)

    def down(self) -> Sequence[Effect]:
        """Wait for a link, or for something to be told."""
        self._is_greeted = False
        return CancelTimer(HELLO), CancelTimer(HEARTBEAT)

    def heartbeat(self) -> Sequence[Effect]:
        """Tell it again."""
        return self._hello(is_new=False), SetTimer(HEARTBEAT, HEARTBEAT_US), SetTimer(HELLO, _HELLO_US)

    def redirected(self, to: str) -> Sequence[Effect]:
        """Ask the server that is responsible."""
        if to not in self._servers:
            return ()
        self._server = to
        return self.hello()

    def welcome(self, session: str) -> Sequence[Effect]:
        """Register everything again if the server did not know this client any more."""
        self._is_greeted = True
        effects: list[Effect] = [CancelTimer(HELLO), SetTimer(HEARTBEAT, HEARTBEAT_US)]
        if session != self._session:
            self._session = session
            for incoming in self._incoming.values():
                incoming.forget()
            for handle in self._readings:
                effects += self._register(handle)
        return effects

    def stream(self, source: str, message: Mapping[str, Any]) -> Sequence[Effect]:
        """Take what a notification server sends."""
        name = message["stream"]
        if name != self._session:
            return ()
        incoming = self._incoming.setdefault(name, Incoming(message))
        effects: list[Effect] = []
        for body in incoming.take(message):
            if body["what"] == "policy":
                for slot in self._policy_slots:
                    if slot.kind == body["policy"]:
                        slot.take(body["document"])
                continue
            effects += self._heard(body)
            if body["what"] == "tell":
                effects += self._notified(body)
        return [*effects, incoming.confirm(source, name)]

    # -- inside

    @property
    def _is_notified(self) -> bool:
        """Whether there is something that a notification server may have to tell it."""
        return bool(self._readings or self._policy_slots)

    def _hello(self, *, is_new: bool) -> Send:
        message = {
            "kind": "hello",
            "endpoint": self._connection.endpoint,
            "session": self._session,
            "is_new": is_new,
            "policies": {slot.kind: slot.version for slot in self._policy_slots},
        }
        return Send(self._server, message)

    def _heard(self, body: Mapping[str, Any]) -> Sequence[Effect]:
        """Take note of a processor's life, and register again what an earlier one knew of."""
        processor, life = body["processor"], body["life"]
        if life <= self._lives.get(processor, 0):
            return ()
        self._lives[processor] = life
        lost = [h for h, lives in self._registered.items() if lives.get(processor, life) < life]
        return [effect for handle in lost for effect in self._register(handle)]

    def _notified(self, body: Mapping[str, Any]) -> Sequence[Effect]:
        processor, life = body["processor"], body["life"]
        incarnation, _, number = body["handle"].partition(" ")
        handle = int(number) if incarnation == self._connection.incarnation and number.isdecimal() else 0
        reading = self._readings.get(handle)
        newest = max(self._lives.get(processor, 0), self._registered.get(handle, {}).get(processor, 0))
        if reading is None or life < newest:
            return ()
        if "ended" in body:
            self._forget(reading)
            others = self._leave(reading) if body.get("is_alone") else ()
            return Notify(reading["listener"], {"ended": body["ended"]}), *others
        since, held = reading["since"], reading["held"]
        reading["table"] = body["table"]
        if "synced" in body:
            since[processor] = max(body["synced"], since.get(processor, 0))
            self._save(reading)
            return ()
        change, lsn = body["change"], body["lsn"]
        if lsn is not None:
            if lsn <= since.get(processor, 0):
                return ()
            since[processor] = lsn
        key, version = change["key"], change["ver"]
        if version is None:  # it was said to be held when this was registered again
            version = held.get(key, 0)
        elif version <= held.get(key, 0):
            self._save(reading)
            return ()
        effects: list[Effect] = []
        if handle in self._since_asked:
            self._since_asked[handle][1].setdefault(processor, life)  # lives come in their order
        if change["op"] == "remove":
            if held.pop(key, None) is not None:
                effects.append(Notify(reading["listener"], Change("remove", key, None, version)))
        else:
            held[key] = version
            effects.append(
                Notify(reading["listener"], Change("upsert", key, detached(change["data"]), version))
            )
        self._save(reading)
        return effects

    def _register(self, handle: int) -> Sequence[Effect]:
        request = self._local.next_number("count of requests")
        session = self._session
        asked = self._readings[handle]
        self._requests[handle] = request
        self._since_asked.setdefault(handle, (dict(self._readings[handle]["since"]), {}))

        def what() -> dict[str, Any]:
            reading = self._readings.get(handle, asked)
            return {
                "op": "register", "name": reading["name"], "handle": self._wire(handle),
                "request": request, "session": session, "data_seq": reading["data_seq"],
                "predicate": reading["predicate"], "reader": reading["reader"],
                "since": dict(reading["since"]), "held": sorted(reading["held"]),
                "sync_us": reading["sync_us"], "table": reading["table"],
            }  # fmt: skip

        def answered(last: Mapping[str, Any], parts: Mapping[Any, Mapping[str, Any]]) -> Sequence[Effect]:
            if self._requests[handle] != request:
                return ()  # it was asked for again meanwhile, not knowing of this: the later one counts
            reading = self._readings.get(handle)
            is_whole = "error" in last or all(place in parts for place in last["places"])
            if reading is not None and not is_whole:
                return self._register(handle)  # a part was lost on the way
            op_id = self._calls.pop(handle, None)
            if "error" in last:
                error = from_json(last["error"])
                ended: list[Effect] = [] if op_id is None else [Complete(op_id, error=error)]
                if reading is not None:
                    self._forget(reading)
                    if op_id is None:
                        ended.append(Notify(reading["listener"], {"ended": error.summary}))
                    if last["kind"] == "registered":  # by one processor: others may have it
                        ended += self._leave(reading)
                return ended
            self._local.learn(last["table"])
            lives = {place: part["life"] for place, part in parts.items()}
            if reading is not None:
                self._registered[handle] = lives
                reading["table"] = last["table"]["number"]
                if reading["sync_us"] is None:
                    # It asked for nothing that was there: so it is up to date, unless it was before.
                    for processor, part in parts.items():
                        reading["since"].setdefault(processor, part["lsn"])
                self._save(reading)
            effects: list[Effect] = [] if op_id is None else [Complete(op_id, handle)]
            if reading is not None:
                if any(part["data_seq"] < reading["data_seq"] for part in parts.values()):
                    effects += self._tell("update_data", reading, None)
                is_late = self._step_back(reading, lives)
                if is_late or any(life < self._lives.get(place, 0) for place, life in lives.items()):
                    effects += self._register(handle)
            return effects

        return self._connection.ask(what, answered)

    def _step_back(self, reading: dict[str, Any], lives: Mapping[str, int]) -> bool:
        """Say whether a life before has told more since the registration in these was asked for.

        Of that the new one does not know: the reader goes back to where it was in the log, and asks again.
        """
        was, oldest = self._since_asked.pop(reading["handle"])
        late = [place for place, life in lives.items() if oldest.get(place, life) < life]
        for place in late:
            reading["since"].pop(place, None)
            if place in was:
                reading["since"][place] = was[place]
        if late:
            self._save(reading)
        return bool(late)

    def _leave(self, reading: Mapping[str, Any]) -> Sequence[Effect]:
        """Tell the other processors that a continuous read is over that one of them has ended."""
        return self._tell("unregister", reading, None)

    def _tell(self, op: str, reading: Mapping[str, Any], op_id: int | None) -> Sequence[Effect]:
        def what() -> dict[str, Any]:
            return {
                "op": op,
                "name": reading["name"],
                "handle": self._wire(reading["handle"]),
                "reader": reading["reader"],
                "data_seq": reading["data_seq"],
            }

        def answered(last: Mapping[str, Any], parts: Mapping[Any, Mapping[str, Any]]) -> Sequence[Effect]:
            error = from_json(last["error"]) if "error" in last else None
            return () if op_id is None else (Complete(op_id, error=error),)

        return self._connection.ask(what, answered)

    def _wire(self, handle: int) -> str:
        """Give a handle as processors know it: a wiped device's are not those that it had before."""
        return f"{self._connection.incarnation} {handle}"

    def _known(self, handle: Any) -> dict[str, Any]:
        if not isinstance(handle, int) or handle not in self._readings:
            raise ParameterError(
                "There is no such continuous read.",
                where="handle",
                found=repr(handle),
                expected=", ".join(map(str, self._readings)) or "none is registered",
            )
        return self._readings[handle]

    def _save(self, reading: Mapping[str, Any]) -> None:
        self._store.put(f"reading {reading['handle']:09d}", reading)

    def _forget(self, reading: Mapping[str, Any]) -> None:
        handle = reading["handle"]
        self._readings.pop(handle, None)
        self._registered.pop(handle, None)
        self._since_asked.pop(handle, None)
        self._store.delete(f"reading {handle:09d}")
