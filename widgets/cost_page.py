"""Page of PolicyWorkbench for costs: change a cost matrix; tree, map and measures follow."""

from __future__ import annotations

from functools import lru_cache
from html import escape
from typing import Any, Final

import ipywidgets
import numpy as np

from mudkit import figures
from mudkit.learning import COSTS, FixedRule, tree_nodes
from mudkit.widgets.panel import Figure, Panel, guide
from mudkit.worlds import CacheBench, CachingRun

_VALUES: Final = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
_OWN: Final = "own costs"
_NAMES: Final = ("good, local", "good, asked", "stale, local", "stale, asked")
"""Names of the four costs, by row: state of the cached answer, and decision."""
_MAP: Final = "Where reads were answered locally"
_NOTE: Final = (
    "What does a mistake cost? In the first row the cached answer was <b>good</b>, in the second "
    "<b>stale</b>; on the left it was used (<b>local</b>), on the right the server was <b>asked</b>. Each "
    "leaf of the tree chooses the decision with the lowest cost, and the tree is pruned by data of other "
    "devices. Arrow keys move a slider."
)


class CostPage(Panel):
    """Change the four costs of a read; the tree, the map of local answers and the measures follow at once.

    The trees are grown in advance; each change prunes and replays them. The measures of each device are from
    trees trained without it; the tree shown is trained on all devices, like one that is shipped.

    Parameters
    ----------
    bench : CacheBench
    rule : FixedRule
        Rule for comparison.
    cost : str
        Initial preset, one of :data:`mudkit.learning.COSTS`.

    Attributes
    ----------
    preset : ipywidgets.Dropdown
    costs : tuple of ipywidgets.SelectionSlider
        By row: good, stale; columns: local, remote.
    status, tree : ipywidgets.HTML
        Shares sent and stale now, with the fixed rule, and at best; the tree as text.
    map : Figure
    """

    def __init__(self, bench: CacheBench, *, rule: FixedRule | None = None, cost: str = "latency") -> None:
        self._run = lru_cache(maxsize=256)(
            lambda costs: bench.run(np.array(costs, dtype=np.float64).reshape(2, 2))
        )
        rule = rule or FixedRule()
        fixed = bench.run(rule)
        self._rule = f"the rule {rule}: {_shares(fixed)}"
        self.preset = ipywidgets.Dropdown(options=[*COSTS, _OWN], value=cost, description="costs")
        self.costs = tuple(
            _slider(name, value) for name, value in zip(_NAMES, COSTS[cost].table().ravel(), strict=True)
        )
        self.status = ipywidgets.HTML()
        self.tree = ipywidgets.HTML()
        self._best = bench.bound(fixed.stale_share)["sent_share"].iloc[-1]
        now = self._now()
        # Complete from the start, because an empty figure is not shown. Only one, because JupyterLab leaves
        # further ones empty.
        where = figures.cache_hits(figures.reads_near_busiest(now.reads), title=_MAP)
        self.map = Figure(where)
        self._show_texts(now)
        self._is_changing = False
        self.preset.observe(lambda _: self._choose(), names="value")
        for slider in self.costs:
            slider.observe(lambda _: self._on_drag(), names="value")
        rows = [ipywidgets.HBox(self.costs[at : at + 2]) for at in (0, 2)]
        super().__init__([guide(_NOTE), self.preset, *rows, self.status, self.tree, self.map])
        self.add_class("mudkit-cost-page")

    def _choose(self) -> None:
        """Apply the chosen preset."""
        if self.preset.value == _OWN:
            return
        self._is_changing = True
        for slider, value in zip(self.costs, COSTS[self.preset.value].table().ravel(), strict=True):
            slider.value = float(value)
        self._is_changing = False
        self._show()

    def _on_drag(self) -> None:
        """Handle a moved slider: the preset is no longer one of the named ones."""
        if self._is_changing:
            return
        self._is_changing = True
        self.preset.value = _OWN
        self._is_changing = False
        self._show()

    def _now(self) -> CachingRun:
        """Return the run for the present costs, replayed unless it was before."""
        return self._run(tuple(slider.value for slider in self.costs))

    def _show(self) -> None:
        """Update the map and all texts for the present costs."""
        now = self._now()
        self._show_texts(now)
        with self.map.batch_update():
            figures.update_cache_hits(self.map, figures.reads_near_busiest(now.reads), title=_MAP)

    def _show_texts(self, now: CachingRun) -> None:
        """Update the status and the outline of the tree."""
        assert now.learnt is not None  # only a rule has no tree
        table = tree_nodes(now.learnt)
        leaves = int(table["leaves"].iloc[0])
        self.status.value = (
            f"<div role='status'><b>the tree: {_shares(now)}</b>; {self._rule}; at the staleness of the "
            f"rule, the minimum is {self._best:.1%} sent.</div>"
        )
        self.tree.value = (
            f"<b>Tree trained on all devices: {leaves} {'leaf' if leaves == 1 else 'leaves'}</b>"
            f"<pre class='mudkit-tree'>{escape(figures.tree_outline(table))}</pre>"
        )


def _shares(run: CachingRun) -> str:
    """Return the measures of a run in words."""
    return f"{run.sent_share:.1%} sent, {run.stale_share:.1%} stale, completeness {run.completeness:.1%}"


def _slider(name: str, value: Any) -> Any:
    """Build a slider of costs; a value between its values is inserted."""
    options = sorted({*_VALUES, float(value)})
    return ipywidgets.SelectionSlider(
        options=[(f"{cost:g}", cost) for cost in options],
        value=float(value),
        description=name,
        tooltip="arrow keys move it",
        layout={"width": "24em"},
    )
