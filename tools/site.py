"""Build the site: assemble its sources in build/site/source, execute the chapters, run Sphinx.

Usage: python tools/site.py [--unexecuted] [FOLDER]        build/site by default
       python tools/site.py --papers                       write docs/papers/*.md from tools/papers/*.toml
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import html
import importlib
import inspect
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path
from textwrap import indent
from typing import Any

import nbformat
from tqdm import tqdm

from mudkit.figures import assets
from mudkit.files import staged_folder
from mudkit.report.html import FIGURE_SCRIPT, plotly_script, replace_outputs
from notebooks import execute

ROOT = Path(__file__).parents[1]
PACKAGES = (
    "mudkit", "mudkit.errors", "mudkit.events", "mudkit.sources", "mudkit.systems", "mudkit.systems.mud",
    "mudkit.systems.lasthop", "mudkit.systems.contrail", "mudkit.systems.radiator", "mudkit.systems.sublim",
    "mudkit.systems.store_and_forward", "mudkit.predicates", "mudkit.consistency", "mudkit.trace",
    "mudkit.pipeline", "mudkit.learning", "mudkit.worlds", "mudkit.experiment", "mudkit.figures",
    "mudkit.widgets", "mudkit.exercises", "mudkit.report",
)  # fmt: skip
"""The packages that have a page in the API reference, in its order."""

COPIES = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md", "README.md": "index.md"}
"""Pages of the repository's root, and where the site has them."""

PAPERS = ROOT / "tools" / "papers"
"""A table for each paper: its mechanisms, where they are, and what differs."""
STATES = {"same": "✓ same", "differs": "≈ differs", "missing": "✗ missing"}
"""States of a mechanism, and how a page shows them."""

_LEAFLET = '<script src="{up}_static/leaflet.js"></script><script>'
_LINK = re.compile(r"(!?)\[([^]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")

Execute = Callable[[Path], nbformat.NotebookNode]


def assemble(source: Path, run: Execute) -> None:
    """Write all sources of the site to a folder that is empty.

    Parameters
    ----------
    source : Path
    run : callable
        Takes the path of a notebook, and returns the notebook with the outputs that the site shows.
    """
    shutil.copytree(ROOT / "docs", source, dirs_exist_ok=True)
    for name in ("CHANGELOG.md", "CONTRIBUTING.md"):
        shutil.copy(ROOT / name, source / COPIES[name])
    originals = {source / copy: ROOT / name for name, copy in COPIES.items() if copy != "index.md"}
    for page in source.rglob("*.md"):
        original = originals.get(page, ROOT / "docs" / page.relative_to(source))
        page.write_text(linked(page.read_text(encoding="utf-8"), original, page, source), encoding="utf-8")
    notebooks = [*sorted((ROOT / "notebooks").glob("[0-9]*.ipynb")), *sorted((ROOT / "docs").glob("*.ipynb"))]
    for file in tqdm(notebooks, unit="notebook", disable=None):
        place = source / "chapters" / file.name if file.parent.name == "notebooks" else source / file.name
        place.parent.mkdir(exist_ok=True)
        notebook = shown(run(file), "../" if place.parent != source else "")
        for cell in notebook.cells:
            if cell.cell_type == "markdown":
                cell.source = linked(cell.source, file, place, source)
        nbformat.write(notebook, place)
    _write(source / "chapters" / "index.md", chapter_index(notebooks))
    for package in PACKAGES:
        _write(source / "api" / f"{package}.md", api_page(package))
    _write(source / "api" / "index.md", api_index())
    static = source / "_static"
    _write(static / "plotly.min.js", plotly_script())
    _write(static / "figures.js", FIGURE_SCRIPT)
    _write(static / "leaflet.js", assets.leaflet_js())


def shown(notebook: nbformat.NotebookNode, up: str) -> nbformat.NotebookNode:
    """Return a notebook as the site shows it: figures as HTML, one copy of Leaflet for all maps."""
    replace_outputs(notebook)
    inline = html.escape(f"<script>{assets.leaflet_js()}\n", quote=True)
    linked = html.escape(_LEAFLET.format(up=up), quote=True)
    for cell in notebook.cells:
        cell.get("metadata", {}).pop("execution", None)
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if "text/html" in data:
                data["text/html"] = "".join(data["text/html"]).replace(inline, linked)
    return notebook


def chapter_index(files: list[Path]) -> str:
    """Return the page that lists the chapters, each with its question."""
    lines = [
        "# Chapters",
        "",
        "Each has one idea and exercises with judges, and runs in JupyterLab: `make lab`.",
        "",
    ]
    chapters = [file for file in files if file.parent.name == "notebooks"]
    lines += ["| chapter | question |", "|---|---|"]
    for file in chapters:
        title, question = heading(nbformat.read(file, as_version=4))
        lines.append(f"| [{title}]({file.name}) | {question} |")
    return "\n".join([*lines, "", *_toctree(file.stem for file in chapters)])


def heading(notebook: nbformat.NotebookNode) -> tuple[str, str]:
    """Return a chapter's title and its question."""
    text = notebook.cells[0].source
    question = re.search(r"\*\*(.+?)\*\*", text, re.DOTALL)
    return text.strip().splitlines()[0].lstrip("# ").strip(), question[1] if question else ""


def api_index() -> str:
    """Return the page that lists the packages of the API."""
    lines = ["# API", "", "Names that are on these pages are public; all others may change at any time.", ""]
    return "\n".join([*lines, *_toctree(PACKAGES, hidden=False)])


def api_page(package: str) -> str:
    """Return the page of a package: every name in its ``__all__``, from the docstrings."""
    constants = constants_of(package)
    lines = [f"# {package}", "", "```{eval-rst}", f".. automodule:: {package}", "   :members:"]
    lines += [f"   :exclude-members: {', '.join(constants)}"] if constants else []
    for name, (value, text) in constants.items():
        shown = [f"   :value: {value}"] if len(value) <= 60 else []
        lines += ["", f".. py:data:: {name}", *shown, "", indent(text, "   ")]
    for name, module in modules_of(package).items():
        lines += ["", f".. py:data:: {name}", "", f"   The module ``{module}``.", ""]
        lines += [f".. automodule:: {module}", "   :members:", "   :no-index:"]
    return "\n".join([*lines, "```", ""])


def modules_of(package: str) -> dict[str, str]:
    """Return the modules among the public names of a package that have no page of their own."""
    module = importlib.import_module(package)
    values = {name: getattr(module, name) for name in module.__all__}
    return {
        name: value.__name__
        for name, value in values.items()
        if inspect.ismodule(value)
        and value.__name__ not in PACKAGES
        and value.__name__ != f"{package}.{name}"
    }


def constants_of(package: str) -> dict[str, tuple[str, str]]:
    """Return the public constants of a package, each with its value and the docstring below its definition.

    autodoc looks for it in the module that it documents, and a package only imports its constants.
    """
    module = importlib.import_module(package)
    names = (name for name in module.__all__ if not name.startswith("__"))
    values = {name: getattr(module, name) for name in names}
    return {
        name: (" ".join(repr(value).split()), _docstring(package, name))
        for name, value in values.items()
        if not (inspect.isclass(value) or inspect.isroutine(value) or inspect.ismodule(value))
    }


def paper_page(table: Path) -> str:
    """Return the page of a paper: a summary, then its mechanisms by section."""
    paper = tomllib.loads(table.read_text(encoding="utf-8"))
    mechanisms = [mechanism for section in paper["sections"] for mechanism in section["mechanisms"]]
    counts = Counter(STATES[mechanism["state"]] for mechanism in mechanisms)
    by_state = ", ".join(f"{counts[state]} {state}" for state in STATES.values())
    lines = [
        f"# {paper['title']}",
        "",
        f"{paper['source']}.",
        "",
        *(f"- {line}" for line in paper["summary"]),
        "",
        f"{len(mechanisms)} mechanisms, in the order of the paper: {by_state}. Numbers in parentheses are "
        "its sections. Names that begin with a package, such as `mud.Client`, are public; others are of "
        "machines and their parts.",
        "",
    ]
    for section in paper["sections"]:
        lines += [f"## {section['title']}", "", "| the paper | here | what differs, and why |"]
        lines += ["|---|---|---|", *map(_mechanism, section["mechanisms"]), ""]
    written = f"Written by `python tools/site.py --papers` from `{table.relative_to(ROOT).as_posix()}`."
    return "\n".join([*lines, written, ""])


def _mechanism(mechanism: Mapping[str, Any]) -> str:
    """Return the line of a mechanism in the table of its section."""
    says = f"**{mechanism['name']}** ({mechanism['sections']}). {mechanism['says']}"
    where = ", ".join(map(reference, mechanism["where"]))
    here = STATES[mechanism["state"]]
    if where:
        here += f"; see {where}" if mechanism["state"] == "missing" else f": {where}"
    return f"| {says} | {here} | {mechanism.get('note', '')} |"


def reference(target: str) -> str:
    """Return a link to a chapter, a guide or a row of the scorecard, or a name below ``mudkit`` as code."""
    if re.match(r"\d\d_", target):
        return f"[chapter {target[:2]}](../../notebooks/{target}.ipynb)"
    if target.endswith(".md"):
        return f"[guide](../{target})"
    if re.match(r"[A-Z]\d", target):
        return f"[{target}](../scorecard.md#{target.lower()})"
    parts = target.split(".")
    number = next((number for number, part in enumerate(parts) if part[0].isupper()), len(parts) - 1)
    is_public = ".".join(["mudkit", *parts[:number]]) in PACKAGES
    return f"`{'.'.join(['mudkit', *parts][number + 1 - is_public :])}`"


def write_papers() -> None:
    """Write the pages of the papers, in ``docs/papers``."""
    for table in sorted(PAPERS.glob("*.toml")):
        _write(ROOT / "docs" / "papers" / f"{table.stem}.md", paper_page(table))


def _docstring(module: str, name: str) -> str:
    tree = ast.parse(inspect.getsource(importlib.import_module(module)))
    for statement, following in pairwise([*tree.body, ast.Pass()]):
        targets = (
            statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        )
        if name in (target.id for target in targets if isinstance(target, ast.Name)):
            value = following.value if isinstance(following, ast.Expr) else None
            return inspect.cleandoc(str(value.value)) if isinstance(value, ast.Constant) else ""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if name == (alias.asname or alias.name):
                    return _docstring(node.module, alias.name)
    return ""


def _toctree(names: Iterable[str], *, hidden: bool = True) -> list[str]:
    options = [":hidden:"] if hidden else [":maxdepth: 1"]
    return ["```{toctree}", *options, "", *names, "```", ""]


def linked(text: str, original: Path, page: Path, source: Path) -> str:
    """Lead links to where the site has their target; a link to a file that it lacks becomes its text."""

    def link(match: re.Match[str]) -> str:
        picture, label, target, anchor = match.groups()
        if "://" in target or target.startswith("mailto:"):
            return match[0]
        path = (original.parent / target).resolve()
        if path.is_relative_to(ROOT / "docs"):
            place = source / path.relative_to(ROOT / "docs")
        elif path.parent == ROOT and path.name in COPIES:
            place = source / COPIES[path.name]
        elif path == ROOT / "notebooks":
            place = source / "chapters" / "index.md"
        elif path.parent == ROOT / "notebooks":
            place = source / "chapters" / path.name
        else:
            return label
        return f"{picture}[{label}]({Path(os.path.relpath(place, page.parent)).as_posix()}{anchor or ''})"

    return _LINK.sub(link, text)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _kept(folder: Path) -> Execute:
    """Execute a notebook unless it was executed before with the same code."""
    code = hashlib.sha256()
    for file in sorted((ROOT / "mudkit").rglob("*.py")):
        code.update(file.read_bytes())

    def run(file: Path) -> nbformat.NotebookNode:
        digest = code.copy()
        digest.update(file.read_bytes())
        kept = folder / f"{file.stem}-{digest.hexdigest()[:16]}.ipynb"
        if not kept.is_file():
            folder.mkdir(parents=True, exist_ok=True)
            for old in folder.glob(f"{file.stem}-*.ipynb"):
                old.unlink()
            nbformat.write(execute(file), kept)
        return nbformat.read(kept, as_version=4)

    return run


def build(folder: Path, run: Execute, *, jobs: int = 2) -> None:
    """Assemble and build the site; a warning is an error.

    Raises
    ------
    subprocess.CalledProcessError
        Sphinx has warned or failed; it has written why to standard error.
    """
    source = folder / "source"
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir(parents=True)
    assemble(source, run)
    with staged_folder(folder / "html", overwrite=r".*") as out:
        options = ["-W", "--keep-going", "-q", "-j", str(jobs), "-b", "html", "-d", str(folder / "doctrees")]
        subprocess.run([sys.executable, "-m", "sphinx", *options, str(source), str(out)], check=True)


def main() -> None:
    """Build the site that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--unexecuted", action="store_true", help="show the chapters without outputs")
    parser.add_argument(
        "--papers", action="store_true", help="only write the pages of the papers, docs/papers"
    )
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "build" / "site")
    given = parser.parse_args()
    if given.papers:
        write_papers()
        return
    run = partial(nbformat.read, as_version=4) if given.unexecuted else _kept(given.folder / "executed")
    try:
        build(given.folder.resolve(), run)
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
    sys.stdout.write(f"{given.folder / 'html' / 'index.html'}\n")


if __name__ == "__main__":
    main()
