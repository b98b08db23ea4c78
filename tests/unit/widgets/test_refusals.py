"""Errors of widgets for invalid arguments."""

import numpy as np
import pyarrow as pa
import pytest

from mudkit import Lab
from mudkit.errors import MudkitError, ParameterError, PredicateError, PropagationProblem
from mudkit.experiment import PHOTOS, Scoreboard, scoreboard
from mudkit.trace.schema import POSITIONS, timestamps
from mudkit.widgets import (
    FleetMap,
    PolicyWorkbench,
    PrefetchLab,
    PropagationMap,
    RelayMonitor,
    TableBrowser,
    ViewsExplorer,
)
from mudkit.widgets import Scoreboard as Board
from mudkit.worlds import Traffic

POLICY, MESSAGES = "rules:\n  - do: drop\n", {"m": {"a": 1}}
WHERE = pa.table(
    [
        pa.array(["a"] * 2),
        timestamps(np.arange(2) * 300_000_000),
        *[pa.array([0.0, 1.0])] * 2,
        pa.nulls(2, pa.float64()),
    ],
    schema=POSITIONS,
)


def make_board(**options) -> Board:
    result: Scoreboard = scoreboard([PHOTOS.over(devices=2, hours=1.0)], seeds=[2], privacy=False)
    return Board(result, **options)


def make_map(**options) -> PropagationMap:
    return PropagationMap(Traffic(cars=5, minutes=6.0), **options)


def fail(sender, receiver):
    raise RuntimeError("tired")


REFUSED = [
    (lambda: FleetMap(WHERE, step_s=0), ParameterError, "step_s"),
    *(
        (lambda tz=tz: FleetMap(WHERE, tz=tz), ParameterError, "America/Los_Angeles")
        for tz in ("Mars/Olympus", "", None, 5)
    ),
    (lambda: PolicyWorkbench(POLICY, {}), ParameterError, "messages"),
    (lambda: PolicyWorkbench(""), ParameterError, "messages"),
    (lambda: PolicyWorkbench(POLICY, MESSAGES, battery="full"), ParameterError, "Expected a number"),
    *(
        (lambda name=name, value=value: PrefetchLab(**{name: value}), MudkitError, name)
        for name, value in (("outage", 2.0), ("days", 0), ("polcy", "buffer"), ("policy", "none"), ("max", "x"), ("expiration", -1.0))
    ),
    *(
        (lambda wrong=wrong: make_map(**wrong), ParameterError, "after a number of messages")
        for wrong in ({"method": "by mood"}, {"amount": 0}, {"amount": 121})
    ),
    (lambda: make_map(functions={"moody": fail}, method="moody"), PropagationProblem, "tired"),
    (lambda: RelayMonitor({"loc": [37.5, -122.0]}, "", "loc ="), PredicateError, "incomplete"),
    (lambda: RelayMonitor([1]), ParameterError, "metadata"),
    *((lambda x=x: make_board(x=x), ParameterError, x) for x in ("speed", "useful_share")),
    (lambda: TableBrowser(Lab(seed=7), {}, "news"), ParameterError, "no client"),
    (lambda: ViewsExplorer("ann: w1", "fork-sequental"), ParameterError, "fork-sequential"),
    (lambda: ViewsExplorer("ann: w1", seconds=0), ParameterError, "seconds"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "pattern"), REFUSED)
def test_invalid_arguments_raise_error(call, error, pattern):
    with pytest.raises(error, match=pattern):
        call()
