"""Copy the chapters for a class to work in, without the solutions."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mudkit.errors import InputMissing
from mudkit.files import existing_path, staged_file

if TYPE_CHECKING:
    import nbformat

SOLUTION: Final = "solution"
"""Tag of a cell that is a solution, or shows the result of one."""
_NOTE: Final = ".handed_out.json"
_FOLDED: Final = re.compile(r"\n*<details><summary>A solution</summary>.*?</details>", re.DOTALL)


def without_solutions(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Remove the cells that are solutions, and what is folded under "A solution", in place."""
    notebook.cells = [cell for cell in notebook.cells if SOLUTION not in cell.metadata.get("tags", [])]
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = _FOLDED.sub("", cell.source)
    return notebook


def hand_out(chapters: Path, folder: Path, *, solutions: bool = False) -> Path:
    """Copy chapters to a folder; copies that a reader has changed stay, others follow the chapters.

    ``.handed_out.json`` in the folder holds the digest of each copy, by which changed copies are recognised.
    The samples that chapters read are copied to ``../data/sample``.
    """
    import nbformat  # loading it takes longer than loading all of mudkit

    files = sorted(existing_path(chapters, "folder of chapters").glob("[0-9]*.ipynb"))
    if not files:
        raise InputMissing(
            "There are no chapters to hand out.",
            where=str(chapters),
            found="no notebook whose name begins with a number",
            expected="00_start_here.ipynb and others",
            remedy="install mudkit again, or go to its checkout",
        )
    noted = _read_note(folder / _NOTE)
    handed_out = dict(noted)
    for file in files:
        copy = folder / file.name
        notebook = nbformat.read(file, as_version=4)
        text = nbformat.writes(notebook if solutions else without_solutions(notebook)) + "\n"
        if copy.exists() and _digest(copy.read_bytes()) != noted.get(file.name):
            continue
        if not copy.exists() or _digest(text.encode()) != noted[file.name]:
            with staged_file(copy) as staging:
                staging.write_text(text, encoding="utf-8")
        handed_out[file.name] = _digest(text.encode())
    if handed_out != noted:
        with staged_file(folder / _NOTE) as staging:
            staging.write_text(json.dumps(handed_out, indent=1) + "\n", encoding="utf-8")
    for file in chapters.resolve().parent.glob("data/sample/*"):
        copy = folder.resolve().parent / "data" / "sample" / file.name
        if not copy.exists():
            with staged_file(copy) as staging:
                shutil.copyfile(file, staging)
    return folder


def _read_note(note: Path) -> dict[str, str]:
    """Read the digests of the copies; if they cannot be read, every copy counts as changed."""
    try:
        noted = json.loads(note.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return noted if isinstance(noted, dict) else {}


def _digest(content: bytes) -> str:
    """Return the SHA-256 of a copy's content."""
    return hashlib.sha256(content).hexdigest()
