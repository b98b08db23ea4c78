"""Figure 7 to the letter in one thing: what the server believes to lie on the device (Last hop 4.5)."""

from __future__ import annotations

from mudkit.systems.lasthop.spool.policies import Forwarding
from mudkit.systems.lasthop.spool.ranked import Message, Take
from mudkit.systems.lasthop.spool.spool import Spool

__all__ = ["PaperSpool"]


class PaperSpool(Spool):
    """A spool that hears of the device's queue as the printed code does.

    The code sets ``topic.queue_size`` in ``READ``, to what lies on the device before the read, and adds one
    for each message that it forwards. What the read takes away is never subtracted, and of a read without a
    network it hears nothing. All other holes are mended, as in :class:`Spool`.

    Parameters
    ----------
    threshold : float
    prefetch_limit : int
    forward, retract : callable

    Attributes
    ----------
    queue_size : int
        What it believes.
    """

    def __init__(
        self,
        threshold: float,
        prefetch_limit: int,
        forward: Take,
        retract: Take,
    ) -> None:
        self.queue_size = 0
        self._printed_limit = prefetch_limit

        def counted(message: Message) -> None:
            self.queue_size += 1
            forward(message)

        super().__init__(threshold, Forwarding("buffer", prefetch_limit), counted, retract)

    def read(self, now_us: int, most: float) -> list[Message]:
        """See :class:`Spool`."""
        self.queue_size = self.device.size
        return super().read(now_us, most)

    def _try_forwarding(self, now_us: int) -> None:
        # Room by what is believed, on a device of which the spool knows what lies there.
        self._limit = self.device.size + self._printed_limit - self.queue_size
        super()._try_forwarding(now_us)
