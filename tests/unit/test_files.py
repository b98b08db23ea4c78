import errno
import os
import pickle
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from mudkit.errors import EnvironmentProblem, InputMissing, OutputExists, OutputProblem, ParameterError
from mudkit.files import (
    existing,
    existing_path,
    free_name,
    output_problem,
    place,
    refuse_existing,
    sha256,
    sizes_below,
    staged_file,
    staged_folder,
    sweep_killed,
)


@pytest.fixture
def memory(tmp_path):
    """Return the address of a folder of its own in fsspec's memory."""
    return place(f"memory://{tmp_path.name}")


def test_folder_exists_after_the_body_succeeds(tmp_path):
    with staged_folder(tmp_path / "a" / "out") as folder:
        (folder / "file").write_text("x")
        assert not (tmp_path / "a" / "out").exists()
    assert (tmp_path / "a" / "out" / "file").read_text() == "x"
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["out"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_failing_body_leaves_no_files(tmp_path, error):
    with pytest.raises(error), staged_folder(tmp_path / "out") as folder:
        (folder / "file").write_text("x")
        raise error
    assert list(tmp_path.iterdir()) == []


def test_overwriting_keeps_the_old_folder_until_completion(tmp_path):
    out = tmp_path / "out"
    with staged_folder(out) as folder:
        (folder / "old").touch()
    with pytest.raises(ValueError, match="half"), staged_folder(out, overwrite="old"):
        raise ValueError("half")
    assert (out / "old").exists()
    with staged_folder(out, overwrite="old") as folder:
        (folder / "new").touch()
    assert [p.name for p in out.iterdir()] == ["new"]
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_place_that_holds_something_is_refused_before_the_work(tmp_path):
    """The error names files that mudkit did not make; an output of the same kind may be replaced."""
    out = tmp_path / "out"
    refuse_existing(out, "old")
    out.mkdir()
    (out / "old").touch()
    refuse_existing(out, "old")
    with pytest.raises(OutputExists) as caught:
        refuse_existing(out, None)
    assert caught.value.found == "a folder"
    (out / "mine").touch()
    with pytest.raises(OutputExists) as caught:
        refuse_existing(out, "old")
    assert caught.value.found == "what mudkit did not make: mine"
    with pytest.raises(OutputExists) as caught:
        refuse_existing(out / "old", "old")
    assert caught.value.found == "a file"


@pytest.mark.process
def test_partial_folder_of_a_killed_process_is_removed(tmp_path):
    code = (
        "import os, sys; from mudkit.files import staged_folder\n"
        "with staged_folder(sys.argv[1]) as f: (f / 'x').touch(); os.kill(os.getpid(), 9)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "out")]
    assert subprocess.run(command, check=False).returncode == -9
    (leftover,) = tmp_path.iterdir()
    assert leftover.name.startswith(".out.partial-")
    with staged_folder(tmp_path / "out"), staged_folder(tmp_path / "other"):
        assert not leftover.exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["other", "out"]


def test_concurrent_folders_get_separate_names(tmp_path):
    with staged_folder(free_name(tmp_path / "report[1]")) as one:
        (one / "page").touch()
        with staged_folder(free_name(tmp_path / "report[1]")):
            pass
    assert sorted(p.name for p in tmp_path.iterdir()) == ["report[1]", "report[1]-2"]
    assert (tmp_path / "report[1]" / "page").exists()
    assert free_name(tmp_path / "report[1]").name == "report[1]-3"


@pytest.mark.process
def test_sweep_removes_partial_folders_of_matching_names(tmp_path):
    code = (
        "import os; from pathlib import Path; from mudkit.files import staged_folder\n"
        "with staged_folder(Path('report-1')): os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    (leftover,) = tmp_path.iterdir()
    with staged_folder(tmp_path / "report-2"):
        sweep_killed(tmp_path, "other-*")
        assert leftover.exists()
        sweep_killed(tmp_path, "report-*")
        assert not leftover.exists()
    assert (tmp_path / "report-2").exists()


@pytest.mark.process
def test_work_folders_are_removed_with_their_process(tmp_path):
    code = "import os, sys; from mudkit.files import work_folder; print(work_folder()); sys.stdout.flush(); "
    environment = os.environ | {"TMPDIR": str(tmp_path)}

    def run(end):
        command = [sys.executable, "-c", code + end]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stdout

    killed = Path(run("os.kill(os.getpid(), 9)").strip())
    assert list(tmp_path.iterdir()) == [killed]
    run("pass")  # removes its own folder and that of the killed process
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("code", "pattern"),
    [(errno.ENOSPC, "disk is full"), (errno.EROFS, "read-only"), (errno.EACCES, "read-only")],
)
def test_system_errors_have_a_remedy(tmp_path, code, pattern):
    with pytest.raises(OutputProblem, match=pattern) as caught, staged_folder(tmp_path / "out"):
        raise OSError(code, "system text")
    assert caught.value.remedy
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("IOError: Permission denied [errno 13] on part-0", "the place is read-only"),
        ("Write failed: No space left on device", "disk is full"),
        ("codec 'zstd' is not there", "could not be written"),
    ],
)
def test_error_of_a_library_is_told_by_its_text(tmp_path, text, pattern):
    """Arrow and Spark raise errors of their own, without a number."""
    problem = output_problem(tmp_path / "out", RuntimeError(text))
    assert pattern in str(problem)
    assert ("codec" in text) == (problem.found == text)


def test_staged_file_is_discarded_on_failure(tmp_path):
    with pytest.raises(ValueError, match="half"), staged_file(tmp_path / "f") as file:
        file.write_text("half")
        raise ValueError("half")
    assert list(tmp_path.iterdir()) == []
    with staged_file(tmp_path / "f") as file:
        file.write_text("whole")
    assert (tmp_path / "f").read_text() == "whole"


def test_checksum_of_a_folder_depends_on_names_and_contents(tmp_path):
    (tmp_path / "a").write_text("1")
    one = sha256(tmp_path)
    (tmp_path / "a").rename(tmp_path / "b")
    two = sha256(tmp_path)
    (tmp_path / "b").write_text("2")
    assert len({one, two, sha256(tmp_path)}) == 3


@pytest.mark.process
def test_folder_being_replaced_by_a_killed_process_is_restored(tmp_path):
    code = (
        "import os, sys; from pathlib import Path; from mudkit.files import staged_folder\n"
        "rename, renames = Path.rename, []\n"
        "def dying(self, target):\n"
        "    renames.append(target)\n"
        "    if len(renames) == 2: os.kill(os.getpid(), 9)\n"
        "    return rename(self, target)\n"
        "Path.rename = dying\n"
        "with staged_folder(sys.argv[1], overwrite='.*') as folder: (folder / 'new').touch()"
    )
    place = tmp_path / "out"
    place.mkdir()
    (place / "old").touch()
    completed = subprocess.run([sys.executable, "-c", code, str(place)], check=False)
    assert completed.returncode == -9
    assert not place.exists()
    with pytest.raises(OutputExists), staged_folder(place):
        pytest.fail("what was there is back")
    assert [path.name for path in place.iterdir()] == ["old"]
    with staged_folder(place, overwrite=".*") as folder:
        (folder / "newer").touch()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert [path.name for path in place.iterdir()] == ["newer"]


def test_new_parent_folders_are_removed_after_a_failure(tmp_path):
    (tmp_path / "there").mkdir()
    with pytest.raises(KeyboardInterrupt), staged_folder(tmp_path / "there" / "new" / "deep" / "out"):
        raise KeyboardInterrupt
    assert [path.name for path in tmp_path.rglob("*")] == ["there"]
    with staged_folder(tmp_path / "there" / "new" / "out"):
        pass
    assert (tmp_path / "there" / "new" / "out").is_dir()


def stage(place):
    with staged_folder(place):
        pytest.fail("the body must not run")


@pytest.mark.parametrize(
    ("call", "error", "pattern"),
    [
        (lambda folder: stage(folder), OutputExists, "something at"),
        (lambda folder: stage(folder / "cabs.csv.gz" / "out"), OutputProblem, "out|cabs"),
        (lambda folder: existing(folder / "cab.csv.gz", "trace"), InputMissing, r"cabs\.csv\.gz"),
        (lambda _: existing("", "trace"), ParameterError, "The path of the trace is empty"),
    ],
)
def test_invalid_paths_raise_error(tmp_path, call, error, pattern):
    (tmp_path / "cabs.csv.gz").touch()
    with pytest.raises(error, match=pattern):
        call(tmp_path)


@pytest.mark.parametrize(
    ("path", "pattern"),
    [
        (Path("https://example.org/cabs.csv"), "lost a slash"),
        ("s3:/bucket/cabs.parquet", "lost a slash"),
        ("nothing://bucket/cabs.parquet", "address of an unknown scheme"),
        ("file://other/cabs.csv", "address of another machine"),
        ("memory://nothing/cabs.csv", "no trace at the address memory://nothing/cabs.csv"),
        ("nothing/cabs.csv", "no trace at nothing/cabs.csv"),
        ("C:/traces/cabs.csv", "no trace at C:/traces/cabs.csv"),
    ],
)
def test_missing_source_is_refused_as_path_or_as_address(path, pattern):
    """An address is never a folder of this machine, such as ``./s3a:``, whatever is wrong with it."""
    with pytest.raises(InputMissing, match=pattern):
        existing(path, "trace")
    with pytest.raises(InputMissing):
        existing_path(path, "trace")


def test_local_file_is_not_named_by_an_address_of_a_store():
    """Refuse an address where a library reads from the disk, without a look at the network."""
    with pytest.raises(InputMissing, match="not read over the network") as caught:
        existing_path("https://127.0.0.1:1/background.geojson", "background")
    assert "download it" in caught.value.remedy


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("s3://bucket/trace/", "s3://bucket/trace"),
        ("S3://bucket/Trace", "s3://bucket/Trace"),
        ("webhdfs://user@host:9870/trace/", "webhdfs://user@host:9870/trace"),
        ("webhdfs://host/", "webhdfs://host/"),
        ("hdfs://host:8020/a/b", "hdfs://host:8020/a/b"),
        ("hdfs:///a/b", "hdfs:///a/b"),
        ("memory://a/b//", "memory://a/b"),
        ("https://host/a/?day=1", "https://host/a/?day=1"),
    ],
)
def test_place_of_an_address_has_its_whole_text(given, text):
    """Reports and Spark pass an address on as a text."""
    at = place(given)
    assert str(at) == text
    assert str(place(str(at))) == text
    assert place(at) == at
    if at.name and "?" not in text:
        assert str(at / "trace.json") == f"{text}/trace.json"
        assert str((at / "trace.json").parent) == text
        assert pickle.loads(pickle.dumps(at)) == at


def test_library_that_is_missing_is_named(monkeypatch):
    def get_filesystem_class(scheme):
        raise ImportError("Install s3fs to access S3") from ModuleNotFoundError("s3fs", name="s3fs")

    monkeypatch.setattr("fsspec.get_filesystem_class", get_filesystem_class)
    with pytest.raises(EnvironmentProblem, match="s3a://") as caught:
        place("s3a://bucket/cabs.csv")
    assert "pip install s3fs" in caught.value.remedy


def test_address_of_a_file_is_its_path(tmp_path):
    """RFC 8089: the path is percent-encoded; a host is empty or ``localhost``."""
    file = tmp_path / "a b.csv"
    file.touch()
    assert existing(file.as_uri(), "trace") == file
    assert place(f"file://localhost{tmp_path}") == tmp_path
    assert place(f"file:{tmp_path}") == tmp_path


def test_missing_name_at_an_address_names_those_that_are_near(memory):
    (memory / "cabs.csv.gz").write_bytes(b"x")
    with pytest.raises(InputMissing, match=r"cabs\.csv\.gz"):
        existing(f"{memory}/cab.csv.gz", "trace")


def test_host_that_does_not_answer_is_given_up(monkeypatch):
    """A host that accepts a connection and says nothing is waited for as long as ANSWER_TIMEOUT_S."""
    monkeypatch.setattr("mudkit.files.ANSWER_TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"webhdfs://127.0.0.1:{silent.getsockname()[1]}/trace"
        with pytest.raises(InputMissing, match="does not answer"):
            existing(address, "trace")
        with pytest.raises(OutputProblem, match="does not answer"):
            refuse_existing(place(address), None)


def test_file_at_an_address_is_put_in_one_write(memory, monkeypatch):
    """A store need not append or rename: nothing but the whole file is ever there."""
    puts = []
    put_file = MemoryFileSystem.put_file
    monkeypatch.setattr(
        MemoryFileSystem, "put_file", lambda self, *names: puts.append(names[1]) or put_file(self, *names)
    )
    with pytest.raises(ValueError, match="half"), staged_file(memory / "f") as file:
        file.write_text("half")
        raise ValueError("half")
    assert puts == []
    with staged_file(memory / "f") as file:
        file.write_text("whole")
    assert len(puts) == 1
    assert (memory / "f").read_text() == "whole"


def test_output_at_an_address_is_refused_if_there_is_something(memory):
    (memory / "positions" / "a.parquet").write_bytes(b"x")
    refuse_existing(memory, "positions")
    refuse_existing(memory / "other", None)
    with pytest.raises(OutputExists, match="a folder"):
        refuse_existing(memory, None)
    with pytest.raises(OutputExists, match="mudkit did not make: positions"):
        refuse_existing(memory, "reads")


def test_checksum_of_a_file_without_rights_is_refused_in_words(webhdfs):
    webhdfs.put("/checksum/a.csv", b"x")
    webhdfs.forbidden.add("/checksum/a.csv")
    with pytest.raises(InputMissing, match="no right to read the file"):
        sha256(place(f"{webhdfs.address}/checksum"))


def test_checksum_at_an_address_is_that_of_the_folder(memory, tmp_path):
    for name, content in {"a-b/x": "1", "a/x": "2", "a/date=2010-01-01/y": "3"}.items():
        for folder in (memory, tmp_path):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(content)
    assert sha256(memory) == sha256(tmp_path)
    assert sha256(memory / "a" / "x") == sha256(tmp_path / "a" / "x")


def test_files_in_folders_of_a_folder_are_listed(tmp_path, memory, webhdfs):
    """By stores that list a folder alone, and by those that list all below it."""
    sizes = {"a/b/x": 3, "a/x": 2, "y": 1}
    for name, size_bytes in sizes.items():
        webhdfs.put(f"/listed/{name}", b"." * size_bytes)
        for folder in (memory, tmp_path):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(b"." * size_bytes)
    for folder in (tmp_path, memory, place(f"{webhdfs.address}/listed")):
        assert list(sizes_below(folder).items()) == list(sizes.items())


def test_place_that_is_missing_has_no_files(tmp_path, webhdfs, s3_bucket):
    for folder in (tmp_path / "no", f"{webhdfs.address}/no", f"{s3_bucket}/no", f"{s3_bucket}-no/trace"):
        assert sizes_below(place(folder)) == {}
