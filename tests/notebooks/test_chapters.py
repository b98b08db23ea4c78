"""Chapters: form, size, reproducible outputs, solutions, and other parameters."""

import ast
import copy
import os
import random
import re
import subprocess
import sys
import time
from ast import literal_eval
from pathlib import Path

import nbformat
import papermill
import pytest
from chapter_ranges import RANGES, draw_parameters
from nbclient import NotebookClient
from papermill.inspection import inspect_notebook

pytestmark = pytest.mark.notebook
FOLDER = Path(__file__).parents[2] / "notebooks"
CHAPTERS = sorted(FOLDER.glob("[0-9]*.ipynb"))
CHECKED = "nbval-check-output"

POSITIONS, READS = "../data/sample/positions.csv.gz", "../data/sample/reads.csv.gz"
FILE_PARAMETERS: dict[str, dict[str, str]] = {
    "06_context_propagation": {"recorded": POSITIONS, "start": "2010-03-01T12:40"},
    "08_traces_on_spark": {"source": READS, "access_log": "", "rule": "trip_start(still_s=300)"},
    "09_cache_policies": {"source": POSITIONS, "access_log": READS, "rule": "occupancy"},
    "10_write_batching": {"source": POSITIONS, "access_log": READS, "rule": "occupancy"},
}
"""Files named by the second set of parameters, relative to the chapters' folder."""


def draw_other_parameters(chapter):
    """Draw a second set of parameters for a chapter, which changes all of them."""
    defaults = {
        name: literal_eval(parameter["default"]) for name, parameter in inspect_notebook(str(chapter)).items()
    }
    dice, parameters = random.Random(chapter.stem), dict(FILE_PARAMETERS.get(chapter.stem, {}))
    for _ in range(100):
        values = draw_parameters(chapter.stem, dice)
        parameters |= {
            name: values[name] for name, value in defaults.items() if parameters.get(name, value) == value
        }
    assert [name for name, value in defaults.items() if parameters[name] == value] == []
    return parameters


def select_code_cells(notebook, tag=None):
    return [
        cell
        for cell in notebook.cells
        if cell.cell_type == "code" and (tag is None or tag in cell.metadata.get("tags", []))
    ]


def run_nbval(files, folder):
    environment = os.environ | {"PYTHONWARNINGS": "", "MUDKIT_PROGRESS": "0"}  # a bar is an output, too
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--nbval-lax", "-p", "no:cacheprovider", "-c", os.devnull,
         f"--rootdir={folder}", *map(str, files)],
        capture_output=True, text=True, env=environment, check=False, cwd=folder,
    )  # fmt: skip


@pytest.fixture(params=CHAPTERS, ids=lambda file: file.stem)
def chapter(request):
    return request.param


def test_every_chapter_has_parameter_ranges():
    assert CHAPTERS
    assert {file.stem for file in CHAPTERS} == set(RANGES)


SOLVED = {"00_start_here", "01_mud_tables"}
"""Chapters whose folded solutions run in `make test`; all others run in the soak."""


def is_exercise(cell):
    return cell.id.startswith("exercise")


def test_chapter_form(chapter):
    notebook = nbformat.read(chapter, as_version=4)
    nbformat.validate(notebook)
    assert chapter.stat().st_size < 300_000
    assert len(select_code_cells(notebook, "parameters")) == 1
    assert len([cell for cell in notebook.cells if not is_exercise(cell)]) <= 32
    for cell in select_code_cells(notebook):
        tree = ast.parse(cell.source)
        is_list_of_imports = all(isinstance(node, ast.Import | ast.ImportFrom) for node in tree.body)
        tags = set(cell.metadata.get("tags", []))
        if not (is_list_of_imports or is_exercise(cell) or "parameters" in tags):
            lines = [line for line in cell.source.splitlines() if line]
            assert len(lines) <= (12 if "scenario" in tags else 8), cell.source
        for node in ast.walk(tree):
            assert not isinstance(node, ast.JoinedStr), f"formats text: {cell.source}"
            if isinstance(node, ast.Call):
                assert ast.unparse(node.func) != "print", cell.source


def test_exercises_have_hint_solution_and_starter_cell(chapter):
    cells = nbformat.read(chapter, as_version=4).cells
    exercises = [
        index for index, cell in enumerate(cells) if is_exercise(cell) and cell.cell_type == "markdown"
    ]
    assert len(exercises) >= 2
    for index in exercises:
        for part in ("<summary>Hint</summary>", "<summary>A solution</summary>", "```python"):
            assert part in cells[index].source
        assert is_exercise(cells[index + 1])
        assert cells[index + 1].cell_type == "code"
    judged = [cell.source for cell in cells if cell.cell_type == "code" and "judge(" in cell.source]
    assert judged
    assert all("..." in source for source in judged), "a starter is empty"


FOLDED = re.compile(r"<details><summary>A solution</summary>\s*```python\n(.*?)```", re.DOTALL)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in SOLVED else pytest.mark.soak) for name in sorted(RANGES)],
)
def test_folded_solutions_run_and_pass(name, tmp_path):
    """Run the solutions after all cells, also those below an exercise."""
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    solutions = [
        nbformat.v4.new_code_cell(source)
        for cell in notebook.cells
        if cell.cell_type == "markdown"
        for source in FOLDED.findall(cell.source)
    ]
    assert len(solutions) >= 2
    notebook.cells += solutions
    client = NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(FOLDER)}}
    )
    client.execute(env={**os.environ, "MUDKIT_PROGRESS": "0"})
    for cell in solutions:
        if "judge(" in cell.source:
            (output,) = cell.outputs
            assert output.data["text/plain"].startswith("Passed."), output.data["text/plain"]


def test_cells_show_every_table_and_figure(chapter):
    """Find tables and figures before a cell's last expression, which notebooks do not show."""
    makers = {
        "show",
        "message_diagram",
        "link_strip",
        "heat_map",
        "cell_map",
        "history",
        "radio_timeline",
    }
    for cell in select_code_cells(nbformat.read(chapter, as_version=4)):
        for statement in ast.parse(cell.source).body[:-1]:
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
                maker = ast.unparse(statement.value.func).split(".")[-1]
                assert maker not in makers, cell.source


def test_exactly_the_checked_cells_have_outputs(chapter):
    notebook = nbformat.read(chapter, as_version=4)
    assert select_code_cells(notebook, CHECKED)
    for cell in select_code_cells(notebook):
        is_checked = CHECKED in cell.metadata.get("tags", [])
        assert bool(cell.outputs) == is_checked, cell.source
        assert (cell.execution_count is not None) == is_checked, cell.source


def test_chapter_reproduces_its_outputs(chapter):
    start_s = time.monotonic()
    result = run_nbval([chapter], FOLDER)
    assert result.returncode == 0, result.stdout[-6000:]
    # A generous limit, not a measurement: the budget is 45 s on an idle machine.
    assert time.monotonic() - start_s < 240


@pytest.mark.soak(keep=1)
def test_wrong_character_in_an_output_is_detected(chapter, tmp_path):
    notebook = copy.deepcopy(nbformat.read(chapter, as_version=4))
    last = select_code_cells(notebook, CHECKED)[0]
    output = last.outputs[0]
    holder, name = (output, "text") if output.output_type == "stream" else (output.data, "text/plain")
    text = holder[name]
    position = max(index for index, character in enumerate(text) if character.isalnum())
    holder[name] = text[:position] + ("1" if text[position] == "0" else "0") + text[position + 1 :]
    # Only the cells up to the planted error are relevant.
    notebook.cells = notebook.cells[: notebook.cells.index(last) + 1]
    planted = tmp_path / "notebooks" / chapter.name
    planted.parent.mkdir()
    (tmp_path / "data").symlink_to(FOLDER.parent / "data")
    nbformat.write(notebook, planted)
    result = run_nbval([planted], planted.parent)
    assert result.returncode == 1
    assert "1 failed" in result.stdout


@pytest.mark.soak(keep=3)
def test_chapter_runs_with_other_parameters(chapter, tmp_path):
    executed = papermill.execute_notebook(
        chapter,
        tmp_path / chapter.name,
        draw_other_parameters(chapter),
        cwd=FOLDER,
        kernel_name="python3",
        progress_bar=False,
    )
    assert all(cell.execution_count for cell in executed.cells if cell.cell_type == "code" and cell.source)


@pytest.mark.soak
def test_user_trace_needs_two_parameters(tmp_path):
    """Run on tracks as a watch exports them: a folder of GPX, without an access log."""
    tracks = tmp_path / "tracks"
    tracks.mkdir()
    for runner in range(3):
        points = [
            f'<trkpt lat="{45 + runner / 100 + minute / 5000}" lon="{7 + minute / 5000}">'
            f"<time>2024-05-0{day + 1}T{hour:02d}:{minute:02d}:00Z</time></trkpt>"
            for day in range(2)
            for hour in (6, 18)
            for minute in range(50)
        ]
        (tracks / f"runner-{runner}.gpx").write_text(
            '<?xml version="1.0"?><gpx version="1.1" xmlns="http://www.topografix.com/GPX/1/1"><trk><trkseg>'
            f"{''.join(points)}</trkseg></trk></gpx>"
        )
    notebook = papermill.execute_notebook(
        FOLDER / "08_traces_on_spark.ipynb",
        tmp_path / "own.ipynb",
        {"source": str(tracks), "access_log": ""},
        cwd=FOLDER,
        kernel_name="python3",
        progress_bar=False,
    )
    (cell,) = (cell for cell in notebook.cells if cell.id == "outgrow")
    (output,) = (output for output in cell.outputs if output.output_type == "execute_result")
    head, row = output.data["text/plain"].splitlines()[1:]
    assert head.split()[:2] == ["parts", "rows"]
    assert row.split()[0] == "2"
    assert row.split()[-1] == "yes", "the same rows as at once"
