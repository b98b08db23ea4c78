"""How a machine is heard: what it sends arrives once, in order, however the network behaves.

Every system stands on these parts and adds its own rules to them:

====================  ============================================================================
:mod:`.outbox`        what a machine has to send, durably, each with a sequence number
:mod:`.inbox`         what came of each sender: what is next, what is a duplicate, what is early
:mod:`.stream`        both ends of an ordered stream with selective repeat
:mod:`.retransmit`    when what was not answered is sent again: one timer, a deadline for each item
:mod:`.session`       hello and welcome, and incarnations: who lives here now
:mod:`.records`       what a machine writes into the ledger of deliveries
====================  ============================================================================

What holds for each of them, whatever is lost, repeated, late, overtaken, killed and wiped:

* What was acknowledged to a caller is durable, and reaches its application once, in the order of its sender.
* What was accepted arrives or is refused, soon after the last fault, whatever traffic goes on: each item has
  a deadline that nothing but the item itself moves, and nobody is silent who has something to send.
* Without faults nothing is sent twice.

Parts return effects and hold plain data, no functions: a machine that consists of them can be copied.
"""
