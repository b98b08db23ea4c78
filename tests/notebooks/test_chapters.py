"""Chapters: form, size, reproducible outputs, solutions, and other parameters."""

import ast
import os
import random
import re
import subprocess
import sys
from ast import literal_eval
from pathlib import Path
from xml.etree import ElementTree

import nbformat
import papermill
import pytest
from chapter_ranges import RANGES, draw_parameters
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


def run_nbval(notebooks, folder):
    """Run notebooks as chapters of a new folder, each in a kernel, all in one process; nbval compares outputs."""
    chapters = folder / "notebooks"
    chapters.mkdir()
    (folder / "data").symlink_to(FOLDER.parent / "data")
    for name, notebook in notebooks.items():
        nbformat.write(notebook, chapters / name)
    environment = os.environ | {"PYTHONWARNINGS": "", "MUDKIT_PROGRESS": "0"}  # a bar is an output, too
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--nbval-lax", "--nbval-cell-timeout=300", "-p", "no:cacheprovider",
         "-c", os.devnull, f"--rootdir={chapters}", "--junit-xml=report.xml", *notebooks],
        capture_output=True, text=True, env=environment, check=False, cwd=chapters,
    )  # fmt: skip


SPARK_CHAPTERS = {"00_start_here", "08_traces_on_spark", "09_cache_policies", "10_write_batching"}
"""Chapters that start Spark, which takes as long as most chapters."""


@pytest.fixture(params=CHAPTERS, ids=lambda file: file.stem)
def chapter(request):
    return request.param


def test_every_chapter_has_parameter_ranges():
    assert CHAPTERS
    assert {file.stem for file in CHAPTERS} == set(RANGES)


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


PASSED = """
(shown,) = map(repr, Out.values())
assert shown.startswith("Passed."), shown
"""
"""Cell that checks what the cell before it shows."""


def with_solutions(notebook):
    """Append the folded solutions: they run after all cells, also those below an exercise."""
    solutions = [
        source
        for cell in notebook.cells
        if cell.cell_type == "markdown"
        for source in FOLDED.findall(cell.source)
    ]
    assert len(solutions) >= 2
    assert any("judge(" in source for source in solutions)
    for source in solutions:
        sources = (f"Out.clear()\n{source}", PASSED) if "judge(" in source else (source,)
        notebook.cells += map(nbformat.v4.new_code_cell, sources)
    return notebook


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


SEEDS = "seeds=range(seed, seed + 3)"
"""Seeds of the chapters' sweeps, which are figures: `make test` runs the first."""


def read_for_run(chapter, scaled):
    notebook = with_solutions(nbformat.read(chapter, as_version=4))
    for cell in select_code_cells(notebook):
        if CHECKED not in cell.metadata.get("tags", []):
            cell.source = cell.source.replace(SEEDS, scaled(SEEDS, "seeds=[seed]"))
    return notebook


@pytest.fixture(scope="module")
def executed(request, tmp_path_factory, scaled):
    """Return the output of nbval for all selected chapters, and the results of its cells by chapter."""
    name = test_chapter_reproduces_its_outputs_and_its_solutions_pass.__name__
    items = [item for item in request.session.items if getattr(item, "originalname", "") == name]
    chapters = [item.callspec.params["chapter"] for item in items]
    folder = tmp_path_factory.mktemp("executed")
    result = run_nbval({chapter.name: read_for_run(chapter, scaled) for chapter in chapters}, folder)
    cells = {chapter.name: [] for chapter in chapters}
    for case in ElementTree.parse(folder / "notebooks" / "report.xml").iter("testcase"):
        cells[case.attrib["classname"]].append(case)
    return result.stdout, cells


@pytest.mark.soak(keep=1, group="executed")
@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda file: file.stem)
def test_chapter_reproduces_its_outputs_and_its_solutions_pass(executed, chapter, scaled):
    output, cells = executed
    assert len(cells[chapter.name]) == len(select_code_cells(read_for_run(chapter, scaled))), output[-6000:]
    problems = [f"{case.attrib['name']}: {child.text}" for case in cells[chapter.name] for child in case]
    assert not problems, "\n\n".join(problems)


@pytest.mark.soak
def test_wrong_character_in_an_output_is_detected(chapter, tmp_path):
    notebook = nbformat.read(chapter, as_version=4)
    last = select_code_cells(notebook, CHECKED)[0]
    output = last.outputs[0]
    holder, name = (output, "text") if output.output_type == "stream" else (output.data, "text/plain")
    text = holder[name]
    position = max(index for index, character in enumerate(text) if character.isalnum())
    holder[name] = text[:position] + ("1" if text[position] == "0" else "0") + text[position + 1 :]
    # Only the cells up to the planted error are relevant.
    notebook.cells = notebook.cells[: notebook.cells.index(last) + 1]
    result = run_nbval({chapter.name: notebook}, tmp_path)
    assert result.returncode == 1
    assert "1 failed" in result.stdout


def test_wrong_output_and_solution_that_does_not_pass_are_detected(tmp_path):
    wrong = ["Verdict('Not yet.')", "1 // 0", "None"]
    solution = "<details><summary>A solution</summary>\n\n```python\n# judge(\n{}\n```\n</details>"
    new = nbformat.v4
    cells = [new.new_code_cell("class Verdict(str):\n    __repr__ = str.__str__")]
    for number in (5, 6):
        output = new.new_output("execute_result", data={"text/plain": str(number)}, execution_count=1)
        tagged = {"execution_count": 1, "metadata": {"tags": [CHECKED]}}
        cells.append(new.new_code_cell("2 + 3", outputs=[output], **tagged))
    cells += [new.new_markdown_cell(solution.format(shown)) for shown in [*wrong, "Verdict('Passed.')"]]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    notebook = with_solutions(new.new_notebook(cells=cells, metadata=kernel))
    result = run_nbval({"planted.ipynb": notebook}, tmp_path)
    assert f"{len(wrong) + 2} failed" in result.stdout, "the output, each check, and the cell that raises"


@pytest.mark.parametrize(
    "name",
    [
        # A start of Spark takes as long as most chapters.
        pytest.param(
            name,
            marks=pytest.mark.soak if name in SPARK_CHAPTERS else pytest.mark.soak(keep=1, group="executed"),
        )
        for name in sorted(RANGES)
    ],
)
def test_chapter_runs_with_other_parameters(name, tmp_path):
    chapter = FOLDER / f"{name}.ipynb"
    notebook = papermill.execute_notebook(
        chapter,
        tmp_path / chapter.name,
        draw_other_parameters(chapter),
        cwd=FOLDER,
        kernel_name="python3",
        progress_bar=False,
    )
    assert all(cell.execution_count for cell in notebook.cells if cell.cell_type == "code" and cell.source)


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
