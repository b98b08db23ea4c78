"""Algorithm 3 for very many clients: those for whom the same waits are one, so that a message costs less.

Of a function with a declared key, receivers with equal keys get the same threshold for every sender. A cohort
is the receivers with one key for whom the very same messages wait. It is exact:

- who registers later, or gets nothing of its own, waits for other messages, and is in a cohort of its own
  until nothing waits for either;
- a receiver whose key changes moves with what it has pending, which is then walked under its new key;
- the function is applied anew to what waits where the context of its sender has changed, and nowhere else:
  it is a function of the two contexts alone.

What goes is what :class:`~mudkit.systems.radiator.engines.literal.ClientLists` lets go, at the same moments.
With ``Volume(n)`` there are about n cohorts of a key at most, and one when nobody comes, nobody leaves and
everyone gets their own, as in the paper; with ``Time`` and without echo everyone who has sent lately is a
cohort. For a function without a declared key there is :mod:`~mudkit.systems.radiator.engines.client_arrays`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Final

from mudkit.errors import ParameterError
from mudkit.systems.radiator.aggregation.thresholds import Aggregability, Key
from mudkit.systems.radiator.context import Context
from mudkit.systems.radiator.engines.contexts import Contexts
from mudkit.systems.radiator.engines.literal import Entry
from mudkit.systems.radiator.engines.pending import Batch, Message, Pending
from mudkit.systems.radiator.problems import Problems, text_of
from mudkit.wire import Fields

__all__ = ["Groups"]

_MAX_DECIDED: Final = 100_000
"""What was decided is forgotten when it is for so many different senders."""


class _Failed:
    """What stands for the key of receivers for whom the key cannot be had."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self._text = text_of(error)

    def __hash__(self) -> int:
        return hash(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Failed) and other._text == self._text


@dataclass(slots=True)
class _Sender:
    """Sender of pending messages: its threshold now, and how many of its messages wait."""

    key: Key | None
    count: int


class _Cohort:
    __slots__ = ("listed", "members", "must_walk", "pending", "senders", "view")

    def __init__(self, view: Hashable, pending: Pending) -> None:
        self.view = view
        self.pending = pending
        self.members: dict[str, None] = {}
        self.listed: list[str] | None = None
        """The members; None: they have changed."""
        self.senders: dict[str, _Sender] = {}
        self.must_walk = False


class Groups:
    """The engine for very many clients; it has the methods of ``ClientLists``.

    Parameters
    ----------
    function : Aggregability
        The aggregability function, which has a key.
    retention_us : int
    echo : bool

    Raises
    ------
    ParameterError
        The function declares no key.
    """

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
        self.contexts = Contexts(retention_us)
        self.dropped = 0
        self.retention_us, self._echo = retention_us, echo
        self._of: dict[str, _Cohort] = {}
        self._by_view: dict[Hashable, list[_Cohort]] = {}
        self.due_us = math.inf
        """When :meth:`fire` is next to be called, at the latest."""
        self._emptied: list[_Cohort] = []
        self._tracks = function.sender_key is None
        """Whether each cohort counts who has sent what waits: else what is seen of senders tells enough."""
        self._seen: dict[str, Hashable] = {}
        self._decided: dict[Hashable, dict[Hashable, Key]] = {}
        """What the function gave, by what it sees of the sender and of the receiver."""

    @property
    def clients(self) -> Iterable[str]:
        """Those who are registered."""
        return self._of.keys()

    @property
    def cohorts(self) -> int:
        """How many cohorts there are: what a message costs."""
        return sum(map(len, self._by_view.values()))

    def waiting(self, client: str) -> list[Message]:
        """Give what waits for a client, the oldest first."""
        return self._of[client].pending.messages()

    def register(self, now_us: int, client: str, attributes: Fields, *, receives: bool = True) -> list[Entry]:
        """As :meth:`ClientLists.register`."""
        self._merge()
        is_new = self.contexts.register(client, attributes)
        if client in self._of:
            self._move(client, self._view(client))
        elif receives:
            self._enter(client, self._empty(self._view(client)))
        if is_new:
            self._seen_anew(client)
            return []
        return self._step(now_us, client, None)

    def unregister(self, now_us: int, client: str) -> None:
        """As :meth:`ClientLists.unregister`."""
        if client in self._of:
            self._leave(client)
        self._seen.pop(client, None)
        self.contexts.leave(now_us, client)
        self._set_due()

    def take(self, now_us: int, message: Message) -> list[Entry]:
        """As :meth:`ClientLists.take`."""
        if self._emptied:
            self._merge()
        sender = message.sender
        self.contexts.propagated(sender, message.context)
        if sender in self._of:
            self._move(sender, self._view(sender))
            cohort = self._of[sender]
            if not self._echo and len(cohort.members) > 1:
                self._leave(sender)
                self._enter(sender, self._beside(cohort, cohort.view))
        return self._step(now_us, sender, message)

    def fire(self, now_us: int) -> list[Entry]:
        """As :meth:`ClientLists.fire`."""
        self._merge()
        return self._step(now_us, None, None)

    def drop(self, count: int) -> None:
        """See :meth:`ClientLists.drop`."""
        self.dropped += count

    def put_back(self, entry: Entry, again_us: int) -> None:
        """As :meth:`ClientLists.put_back`."""
        for cohort in dict.fromkeys(self._of[client] for client in entry.recipients):
            cohort.pending.put_back(entry.batch, again_us)
            cohort.must_walk = True
        self._set_due()

    # -- what goes

    def _step(self, now_us: int, changed: str | None, new: Message | None) -> list[Entry]:
        """Add a message everywhere, walk where a sender's context has changed, and let go what is due."""
        entries: dict[int, list[Entry]] = {}
        own = None if new is None or self._echo else self._of.get(new.sender)
        due_us = math.inf
        tracks = self._tracks
        decided, is_anew = (None, False) if changed is None or tracks else self._seen_anew(changed)
        for view, cohorts in self._by_view.items():
            key: Key | None = None
            if decided is not None and (key := decided.get(view)) is not None:
                pass
            elif changed is not None and (
                (new is not None and (len(cohorts) > 1 or cohorts[0] is not own))
                or any(changed in cohort.senders for cohort in cohorts)
            ):
                key = self._decide(cohorts[0], changed, self.contexts[changed])
                if decided is not None and key is not None:
                    decided[view] = key
            for cohort in cohorts:
                pending = cohort.pending
                held = cohort.senders.get(changed) if tracks and changed is not None else None
                if (
                    cohort.must_walk
                    or (held is not None and held.key != key)
                    or (is_anew and any(each.sender == changed for each in pending.messages()))
                ):
                    self._walk(now_us, cohort, None if cohort is own else new, entries)
                elif new is not None and cohort is not own:
                    if (batch := pending.add(new, key)) is None:
                        if not tracks:
                            pass
                        elif held is None:
                            cohort.senders[new.sender] = _Sender(key, 1)
                        else:
                            held.count += 1
                    else:
                        self._let_go(cohort, batch[:-1], entries, batch)
                        self._note_empty(cohort)
                if now_us >= pending.due_us:
                    before = pending.dropped
                    for batch in pending.expire(now_us):
                        self._let_go(cohort, batch, entries, batch)
                    self.dropped += (pending.dropped - before) * len(cohort.members)
                    self._note_empty(cohort)
                if pending.due_us < due_us:
                    due_us = pending.due_us
        self.due_us = due_us
        return [entry for batches in entries.values() for entry in batches]

    def _walk(
        self, now_us: int, cohort: _Cohort, new: Message | None, entries: dict[int, list[Entry]]
    ) -> None:
        """Apply the function anew; of one sender it is the same for all that waits."""
        pending, before = cohort.pending, cohort.pending.dropped
        keys: dict[str, Key | None] = {}

        def decide(message: Message) -> Key | None:
            sender = message.sender
            if sender not in keys:
                keys[sender] = self._decide(cohort, sender, self.contexts.of_sender(message))
            return keys[sender]

        batches = pending.walk(now_us, decide, new)
        cohort.must_walk = False
        waiting = Counter(message.sender for message in pending.messages())
        if self._tracks:
            cohort.senders = {sender: _Sender(keys[sender], count) for sender, count in waiting.items()}
        self.dropped += (pending.dropped - before) * len(cohort.members)
        for batch in batches:
            self._go(cohort, batch, entries)
        self._note_empty(cohort)

    def _let_go(self, cohort: _Cohort, waited: Batch, entries: dict[int, list[Entry]], batch: Batch) -> None:
        """Let a batch go that was not found by a walk."""
        senders = cohort.senders
        for message in waited if self._tracks else ():
            held = senders.get(message.sender)
            if held is None:
                continue  # several go at this moment: with the first of them all senders were forgotten
            held.count -= 1
            if not held.count:
                del senders[message.sender]
        self._go(cohort, batch, entries)

    def _go(self, cohort: _Cohort, batch: Batch, entries: dict[int, list[Entry]]) -> None:
        """Let a batch go to a cohort: equal ones are one entry (Radiator 3.1)."""
        if cohort.listed is None:
            cohort.listed = list(cohort.members)
        batches = entries.setdefault(batch[0].number, [])
        for place, entry in enumerate(batches):
            if entry.batch == batch:
                batches[place] = Entry(batch, [*entry.recipients, *cohort.listed])
                break
        else:
            batches.append(Entry(batch, cohort.listed))

    def _decide(self, cohort: _Cohort, sender: str, context: Context) -> Key | None:
        view = cohort.view
        try:
            if type(view) is not _Failed:
                return self.function.decide(context, view)
            problem = view.error
        except Exception as error:
            problem = error
        self.problems.add(self.function.problem(problem, sender, next(iter(cohort.members))))
        return None

    def _seen_anew(self, sender: str) -> tuple[dict[Hashable, Key] | None, bool]:
        """Give what is known for senders like this one, and whether the function sees it as another now."""
        sees = self.function.sender_key
        try:
            seen: Hashable = sees(self.contexts[sender]) if sees is not None else None
            decided = self._decided.get(seen)
        except Exception:
            self._seen.pop(sender, None)
            return None, True
        is_anew = sender not in self._seen or self._seen[sender] != seen
        self._seen[sender] = seen
        if decided is None:
            if len(self._decided) >= _MAX_DECIDED:
                self._decided.clear()
            decided = self._decided[seen] = {}
        return decided, is_anew

    def _set_due(self) -> None:
        cohorts = (each for cohorts_of in self._by_view.values() for each in cohorts_of)
        self.due_us = min((cohort.pending.due_us for cohort in cohorts), default=math.inf)

    # -- who is where

    def _view(self, client: str) -> Hashable:
        try:
            view: Hashable = self.function.view(self.contexts[client])
        except Exception as error:
            return _Failed(error)
        return view

    def _empty(self, view: Hashable) -> _Cohort:
        """Give a cohort for which nothing waits."""
        for cohort in self._by_view.get(view, ()):
            if not len(cohort.pending) and not cohort.pending.is_private:
                return cohort
        return self._new(_Cohort(view, Pending(self.retention_us)))

    def _beside(self, cohort: _Cohort, view: Hashable) -> _Cohort:
        """Make a cohort for which the same waits."""
        made = self._new(_Cohort(view, cohort.pending.copy()))
        made.senders = {sender: _Sender(held.key, held.count) for sender, held in cohort.senders.items()}
        made.must_walk = cohort.must_walk
        return made

    def _new(self, cohort: _Cohort) -> _Cohort:
        self._by_view.setdefault(cohort.view, []).append(cohort)
        return cohort

    def _move(self, client: str, view: Hashable) -> None:
        """Bring a receiver whose key has changed to another cohort, with what it has pending."""
        cohort = self._of[client]
        if cohort.view == view:
            return
        self._leave(client)
        moved = self._beside(cohort, view)
        moved.must_walk = len(moved.pending) > 0
        self._enter(client, moved)
        self._note_empty(moved)

    def _enter(self, client: str, cohort: _Cohort) -> None:
        cohort.members[client] = None
        cohort.listed = None
        self._of[client] = cohort

    def _leave(self, client: str) -> None:
        cohort = self._of.pop(client)
        del cohort.members[client]
        cohort.listed = None
        if not cohort.members:
            self._remove(cohort)

    def _remove(self, cohort: _Cohort) -> None:
        cohorts = self._by_view[cohort.view]
        cohorts.remove(cohort)
        if not cohorts:
            del self._by_view[cohort.view]

    def _note_empty(self, cohort: _Cohort) -> None:
        if not len(cohort.pending):
            cohort.senders.clear()
            if len(self._by_view[cohort.view]) > 1:
                self._emptied.append(cohort)

    def _merge(self) -> None:
        """Make one of those cohorts of a key for which nothing waits; after what failed was put back."""
        for cohort in self._emptied:
            if not cohort.members or len(cohort.pending):
                continue
            for other in self._by_view[cohort.view]:
                alike = other is not cohort and not len(other.pending)
                if alike and other.pending.is_private == cohort.pending.is_private:
                    few, many = sorted((cohort, other), key=lambda each: len(each.members))
                    for client in few.members:
                        self._of[client] = many
                    many.members.update(few.members)
                    many.listed = None
                    self._remove(few)
                    few.members = {}
                    break
        self._emptied.clear()
