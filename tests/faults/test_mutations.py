"""Mutants of the transition rules: a sample is killed, and who survives must be listed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).with_name("mutations.py")
SURVIVES = "device.local: Local.see: seen.get(str(partition), 0) < lsn -> seen.get(str(partition), 0) <= lsn"
SAMPLE = (
    "servers.backend: BackEnd._matches",
    "stream: Incoming.take",
    "device.continuous_reads: ContinuousReads._heard",
)


@pytest.fixture(scope="module")
def names():
    """All mutants that there are."""
    listed = subprocess.run([sys.executable, str(TOOL), "--list"], capture_output=True, text=True, check=True)
    return [line.split("  (line")[0] for line in listed.stdout.splitlines()]


@pytest.fixture(scope="module")
def mutations():
    """The tool as a module."""
    sys.path.insert(0, str(TOOL.parent))
    try:
        import mutations
    finally:
        sys.path.remove(str(TOOL.parent))
    return mutations


def test_each_mutant_has_a_name_of_its_own(names):
    assert len(names) > 300
    assert len(set(names)) == len(names)


def test_who_is_listed_is_there_and_justified(names, mutations):
    listed = mutations.survivors()
    assert set(listed) <= set(names)
    assert all(len(why) > 20 for why in listed.values())
    assert SURVIVES in listed


@pytest.mark.soak
def test_a_sample_is_killed(tmp_path, names):
    command = [sys.executable, str(TOOL), "--known", str(tmp_path / "known.json"), "--seeds", "20"]
    done = subprocess.run([*command, "--only", *SAMPLE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    many = [sum(only in name for name in names) for only in SAMPLE]
    assert all(many)
    assert f"{sum(many)} mutants, {sum(many)} killed" in done.stdout


def test_who_is_listed_and_killed_or_survives_and_is_not_is_told(mutations):
    first, second, third, fourth = mutations.mutants("servers.backend")[:4]
    killers = {first: None, second: None, third: "seed 7: lost", fourth: "seed 8: lost"}
    answer = mutations.complaints(killers, {first.name: "why", third.name: "why"})
    assert answer == [
        f"is listed as a survivor, and was killed: {third.name} (seed 7: lost)",
        f"survives and is not listed: {second.name}  ({mutations.file_of('servers.backend')}:{second.line})",
    ]
