"""Public operations name the method of the machine that handles them, which is where a reader looks next.

The rule is that of ``docs/words-of-the-code.md``: "Handled by" in the docstring of each operation.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SYSTEMS = ROOT / "mudkit" / "systems"
FACES = [*sorted(SYSTEMS.glob("*/api.py")), SYSTEMS / "mud" / "servers" / "cloud.py"]
HANDLED_BY = re.compile(r"(?:Handled|read) by :(?:meth|attr):`~mudkit\.systems\.([\w.]+)`")


@cache
def list_operations(system):
    """List the names of a system's operations: structs whose tag is that of an operation."""
    module = "operations.py" if system == "mud" else "messages.py"
    tree = ast.parse((SYSTEMS / system / module).read_text())
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    tagged = {
        node.name
        for node in classes
        if any(word.arg == "tag_field" and word.value.value == "operation" for word in node.keywords)
    }
    return tagged | {node.name for node in classes if tagged & {ast.unparse(base) for base in node.bases}}


def list_names(node):
    """List the names and attributes that a part of the source uses."""
    names = {child.id for child in ast.walk(node) if isinstance(child, ast.Name)}
    return names | {child.attr for child in ast.walk(node) if isinstance(child, ast.Attribute)}


@cache
def list_handlers(system):
    """List what handles each operation: names in the arms of ``match`` that it reaches, and their functions."""
    operations, handlers = list_operations(system), {}
    for module in sorted((SYSTEMS / system).rglob("*.py")):
        functions = [
            node for node in ast.walk(ast.parse(module.read_text())) if isinstance(node, ast.FunctionDef)
        ]
        for function in functions:
            arms = [node for node in ast.walk(function) if isinstance(node, ast.match_case)]
            for arm in arms:
                reached = set().union(*(list_names(statement) for statement in arm.body)) | {function.name}
                for operation in list_names(arm.pattern) & operations:
                    handlers.setdefault(operation, set()).update(reached)
    return handlers


def list_calls(face):
    """Yield each public operation of a module: its name, its docstring, and the operations that it sends."""
    tree = ast.parse(face.read_text())
    operations = list_operations(face.relative_to(SYSTEMS).parts[0])
    helpers = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    for kind in [node for node in tree.body if isinstance(node, ast.ClassDef)]:
        for method in [node for node in kind.body if isinstance(node, ast.FunctionDef)]:
            used = list_names(method)
            private = [helpers[name] for name in used if name.startswith("_") and name in helpers]
            sent = operations & used.union(*map(list_names, private))
            calls = "call" in used.union(*map(list_names, private))
            if sent and calls and not method.name.startswith("_") and ast.get_docstring(method):
                yield f"{kind.name}.{method.name}", ast.get_docstring(method), sent


OPERATIONS = [(face, *call) for face in FACES for call in list_calls(face)]


@pytest.mark.parametrize(
    ("face", "name", "text", "sent"),
    OPERATIONS,
    ids=[f"{face.relative_to(SYSTEMS).parts[0]}.{name}" for face, name, *_ in OPERATIONS],
)
def test_operation_names_what_handles_it(face, name, text, sent):
    system = face.relative_to(SYSTEMS).parts[0]
    targets = HANDLED_BY.findall(text)
    assert targets, f"{name} does not say what handles it"
    reached = set().union(*(list_handlers(system).get(operation, set()) for operation in sent))
    for target in targets:
        *modules, kind, method = target.split(".")
        module = SYSTEMS.joinpath(*modules).with_suffix(".py")
        classes = {node.name: node for node in ast.parse(module.read_text()).body if hasattr(node, "name")}
        assert method in {node.name for node in classes[kind].body if isinstance(node, ast.FunctionDef)}
        assert method in reached, f"{target} is not on the way of {sorted(sent)}"


def test_all_systems_have_operations():
    assert len(OPERATIONS) > 35
    assert {face.relative_to(SYSTEMS).parts[0] for face, *_ in OPERATIONS} == {
        "contrail", "lasthop", "mud", "radiator", "store_and_forward", "sublim"
    }  # fmt: skip
