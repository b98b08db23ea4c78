"""The public face of the package: names, docstrings, and what importing it loads."""

import inspect
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mudkit import figures

ROOT = Path(__file__).parents[3]
USERS = {".py", ".ipynb", ".md"}
FUNCTIONS = [name for name in figures.__all__ if inspect.isroutine(getattr(figures, name))]


@pytest.mark.process
def test_importing_the_package_loads_no_plotting():
    code = (
        "import sys, mudkit.figures; heavy = {'plotly', 'folium', 'pandas', 'shapely', 'ipywidgets'};"
        "sys.exit(sorted(heavy & set(sys.modules)).__repr__() if heavy & set(sys.modules) else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_name_is_there_and_is_listed():
    assert [name for name in figures.__all__ if getattr(figures, name, None) is None] == []
    assert set(figures.__all__) <= set(dir(figures))


def test_no_name_is_that_of_a_module():
    modules = {module.name for module in pkgutil.iter_modules(figures.__path__)}
    assert modules & set(figures.__all__) == set()


def test_users_import_the_package_alone():
    folders = ("mudkit", "widgets", "notebooks", "reports/templates", "docs", "tools")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.*") if path.suffix in USERS]
    files = [path for path in files if "figures" not in path.parts]
    found = [
        path.name
        for path in [*files, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
        if re.search(r"(from|import) mudkit\.figures\.", path.read_text(encoding="utf-8"))
    ]
    assert len(files) > 300
    assert found == []


def test_a_misspelt_name_gets_a_hint():
    with pytest.raises(AttributeError, match="did you mean 'message_diagram'"):
        _ = figures.message_diagramm
    with pytest.raises(AttributeError, match="no attribute 'xyz'"):
        _ = figures.xyz


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_parameter_is_described(name):
    function = getattr(figures, name)
    text = inspect.getdoc(function)
    summary = text.split("\n", 1)[0]
    assert summary.endswith(".")
    assert summary[0].isupper()
    section = re.search(r"Parameters\n-+\n(.*?)(?:\n\n\w+\n-+\n|\Z)", text, re.S)
    entries = re.findall(r"^(\w[^:\n]*?)(?: : .*)?\n((?:    .*\n?|\n)*)", section[1] if section else "", re.M)
    described = {name for names, words in entries if words.strip() for name in names.split(", ")}
    assert described == set(inspect.signature(function).parameters)
