"""A crew with shared job lists: three ways to keep them on a phone, and what each costs (Mobius 6).

A listener cache keeps a continuous read for each screen, an upload queue replicates the whole subset of a
user, and policies read and write when an answer is worth it. All three are calls of the same client.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final, Literal

from mudkit import intervals
from mudkit.checks import OneOf, Range, check_arguments
from mudkit.errors import ParameterError
from mudkit.events import Operation
from mudkit.lab import Lab
from mudkit.scenario import Activity, schedule
from mudkit.sources.outages import Outages
from mudkit.sources.streams import Stream
from mudkit.sources.workloads import Poisson
from mudkit.systems.mud import Client, Cloud, ReadPolicy, Utility, WritePolicy, freshness
from mudkit.wire import Fields
from mudkit.words import Label, add_labels

if TYPE_CHECKING:
    import pandas as pd

add_labels(
    {
        "j_per_hour": Label("radio energy", "J an hour and phone"),
        "kb_per_hour": Label("data", "kB an hour and phone"),
        "messages_per_hour": Label("messages", "an hour and phone"),
        "wakeups_per_hour": Label("wake-ups", "an hour and phone"),
        "local_share": Label("answered by the phone", "% of looks", 100.0),
        "incomplete_share": Label("perhaps incomplete", "% of looks", 100.0),
        "answer_s": Label("until the answer", "s, mean"),
        "oldest_s": Label("age of the oldest record", "s, mean"),
        "commit_s": Label("until others can see a report", "s, mean"),
        "office_changes": Label("changes by the office", "an hour"),
        "looks_per_hour": Label("looks", "an hour and phone"),
    }
)

_APP: Final = "jobs"
_OFFICE: Final = "office"
_TEXT: Final = "x" * 200
_MAX_WAIT_H: Final = 2.0
_STEP_H: Final = 1 / 12


@check_arguments(types=False)
@dataclass(frozen=True)
class SyncEngine:
    """Settings of a phone that keeps job lists: what it listens to, and when it reads and writes.

    Parameters
    ----------
    listens : {'screens', 'all', 'nothing'}
        Continuous reads that the app opens when it starts, and keeps: one for each list that its user looks
        at, one for all lists of the crew, or none.
    read_policy : ReadPolicy, optional
        Which looks the phone answers; None: those for which it has an answer that is young enough.
    write_policy : WritePolicy, optional
        When a report is sent; None: its utility decides, and without one it is sent at once.
    write_utility : Utility, optional
        What a delay of a report costs and saves.
    """

    listens: Annotated[Literal["screens", "all", "nothing"], OneOf()] = "screens"
    read_policy: ReadPolicy | None = None
    write_policy: WritePolicy | None = None
    write_utility: Utility | None = None


@check_arguments(types=False)
@dataclass(frozen=True)
class Crew:
    """Plan of a shift: phones of a crew that look at job lists and report, and an office that changes jobs.

    Looks, reports and changes are Poisson processes; a look is at one of the user's lists, a report is a
    write to a job of one, and a change is a write to a job of any list. All are drawn evenly.

    Parameters
    ----------
    phones, lists, jobs : int
        Phones, lists of the crew, and jobs of a list.
    screens : int
        Number of the lists that each user looks at, all if there are fewer. Those of two users are different
        ones as far as there are enough.
    elsewhere_share : float
        Share of the looks that are at any list of the crew instead.
    looks_per_hour, reports_per_hour : float
        Looks and reports of each user.
    changes_per_hour : float
        Changes by the office, in all lists together.
    max_age_s : float
        Age up to which users accept an answer of the phone, in seconds.
    offline_share : float
        Share of time without a network, in outages of which four begin an hour.
    hours : float
        Virtual time of looks, reports and changes.
    link : str
        Link of the phones, as in :meth:`mudkit.lab.Lab.device`.

    Raises
    ------
    ParameterError
        A value is out of range.

    Examples
    --------
    >>> Crew(phones=1, hours=1.0).run(SyncEngine(listens="all"), seed=1)["stale_share"]
    0.0
    """

    phones: Annotated[int, Range(1, 1000)] = 2
    lists: Annotated[int, Range(1, 1000)] = 8
    jobs: Annotated[int, Range(1, 100)] = 4
    screens: Annotated[int, Range(1, 1000)] = 3
    elsewhere_share: Annotated[float, Range(0.0, 1.0)] = 0.1
    looks_per_hour: Annotated[float, Range(0.0, 3600.0)] = 24.0
    reports_per_hour: Annotated[float, Range(0.0, 3600.0)] = 10.0
    changes_per_hour: Annotated[float, Range(0.0, 3600.0)] = 12.0
    max_age_s: Annotated[float, Range(0.0, 1e6)] = 60.0
    offline_share: Annotated[float, Range(0.0, 0.99)] = 0.0
    hours: Annotated[float, Range(0.01, 1000.0)] = 2.0
    link: str = "lte"

    def run(self, engine: SyncEngine, seed: int = 0) -> dict[str, float]:
        """Run the plan with an ``engine`` on each phone; same ``seed``: same looks, reports and changes.

        The run lasts until all reports are committed, at most two hours more, so that what waits is on
        the bill. The result has the radio energy and the traffic of a phone in an hour, its first
        synchronisation included (``j_per_hour, kb_per_hour, messages_per_hour, wakeups_per_hour``). Of the
        ``looks``, it has the shares that the phone answered alone (``local_share``), that lacked a version
        committed before (``stale_share``), and of which the phone said that records may be missing
        (``incomplete_share``), the time until the answer (``answer_s``), and the age of its oldest record
        (``oldest_s``). Of reports, it has the time until they were committed (``commit_s``). NaN: none.
        """
        shift = _Shift(self, engine, seed)
        shift.work()
        return shift.measures()

    def compare(self, engines: Mapping[str, SyncEngine], seeds: Iterable[int] = range(3)) -> pd.DataFrame:
        """Run the plan with each of ``engines`` and each of ``seeds``.

        The result has a row of ``engine`` and the means of the measures of :meth:`run`, each with ``…_low``
        and ``…_high``: the 95 % interval over the seeds, and below five seeds their range. Without an engine
        or a seed, it raises a ParameterError.
        """
        import pandas as pd

        numbers = list(seeds)
        if not engines or not numbers:
            raise ParameterError("There is nothing to run.", where="engines, seeds", expected="one of each")
        rows: list[dict[str, object]] = []
        for name, engine in engines.items():
            runs = pd.DataFrame([self.run(engine, seed) for seed in numbers])
            row: dict[str, object] = {"engine": name}
            for measure in runs.columns:
                over_seeds = intervals.mean(runs[measure].dropna())
                row |= {measure: over_seeds.value, f"{measure}_low": over_seeds.low}
                row[f"{measure}_high"] = over_seeds.high
            rows.append(row)
        return pd.DataFrame(rows)


class _Shift:
    """Run of a plan with one engine."""

    def __init__(self, plan: Crew, engine: SyncEngine, seed: int) -> None:
        self._plan, self._engine = plan, engine
        self._lab = lab = Lab(seed, record_messages=False)
        cloud, token = Cloud(lab), lab.token(user="crew", app=_APP)
        self._office = Client(lab.device(_OFFICE, link="ideal"), cloud, app=_APP, token=token)
        outage = Outages(plan.offline_share, per_day=96.0)
        self._phones = {
            name: Client(
                lab.device(name, link=plan.link, outage=outage),
                cloud,
                app=_APP,
                token=token,
                read_policy=engine.read_policy,
                write_policy=engine.write_policy,
            )
            for name in (f"phone-{number + 1}" for number in range(plan.phones))
        }
        self._names = list(self._phones)
        self._draws = {what: Stream(seed, f"crew: {what}") for what in ("list", "job", "way")}
        self._steps = dict.fromkeys([_OFFICE, *self._names], 0)
        self._versions: list[dict[str, int]] = [{} for _ in range(plan.lists)]
        """Committed version of each job, by list."""
        self._looks: list[dict[str, float]] = []
        self._reports: dict[Operation, int] = {}
        """Time in µs of each report that is not committed."""
        self._commit_s: list[float] = []
        self._office.create(_APP, writer_predicates=False).result()
        for number in range(plan.lists):
            for job in range(plan.jobs):
                self._write(self._office, number, job)
        lab.run(minutes=1)

    def work(self) -> None:
        """Run the shift, until its reports are committed."""
        plan, lab = self._plan, self._lab
        for name, phone in self._phones.items():
            for predicate in self._listened(name):
                phone.read(_APP, predicate, "continuous", sync_timestamp=0)
        schedule(
            lab,
            plan.hours,
            [
                Activity("looks", Poisson(24 * plan.looks_per_hour), self._names, self._look),
                Activity("reports", Poisson(24 * plan.reports_per_hour), self._names, self._report),
                Activity("changes", Poisson(24 * plan.changes_per_hour), [_OFFICE], self._change),
            ],
        )
        lab.run(hours=plan.hours)
        waited_h = 0.0
        while self._reports and waited_h < _MAX_WAIT_H:
            lab.run(hours=_STEP_H)
            waited_h += _STEP_H

    def measures(self) -> dict[str, float]:
        """Return the measures; see :meth:`Crew.run`."""
        bill = self._lab.bill()
        bill = bill[bill["device"].isin(self._names)]
        phone_hours = self._plan.phones * self._plan.hours
        sums = bill[["radio_mj", "bytes", "messages", "wakeups"]].sum() / phone_hours
        late_s = [(self._lab.world.now_us - t_us) / 1e6 for t_us in self._reports.values()]
        return {
            "j_per_hour": float(sums["radio_mj"]) / 1000,
            "kb_per_hour": float(sums["bytes"]) / 1000,
            "messages_per_hour": float(sums["messages"]),
            "wakeups_per_hour": float(sums["wakeups"]),
            "looks": float(len(self._looks)),
            **{
                name: _mean([look[name] for look in self._looks])
                for name in ("local_share", "stale_share", "incomplete_share", "answer_s", "oldest_s")
            },
            "commit_s": _mean(self._commit_s + late_s),
        }

    def _screens(self, name: str) -> list[int]:
        """Return the lists that a user looks at."""
        count = min(self._plan.screens, self._plan.lists)
        first = self._names.index(name) * count
        return [(first + number) % self._plan.lists for number in range(count)]

    def _listened(self, name: str) -> list[str | None]:
        """Return the predicates of the continuous reads of a phone; None: all records."""
        if self._engine.listens == "all":
            return [None]
        return [_query(number) for number in self._screens(name)] if self._engine.listens == "screens" else []

    def _look(self, name: str) -> None:
        """Read one of the user's lists, or any."""
        device, step = self._lab.devices[name].number, self._steps[name]
        is_elsewhere = self._draws["way"].uniform(device, step) < self._plan.elsewhere_share
        screens = list(range(self._plan.lists)) if is_elsewhere else self._screens(name)
        number = screens[self._draw("list", name, len(screens))]
        read = self._phones[name].read(
            _APP, _query(number), "uncommitted", utility=freshness(self._plan.max_age_s)
        )
        asked_us, committed = self._lab.world.now_us, dict(self._versions[number])
        read.add_done_callback(partial(self._record_look, asked_us, committed))

    def _record_look(self, asked_us: int, committed: Mapping[str, int], read: Operation) -> None:
        """Record the answer of a look; a pending version is the newest one."""
        answer = read.result()
        versions = {key: math.inf if version is None else version for key, version in answer.versions.items()}
        self._looks.append(
            {
                "local_share": float("remote" not in answer.source.values()),
                "stale_share": float(any(versions.get(key, 0) < last for key, last in committed.items())),
                "incomplete_share": float(not answer.is_complete),
                "answer_s": (self._lab.world.now_us - asked_us) / 1e6,
                "oldest_s": max(answer.age_s.values(), default=0.0),
            }
        )

    def _report(self, name: str) -> None:
        """Write a job of one of the user's lists."""
        screens = self._screens(name)
        number = screens[self._draw("list", name, len(screens))]
        report = self._write(
            self._phones[name], number, self._draw("job", name, self._plan.jobs), self._engine.write_utility
        )
        self._reports[report] = self._lab.world.now_us
        report.add_done_callback(self._record_report)

    def _record_report(self, report: Operation) -> None:
        """Record the time until a report was committed."""
        self._commit_s.append((self._lab.world.now_us - self._reports.pop(report)) / 1e6)

    def _change(self, name: str) -> None:
        """Write a job of any list from the office."""
        number = self._draw("list", name, self._plan.lists)
        self._write(self._office, number, self._draw("job", name, self._plan.jobs))

    def _write(self, client: Client, number: int, job: int, utility: Utility | None = None) -> Operation:
        """Write a job, and note its version when it is committed."""
        key, now_us = f"{number}-{job}", self._lab.world.now_us
        record: Fields = {"list": number, "text": _TEXT, "written_us": now_us}
        write = client.write(_APP, key, record, utility=utility)
        write.add_done_callback(partial(self._record_version, self._versions[number], key))
        return write

    def _record_version(self, versions: dict[str, int], key: str, write: Operation) -> None:
        """Record the committed version of a job."""
        versions[key] = max(versions.get(key, 0), write.result())

    def _draw(self, what: Literal["list", "job"], name: str, count: int) -> int:
        """Draw a number below ``count``."""
        self._steps[name] += 1
        device = self._lab.devices[name].number
        return int(self._draws[what].integers(device, self._steps[name], 0, count))


def _query(number: int) -> str:
    """Return the predicate of a list."""
    return f"list = {number}"


def _mean(values: list[float]) -> float:
    """Return the mean; NaN: of nothing."""
    return math.fsum(values) / len(values) if values else math.nan
