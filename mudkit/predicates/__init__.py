"""The language of predicates: parser, evaluators for Python, NumPy and Spark, and subscription index.

``tokens`` splits a text, ``parse`` builds its ``tree``, ``predicate`` adds constants and caches what equal
shapes share. ``functions`` is the reference for each function; ``python``, ``vectors`` and ``spark``
evaluate a tree, and ``index`` finds the subscriptions that match a record.
"""

from typing import TYPE_CHECKING

from mudkit._lazy import lazy_exports

if TYPE_CHECKING:
    from mudkit.predicates.expressions import Aggregates
    from mudkit.predicates.functions import function
    from mudkit.predicates.index.subscriptions import SubscriptionIndex
    from mudkit.predicates.language import Language
    from mudkit.predicates.layout import Column, Layout
    from mudkit.predicates.predicate import Predicate
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
]
