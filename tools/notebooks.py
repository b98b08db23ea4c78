"""Execute chapters and normalise them: outputs stay only where the tests compare them.

It prints how long each took, and all together: the budget is 4 minutes. The run time that a chapter and its
page in docs/teaching state is rewritten when it is off by more than a third: run it on a quiet machine.

Usage: python tools/notebooks.py [NOTEBOOK ...]        all of notebooks/ by default
"""

from __future__ import annotations

import math
import os
import re
import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from tqdm import tqdm

from mudkit.progress import VARIABLE
from mudkit.report.run import QUIET_KERNEL, kernel_manager

CHECKED = "nbval-check-output"
FOLDER = Path(__file__).parents[1] / "notebooks"
TEACHING = FOLDER.parent / "docs" / "teaching"
STATED = re.compile(r"((?:Run time:|chapter\s+runs\s+in)\s+about\s+)(\d+)(?=\s+seconds)")
STEP_S = 5
WITHIN_S = 600


def execute(file: Path) -> nbformat.NotebookNode:
    """Run a notebook in its folder, in a new kernel without progress bars."""
    client = NotebookClient(
        nbformat.read(file, as_version=4),
        extra_arguments=QUIET_KERNEL,
        timeout=WITHIN_S,
        coalesce_streams=True,
        kernel_name="python3",
        kernel_manager_class=kernel_manager(Path(os.devnull)),
        resources={"metadata": {"path": str(file.parent)}},
    )
    return client.execute(env={**os.environ, VARIABLE: "0"})


def normalise(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Strip what changes from run to run, and every output that no test compares."""
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for cell in notebook.cells:
        cell.metadata = {"tags": cell.metadata["tags"]} if cell.metadata.get("tags") else {}
        if cell.cell_type != "code":
            continue
        if CHECKED not in cell.metadata.get("tags", []):
            cell.outputs, cell.execution_count = [], None
        for output in cell.outputs:
            output.get("metadata", {}).clear()
            if "execution_count" in output:
                output.execution_count = cell.execution_count
    return notebook


def state(text: str, took_s: float) -> str:
    """Replace the run time that a text states, rounded up to 5 s, unless the measured one is near."""
    result = STATED.search(text)
    if result is None or abs(took_s - int(result[2])) <= int(result[2]) / 3:
        return text
    return STATED.sub(rf"\g<1>{math.ceil(took_s / STEP_S) * STEP_S}", text)


def main() -> None:
    """Execute the named chapters, or all, and print how many seconds each took."""
    files = [Path(name) for name in sys.argv[1:]] or sorted(FOLDER.glob("[0-9]*.ipynb"))
    all_s = 0.0
    for file in tqdm(files, unit="chapter"):
        started = time.monotonic()
        executed = execute(file)
        took_s = time.monotonic() - started
        executed.cells[0].source = state(executed.cells[0].source, took_s)
        nbformat.write(normalise(executed), file)
        page = TEACHING / f"{file.stem}.md"
        if page.exists():
            page.write_text(state(page.read_text(), took_s))
        tqdm.write(f"{took_s:6.1f} s  {file.stem}")
        all_s += took_s
    tqdm.write(f"{all_s:6.1f} s  in all")


if __name__ == "__main__":
    main()
