"""The subscription index."""

from mudkit.predicates.index.subscriptions import SubscriptionIndex

__all__ = ["SubscriptionIndex"]
