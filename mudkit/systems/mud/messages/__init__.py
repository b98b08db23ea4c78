"""Messages between the roles of MUD tables (Mobius 3 to 6), by who talks to whom.

=====================  ================================================================================
:mod:`.requests`       the service of a device and the gateways
:mod:`.servers`        gateways, processors, replicas and the back end
:mod:`.notifications`  notification servers with devices, processors, the generator and each other
:mod:`.parts`          names of machines, and what messages of several kinds have in common
=====================  ================================================================================

Each machine decodes messages in one place, against the union of those that the sender's role may send (the
constants at the end of the modules). A struct checks that its fields are consistent; machines check that they
fit their state. The data of a record, the data of a reader and the properties of a table are the
application's mappings, checked where they are used.
"""
