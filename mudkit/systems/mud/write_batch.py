"""Writes of several records that are committed together, as an application collects them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Annotated, TypeAlias

from mudkit.checks import Range, check_arguments
from mudkit.errors import ParameterError
from mudkit.events import Operation
from mudkit.predicates import Predicate
from mudkit.systems.mud.device.new_writes import WriteType
from mudkit.systems.mud.operations import Delete, Update, Write
from mudkit.systems.mud.policies.utility import Utility
from mudkit.systems.mud.tables.changes import Changes, add_of, merge_of, remove_of, union_of
from mudkit.systems.mud.tables.queries import tables_of
from mudkit.systems.mud.tables.records import check_record
from mudkit.systems.mud.tables.write_rules import rule
from mudkit.wire import Fields, Value

Items: TypeAlias = Annotated[Sequence[Value], 'a list of values, such as ["a"]']
RecordFields: TypeAlias = Annotated[Fields, 'a mapping of columns to values, such as {"topic": "arts"}']
WriteVersion: TypeAlias = Annotated[int, Range(0, 1 << 62)] | None
"""Version that a conditional write replaces; None: the one that the device has."""


def parse_predicate(predicate: str | Predicate) -> Predicate:
    """Return a predicate, parsed if it is a text; raise PredicateError if it is malformed."""
    if not isinstance(predicate, Predicate):
        predicate = Predicate(predicate)
    tables_of(predicate)  # raises PredicateError for a table that is not a constant
    return predicate


def build_write(
    operation: type[Write], table: str, key: str | None, record: Fields | None, kind: WriteType,
    predicate: str | Predicate | None, utility: Utility | None, data: Fields | None,
    may_write: str | Predicate | None = None, version: int | None = None, changes: Changes | None = None,
) -> Write:  # fmt: skip
    """Build a write, a delete or a change of a record.

    Raise ParameterError or PredicateError for arguments that are not usable.
    """
    if version is not None and kind != "conditional":
        raise ParameterError(
            "A version is what a conditional write replaces.",
            where="version",
            found=f"version={version}, type={kind!r}",
            expected="type='conditional'",
        )
    admits = None if may_write is None else rule(may_write)
    parsed = None if predicate is None else parse_predicate(predicate)
    reader = {} if data is None else check_record(data, ())
    return operation(table, key, record, kind, parsed, utility, reader, admits, version, changes)


@check_arguments
class WriteBatch:
    """Writes of records of one partition that are committed together: all of them or none.

    Returned by :meth:`Client.batch`. Its methods collect writes, deletes and changes, each of another record,
    and return the batch. Nothing is stored or sent before :meth:`commit`, which a ``with`` block calls at its
    end, unless it raises.

    Parameters
    ----------
    table : str
    utility, data : optional
        As in :meth:`Client.write`, for all parts.
    commit : callable
        Commits parts; returns the operation.

    Attributes
    ----------
    operation : Operation or None
        That of :meth:`commit`; None: it is not committed.

    Examples
    --------
    >>> from mudkit import Lab
    >>> from mudkit.systems.mud import Client, Cloud
    >>> lab = Lab(seed=7)
    >>> jane = Client(lab.device("jane-phone"), Cloud(lab), app="bank", token=lab.token("jane", "bank"))
    >>> jane.create("accounts").result()
    >>> jane.write("accounts", "a", {"sum": 10}).result()
    1
    >>> with jane.batch("accounts") as transfer:
    ...     transfer.increment("a", "sum", -4).write("b", {"sum": 4})
    WriteBatch(table='accounts', keys=['a', 'b'])
    >>> transfer.operation.result()
    [2, 1]
    """

    def __init__(
        self, table: str, utility: Utility | None, data: Fields | None,
        commit: Callable[[Sequence[Write]], Operation],
    ) -> None:  # fmt: skip
        self._table, self._utility = table, utility
        self._data = None if data is None else check_record(data, ())
        self._commit = commit
        self._parts: list[Write] = []
        self.operation: Operation | None = None

    def __repr__(self) -> str:
        return f"WriteBatch(table={self._table!r}, keys={[part.key for part in self._parts]!r})"

    def __enter__(self) -> WriteBatch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None and self.operation is None:
            self.commit()

    def write(
        self,
        key: str | None,
        record: RecordFields,
        type: WriteType = "blind",  # noqa: A002 - the name of the API
        predicate: str | Predicate | None = None,
        may_write: str | Predicate | None = None,
        version: WriteVersion = None,
    ) -> WriteBatch:
        """Add a write of a whole record; the parameters are those of :meth:`Client.write`."""
        return self._add(Write, key, dict(record), type, predicate, may_write, version)

    def delete(
        self,
        key: str,
        type: WriteType = "blind",  # noqa: A002 - the name of the API
        version: WriteVersion = None,
    ) -> WriteBatch:
        """Add the delete of a record; see :meth:`Client.delete`."""
        return self._add(Delete, key, None, type, version=version)

    def update(self, key: str, columns: RecordFields, *, create: bool = False) -> WriteBatch:
        """Add the merge of columns into a record; see :meth:`Client.update`."""
        return self._add(Update, key, changes=merge_of(columns, create=create))

    def increment(self, key: str, column: str, by: float = 1, *, create: bool = False) -> WriteBatch:
        """Add an increment of a number of a record; see :meth:`Client.increment`."""
        return self._add(Update, key, changes=add_of(column, by, create=create))

    def union(self, key: str, column: str, items: Items, *, create: bool = False) -> WriteBatch:
        """Add the addition of items to a list of a record; see :meth:`Client.union`."""
        return self._add(Update, key, changes=union_of(column, items, create=create))

    def remove(self, key: str, column: str, items: Items, *, create: bool = False) -> WriteBatch:
        """Add the removal of items from a list of a record; see :meth:`Client.remove`."""
        return self._add(Update, key, changes=remove_of(column, items, create=create))

    def commit(self, callback: Callable[[Operation], None] | None = None) -> Operation:
        """Commit the batch, once.

        Handled by :meth:`~mudkit.systems.mud.device.write_path.WritePath.write_batch`,
        in a table on the device by :meth:`~mudkit.systems.mud.device.own_tables.OwnTables.write`.

        When the call returns, all parts are in the local store, or none. The back end judges them on the
        records as they are before the batch, then stores all of them or refuses all. No read shows some
        without the others, but those that :doc:`the guide </guides/mud>` names.

        Parameters
        ----------
        callback : callable, optional
            Called with the completed operation.

        Returns
        -------
        Operation
            Its result is the list of the versions that the store assigned, in the order of the parts. It
            raises what a single write would, of the part that is refused, with its place in ``where``; and
            :class:`~mudkit.errors.ParameterError` for records of several partitions, or for parts that are
            larger than a message (32 KiB).

        Raises
        ------
        ParameterError
            The batch is empty, or was committed before.
        """
        self._check_open()
        if not self._parts:
            raise ParameterError(
                "The batch is empty.",
                where=f"a batch of the table {self._table!r}",
                found="no writes",
                expected="at least one",
                remedy="add a write, or do not commit it",
            )
        self.operation = self._commit(tuple(self._parts))
        if callback is not None:
            self.operation.add_done_callback(callback)
        return self.operation

    def _add(
        self, operation: type[Write], key: str | None, record: Fields | None = None,
        kind: WriteType = "blind", predicate: str | Predicate | None = None,
        may_write: str | Predicate | None = None, version: int | None = None, changes: Changes | None = None,
    ) -> WriteBatch:  # fmt: skip
        """Add a part, unless the batch has one of this record or is committed."""
        self._check_open()
        if key is not None and any(part.key == key for part in self._parts):
            raise ParameterError(
                "A batch has one write of each record.",
                where=f"a batch of the table {self._table!r}",
                found=f"a second write of the record {key!r}",
                expected="other keys",
                remedy="write the record once, as it is to be after both",
            )
        self._parts.append(
            build_write(
                operation, self._table, key, record, kind, predicate, self._utility, self._data, may_write,
                version, changes,
            )
        )  # fmt: skip
        return self

    def _check_open(self) -> None:
        """Raise ParameterError if the batch was committed."""
        if self.operation is not None:
            raise ParameterError(
                "The batch was committed.",
                where=f"a batch of the table {self._table!r}",
                found="one more call",
                expected="calls before commit()",
                remedy="begin another batch: client.batch(table)",
            )
