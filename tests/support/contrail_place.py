"""Lab with Contrail that records the secrets that no relay may see, and searches for them in its trace."""

from __future__ import annotations

from mudkit import Lab
from mudkit.events import Received
from mudkit.systems.contrail import Item, Module, Relay
from mudkit.systems.contrail.messages import Deliver
from mudkit.wire import as_wire

EVERYTHING = "what > ''"
"""Filter that matches all items of these tests."""


class Place:
    """Lab with a relay, modules by name that are all friends, and the secrets that relays must not see.

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
            path = None if storage is None else storage / name
            self.module(
                name,
                [friend for friend in self._names if friend != name],
                storage=path,
                link=link,
                **module or {},
            )

    def module(self, name, friends=(), *, storage=None, link="lte", **more):
        device = self.lab.devices.get(name) or self.lab.device(name, link=link, storage=storage)
        module = Module(device, self.relays, friends=friends, encrypted=self.encrypted, **more)
        self.modules[name], self.problems[name] = module, []
        module.on_problem(self.problems[name].append)
        return module

    def port(self, name, port="app", on_filter=None, **more):
        return self.modules[name].open_port(port, on_filter, **more)

    def install(self, port, predicate, to, **more):
        """Install a filter, and run until it arrives."""
        self.secrets.add(predicate)
        operation = port.install_filter(predicate, to=to, **more)
        slot = operation.result()
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
        """Return the names of the servers of all relays."""
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
        """Return the secrets that a relay has ever seen."""
        cloud, exposed = set(self.cloud()), self.lab.trace.exposure._bytes.items()
        fields = [(field.encode(), data) for (party, field), data in exposed if party in cloud]
        recorded = b"\0".join(part for field, data in fields for part in (field, *data))
        return {
            secret
            for secret in self.secrets
            if (secret.encode() if isinstance(secret, str) else secret) in recorded
        }

    def machine(self, name):
        """Return the machine of a module, to handle messages directly."""
        return self.modules[name].installed.machine

    def handed(self, receiver):
        """Return the growing list of messages that relays deliver to a device, in wire form."""
        messages = []
        machine = self.machine(receiver)
        original = machine.handle

        def handle(now_us, event):
            if isinstance(event, Received) and isinstance(event.message, Deliver):
                messages.extend(as_wire(message) for _, message in event.message.page)
            return original(now_us, event)

        machine.handle = handle
        return messages

    def counts(self, name):
        return self.modules[name].counts().result()


def build_item(text, **metadata):
    """Build an item with a recognisable payload and metadata."""
    return Item({"what": f"metadata of {text}", **metadata}, f"payload of {text}".encode())


def open_ports(make, names, **more):
    """Return a place, and an open port of each device."""
    place = make(names, **more)
    return place, *(place.port(name) for name in names.split())


def install_filters(make, names, **more):
    """Return a place, and a port of each device; all others have a filter for all items of Ann."""
    place, ann, *others = open_ports(make, names, **more)
    for port in others:
        place.install(port, EVERYTHING, to=("ann", "app"))
    return place, ann, *others


def payloads(port):
    """Return the growing list of payloads that arrive at a port."""
    result = []
    port.on_item(lambda item: result.append(item.payload))
    return result
