"""Progress bars on terminals and in notebooks, and Ctrl-C between two steps."""

from __future__ import annotations

import functools
import itertools
import signal
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest
import tqdm.auto

from mudkit import Lab, progress
from mudkit.progress import VARIABLE, Interrupts, bar, is_enabled


class FakeBar:
    """Replacement of tqdm's bar that records its instances."""

    instances: list[FakeBar] = []  # noqa: RUF012 - emptied by the fixture

    def __init__(self, **options: Any) -> None:
        self.options, self.n, self.is_open, self.start_t = options, 0.0, True, 100.0
        self.total = options["total"]
        self.instances.append(self)

    def close(self) -> None:
        self.is_open = False
        assert self.n == self.total  # otherwise tqdm keeps it in a notebook, in red

    def update(self, amount: float) -> None:
        self.n += amount


@pytest.fixture
def bars(monkeypatch: pytest.MonkeyPatch) -> list[FakeBar]:
    monkeypatch.setattr(tqdm.auto, "tqdm", FakeBar)
    monkeypatch.setattr(FakeBar, "instances", [])
    monkeypatch.setenv(VARIABLE, "1")
    advance_clock(monkeypatch)
    return FakeBar.instances


def advance_clock(monkeypatch: pytest.MonkeyPatch, step_s: float = 0.6) -> None:
    """Advance the clock at each reading, so that the second update shows a bar."""
    monkeypatch.setattr(progress, "monotonic", functools.partial(next, itertools.count(0, step_s)))


@pytest.mark.parametrize(("value", "expected"), [
    ("1", True), ("yes", True), ("on", True), ("0", False), (" No ", False), ("off", False), ("FALSE", False),
])  # fmt: skip
def test_environment_variable_enables_or_disables_bars(bars, monkeypatch, value, expected):
    monkeypatch.setenv(VARIABLE, value)
    assert is_enabled() is expected
    with bar(10, "work", "pieces") as update:
        update(3)
        update(7.5)
    assert [(shown_bar.n, shown_bar.options["total"], shown_bar.is_open) for shown_bar in bars] == [
        (7.5, 10, False)
    ] * expected


def test_quick_work_shows_no_bar(bars, monkeypatch):
    advance_clock(monkeypatch, step_s=0.3)
    for _ in range(1000):
        with bar(3, "call", "h") as update:
            update(1)
            update(2)
            update(3)
    assert bars == []


def test_bar_includes_the_time_of_work_before_it(bars):
    with bar(9, "work", "h") as update:
        for hours in range(1, 6):
            update(hours)
    assert [(shown_bar.n, shown_bar.start_t) for shown_bar in bars] == [(5, pytest.approx(98.8))]


def test_bars_require_a_terminal_or_notebook_by_default(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(progress, "_in_notebook", lambda: False)

    class Stream:
        def __init__(self, is_terminal: bool) -> None:
            self.isatty = lambda: is_terminal

    for stream, expected in ((Stream(True), True), (Stream(False), False), (None, False)):
        monkeypatch.setattr("sys.stderr", stream)
        assert is_enabled() is expected
    monkeypatch.setattr(progress, "_in_notebook", lambda: True)
    assert is_enabled() is True


@pytest.mark.parametrize(
    ("shell", "expected"),
    [(None, False), (SimpleNamespace(kernel=None), False), (SimpleNamespace(kernel="python3"), True)],
)
def test_shell_with_a_kernel_is_a_notebook(monkeypatch, shell, expected):
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert progress._in_notebook() is expected


def test_nested_bar_is_not_shown(bars):
    for _ in range(2):
        with bar(2, "outer", "runs") as outer:
            with bar(9, "inner", "h") as inner:
                inner(8)
                inner(9)
            outer(1)
            outer(2)
    assert [(shown_bar.options["desc"], shown_bar.n, shown_bar.is_open) for shown_bar in bars] == [
        ("outer", 2, False)
    ] * 2


def test_bar_is_closed_by_an_error(bars):
    with pytest.raises(KeyError), bar(2, "one", "runs") as one:
        one(1)
        one(1.5)
        raise KeyError
    with bar(2, "two", "runs") as two:
        two(1)
        two(2)
    assert [(shown_bar.options["desc"], shown_bar.is_open) for shown_bar in bars] == [
        ("one", False),
        ("two", False),
    ]


def test_threads_have_separate_bars(bars):
    def work() -> None:
        with bar(1, "thread", "h") as update:
            update(0.5)
            update(1)

    with bar(2, "main", "runs") as main:
        main(1)
        main(2)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert [shown_bar.options["desc"] for shown_bar in bars] == ["main", "thread"]


def test_bar_of_a_lab_shows_virtual_time(monkeypatch, capsys):
    monkeypatch.setenv(VARIABLE, "1")
    advance_clock(monkeypatch, step_s=2)
    monkeypatch.setattr(tqdm.auto, "tqdm", functools.partial(tqdm.std.tqdm, mininterval=0))
    lab = Lab()
    lab.device("ann", mobility="waypoint")
    lab.run()
    lab.run(hours=2)
    output = capsys.readouterr().err
    assert "virtual time" in output
    assert "2.0/2.0 h" in output


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_is_deferred_until_check():
    steps = []
    with pytest.raises(KeyboardInterrupt), Interrupts() as interrupts:
        interrupts.check()
        signal.raise_signal(signal.SIGINT)
        steps.append("this step ends")
        interrupts.check()
        steps.append("there is no next one")
    assert steps == ["this step ends"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_without_check_is_raised_at_the_end():
    steps = []
    with pytest.raises(KeyboardInterrupt):
        with Interrupts():
            signal.raise_signal(signal.SIGINT)
            steps.append("this step ends")
        steps.append("there is no next one")
    assert steps == ["this step ends"]


@pytest.mark.usefixtures("ctrl_c")
def test_second_ctrl_c_is_raised_immediately():
    steps = []
    with pytest.raises(KeyboardInterrupt), Interrupts():
        signal.raise_signal(signal.SIGINT)
        steps.append("first")
        signal.raise_signal(signal.SIGINT)
        steps.append("second")
    assert steps == ["first"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("ctrl_c")
def test_error_takes_precedence_over_ctrl_c():
    with pytest.raises(KeyError), Interrupts():
        signal.raise_signal(signal.SIGINT)
        raise KeyError
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_is_not_deferred_in_another_thread():
    seen: list[Any] = []

    def work() -> None:
        with Interrupts() as interrupts:
            seen.append(signal.getsignal(signal.SIGINT))
            interrupts.check()
        lab = Lab()
        lab.run(hours=1)
        seen.append(lab.world.now_us)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler, 3_600_000_000]


def test_custom_handler_is_kept():
    signals = []
    before = signal.signal(signal.SIGINT, lambda number, frame: signals.append(number))
    try:
        with Interrupts() as interrupts:
            signal.raise_signal(signal.SIGINT)
            interrupts.check()
    finally:
        signal.signal(signal.SIGINT, before)
    assert signals == [signal.SIGINT]


def test_ignored_ctrl_c_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as nohup and & set it
    try:
        with Interrupts() as interrupts:
            signal.raise_signal(signal.SIGINT)
            interrupts.check()
        lab = Lab()
        lab.run(hours=1)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
