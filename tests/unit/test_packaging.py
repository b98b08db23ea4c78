"""A wheel that is built from the sdist holds all that the package needs, and runs outside of a checkout."""

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


def tracked():
    """List what a wheel is to hold: the files of the package, and those in folders to which its links lead."""

    def files(folder):
        command = ["git", "ls-files", folder]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()

    for file in files("mudkit"):
        if not (ROOT / file).is_symlink():
            yield file
            continue
        folder = (ROOT / file).resolve().relative_to(ROOT).as_posix()
        behind = [file + each.removeprefix(folder) for each in files(folder)]
        assert behind, f"{file} leads to nothing that git knows"
        yield from behind


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder into which the wheel of the sdist was unpacked."""
    room = tmp_path_factory.mktemp("packaging")
    build("sdist", ROOT, room)
    with tarfile.open(next(room.glob("*.tar.gz"))) as archive:
        archive.extractall(room, filter="data")
    build("wheel", next(path for path in room.iterdir() if path.is_dir()), room)
    with zipfile.ZipFile(next(room.glob("*.whl"))) as wheel:
        names = wheel.namelist()
        assert len(names) == len(set(names))
        wheel.extractall(room / "installed")
    return room / "installed"


@pytest.mark.soak
def test_a_wheel_of_the_sdist_holds_every_file(installed):
    assert [file for file in tracked() if not (installed / file).is_file()] == []


def mudkit(installed, *arguments):
    """Run the command of the wheel in a folder that is not a checkout, with nothing of this one in reach."""
    environment = {**os.environ, "PYTHONPATH": str(installed), "PYTHONSAFEPATH": "1"}
    folder = installed.parent / "elsewhere"
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "mudkit", *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.soak
def test_its_commands_work_outside_of_a_checkout(installed):
    rows = json.loads(mudkit(installed, "reproduce", "--json", "R4"))
    assert [row["row"] for row in rows] == ["R4"]
    mudkit(installed, "report", "prefetch_sizing", "--preset", "sample")
    page = next((installed.parent / "elsewhere").rglob("*.html"))
    assert "</html>" in page.read_text(encoding="utf-8")
    assert "--student" in mudkit(installed, "lab", "--help")


def test_jupyterlab_follows_the_theme_of_the_system():
    settings = json.loads((ROOT / "mudkit/data/jupyter/labconfig/default_setting_overrides.json").read_text())
    themes = settings["@jupyterlab/apputils-extension:themes"]
    assert themes == {"adaptive-theme": True}
    schema = Path(sys.prefix, "share/jupyter/lab/schemas/@jupyterlab/apputils-extension/themes.json")
    known = json.loads(schema.read_text())["properties"]
    assert all(known[name]["type"] == "boolean" for name in themes)
