"""Sources and traces at addresses: the same rows as from a path, whatever the store can do."""

from __future__ import annotations

import json
import socket
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from typing import ClassVar

import pytest
from trace_samples import SAMPLES

from mudkit import trace
from mudkit.errors import InputMissing, MudkitError, OutputExists, OutputProblem, TraceFormatError
from mudkit.files import place, staged_file
from mudkit.trace.folder import MANIFEST, read_manifest, table_files

TABLES = ("positions", "reads", "rejected", "fares")


@pytest.fixture(params=["path", "file", "memory", "webhdfs", "s3"])
def store(request, tmp_path):
    """Return a folder of its own in each kind of place."""
    match request.param:
        case "path":
            return tmp_path
        case "file":
            return place(tmp_path.as_uri())
        case "memory":
            return place(f"memory://{tmp_path.name}")
        case "webhdfs":
            return place(f"{request.getfixturevalue('webhdfs').address}/{tmp_path.name}")
        case _:
            return place(f"{request.getfixturevalue('s3_bucket')}/{tmp_path.name}")


def put(folder, files):
    """Store files, and return the text that names the file or the folder to load."""
    for name, content in files.items():
        with staged_file(folder / name) as staging:
            staging.write_bytes(content)
    return str(folder / next(iter(files)) if len(files) == 1 else folder)


@pytest.mark.soak(keep=15)
@pytest.mark.parametrize("kind", SAMPLES)
def test_sample_has_the_same_rows_wherever_it_is(kind, store, tmp_path_factory):
    """A trace is a function of the source's names and bytes, not of its place."""
    sample = SAMPLES[kind]
    local = tmp_path_factory.mktemp("local") / store.name
    expected = trace.load(sample.write(local), **sample.options)
    source = put(store, sample.files)
    loaded = trace.load(source, **sample.options)
    assert all(getattr(loaded, name).equals(getattr(expected, name)) for name in TABLES)
    assert loaded.source == expected.source
    with trace.scan(source, **sample.options) as pieces:
        assert sum(len(piece.positions) for piece in pieces) == len(expected.positions)


def cabs(tmp_path_factory):
    return trace.load(SAMPLES["cabspotting"].write(tmp_path_factory.mktemp("cabs")))


def test_pattern_of_names_fits_the_same_files_wherever_they_are(store, tmp_path_factory):
    rows = b"device,ts,lat,lon\na,1211100000,37,-122\na,1211100060,37.001,-122\n"
    files = {"day/1.csv": rows, "day/2.csv": rows.replace(b"a,", b"b,"), "day/3.txt": b"x"}
    local = tmp_path_factory.mktemp("local")
    for name, content in files.items():
        (local / name).parent.mkdir(exist_ok=True)
        (local / name).write_bytes(content)
    put(store, files)
    expected = trace.load(f"{local}/day/*.csv")
    loaded = trace.load(f"{store}/day/*.csv")
    assert all(getattr(loaded, name).equals(getattr(expected, name)) for name in TABLES)
    with pytest.raises(InputMissing, match="No file fits"):
        trace.load(f"{store}/day/*.parquet")


def test_saved_trace_is_the_same_wherever_it_is(store, tmp_path_factory):
    loaded = cabs(tmp_path_factory)
    assert loaded.save(store / "trace") == store / "trace"
    again = trace.load(str(store / "trace"))
    assert all(getattr(again, name).equals(getattr(loaded, name)) for name in TABLES[:3])
    with trace.scan(str(store / "trace")) as pieces:
        assert sum(len(piece.positions) for piece in pieces) == len(loaded.positions)
    with pytest.raises(OutputExists):
        loaded.save(store / "trace")


def test_manifest_names_each_file_with_rows_and_bytes(store, tmp_path_factory):
    path = cabs(tmp_path_factory).save(store / "trace")
    manifest = read_manifest(path)
    for name, files in manifest["files"].items():
        assert [path / file["name"] for file in files] == table_files(path, name)
        assert sum(file["rows"] for file in files) == manifest["rows"][name]
        assert all((path / file["name"]).stat().st_size == file["bytes"] for file in files)


def test_file_that_no_manifest_names_is_not_read(store, tmp_path_factory):
    path = cabs(tmp_path_factory).save(store / "trace")
    before = trace.read_table(path, "positions")
    (first, *_) = table_files(path, "positions")
    put(first.parent, {"part-other-00000.parquet": first.read_bytes()})
    assert trace.read_table(path, "positions").equals(before)


@pytest.mark.parametrize(
    ("damage", "pattern"),
    [
        (lambda path, first: first.unlink(), r"positions/date=.*parquet is missing"),
        (lambda path, first: rewrite(first, first.read_bytes()[:-1]), r"bytes, where trace\.json says"),
        (lambda path, first: rewrite(first, first.read_bytes()[::-1]), "damaged"),
        (lambda path, first: change(path, lambda m: m["rows"].update(positions=1)), "where it says 1"),
        (lambda path, first: change(path, lambda m: m.update(files=[])), "cannot be read"),
        (lambda path, first: rename(path, "../../secret.parquet"), "in no folder of positions"),
        (lambda path, first: rename(path, "positions/../../secret.parquet"), "in no folder of positions"),
    ],
)
def test_trace_that_differs_from_its_manifest_is_refused(tmp_path, tmp_path_factory, damage, pattern):
    path = cabs(tmp_path_factory).save(tmp_path / "trace")
    damage(path, table_files(path, "positions")[0])
    with pytest.raises(TraceFormatError, match=pattern):
        trace.read_table(path, "positions")


def rewrite(file, content):
    file.write_bytes(content)


def change(path, edit):
    manifest = json.loads((path / MANIFEST).read_text())
    edit(manifest)
    (path / MANIFEST).write_text(json.dumps(manifest))


def rename(path, name):
    change(path, lambda manifest: manifest["files"]["positions"][0].update(name=name))


def test_trace_of_an_earlier_version_is_read_by_its_folders(tmp_path, tmp_path_factory):
    """mudkit 0.2 wrote no names of files: all in the folder of a table are read, and their rows counted."""
    loaded = cabs(tmp_path_factory)
    path = loaded.save(tmp_path / "trace")
    change(path, lambda manifest: manifest.pop("files"))
    assert trace.load(path).positions.equals(loaded.positions)
    table_files(path, "positions")[0].unlink()
    with pytest.raises(TraceFormatError, match="damaged"):
        trace.load(path)


def test_trace_at_an_address_is_written_without_renaming_and_appending(webhdfs, tmp_path_factory):
    """The old trace is read until the new manifest stands; then its files are removed."""
    webhdfs.operations.clear()
    loaded = cabs(tmp_path_factory)
    path = loaded.save(f"{webhdfs.address}/overwritten")
    old = read_manifest(path)["files"]["positions"]
    with pytest.raises(KeyError), trace.TraceWriter.open(path, {}, overwrite=True) as writer:
        writer.write("positions", loaded.positions)
        assert read_manifest(path)["files"]["positions"] == old
        raise KeyError
    assert table_files(path, "positions") == [path / file["name"] for file in old]
    loaded.save(path, overwrite=True)
    named = {file["name"] for files in read_manifest(path)["files"].values() for file in files}
    assert named.isdisjoint(file["name"] for file in old)
    assert {name.removeprefix("/overwritten/") for name in webhdfs.files if "overwritten" in name} == {
        *named,
        MANIFEST,
    }
    assert not {"RENAME", "APPEND"} & {*webhdfs.operations}


def test_writer_whose_files_another_one_has_removed_makes_no_trace(tmp_path, tmp_path_factory):
    """The other one finishes first, and removes what its manifest does not name."""
    loaded = cabs(tmp_path_factory)
    path = place(f"memory://{tmp_path.name}")
    with (
        pytest.raises(OutputProblem, match="not at memory"),
        trace.TraceWriter.open(path, {}, overwrite=True) as writer,
    ):
        writer.write("positions", loaded.positions)
        loaded.save(path, overwrite=True)
    assert trace.load(path).positions.equals(loaded.positions)


def test_store_without_rights_is_named(webhdfs, tmp_path_factory):
    loaded = cabs(tmp_path_factory)
    loaded.save(f"{webhdfs.address}/closed/trace")
    webhdfs.forbidden.add("/closed/trace/trace.json")
    with pytest.raises(InputMissing, match="no right to read"):
        trace.load(f"{webhdfs.address}/closed/trace")
    webhdfs.forbidden.add("/closed")
    for call in (trace.load, trace.scan, read_manifest):
        with pytest.raises(InputMissing, match="no right to read"):
            call(f"{webhdfs.address}/closed/trace")
    with pytest.raises(OutputProblem, match="no right to write"):
        loaded.save(f"{webhdfs.address}/closed/other")


def test_file_of_a_folder_without_rights_is_named(webhdfs):
    """A 403 for one file is no damage of its content."""
    for name in ("a.csv", "b.csv"):
        webhdfs.put(f"/mixed/{name}", b"device,ts,lat,lon\na,1211100000,37,-122\na,1211100060,37.001,-122\n")
    webhdfs.forbidden.add("/mixed/b.csv")
    for call in (trace.load, trace.scan):
        with pytest.raises(InputMissing, match=r"no right to read the file at .*/mixed/b\.csv"):
            call(f"{webhdfs.address}/mixed")


def test_store_that_falls_silent_while_a_file_is_put_is_given_up(monkeypatch):
    monkeypatch.setattr("mudkit.hadoop.TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = place(f"webhdfs://127.0.0.1:{silent.getsockname()[1]}/trace/a.csv")
        with pytest.raises(OutputProblem, match="does not answer"), staged_file(address) as file:
            file.write_text("a")


@pytest.mark.parametrize(
    "address",
    [
        "webhdfs://127.0.0.1:1/cabs.csv",
        "webhdfs://127.0.0.1:1/*.csv",
        "nothing://a/cabs.csv",
        "s3:/bucket/cabs.csv",
    ],
)
@pytest.mark.parametrize(
    "call", [trace.load, trace.scan, trace.load_links, trace.load_unlocks, read_manifest]
)
def test_address_that_cannot_be_read_is_refused_as_one(address, call):
    with pytest.raises(MudkitError, match="address"):
        call(address)


def test_bucket_that_is_missing_is_named(s3_bucket, tmp_path_factory):
    """S3 has no folders: a missing one is no error when a file is put there, but a missing bucket is."""
    with pytest.raises(InputMissing, match="no bucket nothing that can be read"):
        trace.load("s3://nothing/cabs.csv")
    with pytest.raises(OutputProblem, match="no bucket or folder for s3://nothing"):
        cabs(tmp_path_factory).save("s3://nothing/trace")


class WebPages(BaseHTTPRequestHandler):
    """Web server that sends whole files alone, and says their size only where the name does not begin with _."""

    files: ClassVar[dict[str, bytes]] = {}

    def do_GET(self):
        content = self.files.get(self.path)
        self.send_response(404 if content is None else 403 if self.path == "/closed.csv" else 200)
        if not self.path.startswith("/_"):
            self.send_header("Content-Length", str(len(content or b"")))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content or b"")

    do_HEAD = do_GET  # noqa: N815 - the name that http.server calls

    def log_message(self, *arguments):
        """Write no log."""


@pytest.fixture(scope="module")
def web():
    with ThreadingHTTPServer(("127.0.0.1", 0), WebPages) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_file_of_the_web_is_read_whatever_its_server_can_do(web, tmp_path):
    """A server need not send parts of a file, nor say its size; a query may stand behind the name."""
    cabspotting, gpx, geopackage = (SAMPLES[kind] for kind in ("cabspotting", "gpx", "geopackage"))
    for sample in (cabspotting, gpx, geopackage):
        (name, content), expected = (
            *sample.files.items(),
            trace.load(sample.write(tmp_path), **sample.options),
        )
        packed = BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr(name, content)
        for path, body in {name: content, f"_{name}": content, f"{name}.zip": packed.getvalue()}.items():
            WebPages.files[f"/{path}"] = body
            loaded = trace.load(f"{web}/{path}", **sample.options)
            assert len(loaded.positions) == len(expected.positions), path
    WebPages.files["/cabs.csv?day=1"] = next(iter(cabspotting.files.values()))
    assert len(trace.load(f"{web}/cabs.csv?day=1").positions)


def test_host_of_the_web_that_refuses_is_said_in_its_words():
    with pytest.raises(InputMissing, match="does not answer") as caught:
        trace.load("http://127.0.0.1:1/cabs.csv")
    assert "ConnectionRefusedError" in caught.value.found


def test_page_of_the_web_that_gives_nothing_is_refused_in_words(web):
    WebPages.files |= {
        "/closed.csv": b"x",
        "/empty.csv": b"",
        "/_empty.csv": b"",
        "/page": b"<html>login</html>",
    }
    for path, error, pattern in (
        ("nothing.csv", InputMissing, "no trace at the address"),
        ("closed.csv", InputMissing, "no right to read"),
        ("empty.csv", TraceFormatError, "is empty"),
        ("_empty.csv", TraceFormatError, "is empty"),
        ("page", TraceFormatError, "is a web page"),
    ):
        with pytest.raises(error, match=pattern):
            trace.load(f"{web}/{path}")
