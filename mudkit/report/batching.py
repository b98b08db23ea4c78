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
from mudkit.learning.trees import Folds
from mudkit.learning.writes import ReadRequests, Writes
from mudkit.report.page import Answer
from mudkit.report.source import TraceSource

__all__ = ["LABELS", "WriteStudy", "study_writes"]

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

    ``best`` is the longest delay that keeps the limit in every turn, 0 without one, and ``in_use`` the fixed
    delay in use, both in minutes. Without any policies, ``problem`` says why.
    """

    in_use: float
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
        at_once, in_use = rows["0"], rows[f"{self.in_use:g}"]
        delay = words.duration(60 * self.in_use)
        text = (
            "A read is stale when it lacks too much of what others wrote because it waits on their devices. "
            "Here every read asks the server. Together with a cache more are stale than both shares added: "
            "what is answered from it may have lacked writes when it was fetched, too. The limit is for one "
            f"of the two. The delay in use (`batch_minutes`), {delay}, makes "
            f"{words.percent(in_use['missed_share'], 1)} of the reads stale, with {_messages(in_use)}. "
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
            f"{limit} may. It takes {_messages(best)}, {words.percent(saved)} fewer than sending each write "
            f"at once. {text}",
        )


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
        The delay in use.
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

    table, problem, best = pd.DataFrame(), "", 0.0
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


def _delay(policy: Batch | BatchTree) -> str:
    if isinstance(policy, BatchTree):
        return "learnt delays"
    return f"wait {words.duration(60 * policy.minutes)}" if policy.minutes else "at once"
