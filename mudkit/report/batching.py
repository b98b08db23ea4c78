"""Delays of writes in the report cache_policy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from mudkit import words
from mudkit.errors import TraceContentError
from mudkit.intervals import Interval
from mudkit.learning import Batch
from mudkit.learning.delays import GRID_MINUTES, DelaySearch, ReplayedDelay, search_delays
from mudkit.learning.devices import LocalWriters, Writers, open_writers
from mudkit.learning.search import MIN_READS
from mudkit.learning.trees import Folds
from mudkit.learning.writes import ReadRequests, Writes
from mudkit.report.page import Answer, Measure
from mudkit.report.source import TraceSource
from mudkit.trace.schema import read_ids
from mudkit.trace.summaries import Distributed, select

LABELS: Final = {
    "message_share": "messages, % of writes",
    "point_share": "writes sent, %",
    "missed_share": "reads made stale, %",
}
MIN_RISK: Final = 0.001
"""Less than this is nothing that the days of a trace can tell."""
_LEARNT: Final = "learnt delays"
_MAX_READS: Final = 20_000
"""Reads that are judged, about; of more, every n-th."""


@dataclass(frozen=True)
class WriteStudy:
    """Delays of writes that every device follows, with the reads that each makes stale.

    ``best`` is the fixed delay with the fewest messages that keeps the limit with a margin, 0 without one;
    ``fixed``, the one given, plays no part in that. Both are in minutes. ``risk`` is the probability that
    delays chosen as ``best`` is exceed the limit on as many other devices and days. Without any ``policies``,
    ``problem`` says why.
    """

    fixed: float
    best: float
    risk: float
    max_stale: float
    policies: pd.DataFrame
    problem: str

    def table(self) -> pd.DataFrame:
        """Return what is shown of the policies."""
        names = ["message_share", "point_share", "missed_share"]
        columns = [f"{name}{end}" for name in names for end in ("", "_low", "_high")]
        return self.policies[["policy", *columns]] if len(self.policies) else self.policies

    def answer(self) -> Answer:
        """Return how long writes may wait, as a heading, and what a learnt delay adds."""
        if not len(self.policies):
            return Answer("Nothing can be said of writes", self.problem)
        limit, fixed = words.percent(self.max_stale), self._row(self.fixed)
        text = (
            "A read is stale when it lacks too much of what others wrote because it waits on their devices. "
            "All devices delay their writes alike, and every read asks the server. Together with a cache "
            "more are stale than both shares added: what is answered from it may have lacked writes when it "
            "was fetched, too. The limit is for one of the two. A delay of "
            f"{words.duration(60 * self.fixed)} (`batch_minutes`), to compare with, makes "
            f"{self._stale(fixed)} of the reads stale, with {self._messages(fixed)}. "
        )
        learnt = self.policies[self.policies["policy"] == _LEARNT]
        if len(learnt):
            row = learnt.iloc[0]
            text += (
                f"Delays that a tree has learnt by place and time take {self._messages(row)}, and make "
                f"{self._stale(row)} of the reads stale."
            )
        elif self.problem:
            text += f"No delay was learnt: {self.problem}"
        else:
            text += "No delays that a tree has learnt by place and time keep the limit with a margin."
        if not self.best:
            return Answer(f"Writes should not wait: no delay surely keeps to {limit} of stale reads", text)
        best = self._row(self.best)
        return Answer(
            f"Let writes wait {words.duration(60 * self.best)}: "
            f"{self._stale(best)} of the reads become stale",
            f"At most {limit} may; on as many other devices and days the limit is exceeded with a "
            f"probability of {shown_risk(self.risk)}. It takes {self._messages(best)}, "
            f"{words.percent(1.0 - best['message_share'])} fewer than sending each write at once. {text}",
        )

    def summary(self, writes_per_day: float) -> str:
        """Return how long writes may wait, and what that saves, or why nothing is known, in a sentence."""
        if not len(self.policies):
            return f"Nothing is recommended for writes: {self.problem}" if self.problem else ""
        if not self.best:
            return "Writes should not wait."
        best = self._row(self.best)
        saved = 1.0 - best["message_share"]
        return (
            f"If every read asks the server, writes may wait {words.duration(60 * self.best)}: "
            f"{self._stale(best)} of the reads become stale, and "
            f"{words.percent(saved)} of the writes' messages are saved, "
            f"{words.number(round(saved * writes_per_day))} a day (below)."
        )

    def measures(self, writes_per_day: float) -> list[Measure]:
        """Return the figures of :meth:`summary`."""
        if not len(self.policies):
            return []
        best = self._row(self.best)

        def ends(name: str) -> tuple[float | None, float | None]:
            return (float(best[f"{name}_low"]), float(best[f"{name}_high"])) if self.best else (None, None)

        low, high = ends("message_share")
        saved = 1.0 - float(best["message_share"])
        fewest, most = (None if end is None else (1.0 - end) * writes_per_day for end in (high, low))
        return [
            Measure("write_delay_s", 60 * self.best, "s", "How long writes may wait if every read asks."),
            Measure(
                "write_message_share",
                float(best["message_share"]),
                "share",
                "Messages that writes take with it, of the writes.",
                low,
                high,
            ),
            Measure(
                "write_messages_saved_share",
                saved,
                "share",
                "Messages of writes that it saves.",
                *(None if end is None else 1.0 - end for end in (high, low)),
            ),
            Measure(
                "write_messages_saved_per_day",
                saved * writes_per_day,
                "messages/day",
                "Messages of writes that it saves the fleet a day.",
                fewest,
                most,
            ),
            Measure(
                "write_stale_share",
                float(best["missed_share"]),
                "share",
                "Reads that become stale because all writes wait so long.",
                *ends("missed_share"),
            ),
            Measure(
                "write_limit_risk",
                max(self.risk, MIN_RISK) if self.best else 0.0,
                "share",
                "Probability that of the reads of as many other devices and days more become stale than "
                f"allowed; {MIN_RISK:g} if lower, 0 if writes do not wait.",
            ),
        ]

    def _row(self, minutes: float) -> pd.Series:
        """Return the row of the policies with this fixed delay."""
        return self.policies[self.policies["minutes"] == minutes].iloc[0]

    def _stale(self, row: pd.Series) -> str:
        """Return the share of stale reads as the table rounds it."""
        return words.percent(float(row["missed_share"]), words.decimals(100 * self.policies["missed_share"]))

    def _messages(self, row: pd.Series) -> str:
        """Return the messages of writes as the table rounds them."""
        places = words.decimals(100 * self.policies["message_share"])
        count = words.number(100 * float(row["message_share"]), places)
        return f"{count} {'message' if count == '1' else 'messages'} per 100 writes"


def shown_risk(risk: float) -> str:
    """Return a probability in words; one below :data:`MIN_RISK` as less than that."""
    return words.percent(risk) if risk >= MIN_RISK else f"less than {words.percent(MIN_RISK, 1)}"


def study_writes(
    source: TraceSource,
    *,
    batch_minutes: float,
    completeness: float,
    max_stale: float,
    folds: Folds = "device",
) -> WriteStudy:
    """Search for the fixed delay of writes with the fewest messages, and for learnt delays beside it.

    Parameters
    ----------
    source : TraceSource
    batch_minutes : float
        A delay to compare with, in minutes; what is recommended does not depend on it.
    completeness : float
        Share of what others wrote below which a read is stale.
    max_stale : float
        Largest share of the reads that may become stale because writes wait.
    folds : {'device', 'time'}
        What delays are scored on: other devices, or other days, than those they are chosen on.
    """
    unknown = WriteStudy(batch_minutes, 0.0, 0.0, max_stale, pd.DataFrame(), "")
    if problem := count_lacking(source.read_count, "read") or count_lacking(source.count, "write"):
        return replace(unknown, problem=problem)
    requests = ReadRequests.of(_judged(source))
    limits: dict[str, Any] = {"completeness": completeness, "max_stale": max_stale, "folds": folds}
    with ExitStack() as stack:
        try:
            writers = stack.enter_context(_open_writes(source))
            search = search_delays(writers, requests, **limits)
        except TraceContentError as error:
            return replace(unknown, problem=error.summary)
        replays = search.search()
        chosen, risk = search.choose(replays)
        best = 0.0 if chosen is None else chosen.minutes
        fixed = next((one for one in replays if one.minutes == batch_minutes), None)
        shown = [one for one in replays if one.minutes in (*GRID_MINUTES, best)]
        if fixed not in shown:
            shown.append(fixed or search.replay(Batch(batch_minutes)))
        problem, learnt = "", None
        try:
            learnt = search.best(search.learnt())
        except TraceContentError as error:
            problem = error.summary
        rows = [_row(search, one) for one in sorted(shown, key=lambda one: one.minutes)]
        rows += [_row(search, learnt)] if learnt is not None else []
    return replace(unknown, best=best, risk=risk, policies=pd.DataFrame(rows), problem=problem)


@dataclass(frozen=True)
class _EveryNth:
    """Every n-th read, by a checksum."""

    n: int

    def holds(self, reads: pa.Table) -> NDArray[np.bool_]:
        """Return a mask of the reads that are chosen."""
        chosen: NDArray[np.bool_] = read_ids(reads).astype(np.uint64) % np.uint64(self.n) == 0
        return chosen


def _judged(source: TraceSource) -> pa.Table:
    """Return the reads that are judged: all, or every n-th."""
    chosen = _EveryNth(-(-source.read_count // _MAX_READS))
    judged = select(source.reads, chosen.holds)
    return judged.collect() if isinstance(judged, Distributed) else judged


@contextmanager
def _open_writes(source: TraceSource) -> Iterator[Writers]:
    """Open a context with the first read of each write: in memory, or on Spark."""
    if isinstance(source.positions, pa.Table):
        yield LocalWriters(Writes.unread(source.positions).seen_by(ReadRequests.of(source.reads)))
        return
    from mudkit.pipeline import label_writes  # it loads Spark

    positions = source.positions.frame
    with open_writers(label_writes(positions, source.reads.frame), positions) as writers:
        yield writers


def _row(search: DelaySearch, replayed: ReplayedDelay) -> dict[str, Any]:
    """Measure a delay, and return its row: shares with intervals; those of sending at once need none."""
    shown: dict[str, Interval] = {
        "message_share": search.share_of_writes(replayed.messages),
        "point_share": search.share_of_writes(replayed.points),
        "missed_share": search.stale_share(replayed),
    }
    row: dict[str, Any] = {"policy": _delay(replayed.minutes), "minutes": replayed.minutes}
    for name, of in shown.items():
        is_certain = replayed.minutes == 0 or (name == "point_share" and of.value == 1)
        low, high = (np.nan, np.nan) if is_certain else (of.low, of.high)
        row |= {name: of.value, f"{name}_low": low, f"{name}_high": high}
    return row


def _delay(minutes: float) -> str:
    """Return a delay in words; NaN is the learnt one."""
    if np.isnan(minutes):
        return _LEARNT
    return f"wait {words.duration(60 * minutes)}" if minutes else "at once"


def count_lacking(rows: int, what: str) -> str:
    """Return that there are too few rows for a recommendation, as a sentence; empty if there are enough."""
    if rows >= MIN_READS:
        return ""
    return f"{words.count(rows, what)} {'is' if rows == 1 else 'are'} too few; {MIN_READS} are needed."
