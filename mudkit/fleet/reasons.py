"""Reasons for which a message is sent: what a bill can be split by."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

from mudkit.events import Reason
from mudkit.fleet.link import Transfer
from mudkit.fleet.transport import Trip

if TYPE_CHECKING:
    from mudkit.fleet.host import Process


class Reasons:
    """Sorts the transfers of a run by their reason.

    A transfer is a retransmission if its sender has put everything that it carries on a link before, for the
    same host. What failed without a link was not sent.

    Parameters
    ----------
    at_address : dict of str to Process
        The machines of a world, by address.
    reason_of : callable
        Returns the reason of a message of a system, and the identities of what it carries; without one, the
        message is never a retransmission.
    """

    def __init__(
        self,
        at_address: dict[str, Process],
        reason_of: Callable[[str, Any], tuple[Reason, Sequence[Hashable]]],
    ) -> None:
        self._at_address = at_address
        self._reason_of = reason_of
        self._first_us: dict[Hashable, int] = {}
        """Time at which each identity was sent first, by sender, host of the receiver, and identity."""

    def sort(self, transfer: Transfer) -> Reason:
        """Return the reason of a transfer; the same one on each link that it crosses.

        A handshake of a connection is administration, a ping a heartbeat.
        """
        message, sender = transfer.message, transfer.sender
        if isinstance(message, Trip):
            return "heartbeat" if message.is_ping else "administration"
        reason, identities = self._reason_of(sender.system, message)
        target = self._at_address.get(transfer.to)
        to = transfer.to if target is None else target.host.name
        first_us = [
            self._first_us.setdefault((sender.host.name, sender.name, to, identity), transfer.sent_us)
            for identity in identities
        ]
        is_again = bool(first_us) and all(at_us < transfer.sent_us for at_us in first_us)
        return "retransmission" if is_again else reason
