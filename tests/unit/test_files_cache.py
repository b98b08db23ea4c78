"""Where the cache lies, and what serves when it cannot."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest

from mudkit.files import cache_folder, temporary_cache, usable, user_cache


@pytest.mark.parametrize(
    ("platform", "folder"), [("linux", ".cache/mudkit"), ("darwin", "Library/Caches/mudkit")]
)
def test_the_cache_lies_where_the_platform_keeps_it(monkeypatch, tmp_path, platform, folder):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", platform)
    assert user_cache() == tmp_path / folder


@pytest.mark.parametrize("named", ["", "relative"])
def test_only_an_absolute_name_counts(monkeypatch, tmp_path, named):
    monkeypatch.setenv("XDG_CACHE_HOME", named)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert user_cache().is_relative_to(tmp_path)


def test_the_folder_is_made(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder("java") == tmp_path / "mudkit" / "java"
    assert (tmp_path / "mudkit" / "java").is_dir()


def test_without_a_home_temporary_files_serve(monkeypatch, tmp_path):
    def homeless():
        raise RuntimeError("no home")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert user_cache() is None
    assert cache_folder("java").is_relative_to(tmp_path)


def test_nothing_can_be_kept_in_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    assert not usable(tmp_path / "file")
    assert not usable(tmp_path / "file" / "below")


def test_the_temporary_cache_is_private_and_the_same_each_time(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = temporary_cache()
    assert folder == temporary_cache()
    assert not folder.stat().st_mode & 0o077


@pytest.mark.parametrize("trap", ["writable", "link"])
def test_a_folder_that_somebody_laid_out_is_not_taken(monkeypatch, tmp_path, trap):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = temporary_cache()
    if trap == "writable":
        folder.chmod(0o777)
    else:
        folder.rename(tmp_path / "elsewhere")
        folder.symlink_to(tmp_path / "elsewhere")
    other = temporary_cache()
    assert other != folder
    assert not other.stat().st_mode & 0o077
