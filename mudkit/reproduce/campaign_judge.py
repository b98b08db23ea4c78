"""What a run of the campaign has shown, by the back end's log and the checker, not by the code under test."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any, Final

from mudkit.consistency import History, Status, Verdict, check
from mudkit.errors import AccessDenied, MudkitError, ParameterError, TableProblem
from mudkit.predicates import Predicate
from mudkit.reproduce.campaign import Campaign
from mudkit.reproduce.campaign_work import MAIN, SIDE, Watch, Written
from mudkit.systems.mud import Conflict

__all__ = ["PROMISED", "Found", "play"]

PROMISED: Final = {
    "committed": ("sequential", "monotonic-reads", "read-your-writes"),
    "committed_wio": ("sequential-wio", "monotonic-reads", "read-your-writes"),
    "uncommitted": ("fork-sequential-retracted",),
}
"""What the read types promise (Mobius, table 3); for uncommitted ones what is left of it when a write is
refused that its own client has read: see :mod:`mudkit.consistency.retraction`."""


MOST_EVENTS: Final = 200_000
"""Ten times what a long run needs: it does not come to rest."""
_EXPIRED: Final = "This token has expired."


class Found:
    """What was found in a run.

    Parameters
    ----------
    campaign : Campaign
        One that has run.
    """

    def __init__(self, campaign: Campaign) -> None:
        self.campaign = campaign
        self.counts = Counter(campaign.trouble.counts)
        """Faults, and verdicts of the checker."""
        self.problems: list[str] = []
        """What broke a promise."""
        self.broken: dict[str, str] = {}
        """The promises that were broken, each with the first of what broke it."""
        self.illegal: list[Verdict] = []
        """What the checker says of histories that are not what the read types promise."""
        log = campaign.work.log
        last = campaign.lab.world.at_address[campaign.cloud.back_end].store.get("lsn")
        entries = [log[lsn] for lsn in sorted(log) if lsn <= last and log[lsn]["op"] == "row"]
        rows = [entry["row"] for entry in entries if entry["name"] == MAIN]
        self._history = self._seen(rows)
        side = [entry["row"] for entry in entries if entry["name"] == SIDE]
        promises: dict[str, Callable[[], None]] = {
            "a write is applied once, and answered as it was": lambda: self._judge_writes(rows),
            "a table that comes and goes loses no write": lambda: self._judge_side(side),
            "what is pending goes": self._judge_held,
            "policies that were shipped are followed": self._judge_policies,
            "all reads are answered, and all comes to rest": self._judge_rest,
            "reads are what their types promise": self._judge_history,
            "continuous reads are told all that changes, once": lambda: self._judge_watches(rows),
        }
        for promise, judge in promises.items():
            known = len(self.problems)
            judge()
            if self.problems[known:]:
                self.broken[promise] = self.problems[known]

    @property
    def counterexample(self) -> tuple[int, str] | None:
        """How many operations contradict definition 3 to the letter in uncommitted reads, and which.

        A write that was refused is not among them: that it was read before is what contradicts.
        """
        verdict = check(self._history, "fork-sequential", reads=["uncommitted"], within_s=1.0)
        if verdict.status is not Status.ILLEGAL:
            return None
        operations = verdict.explanation.operations
        return len(operations), f"{verdict}: {'; '.join(map(str, operations))}"

    def _seen(self, rows: list[dict[str, Any]]) -> History:
        """Give the history of the table that is judged.

        A write that was refused when its caller was gone is left out with what its own client read of it: it
        was not answered, and so the checker cannot know that it had no effect.
        """
        committed = {row["data"]["v"] for row in rows if row["data"] is not None}
        gone = {
            (each.client, each.operation.op_id)
            for each in self.campaign.work.writes
            if each.operation.status == "open" and each.value
            and each.value not in committed and not self._is_held(each)
        }  # fmt: skip
        history = self.campaign.lab.history()
        history = history[history["table"] == MAIN]
        names = zip(history["client"], history["op_id"], strict=True)
        hashes = set(history["value_hash"][[name in gone for name in names]].dropna())
        return History.from_table(history[~(history["value_hash"].isin(hashes) & history["version"].isna())])

    def _judge_rest(self) -> None:
        """Ask whether all reads were answered, and whether not too much was said."""
        for each in self.campaign.work.reads:
            if not each.done():
                self.problems.append(f"{each} of {each.arguments} was never answered")
        if (events := self.campaign.lab.world.handled) > MOST_EVENTS:
            self.problems.append(f"{events:,} events were handled")

    def _judge_writes(self, rows: list[dict[str, Any]]) -> None:
        times: Counter[str] = Counter(row["data"]["v"] for row in rows if row["data"] is not None)
        at = {(row["key"], row["ver"]): row for row in rows}
        for value, count in times.items():
            if count > 1:
                self.problems.append(f"{value!r} was committed {count} times")
        for each in self.campaign.work.writes:
            if each.table != MAIN:
                continue
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
            elif operation.status == "failed" and self._was_refused(each):
                pass
            elif operation.status == "failed" and kind == "conditional":
                self._judge_conflict(key, operation, rows)
            elif operation.status == "failed" and kind == "blind":
                self.problems.append(f"a blind write failed: {_error(operation)}")
            elif not operation.done() and not self._is_held(each):
                self.problems.append(f"{kind} write {value!r} of {key} was never answered")
        for value, name in sorted(self.campaign.must_commit.items()):
            is_held = any((held["data"] or {}).get("v") == value for held in self.campaign.held[name])
            if times[value] != 1 - is_held and not (name in self.campaign.expires_us and not times[value]):
                self.problems.append(
                    f"{value!r} was kept by a device, and was committed {times[value]} times"
                )
        versions: defaultdict[str, list[int]] = defaultdict(list)
        for row in rows:
            versions[row["key"]].append(row["ver"])
        for key, found in versions.items():
            if found != list(range(1, len(found) + 1)):
                self.problems.append(f"versions of {key}: {found}")

    def _was_refused(self, each: Written) -> bool:
        """Say whether a write failed because its client's token had expired."""
        error = _error(each.operation)
        responded_us = each.operation.responded_us
        if responded_us < self.campaign.expires_us.get(each.client, float("inf")):
            return False
        return isinstance(error, AccessDenied) or (isinstance(error, Conflict) and error.found == _EXPIRED)

    def _is_held(self, each: Written) -> bool:
        """Say whether a write is listed as held."""
        return any(
            held["key"] == each.key
            and held["name"] == each.table
            and (held["data"] or {"v": ""})["v"] == each.value
            for held in self.campaign.held[each.client]
        )

    def _judge_held(self) -> None:
        """Ask whether all that is left on devices is held by their policy, or stands behind such a write."""
        for name, listed in self.campaign.held.items():
            (process,) = self.campaign.lab.world.hosts[name].processes
            stored = [write for _, write in process.store.items("write ")]
            if stored != listed:
                self.problems.append(f"{name} holds {stored}, and lists {listed}")
            heads: dict[tuple[str, str], Any] = {}
            for write in listed:
                if heads.setdefault((write["name"], write["key"]), write)["due_us"] != "never":
                    self.problems.append(f"{name} still holds {write}")

    def _judge_policies(self) -> None:
        """Ask whether what was shipped is kept, and whether all who follow have the latest of it."""
        campaign = self.campaign
        store = campaign.lab.world.at_address[campaign.cloud.generator].store
        kept = {body["policy"]: body["document"]["version"] for _, body in store.items("policy ")}
        for each in campaign.work.ships:
            newest = kept.get(each.kind, 0)
            if each.operation.status != "open" and newest < each.version:
                self.problems.append(f"{each.operation} of version {each.version}, and {newest} is kept")
        for name, said in campaign.policies.items():
            for kind, policy in said.items():
                if policy["version"] != kept.get(kind, 0) or policy["refused"]:
                    self.problems.append(f"{name} has {policy} for {kind}s, and {kept} were shipped")

    def _judge_side(self, rows: list[dict[str, Any]]) -> None:
        """Ask what can be asked of a table that comes and goes."""
        times: Counter[str] = Counter(row["data"]["v"] for row in rows if row["data"] is not None)
        for each in self.campaign.work.writes:
            if each.table != SIDE or not each.value:
                continue
            count, operation = times[each.value], each.operation
            if count > 1 or (operation.status == "ok" and count != 1):
                self.problems.append(f"{each.value!r} was acknowledged, and was committed {count} times")
            elif operation.status == "failed":
                error = _error(operation)
                if count or not isinstance(error, AccessDenied | Conflict | ParameterError | TableProblem):
                    self.problems.append(
                        f"{each.value!r} failed ({error!r}), and was committed {count} times"
                    )
            elif not operation.done() and not self._is_held(each):
                self.problems.append(f"write {each.value!r} of {SIDE} was never answered")
        for watch in self.campaign.work.watches:
            if watch.table == SIDE:
                self._judge_order(watch)

    def _judge_order(self, watch: Watch) -> None:
        """Ask whether versions went up, and whether nothing came after the end."""
        last: dict[str, int] = {}
        for place, each in enumerate(watch.told):
            if isinstance(each, dict):
                if place != len(watch.told) - 1:
                    self.problems.append(f"a continuous read was ended, and told more: {watch.told}")
                return
            if each.version <= last.get(each.key, 0):
                self.problems.append(f"a continuous read was told {each} after version {last[each.key]}")
            last[each.key] = each.version

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
                    self.illegal.append(verdict)
                    self.problems.append(f"{kind} reads are not {model}: {verdict}")

    def _judge_watches(self, rows: list[dict[str, Any]]) -> None:
        for watch in self.campaign.work.watches:
            if watch.table == MAIN:
                self._judge_watch(watch, rows)

    def _judge_watch(self, watch: Watch, rows: list[dict[str, Any]]) -> None:
        self._judge_order(watch)
        told = [each for each in watch.told if not isinstance(each, dict)]
        is_ended = len(told) != len(watch.told)
        if is_ended and watch.client not in self.campaign.expires_us:
            self.problems.append(f"a continuous read was ended: {watch.told}")
            return
        predicate = Predicate(watch.text or "TRUE")
        at = {(row["key"], row["ver"]): row for row in rows}

        def reaching(row: dict[str, Any]) -> set[bool]:
            """Say whether it reaches the reader, for each of the data that he may have given by then."""
            if row["data"] is None or not predicate({**row["data"], "key": row["key"]}):
                return {False}
            writer = row["predicate"]
            if writer is None:
                return {True}
            return {bool(Predicate.restored(**writer)({}, receiver=data)) for data in watch.data}

        where = f"continuous read {watch.text!r} of {watch.client}, sync {watch.sync}"
        last: dict[str, Any] = {}
        for each in told:
            last[each.key] = each
            row = at.get((each.key, each.version))
            if (
                row is None
                or (each.kind == "upsert") not in reaching(row)
                or (each.kind == "upsert" and each.record != row["data"])
            ):
                self.problems.append(f"{where}: told {each}, the log has {row}")
        if (
            watch.operation.status != "ok"
            or not watch.is_on
            or is_ended
            or watch.client in self.campaign.expires_us
        ):
            return
        final = {row["key"]: row for row in rows}
        held = None
        killed = self.campaign.trouble.killed_after_commit
        if watch.client in killed:  # noted as told, and nobody was left to be told
            (process,) = self.campaign.lab.world.hosts[watch.client].processes
            held = (process.store.get(f"reading {watch.operation.result():09d}") or {"held": {}})["held"]
        for key, row in final.items():
            known, reaches = last.get(key), reaching(row)
            if len(reaches) > 1 or len(watch.data) > 1:
                continue  # it depends on when his data changed
            (is_for_him,) = reaches
            if held is not None and held.get(key, 0) == (row["ver"] if is_for_him else 0):
                continue
            if is_for_him:
                is_old = watch.sync is None or row["ts_us"] < round(watch.sync * 1e6)
                if row["lsn"] <= watch.lsn and is_old and known is None:
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
