"""References in guides, chapters, pages of papers and docstrings: each name, call, file and command exists.

Later pages are result by themselves: below ``docs``, ``notebooks`` and ``reports``.
"""

from __future__ import annotations

import ast
import functools
import inspect
import json
import math
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer
from references import (
    ROOT,
    Instance,
    Known,
    Missing,
    Reader,
    assigned,
    check_span,
    import_all,
    import_name,
    imported,
    is_ours,
    kind_of_annotation,
    member_of,
    public_names,
    wrap,
)

from mudkit.cli import app
from mudkit.errors import MudkitError
from mudkit.experiment import NEWS, PHOTOS, TRAFFIC
from mudkit.predicates import Predicate
from mudkit.predicates.expressions import Expression
from mudkit.trace.derive import Rule

SOURCES = ("mudkit", "tests", "tools", "widgets")
PAGES = [
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "docs").rglob("*.ipynb")),
    *sorted((ROOT / "notebooks").glob("*.ipynb")),
    *sorted((ROOT / "reports" / "templates").glob("*.ipynb")),
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
]
SPAN = re.compile(r"(?<!`)(`{1,2})(?!`)([^`]+?)\1(?!`)")
BLOCK = re.compile(r"^```(\w*|\{[\w-]+\})[^\n]*\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)
ROLE = re.compile(r":(class|func|meth|attr|data|mod|exc|obj|const|doc|ref):`~?([^`]+)`")
DOTTED = re.compile(r"\bmudkit(?:\.[A-Za-z_]\w*)+")
FILE = re.compile(
    r"[\w./-]*\w\.(?:py|md|ipynb|ya?ml|toml|json|js|css|csv|gz|txt|html|svg|png|jsa|log|zip|cff|gpx)"
)
CHAPTER = re.compile(r"\b\d\d_[a-z_]+\b")
SCOPES = (
    "auth",
    "clock",
    "message",
    "receiver",
    "record",
    "sender",
    "state",
    "pytest",
    "folium",
    "plotly",
    "spark",
)
"""First names of what predicates and policies read, and of packages that are not looked into."""
TASKS = tuple(re.sub(r"\W", "_", task.name) for task in (NEWS, PHOTOS, TRAFFIC))
"""First names of figures in the summary of a scoreboard."""
HELPERS = ("tests/conftest.py", "tests/support/examples.py")
"""Files whose functions CONTRIBUTING.md mentions."""
SHELL = ("bash", "console", "sh")
MADE = (
    "build/",
    "reports/build/",
    "data/raw/",
    "data/derived/",
    "work/",
    "path/to/",
    "points.csv",
    "access_log.csv",
)
"""Beginnings of the names of files that commands write, and of examples."""
GENERATED = ("api/index", "chapters/index", "changelog", "contributing")
"""Pages that the build of the site adds."""
NO_MODULES = {"mudkit.zip", "mudkit.stream"}
"""A file that is shipped, and the name of a random stream."""


class Page:
    """Code, inline code, commands and links of a page."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = path.read_text(encoding="utf-8")
        self.code: list[str] = []
        self.spans: list[str] = []
        self.commands: list[str] = []
        self.links: list[str] = []
        if path.suffix == ".md":
            self._add(self.text)
            return
        for cell in json.loads(self.text)["cells"]:
            source = "".join(cell["source"])
            self._add(source) if cell["cell_type"] == "markdown" else self.code.append(source)

    def _add(self, text: str) -> None:
        for language, block in BLOCK.findall(text):
            if language == "python":
                self.code.append(block)
            elif language in SHELL:
                self.commands += [line.removeprefix("$ ") for line in block.splitlines()]
        text = BLOCK.sub("", text)
        spans = [" ".join(span.split()) for _, span in SPAN.findall(text)]
        self.spans += spans
        self.commands += spans
        self.links += re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text)


def is_of_another_language(text: str) -> bool:
    """Return whether a call is a predicate, a value of its language, or a rule of reads."""
    if not re.match(r"[a-z_]+\(", text):
        return False
    for parse in (Predicate, Expression, Rule.parse):
        try:
            parse(text)
        except MudkitError:
            continue
        return True
    return False


def find_missing_names(page: Page) -> Iterator[str]:
    """Yield what does not exist of the names and calls of a page."""
    reader = Reader({})
    for block in page.code:
        reader.read(block)
    yield from reader.missing
    helpers = "\n".join((ROOT / helper).read_text(encoding="utf-8") for helper in HELPERS)
    names = (
        reader.names | {"MyAdapter": None} | dict.fromkeys(re.findall(r"^def (\w+)", helpers, re.MULTILINE))
    )
    for span in page.spans:
        if not FILE.fullmatch(span) and not is_of_another_language(span):
            yield from (f"`{span}`: {what}" for what in check_span(span, names, (*SCOPES, *TASKS)))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_names_and_calls_of_a_page_exist(path: Path) -> None:
    assert sorted(find_missing_names(Page(path))) == []


def list_files() -> set[str]:
    """Return the names of all files of the repository, with any number of their folders."""
    folders = ("data", "docs", "mudkit", "notebooks", "reports", "tests", "tools", "widgets")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*")] + list(ROOT.iterdir())
    parts = [path.relative_to(ROOT).parts for path in paths]
    return {"/".join(names[first:]) for names in parts for first in range(len(names))}


def find_missing_files(page: Page, files: set[str], written: str) -> Iterator[str]:
    """Yield the files and chapters that a page names and that are neither there nor written by the package."""
    for span in page.spans:
        name = span.removeprefix("../").rstrip("/")
        if "<" in span or "*" in span or span.startswith(MADE) or f"{span}/".startswith(MADE):
            continue
        is_path = FILE.fullmatch(span) or re.fullmatch(
            r"(?:mudkit|tests|docs|notebooks|reports|tools|data)/[\w./-]*", span
        )
        if is_path and name not in files and name.rpartition("/")[2] not in written:
            yield f"no file {span}"
    stems = {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")}
    yield from (
        f"no chapter {name}" for span in page.spans for name in CHAPTER.findall(span) if name not in stems
    )
    for link in page.links:
        is_generated = page.path.parent == ROOT / "docs" and link.removesuffix(".md") in GENERATED
        if not is_generated and not (page.path.parent / link).exists() and not (ROOT / link).exists():
            yield f"no page {link}"


def test_files_chapters_and_links_of_pages_exist() -> None:
    paths = [path for folder in ("mudkit", "reports", "tools") for path in (ROOT / folder).rglob("*.py")]
    files, written = list_files(), "\n".join(path.read_text(encoding="utf-8") for path in paths)
    missing = [(path.name, what) for path in PAGES for what in find_missing_files(Page(path), files, written)]
    assert missing == []


def list_targets() -> set[str]:
    """Return the targets of the Makefile."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z]+):", text, re.MULTILINE))


def find_missing_commands(line: str, command: Any, targets: set[str]) -> Iterator[str]:
    """Yield the subcommands, options and targets of a command line that do not exist."""
    line = re.sub(r"[\[\]…]", " ", line)
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        return
    if len(words) > 1 and words[0] == "make":
        yield from (
            f"no target {item}" for item in words[1:] if re.fullmatch("[a-z]+", item) and item not in targets
        )
    if not words or Path(words[0]).name != "mudkit":
        return
    for number, word in enumerate(words[1:], 1):
        if hasattr(command, "commands") and not word.startswith("-"):
            alternatives = word.split("|")
            if unknown := [item for item in alternatives if item not in command.commands]:
                yield f"mudkit has no command {', '.join(unknown)}"
                return
            command = command.commands[alternatives[0]]
            if number > 2:
                return
        elif word.startswith("--") and not command.context_settings.get("ignore_unknown_options"):
            options = {name for item in command.params for name in (*item.opts, *item.secondary_opts)}
            if word.partition("=")[0] not in {*options, "--help"}:
                yield f"{command.name} has no {word}"


def test_commands_of_pages_exist() -> None:
    command, targets = typer.main.get_command(app), list_targets()
    missing = [
        (path.name, line, what)
        for path in PAGES
        for line in Page(path).commands
        for what in find_missing_commands(line, command, targets)
    ]
    assert missing == []


def test_dotted_names_of_the_package_exist() -> None:
    """Resolve them in all texts: comments, tests and settings too."""
    paths = [path for folder in SOURCES for path in (ROOT / folder).rglob("*.py")]
    paths += [*PAGES, ROOT / "pyproject.toml", *(ROOT / "widgets").rglob("*.md")]
    missing = {
        (path.relative_to(ROOT).as_posix(), name)
        for path in paths
        for name in DOTTED.findall(path.read_text(encoding="utf-8"))
        if name not in NO_MODULES and not resolves(name)
    }
    assert sorted(missing) == []


def find_unresolved(table: dict[str, Any]) -> Iterator[str]:
    """Yield the names, chapters, guides and rows of the scorecard in a paper's table that do not exist."""
    scorecard = (ROOT / "docs" / "scorecard.md").read_text(encoding="utf-8")
    for section in table["sections"]:
        for mechanism in section["mechanisms"]:
            for target in mechanism["where"]:
                if CHAPTER.fullmatch(target):
                    exists = (ROOT / "notebooks" / f"{target}.ipynb").is_file()
                elif target.endswith(".md"):
                    exists = (ROOT / "docs" / target).is_file()
                elif re.fullmatch(r"[A-Z]\d[\w-]*", target):
                    exists = f"\n## {target}\n" in scorecard
                else:
                    exists = resolves(f"mudkit.{target}")
                if not exists:
                    yield f"{mechanism['name']}: no {target}"


@pytest.mark.parametrize(
    "path", sorted((ROOT / "tools" / "papers").glob("*.toml")), ids=lambda path: path.stem
)
def test_references_of_a_papers_table_exist(path: Path) -> None:
    assert list(find_unresolved(tomllib.loads(path.read_text(encoding="utf-8")))) == []


def test_missing_references_of_a_papers_table_are_found() -> None:
    missing = ["systems.mud.Client.sync", "systems.mud.Klient", "99_nothing", "guides/nothing.md", "M99"]
    existing = ["systems.mud.Client.write", "01_mud_tables", "guides/mud.md", "M3-remote"]
    table = {"sections": [{"mechanisms": [{"name": "x", "where": missing + existing}]}]}
    assert list(find_unresolved(table)) == [f"x: no {target}" for target in missing]


def resolves(dotted: str) -> bool:
    """Return whether a dotted name leads to a module, a member or an attribute of an instance."""
    parts = dotted.split(".")
    for number in range(len(parts), 0, -1):
        try:
            kind = Known(import_name(".".join(parts[:number])))
        except (ImportError, AttributeError):
            continue
        try:
            for part in parts[number:]:
                if kind is not None and not inspect.isclass(
                    kind.value if isinstance(kind, Known) else kind.kind
                ):
                    return False
                kind = member_of(kind, part)
        except Missing:
            return False
        return True
    return False


def list_texts(module: ModuleType) -> Iterator[tuple[str, Any, Any]]:
    """Yield the docstrings of a module, each with its class and function; those of attributes too."""

    def walk(node: Any, kind: Any, function: Any) -> Iterator[tuple[str, Any, Any]]:
        for child in node.body:
            match child:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield text, kind, function
                case ast.ClassDef(name=name):
                    yield from walk(child, vars(kind or module).get(name), None)
                case ast.FunctionDef(name=name) if function is None:
                    yield from walk(child, kind, vars(kind or module).get(name))

    yield from walk(ast.parse(inspect.getsource(module)), None, None)


@functools.cache
def names_of(module: ModuleType) -> dict[str, Any]:
    """Return what the names of a module refer to, those that it imports for annotations alone included."""
    names = dict.fromkeys([*vars(math), "f"]) | {name: wrap(value) for name, value in vars(module).items()}
    for name, dotted in imported(module.__name__).items():
        if name not in names and dotted.startswith("mudkit"):
            names[name] = wrap(import_name(dotted))
    return names


def names_at(module: ModuleType, kind: Any, function: Any) -> dict[str, Any]:
    """Return what the names in a docstring refer to: parameters, members of the class, names of the module."""
    names = names_of(module).copy()
    if inspect.isclass(kind):
        for base in reversed([item for item in kind.__mro__ if is_ours(item)]):
            for name in {*vars(base), *vars(base).get("__annotations__", {}), *assigned(base)}:
                names[name] = member_of(Instance(kind), name)
    called = inspect.unwrap(getattr(function, "__func__", getattr(function, "fget", function)))
    for name, annotation in getattr(called, "__annotations__", {}).items():
        names[name] = kind_of_annotation(annotation, module.__name__, kind)
    return names


def find_missing_in(module: ModuleType) -> Iterator[str]:
    """Yield what does not exist of the references in the docstrings of a module."""
    for text, kind, function in list_texts(module):
        roles, spans = ROLE.findall(text), re.findall(r"(?<![`:])``([^`\n]+)``", text)
        if not roles and not spans:
            continue
        names = names_at(module, kind, function)
        for role, target in roles:
            target = re.sub(r".*<(.+)>", r"\1", target).removesuffix("()")
            if role in ("doc", "ref"):
                continue
            if target.split(".")[0] == "mudkit":
                what = [] if resolves(target) else [f"no {target}"]
            elif "." not in target:
                what = [] if target in names or target in public_names() else [f"no {target}"]
            else:
                what = check_span(target, names)
            yield from (f":{role}:`{target}`: {item}" for item in what)
        for span in spans:
            if not FILE.fullmatch(span) and not is_of_another_language(span):
                yield from (f"``{span}``: {what}" for what in check_span(span, names, (*SCOPES, *TASKS)))


def test_references_in_docstrings_exist() -> None:
    missing = [(module.__name__, what) for module in import_all() for what in find_missing_in(module)]
    assert missing == []


@pytest.mark.parametrize(
    ("span", "what"),
    [
        ("mudkit.worlds.Ward(hours=2.5).compare()", "Ward has no compare"),
        ("Ward(minutes=2.5)", "Ward has no parameter minutes"),
        ("sublim.Policy.read", "Policy has no read"),
        ("mud.Client.held(table)", "Client has no held"),
        ("radiator.play(stand=)", "play has no parameter stand"),
        ("Lab(seed=1).device('a').radio_mj(2)", "Device has no radio_mj"),
        ("server.problemz", "nothing has problemz"),
        ("cleared_up(7)", "no cleared_up()"),
        ("Nothing.known", "no Nothing"),
        ("lab.bill()", None),
        ("mudkit.worlds.Ward(hours=2.5).run(seed, 'stateless').measures()", None),
        ("open_port('location', accepts)", None),
        ("run(task, ADAPTERS[name], seed, name=name).measures()['up_kb']", None),
        ("receiver.age", None),
    ],
)
def test_missing_names_and_arguments_are_found(span: str, what: str | None) -> None:
    assert [item.partition(":")[0] for item in check_span(span, {}, SCOPES)] == ([what] if what else [])


def test_missing_commands_are_found() -> None:
    command = typer.main.get_command(app)
    lines = [
        "mudkit reprt all",
        "mudkit reproduce S2 --fast",
        "make chapters",
        "mudkit reproduce [ROW…] --quick",
    ]
    result = [[*find_missing_commands(line, command, list_targets())] for line in lines]
    assert result == [
        ["mudkit has no command reprt"],
        ["reproduce has no --fast"],
        ["no target chapters"],
        [],
    ]


def list_rules() -> Iterator[tuple[str, str]]:
    """Yield module and message of each row in a table of a machine's rules that stands for messages."""
    for module in import_all():
        lines = (module.__doc__ or "").splitlines() if ".systems." in module.__name__ else []
        marks = [number for number, line in enumerate(lines) if re.fullmatch(r"=+( +=+)+", line)]
        if len(marks) < 2:
            continue
        width = lines[marks[0]].index(" ")
        for line in lines[marks[0] + 1 : marks[-1]]:
            if re.fullmatch(r"([A-Z][a-z]+)+(, ([A-Z][a-z]+)+)*", line[:width].strip()):
                yield from ((module.__name__, name) for name in line[:width].strip().split(", "))


def test_rules_of_machines_name_messages_that_exist() -> None:
    """A reader looks for the class; the word on the wire may be another one."""
    rules = list(list_rules())
    unknown = [(module, name) for module, name in rules if not hasattr(import_name(module), name)]
    assert unknown == []
    assert len(rules) > 60
