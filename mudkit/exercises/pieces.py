"""Extraction of a function, with the names it uses, from a notebook or Python file."""

from __future__ import annotations

import ast
import asyncio
import symtable
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, CoroutineType
from typing import Any, NamedTuple

from mudkit.errors import ParameterError
from mudkit.files import existing

__all__ = ["KINDS", "Source", "read_source"]

KINDS = (".ipynb", ".py")
"""Suffixes of the supported files."""


class _Statement(NamedTuple):
    code: CodeType
    binds: frozenset[str]
    names: frozenset[str]
    defines: str | None


class Source:
    """Top-level statements of a Python file, or of all code cells of a notebook in order."""

    def __init__(self, path: Path, statements: list[_Statement]) -> None:
        self._path = path
        self._statements = statements
        self.functions = frozenset(
            statement.defines for statement in statements if statement.defines is not None
        )
        """Names of the functions defined at the top level."""

    def load(self, name: str) -> Any:
        """Run the statements that define a function and the names it uses, and return the function.

        All statements that bind a needed name run, in order. Statements that only change an object bound
        elsewhere do not run. An exception of these statements propagates.
        """
        needed, before = {name}, set[str]()
        while needed != before:
            before = set(needed)
            for statement in self._statements:
                if statement.binds & needed:
                    needed |= statement.names
        namespace: dict[str, Any] = {"__name__": self._path.stem, "__file__": str(self._path)}
        for statement in self._statements:
            if statement.binds & needed:
                result = eval(statement.code, namespace)
                if isinstance(result, CoroutineType):  # a cell may await
                    asyncio.run(result)
        return namespace[name]


def read_source(path: str | Path) -> Source:
    """Parse a notebook (with magics) or a Python file without running it.

    Raises InputMissing if there is no such file, ParameterError if it is neither or cannot be parsed.
    """
    path = existing(path, "notebook or Python file")
    if path.suffix.lower() not in KINDS or not path.is_file():
        raise ParameterError(
            "Expected a notebook or a Python file.",
            where=str(path),
            found=path.suffix or "no suffix",
            expected=" or ".join(KINDS),
        )
    statements: list[_Statement] = []
    try:
        parts = list(_parts(path))
    except OSError as error:
        raise ParameterError(
            "This file cannot be read.",
            where=str(path),
            found=error.strerror,
            expected="a readable file",
            remedy="check its permissions",
        ) from error
    for place, text in parts:
        try:
            statements += [_statement(node, place) for node in ast.parse(text).body]
        except SyntaxError as error:
            line = "" if error.lineno is None else f", line {error.lineno}"
            raise ParameterError(
                "This code cannot be parsed.",
                where=f"{place}{line}",
                found=error.msg,
                remedy="run it to see the error in Python",
            ) from error
        except (ValueError, RecursionError, MemoryError) as error:  # zero bytes; brackets in brackets
            raise ParameterError(
                "This code cannot be parsed.",
                where=place,
                found=str(error) or type(error).__name__,
                remedy="run it to see the error in Python",
            ) from error
    return Source(path, statements)


def _parts(path: Path) -> Iterator[tuple[str, str | bytes]]:
    """Yield the name and text of each part of a file that is parsed by itself."""
    if path.suffix.lower() == ".py":
        yield path.name, path.read_bytes()  # bytes, because a file may declare its encoding
        return
    import nbformat  # loading these takes longer than loading all of mudkit
    from IPython.core.inputtransformer2 import TransformerManager

    try:
        notebook = nbformat.read(path, as_version=4)
    except OSError:
        raise
    except Exception as error:  # of any kind, as nbformat does not validate before access
        raise ParameterError(
            "This is not a valid notebook.",
            where=str(path),
            found=str(error)[:200],
            expected="a notebook, *.ipynb",
            remedy="save it again in JupyterLab",
        ) from error
    for number, cell in enumerate(notebook.cells, start=1):
        if cell.cell_type == "code":
            yield f"{path.name}, cell {number}", TransformerManager().transform_cell(cell.source)  # type: ignore[no-untyped-call]


def _statement(node: ast.stmt, place: str) -> _Statement:
    table = symtable.symtable(ast.unparse(node), place, "exec")
    symbols = table.get_symbols()
    binds = {symbol.get_name() for symbol in symbols if symbol.is_assigned() or symbol.is_imported()}
    names = {symbol.get_name() for symbol in symbols if symbol.is_referenced()} | set(_global_names(table))
    defines = None
    match node:
        case ast.FunctionDef(name=name):
            defines = name
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Lambda()):
            defines = name
    code = compile(ast.Module([node], type_ignores=[]), place, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    return _Statement(code, frozenset(binds), frozenset(names), defines)


def _global_names(table: symtable.SymbolTable) -> Iterator[str]:
    """Yield the global names that nested functions use."""
    for child in table.get_children():
        yield from (symbol.get_name() for symbol in child.get_symbols() if symbol.is_global())
        yield from _global_names(child)
