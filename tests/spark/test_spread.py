"""spread as a replacement of map: order, errors and laziness, in both kinds of session."""

import operator
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pandas as pd
import pytest

from mudkit import pipeline
from mudkit.errors import ParameterError, SimulationProblem
from mudkit.experiment import ADAPTERS, WARD, compare, scoreboard
from mudkit.pipeline import executors
from mudkit.sources.outages import Outages
from mudkit.systems.lasthop import simulate_grid
from mudkit.worlds import Inboxes

pytestmark = pytest.mark.spark


def test_spread_equals_map(spark):
    power = 3

    def cube(x):
        return x**power, [x]

    spread_map = pipeline.spread(spark)
    assert list(spread_map(cube, range(7))) == list(map(cube, range(7)))
    assert list(spread_map(operator.add, "abc", "xyzu")) == ["ax", "by", "cz"]
    assert list(spread_map(cube, [])) == []
    assert next(spread_map(lambda frame: frame.sum(), [pd.Series([1, 2])])) == 3


def test_items_are_sent_one_per_task_in_waves(spark, monkeypatch):
    monkeypatch.setattr(executors, "_WAVE_ITEMS", 3)
    taken = []

    def items():
        for number in range(8):
            taken.append(number)
            yield number

    def find_partition(number):
        from pyspark import TaskContext

        return number, TaskContext.get().partitionId()

    results = pipeline.spread(spark)(find_partition, items())
    assert taken == []  # lazy: nothing runs before the first result is requested
    assert next(results) == (0, 0)
    assert taken == [0, 1, 2, 3]
    assert [next(results) for _ in range(7)] == [(n, n % 3) for n in range(1, 8)]
    monkeypatch.setattr(executors, "_WAVE_BYTES", 1000)
    assert list(pipeline.spread(spark)(len, [b"x" * 900] * 3)) == [900] * 3


def test_errors_keep_their_type_and_note_the_item(spark):
    def invert(x):
        if x == 5:
            raise ParameterError("Five is refused.", where="x", found="5")
        return 1 / x

    results = pipeline.spread(spark)(invert, [2, 1, 0, 4, 5])
    assert [next(results), next(results)] == [0.5, 1.0]
    with pytest.raises(ZeroDivisionError, match="division by zero") as caught:
        next(results)
    assert caught.value.__notes__[0] == "item 2: 0"
    assert "in invert" in caught.value.__notes__[1]
    with pytest.raises(ParameterError, match="Five") as refused:
        list(pipeline.spread(spark)(invert, [1, 5, 0]))
    assert (refused.value.found, refused.value.__notes__) == ("5", ["item 1: 5"])


def test_unpicklable_values_raise_errors(spark):
    class UnpicklableError(Exception):
        def __init__(self, a, b):
            super().__init__(f"{a} and {b}")

    def fail(x):
        raise UnpicklableError(x, x)

    with pytest.raises(SimulationProblem, match="7 and 7") as caught:
        list(pipeline.spread(spark)(fail, [7]))
    assert "item 0: 7" in str(caught.value)
    with pytest.raises(TypeError, match="pickle") as result:
        list(pipeline.spread(spark)(lambda _: threading.Lock(), [1]))
    assert result.value.__notes__[0] == "item 0: 1"
    with pytest.raises(TypeError, match="pickle"):
        list(pipeline.spread(spark)(str, [threading.Lock()]))


def test_comparison_over_spark_equals_the_local_one(spark):
    plan = Inboxes(devices=4, hours=2.0, outage=Outages(0.3, per_day=60), mobility="commute", every_s=300.0)
    local = compare(plan.compare, range(3))
    distributed = compare(plan.compare, range(3), map=pipeline.spread(spark, "runs"))
    pd.testing.assert_frame_equal(local.runs, distributed.runs)


def test_sweep_over_spark_equals_the_local_one(spark):
    over, fixed = {"prefetch_limit": [1, 16], "outage": [0.5]}, {"policy": "buffer", "days": 5}
    local = simulate_grid(over, fixed, range(2))
    distributed = simulate_grid(over, fixed, range(2), map=pipeline.spread(spark, "runs"))
    pd.testing.assert_frame_equal(local, distributed)
    with pytest.raises(ParameterError, match=r"1\.5"):
        simulate_grid({"outage": [0.5, 1.5]}, {"days": 2}, [1], map=pipeline.spread(spark))


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_cancels_the_tasks(spark):
    def sleep(_):
        time.sleep(120)

    start_s = time.monotonic()
    timer = threading.Timer(2.0, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        list(pipeline.spread(spark)(sleep, range(4)))
    timer.join()
    assert list(pipeline.spread(spark)(abs, [-1, -2])) == [1, 2]  # the cores are free again
    assert time.monotonic() - start_s < 60


@pytest.mark.soak
def test_spread_works_over_spark_connect():
    code = """
        from mudkit import pipeline
        from mudkit.errors import ParameterError
        spark = pipeline.session(remote="local[2]")
        offset = 10
        def shifted(x, y):
            if y == 6:
                raise ParameterError("Six is refused.", found="6")
            return x + y + offset
        spread = pipeline.spread(spark)
        assert list(spread(shifted, range(5), range(5))) == [10, 12, 14, 16, 18]
        try:
            list(spread(shifted, range(9), range(9)))
        except ParameterError as error:
            assert error.__notes__ == ["item 6: (6, 6)"], error.__notes__
        else:
            raise AssertionError
        pipeline.stop()
        """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert (process.returncode, process.stdout, process.stderr) == (0, "", "")


def test_scoreboard_over_spark_equals_the_local_one(spark):
    task = WARD.over(devices=2, hours=0.05)
    systems = {"MUD": ADAPTERS["MUD"], "Contrail": ADAPTERS["Contrail"]}
    local = scoreboard([task], systems, seeds=[1, 2])
    distributed = scoreboard([task], systems, seeds=[1, 2], map=pipeline.spread(spark))
    assert distributed.runs.equals(local.runs)
    assert distributed.privacy.equals(local.privacy)
