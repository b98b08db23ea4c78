"""Draw the picture of the five systems on one fleet, and where each of them decides.

Usage: python tools/picture.py [FILE]    docs/systems.svg by default
"""

from __future__ import annotations

import sys
from pathlib import Path
from xml.sax.saxutils import escape

PLACES = ("who sends", "in between", "who receives")
# Of each system: what it is called, and what is done in each place; a star marks where it decides.
SYSTEMS = (
    ("MUD", "one table", (
        "* writes a row, and who|may see it", "finds those who read it,|late, by both predicates",
        "* answers from its cache,|or asks: a tree decides",
    )),
    ("Last hop", "prefetching", (
        "gives each message a rank|and an end", "* forwards as much as|is likely to be read",
        "reads the best, without|a network, too",
    )),
    ("Contrail", "sender filters", (
        "* runs the receiver's|filter, and encrypts", "relays ciphertext that|it cannot read",
        "says what it wants,|decrypts what comes",
    )),
    ("Radiator", "aggregation", (
        "tells its context", "* holds and joins, by the|contexts of both sides",
        "gets aggregates, passes|them along a chain",
    )),
    ("SUBLIM", "stateful policies", (
        "publishes once, for all", "* rewrites each message by|the subscriber's state",
        "reports battery, link|and display",
    )),
)  # fmt: skip
SHARED = ("one fleet", "one trace", "one predicate language", "one bill, one seed")

NAMES_PX, CELL_PX, GAP_PX, LANE_PX, HEAD_PX = 150, 232, 18, 72, 66
WIDTH_PX = NAMES_PX + 3 * (CELL_PX + GAP_PX) + GAP_PX
HEIGHT_PX = HEAD_PX + len(SYSTEMS) * LANE_PX + 78
INK, PALE, DECIDES, EDGE = "#1f2328", "#57606a", "#fff1c2", "#d0a215"


def text(x: float, y: float, words: str, *, size: int = 14, ink: str = INK, more: str = "") -> str:
    """Return a line of text around a place."""
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{ink}" {more}>{escape(words)}</text>'


def box(x: float, y: float, width: float, height: float, fill: str, edge: str) -> str:
    """Return a rectangle with rounded corners."""
    size = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="8"'
    return f'<rect {size} fill="{fill}" stroke="{edge}"/>'


def cell(x: float, y: float, words: str) -> list[str]:
    """Draw the actions in one place: a box of one or two lines."""
    lines = words.removeprefix("* ").split("|")
    decides = words.startswith("* ")
    middle = y + (LANE_PX - 14) / 2 + 5
    drawn = [box(x, y, CELL_PX, LANE_PX - 14, *((DECIDES, EDGE) if decides else ("#ffffff", "#d0d7de")))]
    for number, line in enumerate(lines):
        at = middle + 18 * (number - (len(lines) - 1) / 2)
        drawn.append(text(x + CELL_PX / 2, at, line, more='text-anchor="middle"'))
    return drawn


def picture() -> str:
    """Return the picture as SVG."""
    drawn = [box(0.5, 0.5, WIDTH_PX - 1, HEIGHT_PX - 1, "#f6f8fa", "#d0d7de")]
    lefts = [NAMES_PX + GAP_PX + number * (CELL_PX + GAP_PX) for number in range(3)]
    for left, place in zip(lefts, PLACES, strict=True):
        more = 'text-anchor="middle" font-weight="bold"'
        drawn.append(text(left + CELL_PX / 2, 32, place, size=16, more=more))
    drawn.append(text(lefts[1] + CELL_PX / 2, 52, "yellow: here it is decided", size=12, ink=PALE,
                      more='text-anchor="middle"'))  # fmt: skip
    for number, (name, does, cells) in enumerate(SYSTEMS):
        top = HEAD_PX + number * LANE_PX
        drawn += [
            text(GAP_PX, top + 26, name, size=17, more='font-weight="bold"'),
            text(GAP_PX, top + 45, does, size=13, ink=PALE),
        ]
        for left, words in zip(lefts, cells, strict=True):
            drawn += cell(left, top, words)
        for left in lefts[1:]:
            y = top + (LANE_PX - 14) / 2
            drawn.append(
                f'<path d="M{left - GAP_PX + 2} {y:g}h{GAP_PX - 6}l-5 -4m5 4l-5 4" fill="none" '
                f'stroke="{PALE}" stroke-width="1.5"/>'
            )
    top = HEAD_PX + len(SYSTEMS) * LANE_PX + 8
    drawn.append(box(GAP_PX, top, WIDTH_PX - 2 * GAP_PX, 48, "#ddf4ff", "#54aeff"))
    step = (WIDTH_PX - 2 * GAP_PX) / len(SHARED)
    for number, words in enumerate(SHARED):
        more = 'text-anchor="middle" font-weight="bold"'
        drawn.append(text(GAP_PX + step * (number + 0.5), top + 30, words, size=15, more=more))
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH_PX} {HEIGHT_PX}" width="{WIDTH_PX}" '
        f'height="{HEIGHT_PX}" font-family="system-ui, sans-serif" role="img">'
    )
    title = "<title>Five systems on one fleet, and where each of them decides</title>"
    return "\n".join([head, title, *drawn, "</svg>", ""])


if __name__ == "__main__":
    Path(sys.argv[1] if len(sys.argv) > 1 else "docs/systems.svg").write_text(picture(), encoding="utf-8")
