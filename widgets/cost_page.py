"""The page of PolicyWorkbench for costs: drag a cost matrix; tree, map and measures follow."""

from __future__ import annotations

from functools import lru_cache
from html import escape
from typing import Any, Final

import ipywidgets
import numpy as np

from mudkit import figures
from mudkit.experiment import CacheBench, CachingRun, tree_nodes
from mudkit.learning import COSTS, FixedRule
from mudkit.widgets.figure import Figure
from mudkit.widgets.panel import Panel

__all__ = ["CostPage"]

_VALUES: Final = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
_OWN: Final = "own costs"
_NAMES: Final = ("good, local", "good, asked", "stale, local", "stale, asked")
"""Of the four costs: what was true of the cached answer, and what was decided; row by row."""
_MAP: Final = "Where reads were answered locally"
_NOTE: Final = (
    "What does a mistake cost? In the first row the cached answer was <b>good</b>, in the second "
    "<b>stale</b>; on the left it was taken (<b>local</b>), on the right the server was <b>asked</b>. Each "
    "leaf of the tree decides what costs least, and the tree is cut back to what other devices bear out. "
    "Arrow keys move a slider."
)


class CostPage(Panel):
    """Drag the four costs of a read; the tree, the map of local answers and the measures follow at once.

    Trees were grown before; each change cuts and replays them. What is shown was decided for each device by
    trees that have not seen it; the tree that is drawn has seen all, as one that is shipped.

    Parameters
    ----------
    bench : CacheBench
    rule : FixedRule
        The rule to compare with.
    cost : str
        A preset of :data:`mudkit.learning.COSTS`, at first.

    Attributes
    ----------
    preset : ipywidgets.Dropdown
    costs : tuple of ipywidgets.SelectionSlider
        Row by row: good, stale; columns local, remote.
    status, tree : ipywidgets.HTML
        What is sent and stale now, with the fixed rule, and at best; the tree, line by line.
    map : Figure
    """

    def __init__(self, bench: CacheBench, *, rule: FixedRule | None = None, cost: str = "latency") -> None:
        self._tried = lru_cache(maxsize=256)(
            lambda costs: bench.run(np.array(costs, dtype=np.float64).reshape(2, 2))
        )
        rule = rule or FixedRule()
        tried = bench.run(rule)
        self._rule = f"the rule {rule}: {_shares(tried)}"
        self.preset = ipywidgets.Dropdown(options=[*COSTS, _OWN], value=cost, description="costs")
        self.costs = tuple(
            _slider(name, value) for name, value in zip(_NAMES, COSTS[cost].table().ravel(), strict=True)
        )
        self.status = ipywidgets.HTML()
        self.tree = ipywidgets.HTML()
        self._best = bench.bound(tried.stale_share)["sent_share"].iloc[-1]
        now = self._now()
        # Whole from the first on: a figure is not shown before. One only: of several, JupyterLab leaves the
        # others empty.
        where = figures.cache_hits(figures.reads_near_busiest(now.reads), title=_MAP)
        self.map = Figure(where)
        self._tell(now)
        self._is_changing = False
        self.preset.observe(lambda _: self._choose(), names="value")
        for each in self.costs:
            each.observe(lambda _: self._dragged(), names="value")
        rows = [ipywidgets.HBox(self.costs[at : at + 2]) for at in (0, 2)]
        super().__init__([ipywidgets.HTML(_NOTE), self.preset, *rows, self.status, self.tree, self.map])
        self.add_class("mudkit-cost-page")

    def _choose(self) -> None:
        """Take a preset."""
        if self.preset.value == _OWN:
            return
        self._is_changing = True
        for each, value in zip(self.costs, COSTS[self.preset.value].table().ravel(), strict=True):
            each.value = float(value)
        self._is_changing = False
        self._show()

    def _dragged(self) -> None:
        if self._is_changing:
            return
        self._is_changing = True
        self.preset.value = _OWN
        self._is_changing = False
        self._show()

    def _now(self) -> CachingRun:
        return self._tried(tuple(each.value for each in self.costs))

    def _show(self) -> None:
        now = self._now()
        self._tell(now)
        with self.map.batch_update():
            figures.update_cache_hits(self.map, figures.reads_near_busiest(now.reads), title=_MAP)

    def _tell(self, now: CachingRun) -> None:
        assert now.learnt is not None  # only the rule has no tree
        table = tree_nodes(now.learnt)
        leaves = int(table["leaves"].iloc[0])
        self.status.value = (
            f"<div role='status'><b>the tree: {_shares(now)}</b>; {self._rule}; as stale as the rule, nobody "
            f"sends less than {self._best:.1%}.</div>"
        )
        self.tree.value = (
            f"<b>The tree that would be shipped: {leaves} {'leaf' if leaves == 1 else 'leaves'}</b>"
            f"<pre class='mudkit-tree'>{escape(figures.tree_outline(table))}</pre>"
        )


def _shares(tried: CachingRun) -> str:
    return (
        f"{tried.sent_share:.1%} sent, {tried.stale_share:.1%} stale, completeness {tried.completeness:.1%}"
    )


def _slider(name: str, value: Any) -> Any:
    options = sorted({*_VALUES, float(value)})
    return ipywidgets.SelectionSlider(
        options=[(f"{each:g}", each) for each in options],
        value=float(value),
        description=name,
        tooltip="arrow keys move it",
        layout={"width": "24em"},
    )
