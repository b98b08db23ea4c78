"""Who is responsible for what: the mapping that the name service of the paper keeps, as functions."""

from __future__ import annotations

from zlib import crc32

__all__ = ["app_of", "netid_of", "processor_of", "server_of"]


def netid_of(endpoint: str) -> str:
    """Give the device of an endpoint ``netid/appid``; its name may have a slash in it, an app's has none."""
    return endpoint.rpartition("/")[0]


def app_of(endpoint: str) -> str:
    """Give the app of an endpoint."""
    return endpoint.rpartition("/")[2]


def processor_of(table: int, partition: int, processors: int) -> int:
    """Give the number of the processor of a partition."""
    return (table + partition) % processors


def server_of(netid: str, servers: int) -> int:
    """Give the number of the notification server of a device: each has a range of the netids' hashes."""
    return crc32(netid.encode()) * servers >> 32
