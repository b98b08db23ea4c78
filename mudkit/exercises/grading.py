"""Judge what a class has handed in: many files, one table."""

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

from mudkit.errors import MudkitError, ParameterError, did_you_mean
from mudkit.exercises.judging import Exercise, judged
from mudkit.exercises.pieces import KINDS, read_source
from mudkit.exercises.register import EXERCISES
from mudkit.files import existing
from mudkit.progress import VARIABLE, bar

__all__ = ["WITHIN_S", "exercises_of", "grade", "judge_here"]

WITHIN_S: Final = 120.0
"""A piece that is not judged by then does not end."""
_CHAPTERS: Final = Path(__file__).parent.parent / "notebooks"
_APART: Final = "import sys; from mudkit.exercises.grading import judge_here; judge_here(*sys.argv[1:])"
_COLUMNS: Final = [
    "name", "file", "exercise", "piece", "verdict", "points", "scenarios", "scenario", "problem",
]  # fmt: skip
_POINTS: Final = {"passed": 1, "not yet": 0, "not there": 0}


def grade(
    files: Sequence[str | Path],
    *,
    judges: str | Path | None = None,
    exercises: Sequence[str] = (),
    within_s: float = WITHIN_S,
) -> pd.DataFrame:
    """Judge the pieces in notebooks and Python files.

    Each piece is loaded with what it names (see :meth:`mudkit.exercises.pieces.Source.load`) in the folder of
    its file, or, if it misses a file there, in that of the chapters, and judged in a process of its own. One
    that does not end, or ends its process, does not affect the others. A piece has all rights of the user:
    judge strangers' files on an account that has nothing to lose.

    Parameters
    ----------
    files : sequence of path-like
        A reader may have several pieces in a file. Of a folder all notebooks and Python files are judged,
        those in its folders too.
    judges : path-like, optional
        A Python file with ``EXERCISES``, a dictionary of :class:`~mudkit.exercises.Exercise` by name: a
        teacher's own, besides those of the chapters.
    exercises : sequence of str
        Which to judge; a file without one of these has a row that says so. Empty: all that a file has.
    within_s : float
        The longest that the judging of one submission may take, in seconds.

    Returns
    -------
    DataFrame
        One row a file and exercise: name (of the file, or of its folder in the one that was named), file,
        exercise, piece, verdict (``passed``, ``not yet``, ``not there`` or ``not judged``), points (1 if
        passed; missing if not judged), scenarios, scenario (the smallest that fails, in words) and problem.

    Raises
    ------
    InputMissing
        A file that is named is not there.
    ParameterError
        There is no such exercise, or nothing to judge; a file that is named is neither a notebook nor Python.
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
    names = {file: _handed_in_by(Path(each), file) for each in files for file in _to_judge(each)}
    if not names:
        raise ParameterError(
            "There is nothing to judge.", where="files", expected="a notebook or Python file at least"
        )
    if not within_s > 0:
        raise ParameterError("No time is left.", where="within_s", found=repr(within_s), expected="seconds")
    rows = [
        {"name": name, **row} for file, name in names.items() for row in _rows(str(file), known, exercises)
    ]
    running: set[subprocess.Popen[bytes]] = set()
    with bar(len(rows), "pieces", "") as done, ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        try:
            judging = pool.map(lambda row: row | _judged_apart(row, judges, within_s, running), rows)
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
    """Load a teacher's own exercises.

    Parameters
    ----------
    path : path-like
        A Python file that has ``EXERCISES``.

    Raises
    ------
    ParameterError
        It has none.
    """
    file = existing(path, "file of exercises")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise ParameterError("This is no Python file.", where="judges", found=str(file), expected="*.py")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ParameterError(
            "This file of exercises cannot be loaded.",
            where=str(file),
            found=f"{type(error).__name__}: {error}",
            remedy=f"python {file} says where",
        ) from error
    exercises = getattr(module, "EXERCISES", None)
    if not isinstance(exercises, Mapping) or not all(
        isinstance(each, Exercise) for each in exercises.values()
    ):
        raise ParameterError(
            "This file has no exercises.",
            where=str(file),
            found=f"EXERCISES is {exercises!r}"[:200],
            expected="EXERCISES, a dictionary of mudkit.exercises.Exercise by name",
        )
    return dict(exercises)


def _to_judge(named: str | Path) -> list[Path]:
    """Give a file, or what can be judged in a folder; hidden folders hold copies that JupyterLab keeps."""
    path = existing(named, "notebook or Python file")
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


def _handed_in_by(named: Path, file: Path) -> str:
    """Return the name of the folder that a file has in the named one, else that of the file."""
    parts = file.relative_to(named).parts if named.is_dir() else ()
    return parts[0] if len(parts) > 1 else file.stem


def _rows(file: str, known: Mapping[str, Exercise], asked: Sequence[str]) -> list[dict[str, Any]]:
    """Give the rows of a file: those of pieces without a verdict, those of what is missing with one."""
    try:
        functions = read_source(file).functions
    except MudkitError as error:
        return [{"file": file, "verdict": "not judged", "problem": str(error)}]
    there = [name for name in known if known[name].piece() in functions]
    rows = [
        {"file": file, "exercise": name, "piece": known[name].piece()}
        | ({} if name in there else {"verdict": "not there", "problem": "no such function is defined here"})
        for name in asked or there
    ]
    nothing = f"none of {', '.join(sorted({each.piece() for each in known.values()}))} is defined here"
    return rows or [{"file": file, "verdict": "not there", "problem": nothing}]


def _judged_apart(
    row: Mapping[str, Any], judges: str | Path | None, within_s: float, running: set[subprocess.Popen[bytes]]
) -> dict[str, Any]:
    """Judge a piece in a process of its own, which is in ``running`` as long as it runs."""
    if "verdict" in row:
        return {}
    given = [row["file"], row["exercise"], row["piece"], *([] if judges is None else [str(judges)])]
    # Not the folder that one is in (-P): a file there, random.py for instance, would stand for Python's own.
    with subprocess.Popen(
        [sys.executable, "-P", "-c", _APART, *given],
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
        said = output.decode(errors="replace").strip().rpartition("\n")[2][:200]
        problem = f"it ended the process, with status {process.returncode}" + (f": {said}" if said else "")
        return {"verdict": "not judged", "problem": problem}


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that it started."""
    with contextlib.suppress(OSError):  # there is none any more
        os.killpg(process.pid, signal.SIGKILL)


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Let nothing be heard of a piece, nor of what it starts: what is said here afterwards is its verdict."""
    kept = {number: os.dup(number) for number in (1, 2)}
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        for number in kept:
            os.dup2(nowhere, number)
        yield
    finally:
        sys.stdout.flush()
        for number, before in kept.items():
            os.dup2(before, number)
            os.close(before)
        os.close(nowhere)


def judge_here(file: str, exercise: str, piece: str, judges: str | None = None) -> None:
    """Judge a piece in this process, and write what came of it: what :func:`grade` starts."""
    known = EXERCISES if judges is None else {**EXERCISES, **exercises_of(judges)}
    path = Path(file).resolve()
    os.chdir(path.parent)  # as in JupyterLab: what lies beside it is found
    sys.path.append(str(path.parent))
    with _silence():
        try:
            source = read_source(path)
            try:
                loaded = source.load(piece)
            except FileNotFoundError:
                os.chdir(_CHAPTERS)  # beside the chapters is what they read, not beside what is handed in
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
