"""Site: tables of contents, API pages with all public names, links, and the build."""

import importlib
import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import nbformat
import pytest
from public_faces import FACES

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
GENERATED = {"api/index", "chapters/index", "changelog", "contributing"}
"""Pages that the build adds to those in docs/."""


@pytest.fixture(scope="module")
def site():
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        spec = importlib.util.spec_from_file_location("mudkit_site", ROOT / "tools" / "site.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(ROOT / "tools"))
    return module


def list_pages():
    return {
        path.relative_to(DOCS).with_suffix("").as_posix()
        for path in DOCS.rglob("*")
        if path.suffix in (".md", ".ipynb")
    }


def test_every_page_is_in_a_table_of_contents():
    listed = {"index"}
    for page in DOCS.rglob("*.md"):
        for block in re.findall(r"```\{toctree\}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            for line in block.splitlines():
                if line.strip() and not line.startswith(":"):
                    name = re.sub(r".*<(.+)>", r"\1", line.strip())
                    listed.add((page.parent.relative_to(DOCS) / name).as_posix())
    assert sorted(list_pages() - listed) == []
    assert sorted(listed - list_pages()) == sorted(GENERATED)


PAPERS = sorted((ROOT / "tools" / "papers").glob("*.toml"))


def test_every_page_of_a_paper_has_a_table():
    assert [path.stem for path in PAPERS] == sorted(path.stem for path in (DOCS / "papers").glob("*.md"))


@pytest.mark.parametrize("table", PAPERS, ids=lambda path: path.stem)
def test_page_of_a_paper_is_that_of_its_table(site, table):
    page = DOCS / "papers" / f"{table.stem}.md"
    assert page.read_text(encoding="utf-8") == site.paper_page(table), "python tools/site.py --papers"


def find_incomplete(paper, states):
    """Yield what is wrong with the fields of a paper's table."""
    if set(paper) != {"title", "source", "summary", "sections"} or len(paper["summary"]) != 5:
        yield "title, source, a summary of five lines, sections"
    names = [mechanism.get("name") for section in paper["sections"] for mechanism in section["mechanisms"]]
    yield from (f"{name}: twice" for name in sorted({name for name in names if names.count(name) > 1}))
    for section in paper["sections"]:
        if set(section) != {"title", "mechanisms"}:
            yield f"{section['title']}: title, mechanisms"
        for mechanism in section["mechanisms"]:
            name, state = mechanism["name"], mechanism.get("state")
            if set(mechanism) - {"note"} != {"name", "sections", "says", "where", "state"}:
                yield f"{name}: fields"
            elif state not in states:
                yield f"{name}: state {state}"
            elif state != "same" and "note" not in mechanism:
                yield f"{name}: no note on what differs"
            elif state != "missing" and not mechanism["where"]:
                yield f"{name}: nowhere"
            elif not all(text.endswith(".") for text in [mechanism["says"], mechanism.get("note", ".")]):
                yield f"{name}: no sentence"
            elif any("|" in text for text in [name, mechanism["says"], mechanism.get("note", "")]):
                yield f"{name}: a bar would end the cell"


@pytest.mark.parametrize("table", PAPERS, ids=lambda path: path.stem)
def test_mechanisms_of_a_paper_have_their_fields(site, table):
    paper = tomllib.loads(table.read_text(encoding="utf-8"))
    assert list(find_incomplete(paper, site.STATES)) == []


def test_incomplete_mechanisms_are_found(site):
    whole = {"sections": "1", "says": "It is.", "where": ["Lab"], "state": "same"}
    wrong = {
        "fields": {"where": None, "extra": 1}, "state lost": {"state": "lost"},
        "no note on what differs": {"state": "differs"}, "nowhere": {"where": []},
        "no sentence": {"says": "It is"}, "a bar would end the cell": {"says": "a | b."},
    }  # fmt: skip
    mechanisms = [{**whole, "name": what, **change} for what, change in wrong.items()]
    paper = {"title": "t", "source": "s", "summary": ["-"] * 5}
    table = {**paper, "sections": [{"title": "1", "mechanisms": [*mechanisms, *mechanisms[:1]]}]}
    assert list(find_incomplete(table, site.STATES)) == [
        "fields: twice",
        *(f"{what}: {what}" for what in [*wrong, "fields"]),
    ]
    assert list(find_incomplete({**table, "summary": [], "sections": []}, site.STATES)) == [
        "title, source, a summary of five lines, sections"
    ]


def test_references_of_a_paper_show_public_names_with_their_package(site):
    shown = {
        "systems.mud.Client.write": "`mud.Client.write`",
        "systems.mud.servers.gateway.Gateway": "`Gateway`",
        "systems.mud.tables.queries.keys_of": "`keys_of`",
        "Lab.server": "`mudkit.Lab.server`",
        "01_mud_tables": "[chapter 01](../../notebooks/01_mud_tables.ipynb)",
        "guides/mud.md": "[guide](../guides/mud.md)",
        "M3-remote": "[M3-remote](../scorecard.md#m3-remote)",
    }
    assert {target: site.reference(target) for target in shown} == shown


def test_every_public_package_has_a_page(site):
    assert sorted(site.PACKAGES) == sorted([*FACES, "mudkit.report"])
    assert all(f"\n{package}\n" in site.api_index() for package in site.PACKAGES)


def test_constants_have_the_text_below_their_definition(site):
    page = site.api_page("mudkit.consistency")
    assert ".. py:data:: MODELS\n\n   All models by name" in page
    assert "   :exclude-members: MODELS, " in page
    assert ".. py:data:: ECG_HZ\n   :value: 250\n" in site.api_page("mudkit.sources")


def test_chapters_are_listed_with_their_questions(site):
    chapters = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
    page = site.chapter_index(chapters)
    for chapter in chapters:
        title, question = site.heading(nbformat.read(chapter, as_version=4))
        assert f"| [{title}]({chapter.name}) | {question} |" in page
        assert question.endswith("?")


def test_links_point_to_pages_of_the_site_or_become_text(site, tmp_path):
    page = tmp_path / "guides" / "x.md"
    text = (
        "[a](../how-it-works.md#one) [b](../../CONTRIBUTING.md) [c](../../notebooks/00_start_here.ipynb) "
        "[d](../../mudkit/lab.py) [e](../../notebooks) ![f](../item-states.svg)"
    )
    assert site.linked(text, DOCS / "guides" / "x.md", page, tmp_path) == (
        "[a](../how-it-works.md#one) [b](../contributing.md) [c](../chapters/00_start_here.ipynb) "
        "d [e](../chapters/index.md) ![f](../item-states.svg)"
    )


def test_maps_share_one_leaflet(site):
    from mudkit.figures import assets

    if not assets.leaflet_js():
        pytest.skip("the files of maps are not here: make setup")
    frame = site.html.escape(f"<head><script>{assets.leaflet_js()}\nvar x;</script></head>", quote=True)
    output = nbformat.v4.new_output("display_data", data={"text/html": f'<iframe srcdoc="{frame}">'})
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("", outputs=[output])])
    (cell,) = site.shown(notebook, "../").cells
    assert site.html.unescape(cell.outputs[0].data["text/html"]) == (
        '<iframe srcdoc="<head><script src="../_static/leaflet.js"></script><script>var x;</script></head>">'
    )


@pytest.mark.soak
@pytest.mark.process
def test_site_builds_without_warnings_and_external_resources(tmp_path):
    command = [sys.executable, ROOT / "tools" / "site.py", "--unexecuted", tmp_path]
    completed = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert completed.returncode == 0, completed.stderr
    built = tmp_path / "html"
    html = {
        path.relative_to(built).as_posix(): path.read_text(encoding="utf-8") for path in built.rglob("*.html")
    }
    external = re.compile(r'<(?:script|link|img|iframe)\b[^>]*(?:src|href)="(?:https?:)?//[^"]*')
    assert {name: urls for name, text in html.items() if (urls := external.findall(text))} == {}
    for package in FACES:
        page = html[f"api/{package}.html"]
        missing = [
            name
            for name in importlib.import_module(package).__all__
            if not name.startswith("__")
            and f'id="{package}.{name}"' not in page
            and not is_package(package, name)
        ]
        assert missing == [], package
    assert (built / "searchindex.js").stat().st_size > 100_000
    assert sum(path.stat().st_size for path in built.rglob("*") if path.is_file()) < 40e6


def is_package(package, name):
    return importlib.util.find_spec(f"{package}.{name}") is not None
