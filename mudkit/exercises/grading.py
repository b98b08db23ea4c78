"""Grading of the files that a class hands in: one table of verdicts."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Final

import pandas as pd
from hypothesis.strategies import integers

from mudkit.checks import check_arguments
from mudkit.errors import MudkitError, ParameterError, brief, did_you_mean
from mudkit.exercises.judges import exercises_of
from mudkit.exercises.judging import (
    WAIT_FACTOR,
    WITHIN_S,
    Clock,
    Exercise,
    Overtime,
    PieceError,
    PlayedScenario,
    judged,
)
from mudkit.exercises.pieces import KINDS, read_source
from mudkit.exercises.register import EXERCISES
from mudkit.exercises.solution import FORK, Solution, SolutionEnded, close_inherited
from mudkit.files import existing_path
from mudkit.progress import VARIABLE, bar

_SPARE_S: Final = 120.0
"""Time for the start of the processes, beside the limits of loading and judging."""
_PROGRAM: Final = "from mudkit.exercises.grading import judge_each; judge_each()"
_COLUMNS: Final = [
    "name", "file", "exercise", "piece", "verdict", "points", "scenarios", "scenario", "problem",
]  # fmt: skip
_ANYTHING: Final = Exercise(
    "anything() -> nothing", "Anything passes.", integers(), lambda piece, number: PlayedScenario("", None)
)
_POINTS: Final = {"passed": 1, "not yet": 0, "not there": 0}
_JUDGED: Final = ("passed", "not yet")


@check_arguments(types=False)
def grade(
    files: Sequence[str | Path],
    *,
    judges: str | Path | None = None,
    exercises: Sequence[str] = (),
    within_s: float = WITHIN_S,
) -> pd.DataFrame:
    """Judge the solutions in notebooks and Python files.

    Each solution is loaded together with the names it uses and the statements that change their objects, in
    the folder of its file or, if a file is missing there, in that of the chapters. It runs in a process of
    its own and answers the judge over a pipe; the verdict is the one that :func:`judge` gives in the
    notebook. One that does not end, or ends its process, does not affect the others. A solution has all
    rights of the user: judge strangers' files on an account without access to anything valuable.

    Parameters
    ----------
    files : sequence of path-like
        Notebooks and Python files, each with any number of solutions, and folders, which are searched
        recursively. A solution is a function with the name that the exercise asks for, or the one that the
        file itself passes to ``judge`` last.
    judges : path-like, optional
        A Python file that defines ``EXERCISES``, a dictionary of :class:`~mudkit.exercises.Exercise` by name,
        in addition to those of the chapters.
    exercises : sequence of str
        Names of the exercises to judge; a file without one of these gets a row that says so. Empty: all in
        the file.
    within_s : float
        Time limit of all scenarios of one solution, in seconds of processor time; one that does not end gets
        no points.

    Returns
    -------
    DataFrame
        One row per file and exercise: name (of the file, or of its subfolder), file, exercise, piece (the
        function), verdict (``passed``, ``not yet``, ``not there`` or ``not judged``), points (1 if passed;
        missing if not judged), scenarios (number), scenario (the smallest that fails, in words) and problem.

    Raises
    ------
    InputMissing
        A file does not exist.
    ParameterError
        There is no such exercise or nothing to judge, or a file is neither a notebook nor a Python file.
    """
    known = dict(EXERCISES) if judges is None else {**EXERCISES, **exercises_of(judges)}
    for name in exercises:
        if name not in known:
            raise ParameterError(
                "There is no such exercise.",
                where="exercise",
                found=repr(name),
                expected=", ".join(known),
                remedy=did_you_mean(name, known),
            )
    names = {file: _submission_name(Path(path), file) for path in files for file in _files_to_judge(path)}
    if not names:
        raise ParameterError(
            "There is nothing to judge.", where="files", expected="at least one notebook or Python file"
        )
    if not within_s > 0:
        raise ParameterError(
            "The time limit is not positive.", where="within_s", found=repr(within_s), expected="seconds"
        )
    rows = [
        {"name": name, **row} for file, name in names.items() for row in _rows(str(file), known, exercises)
    ]
    judges_ready = [_Judge(judges, within_s) for _ in range(os.cpu_count() or 1)]
    free = deque(judges_ready)

    def judge_row(row: dict[str, Any]) -> dict[str, Any]:
        if "verdict" in row:
            return row
        judge = free.pop()
        try:
            return row | judge.verdict(row["file"], row["exercise"], row["piece"])
        finally:
            free.append(judge)

    with bar(len(rows), "pieces", "") as done, ThreadPoolExecutor(len(judges_ready)) as pool:
        try:
            for number, row in enumerate(pool.map(judge_row, rows)):
                rows[number] = row
                done(number + 1)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        finally:
            for judge in judges_ready:
                judge.end()
    sure = {row["file"] for row in rows if row["is_sure"]}
    rows = [row for row in rows if row["is_sure"] or row["verdict"] in _JUDGED or row["file"] not in sure]
    table = pd.DataFrame(rows, columns=_COLUMNS)
    table["points"] = table["verdict"].map(_POINTS)
    return table.astype({"points": "Int64", "scenarios": "Int64"})


def _files_to_judge(given: str | Path) -> list[Path]:
    """Return a file, or the files in a folder except hidden ones, where JupyterLab keeps copies."""
    path = existing_path(given, "notebook or Python file")
    if not path.is_dir():
        if path.suffix.lower() not in KINDS:
            raise ParameterError(
                "This file cannot be judged.",
                where=str(path),
                found=path.suffix or "no suffix",
                expected=" or ".join(KINDS),
                remedy="name the notebook or Python file that was handed in",
            )
        return [path]
    return [
        file
        for file in sorted(path.rglob("*"))
        if file.suffix.lower() in KINDS
        and not file.is_dir()
        and not any(part.startswith(".") for part in file.relative_to(path).parts)
    ]


def _submission_name(given: Path, file: Path) -> str:
    """Return the name of the subfolder of the given folder that a file is in, else that of the file."""
    parts = file.relative_to(given).parts if given.is_dir() else ()
    return parts[0] if len(parts) > 1 else file.stem


def _rows(file: str, known: Mapping[str, Exercise], exercises: Sequence[str]) -> list[dict[str, Any]]:
    """Return the rows of a file; a missing function already has its verdict.

    ``is_sure``: the file has, or should have, this function; otherwise it binds the name to what may be one.
    """
    try:
        source = read_source(file)
    except MudkitError as error:
        return [{"file": file, "verdict": "not judged", "problem": str(error), "is_sure": True}]
    rows = []
    for name in exercises or known:
        piece = known[name].piece()
        row = {"file": file, "exercise": name, "piece": piece, "is_sure": True}
        if source.defines(name, piece):
            rows.append(row | {"is_sure": bool(exercises) or not source.may_define(name, piece)})
        elif exercises:
            rows.append(row | {"verdict": "not there", "problem": "this file does not define the function"})
    pieces = ", ".join(sorted({exercise.piece() for exercise in known.values()}))
    problem = f"this file defines none of {pieces}"
    return rows or [{"file": file, "verdict": "not there", "problem": problem, "is_sure": True}]


class _Judge:
    """A process that has loaded the judge, and forks for each solution; started when it is needed."""

    def __init__(self, judges: str | Path | None, within_s: float) -> None:
        self._judges, self._within_s = judges, within_s
        self._process: subprocess.Popen[bytes] | None = None
        self._group: int | None = None
        """Process group of the solution that is judged."""

    def verdict(self, file: str, exercise: str, piece: str) -> dict[str, Any]:
        """Judge a solution; return what :func:`judge_each` writes."""
        request = [file, exercise, piece, self._within_s, None if self._judges is None else str(self._judges)]
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(f"{json.dumps(request)}\n".encode())
            self._group = int(process.stdout.readline())
            limit_s = 2 * WAIT_FACTOR * self._within_s + _SPARE_S
            if not select.select([process.stdout], [], [], limit_s)[0]:
                self.end()
                return {"verdict": "not judged", "problem": "the judge did not end"}
            return dict(json.loads(process.stdout.readline()))
        except (OSError, ValueError):
            self.end()
            return {"verdict": "not judged", "problem": f"the judge ended with status {process.returncode}"}
        finally:
            self._end_group()

    def end(self) -> None:
        """Kill the process, and a solution that it judges."""
        self._end_group()
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def _started(self) -> subprocess.Popen[bytes]:
        """Return the process that has loaded the judge, started if it is not running."""
        if self._process is None or self._process.poll() is not None:
            # -P: a file in the working folder, such as random.py, must not shadow a module of Python.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _PROGRAM],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, VARIABLE: "0"},
                bufsize=0,  # select must see what has not been read
                start_new_session=True,
            )
        return self._process

    def _end_group(self) -> None:
        """Kill the processes of the solution that is judged, if there is one."""
        group, self._group = self._group, None
        if group is not None:
            _kill_group(group)


def _kill_group(group: int) -> None:
    """Kill all processes of a group, if it still exists."""
    with contextlib.suppress(OSError):  # it has ended
        os.killpg(group, signal.SIGKILL)


def judge_each() -> None:
    """Judge the solutions that standard input names, each in a process group of its own.

    Write the number of the group and the verdict, as JSON, in a line each. Started by :func:`grade`.
    """
    judged("", _ANYTHING, lambda: None)  # the processes of the solutions have what Hypothesis reads at first
    for line in sys.stdin:
        with TemporaryFile() as verdict:
            process = FORK.Process(target=_judge, args=(verdict.fileno(), *json.loads(line)))
            process.start()
            assert process.pid is not None
            with contextlib.suppress(OSError):  # it has done so itself
                os.setpgid(process.pid, process.pid)
            sys.stdout.write(f"{process.pid}\n")
            sys.stdout.flush()
            process.join()
            problem = f"the judge ended with status {process.exitcode}"
            text = verdict.read().decode() or json.dumps({"verdict": "not judged", "problem": problem})
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()


def _judge(verdict: int, file: str, exercise: str, piece: str, within_s: float, judges: str | None) -> None:
    """Write the verdict on a solution, which runs in a process of its own, to a file's descriptor."""
    with contextlib.suppress(OSError):  # the parent has done so
        os.setpgid(0, 0)
    close_inherited(verdict)
    known = EXERCISES if judges is None else {**EXERCISES, **exercises_of(judges)}
    solution = Solution(Path(file).resolve(), exercise, piece)
    try:
        answer = _verdict(solution, exercise, known[exercise], within_s)
    except SolutionEnded as error:
        answer = {"verdict": "not judged", "problem": str(error)}
    except Exception as error:  # of a lecturer's own exercise
        answer = {"verdict": "not judged", "problem": f"the judge raises {type(error).__name__}: {error}"}
    solution.end()  # before the verdict is written, so that nothing can follow it
    os.ftruncate(verdict, 0)
    os.pwrite(verdict, json.dumps(answer).encode(), 0)


def _verdict(solution: Solution, name: str, exercise: Exercise, within_s: float) -> dict[str, Any]:
    """Load and judge a solution, within one time limit; return the columns of its verdict."""
    try:
        clock = Clock(within_s, solution.used_s)
        with clock.limit(within_s):
            piece = solution.load()
    except PieceError as error:
        return {"verdict": "not judged", "problem": f"loading {error}"}
    except Overtime:
        return {"verdict": "not yet", "problem": f"loading {clock.reason(0, 0)}"}
    if not solution.is_function(piece):
        problem = f"the file binds {exercise.piece()} to {brief(piece)}, not to a function: write it as def"
        return {"verdict": "not there", "problem": problem}
    verdict = judged(name, exercise, piece, within_s, solution.used_s)
    answer: dict[str, Any] = {
        "verdict": "passed" if verdict.passed else "not yet",
        "scenarios": verdict.scenarios,
    }
    if verdict.failure is not None:
        answer |= {"scenario": verdict.failure.scenario, "problem": verdict.failure.problem}
    return answer
