"""F3: what it takes to import mudkit, to start a session, and to run the first jobs."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from typing import Final

from mudkit.reproduce.lab.spark_modes import answer_of
from mudkit.reproduce.row import Figure, Measured, Say, say_nothing

__all__ = ["measure"]

# Not a function of this module, whose own imports are half of what there is to measure.
_START: Final = """
import time
at = [time.perf_counter()]
from mudkit import pipeline
at.append(time.perf_counter())
import json, sys
spark = pipeline.session(**json.loads(sys.argv[1]))
at.append(time.perf_counter())
try:
    spark.range(1000).selectExpr("id % 7 AS rest").groupBy("rest").count().toArrow()
    at.append(time.perf_counter())
    for _ in range(10):
        spark.range(1000).count()
        at.append(time.perf_counter())
    for _ in range(2):
        spark.range(1000).mapInArrow(lambda batches: batches, "id BIGINT").toArrow()
        at.append(time.perf_counter())
finally:
    pipeline.stop()
took = [b - a for a, b in zip(at, at[1:])]
names = ("import", "session", "job", "action", "python", "again")
print(json.dumps(dict(zip(names, [*took[:3], sorted(took[3:13])[5], *took[13:]]))))
"""


def measure(say: Say = say_nothing, *, runs: int = 5) -> Measured:
    """Measure row F3: each time in a process of its own, with a cache of its own for the first start.

    Parameters
    ----------
    say : callable
        Called with a sentence about what is measured next.
    runs : int
        How many times each way to start is measured.
    """
    imports: list[float] = []
    nothing: list[float] = []
    for number in range(runs + 1):
        say(f"import mudkit, {number} of {runs}")
        for took, code in ((imports, "import mudkit"), (nothing, "pass")):
            began_s = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True)
            took.append(time.perf_counter() - began_s)
    figures = {
        "s for import mudkit": Figure.of(imports[1:]),
        "s for import mudkit, of which Python": Figure.of(nothing[1:]),
    }
    with tempfile.TemporaryDirectory(prefix="mudkit-starts-") as cache:
        environ = {"XDG_CACHE_HOME": cache}
        say("the first session")
        first = answer_of(_START, "{}", environ=environ)
        kinds: dict[str, dict[str, str]] = {"": {}, ", Spark Connect": {"remote": "local[*]"}}
        for kind, place in kinds.items():
            again = []
            for number in range(runs):
                say(f"session{kind}, {number + 1} of {runs}")
                again.append(answer_of(_START, json.dumps(place), environ=environ))
            figures |= {
                f"s for a session{kind}": Figure.of(each["session"] for each in again),
                f"s for its imports{kind}": Figure.of(each["import"] for each in again),
                f"s for the first job{kind}": Figure.of(each["job"] for each in again),
                f"s for an action{kind}": Figure.of(each["action"] for each in again),
                f"s for the first job with Python{kind}": Figure.of(each["python"] for each in again),
                f"s for the second job with Python{kind}": Figure.of(each["again"] for each in again),
            }
    figures["s for the first session ever"] = Figure.of([first["session"]])
    figures["s for the first job of the first session ever"] = Figure.of([first["job"]])
    parameters = {
        "import": "whole processes, a warm-up before",
        "sessions": "pipeline.session() alone, in processes of their own; its imports stand beside it",
        "first session ever": "with an empty cache of mudkit's, thus without an archive of Java's classes",
        "an action": "median of 10 counts of 1,000 numbers",
        "runs": runs,
    }
    return Measured(figures, parameters)
