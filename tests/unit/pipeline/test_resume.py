"""Resumable output folders: finished parts, cleanup, and locking."""

import json
import os
import subprocess
import sys
import threading

import pytest

from mudkit.errors import OutputExists, OutputProblem, TraceContentError
from mudkit.pipeline import resume
from mudkit.pipeline.resume import remove_stopped, resumable

WRITER = """
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


def list_names(folder):
    return sorted(path.name for path in folder.iterdir())


def kill_writer(out, where):
    command = [sys.executable, "-c", WRITER, str(out), where]
    return subprocess.run(command, check=False).returncode == -9


def write(stage, name):
    file = stage.out / name
    file.write_text(name)
    stage.finish(name, {"rows": 1}, [file])


def test_output_appears_only_when_complete(tmp_path):
    out = tmp_path / "deep" / "out"
    with resumable(out, {"job": 1}) as stage:
        write(stage, "a")
        (stage.out / ".hidden").touch()
        (stage.work / "scratch").touch()
        assert not out.exists()
    assert list_names(out) == ["a"]
    assert list_names(out.parent) == ["out"]
    with pytest.raises(OutputExists), resumable(out, {"job": 1}):
        pytest.fail("the body must not run")
    assert list_names(out.parent) == ["out"]


def test_finished_parts_are_reused_by_the_same_job_only(tmp_path):
    with pytest.raises(KeyboardInterrupt), resumable(tmp_path / "out", {"job": 1}) as stage:
        write(stage, "a")
        raise KeyboardInterrupt
    assert list_names(tmp_path) == [stage.folder.name]
    assert json.loads((stage.folder / "identity.json").read_text())["job"] == 1
    with pytest.raises(RuntimeError), resumable(tmp_path / "out", {"job": 1}) as again:
        assert again.finished() == {"a": {"rows": 1}}
        raise RuntimeError("Spark is gone")
    with resumable(tmp_path / "out", {"job": 2}) as other:
        assert other.finished() == {}
        assert list_names(tmp_path)[-1] == other.folder.name
        assert not stage.folder.exists()
    assert list_names(tmp_path) == ["out"]
    assert list_names(tmp_path / "out") == []


@pytest.mark.parametrize("error", [TraceContentError("bad"), KeyboardInterrupt()])
def test_nothing_is_kept_after_bad_input_or_without_finished_parts(tmp_path, error):
    with pytest.raises(type(error)), resumable(tmp_path / "out", {}) as stage:
        (stage.out / "half").touch()
        if isinstance(error, TraceContentError):
            write(stage, "a")
        raise error
    assert list_names(tmp_path) == []


def test_parts_with_changed_files_are_not_finished(tmp_path):
    with pytest.raises(KeyboardInterrupt), resumable(tmp_path / "out", {}) as stage:
        for name in ("a", "b", "c"):
            write(stage, name)
        (stage.out / "a").write_text("longer")
        (stage.out / "b").unlink()
        assert list(stage.finished()) == ["c"]
        stage.clear(lambda file: file.name not in stage.finished())
        assert list_names(stage.out) == ["c"]
        raise KeyboardInterrupt


@pytest.mark.soak(keep=2)
@pytest.mark.parametrize("where", ["body", "_link", "_files"])
@pytest.mark.parametrize("before", [False, True])
def test_kill_leaves_parts_but_no_partial_output(tmp_path, where, before):
    out = tmp_path / "out"
    if before:
        out.mkdir()
        (out / "old").touch()
    assert kill_writer(out, where)
    assert (list_names(out) == ["old"]) if before else not out.exists()
    with resumable(out, {"job": 1}, overwrite="a|b|old") as stage:
        assert list(stage.finished()) == ([] if not stage.folder.exists() else ["a", "b"])
        stage.clear(lambda file: file.name not in stage.finished())
    assert list_names(out) == ["a", "b"]
    assert list_names(tmp_path) == ["out"]


def test_leftovers_of_a_late_kill_are_swept_by_the_next_run(tmp_path, monkeypatch):
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(resume.shutil, "rmtree", lambda *_, **__: None)  # as if killed before the removal
        with resumable(out, {"job": 1}) as stage:
            write(stage, "a")
    assert len(list_names(tmp_path)) == 2
    with pytest.raises(OutputExists), resumable(out, {"job": 1}):
        pass
    assert list_names(tmp_path) == ["out"]
    stage.folder.mkdir()
    remove_stopped(out)
    assert list_names(tmp_path) == ["out"]


def test_folders_with_similar_names_are_not_swept(tmp_path):
    (tmp_path / ".out.resume-x").mkdir()
    (tmp_path / ".out.resume-more.resume-0123456789abcdef").mkdir()
    with resumable(tmp_path / "out", {}) as stage:
        write(stage, "a")
    assert len(list_names(tmp_path)) == 3


@pytest.mark.process
def test_concurrent_process_is_refused_at_the_same_folder(tmp_path):
    out = tmp_path / "out"
    with resumable(out, {"job": 1}) as stage:
        write(stage, "a")
        for identity in ({"job": 1}, {"job": 2}):
            with pytest.raises(OutputProblem, match="Another process"), resumable(out, identity):
                pytest.fail("the body must not run")
        remove_stopped(out)
        assert stage.folder.exists()
        process = subprocess.run(
            [sys.executable, "-c", WRITER, str(out), "body"], capture_output=True, check=False
        )
        assert process.returncode == 1
        assert b"Another process" in process.stderr
        with resumable(tmp_path / "beside", {"job": 1}):
            pass
    assert list_names(out) == ["a"]
    assert list_names(tmp_path) == ["beside", "out"]


def test_concurrent_threads_take_the_lock_in_turn(tmp_path):
    file, holders, counts, successes = tmp_path / "lock", [], [], []

    def take_locks():
        for _ in range(200):
            handle = resume._take(file)
            if handle is not None:
                holders.append(1)
                counts.append(len(holders))
                successes.append(1)
                holders.pop()
                file.unlink()
                os.close(handle)

    threads = [threading.Thread(target=take_locks) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(counts) == {1}
    assert len(successes) > 100


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_read_only_folder_is_refused(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(OutputProblem, match="read-only"), resumable(tmp_path / "out", {}):
        pass


def test_output_is_written_without_hard_links(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError("no links here")

    monkeypatch.setattr(resume.os, "link", refuse)
    with resumable(tmp_path / "out", {}) as stage:
        write(stage, "a")
    assert (tmp_path / "out" / "a").read_text() == "a"
