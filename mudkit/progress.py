"""Progress bars, which appear after a second, and Ctrl-C that stops long work between two steps."""

from __future__ import annotations

import os
import sys
import threading

# What signal wraps: it makes no enumerations of numbers, and is fast enough for each call of an application.
from _signal import SIGINT, default_int_handler, getsignal  # type: ignore[import-not-found]
from _signal import signal as set_signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from types import FrameType

VARIABLE = "MUDKIT_PROGRESS"
"""``1`` shows bars everywhere, ``0`` nowhere; unset: where somebody watches."""


_PATIENCE_S = 1.0

_thread = threading.local()


def is_enabled() -> bool:
    """Return whether bars are shown: as ``MUDKIT_PROGRESS`` says, else on a terminal and in a notebook."""
    setting = os.environ.get(VARIABLE, "").strip().lower()
    if setting:
        return setting not in ("0", "no", "off", "false")
    return _in_notebook() or (sys.stderr is not None and sys.stderr.isatty())


def _in_notebook() -> bool:
    """Return whether this Python runs in a notebook's kernel."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


@contextmanager
def bar(total: float, description: str, unit: str) -> Iterator[Callable[[float], None]]:
    """Show progress after a second, unless in another bar.

    Yield a function that is called with the whole amount done so far.
    """
    if not is_enabled() or getattr(_thread, "inside", False):
        yield lambda done: None
        return
    # In a notebook even a bar that is not shown yet sends a dozen messages to the browser, and JupyterLab
    # drops outputs when messages come too fast. So there is none before its time.
    started, shown = monotonic(), None

    def tell(done: float) -> None:
        nonlocal shown
        waited = monotonic() - started
        if shown is None:
            if waited < _PATIENCE_S:
                return
            from tqdm.auto import tqdm  # only who watches waits for it to load

            shape = "{desc}: {percentage:3.0f}%|{bar}| {n:.1f}/{total:.1f} {unit} [{elapsed}<{remaining}]"
            shown = tqdm(total=total, desc=description, unit=unit, leave=False, bar_format=shape)
            shown.start_t -= waited  # the work began before its bar
        shown.update(done - shown.n)

    _thread.inside = True
    try:
        yield tell
    finally:
        _thread.inside = False
        if shown is not None:
            shown.total = shown.n  # tqdm leaves a bar that is not full in a notebook, and colours it red
            shown.close()


class Interrupts:
    """Ctrl-C held back until it is asked for, so that nothing is left half done; a second one comes at once.

    In another thread, or under a handler that is not Python's own, nothing is held back.
    """

    __slots__ = ("_interrupted", "_is_ours")

    def __enter__(self) -> Interrupts:
        self._interrupted = self._is_ours = False
        if getsignal(SIGINT) is default_int_handler:
            try:
                set_signal(SIGINT, self._record_interrupt)
            except ValueError:  # this is not the main thread
                return self
            self._is_ours = True
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if self._is_ours:
            set_signal(SIGINT, default_int_handler)
        if self._interrupted and kind is None:
            self.check()

    def check(self) -> None:
        """Raise the Ctrl-C that was held back."""
        if self._interrupted:
            self._interrupted = False
            raise KeyboardInterrupt

    def _record_interrupt(self, number: int, frame: FrameType | None) -> None:
        """Remember a first interrupt; raise KeyboardInterrupt at the next."""
        if self._interrupted:
            raise KeyboardInterrupt
        self._interrupted = True
