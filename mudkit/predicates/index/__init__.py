"""The subscription index; :class:`mudkit.predicates.SubscriptionIndex` is its public class."""

__all__: list[str] = []
