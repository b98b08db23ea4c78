"""Solutions in a process of their own: values, functions, stores and copies cross the pipe."""

from __future__ import annotations

import datetime as dt
import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudkit.consistency.operation import Kind
from mudkit.delivery.inbox import ItemOrder
from mudkit.events import Ciphertext, Notify, Send
from mudkit.exercises import EXERCISES, Exercise, PlayedScenario
from mudkit.exercises.cache_policies import ReadRequest
from mudkit.exercises.judging import judged
from mudkit.exercises.solution import Solution, SolutionEnded, _is_same, _running, _Server
from mudkit.systems.radiator import Volume

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.datetimes().map(lambda time: time.replace(fold=0))
    | st.timedeltas()
    | st.decimals(allow_nan=False)
    | st.fractions()
    | st.complex_numbers(allow_nan=False)
    | st.builds(ReadRequest, st.floats(0, 1), st.just(1.0), st.just(0.0), st.just(2.0), st.just(3.0))
    | st.builds(Volume, st.integers(1, 9))
    | st.sampled_from([*ItemOrder, *Kind])
    | st.builds(Send, st.text(), st.dictionaries(st.text(), st.integers()))
)
SHARED = [1]
HASHABLE = st.integers() | st.text() | st.binary() | st.tuples(st.integers(), st.text())
VALUES = st.recursive(
    SCALARS | st.sets(HASHABLE) | st.frozensets(HASHABLE) | st.binary().map(bytearray),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(HASHABLE, inner),
    max_leaves=8,
)


def cross(value: Any) -> Any:
    """Return a value as the judge gets it, without a process."""
    server, solution = _Server(None, Path(), "", ""), Solution.__new__(Solution)  # type: ignore[arg-type]
    solution._remotes = {}
    return solution._decoded(json.loads(json.dumps(server._coded(value, {}))), [])


@given(VALUES)
def test_values_cross_the_pipe(value: Any) -> None:
    crossed = cross(value)
    assert crossed == value
    assert type(crossed) is type(value)


def test_values_of_other_classes_become_those_of_their_base() -> None:
    class Text(str):
        __slots__ = ()

    class Odd:
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = None  # type: ignore[assignment]

    assert (type(cross(Text("a"))), cross(Text("a"))) == (str, "a")
    assert cross(np.bool_(True)) is np.True_
    assert cross(np.arange(6).reshape(2, 3)).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert cross(Decimal("1.50")) == Decimal("1.5")
    assert cross(dt.datetime(2026, 1, 1, tzinfo=dt.UTC)).tzinfo is dt.UTC
    assert cross([Notify("items", {"name": "a"})]) == [Notify("items", {"name": "a"})]
    assert cross(Odd()) != 3
    assert cross(object) is not object
    assert cross(Ciphertext(b"a")) is not None
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    assert cross(deep) != deep


@pytest.mark.parametrize(
    ("before", "now", "is_same"),
    [
        ([SHARED], [SHARED], True),
        ([SHARED], [[1]], False),
        ([SHARED], [SHARED, SHARED], False),
        ({"a": SHARED}, {"a": SHARED}, True),
        ({"a": SHARED}, {"a": [1]}, False),
        ({"a": SHARED}, {"b": SHARED}, False),
        ({1, 2}, {2, 1}, True),
        ({1, 2}, {1, 3}, False),
        (bytearray(b"ab"), bytearray(b"ab"), True),
        (bytearray(b"ab"), bytearray(b"ac"), False),
    ],
)
def test_equal_copy_is_another_content(before: Any, now: Any, is_same: bool) -> None:
    """A solution that puts a copy in the place of an object has changed what holds it."""
    assert _is_same(before, now) is is_same


def play(piece: Any, number: int) -> PlayedScenario:
    numbers, notes = [number, {"inner": [number]}], list[int]()
    others = [[1], {"one": 1}, {1}, bytearray(b"a")]
    answer = piece(numbers, notes.append, lambda x: x / 0, *others)
    assert answer is numbers
    content = repr((numbers, notes, *others))
    expected = (
        f"([{{'inner': [{number}, 1]}}, {number}], [5], [True], {{'one': True}}, {{2}}, bytearray(b'b'))"
    )
    return PlayedScenario(str(number), None if content == expected else content)


CHANGES = """
def change(numbers, note, fail, one, named, others, text):
    one[0] = named["one"] = True  # equal to what it was
    others ^= {1, 2}
    text[:] = b"b"
    numbers[1]["inner"].append(1)
    numbers.reverse()
    note(5)
    try:
        fail(1)
    except ZeroDivisionError:
        return numbers
"""


@pytest.fixture
def start(tmp_path: Path):
    started = []

    def start_solution(text: str, exercise: str, piece: str) -> Any:
        file = tmp_path / "work.py"
        file.write_text(text, encoding="utf-8")
        started.append(Solution(file, exercise, piece))
        return started[-1].load()

    yield start_solution
    for solution in started:
        solution.end()


@pytest.mark.process
def test_changes_of_arguments_and_calls_of_functions_come_back(start) -> None:
    """Changes reach the judge as in the notebook, where a function has its objects themselves."""
    exercise = Exercise("change(numbers, note, fail, …) -> list", "All come back.", st.integers(0, 9), play)
    verdict = judged("changes", exercise, start(CHANGES, "changes", "change"))
    assert verdict.passed, str(verdict)


MACHINE = """
from mudkit.events import Complete, Notify, Received, Send
calls = []
def handle(here, now_us, event):
    here.memory.setdefault("seen", []).append(object())
    here.store.put("count", (here.store.get("count") or 0) + 1)
    KEEPS
    match event:
        case Received(message={"about": _} as item) if here.is_relay:
            here.store.put(f"item {item['name']}", item)
            wants = [key for key in here.store.keys("want ") if here.wants(here.store.get(key), item)]
            return [Send(key[5:], item) for key in wants]
    return []
"""


@pytest.mark.process
@pytest.mark.parametrize(
    ("keeps", "problem"), [("", "has not been answered"), ("calls.append(1)", "calls, which it has changed")]
)
def test_machine_has_its_memory_and_store(start, keeps: str, problem: str) -> None:
    """The verdict, and its scenario, are those of the notebook."""
    text = MACHINE.replace("KEEPS", keeps)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(text, namespace)
    expected = judged("11_scoreboard", EXERCISES["11_scoreboard"], namespace["handle"])
    verdict = judged("11_scoreboard", EXERCISES["11_scoreboard"], start(text, "11_scoreboard", "handle"))
    assert str(verdict) == str(expected)
    assert problem in str(verdict)


@pytest.mark.process
def test_policy_that_is_a_function_is_stopped_where_it_is(start) -> None:
    text = (
        "from mudkit.systems.sublim import policy\n"
        "def ward_policy(patients):\n    @policy\n    def ward(message, state):\n"
        "        while True:\n            pass\n    return ward\n"
    )
    piece = start(text, "07_stateful_policies", "ward_policy")
    verdict = judged("07_stateful_policies", EXERCISES["07_stateful_policies"], piece)
    assert verdict.failure is not None
    # By the limit of lines, or by that of processor time where a tracer is in place of the count.
    assert re.search("more than .* for one message", str(verdict.failure.problem))


@pytest.mark.process
def test_process_that_ends_is_no_outcome(start) -> None:
    piece = start("import os\ndef take(seen, message):\n    os._exit(3)\n", "00_start_here", "take")
    with pytest.raises(SolutionEnded, match="status 3"):
        judged("00_start_here", EXERCISES["00_start_here"], piece)
    assert _running == {}, "a later one may have its id"
