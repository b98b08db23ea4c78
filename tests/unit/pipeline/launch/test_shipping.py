"""The zip file that executors import mudkit from."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mudkit.pipeline.launch.shipping import package_folder, write_package


@pytest.mark.process
def test_python_imports_mudkit_from_the_zip_file(tmp_path):
    path = write_package(tmp_path)
    code = (
        f"import sys; sys.path.insert(0, {str(path)!r}); import mudkit.errors; print(mudkit.errors.__file__)"
    )
    said = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == str(path / "mudkit" / "errors.py")


def test_the_same_files_give_the_same_bytes(tmp_path):
    (tmp_path / "again").mkdir()
    assert write_package(tmp_path).read_bytes() == write_package(tmp_path / "again").read_bytes()


def test_the_folder_is_the_packages_own():
    assert (package_folder() / "errors.py").is_file()
