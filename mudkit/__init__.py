"""A laboratory for one question: what should reach a phone, when, and at what cost.

Importing this package loads none of its heavy parts; take them by name, for instance
``from mudkit import Lab, show, trace, pipeline, learning``.
"""

from typing import TYPE_CHECKING, Any

from mudkit.display import show

if TYPE_CHECKING:
    from mudkit.lab import Lab

__all__ = ["Lab", "__version__", "show"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name == "Lab":
        from mudkit.lab import Lab

        return Lab
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
