"""Folders that are filled in parts: what is kept, what is swept, who is refused."""

import json
import os
import subprocess
import sys
import threading

import pytest

from mudkit.errors import OutputExists, OutputProblem, TraceContentError
from mudkit.pipeline import resume
from mudkit.pipeline.resume import resumable, sweep

LIFE = """
import os, sys
from pathlib import Path
from mudkit.pipeline import resume
def die(*_):
    os.kill(os.getpid(), 9)
if sys.argv[2] != "body":
    setattr(resume, sys.argv[2], die)
with resume.resumable(sys.argv[1], {"job": 1}, overwrite="a|b|old") as stage:
    for name in ("a", "b"):
        file = stage.out / name
        file.write_text(name)
        stage.finish(name, 1, [file])
    (stage.out / "c").write_text("half")
    if sys.argv[2] == "body":
        die()
    (stage.out / "c").unlink()
"""


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def killed(out, where):
    command = [sys.executable, "-c", LIFE, str(out), where]
    return subprocess.run(command, check=False).returncode == -9


def write(stage, name):
    file = stage.out / name
    file.write_text(name)
    stage.finish(name, {"rows": 1}, [file])


def test_whole_or_nothing(tmp_path):
    out = tmp_path / "deep" / "out"
    with resumable(out, {"job": 1}) as stage:
        write(stage, "a")
        (stage.out / ".hidden").touch()
        (stage.work / "scratch").touch()
        assert not out.exists()
    assert names(out) == ["a"]
    assert names(out.parent) == ["out"]
    with pytest.raises(OutputExists), resumable(out, {"job": 1}):
        pytest.fail("the body must not run")
    assert names(out.parent) == ["out"]


def test_parts_are_found_by_the_same_job_only(tmp_path):
    with pytest.raises(KeyboardInterrupt), resumable(tmp_path / "out", {"job": 1}) as stage:
        write(stage, "a")
        raise KeyboardInterrupt
    assert names(tmp_path) == [stage.folder.name]
    assert json.loads((stage.folder / "identity.json").read_text())["job"] == 1
    with pytest.raises(RuntimeError), resumable(tmp_path / "out", {"job": 1}) as again:
        assert again.finished() == {"a": {"rows": 1}}
        raise RuntimeError("Spark is gone")
    with resumable(tmp_path / "out", {"job": 2}) as other:
        assert other.finished() == {}
        assert names(tmp_path)[-1] == other.folder.name
        assert not stage.folder.exists()
    assert names(tmp_path) == ["out"]
    assert names(tmp_path / "out") == []


@pytest.mark.parametrize("error", [TraceContentError("bad"), KeyboardInterrupt()])
def test_nothing_is_kept_of_bad_input_or_before_a_part_is_whole(tmp_path, error):
    with pytest.raises(type(error)), resumable(tmp_path / "out", {}) as stage:
        (stage.out / "half").touch()
        if isinstance(error, TraceContentError):
            write(stage, "a")
        raise error
    assert names(tmp_path) == []


def test_a_part_whose_file_has_changed_is_not_whole(tmp_path):
    with pytest.raises(KeyboardInterrupt), resumable(tmp_path / "out", {}) as stage:
        for name in ("a", "b", "c"):
            write(stage, name)
        (stage.out / "a").write_text("longer")
        (stage.out / "b").unlink()
        assert list(stage.finished()) == ["c"]
        stage.clear(lambda file: file.name not in stage.finished())
        assert names(stage.out) == ["c"]
        raise KeyboardInterrupt


@pytest.mark.soak(keep=2)
@pytest.mark.parametrize("where", ["body", "_link", "_files"])
@pytest.mark.parametrize("before", [False, True])
def test_a_kill_leaves_the_parts_and_never_half_an_output(tmp_path, where, before):
    out = tmp_path / "out"
    if before:
        out.mkdir()
        (out / "old").touch()
    assert killed(out, where)
    assert (names(out) == ["old"]) if before else not out.exists()
    with resumable(out, {"job": 1}, overwrite="a|b|old") as stage:
        assert list(stage.finished()) == ([] if not stage.folder.exists() else ["a", "b"])
        stage.clear(lambda file: file.name not in stage.finished())
    assert names(out) == ["a", "b"]
    assert names(tmp_path) == ["out"]


def test_a_kill_after_the_last_step_leaves_what_the_next_one_sweeps(tmp_path, monkeypatch):
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(resume.shutil, "rmtree", lambda *_, **__: None)  # as if killed before it
        with resumable(out, {"job": 1}) as stage:
            write(stage, "a")
    assert len(names(tmp_path)) == 2
    with pytest.raises(OutputExists), resumable(out, {"job": 1}):
        pass
    assert names(tmp_path) == ["out"]
    stage.folder.mkdir()
    sweep(out)
    assert names(tmp_path) == ["out"]


def test_names_that_begin_alike_are_left_alone(tmp_path):
    (tmp_path / ".out.resume-x").mkdir()
    (tmp_path / ".out.resume-more.resume-0123456789abcdef").mkdir()
    with resumable(tmp_path / "out", {}) as stage:
        write(stage, "a")
    assert len(names(tmp_path)) == 3


@pytest.mark.process
def test_two_at_the_same_place(tmp_path):
    out = tmp_path / "out"
    with resumable(out, {"job": 1}) as stage:
        write(stage, "a")
        for identity in ({"job": 1}, {"job": 2}):
            with pytest.raises(OutputProblem, match="Another process"), resumable(out, identity):
                pytest.fail("the body must not run")
        sweep(out)
        assert stage.folder.exists()
        done = subprocess.run(
            [sys.executable, "-c", LIFE, str(out), "body"], capture_output=True, check=False
        )
        assert done.returncode == 1
        assert b"Another process" in done.stderr
        with resumable(tmp_path / "beside", {"job": 1}):
            pass
    assert names(out) == ["a"]
    assert names(tmp_path) == ["beside", "out"]


def test_many_want_the_lock(tmp_path):
    file, inside, most, taken = tmp_path / "lock", [], [], []

    def work():
        for _ in range(200):
            handle = resume._take(file)
            if handle is not None:
                inside.append(1)
                most.append(len(inside))
                taken.append(1)
                inside.pop()
                file.unlink()
                os.close(handle)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(most) == {1}
    assert len(taken) > 100


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_place_that_is_read_only(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(OutputProblem, match="read-only"), resumable(tmp_path / "out", {}):
        pass


def test_without_hard_links(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError("no links here")

    monkeypatch.setattr(resume.os, "link", refuse)
    with resumable(tmp_path / "out", {}) as stage:
        write(stage, "a")
    assert (tmp_path / "out" / "a").read_text() == "a"
