"""Copy the chapters for a class to work in, without the solutions."""

from __future__ import annotations

import hashlib
import json
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
_NOTE: Final = ".handed_out.json"
_FOLDED: Final = re.compile(r"\n*<details><summary>A solution</summary>.*?</details>", re.DOTALL)


def without_solutions(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Take out the cells that are solutions, and what is folded under "A solution"; in place.

    Parameters
    ----------
    notebook : nbformat.NotebookNode
        A chapter, in format 4 of Jupyter.
    """
    notebook.cells = [each for each in notebook.cells if SOLUTION not in each.metadata.get("tags", [])]
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = _FOLDED.sub("", cell.source)
    return notebook


def hand_out(chapters: Path, folder: Path, *, solutions: bool = False) -> Path:
    """Copy chapters to work in; a copy stays as its reader left it, others follow the chapters.

    What was handed out is noted in the folder (``.handed_out.json``), by which a copy is known that nobody
    has changed. The samples that chapters read come along, where the copies look for them: in
    ``../data/sample``.

    Parameters
    ----------
    chapters : Path
        The folder of the chapters.
    folder : Path
        The folder to which they are copied; it is made if it is not there.
    solutions : bool
        Whether the solutions are copied too.

    Returns
    -------
    Path
        The folder to which they were copied.

    Raises
    ------
    InputMissing, OutputProblem
    """
    import nbformat  # loading it takes longer than loading all of mudkit

    files = sorted(existing(chapters, "folder of chapters").glob("[0-9]*.ipynb"))
    if not files:
        raise InputMissing(
            "There is no chapter to hand out.",
            where=str(chapters),
            found="no notebook whose name begins with a number",
            expected="00_start_here.ipynb and others",
            remedy="install mudkit again, or go to its checkout",
        )
    noted = _noted(folder / _NOTE)
    handed_out = dict(noted)
    for file in files:
        copy = folder / file.name
        notebook = nbformat.read(file, as_version=4)
        text = nbformat.writes(notebook if solutions else without_solutions(notebook)) + "\n"
        if copy.exists() and _sum(copy.read_bytes()) != noted.get(file.name):
            continue
        if not copy.exists() or _sum(text.encode()) != noted[file.name]:
            with staged_file(copy) as staging:
                staging.write_text(text, encoding="utf-8")
        handed_out[file.name] = _sum(text.encode())
    if handed_out != noted:
        with staged_file(folder / _NOTE) as staging:
            staging.write_text(json.dumps(handed_out, indent=1) + "\n", encoding="utf-8")
    for file in chapters.resolve().parent.glob("data/sample/*"):
        copy = folder.resolve().parent / "data" / "sample" / file.name
        if not copy.exists():
            with staged_file(copy) as staging:
                shutil.copyfile(file, staging)
    return folder


def _noted(note: Path) -> dict[str, str]:
    """Read the sums of what was handed out; where no note can be read, every copy counts as worked in."""
    try:
        noted = json.loads(note.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return noted if isinstance(noted, dict) else {}


def _sum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
