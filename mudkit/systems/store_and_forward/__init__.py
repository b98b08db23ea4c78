"""Store and forward: a relay queues messages for devices that are offline. The smallest system, a template.

Roles: a client on each device (:mod:`.device`) and one relay (:mod:`.servers`). The baseline,
:class:`DirectClient`, sends to the receiver without a relay.

Messages (:mod:`.messages`)::

    client                 relay                  client
      | -- Upload ----------> |                      |
      | <-------- UploadAck - |                      |
      |                       | -- Deliver --------> |
      |                       | <------ DeliveryAck - |
      | -- Hello -----------> |                      |     after each start, connection and change of context
      | <---------- Welcome - |                      |

``UploadGap`` and ``DeliveryGap`` report a gap in the numbers; ``Identify`` requests a hello.

Durable state: the client stores its outbox, its inbox (at most 65,536 unread messages) and the last sequence
number received from each sender. The relay stores one queue per receiver, the last number accepted from each
sender, and the address of each device.

Guarantee: an accepted message enters the inbox of its receiver exactly once and in the order of its sender,
despite loss, duplication, disconnection, moves, crashes and restarts, once both have been connected for long
enough: within a minute of the last loss (timeouts double from 5 s to 60 s); up to 30 minutes if the hello of
a device that came back is lost and the device sends nothing else. A copy of a message that arrives late, in
another session of a device or the relay, has no effect. The application gets what is in the inbox once; only
a kill between a commit and its callback may repeat a message, with the same ``id``. "Exactly once, in order"
is scoped to an incarnation: a device or relay that restarts with an empty store has forgotten what it had
(see :mod:`.servers`).
"""

from typing import TYPE_CHECKING

from mudkit._lazy import lazy_exports

if TYPE_CHECKING:
    from mudkit.systems.store_and_forward.api import Client, DirectClient, Relay
    from mudkit.systems.store_and_forward.device import ClientMachine, DirectMachine
    from mudkit.systems.store_and_forward.servers import RelayMachine
else:
    __getattr__, __dir__ = lazy_exports(__name__)

__all__ = [
    "Client",
    "ClientMachine",
    "DirectClient",
    "DirectMachine",
    "Relay",
    "RelayMachine",
]
