"""Who lives here now: incarnations, and the hellos by which a device is found.

A device that was wiped, or bought anew, has its old name and begins to count at 1 again. Whoever numbers by
sender numbers by sender and incarnation: then what the new one sends is not taken for what the old one sent.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

import msgspec

from mudkit.events import Entropy, Ports

__all__ = ["Heard", "Peer", "incarnation"]

_KEY: Final = "incarnation"
_BYTES: Final = 4


def incarnation(ports: Ports) -> str:
    """Give the incarnation of a machine's store: drawn when it is asked for first, and kept there.

    It is asked for inside of a ``handle``: then it is stored with what that stores.
    """
    kept = ports.store.get(_KEY, str)
    if kept is None:
        kept = ports.entropy(_BYTES).hex()
        ports.store.put(_KEY, kept)
    return kept


class Heard(Enum):
    """What a hello is to who hears it."""

    NEWS = "news"
    """It says where the device is now."""
    STALE = "stale"
    """A later one of this incarnation was heard before: it changes nothing."""
    STRANGER = "stranger"
    """Of another incarnation than is known: a new device, or a late copy of an old one. Ask who lives now."""


class Peer(msgspec.Struct):
    """What is known of a device by its hellos.

    Parameters
    ----------
    incarnation : str
        Of its store; empty: it has not said hello yet.
    seq : int
        Number of its last hello in this incarnation.
    nonce : str or None
        What it was asked to say hello with, and has not: only who lives now can answer, a late copy cannot.
    """

    incarnation: str = ""
    seq: int = 0
    nonce: str | None = None

    def hear(self, incarnation: str, seq: int, nonce: str | None = None) -> Heard:
        """Judge a hello, without taking it.

        Parameters
        ----------
        incarnation : str
            Of who says hello.
        seq : int
            The number of the hello.
        nonce : str, optional
            With which it answers who asked.
        """
        if self.incarnation not in ("", incarnation):
            return Heard.NEWS if nonce is not None and nonce == self.nonce else Heard.STRANGER
        return Heard.STALE if incarnation == self.incarnation and seq <= self.seq else Heard.NEWS

    def take(self, incarnation: str, seq: int) -> None:
        """Let this be the last hello."""
        self.incarnation, self.seq, self.nonce = incarnation, seq, None

    def ask(self, entropy: Entropy) -> str:
        """Give the nonce with which it is to say hello: the same until it has."""
        if self.nonce is None:
            self.nonce = entropy(_BYTES).hex()
        return self.nonce
