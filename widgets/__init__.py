"""Widgets for the chapters: thin views of library calls."""

__all__: list[str] = []
