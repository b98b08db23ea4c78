"""The incarnation of a store: what tells a device that came back empty from the one that it was.

A device that was wiped, or bought anew, has its old name and begins to count at 1 again. Whoever numbers by
sender numbers by sender and incarnation: then what the new one sends is not taken for what the old one sent.
"""

from __future__ import annotations

from typing import Final

from mudkit.events import Ports

__all__ = ["incarnation"]

_KEY: Final = "incarnation"
_BYTES: Final = 4


def incarnation(ports: Ports) -> str:
    """Give the incarnation of a machine's store: drawn when it is asked for first, and kept there.

    It is asked for inside of a ``handle``: then it is stored with what that stores.
    """
    kept = ports.store.get(_KEY)
    if kept is None:
        kept = ports.entropy(_BYTES).hex()
        ports.store.put(_KEY, kept)
    return str(kept)
