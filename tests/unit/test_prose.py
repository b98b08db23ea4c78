"""Docstrings and names of the repository are plain technical English."""

import importlib.util
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
        ('def load():\n    """Return the the rows."""', ["a word twice: 'the the'"]),
        ("MOST_BYTES = 3", ["name MOST_BYTES"]),
        ("MAX_BYTES = 3", []),
        ("def load(came): pass", ["name came"]),
        ("def load(found): pass", []),
        ("self.came = 1", ["name came"]),
        ("class Problem:\n    found: str\n    came: str", ["name came"]),
        ("found: str = load()", ["name found"]),
        ("print(came)", []),
        ("def test_what_is_late_is_dropped(): pass", ["name test_what_is_late_is_dropped"]),
        ("def test_late_messages_are_dropped(): pass", []),
    ],
)
def test_findings_are_first_words_phrases_and_names(prose, source, expected):
    assert [what for _, what in prose.findings(source)] == expected


def test_the_repository_has_no_findings(prose):
    files = prose.modules([ROOT / folder for folder in prose.FOLDERS])
    assert [(file, *finding) for file in files for finding in prose.findings(file.read_text())] == []
