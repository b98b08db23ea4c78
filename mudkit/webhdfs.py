"""Paths of WebHDFS, the HTTP interface of Hadoop's file system.

fsspec reads it, but UPath has no class for it, and fsspec writes in two steps, of which the second appends.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from requests import PreparedRequest, Response
from requests.adapters import HTTPAdapter
from upath import UPath
from upath._flavour import WrappedFileSystemFlavour
from upath.registry import register_implementation

TIMEOUT_S = 120.0
"""Time without an answer after which a request fails; fsspec would wait for ever."""


class _Timed(HTTPAdapter):
    """Connections that are given up after :data:`TIMEOUT_S` without an answer."""

    def send(self, request: PreparedRequest, *arguments: Any, **options: Any) -> Response:
        """Send a request that has no timeout of its own with one."""
        return super().send(request, *arguments, **{**options, "timeout": TIMEOUT_S})


class WebHdfsPath(UPath):
    """Path of a WebHDFS server; its text has the host and the port, which UPath keeps beside the path."""

    __slots__ = ()

    def __str__(self) -> str:
        if self._relative_base is not None:
            return super().__str__()
        host, port = (self.storage_options.get(name) for name in ("host", "port"))
        return f"webhdfs://{host}:{port}{self.path}" if port else f"webhdfs://{host}{self.path}"

    @classmethod
    def _fs_factory(cls, urlpath: str, protocol: str, storage_options: Mapping[str, Any]) -> Any:
        """Return fsspec's file system, which keeps its connections."""
        fs: Any = super()._fs_factory(urlpath, protocol, storage_options)
        for scheme in ("http://", "https://"):
            fs.session.mount(scheme, _Timed())
        return fs


def put(file: Path, at: UPath) -> None:
    """Put a file in one write: CREATE of the REST interface, then the content where the answer leads."""
    fs: Any = at.fs
    created = fs._call("CREATE", "PUT", at.path, redirect=False, overwrite="true")
    kind = {"content-type": "application/octet-stream"}
    with file.open("rb") as content:
        answer = fs.session.put(fs._apply_proxy(created.headers["Location"]), data=content, headers=kind)
    answer.raise_for_status()


# Without a root of paths UPath would join the port and a name at the root.
WrappedFileSystemFlavour.protocol_config["root_marker_override"]["webhdfs"] = "/"
register_implementation("webhdfs", WebHdfsPath, clobber=True)
