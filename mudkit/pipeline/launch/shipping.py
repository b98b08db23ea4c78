"""mudkit for executors on other machines: the package as a zip file."""

from __future__ import annotations

import zipfile
from pathlib import Path

import mudkit

__all__ = ["EXECUTORS_NEED", "package_folder", "write_package"]

EXECUTORS_NEED = ("numpy", "pandas", "pyarrow", "scipy", "google-re2", "sqlglot", "msgspec")
"""What the Python of executors on other machines has to have: mudkit's jobs import them there."""


def package_folder() -> Path:
    """Return the folder that mudkit is imported from."""
    return Path(mudkit.__file__).parent


def write_package(folder: Path) -> Path:
    """Write mudkit's Python files as ``mudkit.zip``, which Python can import from.

    Parameters
    ----------
    folder : Path
        An existing folder.

    Returns
    -------
    Path
        The zip file; the same bytes for the same files.
    """
    package = package_folder()
    path = folder / "mudkit.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(package.rglob("*.py")):
            # A fixed date, so that the bytes depend on the files alone.
            entry = zipfile.ZipInfo(f"mudkit/{file.relative_to(package).as_posix()}")
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, file.read_bytes())
    return path
