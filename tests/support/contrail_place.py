"""A lab with Contrail in it, for tests: it knows what no relay may ever hold, and looks for it in the end."""

from __future__ import annotations

from mudkit import Lab
from mudkit.events import Received
from mudkit.systems.contrail import Item, Module, Relay
from mudkit.systems.contrail.messages import Deliver
from mudkit.wire import as_wire

__all__ = ["EVERYTHING", "Place", "arranged", "marked", "opened", "payloads"]

EVERYTHING = "what > ''"
"""A filter that matches all items of these tests."""


class Place:
    """A lab with a relay, modules by name that are all friends, and a ledger of what relays must not see.

    Parameters
    ----------
    names : str
        Of the devices, separated by spaces.
    encrypted : bool
    **relay
        Of the relay.
    """

    def __init__(
        self, names="", *, encrypted=True, relays=1, seed=7, link="lte", storage=None, module=None, **relay
    ):
        self.lab = Lab(seed=seed, record_exposure=True)
        self.relays = [Relay(self.lab, name=f"relay{n}", **relay) for n in range(1, relays + 1)]
        self.encrypted = encrypted
        self.secrets = set()
        self.modules, self.problems = {}, {}
        self._names = names.split()
        for name in self._names:
            kept = None if storage is None else storage / name
            self.module(
                name, [each for each in self._names if each != name], storage=kept, link=link, **module or {}
            )

    def module(self, name, friends=(), *, storage=None, link="lte", **more):
        device = self.lab.devices.get(name) or self.lab.device(name, link=link, storage=storage)
        made = Module(device, self.relays, friends=friends, encrypted=self.encrypted, **more)
        self.modules[name], self.problems[name] = made, []
        made.on_problem(self.problems[name].append)
        return made

    def port(self, name, port="app", on_filter=None, **more):
        return self.modules[name].open_port(port, on_filter, **more)

    def install(self, port, predicate, to, **more):
        """Install a filter, and let it come there."""
        self.secrets.add(predicate)
        made = port.install_filter(predicate, to=to, **more)
        slot = made.result()
        self.run(65)
        return slot

    def publish(self, port, item, *args, **more):
        self.note(item)
        return port.publish(item, *args, **more)

    def note(self, item):
        self.secrets |= {value for value in item.metadata.values() if isinstance(value, str)}
        self.secrets.add(item.payload)

    def run(self, seconds):
        self.lab.run(seconds=seconds)

    def cloud(self):
        """The servers of all relays."""
        return [name for name in self.lab.world.hosts if name.startswith("relay")]

    def kill(self, relay):
        """Kill the servers of a relay."""
        for name in self.cloud():
            if name.startswith(relay):
                self.lab.faults.kill(name)

    def restart_cloud(self):
        for name in self.cloud():
            self.lab.faults.restart(name)

    def store(self, host):
        return self.lab.world.hosts[host].processes[0].store

    def close(self):
        """Close the stores of all devices, for another process."""
        for device in self.lab.devices.values():
            for process in device.processes:
                process.store.close()

    def bytes_up(self, name, direction="up"):
        bill = self.lab.bill()
        return int(bill[(bill.device == name) & (bill.direction == direction)].bytes.sum())

    def bytes_down(self, name):
        return self.bytes_up(name, "down")

    def seen_by_relays(self):
        """Which of the secrets a relay has ever held, as bytes."""
        cloud, held = set(self.cloud()), self.lab.trace.exposure._bytes.items()
        fields = [(field.encode(), data) for (party, field), data in held if party in cloud]
        whole = b"\0".join(each for field, data in fields for each in (field, *data))
        return {each for each in self.secrets if (each.encode() if isinstance(each, str) else each) in whole}

    def machine(self, name):
        """The machine of a module, for handing it what a relay would."""
        return self.modules[name].installed.machine

    def handed(self, receiver):
        """Collect the messages that relays deliver to a device from now on, as on the wire."""
        seen = []
        machine = self.machine(receiver)
        before = machine.handle

        def handle(now_us, event):
            if isinstance(event, Received) and isinstance(event.message, Deliver):
                seen.extend(as_wire(message) for _, message in event.message.page)
            return before(now_us, event)

        machine.handle = handle
        return seen

    def counts(self, name):
        return self.modules[name].counts().result()


def marked(text, **metadata):
    """Make an item whose payload and metadata can be recognised."""
    return Item({"what": f"metadata of {text}", **metadata}, f"payload of {text}".encode())


def opened(make, names, **more):
    """Return a place, and an open port of each device."""
    there = make(names, **more)
    return there, *(there.port(name) for name in names.split())


def arranged(make, names, **more):
    """Return a place, and a port of each device: all others have asked for everything that Ann publishes."""
    there, ann, *others = opened(make, names, **more)
    for port in others:
        there.install(port, EVERYTHING, to=("ann", "app"))
    return there, ann, *others


def payloads(port):
    """Collect the payloads that arrive at a port from now on."""
    result = []
    port.on_item(lambda item: result.append(item.payload))
    return result
