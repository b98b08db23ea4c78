"""Store that is no POSIX file system: WebHDFS on this machine, which refuses to rename and to append.

The interface is that of Hadoop (WebHDFS REST API): https://hadoop.apache.org/docs/stable/hadoop-project-dist/
hadoop-hdfs/WebHDFS.html. fsspec's ``webhdfs://`` and the client in Spark's jars speak to it.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, quote, unquote, urlsplit

_PREFIX = "/webhdfs/v1"


class WebHdfs(ThreadingHTTPServer):
    """Server of a dict of files.

    Attributes
    ----------
    files : dict
        Content by absolute path. A folder is there if a file is in it, or if it was made.
    folders : set
        Folders that were made.
    forbidden : set
        Paths that nobody has rights to; nor to what is in them.
    operations : Counter
        Number of requests by operation.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.times_ms: dict[str, int] = {}
        self.folders: set[str] = {"/"}
        self.forbidden: set[str] = set()
        self.operations: Counter[str] = Counter()
        self.lock = threading.Lock()

    @property
    def address(self) -> str:
        """Address of the root, without a slash at its end."""
        return f"webhdfs://127.0.0.1:{self.server_address[1]}"

    def put(self, path: str, content: bytes) -> None:
        """Store a file."""
        with self.lock:
            self.files[path] = content
            self.times_ms[path] = int(time.time() * 1000)

    def is_folder(self, path: str) -> bool:
        """Return whether there is a folder."""
        return path in self.folders or any(name.startswith(path.rstrip("/") + "/") for name in self.files)

    def names_in(self, folder: str) -> list[str]:
        """Return the names in a folder."""
        start = folder.rstrip("/") + "/"
        paths = [*self.files, *self.folders]
        return sorted(
            {path.removeprefix(start).split("/")[0] for path in paths if path.startswith(start)} - {""}
        )

    def status(self, path: str, suffix: str = "") -> dict[str, object]:
        """Return the status of a file or folder as JSON."""
        is_file = path in self.files
        return {
            "accessTime": 0,
            "blockSize": 1 << 27 if is_file else 0,
            "group": "all",
            "length": len(self.files[path]) if is_file else 0,
            "modificationTime": self.times_ms.get(path, 0),
            "owner": "all",
            "pathSuffix": suffix,
            "permission": "777",
            "replication": 1 if is_file else 0,
            "type": "FILE" if is_file else "DIRECTORY",
        }


class _Handler(BaseHTTPRequestHandler):
    """One request: an operation on a path, of which those that write data are in two steps."""

    server: WebHdfs
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16
    """Head and body go out together: apart, the second would wait for the acknowledgement of the first."""

    def log_message(self, *arguments: object) -> None:
        """Write no log."""

    def do_GET(self) -> None:
        self._answer()

    do_PUT = do_POST = do_DELETE = do_GET  # noqa: N815 - the names that http.server calls

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            content = b"".join(self._chunks())
        else:
            content = self.rfile.read(length)
        parts = urlsplit(self.path)
        path = unquote(parts.path.removeprefix(_PREFIX)).rstrip("/") or "/"
        given = {name.lower(): values[0] for name, values in parse_qs(parts.query).items()}
        operation = given.get("op", "").upper()
        server = self.server
        with server.lock:
            server.operations[operation] += 1
        above = [path, *(path[: place + 1].rstrip("/") for place, mark in enumerate(path) if mark == "/")]
        if not server.forbidden.isdisjoint(above):
            self._refuse(403, "AccessControlException", f"Permission denied: {path}")
            return
        handle = getattr(self, f"_{operation.lower()}", None)
        if handle is None:
            self._refuse(400, "UnsupportedOperationException", f"{operation} is not supported")
        else:
            handle(path, given, content)

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self.rfile.readline().split(b";")[0], 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    def _getfilestatus(self, path: str, given: dict[str, str], content: bytes) -> None:
        if self._exists(path):
            self._send_json({"FileStatus": self.server.status(path)})

    def _liststatus(self, path: str, given: dict[str, str], content: bytes) -> None:
        if not self._exists(path):
            return
        server = self.server
        with server.lock:
            start = path.rstrip("/") + "/"
            names = [] if path in server.files else server.names_in(path)
            entries = [server.status(start + name, name) for name in names]
        self._send_json(
            {"FileStatuses": {"FileStatus": entries or [server.status(path)][: path in server.files]}}
        )

    def _open(self, path: str, given: dict[str, str], content: bytes) -> None:
        if not self._exists(path):
            return
        first = int(given.get("offset", 0))
        length = int(given["length"]) if "length" in given else len(self.server.files[path])
        self._send(200, self.server.files[path][first : first + length])

    def _create(self, path: str, given: dict[str, str], content: bytes) -> None:
        if "data" not in given:  # the first step says where the content goes
            self.send_response(307)
            host = "{}:{}".format(*self.server.server_address)
            query = f"op=CREATE&overwrite={given.get('overwrite', 'false')}&data=true"
            self.send_header("Location", f"http://{host}{_PREFIX}{quote(path)}?{query}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if path in self.server.files and given["overwrite"] != "true":
            self._refuse(403, "FileAlreadyExistsException", f"{path} exists")
            return
        self.server.put(path, content)
        self._send(201, b"")

    def _mkdirs(self, path: str, given: dict[str, str], content: bytes) -> None:
        with self.server.lock:
            while path != "/":
                self.server.folders.add(path)
                path = path.rpartition("/")[0] or "/"
        self._send_json({"boolean": True})

    def _delete(self, path: str, given: dict[str, str], content: bytes) -> None:
        server = self.server
        with server.lock:
            inside = {name for name in (*server.files, *server.folders) if name.startswith(f"{path}/")}
            if inside and given.get("recursive") != "true":
                self._refuse(403, "PathIsNotEmptyDirectoryException", f"{path} is not empty")
                return
            was_stored = path in server.files or path in server.folders or bool(inside)
            for name in {path, *inside}:
                server.files.pop(name, None)
                server.folders.discard(name)
        self._send_json({"boolean": was_stored})

    def _getfileblocklocations(self, path: str, given: dict[str, str], content: bytes) -> None:
        length = len(self.server.files.get(path, b""))
        block = {
            "cachedHosts": [],
            "corrupt": False,
            "hosts": ["127.0.0.1"],
            "length": length,
            "names": ["127.0.0.1:0"],
            "offset": 0,
            "storageTypes": ["DISK"],
            "topologyPaths": ["/default/127.0.0.1"],
        }
        self._send_json({"BlockLocations": {"BlockLocation": [block] if length else []}})

    def _gethomedirectory(self, path: str, given: dict[str, str], content: bytes) -> None:
        self._send_json({"Path": "/"})

    def _rename(self, path: str, given: dict[str, str], content: bytes) -> None:
        self._refuse(403, "UnsupportedOperationException", "this store does not rename")

    def _append(self, path: str, given: dict[str, str], content: bytes) -> None:
        self._refuse(403, "UnsupportedOperationException", "this store does not append")

    def _exists(self, path: str) -> bool:
        if path in self.server.files or self.server.is_folder(path):
            return True
        self._refuse(404, "FileNotFoundException", f"File does not exist: {path}")
        return False

    def _refuse(self, code: int, kind: str, message: str) -> None:
        package = "java.io" if kind == "FileNotFoundException" else "org.apache.hadoop"
        error = {"exception": kind, "javaClassName": f"{package}.{kind}", "message": message}
        self._send_json({"RemoteException": error}, code)

    def _send_json(self, value: object, code: int = 200) -> None:
        self._send(code, json.dumps(value).encode())

    def _send(self, code: int, content: bytes) -> None:
        # No type of the content: Spark's jars lack the class with which their client would parse it.
        self.send_response(code)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def webhdfs_server() -> Iterator[WebHdfs]:
    """Serve an empty store until the body ends."""
    with WebHdfs() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
