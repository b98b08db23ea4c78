"""The one predicate language: parse, check, evaluate in Python, NumPy and SQL; and the subscription index."""

from mudkit.errors import PredicateError
from mudkit.predicates.aggregates import Aggregates
from mudkit.predicates.functions import function
from mudkit.predicates.index import SubscriptionIndex
from mudkit.predicates.language import Language
from mudkit.predicates.predicate import Predicate
from mudkit.predicates.values import Point

__all__ = ["Aggregates", "Language", "Point", "Predicate", "PredicateError", "SubscriptionIndex", "function"]
