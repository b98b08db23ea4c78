"""Find the function that a reader has written in a notebook or Python file, and what it needs from there."""

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
"""What functions can be found in."""


class _Statement(NamedTuple):
    code: CodeType
    binds: frozenset[str]
    names: frozenset[str]
    defines: str | None


class Source:
    """What a file says at its top level, statement by statement.

    Of a notebook these are the statements of all code cells, in the order of the cells.

    Parameters
    ----------
    path : Path
        A notebook or a Python file.
    statements : list
        The statements that :func:`read_source` found.
    """

    def __init__(self, path: Path, statements: list[_Statement]) -> None:
        self._path = path
        self._statements = statements
        self.functions = frozenset(each.defines for each in statements if each.defines is not None)
        """Names of the functions that it defines."""

    def load(self, name: str) -> Any:
        """Run what defines a function and what the function names, and nothing else.

        All statements that bind a name which is needed run, in their order: the function sees what it would
        see when the whole file had run. What only changes an object that is bound elsewhere does not run.

        Raises
        ------
        Exception
            Whatever these statements raise.
        """
        needed, before = {name}, set[str]()
        while needed != before:
            before = set(needed)
            for each in self._statements:
                if each.binds & needed:
                    needed |= each.names
        namespace: dict[str, Any] = {"__name__": self._path.stem, "__file__": str(self._path)}
        for each in self._statements:
            if each.binds & needed:
                ran = eval(each.code, namespace)
                if isinstance(ran, CoroutineType):  # a cell may await
                    asyncio.run(ran)
        return namespace[name]


def read_source(path: str | Path) -> Source:
    """Read a file without running it.

    Parameters
    ----------
    path : path-like
        A notebook (``.ipynb``; its magics are understood) or a Python file (``.py``).

    Raises
    ------
    InputMissing
        There is no such file.
    ParameterError
        It is neither, or it cannot be parsed.
    """
    path = existing(path, "notebook or Python file")
    if path.suffix.lower() not in KINDS or not path.is_file():
        raise ParameterError(
            "This is no file that functions can be found in.",
            where=str(path),
            found=path.suffix or "no suffix",
            expected=" or ".join(KINDS),
        )
    statements: list[_Statement] = []
    try:
        parts = list(_parts(path))
    except OSError as error:
        raise ParameterError(
            "This cannot be read.",
            where=str(path),
            found=error.strerror,
            expected="a file that may be read",
            remedy="check its permissions",
        ) from error
    for place, text in parts:
        try:
            statements += [_statement(node, place) for node in ast.parse(text).body]
        except SyntaxError as error:
            line = "" if error.lineno is None else f", line {error.lineno}"
            raise ParameterError(
                "This cannot be parsed.",
                where=f"{place}{line}",
                found=error.msg,
                remedy="run it; Python says the same",
            ) from error
        except (ValueError, RecursionError, MemoryError) as error:  # zero bytes; brackets in brackets
            raise ParameterError(
                "This cannot be parsed.",
                where=place,
                found=str(error) or type(error).__name__,
                remedy="run it; Python says the same",
            ) from error
    return Source(path, statements)


def _parts(path: Path) -> Iterator[tuple[str, str | bytes]]:
    """Give each part of a file that is parsed by itself, and what it is called."""
    if path.suffix.lower() == ".py":
        yield path.name, path.read_bytes()  # a file may say how it is encoded
        return
    import nbformat  # loading these takes longer than loading all of mudkit
    from IPython.core.inputtransformer2 import TransformerManager

    try:
        notebook = nbformat.read(path, as_version=4)
    except OSError:
        raise
    except Exception as error:  # of any kind: nbformat takes for granted what it looks for
        raise ParameterError(
            "This is no notebook.",
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
    binds = {each.get_name() for each in symbols if each.is_assigned() or each.is_imported()}
    names = {each.get_name() for each in symbols if each.is_referenced()} | set(_global_names(table))
    defines = None
    match node:
        case ast.FunctionDef(name=name):
            defines = name
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Lambda()):
            defines = name
    code = compile(ast.Module([node], type_ignores=[]), place, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    return _Statement(code, frozenset(binds), frozenset(names), defines)


def _global_names(table: symtable.SymbolTable) -> Iterator[str]:
    """Give the names that the functions inside look up at the top level."""
    for child in table.get_children():
        yield from (each.get_name() for each in child.get_symbols() if each.is_global())
        yield from _global_names(child)
