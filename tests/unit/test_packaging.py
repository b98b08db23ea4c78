"""Wheel built from the sdist: its files, and its commands outside of a checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.process
ROOT = Path(__file__).parents[2]


def build(target, source, out):
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", out]
    subprocess.run(command, cwd=source, check=True, capture_output=True)


def list_tracked_files():
    """Yield the files that a wheel must hold: those of the package and of linked folders."""

    def list_files(folder):
        command = ["git", "ls-files", folder]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()

    for file in list_files("mudkit"):
        if not (ROOT / file).is_symlink():
            yield file
            continue
        folder = (ROOT / file).resolve().relative_to(ROOT).as_posix()
        linked = [file + path.removeprefix(folder) for path in list_files(folder)]
        assert linked, f"{file} leads to nothing that git knows"
        yield from linked


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Unpack the wheel of the sdist into a folder."""
    folder = tmp_path_factory.mktemp("packaging")
    build("sdist", ROOT, folder)
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        archive.extractall(folder, filter="data")
    build("wheel", next(path for path in folder.iterdir() if path.is_dir()), folder)
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        names = wheel.namelist()
        assert len(names) == len(set(names))
        wheel.extractall(folder / "installed")
    return folder / "installed"


@pytest.mark.soak
def test_wheel_of_the_sdist_holds_every_file(installed):
    assert [file for file in list_tracked_files() if not (installed / file).is_file()] == []


def run_mudkit(installed, *arguments):
    """Run the command of the wheel outside of the checkout, without access to its modules."""
    environment = {**os.environ, "PYTHONPATH": str(installed), "PYTHONSAFEPATH": "1"}
    folder = installed.parent / "elsewhere"
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "mudkit", *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.soak
def test_commands_of_the_wheel_work_outside_of_a_checkout(installed):
    rows = json.loads(run_mudkit(installed, "reproduce", "--json", "R4"))
    assert [row["row"] for row in rows] == ["R4"]
    run_mudkit(installed, "report", "prefetch_sizing", "--preset", "sample")
    page = next((installed.parent / "elsewhere").rglob("*.html"))
    assert "</html>" in page.read_text(encoding="utf-8")
    assert "--student" in run_mudkit(installed, "lab", "--help")


def test_jupyterlab_follows_the_theme_of_the_system():
    settings = json.loads((ROOT / "mudkit/data/jupyter/labconfig/default_setting_overrides.json").read_text())
    themes = settings["@jupyterlab/apputils-extension:themes"]
    assert themes == {"adaptive-theme": True}
    schema = Path(sys.prefix, "share/jupyter/lab/schemas/@jupyterlab/apputils-extension/themes.json")
    known = json.loads(schema.read_text())["properties"]
    assert all(known[name]["type"] == "boolean" for name in themes)
