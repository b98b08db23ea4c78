"""Own writes as the continuous reads of the same app show them, while no processor has told of them."""

from __future__ import annotations

from msgspec import UNSET

from mudkit.errors import MudkitError, PredicateError
from mudkit.systems.mud.device.cache import Cache
from mudkit.systems.mud.device.local import HeldRow, Local, PendingWrite, Version
from mudkit.systems.mud.device.read_records import OwnRecord
from mudkit.systems.mud.device.read_states import StartedRead
from mudkit.systems.mud.device.stored_read import StoredRead
from mudkit.systems.mud.policies.utility import Query
from mudkit.systems.mud.tables.queries import tables_of
from mudkit.systems.mud.tables.replica import columns_of
from mudkit.wire import Fields


class OwnWrites:
    """Own writes of one client, as far as the device can judge what they are to a continuous read.

    It cannot where a ``lookup`` decides, or a predicate fails; then only the processors tell.
    """

    def __init__(self, local: Local, cache: Cache) -> None:
        self._local, self._cache = local, cache

    def pending_in(self, stored: StoredRead, key: str) -> OwnRecord | None:
        """Return what the pending writes of a record are to a read; None: nothing, or only processors know.

        A read of later changes has nothing pending before it is registered: what is committed by then is none
        of its changes.
        """
        if not stored.has_begun or self._local.newest_write(stored.name, key) is None:
            return None
        version = self._local.latest_version(stored.name, key)
        if not isinstance(version, PendingWrite):
            return None  # changes of a record that is not there
        try:
            return OwnRecord(self._columns_in(stored, version))
        except MudkitError:
            return None

    def committed_in(self, read: StartedRead, write: PendingWrite, version: int) -> OwnRecord | None:
        """Return what the version that the store has made of a write is to a read; None: processors tell.

        They alone know whether it came before the read began, and with which data of the reader it was
        matched, if that changed meanwhile. That of its partition has told already of what it has passed.
        """
        stored, local = read.stored, self._local
        row = local.held_row(stored.name, write.key)
        passed_lsn = self._passed_lsn(stored, write.key)
        if (
            row is None
            or row.ver < version
            or row.log_incarnation is not UNSET
            or stored.table not in (None, row.table)
            or read.updates
            or write.invoked_us < read.data_us
            or passed_lsn is None
            or row.lsn <= passed_lsn
            or not _is_later(stored, write, row)
        ):
            return None
        try:
            data = self._columns_in(stored, row)
        except MudkitError:
            return None
        return OwnRecord(data, row.ver, row.lsn, local.log_incarnation)

    def _passed_lsn(self, stored: StoredRead, key: str) -> int | None:
        """Return the position in the present log up to which a read was told of a record; None: not known.

        A read that was last told of a former incarnation of the log was told nothing of the present one.
        """
        local, partition = self._local, self._local.partition_of(stored.name, key)
        if stored.log_incarnations.get(partition, "") in local.former_log_incarnations:
            return 0
        return stored.passed_lsn(partition, local.log_incarnation)

    def _columns_in(self, stored: StoredRead, version: Version) -> Fields | None:
        """Return the columns of a version that a read delivers; None: it does not belong to the read.

        Raises
        ------
        MudkitError
            The device cannot judge it.
        """
        predicate = stored.predicate.predicate()
        if tables_of(predicate):
            raise PredicateError("Only the cloud can evaluate this lookup.", text=predicate.text)
        query = Query(stored.name, predicate, "committed", stored.reader, None)
        if version.data is None or not self._cache.matcher(query)(version):
            return None
        return stored.columns_of(columns_of(version, self._local.tables.get(stored.name)))


def _is_later(stored: StoredRead, write: PendingWrite, row: HeldRow) -> bool:
    """Return whether a version is surely among those that a read delivers."""
    if stored.sync_us is not None:
        return write.invoked_us >= stored.sync_us
    return bool(stored.begun_lsns) and row.lsn > max(stored.begun_lsns.values())
