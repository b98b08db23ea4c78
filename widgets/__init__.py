"""Widgets for the chapters: thin views of library calls, each with a static figure beside it."""

from mudkit.widgets.fleet_map import FleetMap
from mudkit.widgets.policy_workbench import PolicyWorkbench
from mudkit.widgets.prefetch_lab import PrefetchLab
from mudkit.widgets.propagation_map import PropagationMap
from mudkit.widgets.relay_monitor import RelayMonitor
from mudkit.widgets.scoreboard import Scoreboard
from mudkit.widgets.table_browser import TableBrowser
from mudkit.widgets.views_explorer import ViewsExplorer

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
