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


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("seen = []\nseen.append(3)\ndef piece():\n    return seen\n", [3]),
        ("seen = {}\nfor k in (1, 2):\n    seen[k] = k\ndef piece():\n    return seen\n", {1: 1, 2: 2}),
        ("seen = [2, 1]\nimport heapq\nheapq.heapify(seen)\ndef piece():\n    return seen\n", [1, 2]),
        ("seen = [1, 2]\nlast = seen.pop()\ndef piece():\n    return seen\n", [1]),
        ("n = 1\ndef fill():\n    global n\n    n = 2\nfill()\ndef piece():\n    return n\n", 2),
        ("seen = {}\ndef fill(k):\n    seen[k] = k\nfill(1)\ndef piece():\n    return seen\n", {1: 1}),
        ("class A: ...\na = A()\na.n = 4\ndef piece():\n    return a.n\n", 4),
        ("def piece():\n    return piece.n\npiece.n = 5\n", 5),
        ("seen = [1]\nseen.remove(7)\nseen.append(2)\ndef piece():\n    return seen\n", [1, 2]),
        ("if True:\n    def piece():\n        return 1\nelse:\n    piece = None\n", 1),
        ("try:\n    import nothing_like_it\nexcept ImportError:\n    def piece():\n        return 2\n", 2),
        ("from contextlib import suppress\nwith suppress(OSError):\n    def piece():\n        return 3\n", 3),
        ("if __name__ == '__main__':\n    def piece():\n        return 4\n", 4),
        ("from functools import partial\npiece = partial(max, 1, 2)\n", 2),
        ("class A:\n    def do(self):\n        return 6\npiece = A().do\n", 6),
        ("from os.path import *\ndef piece():\n    return basename('a/b')\n", "b"),
        ("from __future__ import annotations\ndef piece(x: Nothing = 3) -> Nothing:\n    return x\n", 3),
    ],
)
def test_loading_is_like_running_the_cells(write, text, value):
    assert read_source(write(text)).load("piece")() == value


def test_function_that_the_file_passes_to_the_judge_is_loaded(write):
    file = write(
        "def take():\n    ...\ndef first():\n    return 1\ndef mine():\n    return 2\nname = '00_start_here'\n"
        "verdict = exercises.judge('00_start_here', first)\njudge(chapter=name, piece=mine)\n"
        "judge(doubling, lambda: 3)\n"
    )
    source = read_source(file)
    assert source.load("take", "00_start_here")() == 2
    assert source.load("double", "doubling")() == 3
    assert source.load("take")() is None


def test_only_a_name_that_may_be_a_function_is_one(write):
    text = "import math\nfrom helper import *\ntwo = 2\nthree = math.floor(3)\ndef four(): ...\n"
    file = write(text)
    write("def five(): ...\n_six = five\n", "helper.py")
    source = read_source(file)
    is_defined = {name: source.defines("", name) for name in ("two", "three", "four", "five", "_six", "ten")}
    assert [name for name, defined in is_defined.items() if defined] == ["three", "four", "five"]
    judged = read_source(write(text + "judge('a', four)\n"))
    assert not judged.defines("b", "three")


@pytest.mark.parametrize(
    "magic", ["%%time\n", "\n\n%%capture out\n%%time\n", "%%prun -q\n", "%%time\n%matplotlib inline\n"]
)
def test_cell_below_a_magic_is_code(tmp_path, magic):
    file = tmp_path / "answer.ipynb"
    nbformat.write(new_notebook(cells=[new_code_cell(f"{magic}def piece():\n    return 1")]), file)
    assert read_source(file).load("piece")() == 1


def test_objects_of_a_file_beside_are_changed(write, monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(tmp_path)
    write("factors = {}\ndef times(x):\n    return x * factors['two']\n", "beside_a.py")
    write("factors = {}\ndef times(x):\n    return x * factors['two']\n", "beside_b.py")
    star = (
        "from beside_a import *\nfor k in ('two',):\n    factors[k] = 2\ndef piece():\n    return times(3)\n"
    )
    assert read_source(write(star)).load("piece")() == 6
    module = "import beside_b\nbeside_b.factors['two'] = 2\nfrom beside_b import times as piece\n"
    assert read_source(write(module)).load("piece")(3) == 6


def test_judge_is_not_called_while_loading(write):
    text = (
        "seen = []\ndef piece():\n    seen.append(1)\n    return seen\nverdict = judge('a', piece)\npiece()\n"
    )
    assert read_source(write(text)).load("piece")() == [1, 1]


@pytest.mark.parametrize(
    "text",
    [
        "seen = [1]\ndef show():\n    open({file!r}, 'x')\n    return seen\nshow()\ndef piece():\n    return seen[0]\n",
        "json = None\nimport json\nlast = json.loads(open({file!r}, 'x').name)\n"
        "def piece():\n    return json.loads('1')\n",
    ],
    ids=["calls what only reads a needed name", "binds another name with a module that is needed"],
)
def test_statement_that_changes_nothing_that_is_needed_does_not_run(write, tmp_path, text):
    """A solution that is loaded only to be judged must not do anything else, such as writing a file."""
    file = tmp_path / "written"
    assert read_source(write(text.format(file=str(file)))).load("piece")() == 1
    assert not file.exists()
