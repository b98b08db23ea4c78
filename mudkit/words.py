"""Numbers as people read them, and the labels of table columns.

Numbers have three significant digits and thousands separators, never an exponent. A share that is not
exactly none or all is never rounded to 0 % or 100 %.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

NO_VALUE: Final = "–"
_MAX_DECIMALS: Final = 6
_UNITS_S: Final = (("d", 86_400.0), ("h", 3600.0), ("min", 60.0))
_SIZES: Final = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3))


def decimals(values: Iterable[float], digits: int = 3) -> int:
    """Return the decimal places that give the largest of some numbers its significant digits.

    Zeros that all numbers would end in are not counted.
    """
    finite = [abs(value) for value in values if math.isfinite(value)]
    largest = max(finite, default=0.0)
    if largest == 0.0:
        return 0
    places = min(max(digits - 1 - math.floor(math.log10(largest)), 0), _MAX_DECIMALS)
    texts = [f"{value:.{places}f}" for value in finite]
    while places and all(text.endswith("0") for text in texts):
        places -= 1
        texts = [text[:-1] for text in texts]
    return places


def number(value: float, places: int | None = None) -> str:
    """Return a number with three significant digits, or with a number of decimal places.

    A number that would be shown as zero and is none gets the places that it needs, at most six.
    """
    if math.isnan(value):
        return NO_VALUE
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if places is None:
        places = decimals([value])
    text = f"{abs(value):,.{places}f}"
    if value != 0 and not text.strip("0.,"):
        if abs(value) < 10.0**-_MAX_DECIMALS:
            smallest = f"{10.0**-_MAX_DECIMALS:.{_MAX_DECIMALS}f}"
            return f"<{smallest}" if value > 0 else f">−{smallest}"
        text = f"{abs(value):.{decimals([value], 1)}f}"
    return f"−{text}" if value < 0 and text.strip("0.,") else text


def count(value: float, one: str = "", many: str = "") -> str:
    """Return a number with its noun: ``count(1, "day")``, ``count(4.5, "box", "boxes")``.

    It is shown as :func:`number` does, and the noun is that of what is shown.
    """
    text = number(value)
    noun = one if text == "1" else many or f"{one}s" if one else ""
    return f"{text} {noun}".rstrip()


def percent(share: float, places: int | None = None) -> str:
    """Return a share in percent; "<0.1 %" and ">99.9 %" where rounding would say none or all.

    With ``places`` all but none and all have as many.
    """
    if not math.isfinite(share):
        return NO_VALUE
    scaled = 100 * share
    is_free = places is None
    if places is None:
        places = 0 if abs(scaled) >= 10 and abs(100 - scaled) >= 1 else 1
    smallest, rounded = 10.0**-places, round(scaled, places)
    if rounded == 0 < scaled:
        return f"<{smallest:.{places}f} %"
    if scaled < 100 == rounded:
        return f">{100 - smallest:.{places}f} %"
    text = number(rounded, places)
    if (is_free or scaled in (0, 100)) and "." in text:
        text = text.rstrip("0").rstrip(".")
    return f"{text} %"


def difference(value: float, unit: str = "points") -> str:
    """Return a difference with its sign: ``+3 points``, ``−1.5 points``, ``no difference``."""
    if math.isnan(value):
        return NO_VALUE
    if value == 0:
        return "no difference"
    return f"{'+' if value > 0 else ''}{number(value)} {unit.removesuffix('s') if abs(value) == 1 else unit}"


def duration(seconds: float) -> str:
    """Return a duration in its two largest units: ``2 h 5 min``, ``4.2 s``, ``250 ms``."""
    if not math.isfinite(seconds):
        return NO_VALUE if math.isnan(seconds) else "for ever"
    sign, left = "−" if seconds < 0 else "", abs(seconds)
    if left < 1:
        return f"{sign}{number(1000 * left)} ms" if left else "0 s"
    if left < 59.95:
        return f"{sign}{number(left)} s"
    units = (*_UNITS_S, ("s", 1.0))
    smallest_s = next(
        (smaller_s for (_, length_s), (_, smaller_s) in pairwise(units) if left >= length_s - 0.5), 1.0
    )
    left = math.floor(left / smallest_s + 0.5) * smallest_s
    parts = []
    for unit, length_s in units:
        whole, left = divmod(left, length_s)
        if whole:
            parts.append(f"{whole:,.0f} {unit}")
        elif parts:
            break
    return sign + " ".join(parts)


def distance(km: float) -> str:
    """Return a distance: ``1.25 km``, ``15.5 m``."""
    return f"{number(km)} km" if not 0 < abs(km) < 0.9995 else f"{number(1000 * km)} m"


def size(size_bytes: float) -> str:
    """Return a size in bytes with a decimal unit: ``512 B``, ``44.6 kB``, ``4.8 MB``."""
    for unit, length in _SIZES:
        if abs(size_bytes) >= 0.9995 * length:
            return f"{number(size_bytes / length)} {unit}"
    return f"{number(size_bytes)} B"


def interval(low: float, high: float, places: int | None = None) -> str:
    """Return an interval: ``81 to 88``."""
    places = decimals([low, high]) if places is None else places
    return f"{number(low, places)} to {number(high, places)}"


def span(low: float, high: float, shown: Callable[[float], str]) -> str:
    """Return a range of figures, or the one that both are: ``61 to 100 %``, ``20 km``."""
    ends = shown(low), shown(high)
    return ends[0] if ends[0] == ends[1] else f"{ends[0].removesuffix(' %')} to {ends[1]}"


def listing(names: Iterable[str], most: int = 5) -> str:
    """Return names with commas, and how many are left out."""
    named = list(names)
    text = ", ".join(named[:most])
    return text if len(named) <= most else f"{text} and {len(named) - most:,} more"


def joined(names: Sequence[str], conjunction: str = "and") -> str:
    """Return all of one or more names as in a sentence: ``a, b and c``."""
    *most, last = names
    return f"{', '.join(most)} {conjunction} {last}" if most else last


def capitalise(text: str) -> str:
    """Return a text with a capital as its first letter, to begin a sentence; the others stay."""
    return text[:1].upper() + text[1:]


def quoted(name: str) -> str:
    """Return a name; one that reads like a phrase stands in quotes."""
    return f"“{name}”" if name.islower() else name


@dataclass(frozen=True)
class Label:
    """Heading of a column, its unit, and the factor from the column's unit to the one that is shown."""

    words: str
    unit: str = ""
    scale: float = 1.0

    @property
    def title(self) -> str:
        """Title of an axis or a row: the words, and the unit that is shown."""
        return f"{self.words}, {self.unit}" if self.unit else self.words


_SUFFIXES: Final[Mapping[str, Label]] = {
    "_share": Label("", "%", 100.0),
    "_percent": Label("", "%"),
    "_per_day": Label("", "a day"),
    "_per_hour": Label("", "an hour"),
    "_per_read": Label("", "a read"),
    "_us": Label("", "s", 1e-6),
    "_ms": Label("", "ms"),
    "_s": Label("", "s"),
    "_min": Label("", "min"),
    "_minutes": Label("", "min"),
    "_hours": Label("", "h"),
    "_days": Label("", "days"),
    "_bytes": Label("", "kB", 1e-3),
    "_kb": Label("", "kB"),
    "_mb": Label("", "MB"),
    "_mj": Label("", "J", 1e-3),
    "_j": Label("", "J"),
    "_kj": Label("", "kJ"),
    "_mw": Label("", "mW"),
    "_w": Label("", "W"),
    "_wh": Label("", "Wh"),
    "_km": Label("", "km"),
    "_m": Label("", "m"),
    "_kmh": Label("", "km/h"),
}
"""Unit and scale of a column by the end of its name, longest ends first."""

_labels: dict[str, Label] = {
    "lat": Label("latitude", "°"),
    "lon": Label("longitude", "°"),
    "ts": Label("time"),
    "user_id": Label("device"),
    "up_bytes": Label("sent by devices", "kB", 1e-3),
    "down_bytes": Label("received by devices", "kB", 1e-3),
    "radio_mj": Label("radio", "J", 1e-3),
    "latency_s": Label("time to arrive", "s, median"),
    "staleness_s": Label("time until read", "s, median"),
    "wakeups": Label("wake-ups"),
    "completeness": Label("complete", "%", 100.0),
    "stale_share": Label("stale", "% of reads", 100.0),
    "sent_share": Label("sent", "% of reads", 100.0),
    "missed_share": Label("missed", "% of records", 100.0),
    "wasted_share": Label("wasted", "% of messages", 100.0),
    "server_kb": Label("sent by servers", "kB"),
    "battery_h": Label("battery", "h"),
}
"""Labels that do not follow from the name of their column: of what several modules make, and added ones."""


def add_labels(labels: Mapping[str, Label]) -> None:
    """Add labels of columns that do not follow from their names; the only module that makes one calls this.

    Labels of columns that several modules make are in this module.
    """
    for column, added in labels.items():
        if _labels.setdefault(column, added) != added:
            raise ValueError(f"{column} has the label {_labels[column].title!r}, not {added.title!r}")


def label(column: str) -> Label:
    """Return the label of a column: an added one, or what follows from the unit that its name ends in."""
    if column in _labels:
        return _labels[column]
    for suffix in sorted(_SUFFIXES, key=len, reverse=True):
        if column.endswith(suffix) and column != suffix:
            return replace(_SUFFIXES[suffix], words=column.removesuffix(suffix).replace("_", " "))
    return Label(column.replace("_", " "))


def axis_title(column: str) -> str:
    """Return the title of an axis of a column's values, without the unit if that has another scale."""
    shown = label(column)
    return shown.title if shown.scale == 1.0 else shown.words
