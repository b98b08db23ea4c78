"""Numbers of a progress bar of Spark's tasks, without a session."""

from __future__ import annotations

import sys
from types import SimpleNamespace

from mudkit.pipeline._progress import progress

bars = sys.modules[progress.__module__]  # the package exports the function under this name


def test_tasks_of_all_operations_of_a_connect_client_are_counted():
    """A report without stages, as at the end of an operation, leaves its last numbers."""
    handlers = []
    spark = SimpleNamespace(
        registerProgressHandler=handlers.append,
        removeProgressHandler=lambda handler: handlers.remove(handler),
    )
    source = bars._Connect(spark)
    (report,) = handlers
    report(iter([SimpleNamespace(num_completed_tasks=1, num_tasks=4)]), 1, "first", False)
    report([SimpleNamespace(num_completed_tasks=2, num_tasks=2)] * 2, 0, "second", False)
    report(None, 0, "first", True)
    assert source.counts() == (5, 8)
    source.close()
    assert handlers == []


def test_bar_is_drawn_again_with_its_new_numbers():
    """In a notebook the total of its box changes, too."""
    shown = []
    box = SimpleNamespace(children=[None, SimpleNamespace(max=2)])
    for drawn in (SimpleNamespace(n=0, total=2), SimpleNamespace(n=0, total=2, container=box)):
        drawn.refresh = lambda drawn=drawn: shown.append((drawn.n, drawn.total))
        bars._update(drawn, 3, 5)
    assert shown == [(3, 5), (3, 5)]
    assert box.children[1].max == 5
