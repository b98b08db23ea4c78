"""Packed files: recognised by content, unpacked, or refused with what to do."""

import bz2
import gzip
import io
import lzma
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mudkit import trace
from mudkit.errors import TraceFormatError
from mudkit.trace.formats.packed import bare_name

ROWS = [(f"a{i % 2}", 1_700_000_000 + 30 * i, 47 + 0.002 * i, 8.0) for i in range(30)]
TEXT = ("device,ts,lat,lon\n" + "".join(",".join(map(str, row)) + "\n" for row in ROWS)).encode()


def pack_zip(members):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return stream.getvalue()


def lock(archive):
    """Mark the only member as encrypted, in its own header and in the directory."""
    content = bytearray(archive)
    content[6] |= 1
    content[content.rindex(b"PK\1\2") + 8] |= 1
    return bytes(content)


def pack_zstd(content):
    return pa.compress(content, codec="zstd", asbytes=True)


PACKED = {
    "gzip": gzip.compress(TEXT),
    "gzip in parts": gzip.compress(TEXT[:100]) + gzip.compress(TEXT[100:]),
    "bz2": bz2.compress(TEXT),
    "xz": lzma.compress(TEXT),
    "zst": pack_zstd(TEXT),
    "zip": pack_zip({"data/cabs.csv": TEXT, "__MACOSX/._cabs.csv": b"\0", "data/.DS_Store": b"\0"}),
    "gzip twice": gzip.compress(gzip.compress(TEXT)),
    "gzip in a zip": pack_zip({"cabs.csv.gz": gzip.compress(TEXT)}),
}


@pytest.mark.parametrize("packing", PACKED)
@pytest.mark.parametrize("name", ["cabs.csv", "cabs.csv.gz"])
def test_packed_file_is_unpacked_by_content(tmp_path, packing, name):
    (tmp_path / name).write_bytes(PACKED[packing])
    assert len(trace.load(tmp_path / name).positions) == 30
    assert len(trace.load(tmp_path).positions) == 30


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, pack_zstd])
def test_packed_parquet_is_unpacked(tmp_path, pack):
    sink = pa.BufferOutputStream()
    columns = dict(zip(("device", "ts", "lat", "lon"), zip(*ROWS, strict=True), strict=True))
    pq.write_table(pa.table(columns), sink)
    (tmp_path / "cabs.parquet.zip").write_bytes(pack(sink.getvalue().to_pybytes()))
    assert len(trace.load(tmp_path / "cabs.parquet.zip").positions) == 30


REFUSED = {
    "several files": (pack_zip({"a.csv": TEXT, "b.csv": TEXT}), "a zip of 2 files: a.csv, b.csv"),
    "no files": (pack_zip({}), "a zip without files"),
    "zip in a zip": (pack_zip({"a.zip": pack_zip({"a.csv": TEXT})}), "zip inside zip"),
    "too often": (gzip.compress(gzip.compress(gzip.compress(gzip.compress(TEXT)))), "gzip inside gzip"),
    "password": (lock(pack_zip({"a.csv": TEXT})), "a.csv, locked with a password"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_file_that_is_not_unpacked_is_named(tmp_path, case):
    content, description = REFUSED[case]
    (tmp_path / "cabs.csv").write_bytes(content)
    with pytest.raises(TraceFormatError, match="packed in a way that is not read") as caught:
        trace.load(tmp_path / "cabs.csv")
    assert description in caught.value.found
    assert "unpack it into a folder" in caught.value.remedy


@pytest.mark.parametrize("packing", [name for name in PACKED if name != "gzip in parts"])
def test_truncated_packed_file_is_refused(tmp_path, packing):
    (tmp_path / "cabs.csv").write_bytes(PACKED[packing][:-20])
    with pytest.raises(TraceFormatError, match=r"is cut short|cannot be read"):
        trace.load(tmp_path / "cabs.csv")


@pytest.mark.parametrize(
    ("name", "bare"),
    [("a.csv", "a.csv"), ("a.csv.gz", "a.csv"), ("A.GPX.ZIP", "A.GPX"), ("a.csv.zst.bz2", "a.csv")],
)
def test_name_without_suffixes_of_packing(tmp_path, name, bare):
    assert bare_name(tmp_path / name) == bare


DOCUMENTS = {
    "xlsx": (pack_zip({"[Content_Types].xml": "", "xl/workbook.xml": ""}), "xlsx", "save the sheet as CSV"),
    "ods": (pack_zip({"mimetype": "", "content.xml": ""}), "OpenDocument", "save the sheet as CSV"),
    "xls": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "old Excel workbook", "save the sheet as CSV"),
    "Git LFS": (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d\n", "Git LFS", "git lfs pull"),
    "RTF": (b"{\\rtf1\\ansi device,ts}", "rich text", "plain text"),
    "7z": (b"7z\xbc\xaf\x27\x1c\0\4", "7z archive", "unpack it"),
    "tar": (b"cabs.csv".ljust(257, b"\0") + b"ustar\x0000", "tar archive", "unpack it"),
    "tar, packed": (
        gzip.compress(b"cabs.csv".ljust(257, b"\0") + b"ustar\x0000"),
        "tar archive",
        "unpack it",
    ),
    "shapefile": (b"\0\0\x27\x0a" + bytes(96), "shapefile", "GeoPackage or CSV"),
    "FIT": (b"\x0e\x10\xd9\x07\x10\x27\0\0.FIT", "FIT file", "GPX or TCX"),
    "IGC": (b"AXXXABC flight:1\r\nHFDTE160701\r\n", "IGC", "GPX"),
    "AIS": (b"!AIVDM,1,1,,A,13HOI:0P0000VOHLCnHQKwvL05Ip,0*23\n", "AIS", "decode it to CSV"),
    "Arrow": (b"ARROW1\0\0", "Arrow", "Parquet"),
    "pickle": (b"\x80\x04\x95\x00\x01", "Python objects", "Parquet"),
    "timeline": (b'{\n  "timelineObjects": []}', "Semantic Location History", "Records.json"),
    "HDF5": (b"\x89HDF\r\n\x1a\n", "HDF5", "Parquet"),
}


@pytest.mark.parametrize("case", DOCUMENTS)
@pytest.mark.parametrize("name", ["cabs.csv", "cabs.txt"])
def test_document_is_named_with_what_to_do(tmp_path, case, name):
    content, kind, remedy = DOCUMENTS[case]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TraceFormatError, match=kind) as caught:
        trace.load(tmp_path / name)
    assert remedy in caught.value.remedy
