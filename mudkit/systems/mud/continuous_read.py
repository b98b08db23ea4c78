"""A continuous read as an application uses it: a handle to iterate over, to cancel and to look at."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Final

from mudkit.checks import Range, check_arguments, number, unusable
from mudkit.errors import OperationLost, ParameterError, ReentrantRun, TableProblem, brief
from mudkit.events import DEFAULT_TIMEOUT_S, Operation
from mudkit.systems.mud.device.continuous_reads import ContinuousReads
from mudkit.systems.mud.device.read_notices import listener_of
from mudkit.systems.mud.device.read_path import selected_aggregates_error
from mudkit.systems.mud.operations import Listen
from mudkit.systems.mud.result import Change, ReadResult
from mudkit.systems.mud.tables.selection import Selection
from mudkit.wire import Fields

if TYPE_CHECKING:
    from mudkit.systems.mud.api import Client

_DEFAULT_MINUTES: Final = DEFAULT_TIMEOUT_S / 60
_MAX_MINUTES: Final = 1e9


def parse_options(
    sync_timestamp: float | None,
    aggregate: str | None,
    columns: Sequence[str] | None,
    order: str | None,
    limit: int | None,
) -> tuple[float | None, Selection | None]:
    """Return the time from which a continuous read delivers existing records, and its selection.

    Raise ParameterError for options of :meth:`Client.read` that do not go together.
    """
    selection = Selection.parse(columns, order, limit)
    if order is not None and limit is None:
        raise ParameterError(
            "An order without a limit has no meaning in a continuous read: changes come one by one.",
            where="order",
            found=brief(order),
            expected="a limit beside it",
            remedy="add limit=20, or sort the records where they are shown",
        )
    if limit is not None:
        if sync_timestamp not in (None, 0):
            raise unusable("sync_timestamp", sync_timestamp, "0 or None: a window is of all records")
        sync_timestamp = 0
    if aggregate is not None and sync_timestamp not in (None, 0):
        raise unusable("sync_timestamp", sync_timestamp, "0 or None: aggregates are of all records")
    if sync_timestamp is not None:
        number("sync_timestamp", sync_timestamp, -1e12, 1e12)
    if aggregate is not None and selection is not None:
        raise selected_aggregates_error()
    return sync_timestamp, selection


@check_arguments
class ContinuousRead(int):
    """Continuous read of a client; as a number it is its durable handle, which outlives the application.

    It is the result of the operation that :meth:`Client.read` with ``"continuous"`` or :meth:`Client.listen`
    returns, and the ``handle`` of what :meth:`Client.continuous_reads` lists.

    Parameters
    ----------
    handle : int
    client : Client
        That of its app.

    Examples
    --------
    >>> import asyncio
    >>> from mudkit import Lab
    >>> from mudkit.systems.mud import Client, Cloud
    >>> lab = Lab(seed=7)
    >>> token = lab.token(user="jane", app="news")
    >>> jane = Client(lab.device("jane-phone"), Cloud(lab), app="news", token=token)
    >>> jane.create("news").result()
    >>> news = jane.read("news", "topic = 'arts'", "continuous").result()
    >>> written = jane.write("news", "a17", {"topic": "arts"})
    >>> async def follow():
    ...     async for change in news.changes(minutes=1):
    ...         marks = ["new"] * change.is_new + ["pending"] * change.is_pending
    ...         print(change.kind, change.key, change.version, *marks)
    >>> asyncio.run(follow())
    upsert a17 None new pending
    upsert a17 1
    >>> news.snapshot().records
    {'a17': {'topic': 'arts'}}
    """

    client: Client

    @check_arguments(types=False)
    def __new__(cls, handle: Annotated[int, Range(0, 1 << 62)], client: Client) -> ContinuousRead:
        """Return the read of a handle."""
        read = super().__new__(cls, handle)
        read.client = client
        return read

    def __repr__(self) -> str:
        return f"ContinuousRead({self})"

    def __str__(self) -> str:
        return int.__repr__(self)

    @property
    def synced(self) -> bool:
        """True if the existing records that it asked for have been delivered.

        See :meth:`~mudkit.systems.mud.device.continuous_reads.ContinuousReads.is_synced`.

        Raises
        ------
        ParameterError
            It has ended.
        OperationLost
            The device does not run.
        """
        return self._reads().is_synced(int(self))

    def snapshot(self) -> ReadResult:
        """Return the records that it has now: those of which the application was notified, or is to be.

        See :meth:`~mudkit.systems.mud.device.continuous_reads.ContinuousReads.snapshot`. It needs no network
        and no time, so that a callback can draw a screen by it.

        Returns
        -------
        ReadResult
            ``versions`` is None for a record that own writes have made and the store has not decided;
            ``is_complete`` is :attr:`synced`. Of a read of aggregates, their values.

        Raises
        ------
        ParameterError
            It has ended.
        OperationLost
            The device does not run.
        """
        return self._reads().snapshot(self.client.installed.now_us, int(self))

    def update_data(self, data: Fields) -> Operation:
        """Replace the reader's data; see :meth:`Client.update_data`."""
        return self.client.update_data(self, data)

    def cancel(self) -> Operation:
        """End it; see :meth:`Client.unregister`. An iteration ends, too."""
        return self.client.unregister(self)

    def __aiter__(self) -> AsyncIterator[Change | Fields]:
        return self.changes()

    def changes(
        self, *, minutes: Annotated[float, Range(0, _MAX_MINUTES)] = _DEFAULT_MINUTES
    ) -> AsyncIterator[Change | Fields]:
        """Iterate over its records and then over each change, in virtual time.

        Handled by :meth:`~mudkit.systems.mud.device.continuous_reads.ContinuousReads.listen`.

        It begins with an upsert of each record that the read has, or with the values of its aggregates, so
        that nothing is missed whenever it begins. It takes the place of a callback. Virtual time runs while
        there is no change. Of the changes that come between two steps, ``max_waiting`` of the client wait in
        the application; more wait on the device as for an application that is away (:meth:`Client.listen`).

        Parameters
        ----------
        minutes : float
            Virtual time from now after which it ends, by default that of ``result()``.

        Returns
        -------
        async iterator
            Of each :class:`Change`, or mapping with the values of the aggregates. It raises
            :class:`~mudkit.errors.TableProblem` with the reason when the cloud ends the read,
            :class:`~mudkit.errors.ParameterError` for a read that has ended before, and
            :class:`~mudkit.errors.ReentrantRun` inside a callback.
        """
        return self._iterate(self.client.installed.now_us + round(minutes * 60e6))

    async def _iterate(self, deadline_us: int) -> AsyncIterator[Change | Fields]:
        """Yield its records, and its changes until a deadline."""
        installed, handle = self.client.installed, int(self)
        listener = listener_of(handle)
        arrived: deque[Change | Fields] = deque()
        is_listening = True

        def take(change: Change | Fields) -> None:
            nonlocal is_listening
            arrived.append(change)
            if len(arrived) >= self.client.max_waiting and is_listening:
                is_listening = False
                installed.forget_listener(listener)

        def has_news() -> bool:
            return bool(arrived) or not self._is_on()

        # What is on its way to a former callback arrives there.
        await self._wait(lambda: False, installed.now_us + 1)
        installed.listen(listener, take, is_only=True)
        try:
            first = await self._run(installed.call(Listen(handle, is_afresh=True)))
            for change in _changes_of(first):
                yield change
            while True:
                if not arrived and not is_listening and self._is_on():
                    is_listening = True
                    installed.listen(listener, take, is_only=True)
                    await self._run(installed.call(Listen(handle)))
                await self._wait(has_news, deadline_us)
                if not arrived and not self._is_on():  # the reason is on its way in this moment
                    await self._wait(lambda: bool(arrived), installed.now_us + 1)
                if not arrived:
                    return
                change = arrived.popleft()
                if not isinstance(change, Change) and "ended" in change:
                    raise TableProblem(
                        "The cloud has ended this continuous read.",
                        where=f"continuous read {handle}",
                        found=str(change["ended"]),
                        expected="changes",
                        remedy="begin another one",
                    )
                yield change
        finally:
            if is_listening:
                installed.forget_listener(listener)

    async def _run(self, operation: Operation) -> ReadResult | None:
        """Return the result of an operation that the device completes at once."""
        await self._wait(operation.done, self.client.installed.now_us + 1)
        result: ReadResult | None = operation.result()
        return result

    async def _wait(self, is_done: Callable[[], bool], deadline_us: int) -> None:
        """Run virtual time; raise ReentrantRun in words that concern an iteration."""
        try:
            await self.client.installed.run_until(is_done, deadline_us)
        except ReentrantRun as error:
            raise ReentrantRun(
                "Virtual time is running already.",
                found="an iteration over a continuous read inside a callback",
                expected="an iteration outside of events and callbacks",
                remedy="give the read a callback, or look at snapshot()",
            ) from error

    def _is_on(self) -> bool:
        """Return whether the read has not ended, as far as known: True while the device does not run."""
        machine = self.client.installed.machine
        return machine is None or machine.continuous_reads.has_read(int(self))

    def _reads(self) -> ContinuousReads:
        """Return the continuous reads of the running machine; raise OperationLost if it does not run."""
        machine = self.client.installed.machine
        if machine is None:
            raise OperationLost(
                "The device does not run.",
                where=self.client.device.name,
                found=self.client.installed.state,
                expected="a running device",
                remedy="restart it",
            )
        reads: ContinuousReads = machine.continuous_reads
        return reads


def _changes_of(result: ReadResult | None) -> list[Change | Fields]:
    """Return what a read has, records or aggregates, as the changes that bring it; None: no changes."""
    if result is None:
        return []
    if result.aggregates is not None:
        return [result.aggregates] if result.aggregates else []
    records, versions = result.records, result.versions
    return [
        Change("upsert", key, records[key], version, is_new=True, is_pending=version is None)
        for key, version in versions.items()
    ]
