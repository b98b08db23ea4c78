"""Problems with what continuous reads of a run were told, and with what their applications show.

They are found by the rows of the back end's log, not by the code under test.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from mudkit.predicates import Predicate
from mudkit.verify.campaign.campaign import Campaign
from mudkit.verify.campaign.work import (
    MAIN,
    ReaderData,
    Watch,
)
from mudkit.wire import as_wire


def is_match(watch: Watch, row: dict[str, Any]) -> bool:
    """Return whether a version matches the predicate of a continuous read."""
    predicate = Predicate(watch.text or "TRUE")
    return row["data"] is not None and bool(predicate({**row["data"], "key": row["key"]}))


def is_shown_to(row: dict[str, Any], reader: ReaderData) -> bool:
    """Return whether the writer of a version shows it to a reader with some data."""
    writer = row["predicate"]
    return writer is None or bool(Predicate.restore(**writer)({}, receiver=reader.data))


def list_window_problems(window: Watch, rows: list[dict[str, Any]], where: str) -> Iterator[str]:
    """Yield the changes of a window that are not in the log, are hidden, or have other columns."""
    assert window.selection is not None
    at = {(row["key"], row["ver"]): row for row in rows}
    for change, notified_us in zip(window.notified, window.notified_us, strict=True):
        if isinstance(change, dict) or change.kind == "remove":
            continue
        row = at.get((change.key, change.version))
        if row is None or row["data"] is None:
            yield f"{where}: {change} is not in the log"
            continue
        readers = _possible_data(window, row["ts_us"], notified_us)
        if not is_match(window, row) or not any(is_shown_to(row, reader) for reader in readers):
            yield f"{where}: {change} is hidden by {row}"
        if change.record != window.selection.columns_of(row["data"]):
            yield f"{where}: {change} has other columns than {row}"


def list_watch_problems(campaign: Campaign, watch: Watch, rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield notifications that a continuous read lacks, or must not have, by the reader's latest data."""
    where = f"continuous read {watch.text!r} of {watch.client}, sync {watch.sync}"
    lost_us = watch.lost_us
    if lost_us is not None and any(notified_us > lost_us for notified_us in watch.notified_us):
        yield f"{where}: notified after its device was wiped at {lost_us} µs: {watch.notified}"
    changes = [change for change in watch.notified if not isinstance(change, dict)]
    is_ended = len(changes) != len(watch.notified)
    if is_ended and watch.client not in campaign.expires_us:
        yield (f"a continuous read was ended: {watch.notified}")
        return
    predicate = Predicate(watch.text or "TRUE")
    at = {(row["key"], row["ver"]): row for row in rows}

    def visibility(row: dict[str, Any], possible: Iterable[ReaderData]) -> set[bool]:
        """Return whether a row matches and is visible, under each of some reader data."""
        if row["data"] is None or not predicate({**row["data"], "key": row["key"]}):
            return {False}
        writer = row["predicate"]
        if writer is None:
            return {True}
        return {bool(Predicate.restore(**writer)({}, receiver=reader.data)) for reader in possible}

    last: dict[str, Any] = {}
    for place, (change, notified_us) in enumerate(zip(changes, watch.notified_us, strict=False)):
        before = last.get(change.key)
        if place in watch.corrections and not change.version:  # there was no record, and there is none
            last.pop(change.key, None)
            continue
        row = at.get((change.key, change.version))
        last[change.key] = change
        notified = f"{where}: notified of {change}"
        if row is None:
            yield (f"{notified}, which is not in the log")
        elif change.kind == "upsert":
            if True not in visibility(row, _possible_data(watch, row["ts_us"], notified_us)):
                yield (f"{notified}, which the reader's data hides: {row}")
            if change.record != row["data"]:
                yield (f"{notified}, the log has {row}")
        else:  # with the version that the device was told of before: a later one is hidden
            is_known = before is not None and change.version <= before.version
            later = (
                [other for other in rows if other["key"] == change.key and other["lsn"] >= row["lsn"]]
                if is_known or place in watch.corrections
                else [row]
            )
            if all(
                visibility(row, _possible_data(watch, row["ts_us"], notified_us)) == {True} for row in later
            ):
                yield (f"{notified}, and it is visible: {later}")
    is_over = is_ended or not watch.is_on or watch.client in campaign.expires_us
    reader = watch.reader_data[-1]
    is_known = reader.operation is None or reader.operation.status == "ok"
    if watch.operation.status != "ok" or is_over or not is_known:
        return
    since_us = 0 if reader.operation is None else reader.operation.responded_us
    final = {row["key"]: row for row in rows}
    pending = {write["key"] for write in campaign.pending[watch.client] if write["name"] == watch.table}
    for key, row in final.items():
        known, (is_visible,) = last.get(key), visibility(row, [reader])
        if key in pending:
            continue  # the own write is shown, or the record does not belong to the read by it
        if row["ts_us"] <= since_us:
            continue  # it depends on the time at which the data changed
        if is_visible:
            is_old = watch.sync is None or row["ts_us"] < round(watch.sync * 1e6)
            if row["lsn"] <= watch.lsn and is_old and known is None:
                continue
            if known is None or known.version != row["ver"]:
                yield (f"{where}: {key} is {row}, and the last notification was {known}")
        elif known is not None and known.kind != "remove":
            yield (f"{where}: {key} is hidden ({row}), and the last notification was {known}")


def list_shown_problems(campaign: Campaign, watch: Watch) -> Iterator[str]:
    """Yield what an application shows at the end and its device does not, and what is wrongly pending.

    An application that the cloud has ended or its device has lost shows nothing any more. What is pending is
    not judged if it is not known whether the reader's last data were taken.
    """
    observed = campaign.clients[watch.client].installed.machine
    is_over = not watch.is_on or watch.client in campaign.expires_us or watch.lost_us is not None
    if is_over or watch.operation.status != "ok" or observed is None:
        return
    machine = observed.observed
    where = f"continuous read {watch.text!r} of {watch.client}"
    handle = int(watch.operation.result())
    if not machine.continuous_reads.has_read(handle):
        return
    local, read = machine.local, machine.continuous_reads.read_of(handle)
    shown = {
        key: (change.version, change.record) for key, change in watch.shown.items() if change.kind == "upsert"
    }
    if not read.waiting and not read.stored.is_paused and shown != read.records.shown():
        yield f"{where} shows {shown}, its device has {read.records.shown()}"
    pending = {key for key, (version, _) in read.records.shown().items() if version is None}
    for key in pending - set(local.pending_keys(MAIN)):
        yield f"{where} shows {key} as pending, and no write of it is"
    reader = watch.reader_data[-1]
    if reader.operation is not None and reader.operation.status != "ok":  # lost with a kill, perhaps
        return
    for key in local.pending_keys(MAIN):
        write = local.newest_write(MAIN, key)
        row = {"key": key, "data": write.data, "predicate": write.predicate and as_wire(write.predicate)}
        belongs = read.stored.has_begun and is_match(watch, row) and is_shown_to(row, reader)
        if write.changes is None and belongs != (key in pending):
            yield f"{where}: {write} belongs to it: {belongs}, shown as pending: {key in pending}"


def list_first_state_problems(campaign: Campaign, watch: Watch, rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the existing records of which a continuous read was notified too late for its first state.

    They were there at the call, and stayed visible until then.
    """
    where = f"continuous read {watch.text!r} of {watch.client}, sync {watch.sync}"
    is_over = not watch.is_on or any(isinstance(change, dict) for change in watch.notified)
    if is_over or watch.sync is None or not watch.synced_us or watch.client in campaign.expires_us:
        return
    if len(watch.reader_data) > 1:
        return
    predicate, reader = Predicate(watch.text or "TRUE"), watch.reader_data[0].data
    keys_own = {
        write.key
        for write in campaign.work.writes
        if write.client == watch.client
        and write.operation.invoked_us <= watch.synced_us[0]
        and not 0 < (write.operation.responded_us or 0) < watch.operation.invoked_us
    }
    """Records of which the application may have been shown what it wrote itself."""
    for key in {row["key"] for row in rows} - watch.keys_synced - keys_own:
        of_key = [row for row in rows if row["key"] == key and row["ts_us"] <= watch.synced_us[0]]
        before = [row for row in of_key if row["ts_us"] < watch.operation.invoked_us]
        states = [*before[-1:], *of_key[len(before) :]] if before else []
        if states and all(
            row["data"] is not None
            and row["ts_us"] >= round((watch.sync or 0.0) * 1e6)
            and predicate({**row["data"], "key": key})
            and (row["predicate"] is None or Predicate.restore(**row["predicate"])({}, receiver=reader))
            for row in states
        ):
            yield (f"{where}: its first state was there before it was notified of {states}")


def _possible_data(watch: Watch, committed_us: int, notified_us: int) -> Sequence[ReaderData]:
    """Return the reader data that may have been valid when a record was matched.

    The record was matched between its commit and the notification. Data sent after the notification is
    excluded, and data that was replaced, with an answer, before the commit.
    """
    answered = [
        number
        for number, reader in enumerate(watch.reader_data)
        if reader.operation is not None
        and reader.operation.status == "ok"
        and reader.operation.responded_us < committed_us
    ]
    return [reader for reader in watch.reader_data[max(answered, default=0) :] if reader.at_us <= notified_us]
