"""``mudkit lab`` and ``mudkit judge``: open the chapters, judge exercises."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from mudkit.cli.arguments import Overwrite
from mudkit.errors import OutputExists, ParameterError
from mudkit.files import staged_file


def judge(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE…", help="Notebooks and Python files handed in, or folders of them."),
    ],
    out: Annotated[Path, typer.Option("--out", help="CSV to write, one line per file and exercise.")],
    exercise: Annotated[
        list[str] | None, typer.Option(help="Judge only these, and report files without them.")
    ] = None,
    judges: Annotated[
        Path | None, typer.Option(help="A Python file with EXERCISES of your own, see docs/guides/class.md.")
    ] = None,
    within_s: Annotated[float, typer.Option(help="Time limit of each solution, in seconds.")] = 120.0,
    overwrite: Overwrite = False,
) -> None:
    """Judge the solutions of a class, each in a process of its own.

    Solutions run with your rights: judge files of strangers on an account
    without access to anything valuable.
    The exit status is 1 if no solution was judged.

    Example: mudkit judge handed_in/ --out grades.csv --exercise 00_start_here
    """
    import pandas as pd

    from mudkit.exercises import grade

    if out.is_dir():
        raise OutputExists(
            "There is a folder in place of the CSV.",
            where=str(out),
            found="a folder",
            expected="a free place, or a file",
            remedy=f"name a file, for instance {out / 'grades.csv'}",
        )
    if out.exists() and not overwrite:
        raise OutputExists("There is a file already.", where=str(out), remedy="name another, or --overwrite")
    graded = grade(files, judges=judges, exercises=exercise or (), within_s=within_s)
    with staged_file(out) as staging:
        graded.to_csv(staging, index=False, encoding="utf-8-sig")  # spreadsheets recognise UTF-8 by the mark
    counts = graded.groupby("verdict").size()
    typer.echo(f"{', '.join(f'{count} {verdict}' for verdict, count in counts.items())}: {out}")
    is_judged = graded["verdict"].isin(("passed", "not yet"))
    for row in graded.loc[~is_judged, ["verdict", "file", "exercise", "problem"]].astype("string").to_numpy():
        verdict, handed_in, question, problem = ("" if value is pd.NA else str(value) for value in row)
        what = ", ".join(filter(None, (handed_in, question)))
        typer.echo(f"{verdict}: {what}: {'; '.join(map(str.strip, problem.splitlines()))}", err=True)
    if not is_judged.any():
        raise typer.Exit(1)


def lab(
    context: typer.Context,
    student: Annotated[
        bool, typer.Option("--student", help="Open copies without solutions, in the folder `chapters`.")
    ] = False,
    source: Annotated[
        bool, typer.Option("--source", help="Open the chapters themselves, to edit them.")
    ] = False,
) -> None:
    """Open JupyterLab on copies of the chapters, in the folder `work`; further arguments go to JupyterLab.

    Changed copies stay as they are; the others follow the chapters.

    Example: mudkit lab --no-browser --port 9000

    Arguments not listed here, such as --no-browser, go to JupyterLab.
    """
    from mudkit.cli.jupyter import command, environment, refuse_unknown

    if student and source:
        raise ParameterError(
            "The chapters themselves have solutions.",
            where="--source",
            found="--student --source",
            expected="one of them",
            remedy="leave one of them out",
        )
    refuse_unknown(context.args)
    chapters = _chapters()
    if not source:
        from mudkit.exercises.handing_out import hand_out

        chapters = hand_out(chapters, Path("chapters" if student else "work"), solutions=not student)
    os.execve(sys.executable, command(chapters, context.args), environment())


def _chapters() -> Path:
    """Return the folder of chapters: that of a checkout, else the package's own."""
    local = Path("notebooks")
    return local if (local / "00_start_here.ipynb").is_file() else Path(__file__).parent.parent / "notebooks"
