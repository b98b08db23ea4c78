"""Mutants of the transition rules: a sample is killed, and survivors must be listed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).with_name("mutations.py")
SURVIVOR = "device.local: Local.see: seen.get(str(partition), 0) < lsn -> seen.get(str(partition), 0) <= lsn"
SAMPLE = (
    "servers.backend: _replaces",
    "servers.processor: Processor._update",
    "device.continuous_reads: ContinuousReads._heard",
)


@pytest.fixture(scope="module")
def names():
    """Return the names of all mutants."""
    listed = subprocess.run([sys.executable, str(TOOL), "--list"], capture_output=True, text=True, check=True)
    return [line.split("  (line")[0] for line in listed.stdout.splitlines()]


@pytest.fixture(scope="module")
def mutations():
    """Import the tool as a module."""
    sys.path.insert(0, str(TOOL.parent))
    try:
        import mutations
    finally:
        sys.path.remove(str(TOOL.parent))
    return mutations


def test_mutant_names_are_unique(names):
    assert len(names) > 300
    assert len(set(names)) == len(names)


def test_listed_survivors_exist_and_have_a_reason(names, mutations):
    listed = mutations.load_survivors()
    assert set(listed) <= set(names)
    assert all(len(reason) > 20 for reason in listed.values())
    assert SURVIVOR in listed


@pytest.mark.soak
def test_sample_of_mutants_is_killed(tmp_path, names):
    command = [sys.executable, str(TOOL), "--known", str(tmp_path / "known.json"), "--seeds", "20"]
    process = subprocess.run([*command, "--only", *SAMPLE], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stdout + process.stderr
    counts = [sum(pattern in name for name in names) for pattern in SAMPLE]
    assert all(counts)
    assert f"{sum(counts)} mutants, {sum(counts)} killed" in process.stdout


def test_killed_but_listed_and_unlisted_survivors_are_reported(mutations):
    first, second, third, fourth = mutations.list_mutants("servers.backend")[:4]
    killers = {first: None, second: None, third: "seed 7: lost", fourth: "seed 8: lost"}
    discrepancies = mutations.list_discrepancies(killers, {first.name: "why", third.name: "why"})
    assert discrepancies == [
        f"is listed as a survivor, and was killed: {third.name} (seed 7: lost)",
        f"survives and is not listed: {second.name}  ({mutations.file_of('servers.backend')}:{second.line})",
    ]
