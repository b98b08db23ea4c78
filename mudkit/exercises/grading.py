"""Grading of the files that a class hands in: one table of verdicts."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pandas as pd

from mudkit.arguments import check_options
from mudkit.errors import MudkitError, ParameterError, did_you_mean
from mudkit.exercises.judging import Exercise, judged
from mudkit.exercises.pieces import KINDS, read_source
from mudkit.exercises.register import EXERCISES
from mudkit.files import existing
from mudkit.progress import VARIABLE, bar

__all__ = ["WITHIN_S", "exercises_of", "grade", "judge_here"]

WITHIN_S: Final = 120.0
"""Default time limit of one function."""
_CHAPTERS: Final = Path(__file__).parent.parent / "notebooks"
_JUDGE_PROGRAM: Final = (
    "import sys; from mudkit.exercises.grading import judge_here; judge_here(*sys.argv[1:])"
)
_COLUMNS: Final = [
    "name", "file", "exercise", "piece", "verdict", "points", "scenarios", "scenario", "problem",
]  # fmt: skip
_POINTS: Final = {"passed": 1, "not yet": 0, "not there": 0}


@check_options
def grade(
    files: Sequence[str | Path],
    *,
    judges: str | Path | None = None,
    exercises: Sequence[str] = (),
    within_s: float = WITHIN_S,
) -> pd.DataFrame:
    """Judge the solutions in notebooks and Python files.

    Each solution is loaded together with the names it uses, in the folder of its file or, if a file is
    missing there, in that of the chapters, and judged in a process of its own. One that does not end, or ends
    its process, does not affect the others. A solution has all rights of the user: judge strangers' files on
    an account without access to anything valuable.

    Parameters
    ----------
    files : sequence of path-like
        Notebooks and Python files, each with any number of solutions, and folders, which are searched
        recursively.
    judges : path-like, optional
        A Python file that defines ``EXERCISES``, a dictionary of :class:`~mudkit.exercises.Exercise` by name,
        in addition to those of the chapters.
    exercises : sequence of str
        Names of the exercises to judge; a file without one of these gets a row that says so. Empty: all in
        the file.
    within_s : float
        Time limit of one solution, in seconds.

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
    table = pd.DataFrame(rows, columns=_COLUMNS)
    table["points"] = table["verdict"].map(_POINTS)
    return table.astype({"points": "Int64", "scenarios": "Int64"})


def exercises_of(path: str | Path) -> dict[str, Exercise]:
    """Load ``EXERCISES`` from a Python file; raise ParameterError if it has none."""
    file = existing(path, "file of exercises")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise ParameterError("Expected a Python file.", where="judges", found=str(file), expected="*.py")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ParameterError(
            "This file of exercises cannot be loaded.",
            where=str(file),
            found=f"{type(error).__name__}: {error}",
            remedy=f"run python {file} to see the line",
        ) from error
    exercises = getattr(module, "EXERCISES", None)
    if not isinstance(exercises, Mapping) or not all(
        isinstance(exercise, Exercise) for exercise in exercises.values()
    ):
        raise ParameterError(
            "This file has no exercises.",
            where=str(file),
            found=f"EXERCISES is {exercises!r}"[:200],
            expected="EXERCISES, a dictionary of mudkit.exercises.Exercise by name",
        )
    return dict(exercises)


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
    """Return the rows of a file; a missing function already has its verdict."""
    try:
        functions = read_source(file).functions
    except MudkitError as error:
        return [{"file": file, "verdict": "not judged", "problem": str(error)}]
    present = [name for name in known if known[name].piece() in functions]
    rows = [
        {"file": file, "exercise": name, "piece": known[name].piece()}
        | (
            {}
            if name in present
            else {"verdict": "not there", "problem": "this file does not define the function"}
        )
        for name in exercises or present
    ]
    pieces = ", ".join(sorted({exercise.piece() for exercise in known.values()}))
    return rows or [{"file": file, "verdict": "not there", "problem": f"this file defines none of {pieces}"}]


def _judge_in_process(
    row: Mapping[str, Any], judges: str | Path | None, within_s: float, running: set[subprocess.Popen[bytes]]
) -> dict[str, Any]:
    """Judge a solution in a process of its own, which is in ``running`` while it runs."""
    if "verdict" in row:
        return {}
    arguments = [row["file"], row["exercise"], row["piece"], *([] if judges is None else [str(judges)])]
    # -P: a file in the working folder, such as random.py, must not shadow a module of Python.
    with subprocess.Popen(
        [sys.executable, "-P", "-c", _JUDGE_PROGRAM, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, VARIABLE: "0"},
        start_new_session=True,
    ) as process:
        running.add(process)
        try:
            verdict, output = process.communicate(timeout=within_s)
        except subprocess.TimeoutExpired:
            return {"verdict": "not judged", "problem": f"it did not end within {within_s:g} s"}
        finally:
            _end(process)
            running.discard(process)
    try:
        return dict(json.loads(verdict))
    except ValueError:
        last_line = output.decode(errors="replace").strip().rpartition("\n")[2][:200]
        problem = f"it ended the process with status {process.returncode}"
        problem += f": {last_line}" if last_line else ""
        return {"verdict": "not judged", "problem": problem}


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and its descendants."""
    with contextlib.suppress(OSError):  # it has ended
        os.killpg(process.pid, signal.SIGKILL)


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Discard the output of a solution and of processes it starts; stdout is for the verdict."""
    saved = {number: os.dup(number) for number in (1, 2)}
    devnull = os.open(os.devnull, os.O_WRONLY)
    try:
        for number in saved:
            os.dup2(devnull, number)
        yield
    finally:
        sys.stdout.flush()
        for number, copy in saved.items():
            os.dup2(copy, number)
            os.close(copy)
        os.close(devnull)


def judge_here(file: str, exercise: str, piece: str, judges: str | None = None) -> None:
    """Judge a solution in this process and write the verdict as JSON; started by :func:`grade`."""
    known = EXERCISES if judges is None else {**EXERCISES, **exercises_of(judges)}
    path = Path(file).resolve()
    os.chdir(path.parent)  # as in JupyterLab, where files beside the notebook are found
    sys.path.append(str(path.parent))
    with _silence():
        try:
            source = read_source(path)
            try:
                loaded = source.load(piece)
            except FileNotFoundError:
                os.chdir(_CHAPTERS)  # a submission may read files that lie beside the chapters
                loaded = source.load(piece)
                os.chdir(path.parent)
        except Exception as error:
            problem = f"loading it raises {type(error).__name__}: {error}"
            answer: dict[str, Any] = {"verdict": "not judged", "problem": problem}
        else:
            verdict = judged(exercise, known[exercise], loaded)
            answer = {"verdict": "passed" if verdict.passed else "not yet", "scenarios": verdict.scenarios}
            if verdict.failure is not None:
                answer |= {"scenario": verdict.failure.scenario, "problem": verdict.failure.problem}
    json.dump(answer, sys.stdout)
