"""Examples in docstrings."""

import doctest
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = [
    ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for file in sorted((ROOT / "mudkit").rglob("*.py"))
    if re.search(r">>> (?!.*\+SKIP)", file.read_text(encoding="utf-8"))
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_a_module_print_the_stated_output(name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    failed, attempted = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert attempted > 0
    assert failed == 0
