"""References in texts: what kind of thing a name or a call refers to, and whether it exists.

Nothing is run. A type is inferred from annotations, so ``Lab().device("a").link`` is followed to the end; what has no
annotation is unknown, and not followed.
"""

from __future__ import annotations

import ast
import builtins
import functools
import importlib
import inspect
import itertools
import pkgutil
import re
import sys
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from public_faces import FACES

import mudkit

ROOT = Path(mudkit.__file__).parents[1]
UNKNOWN = None
BUILTINS = {*dir(builtins), "display"}
"""Names that Python and Jupyter define."""
Kind = Any
"""Known object, instance of a known class, or ``UNKNOWN``."""


@dataclass(frozen=True)
class Known:
    """Object that a name refers to."""

    value: Any


@dataclass(frozen=True)
class Instance:
    """Some object of a class."""

    kind: type


@functools.cache
def import_all() -> list[ModuleType]:
    """Import all modules of the package, without those that are scripts."""
    names = [info.name for info in pkgutil.walk_packages(mudkit.__path__, "mudkit.")]
    return [mudkit, *(importlib.import_module(name) for name in names if not name.endswith("__main__"))]


@functools.cache
def public_names() -> dict[str, list[Any]]:
    """Return the objects of each public name of the package; two systems may have a ``Client`` each."""
    faces = {face: importlib.import_module(face) for face in FACES}
    names: dict[str, list[Any]] = {face.rpartition(".")[2]: [module] for face, module in faces.items()}
    for face in faces.values():
        for name in face.__all__:
            if all(getattr(face, name) is not item for item in names.setdefault(name, [])):
                names[name].append(getattr(face, name))
    return names


@functools.cache
def members_by_name() -> dict[str, list[Any]]:
    """Return the methods, attributes and functions of the package by name, for calls on an unknown object."""
    result: dict[str, list[Any]] = {}
    for module in import_all():
        for name, value in vars(module).items():
            result.setdefault(name, []).append(value)
            if inspect.isclass(value) and value.__module__ == module.__name__:
                for member, item in vars(value).items():
                    result.setdefault(member, []).append(item)
                for member in {*vars(value).get("__annotations__", {}), *assigned(value)}:
                    result.setdefault(member, [])
    return result


@functools.cache
def tree_of(module: str) -> ast.Module:
    """Parse a module's source."""
    return ast.parse(inspect.getsource(sys.modules[module]))


@functools.cache
def attributes_of(module: str) -> dict[str, frozenset[str]]:
    """Return the attributes that methods assign to ``self``, by the qualified name of the class."""
    result: dict[str, frozenset[str]] = {}

    def walk(node: ast.AST, prefix: str) -> set[str]:
        """Walk below a node, and return the attributes that it assigns."""
        attributes = set()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Attribute) and isinstance(child.ctx, ast.Store):
                attributes.add(child.attr)
            if isinstance(child, ast.ClassDef):
                name = f"{prefix}{child.name}"
                of_class = walk(child, f"{name}.")
                result[name] = frozenset(of_class)
                attributes |= of_class
            elif isinstance(child, ast.FunctionDef):
                attributes |= walk(child, f"{prefix}{child.name}.<locals>.")
            elif not isinstance(child, ast.Name | ast.Constant | ast.expr_context | ast.operator):
                attributes |= walk(child, prefix)
        return attributes

    walk(tree_of(module), "")
    return result


def assigned(kind: type) -> frozenset[str]:
    """Return the attributes that the methods of a class assign."""
    if not is_ours(kind) or kind.__module__ not in sys.modules:
        return frozenset()
    return attributes_of(kind.__module__).get(kind.__qualname__, frozenset())


@functools.cache
def imported(module: str) -> dict[str, str]:
    """Return where each name comes from that a module imports, those for annotations alone included."""
    result = {}
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            result |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return result


def import_name(dotted: str) -> Any:
    """Return the object with a dotted name; raise an AttributeError if there is none."""
    parts = dotted.split(".")
    module: Any = importlib.import_module(parts[0])
    for number, part in enumerate(parts[1:], 2):
        name = ".".join(parts[:number])
        is_module = isinstance(module, ModuleType) and hasattr(module, "__path__")
        if is_module and importlib.util.find_spec(name):
            module = mudkit if part == "__main__" else importlib.import_module(name)  # that is a script
        else:
            module = getattr(module, part)
    return module


def kind_of_annotation(annotation: Any, module: str, own: type | None = None) -> Kind:
    """Return an instance of the class that an annotation names, if it names a single one."""
    if inspect.isclass(annotation) and not typing.get_args(annotation):
        return Instance(annotation)
    if not isinstance(annotation, str):
        return UNKNOWN
    names = [part.strip() for part in annotation.split("|") if part.strip() != "None"]
    if len(names) != 1 or not (match := re.fullmatch(r"([A-Za-z_][\w.]*)(\[.*\])?", names[0], re.DOTALL)):
        return UNKNOWN
    name = match[1]
    if name in {"Self", "typing.Self"}:
        return Instance(own) if own else UNKNOWN
    try:
        value = eval(name, vars(sys.modules[module]))
    except (NameError, AttributeError):
        head, _, rest = name.partition(".")
        if head not in imported(module):
            return UNKNOWN
        try:
            value = import_name(imported(module)[head] + ("." + rest if rest else ""))
        except (ImportError, AttributeError):
            return UNKNOWN
    return Instance(value) if inspect.isclass(value) and value.__module__ != "typing" else UNKNOWN


def is_ours(value: Any) -> bool:
    """Return whether a class or a function is defined in the package."""
    return str(getattr(value, "__module__", "")).split(".")[0] == "mudkit"


def wrap(value: Any) -> Kind:
    """Return a known object, or an instance for a value that is neither a module, class nor function."""
    if isinstance(value, ModuleType | type) or inspect.isroutine(value):
        return Known(value)
    return Instance(type(value)) if is_ours(type(value)) else UNKNOWN


def is_routine(kind: Kind) -> bool:
    """Return whether a name refers to a function or a method."""
    return isinstance(kind, Known) and (isinstance(kind.value, Bound) or inspect.isroutine(kind.value))


class Missing(Exception):
    """Reference to something that does not exist."""


def member_of(holder: Kind, name: str) -> Kind:
    """Return the member of an object or an instance; raise :exc:`Missing` if there is none."""
    if holder is UNKNOWN:
        return UNKNOWN
    if isinstance(holder, Known) and isinstance(holder.value, ModuleType):
        try:
            return wrap(import_name(f"{holder.value.__name__}.{name}"))
        except (ImportError, AttributeError):
            raise Missing(f"{holder.value.__name__} has no {name}") from None
    kind = holder.kind if isinstance(holder, Instance) else holder.value
    if not inspect.isclass(kind):
        if not hasattr(kind, name):
            raise Missing(f"{getattr(kind, '__name__', kind)} has no {name}")
        return UNKNOWN
    member = inspect.getattr_static(kind, name, Missing)
    for base in kind.__mro__:
        annotation = vars(base).get("__annotations__", {}).get(name)
        if annotation is not None and not inspect.isroutine(member):
            return kind_of_annotation(annotation, base.__module__, kind)
    if isinstance(member, property):
        return returned(member.fget, kind)
    if isinstance(member, functools.cached_property):
        return returned(member.func, kind)
    if isinstance(member, classmethod | staticmethod):
        return Known(getattr(kind, name))
    if inspect.isfunction(member):
        return Known(Bound(member, kind) if isinstance(holder, Instance) else member)
    if (
        member is not Missing
        or not is_ours(kind)
        or any(name in assigned(base) for base in kind.__mro__[:-1])
    ):
        return wrap(member) if inspect.isclass(member) else UNKNOWN
    if any("__getattr__" in vars(base) for base in kind.__mro__[:-1]):
        return UNKNOWN
    raise Missing(f"{kind.__name__} has no {name}")


@dataclass(frozen=True)
class Bound:
    """Method of an instance."""

    function: Any
    kind: type


def returned(function: Any, own: type | None = None) -> Kind:
    """Return the kind of what a function returns, by its annotation."""
    function = inspect.unwrap(function)
    annotation = getattr(function, "__annotations__", {}).get("return")
    return kind_of_annotation(annotation, function.__module__, own)


def check_call(called: Any, positional: int | None, keywords: Iterable[str]) -> None:
    """Raise :exc:`Missing` unless a call fits a signature; ``positional`` is None if some were left out."""
    function, skip = (called.function, 1) if isinstance(called, Bound) else (called, 0)
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    name = getattr(function, "__qualname__", str(function))
    parameters = list(signature.parameters.values())[skip:]
    kinds = {parameter.kind for parameter in parameters}
    allowed = {item.name for item in parameters if item.kind not in (item.VAR_KEYWORD, item.POSITIONAL_ONLY)}
    if inspect.Parameter.VAR_KEYWORD not in kinds and (unknown := sorted(set(keywords) - allowed)):
        raise Missing(f"{name} has no parameter {', '.join(unknown)}")
    if positional is not None:
        try:
            inspect.Signature(parameters).bind(*[None] * positional, **dict.fromkeys(keywords))
        except TypeError as error:
            raise Missing(f"{name}: {error}") from None


class Reader(ast.NodeVisitor):
    """Evaluation of code to the kinds of its names; collects what is missing."""

    def __init__(self, names: Mapping[str, Kind], is_strict: bool = True) -> None:
        self.names = dict(names)
        self.missing: list[str] = []
        self.is_strict = is_strict

    def read(self, code: str) -> None:
        """Read statements; the names that they define remain."""
        tree = ast.parse(code)
        for name in stored(tree):
            self.names.setdefault(name, UNKNOWN)
        for statement in tree.body:
            self.statement(statement)

    def statement(self, node: ast.AST) -> None:
        """Read a statement and all that it contains."""
        match node:
            case ast.Import():
                for alias in node.names:
                    top = alias.name if alias.asname else alias.name.split(".")[0]
                    self.names[alias.asname or top] = self.imported(top)
            case ast.ImportFrom():
                for alias in node.names:
                    self.names[alias.asname or alias.name] = self.imported(f"{node.module}.{alias.name}")
            case ast.Assign(targets=[ast.Name(id=name)]):
                self.names[name] = self.kind(node.value)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda() | ast.ClassDef():
                self.inside(node, stored(node))
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                self.inside(node, stored(node))
            case ast.expr():
                self.kind(node)
            case _:
                for name in stored(node):
                    self.names[name] = UNKNOWN
                for child in ast.iter_child_nodes(node):
                    self.statement(child)

    def inside(self, node: ast.AST, own: set[str]) -> None:
        """Read a part with names of its own."""
        outside = dict(self.names)
        self.names |= dict.fromkeys(own, UNKNOWN)
        for child in ast.iter_child_nodes(node):
            self.statement(child)
        self.names = outside
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            self.names[node.name] = UNKNOWN

    def imported(self, dotted: str) -> Kind:
        """Return what an import refers to; other packages are not looked into."""
        if dotted.split(".")[0] != "mudkit":
            return UNKNOWN
        try:
            return wrap(import_name(dotted))
        except (ImportError, AttributeError):
            self.missing.append(f"no {dotted}")
            return UNKNOWN

    def kind(self, node: ast.expr) -> Kind:
        """Return the kind of an expression."""
        match node:
            case ast.Name(id=name):
                if name in self.names:
                    return self.names[name]
                if self.is_strict and name not in BUILTINS:
                    self.missing.append(f"no {name}")
                return UNKNOWN
            case ast.Attribute():
                holder = self.kind(node.value)
                if isinstance(node.value, ast.Name) and is_routine(holder):
                    return UNKNOWN  # in a text "run.lab" is an object that a call of run() has returned
                try:
                    return member_of(holder, node.attr)
                except Missing as error:
                    self.missing.append(str(error))
                    return UNKNOWN
            case ast.Call():
                return self.call(node)
            case ast.NamedExpr(target=ast.Name(id=name)):
                self.names[name] = self.kind(node.value)
                return self.names[name]
        if isinstance(node, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            self.statement(node)
            return UNKNOWN
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.kind(child)
        return UNKNOWN

    def call(self, node: ast.Call) -> Kind:
        """Check a call's arguments, and return the kind of what it returns."""
        called = self.kind(node.func)
        for argument in [*node.args, *(keyword.value for keyword in node.keywords)]:
            self.kind(argument.value if isinstance(argument, ast.Starred) else argument)
        keywords = [keyword.arg for keyword in node.keywords if keyword.arg]
        if not isinstance(called, Known):
            return UNKNOWN
        if is_ours(getattr(called.value, "function", called.value)):
            try:
                check_call(called.value, count_positional(node), keywords)
            except Missing as error:
                self.missing.append(str(error))
        if inspect.isclass(called.value):
            return Instance(called.value)
        if isinstance(called.value, Bound):
            return returned(called.value.function, called.value.kind)
        own = getattr(called.value, "__self__", None)
        return returned(called.value, own if inspect.isclass(own) else None)


def count_positional(node: ast.Call) -> int | None:
    """Return the number of positional arguments, None if some stand for others (``…``, ``*``, ``**``)."""
    is_open = any(
        isinstance(argument, ast.Starred) or (isinstance(argument, ast.Constant) and argument.value is ...)
        for argument in node.args
    ) or any(keyword.arg is None or is_ellipsis(keyword.value) for keyword in node.keywords)
    return None if is_open else len(node.args)


def is_ellipsis(node: ast.expr) -> bool:
    """Return whether an expression is ``...``."""
    return isinstance(node, ast.Constant) and node.value is ...


def stored(tree: ast.AST) -> set[str]:
    """Return the names that code binds, in parts of their own too."""
    names = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                names.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case (
                ast.MatchAs(name=str(name))
                | ast.MatchStar(name=str(name))
                | ast.ExceptHandler(name=str(name))
            ):
                names.add(name)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                names |= {(alias.asname or alias.name).split(".")[0] for alias in aliases}
    return names


def parse_span(text: str) -> ast.expr | None:
    """Parse inline code as an expression; ``…`` and ``name=`` stand for what was left out."""
    text = text.removeprefix("@").removeprefix(".").replace("…", "...")
    text = re.sub(r"(\w=)(?=\s*[,)])", r"\1...", text)
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        return None


def check_span(text: str, names: Mapping[str, Kind], scopes: Iterable[str] = ()) -> list[str]:
    """Return what is missing of a call or a dotted name in inline code.

    The first name is looked up in ``names``, then among the public names. Anything else is an object of the text, as
    ``server`` in ``server.problems``: some class of the package has to have that member, with these parameters.
    """
    node = parse_span(text)
    if not isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
        return []
    roots = {item.id for item in ast.walk(node) if isinstance(item, ast.Name)} - set(names)
    several = {name: chosen for name in sorted(roots) if (chosen := find_named(name))}
    result = [
        f"no {name}"
        for name in sorted(roots - {*several, *scopes, *BUILTINS})
        if re.match(r"[A-Z]\w*[a-z]", name)
    ]
    if result:
        return result
    for chosen in itertools.product(*several.values()):
        known = {**dict(zip(several, map(wrap, chosen), strict=True)), **names}
        missing = missing_in(node, known, set(scopes))
        if not missing:
            return []
        result = result or missing
    return result


def find_named(name: str) -> list[Any]:
    """Return what a name may refer to: what is public, else classes of the package."""
    inner = [item for item in members_by_name().get(name, []) if inspect.isclass(item) and is_ours(item)]
    return public_names().get(name) or list(dict.fromkeys(inner))


def missing_in(node: ast.expr, known: Mapping[str, Kind], scopes: set[str]) -> list[str]:
    """Return what is missing of an expression with these names."""
    reader = Reader(known, is_strict=False)
    reader.kind(node)
    missing = list(reader.missing)
    for part in ast.walk(node):
        is_unknown = isinstance(part, ast.Attribute) and root_of(part) not in {*known, *scopes, ""}
        if is_unknown and part.attr not in {*members_by_name(), *words_of_files()}:
            missing.append(f"nothing has {part.attr}")
        if isinstance(part, ast.Call):
            name = part.func.attr if isinstance(part.func, ast.Attribute) else getattr(part.func, "id", "")
            quiet = Reader(known, is_strict=False)
            is_followed = quiet.kind(part.func) is not UNKNOWN or name in known or name in BUILTINS
            if (
                not is_followed
                and not quiet.missing
                and not any(fits(item, part) for item in candidates(name))
            ):
                missing.append(f"no {name} with these arguments" if candidates(name) else f"no {name}()")
    return missing


def root_of(node: ast.expr) -> str:
    """Return the first name of a chain of members and calls, or an empty text."""
    while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def candidates(name: str) -> list[Any]:
    """Return the functions, methods and classes of a name in the package."""
    return [
        item for item in members_by_name().get(name, []) if callable(item) or isinstance(item, classmethod)
    ]


def fits(called: Any, node: ast.Call) -> bool:
    """Return whether a function could be called so; its own object may count as an argument."""
    called = getattr(called, "__func__", called)
    keywords = [keyword.arg for keyword in node.keywords if keyword.arg]
    positional = count_positional(node)
    is_method = isinstance(called, FunctionType) and "." in called.__qualname__
    for hidden in (1, 0) if is_method else (0,):
        try:
            check_call(called, None if positional is None else positional + hidden, keywords)
        except Missing:
            continue
        return True
    return False


@functools.cache
def words_of_files() -> frozenset[str]:
    """Return all words of the package, of the reports and of the data, such as the keys of a summary."""
    paths = [path for folder in ("mudkit", "reports", "widgets") for path in (ROOT / folder).rglob("*")]
    texts = [
        path.read_text(encoding="utf-8")
        for path in paths
        if path.suffix in (".py", ".yaml", ".ipynb") and "build" not in path.parts
    ]
    return frozenset(re.findall(r"\w+", "\n".join(texts)))
