"""Deliveries: what became of each item for each of its receivers, put together from what machines record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from mudkit.errors import SimulationProblem

__all__ = ["Deliveries"]

_CREATED, _DELIVERED, _READ, _EXPIRED, _REFUSED = range(5)
_FIELDS: Final = {
    "created_us": _CREATED,
    "delivered_us": _DELIVERED,
    "read_us": _READ,
    "expired_us": _EXPIRED,
    "refused_us": _REFUSED,
}


class Deliveries:
    """One row per (system, item, receiver); what is noted of one is put into its row."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str, str], list[int | None]] = {}

    def note(self, system: str, row: Mapping[str, Any]) -> bool:
        """Note something of an item.

        Parameters
        ----------
        system : str
        row : mapping
            ``item``, ``receiver``, and some of ``created_us``, ``delivered_us``, ``read_us``, ``refused_us``
            (of each the earliest counts), ``expired_us`` (when it will be, or was: the last that is noted
            counts): virtual times.

        Returns
        -------
        bool
            Whether the item has been created so far.

        Raises
        ------
        SimulationProblem
            A field is missing or unknown, or a time is none.
        """
        times = {name: row[name] for name in _FIELDS if row.get(name) is not None}
        unknown = set(row) - {"item", "receiver", *_FIELDS}
        if unknown or not {"item", "receiver"} <= set(row) or not all(map(_is_time, times.values())):
            raise SimulationProblem(
                "A machine has recorded a delivery that cannot be read.",
                where=system,
                found=", ".join(f"{name}: {value!r}" for name, value in row.items()),
                expected=f"item, receiver, and some of {', '.join(_FIELDS)} in whole µs",
            )
        known = self._rows.setdefault((system, str(row["item"]), str(row["receiver"])), [None] * 5)
        for name, time_us in times.items():
            place = _FIELDS[name]
            before_us = known[place]
            if before_us is None or place == _EXPIRED or time_us < before_us:
                known[place] = time_us
        return known[_CREATED] is not None

    def rows(self, now_us: int) -> Iterator[tuple[Any, ...]]:
        """Give the rows in the columns of the trace's table, sorted by creation, system, item and receiver.

        An item that nobody has created has no row: a peer can say of anything that it is an item.
        """
        created_only = [(key, times) for key, times in self._rows.items() if times[_CREATED] is not None]
        in_order = sorted(created_only, key=lambda each: (each[1][_CREATED] or 0, each[0]))
        for key, (created, delivered, read, expired, refused) in in_order:
            assert created is not None
            latency_s = None if delivered is None else (delivered - created) / 1e6
            staleness_s = None if read is None else (read - created) / 1e6
            over = expired is not None and expired <= now_us
            if refused is not None:
                status = "refused"
            elif read is not None and (expired is None or read <= expired):
                status = "read"
            elif over:
                status = "expired"
            else:
                status = "lost" if delivered is None else "unread"
            yield (*key, created, delivered, read, expired, latency_s, staleness_s, status)


def _is_time(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
