"""Algorithm 3 for many clients of a function with a key: a message costs time in the number of cohorts.

Receivers with equal keys have the same threshold for every sender. A cohort is the receivers with one key and
exactly the same pending messages. The result is exact:

- a client that registers later, or that does not receive its own message, forms its own cohort until the
  queues of both are empty;
- a receiver whose key changes moves with its pending messages, which are then walked under the new key;
- the function is applied again only to messages whose sender's context has changed, because it is pure.

Entries and times equal those of :class:`~mudkit.systems.radiator.engines.literal.ClientLists`. With
``Volume(n)`` there are about n cohorts per key, and one if nobody joins or leaves and everyone receives their
own messages, as in the paper. With ``Time`` and without echo, each recent sender is a cohort.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Final

from mudkit.checks import check_arguments
from mudkit.errors import ParameterError
from mudkit.systems.radiator.context import Context
from mudkit.systems.radiator.engines.literal import Entry
from mudkit.systems.radiator.engines.pending import Batch, CurrentContexts, Message, Pending
from mudkit.systems.radiator.functions import Problems, error_text
from mudkit.systems.radiator.thresholds import Aggregability, EvaluatedThreshold
from mudkit.wire import Fields

_MAX_CACHED_SENDERS: Final = 100_000
"""Sender keys whose decisions are cached; the cache is cleared when it is full."""


class _FailedKey:
    """Stands for the key of receivers whose key function fails; equal if the errors have the same text."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self._text = error_text(error)

    def __hash__(self) -> int:
        return hash(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _FailedKey) and other._text == self._text


@dataclass(slots=True)
class _PendingSender:
    """Sender of pending messages of a cohort: its current threshold, and how many are pending."""

    key: EvaluatedThreshold | None
    count: int


class _Cohort:
    """Receivers with one key and the same pending messages."""

    __slots__ = ("listed", "members", "must_walk", "pending", "senders", "view")

    def __init__(self, view: Hashable, pending: Pending) -> None:
        self.view = view
        self.pending = pending
        self.members: dict[str, None] = {}
        self.listed: list[str] | None = None
        """Cached list of the members; None: they have changed."""
        self.senders: dict[str, _PendingSender] = {}
        self.must_walk = False


def _needs_key(cohorts: list[_Cohort], changed: str, new: Message | None, own: _Cohort | None) -> bool:
    """Return whether a cohort gets the new message, or has one of a changed sender."""
    gets_message = new is not None and (len(cohorts) > 1 or cohorts[0] is not own)
    return gets_message or any(changed in cohort.senders for cohort in cohorts)


class Groups:
    """Engine for many clients and a function with a key; same methods as :class:`ClientLists`.

    Parameters
    ----------
    function : Aggregability
        Aggregability function with a key.
    retention_us, echo
        As for :class:`ClientLists`.

    Raises
    ------
    ParameterError
        The function declares no key.

    Attributes
    ----------
    due_us : float
        Latest time of the next :meth:`fire`, µs; infinite: none.
    dropped : int
        Messages dropped after the retention, counted once per receiver.
    """

    @check_arguments
    def __init__(self, function: Aggregability, retention_us: int, *, echo: bool = False) -> None:
        if function.key is None:
            raise ParameterError(
                "Receivers cannot be divided into groups that are alike.",
                where="function",
                found=f"{function.name} has no key",
                expected="a function that declares what of a receiver it looks at",
                remedy="put @aggregability(key=…) before it, or take the engine that engine_for_many() gives",
            )
        self.function = function
        self.problems = Problems()
        self.contexts = CurrentContexts(retention_us)
        self.dropped = 0
        self.retention_us, self._echo = retention_us, echo
        self._cohort_of: dict[str, _Cohort] = {}
        self._by_view: dict[Hashable, list[_Cohort]] = {}
        self.due_us = math.inf
        self._emptied: list[_Cohort] = []
        self._counts_senders = function.sender_key is None
        """True if cohorts count pending messages by sender; not needed if senders have keys."""
        self._sender_keys: dict[str, Hashable] = {}
        self._decided: dict[Hashable, dict[Hashable, EvaluatedThreshold]] = {}
        """Cached thresholds by sender key and receiver key."""

    @property
    def clients(self) -> Iterable[str]:
        """Registered clients."""
        return self._cohort_of.keys()

    @property
    def cohorts(self) -> int:
        """Number of cohorts; the cost of a message is proportional to it."""
        return sum(map(len, self._by_view.values()))

    def waiting(self, receiver: str) -> list[Message]:
        """Return the pending messages for a receiver, oldest first."""
        return self._cohort_of[receiver].pending.messages()

    def register(self, now_us: int, client: str, attributes: Fields, *, receives: bool = True) -> list[Entry]:
        """Register a client, or replace its attributes; see :meth:`ClientLists.register`."""
        self._merge_emptied()
        is_new = self.contexts.register(client, attributes)
        if client in self._cohort_of:
            self._move_receiver(client, self._view_of(client))
        elif receives:
            self._enter_cohort(client, self._find_empty_cohort(self._view_of(client)))
        if is_new:
            self._cached_decisions(client)
            return []
        return self._step(now_us, client, None)

    def unregister(self, now_us: int, client: str) -> None:
        """Remove a client and its pending messages; see :meth:`ClientLists.unregister`."""
        if client in self._cohort_of:
            self._leave_cohort(client)
        self._sender_keys.pop(client, None)
        self.contexts.mark_left(now_us, client)
        self._set_due()

    def take(self, now_us: int, message: Message) -> list[Entry]:
        """Add a message for all clients; return released entries; see :meth:`ClientLists.take`."""
        if self._emptied:
            self._merge_emptied()
        sender = message.sender
        self.contexts.record_propagation(sender, message.context)
        if sender in self._cohort_of:
            self._move_receiver(sender, self._view_of(sender))
            cohort = self._cohort_of[sender]
            if not self._echo and len(cohort.members) > 1:
                self._leave_cohort(sender)
                self._enter_cohort(sender, self._copy_cohort(cohort, cohort.view))
        return self._step(now_us, sender, message)

    def fire(self, now_us: int) -> list[Entry]:
        """Release what is due by time, and return the entries; see :meth:`ClientLists.fire`."""
        self._merge_emptied()
        return self._step(now_us, None, None)

    def drop(self, count: int) -> None:
        """Count messages that cannot be joined in :attr:`dropped`; see :meth:`ClientLists.drop`."""
        self.dropped += count

    def put_back(self, entry: Entry, retry_us: int) -> None:
        """Restore an entry that could not be joined; see :meth:`ClientLists.put_back`."""
        for cohort in dict.fromkeys(self._cohort_of[client] for client in entry.recipients):
            cohort.pending.put_back(entry.batch, retry_us)
            cohort.must_walk = True
        self._set_due()

    # -- release of messages

    def _step(self, now_us: int, changed: str | None, new: Message | None) -> list[Entry]:
        """Add a message to all cohorts, walk those affected by a changed sender, and expire what is due."""
        entries: dict[int, list[Entry]] = {}
        own = None if new is None or self._echo else self._cohort_of.get(new.sender)
        counts_senders = self._counts_senders
        decided: dict[Hashable, EvaluatedThreshold] | None = None
        has_new_key = False
        if changed is not None and not counts_senders:
            decided, has_new_key = self._cached_decisions(changed)
        due_us = math.inf
        for view, cohorts in self._by_view.items():
            key = None if decided is None else decided.get(view)
            if key is None and changed is not None and _needs_key(cohorts, changed, new, own):
                key = self._threshold_of(cohorts[0], changed, self.contexts[changed])
                if decided is not None and key is not None:
                    decided[view] = key
            for cohort in cohorts:
                pending = cohort.pending
                sender = cohort.senders.get(changed) if counts_senders and changed is not None else None
                if (
                    cohort.must_walk
                    or (sender is not None and sender.key != key)
                    or (has_new_key and any(message.sender == changed for message in pending.messages()))
                ):
                    self._decide_again(now_us, cohort, None if cohort is own else new, entries)
                elif new is not None and cohort is not own:
                    batch = pending.add(new, key)
                    if batch is not None:
                        self._release_counted(cohort, batch[:-1], entries, batch)
                        self._note_empty(cohort)
                    elif sender is not None:
                        sender.count += 1
                    elif counts_senders:
                        cohort.senders[new.sender] = _PendingSender(key, 1)
                if now_us >= pending.due_us:
                    self._expire(now_us, cohort, entries)
                if pending.due_us < due_us:
                    due_us = pending.due_us
        self.due_us = due_us
        return [entry for batches in entries.values() for entry in batches]

    def _expire(self, now_us: int, cohort: _Cohort, entries: dict[int, list[Entry]]) -> None:
        """Release the due batches of a cohort into ``entries``; drop messages after the retention."""
        pending, before = cohort.pending, cohort.pending.dropped
        for batch in pending.expire(now_us):
            self._release_counted(cohort, batch, entries, batch)
        self.dropped += (pending.dropped - before) * len(cohort.members)
        self._note_empty(cohort)

    def _decide_again(
        self, now_us: int, cohort: _Cohort, new: Message | None, entries: dict[int, list[Entry]]
    ) -> None:
        """Apply the function again to all pending messages, once per sender."""
        pending, before = cohort.pending, cohort.pending.dropped
        keys: dict[str, EvaluatedThreshold | None] = {}

        def decide(message: Message) -> EvaluatedThreshold | None:
            """Return the threshold of a message; it is computed once per sender."""
            sender = message.sender
            if sender not in keys:
                keys[sender] = self._threshold_of(cohort, sender, self.contexts.of_sender(message))
            return keys[sender]

        batches = pending.walk(now_us, decide, new)
        cohort.must_walk = False
        waiting = Counter(message.sender for message in pending.messages())
        if self._counts_senders:
            cohort.senders = {
                sender: _PendingSender(keys[sender], count) for sender, count in waiting.items()
            }
        self.dropped += (pending.dropped - before) * len(cohort.members)
        for batch in batches:
            self._release(cohort, batch, entries)
        self._note_empty(cohort)

    def _release_counted(
        self, cohort: _Cohort, waited: Batch, entries: dict[int, list[Entry]], batch: Batch
    ) -> None:
        """Release a batch outside of a walk, and update the counts of its senders."""
        senders = cohort.senders
        for message in waited if self._counts_senders else ():
            counted = senders.get(message.sender)
            if counted is None:
                continue  # the first of several batches has emptied the cohort and cleared its senders
            counted.count -= 1
            if not counted.count:
                del senders[message.sender]
        self._release(cohort, batch, entries)

    def _release(self, cohort: _Cohort, batch: Batch, entries: dict[int, list[Entry]]) -> None:
        """Add a cohort's batch to ``entries``, which are by the number of a batch's oldest message.

        Equal batches share an entry (Radiator 3.1): it is replaced by one with more recipients.
        """
        if cohort.listed is None:
            cohort.listed = list(cohort.members)
        batches = entries.setdefault(batch[0].number, [])
        for place, entry in enumerate(batches):
            if entry.batch == batch:
                batches[place] = Entry(batch, [*entry.recipients, *cohort.listed])
                break
        else:
            batches.append(Entry(batch, cohort.listed))

    def _threshold_of(self, cohort: _Cohort, sender: str, context: Context) -> EvaluatedThreshold | None:
        """Return the threshold of a sender for a cohort; None if the function fails, which is recorded."""
        view = cohort.view
        try:
            if type(view) is not _FailedKey:
                return self.function.decide(context, view)
            problem = view.error
        except Exception as error:
            problem = error
        self.problems.add(self.function.problem(problem, sender, next(iter(cohort.members))))
        return None

    def _cached_decisions(self, sender: str) -> tuple[dict[Hashable, EvaluatedThreshold] | None, bool]:
        """Return the cached thresholds for a sender's key, and whether its key has changed.

        None, True: the key function fails. The key is remembered for the next call.
        """
        key_of = self.function.sender_key
        try:
            key: Hashable = key_of(self.contexts[sender]) if key_of is not None else None
            decided = self._decided.get(key)
        except Exception:
            self._sender_keys.pop(sender, None)
            return None, True
        has_new_key = sender not in self._sender_keys or self._sender_keys[sender] != key
        self._sender_keys[sender] = key
        if decided is None:
            if len(self._decided) >= _MAX_CACHED_SENDERS:
                self._decided.clear()
            decided = self._decided[key] = {}
        return decided, has_new_key

    def _set_due(self) -> None:
        """Compute :attr:`due_us` from all cohorts."""
        cohorts = (cohort for same_view in self._by_view.values() for cohort in same_view)
        self.due_us = min((cohort.pending.due_us for cohort in cohorts), default=math.inf)

    # -- membership of cohorts

    def _view_of(self, client: str) -> Hashable:
        """Return the key of a receiver, or a placeholder if its key function fails."""
        try:
            view: Hashable = self.function.view(self.contexts[client])
        except Exception as error:
            return _FailedKey(error)
        return view

    def _find_empty_cohort(self, view: Hashable) -> _Cohort:
        """Return the cohort of a key without pending messages; create it if there is none."""
        for cohort in self._by_view.get(view, ()):
            if not len(cohort.pending) and not cohort.pending.is_private:
                return cohort
        return self._add_cohort(_Cohort(view, Pending(self.retention_us)))

    def _copy_cohort(self, cohort: _Cohort, view: Hashable) -> _Cohort:
        """Create a cohort with a copy of another's pending messages."""
        copied = self._add_cohort(_Cohort(view, cohort.pending.copy()))
        copied.senders = {
            name: _PendingSender(sender.key, sender.count) for name, sender in cohort.senders.items()
        }
        copied.must_walk = cohort.must_walk
        return copied

    def _add_cohort(self, cohort: _Cohort) -> _Cohort:
        """Add a cohort to those of its key, and return it."""
        self._by_view.setdefault(cohort.view, []).append(cohort)
        return cohort

    def _move_receiver(self, client: str, view: Hashable) -> None:
        """Move a receiver whose key has changed, with its pending messages, to another cohort."""
        cohort = self._cohort_of[client]
        if cohort.view == view:
            return
        self._leave_cohort(client)
        moved = self._copy_cohort(cohort, view)
        moved.must_walk = len(moved.pending) > 0
        self._enter_cohort(client, moved)
        self._note_empty(moved)

    def _enter_cohort(self, client: str, cohort: _Cohort) -> None:
        """Add a receiver to a cohort."""
        cohort.members[client] = None
        cohort.listed = None
        self._cohort_of[client] = cohort

    def _leave_cohort(self, client: str) -> None:
        """Remove a receiver from its cohort, and the cohort if nobody is left."""
        cohort = self._cohort_of.pop(client)
        del cohort.members[client]
        cohort.listed = None
        if not cohort.members:
            self._remove_cohort(cohort)

    def _remove_cohort(self, cohort: _Cohort) -> None:
        """Remove a cohort without members."""
        cohorts = self._by_view[cohort.view]
        cohorts.remove(cohort)
        if not cohorts:
            del self._by_view[cohort.view]

    def _note_empty(self, cohort: _Cohort) -> None:
        """Record a cohort without pending messages: it may be merged with another empty one of its key.

        No effect for one that has pending messages.
        """
        if not len(cohort.pending):
            cohort.senders.clear()
            if len(self._by_view[cohort.view]) > 1:
                self._emptied.append(cohort)

    def _merge_emptied(self) -> None:
        """Merge emptied cohorts of equal keys; called late, because failed entries may be put back."""
        for cohort in self._emptied:
            if not cohort.members or len(cohort.pending):
                continue
            for other in self._by_view[cohort.view]:
                alike = other is not cohort and not len(other.pending)
                if alike and other.pending.is_private == cohort.pending.is_private:
                    few, many = sorted((cohort, other), key=lambda either: len(either.members))
                    for client in few.members:
                        self._cohort_of[client] = many
                    many.members.update(few.members)
                    many.listed = None
                    self._remove_cohort(few)
                    few.members = {}
                    break
        self._emptied.clear()
