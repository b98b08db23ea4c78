"""The reference is built from the docstrings, and opens without a network."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process
ROOT = Path(__file__).parents[2]


@pytest.mark.soak
def test_the_reference_is_built(tmp_path):
    out = tmp_path / "api"
    for _ in range(2):  # one that is there is replaced
        process = subprocess.run(
            [sys.executable, ROOT / "tools" / "api.py", out, "mudkit.units", "mudkit.lab"],
            capture_output=True,
            text=True,
            check=True,
            cwd=tmp_path,
        )
        assert process.stdout == f"{out / 'index.html'}\n"
    pages = {file.stem: file.read_text(encoding="utf-8") for file in out.rglob("*.html")}
    assert set(pages) == {"index", "lab", "units"}
    assert "Virtual time goes on" in pages["lab"] or "virtual time" in pages["lab"]
    assert "Raises" in pages["lab"]
    assert not re.search(r'<(?:script|link)[^>]+(?:src|href)="(?:https?:)?//', "".join(pages.values()))


@pytest.mark.soak
def test_a_package_shows_what_stands_under_the_constants_that_it_imports(tmp_path):
    packages = ["mudkit.experiment.adapters", "mudkit.experiment.tasks"]
    subprocess.run(
        [sys.executable, ROOT / "tools" / "api.py", tmp_path / "api", *packages],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    for package, name, text in (
        ("adapters", "ADAPTERS", "the first is the baseline"),
        ("tasks", "NEWS", "40 readers"),
    ):
        page = (tmp_path / "api" / "mudkit" / "experiment" / f"{package}.html").read_text(encoding="utf-8")
        section = page.split(f'<section id="{name}">')[1].split("</section>")[0]
        assert text in section.split('class="docstring"')[1]
