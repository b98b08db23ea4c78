"""Lab with MUD tables, for tests."""

from __future__ import annotations

from mudkit import Lab
from mudkit.systems.mud import Client, Cloud


class Place:
    """Lab with a cloud and clients by name."""

    def __init__(self, *, seed=7, **cloud):
        self.lab = Lab(seed=seed)
        self.cloud = Cloud(self.lab, **cloud)

    def client(self, name, app="news", *, token="", user=None, **more):
        device = self.lab.devices.get(name) or self.lab.device(name)
        if token == "":
            token = self.lab.token(user=user or name, app=app)
        return Client(device, self.cloud, app=app, token=token, **more)


def listen(client, text=None, table="news", **more):
    """Start a continuous read; return the growing list of its changes."""
    changes = []
    client.read(table, text, "continuous", callback=changes.append, **more).result()
    return changes
