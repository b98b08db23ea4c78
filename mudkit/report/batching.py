"""Delays of writes in the report cache_policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa

from mudkit import words
from mudkit.errors import TraceContentError
from mudkit.learning import Batch, BatchTree
from mudkit.learning.evaluate_batches import measure_writes
from mudkit.learning.search import MIN_READS
from mudkit.learning.trees import Folds
from mudkit.learning.writes import ReadRequests, Writes
from mudkit.report.page import Answer, Measure
from mudkit.report.source import TraceSource

__all__ = ["LABELS", "WriteStudy", "count_lacking", "study_writes"]

LABELS: Final = {
    "message_share": "messages, % of writes",
    "point_share": "writes sent, %",
    "missed_share": "reads made stale, %",
}
_MAX_READS: Final = 20_000
"""Reads that are judged; of more, every n-th."""
_DELAYS_MIN: Final = (0.0, 1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0)


@dataclass(frozen=True)
class WriteStudy:
    """Fixed delays of writes and a learnt one, with the reads that each makes stale.

    ``best`` is the longest delay that keeps the limit in every turn, 0 without one, and ``fixed`` the fixed
    delay given, both in minutes. Without any policies, ``problem`` says why.
    """

    fixed: float
    best: float
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
        rows = {str(row["kind"]): row for _, row in self.policies.iterrows()}
        limit = words.percent(self.max_stale)
        at_once, fixed = rows["0"], rows[f"{self.fixed:g}"]
        delay = words.duration(60 * self.fixed)
        text = (
            "A read is stale when it lacks too much of what others wrote because it waits on their devices. "
            "Here every read asks the server. Together with a cache more are stale than both shares added: "
            "what is answered from it may have lacked writes when it was fetched, too. The limit is for one "
            f"of the two. A delay of {delay} (`batch_minutes`), to compare with, makes "
            f"{words.percent(fixed['missed_share'], 1)} of the reads stale, with {_messages(fixed)}. "
        )
        if "learnt" in rows:
            learnt = rows["learnt"]
            low, high = (100 * learnt[f"message_share_{end}"] for end in ("low", "high"))
            text += (
                f"Delays learnt from a tenth of the devices take {_messages(learnt)} on the others, in three "
                f"turns {words.interval(low, high, 1)}, "
                f"and make {words.percent(learnt['missed_share'], 1)} of the reads stale."
            )
        elif self.problem:
            text += f"No delay was learnt: {self.problem}"
        if not self.best:
            return Answer(f"Writes should not wait: no delay keeps to {limit} of stale reads", text)
        best = rows[f"{self.best:g}"]
        saved = at_once["message_share"] - best["message_share"]
        return Answer(
            f"Let writes wait {words.duration(60 * self.best)} at most: "
            f"{words.percent(best['missed_share'], 1)} of the reads become stale",
            f"At most {limit} may be. It takes {_messages(best)}, {words.percent(saved)} fewer than sending "
            f"each write at once. {text}",
        )

    def summary(self, writes_per_day: float) -> str:
        """Return how long writes may wait, and what that saves, or why nothing is known, in a sentence."""
        if not len(self.policies):
            return f"Nothing is recommended for writes: {self.problem}" if self.problem else ""
        if not self.best:
            return "Writes should not wait."
        best, at_once = self._row(f"{self.best:g}"), self._row("0")
        saved = 1.0 - best["message_share"] / at_once["message_share"]
        return (
            f"If instead every read asks the server, writes may wait {words.duration(60 * self.best)}, which "
            f"saves {words.percent(saved)} of their messages, "
            f"{words.number(round(saved * writes_per_day))} a day (below)."
        )

    def measures(self) -> list[Measure]:
        """Return the figures of :meth:`summary`."""
        if not len(self.policies):
            return []
        best = self._row(f"{self.best:g}")
        ends = (float(best[f"message_share_{end}"]) for end in ("low", "high"))
        return [
            Measure("write_delay_s", 60 * self.best, "s", "How long writes may wait if every read asks."),
            Measure(
                "write_message_share",
                float(best["message_share"]),
                "share",
                "Messages that writes take with it, of the writes.",
                *ends,
            ),
        ]

    def _row(self, kind: str) -> pd.Series:
        return self.policies[self.policies["kind"] == kind].iloc[0]


def _messages(row: pd.Series) -> str:
    return f"{words.number(100 * row['message_share'])} messages per 100 writes"


def study_writes(
    source: TraceSource,
    *,
    batch_minutes: float,
    completeness: float,
    max_stale: float,
    folds: Folds = "device",
) -> WriteStudy:
    """Replay fixed delays of writes, and a learnt one that makes no more reads stale than the best of them.

    Parameters
    ----------
    source : TraceSource
    batch_minutes : float
        A delay to compare with, in minutes.
    completeness : float
        Share of what others wrote below which a read is stale.
    max_stale : float
        Largest share of the reads that may become stale because writes wait.
    folds : {'device', 'time'}
        What delays are learnt from and tested on: other devices, or other days.
    """
    step = -(-len(source.reads) // _MAX_READS)
    judged = source.reads.take(pa.array(np.arange(0, len(source.reads), step or 1)))

    def evaluated(*policies: Batch | BatchTree) -> pd.DataFrame:
        table = measure_writes(writes, requests, policies, folds, completeness)
        kinds = [f"{one.minutes:g}" if isinstance(one, Batch) else "learnt" for one in policies]
        return table.assign(kind=kinds, policy=[_delay(one) for one in policies])

    table, best = pd.DataFrame(), 0.0
    problem = count_lacking(len(source.reads), "read") or count_lacking(len(source.positions), "write")
    if problem:
        return WriteStudy(batch_minutes, best, max_stale, table, problem)
    try:
        writes = Writes.unread(source.positions).seen_by(ReadRequests.of(source.reads))
        requests = ReadRequests.of(judged).counted(writes)
        table = evaluated(*(Batch(minutes) for minutes in sorted({*_DELAYS_MIN, batch_minutes})))
        highest = table["missed_share_high"].fillna(table["missed_share"])
        best = max((float(kind) for kind in table["kind"][highest <= max_stale]), default=0.0)
        learnt = evaluated(BatchTree(match=Batch(best or batch_minutes)))
        table = pd.concat([table, learnt], ignore_index=True)
    except TraceContentError as error:
        problem = error.summary
    return WriteStudy(batch_minutes, best, max_stale, table, problem)


def count_lacking(rows: int, what: str) -> str:
    """Return that there are too few rows for a recommendation, as a sentence; empty if there are enough."""
    if rows >= MIN_READS:
        return ""
    return f"{words.count(rows, what)} {'is' if rows == 1 else 'are'} too few; {MIN_READS} are needed."


def _delay(policy: Batch | BatchTree) -> str:
    if isinstance(policy, BatchTree):
        return "learnt delays"
    return f"wait {words.duration(60 * policy.minutes)}" if policy.minutes else "at once"
