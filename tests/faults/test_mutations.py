"""Mutants of the transition rules: a sample is killed, and who survives must be listed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).with_name("mutations.py")
SURVIVES = "local: Local.see: seen.get(str(partition), 0) < lsn -> seen.get(str(partition), 0) <= lsn"
SAMPLE = ("backend: BackEnd._matches", "stream: Incoming.take", "watching: Watching._heard")


def tool(tmp_path, *arguments):
    command = [sys.executable, str(TOOL), "--known", str(tmp_path / "known.json"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def names():
    """All mutants that there are."""
    listed = subprocess.run([sys.executable, str(TOOL), "--list"], capture_output=True, text=True, check=True)
    return [line.split("  (line")[0] for line in listed.stdout.splitlines()]


def test_each_mutant_has_a_name_of_its_own(names):
    assert len(names) > 300
    assert len(set(names)) == len(names)


def test_who_is_listed_is_there_and_justified(names):
    sys.path.insert(0, str(TOOL.parent))
    try:
        import mutations
    finally:
        sys.path.remove(str(TOOL.parent))
    listed = mutations.survivors()
    assert set(listed) <= set(names)
    assert all(len(why) > 20 for why in listed.values())
    assert SURVIVES in listed


@pytest.mark.parametrize("only", SAMPLE)
def test_a_sample_is_killed(tmp_path, names, only):
    done = tool(tmp_path, "--only", only, "--seeds", 20)
    many = sum(only in name for name in names)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{many} mutants, {many} killed" in done.stdout


def test_who_survives_and_is_not_listed_is_a_failure(tmp_path):
    listed = tmp_path / "survivors.toml"
    listed.touch()
    done = tool(tmp_path, "--only", SURVIVES, "--seeds", 1, "--survivors", listed)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"survives and is not listed: {SURVIVES}" in done.stdout
    assert tool(tmp_path, "--only", SURVIVES, "--seeds", 1).returncode == 0  # it is in the list of the tool


def test_who_is_listed_and_killed_is_a_failure(tmp_path):
    listed = tmp_path / "survivors.toml"
    listed.write_text(
        '[[survivor]]\nmodule = "stream"\nfunction = "Incoming.take"\nwhy = "a guess"\n'
        "comparison = \"message['number'] != self.last + 1\"\nmutant = \"message['number'] == self.last + 1\"\n"
    )
    done = tool(tmp_path, "--only", "stream: Incoming.take", "--seeds", 5, "--survivors", listed)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "is listed as a survivor, and was killed" in done.stdout
