"""Grading of the files that a class hands in: one table of verdicts."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pandas as pd

from mudkit.arguments import check_options
from mudkit.errors import MudkitError, ParameterError, brief, did_you_mean
from mudkit.exercises.judges import exercises_of
from mudkit.exercises.judging import WAIT_FACTOR, WITHIN_S, Clock, Exercise, Overtime, PieceError, judged
from mudkit.exercises.pieces import KINDS, read_source
from mudkit.exercises.register import EXERCISES
from mudkit.exercises.solution import Solution, SolutionEnded
from mudkit.files import existing
from mudkit.progress import VARIABLE, bar

__all__ = ["grade", "judge_here"]

_SPARE_S: Final = 120.0
"""Time for the start of the processes, beside the limits of loading and judging."""
_JUDGE_PROGRAM: Final = (
    "import sys; from mudkit.exercises.grading import judge_here; judge_here(*sys.argv[1:])"
)
_COLUMNS: Final = [
    "name", "file", "exercise", "piece", "verdict", "points", "scenarios", "scenario", "problem",
]  # fmt: skip
_POINTS: Final = {"passed": 1, "not yet": 0, "not there": 0}
_JUDGED: Final = ("passed", "not yet")


@check_options
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
    running: set[subprocess.Popen[bytes]] = set()
    with bar(len(rows), "pieces", "") as done, ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        try:
            judging = pool.map(lambda row: row | _judge_in_process(row, judges, within_s, running), rows)
            for number, row in enumerate(judging):
                rows[number] = row
                done(number + 1)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in list(running):
                _end(process)
            raise
    sure = {row["file"] for row in rows if row["is_sure"]}
    rows = [row for row in rows if row["is_sure"] or row["verdict"] in _JUDGED or row["file"] not in sure]
    table = pd.DataFrame(rows, columns=_COLUMNS)
    table["points"] = table["verdict"].map(_POINTS)
    return table.astype({"points": "Int64", "scenarios": "Int64"})


def _files_to_judge(given: str | Path) -> list[Path]:
    """Return a file, or the files in a folder except hidden ones, where JupyterLab keeps copies."""
    path = existing(given, "notebook or Python file")
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


def _judge_in_process(
    row: Mapping[str, Any], judges: str | Path | None, within_s: float, running: set[subprocess.Popen[bytes]]
) -> dict[str, Any]:
    """Judge a solution in a process of its own, which is in ``running`` while it runs."""
    if "verdict" in row:
        return {}
    arguments = [row["file"], row["exercise"], row["piece"], str(within_s)]
    # -P: a file in the working folder, such as random.py, must not shadow a module of Python.
    with subprocess.Popen(
        [sys.executable, "-P", "-c", _JUDGE_PROGRAM, *arguments, *([] if judges is None else [str(judges)])],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, VARIABLE: "0"},
        start_new_session=True,
    ) as process:
        running.add(process)
        try:
            verdict, output = process.communicate(timeout=2 * WAIT_FACTOR * within_s + _SPARE_S)
        except subprocess.TimeoutExpired:
            return {"verdict": "not judged", "problem": "the judge did not end"}
        finally:
            _end(process)
            running.discard(process)
    try:
        return dict(json.loads(verdict.rpartition(b"\n")[2]))
    except ValueError:
        last_line = output.decode(errors="replace").strip().rpartition("\n")[2][:200]
        problem = f"the judge ended with status {process.returncode}: {last_line}"
        return {"verdict": "not judged", "problem": problem}


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and its descendants."""
    with contextlib.suppress(OSError):  # it has ended
        os.killpg(process.pid, signal.SIGKILL)


def judge_here(file: str, exercise: str, piece: str, within_s: str, judges: str | None = None) -> None:
    """Judge a solution, which runs in a process of its own; write the verdict as JSON.

    Started by :func:`grade`.
    """
    known = EXERCISES if judges is None else {**EXERCISES, **exercises_of(judges)}
    solution = Solution(Path(file).resolve(), exercise, piece, judges)
    try:
        answer = _verdict(solution, exercise, known[exercise], float(within_s))
    except SolutionEnded as error:
        answer = {"verdict": "not judged", "problem": str(error)}
    solution.end()  # before the verdict is written, so that nothing can follow it
    sys.stdout.write(f"\n{json.dumps(answer)}")


def _verdict(solution: Solution, name: str, exercise: Exercise, within_s: float) -> dict[str, Any]:
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
