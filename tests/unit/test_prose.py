"""No package has more sentences and names that have to be decoded than `tools/prose.toml` allows."""

import importlib.util
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def prose():
    spec = importlib.util.spec_from_file_location("prose", ROOT / "tools" / "prose.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('def load():\n    """Give what is there."""', ["first word Give: Give what is there."]),
        ('def load():\n    """Return the rows."""', []),
        ('LIMIT = 3\n"""So many rows."""', ["first word So: So many rows.", "phrase 'So many'"]),
        ("MOST_BYTES = 3", ["name MOST_BYTES"]),
        ("MAX_BYTES = 3", []),
        ("def load(came): pass", ["name came"]),
        ("def load(found): pass", []),
        ("self.came = 1", ["name came"]),
        ("print(came)", []),
    ],
)
def test_findings_are_first_words_phrases_and_names(prose, source, expected):
    assert [what for _, what in prose.findings(source)] == expected


def test_a_package_with_one_more_finding_than_allowed_fails(prose):
    found = prose.Counter({"mudkit/fleet": 3, "mudkit/trace": 2})
    (line,) = prose.too_many(found, {"mudkit/fleet": 2, "mudkit/trace": 2})
    assert line.startswith("mudkit/fleet: 3 findings, at most 2 allowed")


def test_no_package_has_more_findings_than_allowed(prose):
    allowed = tomllib.loads((ROOT / "tools" / "prose.toml").read_text(encoding="utf-8"))
    assert prose.too_many(prose.counts(), allowed) == []
