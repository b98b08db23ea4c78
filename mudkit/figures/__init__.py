"""Figures: tables in, plotly figures and folium maps out; all of them work without a network.

A module is a kind of figure, and importing this package loads none of them. `history`, the figure of a
verdict, is at hand here by its own name.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mudkit.figures.time.histories import history

__all__ = ["history"]


def __getattr__(name: str) -> Any:
    if name == "history":
        from mudkit.figures.time.histories import history

        return history
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
