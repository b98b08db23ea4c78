"""What a run of the campaign has shown, by the back end's log and the checker, not by the code under test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from mudkit.consistency import History, Status, Verdict, check
from mudkit.errors import AccessDenied, MudkitError, ParameterError, TableProblem, TokenExpired
from mudkit.predicates import Predicate
from mudkit.systems.mud import Conflict
from mudkit.verify.campaign.campaign import BURST_S, Campaign
from mudkit.verify.campaign.watches import watch_problems
from mudkit.verify.campaign.work import MAIN, SIDE, Watch, Written

__all__ = ["PROMISED", "Judgement", "play"]

PROMISED: Final = {
    "committed": ("sequential", "monotonic-reads", "read-your-writes"),
    "committed_wio": ("sequential-wio", "monotonic-reads", "read-your-writes"),
    "uncommitted": ("fork-sequential-retracted",),
}
"""What the read types promise (Mobius, table 3); for uncommitted ones what is left of it when a write is
refused that its own client has read: see :mod:`mudkit.consistency.record`."""


MOST_EVENTS: Final = 200_000
"""Ten times what a long run needs: it does not come to rest."""


class Judgement:
    """The judgement of a run.

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
        self._tables: dict[str, int] = {}
        """The number of the table that each value was committed in."""
        self._predicates: dict[str, Any] = {}
        """The writer predicate of each value that was committed."""
        self._created: list[int] = []
        """The numbers of the tables that came and went, the first first."""
        self._note_rows([log[lsn] for lsn in sorted(log) if lsn <= last])
        self._history = self._seen(rows)
        side = [entry["row"] for entry in entries if entry["name"] == SIDE]
        promises: dict[str, Callable[[], None]] = {
            "a write is applied once, and answered as it was": lambda: self._judge_writes(rows),
            "a table that comes and goes loses no write": lambda: self._judge_side(side),
            "what is pending goes": self._judge_held,
            "what was lost is sent again whatever goes on": self._judge_bursts,
            "nobody is shown what is hidden from him": self._judge_shown,
            "no table shows what was in another of its name": self._judge_tables,
            "machines send what machines take": self._judge_odd,
            "policies that were shipped are followed": self._judge_policies,
            "all reads are answered, and all comes to rest": self._judge_rest,
            "reads are what their types promise": self._judge_history,
            "continuous reads are told all that changes, once": lambda: self._judge_watches(rows),
        }
        since_us = campaign.rolled_back_us.get(campaign.cloud.back_end.split("/")[0])
        if since_us is not None:
            rested = ("what is pending goes", "machines send what machines take")
            promises = {
                each: promises[each] for each in (*rested, "all reads are answered, and all comes to rest")
            }
            promises["what is acknowledged after a restore is there"] = lambda: self._judge_since(
                rows, since_us
            )
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
            if each.operation.status == "open"
            and each.value
            and each.value not in committed
            and not self._is_held(each)
        }
        history = self.campaign.lab.history()
        history = history[history["table"] == MAIN]
        names = zip(history["client"], history["op_id"], strict=True)
        hashes = set(history["value_hash"][[name in gone for name in names]].dropna())
        lives = zip(history["client"], history["session"], strict=True)
        history = history.assign(client=[self._person(name, session) for name, session in lives])
        return History.from_table(history[~(history["value_hash"].isin(hashes) & history["version"].isna())])

    def _person(self, name: str, session: int) -> str:
        """Give who a client is: one that has forgotten everything is another, whom nothing was promised."""
        wipes = sum(session > wiped for wiped in self.campaign.wipes.get(name, ()))
        return f"{name} after wipe {wipes}" if wipes else name

    def _note_rows(self, entries: list[dict[str, Any]]) -> None:
        """Take note of the table and the writer predicate of each value."""
        numbers: dict[str, int] = {}
        for entry in entries:
            if entry["op"] == "table":
                table = entry["table"]
                numbers[table["name"]] = table["number"]
                if table["name"] == SIDE and table["number"] == entry["lsn"]:
                    self._created.append(table["number"])
            elif entry["op"] == "row" and entry["row"]["data"] is not None:
                value = entry["row"]["data"]["v"]
                self._tables[value] = numbers[entry["name"]]
                self._predicates[value] = entry["row"]["predicate"]

    def _judge_odd(self) -> None:
        """Ask whether a message of this cloud or its clients was taken for an odd one."""
        incidents = self.campaign.lab.frame("incidents")
        for row in incidents[incidents["incident"] == "dropped"].itertuples():
            self.problems.append(f"{row.device} has dropped {row.detail}")

    def _judge_bursts(self) -> None:
        for each in self.campaign.bursts:
            if each.seconds is None:
                self.problems.append(
                    f"a write of {each.client} whose messages were lost was not sent again within "
                    f"{BURST_S:g} s, with a read every {each.every_s:g} s"
                )

    def _judge_shown(self) -> None:
        """Ask whether what reads and conflicts have shown is for who asked: readers say always the same."""
        work = self.campaign.work
        for read in work.reads:
            if read.status == "ok" and read.result().aggregates is None:
                self._judge_values(read, [each["v"] for each in read.result().records.values()])
        for each in work.writes:
            error = _error(each.operation) if each.operation.status == "failed" else None
            if isinstance(error, Conflict) and error.store is not None:
                match error.store["data"]:
                    case {"v": str(value)}:
                        self._judge_values(each.operation, [value])

    def _judge_values(self, operation: Any, values: list[str]) -> None:
        data = operation.call.named_arguments["reader"]
        for value in values:
            predicate = self._predicates.get(value)
            if predicate is not None and not Predicate.restore(**predicate)({}, receiver=data):
                self.problems.append(f"{operation} has shown {value!r}, which is hidden from {data}")

    def _judge_tables(self) -> None:
        """Ask whether a client that has seen a table is shown an older one of its name.

        Answers come in some order; a value that was not committed is pending on the device that reads it.
        """
        newest: dict[tuple[str, str], int] = {}
        work = self.campaign.work
        made = (*work.reads, *(each.operation for each in work.writes))
        answered = [each for each in made if each.status == "ok"]
        written = {id(each.operation): each.value for each in work.writes}
        for each in sorted(answered, key=lambda each: (each.responded_us, each.op_id)):
            name = each.call.named_arguments["table"]
            who = self._person(each.process.host.name, each.session), name
            is_read = each.call.name == "read"
            records = (each.result().records or {}).values() if is_read else ()
            if (
                is_read and name == SIDE and each.call.named_arguments["latest"]
            ):  # it knows the table that there is
                before = sum(
                    made.status == "ok" and made.responded_us < each.invoked_us for made in work.creations
                )
                newest[who] = max(newest.get(who, 0), self._created[before - 1] if before else 0)
            values = [str(record["v"]) for record in records] if is_read else [written[id(each)]]
            for value in values:
                number = self._tables.get(value, newest.get(who, 0))
                if is_read and number < newest.get(who, 0):
                    self.problems.append(f"{each} of {who[0]} has shown {value!r} of a dropped table")
                newest[who] = max(number, newest.get(who, 0))

    def _judge_rest(self) -> None:
        """Ask whether all reads were answered, and whether not too much was said."""
        for each in self.campaign.work.reads:
            if not each.done():
                self.problems.append(f"{each} of {each.call.named_arguments} was never answered")
        if (events := self.campaign.lab.world.handled) > MOST_EVENTS:
            self.problems.append(f"{events:,} events were handled")

    def _judge_writes(self, rows: list[dict[str, Any]]) -> None:
        times: Counter[str] = Counter(row["data"]["v"] for row in rows if row["data"] is not None)
        at = {(row["key"], row["ver"]): row for row in rows}
        self._judge_bases(rows)
        previous = _previous(rows)
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
                    wanted, before = self.campaign.replaces[value], previous[row["lsn"]]
                    is_insert = wanted == 0 and (before is None or before["data"] is None)
                    if (0 if before is None else before["ver"]) != wanted and not is_insert:
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
            if times[value] != 1 - is_held:
                self.problems.append(
                    f"{value!r} was kept by a device, and was committed {times[value]} times"
                )
        for row in rows:
            before = previous[row["lsn"]]
            is_next = row["ver"] == 1 + (0 if before is None else before["ver"])
            is_over_hidden = before is not None and before["predicate"] is not None
            if not is_next and not (is_over_hidden and row["ver"] == row["lsn"]):
                self.problems.append(f"version {row['ver']} of {row['key']} stands on {before}")

    def _judge_since(self, rows: list[dict[str, Any]], since_us: int) -> None:
        """Judge the writes since the back end was restored: those before may be lost."""
        times = Counter(row["data"]["v"] for row in rows if row["data"] is not None)
        at = {(row["key"], row["ver"]): row for row in rows}
        for each in self.campaign.work.writes:
            operation = each.operation
            if each.table != MAIN or operation.invoked_us <= since_us:
                continue
            if operation.status == "ok":
                row = at.get((each.key, operation.result()))
                if row is None or (row["data"] or {"v": ""})["v"] != each.value:
                    self.problems.append(f"{each.value!r} was acknowledged after a restore, and is {row}")
            elif not operation.done() and not self._is_held(each):
                self.problems.append(f"{each.value!r} was never answered after a restore")
            if each.value and times[each.value] > 1:
                self.problems.append(f"{each.value!r} was committed {times[each.value]} times")

    def _judge_bases(self, rows: list[dict[str, Any]]) -> None:
        """Ask whether each conditional write that was committed replaces the record that its client held."""
        kinds = {each.value: each.kind for each in self.campaign.work.writes}
        previous = _previous(rows)
        for row in rows:
            value = None if row["data"] is None else row["data"]["v"]
            if value is None or kinds[value] != "conditional":
                continue
            before, base = previous[row["lsn"]], self.campaign.bases[value]
            replaced = None if before is None or before["data"] is None else before["data"]["v"]
            if replaced != base:
                self.problems.append(f"{value!r} was to replace {base!r}, and has replaced {replaced!r}")

    def _was_refused(self, each: Written) -> bool:
        """Say whether a write was refused on the device because its client's token had expired by then."""
        is_expired = isinstance(_error(each.operation), TokenExpired)
        return is_expired and self.campaign.has_expired(each.client, each.operation.invoked_us)

    def _is_held(self, each: Written) -> bool:
        """Say whether a write is listed as held."""
        return any(
            held["key"] == each.key
            and held["name"] == each.table
            and (held["data"] or {"v": ""})["v"] == each.value
            for held in self.campaign.held[each.client]
        )

    def _judge_held(self) -> None:
        """Ask whether all that is left on devices is listed as held, or stands behind such a write."""
        for name, listed in self.campaign.held.items():
            (process,) = self.campaign.lab.world.hosts[name].processes
            stored = [write for _, write in process.store.items("write ")]
            if [each["number"] for each in stored] != [each["number"] for each in listed]:
                self.problems.append(f"{name} holds {stored}, and lists {listed}")
            has_expired = self.campaign.has_expired(name, self.campaign.lab.world.now_us)
            heads: dict[tuple[str, str], Any] = {}
            for write in listed:
                held = heads.setdefault((write["name"], write["key"]), write)["held"]
                if held != "policy" and not (held == "token" and has_expired):
                    self.problems.append(f"{name} still holds {write}")

    def _judge_policies(self) -> None:
        """Ask whether what was shipped is kept, and whether all who follow have the latest of it.

        A restored generator has lost what was shipped before.
        """
        campaign = self.campaign
        restored_us = campaign.rolled_back_us.get(campaign.cloud.generator.split("/")[0])
        store = campaign.lab.world.at_address[campaign.cloud.generator].store
        kept = {body["policy"]: body["document"]["version"] for _, body in store.items("policy ")}
        for each in campaign.work.ships:
            newest = kept.get(each.kind, 0)
            is_lost = restored_us is not None and each.operation.invoked_us <= restored_us
            if each.operation.status != "open" and newest < each.version and not is_lost:
                self.problems.append(f"{each.operation} of version {each.version}, and {newest} is kept")
        for name, said in campaign.policies.items():
            for kind, policy in said.items():
                newest = kept.get(kind, 0)
                is_latest = policy["version"] == newest or (restored_us and policy["version"] > newest)
                if not is_latest or policy["refused"]:
                    self.problems.append(f"{name} has {policy} for {kind}s, and {kept} were shipped")

    def _judge_side(self, rows: list[dict[str, Any]]) -> None:
        """Ask what can be asked of a table that comes and goes."""
        times: Counter[str] = Counter(row["data"]["v"] for row in rows if row["data"] is not None)
        self._judge_bases(rows)
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
        for place, each in enumerate(watch.notified):
            if isinstance(each, dict):
                if place != len(watch.notified) - 1:
                    self.problems.append(f"a continuous read was ended, and told more: {watch.notified}")
                return
            # What is hidden now is taken away as of the version that was told.
            is_late = each.version + (each.kind == "remove") <= last.get(each.key, 0)
            if is_late:
                self.problems.append(f"a continuous read was told {each} after version {last[each.key]}")
            last[each.key] = each.version

    def _judge_conflict(self, key: str, operation: Any, rows: list[dict[str, Any]]) -> None:
        """Ask whether at some time while a write was under way another version was there."""
        error = _error(operation)
        if not isinstance(error, Conflict) or error.local is None:
            self.problems.append(f"a conditional write failed: {error!r}")
        elif "based on" not in error.summary:
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
                    f"a conditional write of {key} that replaces {wanted!r} met a false conflict"
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
                self._judge_order(watch)
                self.problems += watch_problems(self.campaign, watch, rows)


def _previous(rows: list[dict[str, Any]]) -> dict[int, dict[str, Any] | None]:
    """Give for each entry of the log, by its number, the version of the record that it replaces."""
    last: dict[str, dict[str, Any]] = {}
    previous: dict[int, dict[str, Any] | None] = {}
    for row in rows:
        before = last.get(row["key"])
        previous[row["lsn"]] = before if before is None or before["ver"] < row["ver"] else None
        last[row["key"]] = row
    return previous


def _error(operation: Any) -> BaseException | None:
    """Give what an operation that failed has raised."""
    try:
        operation.result()
    except MudkitError as error:
        return error
    return None


def play(seed: int) -> Judgement:
    """Let a run happen, and judge it."""
    campaign = Campaign(seed)
    campaign.run()
    return Judgement(campaign)
