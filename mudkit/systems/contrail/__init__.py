"""Contrail: the receiver's filter runs at the sender, and the cloud relays ciphertext.

P. Stuedi, I. Mohamed, M. Balakrishnan, Z. M. Mao, V. Ramasubramanian and T. Wobber, The Cloud is the Router
(MSR-TR-2010-89). Section numbers in this package are of this report.

Roles (section 4):

=========  ===========================================================================================
module     on each device, shared by its applications (:mod:`.device`): evaluates received filters on
           items to be published, encrypts, pushes, pulls, verifies, decrypts
gateway    in each data centre: terminates the connections of devices
compute    stateless instances: execute the requests of devices on the storages
storage    in each data centre: a queue for each device, the item cache, white-lists and groups
=========  ===========================================================================================

Messages (:mod:`.messages`), from receiver Bob to sender Ann and back: Bob's ``Filter`` travels sealed through
his ``Push`` and Ann's queue; Ann pulls it (``Pull``, ``Deliver``) and accepts it. A matching item of hers is
encrypted once and sent with ``Push`` as ``Data``, preceded by the ``ChannelKey``; compute appends a copy to
the queue of each receiver, and Bob pulls it. The cloud sees names, sizes, expiry, groups and the white-lists
shown to it.

Durable state of a module: its key pair, friends, ports, both kinds of filters, channel keys, outboxes,
received items until the application has processed them, and the last sequence numbers of other devices. Of
the cloud: the storage, and which device is connected to which gateway.

Guarantees:

* An item leaves the device only if a filter that the application accepted matches it.
* A message that a cloud has changed is reported as :class:`TamperedMessage` and dropped. An authentic copy
  is delivered once; an older item of the same name is not delivered after a newer one.
* A published item is delivered unless it expires, becomes obsolete, finds a full queue
  (:class:`Backlogged`) or inbox, its receiver has removed the filter or ended the friendship meanwhile, it
  waits too long for a key, or is lost with a store that was wiped or restored from a backup. End-to-end
  reliability is up to the application: :class:`Outbound` and :class:`Inbound` (3.5).
* What a module has committed reaches its application, also after a kill before the callback: an item once, by
  its ``number``; a question about a filter, or an accepted filter, again.
* A receiver that left a channel cannot read later items, and a new one cannot read earlier items.
"""

from typing import TYPE_CHECKING

from mudkit._lazy import lazy_exports

if TYPE_CHECKING:
    from mudkit.systems.contrail.api import Group, Module, Port, Relay
    from mudkit.systems.contrail.device.module_state import KeyUse
    from mudkit.systems.contrail.items import Backlogged, Item, Published, QueueFull, TamperedMessage
    from mudkit.systems.contrail.study.applications import (
        Aggregator,
        Alarm,
        Chat,
        Photos,
        Sensor,
        SharedLocation,
        Video,
    )
    from mudkit.systems.contrail.study.reliable import Inbound, Outbound
else:
    __getattr__, __dir__ = lazy_exports(__name__)

__all__ = [
    "Aggregator",
    "Alarm",
    "Backlogged",
    "Chat",
    "Group",
    "Inbound",
    "Item",
    "KeyUse",
    "Module",
    "Outbound",
    "Photos",
    "Port",
    "Published",
    "QueueFull",
    "Relay",
    "Sensor",
    "SharedLocation",
    "TamperedMessage",
    "Video",
]
