"""The Python evaluator: a tree becomes one Python function.

The code consists of assignments, one for each node, with ``if`` only where AND, OR and coalesce may stop
early. Names of attributes and numbers of slots are put into the constants of the code object after
compiling: texts of one structure share compiled code, and a name cannot inject code. Operands of AND, OR and
NOT are functions of their own: most parts of a new text are compiled already.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from functools import lru_cache
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Final

from mudkit.predicates import functions, tree, values
from mudkit.predicates.tree import Node
from mudkit.predicates.values import BOOLEAN, EVERY_KIND, NUMBER, POINT, STRING

if TYPE_CHECKING:
    from collections.abc import Iterator

_ORDERED: Final = NUMBER | STRING | BOOLEAN
_EQUAL: Final = _ORDERED | POINT
_KIND_NAMES: Final = {NUMBER: "number", STRING: "string", BOOLEAN: "boolean", POINT: "point"}
_LOGIC: Final = (tree.And, tree.Or, tree.Not)
_OPERATORS: Final = {"=": "==", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}


def compile_tree(
    root: Node, scopes: tuple[str, ...], *, kind: int = BOOLEAN, only_true: bool = False
) -> Callable[..., Any]:
    """Compile a tree to a function ``f(constants, tables, *scopes)`` of mappings, with a result of ``kind``.

    With ``only_true`` it returns True for TRUE, else False, and stops as early as possible.
    """
    code = Code(scopes if kind == BOOLEAN and isinstance(root, _LOGIC) else None)
    if only_true:
        for part in tree.conjuncts(root):
            atom, _ = code.emit(part, BOOLEAN)
            code.line(f"if {atom} is not True: return False")
        code.line("return True")
    elif isinstance(root, (tree.And, tree.Or)):
        stop = "False" if isinstance(root, tree.And) else "True"
        null_tests = []
        for part in root.args:
            atom, nullable = code.emit(part, BOOLEAN)
            code.line(f"if {atom} is {stop}: return {stop}")
            if nullable:
                null_tests.append(f"{atom} is None")
        code.line(f"return None if {' or '.join(null_tests) or False} else {stop == 'False'}")
    else:
        atom, _ = code.emit(root, kind)
        code.line(f"return {atom}")
    return finish(code, scopes)


def finish(code: Code, scopes: tuple[str, ...]) -> Callable[..., Any]:
    """Build a function ``f(constants, tables, *scopes)`` from the lines written so far."""
    head = f"def predicate(k, tables, {', '.join('s_' + scope for scope in scopes)}):"
    compiled = _compiled("\n".join([head, *code.lines]))
    constants = tuple([code.names[c] if type(c) is str else c for c in compiled.co_consts])
    return FunctionType(compiled.replace(co_consts=constants), code.known)


@lru_cache(maxsize=4096)
def _compiled(source: str) -> CodeType:
    """Return the code of the function that a source defines."""
    module = compile(source, "<predicate>", "exec")
    return next(constant for constant in module.co_consts if isinstance(constant, CodeType))


class Code:
    """Writer of the body of one function; with ``scopes``, operands of AND, OR and NOT become functions."""

    def __init__(self, scopes: tuple[str, ...] | None = None) -> None:
        self._scopes = scopes
        self.lines: list[str] = []
        self.known: dict[str, Any] = {
            "number": values.number, "string": values.string, "boolean": values.boolean,
            "point": values.point, "value": values.value,
            "attribute": values.attribute, "kind_of": values.kind_of,
            "equal": functions.equal, "less": functions.less, "lookup": functions.lookup,
            "call_user": functions.call_user, "BIG": values.MAX_NUMBER,
        }  # fmt: skip
        self.names: dict[str, str | int] = {}
        """Names of attributes and numbers of slots, by their placeholders in the source."""
        self._depth = 1
        self._count = 0
        # Variables by content, a dictionary for each open block: after a block its variables may be unset.
        self._memo: list[dict[tuple[int | str, ...], tuple[str, bool]]] = [{}]

    def line(self, text: str) -> None:
        """Append a line at the present depth."""
        self.lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Append a head; the lines written meanwhile are indented below it."""
        self.line(head)
        self._depth += 1
        self._memo.append({})
        yield
        self._memo.pop()
        self._depth -= 1

    def fresh(self) -> str:
        """Return an unused variable."""
        self._count += 1
        return f"v{self._count}"

    def emit(self, node: Node, kind: int) -> tuple[str, bool]:
        """Write code for a node's value of a kind, else NULL; return the atom, and if it may be ``None``."""
        if not node.kinds & kind:
            return "None", True
        if type(node) is tree.Constant:
            return f"k[{self._placeholder(node.slot)}]", False
        key: tuple[int | str, ...] = id(node), kind
        if isinstance(node, tree.Name):
            key = node.scope, *node.path, node.kinds, kind
        emitted = next((memo[key] for memo in reversed(self._memo) if key in memo), None)
        if emitted is None:
            if self._scopes is not None and not isinstance(node, _LOGIC):
                emitted = self._part(node, self._scopes), True
            elif kind != EVERY_KIND and node.kinds & ~kind and not isinstance(node, tree.Name):
                emitted = self._narrowed(node, kind)
            else:
                emitted = self._write(node, kind)
            self._memo[-1][key] = emitted
        return emitted

    def _narrowed(self, node: Node, kind: int) -> tuple[str, bool]:
        """Write code for a node's value if it has a kind, else None."""
        atom, _ = self.emit(node, EVERY_KIND)
        return self._assign(f"{atom} if kind_of({atom}) & {kind} else None"), True

    def _assign(self, expression: str) -> str:
        """Write the assignment of an expression to a new variable, and return the variable."""
        name = self.fresh()
        self.line(f"{name} = {expression}")
        return name

    def _write(self, node: Node, kind: int) -> tuple[str, bool]:
        """Write code for a node that is not written yet; return the atom, and whether it may be None."""
        if isinstance(node, tree.Name):
            return self._name(node, kind), True
        write: Callable[[Code, Any], tuple[str, bool]] = _WRITE[type(node)]
        return write(self, node)

    def _name(self, node: tree.Name, kind: int) -> str:
        """Write code for the value of a name if it has a kind, else None; return the variable."""
        atom = f"s_{node.scope}.get({self._placeholder(node.path[0])})"
        for part in node.path[1:]:
            atom = f"attribute({atom}, {self._placeholder(part)})"
        kinds = node.kinds & kind
        if kinds in _KIND_NAMES:
            return self._assign(f"{_KIND_NAMES[kinds]}({atom})")
        variable = self._assign(f"value({atom})")
        if kinds != EVERY_KIND:
            variable = self._assign(f"{variable} if kind_of({variable}) & {kinds} else None")
        return variable

    def _part(self, node: Node, scopes: tuple[str, ...]) -> str:
        """Compile a node as a function of its own, write its call, and return the variable of the result."""
        name = f"f{len(self.known)}"
        self.known[name] = compile_tree(node, scopes)
        return self._assign(f"{name}(k, tables, {', '.join('s_' + scope for scope in scopes)})")

    def _placeholder(self, constant: str | int) -> str:
        """Return the source of a text that :func:`finish` replaces by a constant: sources stay alike."""
        placeholder = f"n{len(self.names)}"
        self.names[placeholder] = constant
        return f"'{placeholder}'"

    def _in(self, node: tree.In) -> tuple[str, bool]:
        """Write the test of a list; return the variable, and that it may be None."""
        atom, _ = self.emit(node.item, EVERY_KIND)
        return self._assign(f"k[{self._placeholder(node.members.slot)}].holds({atom})"), True

    def _is_null(self, node: tree.IsNull) -> tuple[str, bool]:
        """Write the test for NULL, which is False without any code for what is never NULL."""
        atom, nullable = self.emit(node.item, EVERY_KIND)
        return (self._assign(f"{atom} is None"), False) if nullable else ("False", False)

    def _not(self, node: tree.Not) -> tuple[str, bool]:
        """Assign a negation to a new variable of the code; return it, and whether it may be None."""
        atom, nullable = self.emit(node.item, BOOLEAN)
        return self._assign(
            f"None if {atom} is None else not {atom}" if nullable else f"not {atom}"
        ), nullable

    def _chain(self, node: tree.And | tree.Or) -> tuple[str, bool]:
        """Write AND or OR, which stops at the first operand that decides it."""
        stop, neutral = ("False", "True") if isinstance(node, tree.And) else ("True", "False")
        first, *others = node.args
        atom, nullable = self.emit(first, BOOLEAN)
        result = self._assign(atom)
        for arg in others:
            with self.block(f"if {result} is not {stop}:"):
                atom, maybe = self.emit(arg, BOOLEAN)
                self.line(f"if {atom} is not {neutral}: {result} = {atom}")
            nullable |= maybe
        return result, nullable

    def _compare(self, node: tree.Compare) -> tuple[str, bool]:
        """Write a comparison; where kinds are open it uses the functions for values of any kind."""
        comparable = _EQUAL if node.operator in ("=", "<>") else _ORDERED
        common = node.left.kinds & node.right.kinds & comparable
        if not common:
            return "None", True
        if common in _KIND_NAMES:
            left, right = self.emit(node.left, common), self.emit(node.right, common)
            return self._guarded([left, right], f"{left[0]} {_OPERATORS[node.operator]} {right[0]}")
        left, right = self.emit(node.left, EVERY_KIND), self.emit(node.right, EVERY_KIND)
        a, b = left[0], right[0]
        test = {
            "=": f"equal({a}, {b})",
            "<>": f"equal({a}, {b})",
            "<": f"less({a}, {b})",
            ">": f"less({b}, {a})",
            "<=": f"less({b}, {a})",
            ">=": f"less({a}, {b})",
        }[node.operator]
        atom = self._assign(test)
        if node.operator in ("<>", "<=", ">="):
            atom = self._assign(f"None if {atom} is None else not {atom}")
        return atom, True

    def _guarded(self, args: list[tuple[str, bool]], expression: str) -> tuple[str, bool]:
        """Write an expression, None if an argument is; return the variable, and if it may be None."""
        missing = " or ".join(f"{atom} is None" for atom, nullable in args if nullable)
        return self._assign(f"None if {missing} else {expression}" if missing else expression), bool(missing)

    def _call(self, node: tree.Call) -> tuple[str, bool]:
        """Write a function call, None if an argument is; sums and products are written in place."""
        function = node.function
        if function.name == "coalesce":
            return self._coalesce(node.args)
        args = [self.emit(arg, function.kind_of_argument(n)) for n, arg in enumerate(node.args)]
        atoms = ", ".join(atom for atom, _ in args)
        if function.symbol in ("+", "-", "*") and len(args) == 2:
            atom, _ = self._guarded(args, f"{args[0][0]} {function.symbol} {args[1][0]}")
            return self._assign(f"{atom} if {atom} is not None and -BIG <= {atom} <= BIG else None"), True
        if function.name == "lookup":
            return self._guarded(args, f"lookup(tables, {atoms})")[0], True
        if function.is_user:
            called = f"f{len(self.known)}"
            self.known[called] = function
            return self._guarded(args, f"call_user({called}, {atoms})")[0], True
        called = "f_" + {"/": "divide"}.get(function.name, function.name)
        self.known[called] = functions.IMPLEMENTATIONS[function.name]
        return self._guarded(args, f"{called}({atoms})")[0], True

    def _coalesce(self, args: tuple[Node, ...]) -> tuple[str, bool]:
        """Write a call of ``coalesce``, which evaluates no argument after the first that is not None."""
        result = self.fresh()
        for number, arg in enumerate(args):
            if number == 0:
                atom, nullable = self.emit(arg, EVERY_KIND)
                self.line(f"{result} = {atom}")
            else:
                with self.block(f"if {result} is None:"):
                    atom, nullable = self.emit(arg, EVERY_KIND)
                    self.line(f"{result} = {atom}")
        return result, nullable


_WRITE: Final[dict[type[Node], Any]] = {
    tree.Call: Code._call,
    tree.Compare: Code._compare,
    tree.In: Code._in,
    tree.IsNull: Code._is_null,
    tree.Not: Code._not,
    tree.And: Code._chain,
    tree.Or: Code._chain,
}
