"""What a message diagram says of a message, and of itself."""

from __future__ import annotations

import html
import textwrap
from typing import Any

import numpy as np
import pandas as pd

from mudkit.figures.base.clock import NO_TIME, TimeAxis

__all__ = ["MAX_LABELS", "clock_time", "details", "escaped", "short_text", "subtitle_of"]


MAX_LABELS = 40
"""Above this number of messages their labels are left out; the pointer shows them."""


def details(message: Any, several: bool) -> str:
    """Say everything about a message, in plotly's HTML."""
    to = message.target if message.target is not None else "nobody"
    lines = [
        f"<b>{escaped(short_text(message))}, {message.fate}</b>",
        f"{escaped(message.source)} → {escaped(to)}",
    ]
    lines += [f"sent {clock_time(message.sent_us)} UTC"]
    if message.ended_us != NO_TIME:
        took = (message.ended_us - message.sent_us) / 1e3
        lines += [f"ended {clock_time(message.ended_us)} UTC, {took:,.{0 if took >= 100 else 1}f} ms later"]
    lines += [f"system {escaped(message.system)}"] if several else []
    lines += [f"key {escaped(message.key)}"] if message.key is not None else []
    wrapped = textwrap.wrap(message.content, 60, max_lines=6, placeholder=" …")
    return "<br>".join([*lines, *map(escaped, wrapped)])


def subtitle_of(count: int, drawn: pd.DataFrame, low_us: int, high_us: int) -> str:
    """Say how many messages a diagram shows, and of when."""
    number = f"{count:,} message{'s' if count > 1 else ''}"
    if count > len(drawn):
        number = f"the first {len(drawn):,} of {number}"
    subtitle = f"{number}, {TimeAxis(low_us, high_us).span}"
    return subtitle if len(drawn) <= MAX_LABELS else f"{subtitle}; the pointer shows what each is"


def short_text(message: Any) -> str:
    """Name a message and its size."""
    return f"{message.kind or 'message'} {message.size_bytes:,} B"


def clock_time(t_us: int) -> str:
    """Write a time of day to the ms, always."""
    return str(np.datetime64(t_us, "us").astype("datetime64[ms]")).replace("T", " ")


def escaped(text: str) -> str:
    """Write a text so that plotly takes it for no HTML."""
    return html.escape(text, quote=False)
