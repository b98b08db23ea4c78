"""Paths of Hadoop's file system, by its own protocol and by its HTTP interface, WebHDFS.

fsspec reads both, but it writes files of WebHDFS in two steps, the second of which appends; and UPath has no
class for it. Loading this module registers the classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from requests import PreparedRequest, Response
from requests.adapters import HTTPAdapter
from upath import UPath
from upath._flavour import WrappedFileSystemFlavour
from upath.implementations.hdfs import HDFSPath
from upath.registry import register_implementation

TIMEOUT_S = 120.0
"""Time without an answer after which a request fails; fsspec would wait for ever."""


class _Timed(HTTPAdapter):
    """Connections that are given up after :data:`TIMEOUT_S` without an answer."""

    def send(self, request: PreparedRequest, *arguments: Any, **options: Any) -> Response:
        """Send a request that has no timeout of its own with one."""
        return super().send(request, *arguments, **{**options, "timeout": TIMEOUT_S})


class HdfsPath(HDFSPath):
    """Path of Hadoop's own protocol."""

    __slots__ = ()

    def __str__(self) -> str:
        return _address(self) if self._relative_base is None else super().__str__()


class WebHdfsPath(UPath):
    """Path of a WebHDFS server."""

    __slots__ = ()

    def __str__(self) -> str:
        return _address(self) if self._relative_base is None else super().__str__()

    @classmethod
    def _fs_factory(cls, urlpath: str, protocol: str, storage_options: Mapping[str, Any]) -> Any:
        """Return fsspec's file system, which keeps its connections."""
        fs: Any = super()._fs_factory(urlpath, protocol, storage_options)
        for scheme in ("http://", "https://"):
            fs.session.mount(scheme, _Timed())
        return fs


def _address(at: UPath) -> str:
    """Return the whole address of a path: user, host and port are options of UPath, which its text lacks."""
    user, host, port = (at.storage_options.get(name) for name in ("user", "host", "port"))
    return f"{at.protocol}://{f'{user}@' if user else ''}{host or ''}{f':{port}' if port else ''}{at.path}"


def put(file: Path, at: UPath) -> None:
    """Put a file in one write: CREATE of the REST interface, then the content where the answer leads."""
    fs: Any = at.fs
    created = fs._call("CREATE", "PUT", at.path, redirect=False, overwrite="true")
    kind = {"content-type": "application/octet-stream"}
    with file.open("rb") as content:
        answer = fs.session.put(fs._apply_proxy(created.headers["Location"]), data=content, headers=kind)
    answer.raise_for_status()


# UPath takes the rules of paths from the class of fsspec once that is loaded, and those of hdfs fail then.
WrappedFileSystemFlavour.from_protocol("hdfs")
register_implementation("hdfs", HdfsPath, clobber=True)
# Without a root of paths UPath would join the port and a name at the root.
WrappedFileSystemFlavour.protocol_config["root_marker_override"]["webhdfs"] = "/"
register_implementation("webhdfs", WebHdfsPath, clobber=True)
