"""Public API of the package: docstrings, and modules loaded by its import."""

import inspect
import re
import subprocess
import sys

import pytest

from mudkit import figures

FUNCTIONS = [name for name in figures.__all__ if inspect.isroutine(getattr(figures, name))]


@pytest.mark.process
def test_import_loads_no_plotting_libraries():
    code = (
        "import sys, mudkit.figures; heavy = {'plotly', 'folium', 'pandas', 'shapely', 'ipywidgets'};"
        "sys.exit(sorted(heavy & set(sys.modules)).__repr__() if heavy & set(sys.modules) else 0)"
    )
    process = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert (process.returncode, process.stderr) == (0, "")


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
