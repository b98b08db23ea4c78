"""Lab with phones that read all of a table, and a writer, for servers of MUD tables that are replaced."""

from __future__ import annotations

from functools import partial

from mudkit import Lab
from mudkit.systems import mud


class PhoneTown:
    """Phones, a writer, and a cloud; ``split`` is that of the table, ``phone`` are options of its clients.

    ``hosts`` are those of the servers of the cloud that are replaced; ``kind`` is its attribute with them.
    """

    def __init__(self, kind, phones, split=(), phone=None, **cloud):
        self.lab = lab = Lab(seed=3)
        self.cloud = mud.Cloud(lab, **cloud)
        self.hosts = [address.split("/")[0] for address in getattr(self.cloud, kind)]
        names = [f"p{number}" for number in range(phones)]
        self.phones = {name: self.client(lab.device(name), **(phone or {})) for name in names}
        self.writer = self.client(lab.server("writer"))
        self.writer.create("t", split=split).result()
        self.heard = {name: [] for name in names}
        self.count = 0

    def client(self, host, **more):
        return mud.Client(host, self.cloud, app="n", token=self.lab.token("u", "n", hours=999), **more)

    def begin(self):
        """Begin a continuous read on each phone."""
        for name, phone in self.phones.items():
            phone.read(
                "t", "n > 0", "continuous", sync_timestamp=0,
                callback=partial(self.hear, name),
            )  # fmt: skip
        self.lab.run(minutes=1)
        return self

    def hear(self, name, notice):
        """Note a write of which a phone is notified; a garbled request may have ended the read instead."""
        if isinstance(notice, mud.Change):
            self.heard[name].append(notice.record["n"])

    def key(self):
        """Return the key of the next write."""
        return f"k{self.count}"

    def write(self, times=1, every_s=1.0):
        for _ in range(times):
            self.count += 1
            self.writer.write("t", self.key(), {"n": self.count})
            self.lab.run(seconds=every_s)

    def kill(self, number, seconds=0.0):
        """Kill a server, by its number."""
        self.lab.faults.kill(self.hosts[number])
        self.lab.run(seconds=seconds)

    @property
    def naming(self):
        return self.lab.world.at_address[self.cloud.naming].machine

    def record_messages(self, is_lost=lambda source, to: False):
        """Record messages from now on: senders, receivers and messages; lose some."""
        sent = []

        def fault_hook(transfer):
            source = transfer.sender.address
            sent.append((source, transfer.to, transfer.message))
            return () if is_lost(source, transfer.to) else (0,)

        self.lab.faults.messages()
        self.lab.world.fault_hook = fault_hook
        return sent
