"""Texts of the tables of an HTML page."""

from __future__ import annotations

from bs4 import BeautifulSoup

__all__ = ["table_rows"]


def table_rows(html: str) -> list[list[str]]:
    """Return the texts of the cells of all tables, row by row, headings included."""
    page = BeautifulSoup(html, "html.parser")
    return [
        [cell.get_text(" ", strip=True) for cell in row.find_all(["th", "td"])] for row in page.find_all("tr")
    ]
