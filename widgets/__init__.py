"""Widgets for the chapters: views of library calls, each with a static figure for exported pages."""

from typing import TYPE_CHECKING

from mudkit._lazy import lazy_exports

if TYPE_CHECKING:
    from mudkit.widgets.fleet_map import FleetMap
    from mudkit.widgets.policy_workbench import PolicyWorkbench
    from mudkit.widgets.prefetch_lab import PrefetchLab
    from mudkit.widgets.propagation_map import PropagationMap
    from mudkit.widgets.relay_monitor import RelayMonitor
    from mudkit.widgets.scoreboard import Scoreboard
    from mudkit.widgets.table_browser import TableBrowser
    from mudkit.widgets.views_explorer import ViewsExplorer
else:
    __getattr__, __dir__ = lazy_exports(__name__)

__all__ = [
    "FleetMap",
    "PolicyWorkbench",
    "PrefetchLab",
    "PropagationMap",
    "RelayMonitor",
    "Scoreboard",
    "TableBrowser",
    "ViewsExplorer",
]
