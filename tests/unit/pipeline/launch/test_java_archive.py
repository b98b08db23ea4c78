"""Class data archives: one process writes, others use it, and incomplete ones are discarded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mudkit.pipeline.launch import java as javas
from mudkit.pipeline.launch.java import Archive, Java, prepare

WHOLE = b"\xa8\xab\x0b\xf0" + b"classes" * 10
UNFINISHED = b"\0" * 8 + b"classes" * 10


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "mudkit" / "spark"


@pytest.fixture
def jars(tmp_path):
    folder = tmp_path / "jars"
    folder.mkdir()
    return folder


def make_java(
    home: Path, *, has_archive: bool = True, can_dump: bool = True, version: str = "17.0.15"
) -> Java:
    """Return a Java with an archive of its own classes, or with a program that dumps one or fails."""
    for folder in ("lib/server", "bin"):
        (home / folder).mkdir(parents=True)
    (home / "lib" / "modules").write_text("")
    if has_archive:
        (home / "lib" / "server" / "classes.jsa").write_text("")
    program = home / "bin" / "java"
    program.write_text(
        "#!/bin/sh\n"
        'for argument do case $argument in -XX:SharedArchiveFile=*) file="${argument#*=}" ;; esac; done\n'
        f'{"printf whole" if can_dump else "printf who"} > "$file"\n{"exit 0" if can_dump else "exit 1"}\n'
    )
    program.chmod(0o755)
    return Java(home, version, "PATH")


@pytest.fixture
def java(tmp_path):
    return make_java(tmp_path / "jdk")


def read_option(archive: Archive, name: str) -> str | None:
    values = [text.partition("=")[2] for text in archive.options if text.startswith(f"-XX:{name}=")]
    return values[0] if values else None


def test_first_process_writes_the_archive_and_later_ones_use_it(cache, java, jars):
    first = prepare(java, jars)
    assert read_option(first, "ArchiveClassesAtExit") == str(first.written)
    first.written.write_bytes(WHOLE)
    first.settle(good=True)
    (archive,) = cache.iterdir()  # temporary file and claim are removed
    assert archive.read_bytes() == WHOLE
    second = prepare(java, jars)
    assert second == Archive((f"-XX:SharedArchiveFile={archive}",), (), archive, None)


@pytest.mark.process
@pytest.mark.parametrize("kind", ["of a dead process", "", "nonsense"])
def test_stale_claims_are_ignored(cache, java, jars, kind):
    first = prepare(java, jars)
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    (claim,) = cache.glob("*.claim")
    claim.write_text(str(process.pid) if kind == "of a dead process" else kind)
    assert prepare(java, jars).written not in (None, first.written)


@pytest.mark.parametrize(("content", "good"), [(WHOLE, False), (UNFINISHED, True), (b"", True), (None, True)])
def test_truncated_files_are_discarded(cache, java, jars, content, good):
    first = prepare(java, jars)
    if content is not None:
        first.written.write_bytes(content)
    first.settle(good=good)
    assert list(cache.iterdir()) == []
    assert prepare(java, jars).written is not None


def test_complete_archive_of_a_killed_process_is_used(cache, java, jars):
    prepare(java, jars).written.write_bytes(WHOLE)
    used = prepare(java, jars).used
    assert used.read_bytes() == WHOLE
    assert list(cache.iterdir()) == [used]


def test_abandoned_archive_is_removed(cache, java, jars):
    first = prepare(java, jars)
    assert prepare(java, jars) == Archive(), "only one writes at a time"
    first.written.write_bytes(UNFINISHED)
    assert prepare(java, jars) == Archive(), "it may still be written"
    assert first.written.exists()
    os.utime(first.written, (0, 0))
    prepare(java, jars)
    assert not first.written.exists()


def test_truncated_archive_is_rewritten(cache, java, jars):
    first = prepare(java, jars)
    first.written.write_bytes(WHOLE)
    first.settle(good=True)
    used = prepare(java, jars).used
    with used.open("r+b") as file:
        file.truncate(20)
    again = prepare(java, jars)
    assert again.used is None
    assert again.written is not None
    assert not used.exists()


def test_archives_differ_by_java_and_spark(cache, jars, tmp_path):
    other_jars = tmp_path / "other"
    other_jars.mkdir()
    pairs = [
        (make_java(tmp_path / "one"), jars),
        (make_java(tmp_path / "two"), jars),
        (make_java(tmp_path / "three", version="17.0.16"), jars),
        (make_java(tmp_path / "four"), other_jars),
    ]
    names = {prepare(*pair).written.name.split(".")[0] for pair in pairs}
    assert len(names) == 4
    newer = pairs[0][0].home / "lib" / "modules"
    os.utime(newer, (1, 1))
    assert prepare(*pairs[0]).written.name.split(".")[0] not in names


def test_base_archive_is_dumped_for_java_without_one(cache, jars, tmp_path):
    java = make_java(tmp_path / "jdk", has_archive=False)
    first = prepare(java, jars)
    (base,) = cache.glob("base-*.jsa")
    assert base.read_text() == "whole"
    assert read_option(first, "SharedArchiveFile") == str(base)
    assert first.launcher_options == (f"-XX:SharedArchiveFile={base}",)
    first.written.write_bytes(WHOLE)
    first.settle(good=True)
    second = prepare(java, jars)
    assert read_option(second, "SharedArchiveFile") == f"{base}:{second.used}"


def test_java_that_cannot_dump_has_no_base_archive(cache, jars, tmp_path):
    archive = prepare(make_java(tmp_path / "jdk", has_archive=False, can_dump=False), jars)
    assert read_option(archive, "SharedArchiveFile") is None
    assert not list(cache.glob("base-*"))


@pytest.mark.parametrize(("folder", "free_bytes"), [("a:b", 0), ("cache", 1 << 60)])
def test_no_archive_without_disk_space_or_with_a_colon_in_the_path(
    monkeypatch, java, jars, tmp_path, folder, free_bytes
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / folder))
    monkeypatch.setattr(javas, "_MIN_FREE_BYTES", free_bytes)
    assert prepare(java, jars) == Archive()


def test_oldest_archives_are_removed(cache, java, jars):
    prepare(java, jars).settle(good=False)
    for age in range(6):
        path = cache / f"spark-{age}-1.jsa"
        path.write_text("x")
        os.utime(path, (1000 - age, 1000 - age))
    prepare(java, jars)
    assert sorted(path.name for path in cache.glob("*.jsa")) == [f"spark-{age}-1.jsa" for age in range(3)]
