"""Long work that somebody watches: a bar after a second, and Ctrl-C that stops between two steps."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["VARIABLE", "Interrupts", "bar", "held_back", "wanted"]

VARIABLE = "MUDKIT_PROGRESS"
"""``1`` shows bars everywhere, ``0`` nowhere; unset: where somebody watches."""


_thread = threading.local()


def wanted() -> bool:
    """Say whether bars are shown: on a terminal and in a notebook, or as ``MUDKIT_PROGRESS`` says."""
    said = os.environ.get(VARIABLE, "").strip().lower()
    if said:
        return said not in ("0", "no", "off", "false")
    return _in_notebook() or (sys.stderr is not None and sys.stderr.isatty())


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


@contextmanager
def bar(total: float, description: str, unit: str) -> Iterator[Callable[[float], None]]:
    """Show how far something is, once it has taken longer than a second.

    Inside another bar of the same thread nothing more is shown.

    Yields
    ------
    callable
        To be told how much is done, in the unit of ``total``.
    """
    if not wanted() or getattr(_thread, "inside", False):
        yield lambda done: None
        return
    from tqdm.auto import tqdm  # only who watches waits for it to load

    shape = "{desc}: {percentage:3.0f}%|{bar}| {n:.1f}/{total:.1f} {unit} [{elapsed}<{remaining}]"
    with tqdm(total=total, desc=description, unit=unit, delay=1.0, leave=False, bar_format=shape) as shown:
        _thread.inside = True
        try:
            yield lambda done: (shown.update(done - shown.n), None)[1]
        finally:
            _thread.inside = False


class Interrupts:
    """Whether somebody has pressed Ctrl-C since."""

    def __init__(self) -> None:
        self.came = False

    def check(self) -> None:
        """Raise what was held back.

        Raises
        ------
        KeyboardInterrupt
        """
        if self.came:
            self.came = False
            raise KeyboardInterrupt


@contextmanager
def held_back() -> Iterator[Interrupts]:
    """Hold Ctrl-C back until it is asked for, so that nothing is left half done; a second one comes at once.

    Where Ctrl-C is nobody's business here (another thread, a handler that is not Python's own), nothing is
    held back.
    """
    interrupts = Interrupts()
    is_ours = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if not is_ours:
        yield interrupts
        return

    def note(number: int, frame: FrameType | None) -> None:
        if interrupts.came:
            raise KeyboardInterrupt
        interrupts.came = True

    signal.signal(signal.SIGINT, note)
    try:
        yield interrupts
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupts.check()
