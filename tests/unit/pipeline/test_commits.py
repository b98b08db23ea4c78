"""Commits of outputs: the manifest is the output, parts are reused, and jobs at one place do not mix."""

import json
import subprocess
import sys
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mudkit import trace
from mudkit.errors import InputMissing, OutputExists, OutputProblem, TraceContentError
from mudkit.files import place, staged_file
from mudkit.pipeline import commits
from mudkit.pipeline._ingest import TRACE, _manifest
from mudkit.pipeline.commits import RESULT, File, Part, commit, sweep_finished

WRITER = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from mudkit.files import place, staged_file
from mudkit.pipeline import commits
from test_commits import write_part, fill
def die(*_, **__):
    os.kill(os.getpid(), 9)
def body(job):
    manifest = fill(job, "ab")
    if sys.argv[2] == "body":
        die()
    return manifest
if sys.argv[2] != "body":
    setattr(commits, sys.argv[2], die)
commits.commit(Path(sys.argv[1]), {"job": 1}, commits.RESULT, body, overwrite=True)
"""


def list_names(folder):
    return sorted(path.name for path in folder.iterdir())


def kill_writer(out, where):
    command = [
        sys.executable,
        "-c",
        WRITER,
        str(out),
        where,
        str(__import__("pathlib").Path(__file__).parent),
    ]
    return subprocess.run(command, check=False).returncode == -9


def write_part(job, name, rows=1):
    """Write a part, a file with one row by default, into the job's folder."""
    part = Part(rows, (put(job, job.new_name(job.work, name), [name] * rows),))
    job.finish(name, part)
    return part


def put(job, file, values):
    place = job.path / file
    place.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"part": values}), place)
    return File(file, len(values), place.stat().st_size)


def publish(job, parts):
    """Copy the files of parts to the output; return the manifest."""
    files = []
    for file in (file for part in parts for file in part.files):
        copy = job.new_name("", "x")
        (job.path / copy).write_bytes((job.path / file.name).read_bytes())
        files.append(vars(file) | {"name": copy})
    return {"rows": sum(file["rows"] for file in files), "files": files}


def fill(job, names):
    """Write the parts that are not finished, and publish all."""
    finished = job.finished()
    return publish(job, [finished.get(name) or write_part(job, name) for name in names])


def rows_of(out):
    """Return the rows that the manifest names."""
    manifest = json.loads((out / "_manifest.json").read_text())
    return [
        row["part"]
        for file in manifest["files"]
        for row in pq.read_table(out / file["name"], partitioning=None).to_pylist()
    ]


def interrupt(job, names="a", error=KeyboardInterrupt):
    for name in names:
        write_part(job, name)
    raise error


def run(out, body, identity=None, **options):
    return commit(out, identity or {"job": 1}, RESULT, body, **options)


def test_output_has_a_manifest_that_names_each_file(tmp_path):
    """scale.md: a manifest is written last, readers trust manifests only."""
    out = tmp_path / "deep" / "out"

    def body(job):
        manifest = fill(job, "ab")
        assert list_names(out)[0] == job.folder.name
        assert not (out / "_manifest.json").exists()
        return manifest

    done = run(out, body)
    named = [file["name"] for file in done.manifest["files"]]
    assert list_names(out) == sorted(["_manifest.json", *named])
    assert [(out / name).stat().st_size for name in named] == [f["bytes"] for f in done.manifest["files"]]
    assert rows_of(out) == ["a", "b"]
    assert (done.manifest["rows"], done.reused) == (2, 0)
    with pytest.raises(OutputExists):
        run(out, lambda job: pytest.fail("the body must not run"))
    assert list_names(out.parent) == ["out"]


def test_finished_parts_are_reused_by_the_same_job_only(tmp_path):
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        run(out, interrupt)
    (stopped,) = out.iterdir()
    assert json.loads((stopped / "identity.json").read_text())["job"] == 1

    def fail(job):
        assert list(job.finished()) == ["a"]
        raise RuntimeError("Spark is gone")

    with pytest.raises(RuntimeError):
        run(out, fail)
    assert run(out, lambda job: fill(job, "ab")).reused == 1
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "second", interrupt)

    def other(job):
        assert job.finished() == {}
        assert list_names(job.path) == [job.folder.name]
        return fill(job, "c")

    run(tmp_path / "second", other, {"job": 2})
    assert rows_of(tmp_path / "second") == ["c"]


@pytest.mark.parametrize("error", [TraceContentError("bad"), KeyboardInterrupt(), OSError(28, "full")])
@pytest.mark.parametrize("is_old", [False, True])
def test_nothing_is_left_by_bad_input_or_without_finished_parts(tmp_path, error, is_old):
    out = tmp_path / "deep" / "out"
    if is_old:
        run(out, lambda job: fill(job, "o"))

    def body(job):
        (job.path / f"part-x-{job.token}-0.parquet").touch()
        if isinstance(error, TraceContentError):
            write_part(job, "a")
        raise error

    with pytest.raises(OutputProblem if isinstance(error, OSError) else type(error)):
        run(out, body, {"job": 2}, overwrite=True)
    assert list_names(tmp_path) == (["deep"] if is_old else [])
    if is_old:
        assert rows_of(out) == ["o"]
        assert len(list_names(out)) == 2


def test_parts_with_changed_files_are_not_finished(tmp_path):
    def body(job):
        places = {name: job.path / write_part(job, name).files[0].name for name in "abc"}
        places["a"].write_text("other")
        places["b"].unlink()
        assert list(job.finished()) == ["c"]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "out", body)


@pytest.mark.soak(keep=2)
@pytest.mark.process
@pytest.mark.parametrize("where", ["body", "_put", "_clean"])
@pytest.mark.parametrize("before", [False, True])
def test_kill_leaves_parts_and_the_old_output_until_the_manifest(tmp_path, where, before):
    """Readers never see half an output; the next run completes it."""
    out = tmp_path / "out"
    if before:
        run(out, lambda job: fill(job, "o"), {"job": 0})
    assert kill_writer(out, where)
    if where == "_clean":
        assert rows_of(out) == ["a", "b"]
        with pytest.raises(OutputExists):
            run(out, lambda job: fill(job, "ab"))
    else:
        assert (rows_of(out) == ["o"]) if before else not (out / "_manifest.json").exists()
        done = run(out, lambda job: fill(job, "ab"), overwrite=before)
        assert done.reused == 2
    assert rows_of(out) == ["a", "b"]
    if where != "_clean" or not before:
        assert len(list_names(out)) == 3
    assert not list(out.glob("_job-*"))


def test_folder_of_a_job_that_was_stopped_in_its_last_step_is_removed(tmp_path, monkeypatch):
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(commits, "_clean", lambda *_: None)
        run(out, lambda job: fill(job, "a"))
    assert len(list(out.glob("_job-*"))) == 1
    sweep_finished(out, RESULT)
    assert not list(out.glob("_job-*"))


def test_other_names_in_the_folder_are_never_removed(tmp_path):
    out = tmp_path / "out"
    for name in ("notes.txt", "_job-x", "_job-0123456789abcdef-more"):
        out.mkdir(exist_ok=True)
        (out / name).touch()
        for overwrite in (False, True):
            with pytest.raises(OutputExists, match=r"something|already"):
                run(out, lambda job: fill(job, "a"), overwrite=overwrite)
        assert list_names(out) == [name]
        (out / name).unlink()


def test_result_of_version_0_2_stays_whole_until_it_is_replaced(tmp_path):
    """A folder of version 0.2 has no manifest; it gets one, so that new files are not taken for its own."""
    out = tmp_path / "out"
    out.mkdir()
    pq.write_table(pa.table({"part": ["o", "o"]}), out / "part-00000.parquet")
    with pytest.raises(OutputExists):
        run(out, lambda job: fill(job, "a"))
    with pytest.raises(KeyboardInterrupt):
        run(out, interrupt, overwrite=True)
    assert rows_of(out) == ["o", "o"]
    run(out, lambda job: fill(job, "a"), overwrite=True)
    assert rows_of(out) == ["a"]
    assert len(list_names(out)) == 2


def test_trace_of_version_0_2_names_its_files_before_it_is_replaced(tmp_path):
    """Version 0.2 had no names in trace.json: its readers take all files in a table's folder."""
    loaded = trace.generate(cars=2, days=1, seed=1)
    loaded.save(tmp_path / "out")
    manifest = json.loads((tmp_path / "out" / "trace.json").read_text())
    del manifest["files"]
    (tmp_path / "out" / "trace.json").write_text(json.dumps(manifest))

    def body(job):
        (job.path / "positions" / f"part-new-{job.token}-0.parquet").write_bytes(b"half a file")
        assert trace.load(tmp_path / "out").positions.equals(loaded.positions)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        commit(tmp_path / "out", {}, TRACE, body, overwrite=True)
    assert trace.load(tmp_path / "out").positions.equals(loaded.positions)
    assert not list((tmp_path / "out").rglob("*new*"))


def test_folder_listing_that_is_behind_hides_no_file(tmp_path, monkeypatch):
    """A shared file system (NFS) may list a folder as it was some seconds ago."""

    def body(job):
        part = write_part(job, "a")
        listing = commits.files_below(tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr(commits, "files_below", lambda _: {})
            job.check_seen(part.files)
        assert listing
        return publish(job, [part])

    assert run(tmp_path / "out", body).manifest["rows"] == 1


def test_files_that_a_replaced_job_wrote_late_are_removed(tmp_path):
    out = tmp_path / "out"

    def earlier(job):
        write_part(job, "a")
        run(out, later, {"job": 2})
        raise SystemExit  # as if killed: it cannot clean up

    def later(job):
        late = out / "_job-0123456789abcdef" / "work" / "part-late.parquet"
        late.parent.mkdir(parents=True)
        late.touch()
        return fill(job, "z")

    with pytest.raises(SystemExit):
        run(out, earlier)
    assert rows_of(out) == ["z"]
    assert len(list_names(out)) == 2


def test_two_runs_of_the_same_job_both_succeed(tmp_path):
    """Same identity: both succeed, or one finds the output complete and reports it."""
    out, inner = tmp_path / "out", []

    def body(job):
        write_part(job, "a")
        inner.append(run(out, lambda again: fill(again, "ab")))
        return fill(job, "ab")  # the other has removed the job's folder

    outer = run(out, body)
    assert outer.manifest == inner[0].manifest
    assert inner[0].reused == 1
    assert rows_of(out) == ["a", "b"]
    assert len(list_names(out)) == 3


def test_run_that_lost_its_files_to_the_same_job_reports_the_output(tmp_path):
    out, inner = tmp_path / "out", []

    def body(job):
        part = write_part(job, "a")
        inner.append(run(out, lambda again: fill(again, "ab")))
        return publish(job, [part])  # its file is gone: an error that Spark would raise in a task

    assert run(out, body).manifest == inner[0].manifest
    assert rows_of(out) == ["a", "b"]
    assert len(list_names(out)) == 3


@pytest.mark.parametrize("is_first_done", [False, True])
def test_job_that_starts_later_wins(tmp_path, is_first_done):
    """Another identity: the later start wins, the earlier one ends with an OutputProblem."""
    out = tmp_path / "out"

    def later(job):
        return fill(job, "z")

    def earlier(job):
        manifest = fill(job, "ab")
        if is_first_done:
            run(out, later, {"job": 2})
            return manifest
        with pytest.raises(KeyboardInterrupt):
            run(out, lambda other: interrupt(other, "z"), {"job": 2})
        return manifest

    with pytest.raises(OutputProblem, match="Another job began"):
        run(out, earlier)
    if not is_first_done:
        assert run(out, later, {"job": 2}).reused == 1
    assert rows_of(out) == ["z"]
    assert len(list_names(out)) == 2


def test_files_that_this_machine_does_not_see_are_no_success(tmp_path):
    """The driver checks that it sees each file with its bytes."""

    def body(job):
        part = write_part(job, "a")
        job.check_seen(part.files)
        job.check_seen([*part.files, File("part-elsewhere.parquet", 10, 100)])

    with pytest.raises(OutputProblem, match="wrote 2 files, of which this machine does not see 1") as caught:
        run(tmp_path / "out", body)
    assert "not shared" in str(caught.value)
    assert "shared file system" in caught.value.remedy
    assert list_names(tmp_path) == []


def test_manifest_is_not_written_if_a_file_is_missing(tmp_path):
    def body(job):
        manifest = fill(job, "ab")
        (job.path / manifest["files"][1]["name"]).unlink()
        return manifest

    with pytest.raises(OutputProblem, match="does not see 1"):
        run(tmp_path / "out", body)
    assert list_names(tmp_path) == []


def test_read_only_folder_is_refused(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(commits, "_begin", refuse)
    with pytest.raises(OutputProblem, match="read-only"):
        run(tmp_path / "out", lambda job: pytest.fail("the body must not run"))


@pytest.mark.parametrize("kind", ["memory", "webhdfs", "s3"])
def test_store_that_is_no_posix_folder_takes_an_output(kind, webhdfs, request):
    """No rename, lock or hard link; a stopped job is completed, and a replaced output removed."""
    root = {"memory": "memory:/", "webhdfs": webhdfs.address}.get(kind) or request.getfixturevalue(
        "s3_bucket"
    )
    out = place(f"{root}/commits/out")

    def put_part(job, name):
        file = job.new_name(job.work, name)
        with staged_file(job.path / file) as staging:
            pq.write_table(pa.table({"part": [name]}), staging)
            part = Part(1, (File(file, 1, staging.stat().st_size),))
        job.finish(name, part)
        return part

    def body(job, names):
        files = []
        for name in names:
            part = job.finished().get(name) or put_part(job, name)
            copy = job.new_name("", name)
            with staged_file(job.path / copy) as staging:
                staging.write_bytes((job.path / part.files[0].name).read_bytes())
            files.append(vars(part.files[0]) | {"name": copy})
        return {"rows": len(files), "files": files}

    def stop(job):
        put_part(job, "a")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(out, stop)
    assert run(out, lambda job: body(job, "ab")).reused == 1
    with pytest.raises(OutputExists):
        run(out, lambda job: body(job, "ab"))
    done = run(out, lambda job: body(job, "c"), {"job": 2}, overwrite=True)
    assert set(commits.files_below(out)) == {"_manifest.json", *(f["name"] for f in done.manifest["files"])}
    assert done.manifest["rows"] == 1

    def bad(job):
        put_part(job, "d")
        raise TraceContentError("bad")

    with pytest.raises(TraceContentError):
        run(out, bad, {"job": 3}, overwrite=True)
    assert len(commits.files_below(out)) == 2
    assert not {"RENAME", "APPEND"} & {*webhdfs.operations}


def test_store_without_rights_is_named(webhdfs):
    webhdfs.forbidden.add("/closed")
    with pytest.raises(OutputProblem) as caught:
        run(place(f"{webhdfs.address}/closed/out"), lambda job: pytest.fail("the body must not run"))
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("reason", "summary"),
    [
        (PermissionError("closed"), "no right to write"),
        (TimeoutError("silent"), "does not answer"),
        (OSError("broken"), "could not be written"),
    ],
)
def test_output_that_cannot_be_looked_at_is_refused_for_the_reason_of_its_store(reason, summary):
    """An ingest asks for the manifest first: a store that fails to read it is not called one without a folder."""

    def read(at):
        raise InputMissing("The manifest cannot be read.") from reason

    with pytest.raises(OutputProblem, match=summary) as caught:
        _manifest(place("memory://bucket/out"), SimpleNamespace(read=read))
    assert str(reason) in caught.value.found
