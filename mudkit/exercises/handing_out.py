"""The chapters as a class gets them: without solutions."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mudkit.errors import InputMissing
from mudkit.files import existing, staged_file

if TYPE_CHECKING:
    import nbformat

__all__ = ["SOLUTION", "hand_out", "without_solutions"]

SOLUTION: Final = "solution"
"""Tag of a cell that is a solution, or shows what comes of one."""
_FOLDED: Final = re.compile(r"\n*<details><summary>A solution</summary>.*?</details>", re.DOTALL)


def without_solutions(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Take out the cells that are solutions, and what is folded under "A solution"; in place.

    Parameters
    ----------
    notebook : nbformat.NotebookNode
        A chapter, of format 4.
    """
    notebook.cells = [each for each in notebook.cells if SOLUTION not in each.metadata.get("tags", [])]
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = _FOLDED.sub("", cell.source)
    return notebook


def hand_out(chapters: Path, folder: Path) -> Path:
    """Copy chapters without their solutions; what is there already stays as its reader left it.

    The samples that chapters read come along, where the copies look for them: in ``../data/sample``.

    Parameters
    ----------
    chapters : Path
        Folder with the chapters.
    folder : Path
        Made if it is not there.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    InputMissing, OutputProblem
    """
    import nbformat  # loading it takes longer than loading all of mudkit

    files = sorted(existing(chapters, "folder of chapters").glob("[0-9]*.ipynb"))
    if not files:
        raise InputMissing(
            "There is no chapter to hand out.", where=str(chapters),
            found="no notebook whose name begins with a number",
            expected="00_start_here.ipynb and others", remedy="install mudkit again, or go to its checkout",
        )  # fmt: skip
    for file in files:
        copy = folder / file.name
        if not copy.exists():
            with staged_file(copy) as staging:
                nbformat.write(without_solutions(nbformat.read(file, as_version=4)), staging)
    for file in chapters.resolve().parent.glob("data/sample/*"):
        copy = folder.resolve().parent / "data" / "sample" / file.name
        if not copy.exists():
            with staged_file(copy) as staging:
                shutil.copyfile(file, staging)
    return folder
