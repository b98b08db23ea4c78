"""Checker of declarative policies."""
