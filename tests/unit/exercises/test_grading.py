"""Grading of a class: each piece by itself, and one table of all."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from mudkit.errors import ParameterError
from mudkit.exercises import EXERCISES, grade, judge
from mudkit.exercises.grading import _files_to_judge, _kill_group

pytestmark = pytest.mark.process
RIGHT = "def take(seen, message):\n    print('noise')\n    return message['after'] == seen\n"
WRONG = "def take(seen, message):\n    return True\n"
JUDGES = """
from hypothesis import strategies as st
from mudkit.exercises import Exercise, PlayedScenario

def _play(piece, number):
    found = piece(number)
    return PlayedScenario(f"double({number})", None if found == 2 * number else f"it is {found}")

doubling = Exercise("double(x) -> twice x", "It is twice as much.", st.integers(0, 9), _play)
EXERCISES = {"doubling": doubling}
"""


@pytest.fixture
def hand_in(tmp_path: Path):
    def write_files(**files: str) -> list[Path]:
        for name, text in files.items():
            (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
        return [tmp_path / f"{name}.py" for name in files]

    return write_files


def wait_for_exit(pid: int) -> bool:
    """Wait for the exit of a killed process; return False if it still runs after 30 s."""
    for _ in range(600):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z":
                time.sleep(0.05)
                continue
        return True
    return False


FORGERIES = {
    "patches": """
import gc, sys, mudkit.exercises.judging as judging
def passed(*arguments, **options):
    return judging.Judgement("", "", True, 200, None)
for name in ("judged", "Judgement", "PlayedScenario", "_play"):
    setattr(judging, name, passed)
for module in list(sys.modules.values()):
    if hasattr(module, "judged"):
        module.judged = passed
""",
    "writes": """
import os
forged = b'\\n{"verdict": "passed", "scenarios": 200}'
for number in range(64):
    try:
        os.write(number, forged)
    except OSError:
        pass
for link in (f"/proc/{os.getppid()}/fd/{number}" for number in range(64)):
    try:
        with open(link, "wb", buffering=0) as file:
            os.set_blocking(file.fileno(), False)
            file.write(forged)
    except OSError:
        pass
""",
    "answers": """
class Always:
    def __eq__(self, other):
        return True
    def __reduce__(self):
        return exec, ("raise SystemExit",)
""",
}
SOLUTIONS = {
    "ann": RIGHT,
    "bob": WRONG + "def double(x):\n    return x + x\n",
    "cyd": "import os\ndef double(x):\n    os._exit(3)\n",
    "dan": "x = 1\n",
    "eve": "def double(:\n",
    "fay": "n = 1 / 0\ndef double(x):\n    return n\n",
    "gil": "def double(x):\n    return min(2 * x, 6)\n",
    # What its shell leaves behind is nobody's child, and only in the group of the solution.
    "hal": "import os\nnone = os.system('sleep 600 & echo $! > pid')\ndef double(x):\n    return 2 * x + none\n",
    "ian": "from functools import partial\nfrom operator import mul\ndouble = mul(3, 4)\n",
    **{
        name: f"def double(x):\n    exec({code!r}, globals())\n    return {answer}\n"
        for (name, code), answer in zip(FORGERIES.items(), ("x + 1", "x + 1", "Always()"), strict=True)
    },
}
CELLS = [
    "from helper import *",
    "%%capture\nfor name, number in (('one', 1), ('two', 2)):\n    factors[name] = number",
    "%%time\nif __name__ == '__main__':\n    def twice(x):\n        return times(x)",
    "def double(x):\n    ...\njudge(doubling, twice)",
]
"""A notebook with what a kernel has, and the loading of a file could lack."""


@pytest.fixture(scope="module")
def of_class(tmp_path_factory):
    """Grade the files of a class at once, since judges take seconds to start; return the folder and the rows."""
    folder = tmp_path_factory.mktemp("class")
    (folder / "judges.py").write_text(JUDGES, encoding="utf-8")
    for name, text in SOLUTIONS.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    (folder / "jan").mkdir()
    (folder / "jan" / "helper.py").write_text("factors = {}\ndef times(x):\n    return x * factors['two']\n")
    notebook = new_notebook(cells=[new_code_cell(source) for source in CELLS])
    nbformat.write(notebook, folder / "jan" / "jan.ipynb")
    files = [*(folder / f"{name}.py" for name in SOLUTIONS), folder / "jan" / "jan.ipynb"]
    table = grade(files, judges=folder / "judges.py")
    assert table["name"].tolist() == sorted([*SOLUTIONS, "bob", "jan"], key=[*SOLUTIONS, "jan"].index)
    return folder, {(row.name, row.piece): row for row in table.itertuples(index=False, name="Row")}


def test_class_is_graded(of_class):
    folder, rows = of_class
    assert wait_for_exit(int((folder / "pid").read_text())), "grading ends all processes of a solution"
    assert rows["ann", "take"].verdict == rows["bob", "double"].verdict == "passed"
    wrong = rows["bob", "take"]
    scenario = "ann sends one message to bob; delivery 1 comes twice."
    assert (wrong.verdict, wrong.scenario) == ("not yet", scenario)
    assert "more than once" in wrong.problem
    assert (rows["gil", "double"].scenario, rows["gil", "double"].problem) == ("double(4)", "it is 6")
    assert rows["cyd", "double"].verdict == "not judged"
    assert "status 3" in rows["cyd", "double"].problem
    by_name = {name: row for (name, _), row in rows.items()}
    assert by_name["dan"].verdict == "not there"
    assert "double" in by_name["dan"].problem
    assert "eve.py, line 1" in by_name["eve"].problem
    assert "ZeroDivisionError" in by_name["fay"].problem


def test_solution_is_killed_with_what_it_has_started():
    process = subprocess.Popen(
        ["sh", "-c", "sleep 600 & echo $!; wait"], stdout=subprocess.PIPE, start_new_session=True
    )
    child = int(process.stdout.readline())
    _kill_group(process.pid)
    assert process.wait(30) == -signal.SIGKILL
    assert wait_for_exit(child)
    _kill_group(process.pid)  # which has ended
    process.communicate()


def test_missing_exercise_has_a_row(hand_in):
    table = grade(hand_in(ann="def merge(a, b, c):\n    return a\n"), exercises=["00_start_here"])
    assert table[["exercise", "piece", "verdict"]].to_numpy().tolist() == [
        ["00_start_here", "take", "not there"]
    ]


def test_copies_that_jupyterlab_keeps_are_not_judged(tmp_path):
    """Files whose names begin with a dot, and all in such folders, are hidden."""
    names = ["ann.py", "late/bob.ipynb", ".cyd.py", ".ipynb_checkpoints/ann.py", "late/.old/bob.ipynb"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert _files_to_judge(tmp_path) == [tmp_path / "ann.py", tmp_path / "late" / "bob.ipynb"]


@pytest.mark.soak(keep=1, group="processes")
def test_folder_is_searched_recursively(hand_in, tmp_path):
    hand_in(ann=RIGHT, bob="x = 1\n")
    for folder, name in (
        ("late", "cyd.py"),
        (".ipynb_checkpoints", "ann-checkpoint.py"),
        ("late", "notes.txt"),
    ):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / name).write_text("def double(x):\n    return 2 * x\n", encoding="utf-8")
    (tmp_path / "judges").mkdir()
    (tmp_path / "judges" / "own.txt").write_text("", encoding="utf-8")
    table = grade([tmp_path])
    assert [Path(file_name).name for file_name in table["file"]] == ["ann.py", "bob.py", "cyd.py"]
    assert table["verdict"].tolist() == ["passed", "not there", "not there"]
    assert table["scenarios"].to_csv(index=False).split() == ["scenarios", "200", '""', '""']
    with pytest.raises(ParameterError, match="nothing to judge"):
        grade([tmp_path / "judges"])


def test_invalid_file_of_exercises_is_refused(hand_in, tmp_path):
    (tmp_path / "judges.py").write_text("EXERCISES = {}[1]\n", encoding="utf-8")
    with pytest.raises(ParameterError, match=r"(?s)cannot be loaded.*judges\.py.*KeyError: 1"):
        grade(hand_in(ann=RIGHT), judges=tmp_path / "judges.py")


@pytest.mark.soak(keep=1, group="processes")
def test_solution_finds_files_beside_its_own(hand_in, tmp_path):
    (tmp_path / "after.txt").write_text("after")
    text = "name = open('after.txt').read()\ndef take(seen, message):\n    return message[name] == seen\n"
    (row,) = grade(hand_in(ann=text)).itertuples()
    assert row.verdict == "passed", row.problem


@pytest.mark.soak(keep=1, group="processes")
def test_output_of_a_solution_is_not_a_verdict(hand_in, tmp_path):
    (tmp_path / "judges.py").write_text(JUDGES, encoding="utf-8")
    forged = 'import os\ndef double(x):\n    os.write(1, b\'{"verdict": "passed"}\')\n'
    shell = "import os\ndef double(x):\n    os.system('echo loud; echo louder >&2')\n    return 2 * x\n"
    files = hand_in(ann=forged + "    os._exit(0)\n", bob=forged + "    return 2 * x\n", cyd=shell)
    table = grade(files, judges=tmp_path / "judges.py")
    assert table["verdict"].tolist() == ["not judged", "passed", "passed"], table["problem"].tolist()


@pytest.mark.soak(keep=1, group="processes")
def test_processes_of_a_solution_are_ended(hand_in, tmp_path):
    (tmp_path / "judges.py").write_text(JUDGES, encoding="utf-8")
    file = hand_in(
        ann="import subprocess\ndef double(x, seen=[]):\n    if not seen:\n"
        "        seen.append(subprocess.Popen(['sleep', '600']))\n"
        "        open('pid', 'w').write(str(seen[0].pid))\n    return 2 * x\n"
    )
    (row,) = grade(file, judges=tmp_path / "judges.py").itertuples()
    assert row.verdict == "passed"
    assert wait_for_exit(int((tmp_path / "pid").read_text()))


@pytest.mark.soak(keep=1, group="processes")
def test_file_named_like_a_module_of_python_does_not_shadow_it(hand_in, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = grade(hand_in(ann=RIGHT, code="raise RuntimeError\n", random="raise RuntimeError\n"))
    assert table["verdict"].tolist() == ["passed", "not there", "not there"], table["problem"].tolist()


@pytest.mark.soak(keep=1, group="processes")
def test_invalid_files_do_not_prevent_other_verdicts(hand_in, tmp_path):
    hand_in(ann=RIGHT)
    (tmp_path / "BOB.PY").write_text(RIGHT, encoding="utf-8")
    (tmp_path / "cyd.py").write_bytes("name = 'für'\n".encode("latin-1") + RIGHT.encode())
    (tmp_path / "dan.py").write_bytes(RIGHT.encode() + b"\0")
    (tmp_path / "eve.py").write_text("x = " + "(" * 5000 + ")" * 5000, encoding="utf-8")
    for name, text in (("fay", "[]"), ("gil", "{}"), ("hal", ""), ("ian", '{"cells": 3, "nbformat": 4}')):
        (tmp_path / f"{name}.ipynb").write_text(text, encoding="utf-8")
    (tmp_path / "jan.ipynb").mkdir()
    (tmp_path / "kim.py").symlink_to(tmp_path / "nowhere")
    table = grade([tmp_path]).set_index("file")
    table.index = [Path(file_name).name for file_name in table.index]
    assert "jan.ipynb" not in table.index
    assert table.loc[["BOB.PY", "ann.py"], "verdict"].tolist() == ["passed"] * 2
    assert set(table.drop(["BOB.PY", "ann.py"])["verdict"]) == {"not judged"}


@pytest.mark.soak(keep=1, group="processes")
def test_stopped_grading_leaves_no_process_running(hand_in, tmp_path):
    file = hand_in(
        ann="import os\ndef take(seen, message):\n    open('pid', 'w').write(str(os.getpid()))\n"
        "    while True:\n        pass\n"
    )
    command = [sys.executable, "-m", "mudkit", "judge", *map(str, file), "--out", str(tmp_path / "out.csv")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        while not (tmp_path / "pid").is_file() or not (tmp_path / "pid").read_text():
            assert process.poll() is None
            time.sleep(0.05)
        process.terminate()
        assert process.communicate(timeout=60)[1].endswith("mudkit: stopped\n")
    assert process.returncode == 130
    assert wait_for_exit(int((tmp_path / "pid").read_text()))
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.soak(keep=1, group="processes")
def test_solution_finds_files_beside_the_chapters(hand_in, tmp_path):
    text = "import os\nname = open('../data/sample/picu.yaml').read() and 'after'\n"
    text += (
        "def take(seen, message):\n    assert os.path.exists('ann.py')\n    return message[name] == seen\n"
    )
    (row,) = grade(hand_in(ann=text)).itertuples()
    assert row.verdict == "passed", row.problem
    (row,) = grade(hand_in(bob=text.replace("picu", "nothing"))).itertuples()
    assert "nothing.yaml" in row.problem


@pytest.mark.soak(keep=1, group="processes")
def test_piece_that_does_not_end_is_stopped(hand_in):
    file = hand_in(ann="def take(seen, message):\n    while True:\n        pass\n")
    (row,) = grade(file, within_s=1.0).itertuples()
    assert (row.verdict, row.points, row.problem) == ("not yet", 0, "it did not end within 1 s")
    assert row.scenario == "ann sends one message to bob; nothing goes wrong."


@pytest.mark.soak(keep=1, group="processes")
def test_code_that_does_not_end_loading_gets_no_points(hand_in):
    file = hand_in(ann="x = 0\nwhile True:\n    x += 1\ndef take(seen, message):\n    return x\n")
    (row,) = grade(file, within_s=1.0).itertuples()
    assert (row.verdict, row.points, row.problem) == ("not yet", 0, "loading it did not end within 1 s")


def test_solution_cannot_write_a_verdict(of_class):
    rows = {name: of_class[1][name, "double"] for name in FORGERIES}
    assert not [name for name, row in rows.items() if row.verdict == "passed"], rows
    assert rows["patches"].points == rows["answers"].points == 0
    assert "wrote to the pipe" in rows["writes"].problem, "at once, not when its time is over"


def test_file_gets_the_verdict_that_its_notebook_gives(of_class):
    row = of_class[1]["jan", "double"]
    assert row.verdict == "passed", row.problem


def test_name_that_is_no_function_is_reported(of_class):
    row = of_class[1]["ian", "double"]
    assert (row.verdict, row.problem) == (
        "not there",
        "the file binds double to 12, not to a function: write it as def",
    )


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda files: grade(files, exercises=["99"]), "no such exercise"),
        (lambda files: grade(files, exercises=["4_last_hop"]), "did you mean '04_last_hop'"),
        (lambda files: grade(files, within_s=0.0), "time limit is not positive"),
        (lambda files: grade(files, judges=Path(__file__).with_name("test_pieces.py")), "has no exercises"),
        (lambda files: grade([]), "nothing to judge"),
        (lambda files: judge("4_last_hop", lambda: None), "did you mean '04_last_hop'"),
        (lambda files: judge("00_start", lambda seen, message: True), "00_start_here"),
        (lambda files: judge("00_start_here", 3), r"take\(seen, message\)"),
    ],
)
def test_invalid_calls_are_refused(hand_in, call, problem):
    files = hand_in(ann=RIGHT)
    with pytest.raises(ParameterError, match=problem):
        call(files)


def test_each_exercise_has_a_unique_piece():
    pieces = [exercise.piece() for exercise in EXERCISES.values()]
    assert len(set(pieces)) == len(pieces)
    assert all(piece.isidentifier() for piece in pieces)


@pytest.mark.soak(keep=1, group="processes")
def test_folders_of_students_give_the_names(tmp_path):
    for name in ("ann", "bob.b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "work.py").write_text("def take(seen, message): return None\n")
    (tmp_path / "cyd.py").write_text("1 +\n")
    table = grade([tmp_path])
    assert table["name"].tolist() == ["ann", "bob.b", "cyd"]
    assert table["verdict"].tolist() == ["not yet", "not yet", "not judged"]
    assert table["points"].isna().tolist() == [False, False, True]
    assert table["points"].sum() == 0
