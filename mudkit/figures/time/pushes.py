"""What kinds of messages Radiator's are, for message diagrams: labs record bytes only by their beginning."""

from __future__ import annotations

import base64
import re
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["pushes"]


def pushes(messages: pd.DataFrame, server: str = "radiator") -> pd.DataFrame:
    """Give the contexts that go to the server and the pushes of aggregates, with these kinds.

    Parameters
    ----------
    messages : pandas.DataFrame
        As ``lab.frame("messages")`` gives them.
    server : str
        Who pushes first; in chains clients do, too.

    Returns
    -------
    pandas.DataFrame
        Registrations and confirmations are left out.
    """
    kinds = [
        _kind(content) or ("context" if target == server else "push")
        for content, target in zip(messages["content"], messages["target"], strict=True)
    ]
    named = messages.assign(kind=kinds)
    return named[named["kind"].isin(["context", "push"])].reset_index(drop=True)


def _kind(content: str) -> str | None:
    """Find the kind in the beginning of a message; None: it stands behind that, as in those that are long."""
    text = content.strip('"')
    raw = base64.b64decode(text[: len(text) // 4 * 4])
    if raw[:2] == b"\x1f\x8b":
        raw = zlib.decompressobj(31).decompress(raw)
    match = re.search(rb'"kind":"(\w+)"', raw)
    return match[1].decode() if match else None
