"""Processes of measurements: peak memory, errors, and load of other programs."""

import os
import subprocess
import sys
import time

import pytest

from mudkit.errors import EnvironmentProblem
from mudkit.reproduce import harness, lab, lab_spark, lasthop_speed, mobius_scaling


@pytest.mark.process
def test_peak_memory_covers_a_process_and_its_descendants():
    code = "import subprocess, sys; a = bytearray(80_000_000); print('ready', flush=True); sys.stdin.read()"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {code!r}], check=True)"
    process = subprocess.Popen([sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with process, harness.PeakMemory(process.pid) as peaks:
        assert process.stdout.readline() == b"ready\n"
        peaks.sample()
        process.stdin.close()
    mb = peaks.mb()
    assert 80 < mb["workers"] < 200
    assert 3 < mb["driver"] < 80
    assert mb["driver"] + mb["workers"] == pytest.approx(sum(mb for _, mb in peaks._peaks.values()))


def test_process_that_ends_early_raises_its_error():
    with pytest.raises(EnvironmentProblem, match="no room") as raised:
        harness.json_of("raise MemoryError('no room')", task=harness.Task("fills the memory"))
    assert "The process that fills the memory ended before it was done" in str(raised.value)
    assert harness.json_of("print('x'); print([1])", task=harness.Task("prints")) == [1]


def test_server_that_ends_early_names_its_task():
    task = harness.Task("answers nothing")
    with (
        pytest.raises(EnvironmentProblem, match="The process that answers nothing ended before it was done"),
        harness.JsonServer(harness.environment, task=task) as server,
    ):
        server.ask([])


def test_function_runs_in_a_separate_process(monkeypatch):
    monkeypatch.setenv("SPARK_REMOTE", "sc://elsewhere")
    task = harness.Task("returns the environment")
    variables = harness.answer_of(harness.environment, task=task, environ={"GIVEN": "1"})
    assert (variables["GIVEN"], variables.get("SPARK_REMOTE")) == ("1", None)


def test_load_of_other_programs_is_measured(monkeypatch):
    with harness.BusyCores() as idle:
        start_s = time.process_time()
        while time.process_time() - start_s < 0.05:
            pass
    assert 0.0 <= idle.others <= os.cpu_count() + 0.5
    clock = iter([0.0, 30.0])
    monkeypatch.setattr(harness, "_busy_s", lambda: next(clock))
    monkeypatch.setattr(harness, "_own_s", lambda: 0.0)
    monkeypatch.setattr(harness.time, "monotonic", iter([0.0, 20.0]).__next__)
    with harness.BusyCores() as loaded:
        pass
    assert loaded.others == 1.5


def hide_peers(measure):
    """Return a call of `measure` with no peer package installed."""

    def call(patch):
        patch.setattr(harness.importlib.util, "find_spec", lambda name: None)
        measure()

    return call


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (hide_peers(lab_spark.measure_labels), "pip install duckdb"),
        (hide_peers(lasthop_speed.measure_speed), "pip install simpy"),
        (lambda _: harness.require_peer("mudkit_peer", "X1", "this"), "pip install mudkit_peer"),
        (
            lambda _: mobius_scaling.measure_subscribers(steps=[10], messages=0, runs=1),
            "The process that holds the subscribers ended before",
        ),
        (
            lambda _: lab.measure_kernel(devices=1, hours=1, repeats=1, fleet=0, fleet_hours=1, seeds=[1]),
            "ended before it was done",
        ),
    ],
)
def test_failed_measurements_raise_helpful_errors(monkeypatch, call, message):
    harness.require_peer("pytest", "X1", "this")
    with pytest.raises(EnvironmentProblem, match=message):
        call(monkeypatch)
