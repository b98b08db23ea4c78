"""The one predicate language: parse, check, evaluate in Python, NumPy and SQL; and the subscription index."""

from typing import TYPE_CHECKING

from mudkit._lazy import lazy_exports

if TYPE_CHECKING:
    from mudkit.predicates.aggregates import Aggregates
    from mudkit.predicates.functions import function
    from mudkit.predicates.index import SubscriptionIndex
    from mudkit.predicates.language import Language
    from mudkit.predicates.layout import Column, Layout
    from mudkit.predicates.predicate import Predicate
    from mudkit.predicates.sqlite_functions import register_functions
    from mudkit.predicates.values import Point
else:
    __getattr__, __dir__ = lazy_exports(__name__)

__all__ = [
    "Aggregates",
    "Column",
    "Language",
    "Layout",
    "Point",
    "Predicate",
    "SubscriptionIndex",
    "function",
    "register_functions",
]
