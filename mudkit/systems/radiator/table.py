"""The server's table of clients, and what it owes each (Radiator 3.2, 4.2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Owed", "Row"]


@dataclass
class Owed:
    """An aggregate that a client has not confirmed.

    Parameters
    ----------
    context : dict
        As it is sent.
    again_us : int
        It is sent again then; a chain takes its time.
    """

    context: dict[str, Any]
    again_us: int


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
        That it registered with last; None: it is only about to.
    """

    number: int
    device: str
    address: str
    heard_us: int
    p2p_enabled: bool = False
    attributes: Mapping[str, Any] | None = None
    is_there: bool = True
    """Whether nothing has failed to reach it since it last showed life."""
    owed: dict[str, Owed] = field(default_factory=dict)
