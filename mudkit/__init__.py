"""A laboratory for one question: what should reach a phone, when, and at what cost.

Importing this package loads none of its heavy parts; take them by name, for instance
``from mudkit import trace, pipeline, learning``.
"""

__all__ = ["__version__"]

__version__ = "0.1.0"
