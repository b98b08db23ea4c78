"""Reliable delivery, shared by all systems: each item arrives once and in order, whatever the network does.

====================  ============================================================================
:mod:`.outbox`        durable items with sequence numbers, and their names on the network
:mod:`.inbox`         received sequence numbers of each sender: next, duplicate, early
:mod:`.stream`        both ends of an ordered stream with selective repeat
:mod:`.retransmit`    one timer, a deadline for each item
:mod:`.session`       incarnations, hellos, the lineage of a log
:mod:`.records`       rows of the ledger of deliveries
:mod:`.notices`       notifications of the application, repeated after a kill
====================  ============================================================================

Guarantees under loss, repetition, delay, reordering, kills, wipes and restored backups:

* What was acknowledged to a caller is durable, and reaches its application once, in order. Only a kill
  between a commit and its callbacks may repeat a notification, with the same id.
* What was accepted arrives or is refused soon after the last fault, under any traffic: only the item itself
  moves its deadline, and a machine with pending items always has a timer set.
* Without faults nothing is sent twice.

Any sequence of restores is recognised. Devices and servers prove by a nonce that a message is of their
present start: :class:`.session.Peer` does it for hellos, :class:`.session.Follower` for logs. A message of
another incarnation or lineage without the open nonce is a late copy, or its sender has to be asked.

Parts return effects and hold plain data, no functions, so a machine that consists of them can be copied.
"""
