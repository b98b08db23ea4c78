"""Paths of WebHDFS, the HTTP interface of Hadoop's file system.

fsspec reads it, but UPath has no class for it, and fsspec writes in two steps, of which the second appends.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from upath import UPath
from upath._flavour import WrappedFileSystemFlavour
from upath.registry import register_implementation


class WebHdfsPath(UPath):
    """Path of a WebHDFS server; its text has the host and the port, which UPath keeps beside the path."""

    __slots__ = ()

    def __str__(self) -> str:
        if self._relative_base is not None:
            return super().__str__()
        host, port = (self.storage_options.get(name) for name in ("host", "port"))
        return f"webhdfs://{host}:{port}{self.path}" if port else f"webhdfs://{host}{self.path}"


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
