"""The server's table of clients, what it owes each, and what it knows of each device (Radiator 3.2, 4.2)."""

from __future__ import annotations

from dataclasses import dataclass, field

from mudkit.systems.radiator.context import Context
from mudkit.systems.radiator.messages import ContextFields
from mudkit.wire import Fields

__all__ = ["Known", "Numbers", "Owed", "Row"]


@dataclass
class Owed:
    """An aggregate that a client has not confirmed.

    Parameters
    ----------
    context : ContextFields
        As it is sent.
    again_us : int
        It is sent again then; a chain takes its time.
    chain : tuple of str
        The chain in which it was sent to this client last.
    """

    context: ContextFields
    again_us: int
    chain: tuple[str, ...] = ()


@dataclass
class Row:
    """A registered client.

    Parameters
    ----------
    number : int
        Who came later has a higher one.
    device : str
        Which nobody else may be.
    address : str
    heard_us : int
        When it last showed life.
    p2p_enabled : bool
        Whether its peers can reach it.
    attributes : mapping, optional
        The attributes that it registered with last; None: it is only about to.
    """

    number: int
    device: str
    address: str
    heard_us: int
    p2p_enabled: bool = False
    attributes: Fields | None = None
    is_there: bool = True
    """Whether nothing that the server sent has failed to reach it since it last showed life."""
    doubted_until_us: int = 0
    """Until then nothing is sent to it either: a peer has said since that it could not be reached."""
    owed: dict[str, Owed] = field(default_factory=dict)


@dataclass
class Numbers:
    """Contexts of one incarnation of a client.

    Parameters
    ----------
    last_seq : int
        Number of the last context that was taken.
    early : dict of int to Context
        Contexts that came before one that is missing, by number: none of them is confirmed.
    """

    last_seq: int = 0
    early: dict[int, Context] = field(default_factory=dict)


@dataclass
class Known:
    """State of a client on a device, also after it has left: its numbers go on then.

    Parameters
    ----------
    incarnation : str
        Incarnation of the client.
    turn : int
        The highest with which it has registered or unregistered.
    is_another : bool
        Whether the client has had another incarnation before: contexts name theirs then.
    """

    incarnation: str
    turn: int
    is_another: bool = False
    oldest: str = ""
    """Incarnation of the client's first pending context."""
    numbers: dict[str, Numbers] = field(default_factory=dict)
    """By incarnation, the last of them."""
    challenge: str | None = None
    """Challenge that a register of another incarnation, or of an older turn, has to carry."""
