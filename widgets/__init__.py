"""Widgets for the chapters: thin views of library calls, each with a static figure beside it."""

from mudkit.widgets.fleet_map import FleetMap

__all__ = ["FleetMap"]
