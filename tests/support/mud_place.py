"""A lab with MUD tables in it, for tests."""

from __future__ import annotations

from mudkit import Lab
from mudkit.systems.mud import Client, Cloud

__all__ = ["Place", "listen"]


class Place:
    """A lab with a cloud, and clients by name."""

    def __init__(self, *, seed=7, **cloud):
        self.lab = Lab(seed=seed)
        self.cloud = Cloud(self.lab, **cloud)

    def client(self, name, app="news", *, token="", user=None, **more):
        device = self.lab.devices.get(name) or self.lab.device(name)
        if token == "":
            token = self.lab.token(user=user or name, app=app)
        return Client(device, self.cloud, app=app, token=token, **more)


def listen(client, text=None, table="news", **more):
    """Give what a continuous read is told: it grows."""
    told = []
    client.read(table, text, "continuous", callback=told.append, **more).result()
    return told
