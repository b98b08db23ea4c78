"""The book: all chapters, executed, as pages that open without a network."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mudkit.errors import InputMissing, MudkitError
from mudkit.files import existing, staged_folder
from mudkit.progress import VARIABLE, bar
from mudkit.report.kernels import QUIET_KERNEL, manager

if TYPE_CHECKING:
    import nbformat

__all__ = ["ChapterFailed", "execute", "make_book"]

_WITHIN_S: Final = 600


class ChapterFailed(MudkitError, RuntimeError):
    """A cell of a chapter failed."""


def execute(file: Path) -> nbformat.NotebookNode:
    """Run a chapter in its folder, from top to bottom, in a new kernel that shows no bars.

    Raises
    ------
    ChapterFailed
        A cell failed, or took longer than ten minutes.
    """
    import nbformat  # loading these takes longer than loading all of mudkit
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError

    notebook = nbformat.read(file, as_version=4)
    client = NotebookClient(
        notebook,
        extra_arguments=QUIET_KERNEL,
        timeout=_WITHIN_S,
        coalesce_streams=True,
        kernel_name="python3",
        kernel_manager_class=manager(Path(os.devnull)),
        resources={"metadata": {"path": str(file.parent)}},
    )
    try:
        return client.execute(env={**os.environ, VARIABLE: "0"})
    except (CellExecutionError, CellTimeoutError) as error:
        raise ChapterFailed(
            "A cell of a chapter failed.",
            where=file.name,
            found=str(error).strip()[-500:],
            remedy="run the chapter in JupyterLab: `mudkit lab`",
        ) from error


def make_book(chapters: Sequence[Path], folder: Path) -> Path:
    """Execute chapters and write them as pages, with an index.

    Parameters
    ----------
    chapters : sequence of Path
        The notebooks, in the order of the book.
    folder : Path
        To make: a page a chapter, and ``index.html``. A book that is there is replaced.

    Returns
    -------
    Path
        The index page.

    Raises
    ------
    InputMissing
        There is no chapter.
    ChapterFailed
        Then nothing is written.
    OutputExists
        There is something else than a book.
    OutputProblem
    """
    from nbformat.v4 import new_markdown_cell, new_notebook

    from mudkit.report.html import export_html

    if not chapters:
        raise InputMissing(
            "There is no chapter to make a book of.",
            found="an empty list",
            expected="00_start_here.ipynb and others",
            remedy="install mudkit again, or go to its checkout",
        )
    lines = ["# mudkit", "", "What should reach a phone, when, and at what cost?", ""]
    with staged_folder(folder, overwrite=r".*\.html") as pages:
        with bar(len(chapters), "chapters", "") as done:
            for number, file in enumerate(chapters):
                page = execute(existing(file, "chapter"))
                title, question = _head(page)
                ways = [("Contents", "index.html")]
                ways += [("before", f"{each.stem}.html") for each in chapters[max(0, number - 1) : number]]
                ways += [("next", f"{each.stem}.html") for each in chapters[number + 1 : number + 2]]
                way = " · ".join(f"[{text}]({to})" for text, to in ways)
                page.cells = [new_markdown_cell(way), *page.cells, new_markdown_cell(way)]
                export_html(page, pages / f"{file.stem}.html", title=title, show_code=True)
                lines += [f"- **[{title}]({file.stem}.html)**", f"  {question}"]
                done(number + 1)
        index = new_notebook(cells=[new_markdown_cell("\n".join(lines))])
        export_html(index, pages / "index.html", title="mudkit")
    return folder / "index.html"


def _head(notebook: nbformat.NotebookNode) -> tuple[str, str]:
    """Give a chapter's title and its question."""
    title, *rest = [line for line in notebook.cells[0].source.splitlines() if line.strip()]
    return title.lstrip("# ").strip(), rest[0].strip("*_ ") if rest else ""
