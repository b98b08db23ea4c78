"""Pages of the documentation: walks through the code, quoted output, and sizes."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from mudkit import __version__

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs" / name for name in ("how-it-works.md", "how-a-message-travels.md")]
STEP = re.compile(r"^(\d+)\. `([^`]+\.py)` · ((?:`[^`]+`(?:,\s+)?)+):\s+\S", re.MULTILINE)


def list_names(file):
    """List the classes, functions and ``Class.method`` of a module."""
    names = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            methods = (method for method in node.body if isinstance(method, ast.FunctionDef))
            names |= {f"{node.name}.{method.name}" for method in methods}
    return names


def list_steps(*pages):
    texts = [page.read_text(encoding="utf-8") for page in pages or PAGES]
    listed = [step for text in texts for step in STEP.findall(text)]
    return [(file, re.findall(r"`([^`]+)`", names)) for _, file, names in listed]


@pytest.mark.parametrize(("file", "names"), list_steps(), ids=lambda value: str(value))
def test_steps_name_existing_files_and_definitions(file, names):
    assert (ROOT / file).is_file(), "the page names a file that is not there"
    assert set(names) <= list_names(ROOT / file)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_step_has_a_file_and_a_name(page):
    text = page.read_text(encoding="utf-8")
    assert len(list_steps(page)) == len(re.findall(r"^\d+\. ", text, re.MULTILINE))
    for walk in text.split("\n## ")[1:]:
        numbers = [int(number) for number in re.findall(r"^(\d+)\. ", walk, re.MULTILINE)]
        assert numbers == list(range(1, len(numbers) + 1)), "steps are numbered without a gap"


def list_called(code):
    """Execute code; return the files of the package, and the names of the functions in them, that were called."""
    called = set()
    former = sys.getprofile()
    sys.setprofile(lambda frame, event, _: called.add(frame.f_code) if event == "call" else None)
    try:
        exec(compile(code, "README.md", "exec"), {})
    finally:
        sys.setprofile(former)
    files = {
        code: code.co_filename.rpartition("/mudkit/")[2] for code in called
    }  # a mutant's stand elsewhere
    return {(f"mudkit/{file}", code.co_qualname) for code, file in files.items()}


def test_functions_of_the_first_walk_are_called_by_the_example_of_the_readme(capsys):
    """A step once named ``Connection.ask``, which exists, and which no write calls."""
    called = list_called(re.search(r"```python\n(.*?)```", README, re.DOTALL)[1])
    walk = PAGES[0].read_text(encoding="utf-8").split("\n## ")[1]
    steps = [(file, re.findall(r"`([^`]+)`", names)) for _, file, names in STEP.findall(walk)]
    assert len(steps) > 30
    named = {(file, name) for file, names in steps for name in names}
    assert named - called == set()


APPLICATIONS = ROOT / "docs" / "applications.md"
BLOCK = re.compile(r"```python\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)


def list_sections():
    return APPLICATIONS.read_text(encoding="utf-8").split("\n## ")[1:]


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("section", list_sections(), ids=lambda section: section.partition("\n")[0])
def test_application_prints_the_quoted_output(section, capsys):
    blocks = BLOCK.findall(section)
    assert len(blocks) == section.count("```python")
    names = {}
    for code, printed in blocks:
        exec(compile(code, "docs/applications.md", "exec"), names)
        assert capsys.readouterr().out == printed


README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_readme_quotes_the_scorecard():
    """Check ten rows of its table for the verdict and for figures from the row's section."""
    scorecard = (ROOT / "docs" / "scorecard.md").read_text(encoding="utf-8")
    sections = {part.partition("\n")[0]: part for part in scorecard.split("\n## ")[1:]}
    table = README.split("## Papers and measurements")[1].split("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in table.splitlines()
        if line[:1] == "|"
    ]
    assert len(rows[2:]) == 10
    for row, _, _, ours, verdict in rows[2:]:
        measured = {
            cell.split(" (")[0].strip()
            for line in sections[row].splitlines()
            if line[:1] == "|"
            for cell in line.split("|")
        }
        quoted = re.findall(r"−?\d[\d,.]*\d|\d", ours)
        assert quoted, row
        assert set(quoted) <= measured, row
        assert f" {verdict}. " in sections[row], row
    assert f"All {len(sections)} rows" in table


@pytest.mark.process
@pytest.mark.parametrize(
    "module", [(), ("-m", "IPython", "--no-banner", "--colors=NoColor")], ids=["script", "cell"]
)
def test_readme_lab_prints_the_quoted_output(module, tmp_path):
    code, printed = re.search(r"```python\n(.*?)```.*?```text\n(.*?)```", README, re.DOTALL).groups()
    command = [sys.executable, *module, "-c", code]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "IPYTHONDIR": str(tmp_path)}
    run = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path, env=env)
    assert run.stdout == printed


def test_readme_is_short_and_its_pictures_are_small():
    assert len(README.splitlines()) <= 150
    pictures = re.findall(r"!\[[^]]+\]\(([^)]+)\)", README)
    assert len(pictures) == 2
    assert all((ROOT / picture).stat().st_size < 200_000 for picture in pictures)


def test_contributing_is_short():
    assert len((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_version_is_the_same_everywhere():
    metadata = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert metadata["version"] == citation["version"] == __version__
    assert f"\n## {__version__}\n" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
