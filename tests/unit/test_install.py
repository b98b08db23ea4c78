"""Set-up: what it installs is printed while it is installed, and its status is that of pip."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PIP = """
import sys
print("Looking in indexes: https://pypi.org/simple")
print("Ignoring colorama: markers 'os_name == \\"nt\\"' don't match your environment")
for number in range(2, 13):
    print(f"Collecting p{number}==1 (from -r r.txt (line {number}))")
    print(f"  Downloading p{number}-1-py3-none-any.whl (12.5 MB)")
print("Requirement already satisfied: six==1.17.0 in /lib")
print("Installing collected packages: p2, p3, p4")
sys.exit(int(open("status").read()))
"""


@pytest.fixture(scope="module")
def install():
    spec = importlib.util.spec_from_file_location("mudkit_install", ROOT / "tools" / "install.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_package_is_a_stage(install):
    lines = [
        "Collecting numpy==2.0\n",
        "  Downloading numpy-2.0.whl (18.0 MB)\n",
        "Ignoring tzdata: markers\n",
    ]
    lines += [
        "  Using cached x.whl (1 kB)\n",
        "Installing collected packages: numpy, six\n",
        "Successfully installed\n",
    ]
    assert [*install.stages(lines, 3)] == [
        (1, "package 1 of 3: numpy"),
        (1, "package 1 of 3: numpy, 18.0 MB"),
        (2, "package 2 of 3: tzdata"),
        (0, f"writing 2 packages to {sys.prefix} (a minute or two)"),
    ]


@pytest.mark.parametrize("status", [0, 2])
def test_packages_are_printed_and_the_status_is_that_of_pip(tmp_path, status):
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip" / "__main__.py").write_text(PIP)
    (tmp_path / "pip" / "__init__.py").touch()
    (tmp_path / "status").write_text(str(status))
    (tmp_path / "r.txt").write_text("".join(f"p{n}==1 \\\n    --hash=sha256:0\n" for n in range(1, 14)))
    run = subprocess.run(
        [sys.executable, ROOT / "tools" / "install.py", "r.txt"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.returncode, run.stdout) == (status, "")
    assert run.stderr.splitlines() == [
        "mudkit: package 10 of 13: p10",
        f"mudkit: writing 3 packages to {sys.prefix} (a minute or two)",
    ]


def test_set_up_names_each_step(tmp_path):
    """Run the script with a Python that does nothing; npm is missing at first."""
    for folder in ("venv/bin", "tools"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "tools" / "setup.sh").write_bytes((ROOT / "tools" / "setup.sh").read_bytes())
    python = tmp_path / "venv" / "bin" / "python"
    python.write_text(
        '#!/bin/sh\necho "$*" >>calls\n[ "$1" != tools/fetch_assets.py ] || [ -e npm ] || { touch npm; exit 3; }\n'
    )
    python.chmod(0o755)
    command = ["sh", "tools/setup.sh", "venv"]
    run = subprocess.run(
        command,
        cwd=tmp_path,
        env=os.environ | {"PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.returncode, run.stdout) == (0, "")
    assert run.stderr.splitlines() == [
        "mudkit: installing the packages of requirements.txt into venv (a few minutes and 2 GB the first time)",
        "mudkit: installing mudkit itself",
        "mudkit: fetching the files of maps and browser tests with npm",
        "mudkit: no npm here: installing the one that PyPI has",
        "mudkit: ready",
    ]
    calls = (tmp_path / "calls").read_text().splitlines()
    assert [call for call in calls if "install.py" in call] == [
        "tools/install.py requirements.txt",
        "tools/install.py requirements-node.txt",
    ]
