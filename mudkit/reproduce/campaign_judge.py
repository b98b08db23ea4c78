"""What a run of the campaign has shown, by the back end's log and the checker, not by the code under test."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, Final

from mudkit.consistency import History, Status, check
from mudkit.errors import MudkitError
from mudkit.predicates import Predicate
from mudkit.reproduce.campaign import MINUTES, SETTLE_HOURS, Campaign, Watch
from mudkit.reproduce.row import Figure, Measured, Say, nothing_said
from mudkit.systems.mud import Conflict

__all__ = ["PROMISED", "Found", "measure", "play"]

PROMISED: Final = {
    "committed": ("sequential", "monotonic-reads", "read-your-writes"),
    "committed_wio": ("sequential-wio", "monotonic-reads", "read-your-writes"),
    "uncommitted": ("fork-sequential-retracted",),
}
"""What the read types promise (Mobius, table 3); for uncommitted ones what is left of it when a write is
refused that its own client has read: see :mod:`mudkit.consistency.retraction`."""


class Found:
    """What was found in a run.

    Parameters
    ----------
    campaign : Campaign
        One that has run.
    """

    def __init__(self, campaign: Campaign) -> None:
        self.campaign = campaign
        self.counts = Counter(campaign.faults)
        """Faults, and verdicts of the checker."""
        self.problems: list[str] = []
        """What broke a promise."""
        self._history = History.from_table(campaign.lab.history())
        self._judge()

    @property
    def is_fork_sequential(self) -> bool:
        """Whether uncommitted reads were so to the letter, refused writes included, or it is not known."""
        verdict = check(self._history, "fork-sequential", reads=["uncommitted"], within_s=1.0)
        return verdict.status is not Status.ILLEGAL

    def _judge(self) -> None:
        last = self.campaign.lab.world.at_address[self.campaign.cloud.back_end].store.get("lsn")
        entries = [
            self.campaign.log[lsn]
            for lsn in sorted(self.campaign.log)
            if lsn <= last and self.campaign.log[lsn]["op"] == "row"
        ]
        rows = [entry["row"] for entry in entries]
        self._judge_writes(rows)
        self._judge_history()
        for watch in self.campaign.watches:
            self._judge_watch(watch, rows)

    def _judge_writes(self, rows: list[dict[str, Any]]) -> None:
        times: Counter[str] = Counter(row["data"]["v"] for row in rows if row["data"] is not None)
        at = {(row["key"], row["ver"]): row for row in rows}
        for value, count in times.items():
            if count > 1:
                self.problems.append(f"{value!r} was committed {count} times")
        for each in self.campaign.writes:
            key, kind, value, operation = each.key, each.kind, each.value, each.operation
            if operation.status == "ok":
                row = at.get((key, operation.result()))
                if row is None or (row["data"] or {"v": ""})["v"] != value:
                    self.problems.append(
                        f"{value!r} of {key} was acknowledged as {operation.result()}, and is {row}"
                    )
                elif kind == "conditional" and value:
                    wanted, before = self.campaign.replaces[value], at.get((key, row["ver"] - 1))
                    is_insert = wanted == 0 and (before is None or before["data"] is None)
                    if row["ver"] != wanted + 1 and not is_insert:
                        self.problems.append(f"{value!r} of {key} was to replace {wanted}, and is {row}")
            elif operation.status == "failed" and value and times[value]:
                self.problems.append(f"{value!r} of {key} failed ({_error(operation)}), and was committed")
            elif operation.status == "failed" and kind == "conditional":
                self._judge_conflict(key, operation, rows)
            elif operation.status == "failed" and kind == "blind":
                self.problems.append(f"a blind write failed: {_error(operation)}")
            elif not operation.done():
                self.problems.append(f"{kind} write {value!r} of {key} was never answered")
        for value in sorted(self.campaign.must_commit):
            if times[value] != 1:
                self.problems.append(
                    f"{value!r} was kept by a device, and was committed {times[value]} times"
                )
        for name in self.campaign.clients:
            for process in self.campaign.lab.world.hosts[name].processes:
                for _, write in process.store.items("write "):
                    self.problems.append(f"{name} still holds {write['data']}")
        versions: defaultdict[str, list[int]] = defaultdict(list)
        for row in rows:
            versions[row["key"]].append(row["ver"])
        for key, found in versions.items():
            if found != list(range(1, len(found) + 1)):
                self.problems.append(f"versions of {key}: {found}")

    def _judge_conflict(self, key: str, operation: Any, rows: list[dict[str, Any]]) -> None:
        """Ask whether at some time while a write was under way another version was there."""
        error = _error(operation)
        if not isinstance(error, Conflict) or error.local is None:
            self.problems.append(f"a conditional write failed: {error!r}")
        elif "stands on" not in error.summary:
            of_key = [row for row in rows if row["key"] == key and row["ts_us"] <= operation.responded_us]
            before = [row for row in of_key if row["ts_us"] < operation.invoked_us]
            states = [*before[-1:], *of_key[len(before) :]] if before else [None, *of_key]
            wanted = error.local["replaces"]
            matches = [
                (row["ver"] if row else 0) == wanted or (wanted == 0 and (row is None or row["data"] is None))
                for row in states
            ]
            if all(matches):
                self.problems.append(
                    f"a conditional write of {key} that replaces {wanted} met a false conflict"
                )

    def _judge_history(self) -> None:
        for kind, models in PROMISED.items():
            for model in models:
                verdict = check(self._history, model, reads=[kind])
                self.counts[f"{kind} {model} {verdict.status}"] += 1
                if verdict.status is Status.ILLEGAL:
                    self.problems.append(f"{kind} reads are not {model}: {verdict}")

    def _judge_watch(self, watch: Watch, rows: list[dict[str, Any]]) -> None:
        told = [each for each in watch.told if not isinstance(each, dict)]
        if len(told) != len(watch.told):
            self.problems.append(f"a continuous read was ended: {watch.told}")
            return
        predicate = Predicate(watch.text or "TRUE")
        at = {(row["key"], row["ver"]): row for row in rows}

        def reaches(row: dict[str, Any]) -> bool:
            if row["data"] is None or not predicate({**row["data"], "key": row["key"]}):
                return False
            writer = row["predicate"]
            return writer is None or bool(Predicate.restored(**writer)({}, receiver=watch.data))

        where = f"continuous read {watch.text!r} of {watch.client}, sync {watch.sync}"
        last: dict[str, Any] = {}
        for each in told:
            before = last.get(each.key)
            if before is not None and each.version <= before.version:
                self.problems.append(f"{where}: {each} after {before}")
            last[each.key] = each
            row = at.get((each.key, each.version))
            if (
                row is None
                or (each.kind == "upsert") != reaches(row)
                or (each.kind == "upsert" and each.record != row["data"])
            ):
                self.problems.append(f"{where}: told {each}, the log has {row}")
        if watch.operation.status != "ok" or not watch.is_on:
            return
        final = {row["key"]: row for row in rows}
        held = None
        if watch.client in self.campaign.killed_after_commit:  # noted as told, and nobody was left to be told
            (process,) = self.campaign.lab.world.hosts[watch.client].processes
            held = (process.store.get(f"reading {watch.operation.result():09d}") or {"held": {}})["held"]
        for key, row in final.items():
            known = last.get(key)
            if held is not None and held.get(key, 0) == (row["ver"] if reaches(row) else 0):
                continue
            if reaches(row):
                if row["lsn"] <= watch.lsn and watch.sync is None and known is None:
                    continue
                if known is None or known.version != row["ver"]:
                    self.problems.append(f"{where}: {key} is {row}, and was told {known}")
            elif known is not None and known.kind != "remove":
                self.problems.append(f"{where}: {key} is no more for it ({row}), and was told {known}")


def _error(operation: Any) -> BaseException | None:
    """Give what an operation that failed has raised."""
    try:
        operation.result()
    except MudkitError as error:
        return error
    return None


def play(seed: int) -> Found:
    """Let a run happen, and judge it."""
    campaign = Campaign(seed)
    campaign.run()
    return Found(campaign)


def measure(say: Say = nothing_said, *, seeds: Sequence[int] = range(1000)) -> Measured:
    """Measure row M6.

    Parameters
    ----------
    say : callable
        Told what is being measured.
    seeds : sequence of int
        A run each.
    """
    counts: Counter[str] = Counter()
    broken = forks = writes = told = 0
    for number, seed in enumerate(seeds):
        if number % 10 == 0:
            say(f"run {number:,} of {len(seeds):,}")
        found = play(seed)
        broken += bool(found.problems)
        forks += not found.is_fork_sequential
        writes += len(found.campaign.writes)
        told += sum(len(watch.told) for watch in found.campaign.watches)
        counts.update(found.counts)
    figures = {
        "runs": Figure.of([len(seeds)]),
        "runs in which a promise was broken": Figure.of([broken]),
        "runs in which definition 3 was, by refused writes": Figure.of([forks]),
        "writes": Figure.of([writes]),
        "changes told to continuous reads": Figure.of([told]),
    }
    for kind, models in PROMISED.items():
        figures[f"histories that are {models[0]}, {kind} reads"] = Figure.of(
            [counts[f"{kind} {models[0]} OK"]]
        )
    faults = {
        name: counts[name] for name in ("cut", "kill device", "kill server", "move", "network", "messages")
    }
    parameters = {
        "runs": f"{MINUTES} virtual minutes, 60 operations or less, 8 faults or less, {SETTLE_HOURS} h rest",
        "seeds": f"{min(seeds)} to {max(seeds)}", "faults": faults,
    }  # fmt: skip
    return Measured(figures, parameters)
