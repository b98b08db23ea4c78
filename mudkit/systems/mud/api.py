"""MUD tables as a notebook uses them: the client of an app on a device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Final, Literal, TypeAlias

from mudkit.checks import Range, check_arguments, unusable
from mudkit.errors import AccessDenied, ParameterError, brief
from mudkit.events import Host, Installed, Operation
from mudkit.predicates import Predicate
from mudkit.predicates.exchange import to_json
from mudkit.systems.displays import OnHost
from mudkit.systems.mud.continuous_read import ContinuousRead, parse_options
from mudkit.systems.mud.device.client import ClientMachine, Settings
from mudkit.systems.mud.device.new_writes import WriteType
from mudkit.systems.mud.device.policy_slot import ShippedPolicy
from mudkit.systems.mud.device.read_notices import listener_of
from mudkit.systems.mud.messages.parts import PORT
from mudkit.systems.mud.operations import (
    Alter,
    AwaitSynced,
    CommitBatch,
    Create,
    Delete,
    Drop,
    Listen,
    ListHeld,
    ListPending,
    ListPolicies,
    ListReads,
    Offline,
    Read,
    Register,
    Renew,
    Unregister,
    Update,
    UpdateData,
    Write,
)
from mudkit.systems.mud.policies.policies import PrefetchPolicy, ReadPolicy, WritePolicy
from mudkit.systems.mud.policies.utility import Utility
from mudkit.systems.mud.result import Change
from mudkit.systems.mud.servers.cloud import NAME, Cloud
from mudkit.systems.mud.tables.changes import Changes, add_of, merge_of, remove_of, union_of
from mudkit.systems.mud.tables.records import check_record
from mudkit.systems.mud.tables.selection import Selection
from mudkit.systems.mud.tables.table import Level
from mudkit.systems.mud.tables.write_rules import rule
from mudkit.systems.mud.write_batch import (
    Items,
    RecordFields,
    WriteBatch,
    WriteVersion,
    build_write,
    parse_predicate,
)
from mudkit.tokens import Authority
from mudkit.wire import Fields, Value

_MAX_NAME: Final = 400
"""Characters of the names of a device and an app together: messages are named after them."""
ReadType: TypeAlias = Literal["uncommitted", "committed", "committed_wio", "continuous"]


@check_arguments
class Client(OnHost):
    """One app's client on a device (Mobius 3.1, table 2).

    It is attached to the service of the device, which the clients of all its apps share: one connection,
    session and heartbeat, one message for writes that leave together, and one budget of the local store. What
    one app stores, another one does not see.

    Every call returns an :class:`~mudkit.events.Operation`. Malformed arguments are refused at once, before
    anything is queued: for instance a predicate that cannot be parsed, or a record that is too large.

    Parameters
    ----------
    device : Host
    cloud : Cloud
    app : str
    token : str, optional
        A token from ``lab.token(…)``; without one only public tables are open.
    max_rows : int
        Maximum number of committed records on the device. The apps of a device share its store, whose budget
        is the largest of theirs; an app that holds more than its share of it evicts its own records first.
    read_policy, write_policy : optional
        Which reads are answered locally, and when writes are sent; by default the utility of each decides.
        :class:`~mudkit.systems.mud.device.policy_slot.ShippedPolicy` follows the policies that the cloud
        ships.
    prefetch_policy : optional
        Which answers are fetched in advance, also a ``ShippedPolicy``; None: none.
    max_waiting : int
        Maximum number of changes of a continuous read that wait on the device for a callback (see
        :meth:`listen`), and in the application for the next step of an iteration.
    reports_usage : bool
        Whether the user consents to reports of what the app reads and writes (table, time, place, what
        answered it; of a read that is repeated, and has no area, its predicate), from which the cloud learns
        policies. They go only to a cloud with a ``learner``.
    cell_km : float
        Size of the cells to whose middles the places in reports are rounded, in km.

    Raises
    ------
    ParameterError
        The device, the cloud or the name of the app is not usable, or the token is of another app. The cloud
        refuses a token that is of another lab, changed or expired.

    Attributes
    ----------
    device : Host
    max_waiting : int

    Examples
    --------
    >>> from mudkit import Lab
    >>> from mudkit.systems.mud import Cloud
    >>> lab = Lab(seed=7)
    >>> cloud = Cloud(lab)
    >>> jane = Client(lab.device("jane-phone"), cloud, app="news", token=lab.token(user="jane", app="news"))
    >>> jane.create("news", acl="app", split=["g", "p"]).result()
    >>> jane.write("news", "a17", {"topic": "arts"}).result()
    1
    >>> jane.read("news", "topic = 'arts'").result().records
    {'a17': {'topic': 'arts'}}
    """

    def __init__(
        self,
        device: Host,
        cloud: Cloud,
        *,
        app: str,
        token: str | None = None,
        max_rows: Annotated[int, Range(1, 1 << 31)] = 10_000,
        read_policy: ReadPolicy | ShippedPolicy[ReadPolicy] | None = None,
        write_policy: WritePolicy | ShippedPolicy[WritePolicy] | None = None,
        prefetch_policy: PrefetchPolicy | ShippedPolicy[PrefetchPolicy] | None = None,
        max_waiting: Annotated[int, Range(1, 1 << 31)] = 1000,
        reports_usage: bool = False,
        cell_km: Annotated[float, Range(1e-3, 1e4)] = 1.0,
    ) -> None:
        _check_app(app, token, device.name, cloud.authority)
        settings = Settings(
            device.name,
            app,
            token,
            max_rows,
            read_policy,
            write_policy,
            prefetch_policy,
            max_waiting,
            cloud.keep_deleted_us,
            cell_km if reports_usage and cloud.learns else None,
        )
        policies = (read_policy, write_policy, prefetch_policy, settings.usage_cell_km)
        self.installed: Installed = device.install(
            NAME,
            lambda ports: ClientMachine(ports, settings),
            name=f"{PORT}-{app}",
            watch=("loc",) if any(policy is not None for policy in policies) else (),
        )
        cloud.serve(device, app)
        self.device = device
        self.max_waiting = max_waiting
        self._app = app
        self._authority = cloud.authority
        self._begun = 0

    def _own_facts(self) -> dict[str, Value]:
        """Return what a display shows of the client itself: its device and app."""
        return {"device": self.device.name, "app": self._app}

    # -- tables

    def create(
        self,
        table: str,
        *,
        acl: Level = "app",
        apps: Sequence[str] | None = None,
        split: Sequence[str] = (),
        schema: Mapping[str, str] | None = None,
        writer_predicates: bool = True,
        write_rule: str | Predicate | None = None,
        where: Literal["cloud", "device"] = "cloud",
    ) -> Operation:
        """Create a table.

        Handled by :meth:`~mudkit.systems.mud.device.connection.Connection.send_request`,
        one on the device by :meth:`~mudkit.systems.mud.device.own_tables.OwnTables.create`.

        Parameters
        ----------
        table : str
        acl : {'public', 'app', 'user'}
            Who has access: everyone, apps with a token, or users with a token.
        apps : sequence of str, optional
            The only apps with access.
        split : sequence of str
            First keys of all partitions but the first.
        schema : mapping of str to str, optional
            ``text``, ``number``, ``boolean``, ``point`` or ``any``, by column.
        writer_predicates : bool
            Whether writes may have a predicate over the data of readers. Without, an answer on a device
            serves readers with other data, too, for instance those of another place.
        write_rule : str or Predicate, optional
            Who may write and delete: a condition over ``old``, ``new`` and ``auth``, such as ``old IS NULL OR
            auth.user = old.owner``; :func:`~mudkit.systems.mud.tables.write_rules.rule` gives it parameters.
            TRUE admits; FALSE, NULL and an error refuse. By default all whom the ACL admits may write and
            delete every record, also one that is hidden from them.
        where : {'cloud', 'device'}
            A table on the device is for this app alone, has no partitions, works without a network, and costs
            no message. A ``lookup`` joins it with tables of the cloud.

        Returns
        -------
        Operation
            Its result raises :class:`~mudkit.errors.ParameterError` for an unusable property,
            :class:`~mudkit.errors.AccessDenied` without a token of the app, and
            :class:`~mudkit.errors.TableProblem` if the table exists.

        Raises
        ------
        PredicateError
            The write rule cannot be parsed, or names what it cannot see.
        """
        properties: dict[str, Value] = {"acl": acl, "apps": apps, "split": split, "schema": schema}
        if not writer_predicates:
            properties["writer_predicates"] = False
        if write_rule is not None:
            properties["write_rule"] = to_json(rule(write_rule))
        return self.installed.call(Create(table, properties, where))

    def alter(
        self,
        table: str,
        *,
        acl: Level | None = None,
        add: Mapping[str, str] | None = None,
        remove: Sequence[str] = (),
    ) -> Operation:
        """Change a table's level, and add or remove columns; only the app that created it may.

        Handled by :meth:`~mudkit.systems.mud.device.connection.Connection.send_request`.

        Parameters
        ----------
        table : str
        acl : {'public', 'app', 'user'}, optional
        add : mapping of str to str, optional
            Types of new columns.
        remove : sequence of str
            Columns whose values are discarded.
        """
        properties = {"acl": acl, "add": add, "remove": remove}
        return self.installed.call(Alter(table, properties))

    def drop(self, table: str) -> Operation:
        """Delete a table with all its records; only the app that created it may.

        Handled by :meth:`~mudkit.systems.mud.device.connection.Connection.send_request`.
        """
        return self.installed.call(Drop(table))

    # -- records

    def write(
        self,
        table: str,
        key: str | None,
        record: RecordFields,
        type: WriteType = "blind",  # noqa: A002 - the name of the API
        predicate: str | Predicate | None = None,
        utility: Utility | None = None,
        data: Fields | None = None,
        callback: Callable[[Operation], None] | None = None,
        may_write: str | Predicate | None = None,
        version: WriteVersion = None,
    ) -> Operation:
        """Write a record as a whole.

        Handled by :meth:`~mudkit.systems.mud.device.write_path.WritePath.write`, for a table on the device by
        :meth:`~mudkit.systems.mud.device.own_tables.OwnTables.write`.

        When the call returns, the record is in the local store (in a callback: when the callback returns).
        The operation is completed when the cloud has answered.

        Parameters
        ----------
        table : str
        key : str or None
            None: a new unique key.
        record : mapping
            Its columns: JSON values, at most 64 KiB.
        type : {'blind', 'conditional'}
            A conditional write succeeds only if the store has the version that this device has.
        predicate : str or Predicate, optional
            Which readers see it; by default all that have access to the table. If it uses ``lookup`` (see
            :meth:`read`), only the cloud can evaluate it: a device shows the record only in answers of the
            cloud, and not while it is pending.
        utility : optional
            Weighs what readers lose by a delay against a share of a wake-up of the radio, or is input of the
            write policy; None: the write is sent at once, unless a policy delays it.
        data : mapping, optional
            The writer's own data as a reader: a conflict shows only records that are visible to it.
        callback : callable, optional
            Called with the completed operation.
        may_write : str or Predicate, optional
            Who may write and delete the record afterwards, beside the table's ``write_rule``: a condition as
            there, which only those whom it admits can change. None: as before. Writes that waited on a device
            and became one are judged as one by the rule that the store has.
        version : int, optional
            The version that a conditional write replaces: one that a read, a change or an operation returned,
            or 0 for no record. None: the one that this device has, its own pending one included.

        Returns
        -------
        Operation
            Its result is the version that the store assigned. It raises
            :class:`~mudkit.errors.ParameterError` for an unusable key or record,
            :class:`~mudkit.errors.AccessDenied`, :class:`~mudkit.errors.TableProblem`, and :class:`Conflict`
            for a conditional write.

        Raises
        ------
        ParameterError
            The record is no mapping, or the type is unknown.
        PredicateError
            The predicate cannot be parsed.
        """
        columns = dict(record)
        write = build_write(Write, table, key, columns, type, predicate, utility, data, may_write, version)
        return self._submit(write, callback)

    def delete(
        self,
        table: str,
        key: str,
        type: WriteType = "blind",  # noqa: A002 - the name of the API
        utility: Utility | None = None,
        data: Fields | None = None,
        callback: Callable[[Operation], None] | None = None,
        version: WriteVersion = None,
    ) -> Operation:
        """Delete a record; see :meth:`write`.

        Handled by :meth:`~mudkit.systems.mud.device.write_path.WritePath.write`.
        """
        return self._submit(
            build_write(Delete, table, key, None, type, None, utility, data, version=version), callback
        )

    def update(
        self,
        table: str,
        key: str,
        columns: RecordFields,
        *,
        create: bool = False,
        utility: Utility | None = None,
        data: Fields | None = None,
        callback: Callable[[Operation], None] | None = None,
    ) -> Operation:
        """Merge columns into a record; its other columns, its predicate and its rule stay as they are.

        Handled by :meth:`~mudkit.systems.mud.device.write_path.WritePath.write`.

        The store applies the change to the record that it has then, once however often it was sent: there is
        no conflict. The device shows it at once in ``uncommitted`` reads, applied to the record that it has.
        Changes of a record that were never sent become one.

        Parameters
        ----------
        table, key : str
        columns : mapping
            New values of some columns, as in :meth:`write`.
        create : bool
            Whether a record that does not exist, or was deleted, is created from the change. Without, the
            change of such a record is refused, as that of one that its writer hides.
        utility, callback : optional
            As in :meth:`write`.
        data : mapping, optional
            The writer's own data as a reader: only a record that is visible to it can be changed.

        Returns
        -------
        Operation
            Its result is the version that the store assigned. It raises
            :class:`~mudkit.errors.TableProblem` if there is no such record or table,
            :class:`~mudkit.errors.ParameterError` for a value that does not fit the change or the schema, and
            :class:`~mudkit.errors.AccessDenied`.

        Raises
        ------
        ParameterError
            The columns are not usable, or no column is given.
        """
        return self._submit_changes(table, key, merge_of(columns, create=create), utility, data, callback)

    def increment(
        self,
        table: str,
        key: str,
        column: str,
        by: float = 1,
        *,
        create: bool = False,
        utility: Utility | None = None,
        data: Fields | None = None,
        callback: Callable[[Operation], None] | None = None,
    ) -> Operation:
        """Add to a number of a record; see :meth:`update`. NULL counts as 0.

        Handled by :meth:`~mudkit.systems.mud.device.write_path.WritePath.write`.

        Increments commute: their sum does not depend on their order, exactly for whole numbers.

        Parameters
        ----------
        table, key, column : str
        by : int or float
            A number, which may be negative.
        create, utility, data, callback : optional
            As in :meth:`update`.
        """
        return self._submit_changes(table, key, add_of(column, by, create=create), utility, data, callback)

    def union(
        self,
        table: str,
        key: str,
        column: str,
        items: Items,
        *,
        create: bool = False,
        utility: Utility | None = None,
        data: Fields | None = None,
        callback: Callable[[Operation], None] | None = None,
    ) -> Operation:
        """Add the items that a list of a record lacks, at its end; see :meth:`update`. NULL counts as empty.

        Handled by :meth:`~mudkit.systems.mud.device.write_path.WritePath.write`.

        Parameters
        ----------
        table, key, column : str
        items : sequence
            JSON values; two are the same if their JSON is.
        create, utility, data, callback : optional
            As in :meth:`update`.
        """
        return self._submit_changes(
            table, key, union_of(column, items, create=create), utility, data, callback
        )

    def remove(
        self,
        table: str,
        key: str,
        column: str,
        items: Items,
        *,
        create: bool = False,
        utility: Utility | None = None,
        data: Fields | None = None,
        callback: Callable[[Operation], None] | None = None,
    ) -> Operation:
        """Remove items from a list of a record; see :meth:`union`. One that it lacks changes nothing.

        Handled by :meth:`~mudkit.systems.mud.device.write_path.WritePath.write`.
        """
        return self._submit_changes(
            table, key, remove_of(column, items, create=create), utility, data, callback
        )

    def batch(self, table: str, *, utility: Utility | None = None, data: Fields | None = None) -> WriteBatch:
        """Begin a batch: writes of records of one partition that are committed together, all or none.

        Handled by :meth:`~mudkit.systems.mud.device.write_path.WritePath.write_batch`, at its commit.

        Parameters
        ----------
        table : str
        utility, data : optional
            As in :meth:`write`, for all parts.

        Returns
        -------
        WriteBatch
            It collects the writes; nothing is stored or sent before its ``commit``.
        """
        return WriteBatch(table, utility, data, partial(self._commit_batch, table))

    def _commit_batch(self, table: str, parts: Sequence[Write]) -> Operation:
        """Call the commit of a batch on the machine."""
        return self.installed.call(CommitBatch(table, parts))

    def read(
        self,
        table: str,
        predicate: str | Predicate | None = None,
        type: ReadType = "committed",  # noqa: A002 - the name of the API
        data: Fields | None = None,
        utility: Utility | None = None,
        sync_timestamp: float | None = None,
        callback: Callable[[Operation], None] | Callable[[Change | Fields], None] | None = None,
        *,
        latest: bool = False,
        aggregate: str | None = None,
        offline: Offline = "answer",
        columns: Sequence[str] | None = None,
        order: str | None = None,
        limit: Annotated[int, Range(1, 1 << 31)] | None = None,
    ) -> Operation:
        """Read the records that match a predicate and are visible to the reader.

        Handled by :meth:`~mudkit.systems.mud.device.read_path.ReadPath.read`,
        a continuous read by :meth:`~mudkit.systems.mud.device.continuous_reads.ContinuousReads.register`.

        Parameters
        ----------
        table : str
        predicate : str or Predicate, optional
            The condition over the record's columns and its ``key``; by default all. ``lookup('members',
            author, 'city')`` is a column of the record of another table with this primary key, NULL if no
            such record is visible to this reader. Such a read always asks the cloud, and a continuous one
            uses the values at the time of a write.
        type : {'uncommitted', 'committed', 'committed_wio', 'continuous'}
        data : mapping, optional
            The reader's data, ``receiver.…`` in writers' predicates.
        utility : Utility, optional
            Worth and costs of an answer; by default no local answer counts as fresh. Not for a continuous
            read.
        sync_timestamp : float, optional
            Commit time in seconds of the lab from which a continuous read also delivers existing records;
            None: none of them. One with ``limit`` delivers them in any case.
        callback : callable, optional
            Called with the completed operation. For a continuous read: called with each :class:`Change`, and
            with ``{"ended": reason}`` when the cloud ends it, because its token expires, the table is closed
            or dropped, or its predicate fails on a record. It is called with matching writes of this client
            at once, with ``is_pending``; another change of the record follows when the store has decided.
            Aggregates and windows have no pending writes, because only the cloud knows what becomes of them.
        latest : bool
            Read the store's latest versions, as a continuous read always does.
        aggregate : str, optional
            Aggregates to return instead of records, for instance ``"count(*), avg(speed)"``. The callback of
            a continuous read gets a mapping with their values, which the cloud computes, whenever they
            change, and with ``sync_timestamp=0`` also at its beginning.
        offline : {'answer', 'wait', 'fail'}
            What to do without a network, at the call or a second after it was lost while waiting for the
            cloud: answer with what the device holds, with its age and whether records may be missing; wait
            for a network; or fail. What
            only the cloud can answer waits also with ``'answer'``: aggregates, a ``lookup``, ``latest``, a
            token that was never verified, and ``committed_wio`` after pending writes. Not for a continuous
            read.
        columns : sequence of str, optional
            The only columns to return, so that a device does not load wide records for one field. Such a read
            is not held on the device, and not in the history of reads.
        order : str, optional
            A column, with ``ASC`` or ``DESC``; by default the key. Records without it come last. Not for a
            continuous read without ``limit``.
        limit : int, optional
            Maximum number of records, the first ones in this order. A continuous read is a window then: its
            callback gets the first records that there are, an upsert of each that comes among them, and a
            ``remove`` of each that leaves them. One that leaves pulls in the next. New reader data
            (:meth:`update_data`) changes the window at once.

        Returns
        -------
        Operation
            Its result is a :class:`ReadResult`, or a :class:`ContinuousRead`, which is its handle and can be
            iterated over. It raises
            :class:`~mudkit.errors.ParameterError` for an unusable aggregate,
            :class:`~mudkit.errors.AccessDenied` and :class:`~mudkit.errors.TableProblem`, also for a table of
            a ``lookup``, :class:`~mudkit.errors.PredicateError` for a function that fails, and
            :class:`~mudkit.errors.NoNetwork` with ``offline='fail'``.

        Raises
        ------
        ParameterError
            The reader's data is no mapping, ``columns`` or ``order`` is not usable, or a continuous read has
            an option that is not for it, such as aggregates or a limit with another ``sync_timestamp`` than
            0, or an order without a limit.
        PredicateError
            The predicate cannot be parsed, or a ``lookup`` does not name its table by a constant.
        """
        parsed = None if predicate is None else parse_predicate(predicate)
        reader = {} if data is None else check_record(data, ())
        if type == "continuous":
            _refuse_option("utility", utility)
            _refuse_option("offline", None if offline == "answer" else offline)
            since, selection = parse_options(sync_timestamp, aggregate, columns, order, limit)
            listener = ""
            if callback is not None:
                self._begun += 1
                listener = f"handle of continuous read {self._begun} of this run"
                self.installed.listen(listener, partial(self._receive_handle, listener, callback))
            condition = Predicate("TRUE") if parsed is None else parsed
            registered = self.installed.call(
                Register(table, condition, reader, since, listener, aggregate=aggregate, selection=selection)
            )
            return registered.with_result(partial(ContinuousRead, client=self))
        operation = self.installed.call(
            Read(
                table, parsed, type, reader, utility, bool(latest), aggregate, offline,
                Selection.parse(columns, order, limit),
            )
        )  # fmt: skip
        if callback is not None:
            operation.add_done_callback(callback)
        return operation

    def continuous_reads(self) -> Operation:
        """List the continuous reads of this app on this device, also those of an earlier run of the app.

        Handled by :meth:`~mudkit.systems.mud.device.continuous_reads.ContinuousReads.describe`.

        A continuous read ends with :meth:`unregister` or when the cloud ends it, not with the app: one that
        is started again finds its reads here, and gives each its callback by :meth:`listen`.

        Returns
        -------
        Operation
            Its result is a list of dicts. ``handle`` (a :class:`ContinuousRead`), ``table``, ``predicate``
            (its text) with its ``constants``, ``data``, ``aggregate``, ``columns``, ``order`` and ``limit``
            are those of the read. ``synced``: all records that existed before have been received.
            ``waiting`` is the number of notifications that wait for a callback, ``paused`` is True if there
            are too many, and ``ended`` the reason for which the cloud has ended the read, while its callback
            was not called with it; None: it has not ended.
        """
        return self.installed.call(ListReads()).with_result(self._list_reads)

    def listen(
        self, handle: Annotated[int, Range(0, 1 << 62)], callback: Callable[[Change | Fields], None]
    ) -> Operation:
        """Register the callback of a continuous read, in place of an earlier one.

        Handled by :meth:`~mudkit.systems.mud.device.continuous_reads.ContinuousReads.listen`.

        While a read has no callback because the app was started again, its notifications wait on the device,
        over restarts, too; the callback gets them now, in order. If more than ``max_waiting`` of the client
        came, the read was paused, and is registered again from its position: of a record that has changed
        several times since, the callback gets the last version. A read that was begun without a callback
        keeps nothing for one: it gets what comes from now on.

        Parameters
        ----------
        handle : int
            As in :meth:`continuous_reads`.
        callback : callable
            As in :meth:`read`.

        Returns
        -------
        Operation
            Its result is the :class:`ContinuousRead`. It raises :class:`~mudkit.errors.ParameterError` if the
            read has ended, or is of another app.
        """
        self._register_callback(callback, handle)
        return self.installed.call(Listen(handle)).with_result(lambda _: ContinuousRead(handle, self))

    def await_synced(self, handle: Annotated[int, Range(0, 1 << 62)]) -> Operation:
        """Wait until a continuous read has delivered the existing records that it asked for.

        Handled by :meth:`~mudkit.systems.mud.device.continuous_reads.ContinuousReads.await_synced`.

        An application draws its first screen then. The callback of the read has been called with them before.
        They are what was committed before the call, at least: while the back end is down, records that are
        known are delivered, but only the back end knows whether they are all.

        Parameters
        ----------
        handle : int
            Result of the read's operation.

        Returns
        -------
        Operation
            Completed at once if they were delivered before, also in an earlier run of the app. Its result
            raises :class:`~mudkit.errors.ParameterError` if the read has ended, or is of another app.
        """
        return self.installed.call(AwaitSynced(handle))

    def _list_reads(self, listed: Sequence[dict[str, Value]]) -> list[dict[str, Value]]:
        """Return the descriptions of continuous reads, each with the read that its handle stands for."""
        return [
            {**read, "handle": ContinuousRead(handle, self)}
            for read in listed
            if isinstance(handle := read["handle"], int)
        ]

    def _receive_handle(
        self,
        listener: str,
        callback: Callable[[Operation], None] | Callable[[Change | Fields], None],
        handle: int,
    ) -> None:
        """Register the callback of a continuous read under its durable name, now that its handle is known."""
        self.installed.forget_listener(listener)
        self._register_callback(callback, handle)

    def _register_callback(
        self, callback: Callable[[Operation], None] | Callable[[Change | Fields], None], handle: int
    ) -> None:
        """Register the callback of a continuous read, in place of an earlier one."""
        self.installed.listen(listener_of(handle), callback, is_only=True)

    def update_data(self, handle: Annotated[int, Range(0, 1 << 62)], data: Fields) -> Operation:
        """Replace the reader's data of a continuous read, for records that are written later.

        A read with a limit shows at once what the reader may see with them.

        Handled by :meth:`~mudkit.systems.mud.device.continuous_reads.ContinuousReads.update_data`.

        Parameters
        ----------
        handle : int
        data : mapping
        """
        return self.installed.call(UpdateData(handle, check_record(data or {}, ())))

    def unregister(self, handle: Annotated[int, Range(0, 1 << 62)]) -> Operation:
        """End a continuous read.

        Handled by :meth:`~mudkit.systems.mud.device.continuous_reads.ContinuousReads.unregister`.

        Parameters
        ----------
        handle : int
            Result of the read's operation.
        """
        return self.installed.call(Unregister(handle))

    def renew(self, token: str) -> Operation:
        """Use another token, also after a restart, and send the writes that wait for one.

        Handled by :meth:`~mudkit.systems.mud.device.client.ClientMachine._renew`.

        A write whose token has expired before it was sent is not lost: :meth:`pending` lists it as held until
        there is a valid token.

        Parameters
        ----------
        token : str
            A token of the same app and user.

        Returns
        -------
        Operation
            Completed when the device has stored it. Its result raises :class:`~mudkit.errors.ParameterError`
            for a token of another app or user, and :class:`~mudkit.errors.AccessDenied` for one that has
            expired or is for another device.

        Raises
        ------
        AccessDenied
            It is no token of this lab.
        """
        self._authority.decode(token)
        return self.installed.call(Renew(token))

    def policies(self) -> Operation:
        """Return the shipped policies in use, by kind: version, digest, and the reasons of refusals.

        Handled by :meth:`~mudkit.systems.mud.device.policy_slot.PolicySlot.describe`.
        """
        return self.installed.call(ListPolicies())

    def pending(self) -> Operation:
        """List the writes that the cloud has not answered.

        Handled by :meth:`~mudkit.systems.mud.device.write_path.WritePath.pending`.

        ``held`` is the reason for which one is not sent: ``'token'`` if its token has expired (see
        :meth:`renew`), ``'policy'`` if the write policy keeps it until a read needs it, else None.
        """
        return self.installed.call(ListPending())

    def holdings(self, table: str, data: Fields | None = None) -> Operation:
        """List the versions of a table's records on the device, also hidden ones, without asking the cloud.

        Handled by :meth:`~mudkit.systems.mud.device.local.Local.holdings`.

        Parameters
        ----------
        table : str
        data : mapping, optional
            The data of a reader, whose visibility is evaluated.

        Returns
        -------
        Operation
            Its result is a list of dicts with ``key, version, record, predicate, type, visible, age_s``.
            ``version`` is None for pending writes, ``record`` for deletions, ``visible`` if only the cloud
            can evaluate it.
        """
        return self.installed.call(ListHeld(table, check_record(data or {}, ())))

    def _submit_changes(
        self, table: str, key: str, changes: Changes, utility: Utility | None, data: Fields | None,
        callback: Callable[[Operation], None] | None,
    ) -> Operation:  # fmt: skip
        """Call changes of a record on the machine."""
        return self._submit(
            build_write(Update, table, key, None, "blind", None, utility, data, changes=changes), callback
        )

    def _submit(self, write: Write, callback: Callable[[Operation], None] | None) -> Operation:
        """Call a write, a delete or a change on the machine: the common part of their methods."""
        called = self.installed.call(write)
        if callback is not None:
            called.add_done_callback(callback)
        return called


def _check_app(app: Value, token: str | None, device: str, authority: Authority) -> None:
    """Raise ParameterError for an unusable name of an app, or a token of another one.

    A token that cannot be read is left to the cloud, which returns the reason.
    """
    if not isinstance(app, str) or not app or "/" in app or "\n" in app:
        raise unusable("app", app, "a text without '/'")
    if len(f"{device}/{app}") > _MAX_NAME:
        raise ParameterError(
            "The names of the device and of the app are too long.",
            where="app",
            found=brief(app, 120),
            expected=f"at most {_MAX_NAME} characters together",
        )
    if token is None:
        return
    try:
        proven = authority.decode(token).app
    except AccessDenied:
        if not isinstance(token, str):
            raise  # the cloud accepts no message with such a token
        return
    if proven != app:
        raise ParameterError(
            "The token is of another app.",
            where="token",
            found=f"app {proven!r}",
            expected=f"app {app!r}",
            remedy=f"use one for this app: lab.token(user=…, app={app!r})",
        )


def _refuse_option(name: str, value: Utility | Sequence[str] | str | int | None) -> None:
    """Raise ParameterError if an option is given (not None): a continuous read does not have it."""
    if value is not None:
        raise ParameterError(
            f"A continuous read has no {name}.",
            where=name,
            found=brief(value),
            expected="None",
            remedy="leave it out, or read with another type",
        )
