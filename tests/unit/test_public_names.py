"""Public names: what the packages export, and what notebooks may rely on."""

import ast
import importlib
import importlib.util
import inspect
import json
import pkgutil
import re
import subprocess
import sys
from dataclasses import is_dataclass
from enum import Enum
from itertools import pairwise
from pathlib import Path
from unittest import mock

import cloudpickle
import msgspec
import pytest
from public_faces import FACES
from references import import_all

import mudkit
from mudkit.errors import ParameterError

PACKAGES = ["mudkit"] + [
    info.name for info in pkgutil.walk_packages(mudkit.__path__, "mudkit.") if info.ispkg
]


@pytest.mark.parametrize("package", PACKAGES)
def test_no_public_name_equals_a_submodule_of_its_package(package):
    """Prevent that ``import mudkit.trace.load as module`` yields a function."""
    module = importlib.import_module(package)
    submodules = {info.name for info in pkgutil.iter_modules(module.__path__)}
    functions_and_classes = {
        name
        for name in {*getattr(module, "__all__", ()), *vars(module)}
        if callable(getattr(module, name, None))
    }
    assert sorted(submodules & functions_and_classes) == []


@pytest.mark.parametrize("package", PACKAGES)
def test_submodules_are_exported_from_their_own_package(package):
    """Prevent that ``radiator.joins`` fails unless the submodule was imported before."""
    tree = ast.parse(inspect.getsource(importlib.import_module(package)))
    foreign = [
        f"{node.module}.{alias.name}"
        for block in tree.body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in block.body
        if isinstance(node, ast.ImportFrom) and node.module != package
        for alias in node.names
        if hasattr(importlib.import_module(node.module), "__path__")
        and importlib.util.find_spec(f"{node.module}.{alias.name}")
    ]
    assert foreign == []


ROOT = Path(__file__).parents[2]


def extract_code(file):
    """Return the Python code of a notebook or of the blocks in a page."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".md":
        return "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    return "\n".join("".join(cell["source"]) for cell in cells)


def find_imports(code):
    """Yield module and name of each import from mudkit; a submodule has no name."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "mudkit":
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names if alias.name.split(".")[0] == "mudkit")


def find_attributes(code):
    """Yield face and attribute of each expression such as ``figures.history``."""
    tree = ast.parse(code)
    faces = {name: f"{module}.{name}" for module, name in find_imports(code) if f"{module}.{name}" in FACES}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in faces:
            yield faces[node.value.id], node.attr


PAGES = [
    *sorted((ROOT / "notebooks").glob("*.ipynb")),
    *sorted((ROOT / "reports" / "templates").glob("*.ipynb")),
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_pages_import_public_names_from_the_faces_only(page):
    places = [*FACES, "mudkit.report"] if page.parent.name == "templates" else FACES
    code = extract_code(page)
    refused = [
        (module, name)
        for module, name in [*find_imports(code), *find_attributes(code)]
        if (module not in places or name is None or name not in importlib.import_module(module).__all__)
    ]
    assert refused == []


def test_packages_and_faces_alone_list_their_names():
    """In any other module a public name is one without an underscore."""
    lists = {
        module.__name__
        for module in import_all()
        if "__all__" in vars(module) and not hasattr(module, "__path__")
    }
    assert lists <= set(FACES)


@pytest.mark.parametrize("package", FACES)
def test_every_public_name_exists(package):
    module = importlib.import_module(package)
    assert len(set(module.__all__)) == len(module.__all__)
    for name in module.__all__:
        assert getattr(module, name) is not None, name
    assert set(module.__all__) <= set(dir(module))


def test_importing_the_package_imports_no_large_packages():
    heavy = ["pyspark", "sklearn", "plotly", "folium", "ipywidgets", "pandas", "numpy", "pyarrow"]
    code = (
        "import sys, mudkit; dir(mudkit); "
        "from mudkit import figures, learning, pipeline, systems, trace, widgets; "
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


@pytest.mark.parametrize(
    ("package", "given", "suggestion"),
    [
        ("mudkit", "figure", "figures"),
        ("mudkit", "Labb", "Lab"),
        ("mudkit.trace", "laod", "load"),
        ("mudkit.systems", "mudd", "mud"),
        ("mudkit.systems.mud", "Clint", "Client"),
        ("mudkit.figures", "mesage_diagram", "message_diagram"),
    ],
)
def test_misspelt_name_gets_a_suggestion(package, given, suggestion):
    module = importlib.import_module(package)
    with pytest.raises(AttributeError, match=rf"{given}'; did you mean '{suggestion}'"):
        getattr(module, given)


def test_unknown_name_without_a_similar_one_gets_no_suggestion():
    with pytest.raises(AttributeError, match=r"'zzz'; dir\(\) lists all names"):
        getattr(mudkit, "zzz")  # noqa: B009
    assert not hasattr(mudkit, "_zzz")


def iterate_exported():
    """Yield name and object of each public function and class, each object once."""
    seen = set()
    for package in FACES:
        module = importlib.import_module(package)
        for name in module.__all__:
            value = getattr(module, name)
            if (inspect.isfunction(value) or inspect.isclass(value)) and value not in seen:
                seen.add(value)
                yield f"{package}.{name}", value


INSIDE = (".device.", ".servers.", ".messages.", ".engines.", ".places.", ".result.")
"""Modules of systems that run for each message, or for each pair of users."""
RULES = (".spool.", ".policies.", ".subscription.", ".thresholds.", "._policy.")
"""Modules of systems whose objects machines call for each message."""
HOT = ["Interest.holds", "Predicate.arguments", "Situation", "Stream", "Verdict.of", "size_bytes"]
"""Other calls that run for each message, pair or draw."""


def iterate_calls():
    """Yield name and function of each call that users make, and whether it needs an object."""
    for name, value in iterate_exported():
        module = f"{value.__module__}."
        is_system = module.startswith("mudkit.systems.")
        if name.rpartition(".")[2] in HOT or (is_system and any(part in module for part in INSIDE)):
            continue
        if inspect.isfunction(value):
            yield name, value, False
        elif not (
            issubclass(value, BaseException | Enum | bytes | msgspec.Struct)
            or getattr(value, "_is_protocol", False)
            or hasattr(value, "handle")
        ):
            if not issubclass(value, tuple):
                yield name, value, False
            for method, member in vars(value).items():
                is_bound = isinstance(member, classmethod | staticmethod)
                if (
                    not method.startswith("_")
                    and (is_bound or inspect.isfunction(member))
                    and (is_bound or not (is_system and any(part in module for part in RULES)))
                    and f"{value.__name__}.{method}" not in HOT
                ):
                    yield f"{name}.{method}", getattr(value, method), not is_bound


def call_safely(call, *arguments, **options):
    try:
        return call(*arguments, **options)
    except Exception as error:
        return error


def test_misspelt_option_gets_a_suggestion():
    """Check public functions, and the constructors and methods of public classes.

    Excluded are machines, interfaces, events and messages (structs), enums, exceptions, constructors of
    results that are named tuples, functions called for each message, and calls with open options.
    """
    problems, count = [], 0
    for name, call, needs_object in iterate_calls():
        parameters = list(inspect.signature(call).parameters.values())[needs_object:]
        kinds = {parameter.kind for parameter in parameters}
        options = [
            parameter.name
            for parameter in parameters
            if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        ]
        if not options or inspect.Parameter.VAR_KEYWORD in kinds:
            continue
        suggestion = max(options, key=len)
        count += 1
        for given in {suggestion + suggestion[-1], suggestion[:-1]} - {*options, ""}:
            error = call_safely(call, *[mock.MagicMock()] * needs_object, **{given: 1})
            if not isinstance(error, ParameterError) or f"did you mean '{suggestion}'" not in str(error):
                problems.append((name, given, str(error)))
    assert problems == []
    assert count > 450


def test_decorated_call_is_pickled_by_name_and_keeps_its_signature():
    """Pickle calls by name for Spark's executors, and keep signatures for editors."""
    decorated = [
        value
        for _, value in iterate_exported()
        if inspect.isfunction(value) and hasattr(value, "__wrapped__")
    ]
    assert decorated
    for value in decorated:
        assert cloudpickle.loads(cloudpickle.dumps(value)) is value
        assert len(cloudpickle.dumps(value)) < 200
        assert inspect.signature(value) == inspect.signature(inspect.unwrap(value))


def list_described(value):
    """Return the parameters that a docstring lists, and the fields that have a docstring of their own."""
    names = set()
    sections = r"^(?:Parameters|Attributes)\n-+\n(.*?)(?=^\w[^\n]*\n-{3,}|\Z)"
    for section in re.findall(sections, inspect.getdoc(value) or "", re.DOTALL | re.MULTILINE):
        for line in re.findall(r"^\S.*", section, re.MULTILINE):
            names |= {part.strip(" *") for part in line.split(" :")[0].split(",")}
    body = ast.parse(inspect.getsource(value)).body[0].body if is_dataclass(value) else []
    return names | {
        field.target.id
        for field, text in pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr)
    }


def test_public_parameters_are_described():
    """Check functions and constructors; a method's sentence names its parameters where it needs to."""
    undescribed = [
        (name, item)
        for name, value in iterate_exported()
        if not getattr(value, "_is_protocol", False)
        and not (inspect.isclass(value) and issubclass(value, BaseException | Enum | bytes))
        for described in [list_described(value)]
        for item in inspect.signature(value).parameters
        if item not in described
    ]
    assert undescribed == []
