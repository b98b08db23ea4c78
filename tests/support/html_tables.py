"""Elements of an HTML text, and the texts of its tables."""

from __future__ import annotations

from html.parser import HTMLParser

from bs4 import BeautifulSoup


class Outline(HTMLParser):
    """Elements and words of an HTML text; checks that all elements are closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)
        if tag not in ("br", "img", "wbr"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def table_rows(html: str) -> list[list[str]]:
    """Return the texts of the cells of all tables, row by row, headings included."""
    page = BeautifulSoup(html, "html.parser")
    return [
        [cell.get_text(" ", strip=True) for cell in row.find_all(["th", "td"])] for row in page.find_all("tr")
    ]
