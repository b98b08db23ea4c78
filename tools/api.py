"""Write the reference of what can be called, built from the docstrings, as pages that open without a network.

Usage: python tools/api.py [FOLDER [PACKAGE ...]]    reports/build/api and all of mudkit by default
"""

from __future__ import annotations

import ast
import inspect
import pkgutil
import sys
import warnings
from functools import cached_property
from pathlib import Path

import pdoc

import mudkit
from mudkit import figures
from mudkit.files import staged_folder

_OWN = r"mudkit.*|index\.html|search\.js"


class Module(pdoc.doc.Module):
    """A module with what stands under its constants, also where they were defined in another one.

    pdoc looks for it in the module that is shown, and a package only imports its constants.
    """

    @cached_property
    def _var_docstrings(self) -> dict[str, str]:
        result = dict(super()._var_docstrings)
        if hasattr(self.obj, "__path__"):
            for each in ast.parse(inspect.getsource(self.obj)).body:
                if isinstance(each, ast.ImportFrom) and str(each.module).startswith("mudkit"):
                    there = Module.from_name(str(each.module))._var_docstrings
                    names = {alias.asname or alias.name: alias.name for alias in each.names}
                    result |= {shown: there[name] for shown, name in names.items() if name in there}
        return result


def modules(packages: list[str]) -> list[str]:
    """Give the packages and all that is in them; what measures and what starts is nobody's to call."""
    result = ["mudkit", *(each.name for each in pkgutil.walk_packages(mudkit.__path__, "mudkit."))]
    public = [name for name in result if not name.startswith(("mudkit.reproduce.", "mudkit.__main__"))]
    return [name for name in public if not packages or any(f"{name}.".startswith(f"{p}.") for p in packages)]


def main(folder: Path, packages: list[str]) -> None:
    """Write the pages."""
    # They are loaded when they are asked for, and pdoc does not ask.
    vars(mudkit).update(Lab=mudkit.Lab)
    vars(figures).update({name: getattr(figures, name) for name in figures.__all__})
    pdoc.doc.Module = Module  # type: ignore[misc]
    pdoc.render.configure(docformat="numpy", footer_text=f"mudkit {mudkit.__version__}")
    with (
        warnings.catch_warnings(),
        staged_folder(folder, overwrite=r"mudkit.*|index\.html|search\.js") as new,
    ):
        warnings.simplefilter("ignore")  # names that only a type checker imports are shown as written
        pdoc.pdoc(*modules(packages), output_directory=new)
    sys.stdout.write(f"{folder / 'index.html'}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "reports/build/api"), sys.argv[2:])
