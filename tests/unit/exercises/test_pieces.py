"""Pieces: functions loaded from files, with only the names that they use."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from mudkit.errors import MudkitError, ParameterError
from mudkit.exercises.pieces import read_source


@pytest.fixture
def write(tmp_path: Path):
    def write_file(text: str, name: str = "answer.py") -> Path:
        file = tmp_path / name
        file.write_text(text, encoding="utf-8")
        return file

    return write_file


def test_names_used_by_a_function_are_loaded(write):
    file = write(
        "from math import sqrt as root\nn = 2\nn += 2\n\ndef half(x):\n    return x / 2\n\n"
        "def piece(x):\n    return half(root(x)) + sum(n for _ in range(2))\n"
    )
    assert read_source(file).load("piece")(4) == 9.0


def test_other_statements_do_not_run(write):
    file = write("who = 1 / 0\nopen('x', 'w')\n\ndef piece(who):\n    return [who for who in (who,)]\n")
    assert read_source(file).load("piece")(3) == [3]
    assert list(file.parent.iterdir()) == [file]


def test_last_definition_wins_and_earlier_bindings_run(write):
    file = write("k = 1\ndef piece():\n    return k\nk = 2\ndef piece():\n    return 10 * k\nk = 3\n")
    assert read_source(file).load("piece")() == 30


def test_functions_are_found_by_their_definition(write):
    source = read_source(write("a = 1\nb = lambda: 2\ndef c(): ...\nclass D: ...\nfrom os import getcwd\n"))
    assert source.functions == {"b", "c"}


@pytest.mark.parametrize(
    "cells",
    [
        ("%matplotlib inline\n!ls\nstep = 2",),  # magics
        ("import asyncio\nawait asyncio.sleep(0)", "async def two():\n    return 2\nstep = await two()"),
    ],
)
def test_function_is_loaded_from_a_notebook(tmp_path, cells):
    code = [new_code_cell(source) for source in (*cells, "def piece(x):\n    return x + step")]
    file = tmp_path / "answer.ipynb"
    nbformat.write(new_notebook(cells=[new_markdown_cell("def piece(): text"), *code]), file)
    assert read_source(file).load("piece")(1) == 3


def test_declared_encoding_of_a_file_is_used(tmp_path):
    file = tmp_path / "answer.py"
    file.write_bytes("# coding: latin-1\ndef piece():\n    return 'für'\n".encode("latin-1"))
    assert read_source(file).load("piece")() == "für"


def test_exception_while_loading_propagates(write):
    with pytest.raises(ZeroDivisionError):
        read_source(write("n = 1 / 0\ndef piece():\n    return n\n")).load("piece")


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("answer.py", "x = 1\ndef (", r"answer\.py, line 2"),
        ("answer.ipynb", "{", "not a valid notebook"),
        ("answer.txt", "x = 1", r"\.ipynb or \.py"),
        ("answer.py", None, "no notebook or Python file"),
    ],
)
def test_read_source_refuses(write, tmp_path, name, text, problem):
    file = tmp_path / name if text is None else write(text, name)
    with pytest.raises(MudkitError, match=problem) as caught:
        read_source(file)
    assert isinstance(caught.value, ParameterError) or text is None
