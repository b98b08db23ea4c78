"""The one predicate language: parse, check, evaluate in Python, NumPy and SQL; and the subscription index."""

from mudkit.predicates.aggregates import Aggregates
from mudkit.predicates.functions import function
from mudkit.predicates.index import SubscriptionIndex
from mudkit.predicates.language import Language
from mudkit.predicates.layout import Column, Layout
from mudkit.predicates.predicate import Predicate
from mudkit.predicates.sqlite_functions import register
from mudkit.predicates.values import Point

__all__ = [
    "Aggregates",
    "Column",
    "Language",
    "Layout",
    "Point",
    "Predicate",
    "SubscriptionIndex",
    "function",
    "register",
]
