"""Folder of the cache, and its temporary substitute."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest

from mudkit.files import cache_folder, temporary_cache, usable, user_cache


@pytest.mark.parametrize(
    ("platform", "folder"), [("linux", ".cache/mudkit"), ("darwin", "Library/Caches/mudkit")]
)
def test_cache_is_in_the_folder_of_the_platform(monkeypatch, tmp_path, platform, folder):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", platform)
    assert user_cache() == tmp_path / folder


@pytest.mark.parametrize("value", ["", "relative"])
def test_relative_or_empty_cache_variable_is_ignored(monkeypatch, tmp_path, value):
    monkeypatch.setenv("XDG_CACHE_HOME", value)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert user_cache().is_relative_to(tmp_path)


def test_cache_folder_is_created(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder("java") == tmp_path / "mudkit" / "java"
    assert (tmp_path / "mudkit" / "java").is_dir()


def test_cache_without_a_home_is_temporary(monkeypatch, tmp_path):
    def raise_no_home():
        raise RuntimeError("no home")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", raise_no_home)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert user_cache() is None
    assert cache_folder("java").is_relative_to(tmp_path)


def test_file_is_not_usable_as_a_cache(tmp_path):
    (tmp_path / "file").write_text("")
    assert not usable(tmp_path / "file")
    assert not usable(tmp_path / "file" / "below")


def test_temporary_cache_is_private_and_reused(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = temporary_cache()
    assert folder == temporary_cache()
    assert not folder.stat().st_mode & 0o077


@pytest.mark.parametrize("trap", ["writable", "link"])
def test_insecure_temporary_cache_is_not_used(monkeypatch, tmp_path, trap):
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
