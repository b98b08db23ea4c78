"""Lazy exports: a public name of a package is imported when it is first used."""

import importlib
import sys
from collections.abc import Callable
from typing import Any


def lazy_exports(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package that exports the names in its ``__all__``.

    The package imports these in the body of ``if TYPE_CHECKING:``, where their modules are read at first use.
    """
    origins: dict[str, str] = {}

    def load(name: str) -> Any:
        public = vars(sys.modules[package]).get("__all__", ())
        if name in public:
            if not origins:
                origins.update(_origins(package))
            if origins[name] == package:
                return importlib.import_module(f"{package}.{name}")
            return getattr(importlib.import_module(origins[name]), name)
        message = f"module {package!r} has no attribute {name!r}"
        if not name.startswith("_"):
            from mudkit.errors import did_you_mean

            message += f"; {did_you_mean(name, public, otherwise='dir() lists all names')}"
        raise AttributeError(message, name=name)

    def names() -> list[str]:
        module = sys.modules[package]
        return sorted({*module.__all__, *(name for name in vars(module) if name.startswith("__"))})

    return load, names


def _origins(package: str) -> dict[str, str]:
    """Return the module of each name that a package imports for type checkers."""
    import ast
    import inspect

    tree = ast.parse(inspect.getsource(sys.modules[package]))
    return {
        alias.name: str(statement.module)
        for block in tree.body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for statement in block.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
