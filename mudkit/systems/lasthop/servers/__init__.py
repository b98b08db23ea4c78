"""Spooling server, its subscriptions, and the indexer of queries (Last hop 3)."""
