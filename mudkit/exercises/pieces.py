"""Extraction of a function, with the names it uses, from a notebook or Python file."""

from __future__ import annotations
import __future__

import ast
import asyncio
import builtins
import re
import symtable
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, CoroutineType
from typing import Any, Final

from mudkit.errors import ParameterError
from mudkit.files import existing_path

KINDS = (".ipynb", ".py")
"""Suffixes of the supported files."""
_CELL_MAGIC: Final = re.compile(r"\s*%%(time|capture|prun)\b[^\n]*(\n|\Z)")
"""Cell magics that run the rest of the cell as Python, in the notebook's names."""
_INNER: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_SETTINGS: Final = "sys"
"""Module whose settings, such as the path and the recursion limit, apply to every function."""


@dataclass(frozen=True)
class _Statement:
    """Top-level statement, and what it does to names of the module.

    ``binds``: names that it binds. ``names``: names that it looks up, also in functions defined in it.
    ``changes``: names whose objects it may change when it runs, ``changes_later``: when what it defines is
    called. ``functions``: names that it binds to functions; ``candidates``: names that it binds to what may
    be one. ``modules``: names that it imports, ``origins``: the modules that they come from. ``star``: module
    all of whose names it imports.
    """

    code: CodeType
    binds: frozenset[str]
    names: frozenset[str]
    changes: frozenset[str] = frozenset()
    changes_later: frozenset[str] = frozenset()
    functions: frozenset[str] = frozenset()
    candidates: frozenset[str] = frozenset()
    modules: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()
    star: str | None = None
    is_definition: bool = False
    calls_judge: bool = False
    is_constant: bool = False


class Source:
    """Top-level statements of a Python file, or of all code cells of a notebook in order."""

    def __init__(self, path: Path, statements: Sequence[_Statement], judged: Mapping[str, str]) -> None:
        self._path = path
        self._statements = statements
        self.judged = judged
        """Code of the function in the last ``judge(exercise, function)`` of each exercise, by its name."""
        self._beside = frozenset().union(*map(self._names_from_beside, statements))
        """Names that come from files beside this one."""
        self.names = frozenset().union(*(statement.binds for statement in statements))
        """Names bound at the top level."""
        self.functions = frozenset().union(*(statement.functions for statement in statements))
        """Names bound to functions at the top level, also in its ``if``, ``try``, ``with`` and loops."""
        self.candidates = frozenset().union(
            *(statement.candidates for statement in statements), *map(self._names_beside, statements)
        )
        """Names bound at the top level to what may be a function: an import, or a result."""

    def _names_beside(self, statement: _Statement) -> frozenset[str]:
        """Return the public names that a star import takes from a file beside this one."""
        beside = self._path.parent / f"{statement.star}.py"
        if statement.star is None or not beside.is_file() or beside == self._path:
            return frozenset()
        try:
            helper = read_source(beside)
        except ParameterError:
            return frozenset()
        return frozenset(name for name in helper.names if not name.startswith("_"))

    def _names_from_beside(self, statement: _Statement) -> frozenset[str]:
        """Return the names that a statement imports from files beside this one."""
        if statement.star is not None:
            return self._names_beside(statement)
        is_beside = any((self._path.parent / f"{origin}.py").is_file() for origin in statement.origins)
        return statement.modules if is_beside else frozenset()

    def defines(self, exercise: str, name: str) -> bool:
        """Return whether the file has a solution of an exercise whose function is called ``name``."""
        return exercise in self.judged or name in self.functions or self.may_define(exercise, name)

    def may_define(self, exercise: str, name: str) -> bool:
        """Return whether the file binds ``name``, perhaps to the function of an exercise."""
        is_certain = exercise in self.judged or name in self.functions
        return not is_certain and not self.judged and name in self.candidates

    def load(self, name: str, exercise: str = "", namespace: dict[str, Any] | None = None) -> Any:
        """Run the statements that define a function and the names it uses, and return the function.

        All statements run, in order, that bind a needed name or may change an object that one is bound to. An
        exception of the former propagates; one of the latter is ignored, as it does not undefine the function
        in a notebook either.

        Parameters
        ----------
        name : str
        exercise : str
            The function that the file gives to the judge of this exercise is returned, if there is one.
        namespace : dict, optional
            The global names of the statements.
        """
        expression = self.judged.get(exercise, name)
        tree = ast.parse(expression, mode="eval")
        roots = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        selected = self._selected(roots)
        namespace = {} if namespace is None else namespace
        namespace |= {"__name__": "__main__", "__file__": str(self._path)}
        if self._path.suffix.lower() == ".ipynb":
            namespace |= {"display": _ignore, "get_ipython": _NoShell}
        for statement, is_needed in selected:
            try:
                result = eval(statement.code, namespace)
                if isinstance(result, CoroutineType):  # a cell may await
                    asyncio.run(result)
            except Exception:
                if is_needed:
                    raise
        return eval(compile(tree, str(self._path), "eval"), namespace)

    def _selected(self, roots: set[str]) -> list[tuple[_Statement, bool]]:
        """Return the statements to run, each with whether it binds a needed name."""
        # Functions of a file beside may use what is changed here.
        needed, before = roots | {_SETTINGS} | self._beside, set[str]()
        while needed != before:
            before = set(needed)
            for statement in self._statements:
                if statement.binds & needed or self._may_change(statement, needed):
                    needed |= statement.names
        stars = bool(needed - self.names - set(dir(builtins)) - {_SETTINGS})
        return [
            (statement, is_needed)
            for statement in self._statements
            if (is_needed := bool(statement.binds & needed) or (stars and statement.star is not None))
            or self._may_change(statement, needed)
        ]

    def _may_change(self, statement: _Statement, needed: set[str]) -> bool:
        """Return whether a statement may change an object that a needed name is bound to."""
        if statement.is_definition or statement.calls_judge:
            return False
        changed, called, seen = set(statement.changes), set(statement.names), set[str]()
        while called - seen:
            seen |= called
            for other in self._statements:
                if other.is_definition and other.binds & seen:
                    changed |= other.changes_later
                    called |= other.names
        for name in changed & needed:
            bindings = [other for other in self._statements if name in other.binds]
            if not bindings:  # a star import binds it
                return True
            if any(name in other.modules for other in bindings):
                if name in self._beside or not statement.binds:
                    return True
            elif not all(other.is_constant for other in bindings):
                return True
        return False


class _NoShell:
    """Stand-in for IPython's shell: magics that are not Python do nothing."""

    def __getattr__(self, name: str) -> Any:
        return _ignore


def _ignore(*arguments: Any, **options: Any) -> None:
    """Do nothing."""


def read_source(path: str | Path) -> Source:
    """Parse a notebook (with magics) or a Python file without running it.

    Raises InputMissing if there is no such file, ParameterError if it is neither or cannot be parsed.
    """
    path = existing_path(path, "notebook or Python file")
    if path.suffix.lower() not in KINDS or not path.is_file():
        raise ParameterError(
            "Expected a notebook or a Python file.",
            where=str(path),
            found=path.suffix or "no suffix",
            expected=" or ".join(KINDS),
        )
    nodes: list[tuple[ast.stmt, str]] = []
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
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    for place, text in parts:
        try:
            nodes += [(node, place) for node in ast.parse(text).body]
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
    statements = []
    for node, place in nodes:
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            for alias in node.names:
                flags |= getattr(__future__, alias.name).compiler_flag
        try:
            statements.append(_statement(node, place, flags))
        except SyntaxError as error:  # such as return outside of a function
            raise ParameterError(
                "This code cannot be compiled.",
                where=f"{place}, line {error.lineno}",
                found=error.msg,
                remedy="run it to see the error in Python",
            ) from error
    return Source(path, statements, _judged(node for node, _ in nodes))


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
            text = cell.source
            while magic := _CELL_MAGIC.match(text):
                text = text[magic.end() :]
            yield f"{path.name}, cell {number}", TransformerManager().transform_cell(text)  # type: ignore[no-untyped-call]


def _statement(node: ast.stmt, place: str, flags: int = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT) -> _Statement:
    """Compile a top-level statement, and find what it does to names."""
    code = compile(ast.Module([node], type_ignores=[]), place, "exec", flags=flags, dont_inherit=True)
    star, origins = None, set[str]()
    if isinstance(node, ast.ImportFrom):
        origins.add(node.module or "")
        star = node.module or "" if node.names[0].name == "*" else None
    elif isinstance(node, ast.Import):
        origins |= {alias.name for alias in node.names}
    table = symtable.symtable(ast.unparse(node), place, "exec")
    symbols = table.get_symbols()
    binds = {symbol.get_name() for symbol in symbols if symbol.is_assigned() or symbol.is_imported()}
    binds |= set(_declared_global(table))
    modules = {symbol.get_name() for symbol in symbols if symbol.is_imported()}
    inner = set(_global_names(table))
    names = {symbol.get_name() for symbol in symbols if symbol.is_referenced()} | inner
    functions, candidates = set[str](), set[str](modules)
    for part in _outer(node):
        match part:
            case ast.FunctionDef(name=name):
                functions.add(name)
            case ast.Assign(value=ast.Lambda(), targets=targets):
                functions |= {target.id for target in targets if isinstance(target, ast.Name)}
            case ast.AnnAssign(value=ast.Lambda(), target=ast.Name(id=name)):
                functions.add(name)
            case ast.Assign(value=ast.Name() | ast.Attribute() | ast.Call() | ast.IfExp(), targets=targets):
                candidates |= {target.id for target in targets if isinstance(target, ast.Name)}
            case ast.AnnAssign(value=ast.Name() | ast.Attribute() | ast.Call(), target=ast.Name(id=name)):
                candidates.add(name)
    is_definition = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) or (
        isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, ast.Lambda)
    )
    return _Statement(
        code,
        binds=frozenset(binds - {"*"}),
        names=frozenset(names),
        changes=frozenset(_changes(_outer(node))),
        changes_later=frozenset((set(_changes(ast.walk(node))) | set(_declared_global(table))) & inner),
        functions=frozenset(functions),
        candidates=frozenset(candidates - {"*"}),
        modules=frozenset(modules),
        origins=frozenset(origins),
        star=star,
        is_definition=is_definition,
        calls_judge=any(_judge_call(part) is not None for part in ast.walk(node)),
        is_constant=isinstance(node, ast.Assign) and _is_constant(node.value),
    )


def _global_names(table: symtable.SymbolTable) -> Iterator[str]:
    """Yield the global names that nested functions use."""
    for child in table.get_children():
        yield from (symbol.get_name() for symbol in child.get_symbols() if symbol.is_global())
        yield from _global_names(child)


def _declared_global(table: symtable.SymbolTable) -> Iterator[str]:
    """Yield the names that nested functions assign to after ``global``."""
    for child in table.get_children():
        for symbol in child.get_symbols():
            if symbol.is_declared_global() and symbol.is_assigned():
                yield symbol.get_name()
        yield from _declared_global(child)


def _outer(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a statement and its parts, without the bodies of functions and classes in it."""
    yield node
    if not isinstance(node, _INNER):
        for child in ast.iter_child_nodes(node):
            yield from _outer(child)


def _changes(nodes: Iterator[ast.AST]) -> Iterator[str]:
    """Yield the names whose objects may be changed: by assignment to a part, by a method, or as argument."""
    for node in nodes:
        if isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load):
            yield from _root(node)
        elif isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute):
                yield from _root(node.func)
            for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
                yield from _root(argument)


def _root(node: ast.AST) -> Iterator[str]:
    """Yield the name at the start of ``name.attribute[index]``."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Starred)):
        node = node.value
    if isinstance(node, ast.Name):
        yield node.id


def _is_constant(node: ast.expr) -> bool:
    """Return whether an expression is a literal that cannot be changed."""
    kinds = (ast.Constant, ast.UnaryOp, ast.BinOp, ast.Tuple, ast.operator, ast.unaryop, ast.expr_context)
    return all(isinstance(part, kinds) for part in ast.walk(node))


def _judge_call(node: ast.AST) -> ast.Call | None:
    """Return a node if it calls ``judge``, else None."""
    if isinstance(node, ast.Call):
        match node.func:
            case ast.Name(id="judge") | ast.Attribute(attr="judge"):
                return node
    return None


def _judged(nodes: Iterator[ast.stmt]) -> dict[str, str]:
    """Return the code of the function in the last call of ``judge`` for each exercise."""
    texts: dict[str, str] = {}
    judged: dict[str, str] = {}
    for node in nodes:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(text))):
                texts[name] = text
        for part in ast.walk(node):
            call = _judge_call(part)
            if call is None:
                continue
            given = dict(zip(("chapter", "piece"), call.args, strict=False))
            given |= {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
            match given.get("chapter"):
                case ast.Constant(value=str(exercise)) | ast.Attribute(attr=exercise):
                    pass
                case ast.Subscript(slice=ast.Constant(value=str(exercise))):
                    pass
                case ast.Name(id=name):
                    exercise = texts.get(name, name)
                case _:
                    continue
            if "piece" in given:
                judged[exercise] = ast.unparse(given["piece"])
    return judged
