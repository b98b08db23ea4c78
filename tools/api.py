"""Write the reference of what can be called, built from the docstrings, as pages that open without a network.

Usage: python tools/api.py [FOLDER [PACKAGE ...]]    reports/build/api and all of mudkit by default
"""

from __future__ import annotations

import pkgutil
import sys
import warnings
from pathlib import Path

import pdoc

import mudkit
from mudkit.files import staged_folder

_OWN = r"mudkit.*|index\.html|search\.js"


def modules(packages: list[str]) -> list[str]:
    """Give the packages and all that is in them; what measures and what starts is nobody's to call."""
    found = ["mudkit", *(each.name for each in pkgutil.walk_packages(mudkit.__path__, "mudkit."))]
    public = [name for name in found if not name.startswith(("mudkit.reproduce.", "mudkit.__main__"))]
    return [name for name in public if not packages or any(f"{name}.".startswith(f"{p}.") for p in packages)]


def main(folder: Path, packages: list[str]) -> None:
    """Write the pages."""
    vars(mudkit).update(Lab=mudkit.Lab)  # it is loaded when it is asked for, and pdoc does not ask
    pdoc.render.configure(docformat="numpy", footer_text=f"mudkit {mudkit.__version__}")
    with (
        warnings.catch_warnings(),
        staged_folder(folder, overwrite=r"mudkit.*|index\.html|search\.js") as new,
    ):
        warnings.simplefilter(
            "ignore"
        )  # names that only a type checker imports are shown as they are written
        pdoc.pdoc(*modules(packages), output_directory=new)
    sys.stdout.write(f"{folder / 'index.html'}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "reports/build/api"), sys.argv[2:])
