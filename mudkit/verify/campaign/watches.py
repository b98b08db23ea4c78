"""Whether continuous reads were told all that changes for their readers, once, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from mudkit.predicates import Predicate
from mudkit.verify.campaign.campaign import Campaign
from mudkit.verify.campaign.work import Said, Watch

__all__ = ["watch_problems"]


def watch_problems(campaign: Campaign, watch: Watch, rows: list[dict[str, Any]]) -> Iterator[str]:
    """Ask whether a reader was told what is for her, as she has said last, and of all of it."""
    where = f"continuous read {watch.text!r} of {watch.client}, sync {watch.sync}"
    if watch.most_notified is not None and len(watch.notified) > watch.most_notified:
        yield (f"{where}: told {watch.notified[watch.most_notified :]} after its device was wiped")
    changes = [each for each in watch.notified if not isinstance(each, dict)]
    is_ended = len(changes) != len(watch.notified)
    if is_ended and watch.client not in campaign.expires_us:
        yield (f"a continuous read was ended: {watch.notified}")
        return
    predicate = Predicate(watch.text or "TRUE")
    at = {(row["key"], row["ver"]): row for row in rows}

    def reaching(row: dict[str, Any], words: Iterable[Said]) -> set[bool]:
        """Say whether it reaches the reader, for each of some words."""
        if row["data"] is None or not predicate({**row["data"], "key": row["key"]}):
            return {False}
        writer = row["predicate"]
        if writer is None:
            return {True}
        return {bool(Predicate.restore(**writer)({}, receiver=word.data)) for word in words}

    last: dict[str, Any] = {}
    for each, notified_us in zip(changes, watch.notified_us, strict=False):
        row = at.get((each.key, each.version))
        before, last[each.key] = last.get(each.key), each
        if row is None:
            yield (f"{where}: told {each}, which the log has not")
        elif each.kind == "upsert":
            if True not in reaching(row, _counting(watch, row["ts_us"], notified_us)):
                yield (f"{where}: told {each}, by the last word it is hidden: {row}")
            if each.record != row["data"]:
                yield (f"{where}: told {each}, the log has {row}")
        else:  # as of the version that was told before: something later is hidden
            later = (
                [row]
                if before is None or each.version > before.version
                else [other for other in rows if other["key"] == each.key and other["lsn"] >= row["lsn"]]
            )
            if all(reaching(one, _counting(watch, one["ts_us"], notified_us)) == {True} for one in later):
                yield (f"{where}: told {each}, and it is not gone: {later}")
    is_over = is_ended or not watch.is_on or watch.client in campaign.expires_us
    word, is_last_known = watch.words[-1], watch.words[-1].operation is None
    if word.operation is not None and word.operation.status == "ok":
        is_last_known = True
    if watch.operation.status != "ok" or is_over or not is_last_known:
        return
    since_us = 0 if word.operation is None else word.operation.responded_us
    final = {row["key"]: row for row in rows}
    held = None
    killed = campaign.trouble.killed_after_commit
    if watch.client in killed:  # noted as told, and nobody was left to be told
        (process,) = campaign.lab.world.hosts[watch.client].processes
        prefix = f"read {watch.operation.result():09d} "
        held = {key.removeprefix(prefix): version for key, version in process.store.items(prefix)}
    for key, row in final.items():
        known, (is_for_him,) = last.get(key), reaching(row, [word])
        if row["ts_us"] <= since_us:
            continue  # it depends on when his data changed
        if held is not None and held.get(key, 0) == (row["ver"] if is_for_him else 0):
            continue
        if is_for_him:
            is_old = watch.sync is None or row["ts_us"] < round(watch.sync * 1e6)
            if row["lsn"] <= watch.lsn and is_old and known is None:
                continue
            if known is None or known.version != row["ver"]:
                yield (f"{where}: {key} is {row}, and was told {known}")
        elif known is not None and known.kind != "remove":
            yield (f"{where}: {key} is no more for it ({row}), and was told {known}")


def _counting(watch: Watch, committed_us: int, notified_us: int) -> Sequence[Said]:
    """Give the words of a reader that may have counted when a record was looked at for her.

    That was after it was committed and before she was told: words that she had not said by then do not count,
    nor do those after which she had said another one, and been answered, before the record was there.
    """
    words = watch.words
    answered = [
        number
        for number, word in enumerate(words)
        if word.operation is not None
        and word.operation.status == "ok"
        and word.operation.responded_us < committed_us
    ]
    return [word for word in words[max(answered, default=0) :] if word.at_us <= notified_us]
