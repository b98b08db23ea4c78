"""Which messages of a run a figure is to show: a window of time, and filters."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pandas as pd

from mudkit.errors import ParameterError, TraceContentError
from mudkit.figures.base.clock import NO_TIME, as_us, needed, times_us, written
from mudkit.trace.schema import FATES

__all__ = ["Choice", "prepared"]


@dataclass(frozen=True)
class Choice:
    """Which messages are asked for.

    Parameters
    ----------
    start_us, end_us : int or None
        The window, both ends in it.
    devices, kinds : list of str or None
        Senders or receivers, and kinds.
    key : str or None
        The messages' key, or a text in their content.
    """

    start_us: int | None
    end_us: int | None
    devices: list[str] | None
    key: str | None
    kinds: list[str] | None

    @classmethod
    def of(
        cls, start: Any, end: Any, devices: Iterable[str] | None, key: str | None, kinds: Iterable[str] | None
    ) -> Choice:
        """Read what a caller gave.

        Raises
        ------
        ParameterError
            A time is none, the window ends before it starts, or a text stands for a list.
        """
        first = None if start is None else as_us(start, "start")
        last = None if end is None else as_us(end, "end")
        if first is not None and last is not None and last < first:
            raise ParameterError(
                "The window ends before it starts.",
                where="start, end",
                found=f"{written(first, date=True)} to {written(last, date=True)} UTC",
                expected="start <= end",
            )
        for name, given in (("devices", devices), ("kinds", kinds)):
            if isinstance(given, str):
                raise ParameterError(
                    "A text is not a list of names.", where=name, found=repr(given), expected=f"[{given!r}]"
                )
        return cls(
            first,
            last,
            None if devices is None else [str(name) for name in devices],
            None if key is None else str(key),
            None if kinds is None else [str(name) for name in kinds],
        )

    def apply(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return the messages that are asked for, by time.

        Raises
        ------
        TraceContentError
            There is none.
        """
        inside = pd.Series(True, index=table.index)
        if self.start_us is not None:
            inside &= (table["ended_us"] == NO_TIME) | (table["ended_us"] >= self.start_us)
        if self.end_us is not None:
            inside &= table["sent_us"] <= self.end_us
        fits = pd.Series(True, index=table.index)
        if self.devices is not None:
            fits &= table["source"].isin(self.devices) | table["target"].isin(self.devices)
        if self.key is not None:
            has_key = table["key"] == self.key
            # Where no message has it as its key, it may be another word of theirs.
            fits &= has_key if has_key.any() else table["content"].str.contains(self.key, regex=False)
        if self.kinds is not None:
            fits &= table["kind"].isin(self.kinds)
        if not (inside & fits).any():
            self._refuse(table, int(inside.sum()), int(fits.sum()))
        return table[inside & fits].sort_values("sent_us", kind="stable", ignore_index=True)

    def _refuse(self, table: pd.DataFrame, inside: int, fits: int) -> None:
        first, last = (
            "the run's beginning" if self.start_us is None else written(self.start_us, date=True) + " UTC",
            "its end" if self.end_us is None else written(self.end_us, date=True) + " UTC",
        )
        filters = [
            f"{name} {', '.join(given)}"
            for name, given in (("devices", self.devices), ("kinds", self.kinds))
            if given is not None
        ]
        filters += [] if self.key is None else [f"key {self.key}"]
        what_came = "no messages at all"
        if len(table):
            sent = table["sent_us"]
            what_came = (
                f"{inside:,} messages in the window and {len(table) - inside:,} outside it; {fits:,} in the "
                f"whole run fit the filters; the first of all was sent "
                f"{written(int(sent.min()), date=True)}, the last {written(int(sent.max()), date=True)} UTC"
            )
        raise TraceContentError(
            "No message is in this window and fits these filters.",
            where=f"from {first} to {last}; {'; '.join(filters) or 'no filters'}",
            found=what_came,
            expected="at least one message",
            remedy="widen the window, or leave a filter out",
        )


def prepared(messages: pd.DataFrame) -> pd.DataFrame:
    """Take what is drawn out of a table, texts as texts and times as microseconds.

    Raises
    ------
    ParameterError
        The table lacks a column.
    TraceContentError
        A message has a fate that mudkit does not know.
    """
    columns = ("source", "target", "sent", "ended", "size_bytes", "fate", "kind", "key", "content")
    table = needed(messages, "messages", columns)
    unknown = sorted(set(table["fate"].astype(str)) - set(FATES))
    if unknown:
        raise TraceContentError(
            "Messages have fates that mudkit does not know.",
            where="messages, column fate",
            found=", ".join(unknown[:5]),
            expected=f"one of {', '.join(FATES)}",
        )
    texts = ("source", "target", "kind", "key", "content")
    # None and not NaN for a null: NaN is true, and would be a lane.
    plain = {name: [None if pd.isna(value) else str(value) for value in table[name]] for name in texts}
    return pd.DataFrame(
        {name: pd.Series(values, dtype=object) for name, values in plain.items()}
        | {
            "sent_us": times_us(table, "sent", "messages"),
            "ended_us": times_us(table, "ended", "messages"),
            "size_bytes": table["size_bytes"].to_numpy(),
            "fate": table["fate"].astype(str).to_numpy(),
            "system": table["system"].astype(str).to_numpy() if "system" in table.columns else "",
        }
    ).assign(content=lambda rows: rows["content"].fillna(""))
