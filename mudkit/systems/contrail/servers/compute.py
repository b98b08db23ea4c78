"""Compute instance: executes requests of devices on the storages; stateless (Contrail 4.2.2).

A :class:`~mudkit.systems.contrail.messages.Task` travels to storage with the operations and returns with the
answers. Any instance can continue any task.

========  ==========================================================================================
join      create the queue of the device
send      store the item in the cache, or load its body if it is only named; append a copy with one
          destination to the queue of each receiver
pull      remove acknowledged entries and read the queue; move the queue to this data centre after
          ``move_after`` consecutive visits
group     add or remove a member; append the group's filters for it to its queue
withdraw  remove messages of the device from the queue of another one
========  ==========================================================================================
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final
from zlib import crc32

from msgspec.structs import asdict, replace

from mudkit.events import Effect, Event, Ports, Received, Send
from mudkit.systems.contrail.messages import (
    COMPUTE_FROM_GATEWAY,
    COMPUTE_FROM_STORAGE,
    AddMember,
    Answer,
    AppendEntry,
    CacheItem,
    Data,
    Deliver,
    Destination,
    DeviceMessage,
    DropEntries,
    Entry,
    ExecuteOps,
    Filter,
    FindItem,
    Membership,
    MoveQueue,
    Op,
    OpenQueue,
    OpsExecuted,
    Page,
    Pull,
    Push,
    PushAnswer,
    QueueMoved,
    ReadQueue,
    RemoveMember,
    RoutedAnswer,
    RoutedRequest,
    SealedFor,
    ShowFriends,
    SpreadFilter,
    Task,
    Withdraw,
    WithdrawFrom,
    read_answers,
)
from mudkit.systems.receiving import record_dropped

PAGE_BYTES: Final = 65_536
"""Maximum size of a page with more than one message."""


class Compute:
    """Machine of a compute instance; how long a request takes is said by the load of its server.

    ``units`` are the storages of all data centres, in the same order in all instances; ``here`` is the
    nearest of them. The queue of a device moves here after ``move_after`` consecutive visits (None: never).
    """

    def __init__(
        self,
        ports: Ports,
        units: Sequence[str],
        here: str,
        move_after: int | None,
        gateways: Collection[str],
    ) -> None:
        self._gateways = gateways
        self._units, self._here = units, here
        self._move_after = move_after

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        match event:
            case Received(source=source) if source in self._gateways:
                ask = COMPUTE_FROM_GATEWAY.decode(event.message)
                return (
                    record_dropped(event) if ask is None or ask.gateway != source else self._begin_task(ask)
                )
            case Received(source=source):
                done = COMPUTE_FROM_STORAGE.decode(event.message) if source in self._units else None
                answers = None if done is None else self._read_answers(done)
                if done is None or answers is None:
                    return record_dropped(event)
                return self._continue_task(source, done.task, answers)
        return ()

    def _read_answers(self, done: OpsExecuted) -> list[tuple[Op, Answer]] | None:
        """Return operations and answers of a task; None if one does not fit, or is of another cloud."""
        answers = read_answers(done)
        moved = [answer.moved for _, answer in answers or () if isinstance(answer, QueueMoved)]
        is_own = all(unit in self._units for unit in (*moved, *(unit for unit, _ in done.task.todo)))
        return answers if is_own else None

    def _begin_task(self, ask: RoutedRequest) -> Sequence[Effect]:
        """Turn a request into a task, and send the operations of its first step."""
        what, ops = ask.what, list[Op]()
        task = Task(ask.gateway, ask.client, what, "send")
        match what:
            case OpenQueue(device=device, friends=friends):
                task, ops = replace(task, step="join"), [ShowFriends(device=device, friends=friends)]
            case Push(message=Data() as item):
                find = FindItem(
                    source=item.source, port=item.port, item=item.item, seq=item.seq, epoch=item.epoch
                )
                if item.body is None:
                    task, ops = replace(task, step="named"), [find]
                else:
                    task = replace(task, step="data")
                    ops = [CacheItem(**asdict(find), body=item.body), *_append_ops([item])]
            case Push(message=Filter(group=str() as group) as message):
                task, ops = replace(task, step="spread"), [SpreadFilter(group=group, filter=message)]
            case Push(message=message):
                ops = _append_ops([message])
            case Withdraw(device=device, receiver=receiver, number=number):
                task = replace(task, step="withdraw")
                ops = [WithdrawFrom(device=receiver, source=device, number=number)]
            case Membership(device=device, group=group, joins=joins):
                task = replace(task, step="group")
                ops = [(AddMember if joins else RemoveMember)(group=group, member=device)]
            case Pull(device=device, got=got, hold=hold, storage_incarnation=incarnation):
                task = replace(task, step="pull")
                watcher = ask.gateway if hold else None
                read = ReadQueue(
                    device=device, watcher=watcher, most_bytes=PAGE_BYTES, here=self._here, begins=not got
                )
                ops = (
                    [DropEntries(device=device, numbers=got, storage_incarnation=incarnation), read]
                    if got
                    else [read]
                )
        return self._send_ops(task, [(self._home_storage(op), op) for op in ops])

    def _home_storage(self, op: Op) -> str:
        """Return the storage that an operation is sent to first: by hash of the device, source or group."""
        match op:
            case CacheItem(source=name) | FindItem(source=name):
                pass
            case AddMember(group=name) | RemoveMember(group=name) | SpreadFilter(group=name):
                pass
            case _:
                name = op.device
        return self._units[crc32(name.encode()) % len(self._units)]

    def _send_ops(self, task: Task, todo: Sequence[tuple[str, Op]]) -> Sequence[Effect]:
        """Send the next operations, up to the first one for another storage; without any, finish the step."""
        if not todo:
            return self._finish_step(task, [], self._here)
        unit = todo[0][0]
        count = next((at for at, (other, _) in enumerate(todo) if other != unit), len(todo))
        task = replace(task, doing=list(todo[:count]), todo=list(todo[count:]))
        return (Send(unit, ExecuteOps([op for _, op in task.doing], task)),)

    def _continue_task(self, source: str, task: Task, answers: list[tuple[Op, Answer]]) -> Sequence[Effect]:
        """Send operations on moved queues to their new place, then the rest; without any, finish the step."""
        again = [
            (answer.moved, replace(op, version=answer.version))
            for op, answer in answers
            if isinstance(answer, QueueMoved)
        ]
        results = [pair for pair in answers if not isinstance(pair[1], QueueMoved)]
        todo = [*again, *task.todo]
        if todo:
            return self._send_ops(replace(task, results=results), todo)
        return self._finish_step(task, results, source)

    def _finish_step(self, task: Task, results: list[tuple[Op, Answer]], last: str) -> Sequence[Effect]:
        """Begin the next step of a task whose operations are all done, or answer the device."""
        task = replace(task, doing=[], todo=[], results=[])
        what = task.what
        match task.step, what:
            case "named", Push(number=number, message=Data() as item):
                body = next((answer for op, answer in results if isinstance(op, FindItem)), None)
                if not isinstance(body, bytes):
                    return (_route_answer(task, PushAnswer(number, None, task.storage_incarnations)),)
                return self._append_copies(task, [replace(item, body=body)])
            case ("spread", Push()) | ("group", Membership()):
                return self._append_copies(task, [
                    stored for _, answer in results if isinstance(answer, list) for stored in answer
                ])  # fmt: skip
            case "pull", Pull():
                return self._deliver_page(task, what, results, last)
        if isinstance(what, Pull):  # the queue has moved
            return ()
        outcomes = [
            (op.device, entry.port, str(answer))
            for op, answer in results
            if isinstance(op, AppendEntry)
            for entry in op.entry.message.to
        ]
        return (_route_answer(task, PushAnswer(what.number, outcomes, task.storage_incarnations)),)

    def _append_copies(self, task: Task, messages: Iterable[DeviceMessage]) -> Sequence[Effect]:
        """Send the last step of a task: the operations that append messages to their receivers' queues."""
        ops = _append_ops(messages)
        return self._send_ops(replace(task, step="append"), [(self._home_storage(op), op) for op in ops])

    def _deliver_page(
        self, task: Task, pull: Pull, results: list[tuple[Op, Answer]], last: str
    ) -> Sequence[Effect]:
        """Answer a pull with its page; after ``move_after`` visits, move the queue to this data centre."""
        page = next((answer for _, answer in results if isinstance(answer, Page)), None)
        if page is None:
            return ()
        delivery = _route_answer(task, Deliver(pull.visit, page.page, page.more, page.storage_incarnation))
        if self._move_after is None or page.times < self._move_after or last == self._here:
            return (delivery,)
        move = MoveQueue(device=pull.device, to=self._here)
        return (delivery, *self._send_ops(replace(task, step="moved"), [(last, move)]))


def _route_answer(task: Task, message: Deliver | PushAnswer) -> Send:
    """Send an answer to the gateway that the task's request came through, for the device's address."""
    return Send(task.gateway, RoutedAnswer(task.client, message))


def _append_ops(messages: Iterable[DeviceMessage]) -> list[Op]:
    """Return an operation for each destination of messages: append a copy to its queue (Contrail 4.2.2)."""
    ops: list[Op] = []
    for message in messages:
        if isinstance(message, Data):
            ops += [_append_op(entry, message, entry.expires_us) for entry in message.to]
        else:
            ops += [_append_op(entry, message, message.expires_us) for entry in message.to]
    return ops


def _append_op(to: Destination | SealedFor, message: DeviceMessage, expires_us: int | None) -> AppendEntry:
    """Return the operation that appends the copy for one destination, in the slot of its name."""
    seq, name = (message.seq, message.item) if isinstance(message, Data) else (message.number, message.slot)
    slot = f"{message.kind} {message.source}\n{message.port}\n{name}\n{to.port}"
    copy = replace(message, to=[to])
    return AppendEntry(device=to.device, entry=Entry(slot, seq, expires_us, copy))
