"""Bars are shown where somebody watches, and Ctrl-C comes between two steps."""

from __future__ import annotations

import functools
import itertools
import signal
import threading
from typing import Any

import pytest
import tqdm.auto

from mudkit import Lab, progress
from mudkit.progress import VARIABLE, Interrupts, bar, is_enabled


class Shown:
    """Stands for tqdm's bar, and remembers all that there were."""

    made: list[Shown] = []  # noqa: RUF012 - emptied by the fixture

    def __init__(self, **given: Any) -> None:
        self.given, self.n, self.is_open, self.start_t = given, 0.0, True, 100.0
        self.total = given["total"]
        self.made.append(self)

    def close(self) -> None:
        self.is_open = False
        assert self.n == self.total  # else tqdm leaves it in a notebook, in red

    def update(self, more: float) -> None:
        self.n += more


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[Shown]:
    monkeypatch.setattr(tqdm.auto, "tqdm", Shown)
    monkeypatch.setattr(Shown, "made", [])
    monkeypatch.setenv(VARIABLE, "1")
    let_time_pass(monkeypatch)
    return Shown.made


def let_time_pass(monkeypatch: pytest.MonkeyPatch, step_s: float = 0.6) -> None:
    """Each look at the clock finds it later, so that the second thing told is worth a bar."""
    monkeypatch.setattr(progress, "monotonic", functools.partial(next, itertools.count(0, step_s)))


@pytest.mark.parametrize(("said", "is_wanted"), [
    ("1", True), ("yes", True), ("on", True), ("0", False), (" No ", False), ("off", False), ("FALSE", False),
])  # fmt: skip
def test_the_variable_decides(shown, monkeypatch, said, is_wanted):
    monkeypatch.setenv(VARIABLE, said)
    assert is_enabled() is is_wanted
    with bar(10, "work", "pieces") as done:
        done(3)
        done(7.5)
    assert [(each.n, each.given["total"], each.is_open) for each in shown] == [(7.5, 10, False)] * is_wanted


def test_what_is_quick_makes_no_bar(shown, monkeypatch):
    let_time_pass(monkeypatch, step_s=0.3)
    for _ in range(1000):
        with bar(3, "call", "h") as done:
            done(1)
            done(2)
            done(3)
    assert shown == []


def test_a_bar_knows_how_long_the_work_took_before_it(shown):
    with bar(9, "work", "h") as done:
        for each in range(1, 6):
            done(each)
    assert [(each.n, each.start_t) for each in shown] == [(5, pytest.approx(98.8))]


def test_without_the_variable_somebody_must_watch(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(progress, "_in_notebook", lambda: False)

    class Stream:
        def __init__(self, is_terminal: bool) -> None:
            self.isatty = lambda: is_terminal

    for stream, is_wanted in ((Stream(True), True), (Stream(False), False), (None, False)):
        monkeypatch.setattr("sys.stderr", stream)
        assert is_enabled() is is_wanted
    monkeypatch.setattr(progress, "_in_notebook", lambda: True)
    assert is_enabled() is True


def test_a_bar_inside_another_is_not_shown(shown):
    for _ in range(2):
        with bar(2, "outer", "runs") as outer:
            with bar(9, "inner", "h") as inner:
                inner(8)
                inner(9)
            outer(1)
            outer(2)
    assert [(each.given["desc"], each.n, each.is_open) for each in shown] == [("outer", 2, False)] * 2


def test_a_bar_ends_with_an_error(shown):
    with pytest.raises(KeyError), bar(2, "one", "runs") as one:
        one(1)
        one(1.5)
        raise KeyError
    with bar(2, "two", "runs") as two:
        two(1)
        two(2)
    assert [(each.given["desc"], each.is_open) for each in shown] == [("one", False), ("two", False)]


def test_another_thread_has_bars_of_its_own(shown):
    def work() -> None:
        with bar(1, "thread", "h") as done:
            done(0.5)
            done(1)

    with bar(2, "main", "runs") as main:
        main(1)
        main(2)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert [each.given["desc"] for each in shown] == ["main", "thread"]


def test_a_real_bar_of_a_lab(monkeypatch, capsys):
    monkeypatch.setenv(VARIABLE, "1")
    let_time_pass(monkeypatch, step_s=2)
    monkeypatch.setattr(tqdm.auto, "tqdm", functools.partial(tqdm.std.tqdm, mininterval=0))
    lab = Lab()
    lab.device("ann", mobility="waypoint")
    lab.run()
    lab.run(hours=2)
    shown = capsys.readouterr().err
    assert "virtual time" in shown
    assert "2.0/2.0 h" in shown


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_waits_until_it_is_asked_for():
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
def test_ctrl_c_that_nobody_asked_for_comes_at_the_end():
    steps = []
    with pytest.raises(KeyboardInterrupt):
        with Interrupts():
            signal.raise_signal(signal.SIGINT)
            steps.append("this step ends")
        steps.append("there is no next one")
    assert steps == ["this step ends"]


@pytest.mark.usefixtures("ctrl_c")
def test_a_second_ctrl_c_comes_at_once():
    steps = []
    with pytest.raises(KeyboardInterrupt), Interrupts():
        signal.raise_signal(signal.SIGINT)
        steps.append("first")
        signal.raise_signal(signal.SIGINT)
        steps.append("second")
    assert steps == ["first"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("ctrl_c")
def test_an_error_goes_before_ctrl_c():
    with pytest.raises(KeyError), Interrupts():
        signal.raise_signal(signal.SIGINT)
        raise KeyError
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("ctrl_c")
def test_nothing_is_held_back_in_another_thread():
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


def test_a_handler_that_is_not_pythons_own_stays():
    heard = []
    before = signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    try:
        with Interrupts() as interrupts:
            signal.raise_signal(signal.SIGINT)
            interrupts.check()
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard == [signal.SIGINT]


def test_where_ctrl_c_is_ignored_it_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as nohup and & leave it
    try:
        with Interrupts() as interrupts:
            signal.raise_signal(signal.SIGINT)
            interrupts.check()
        lab = Lab()
        lab.run(hours=1)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
