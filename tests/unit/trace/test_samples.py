"""One sample of each format, whichever way it is opened; nearly right ones; and damaged ones."""

import bz2
import contextlib
import gzip
import io
import lzma
import random
import time
import zipfile

import pyarrow as pa
import pytest
from trace_samples import SAMPLES

from mudkit import trace
from mudkit.errors import TraceContentError, TraceFormatError
from mudkit.trace.formats import FORMATS

MAX_S = 2.0


def by_row(rejected):
    return rejected.sort_by([("row", "ascending"), ("reason", "ascending")]).drop_columns(["source"])


def test_every_format_has_a_sample():
    assert set(SAMPLES) == set(FORMATS)


@pytest.mark.parametrize("kind", SAMPLES)
def test_sample_is_loaded_and_every_row_is_kept_or_set_aside(tmp_path, kind):
    sample = SAMPLES[kind]
    loaded = trace.load(sample.write(tmp_path), **sample.options)
    assert loaded.source["format"] == kind
    assert loaded.rejected_by_reason() == sample.aside
    kept = len(loaded.reads if FORMATS[kind].holds_reads else loaded.positions)
    assert kept + len(loaded.rejected) == sample.rows


@pytest.mark.parametrize("kind", SAMPLES)
def test_scan_and_folder_of_a_sample_equal_load(tmp_path, kind):
    sample = SAMPLES[kind]
    path = sample.write(tmp_path / "folder")
    loaded = trace.load(path, **sample.options)
    with trace.scan(path, batch_rows=7, **sample.options) as pieces:
        parts = list(pieces)
    assert pa.concat_tables(part.positions for part in parts).equals(loaded.positions)
    reads = pa.concat_tables(part.reads for part in parts)
    assert reads.sort_by("read_id").equals(loaded.reads.sort_by("read_id"))
    assert by_row(pa.concat_tables(part.rejected for part in parts)).equals(by_row(loaded.rejected))
    if FORMATS[kind].patterns:
        folder = trace.load(tmp_path / "folder", **sample.options)
        assert folder.positions.equals(loaded.positions)
        assert folder.reads.equals(loaded.reads)
        assert folder.rejected.equals(loaded.rejected)


@contextlib.contextmanager
def in_words(label):
    """Check that an error is one of a trace, and complete."""
    try:
        yield
    except Exception as error:
        parts = [getattr(error, name, None) for name in ("summary", "found", "expected", "remedy")]
        if not isinstance(error, TraceFormatError | TraceContentError) or not all(parts):
            raise AssertionError(f"{label}: {error!r}") from error
        raise


def is_refused(path, label, **options):
    """Load a file, and return whether it was refused; the error is complete."""
    try:
        with in_words(label):
            trace.load(path, **options)
    except (TraceFormatError, TraceContentError):
        return True
    return False


@pytest.mark.parametrize("kind", SAMPLES)
def test_nearly_right_sample_is_refused(tmp_path, kind):
    sample = SAMPLES[kind]
    with pytest.raises((TraceFormatError, TraceContentError), match=sample.error), in_words(kind):
        trace.load(sample.write(tmp_path, sample.nearly), **sample.options)


def damage(content, draw):
    """Flip bytes, cut, repeat or exchange pieces."""
    content = bytearray(content)
    for _ in range(draw.randint(1, 4)):
        if not content:
            break
        first, last = sorted(draw.randrange(len(content) + 1) for _ in range(2))
        match draw.randrange(5):
            case 0:
                for place in draw.choices(range(len(content)), k=draw.randint(1, 8)):
                    content[place] = draw.randrange(256)
            case 1:
                del content[first:last]
            case 2:
                content[first:first] = content[first:last]
            case 3:
                content = content[last:] + content[first:last] + content[:first]
            case 4:
                content[first:first] = draw.choice(
                    [b"\0", b"\n", b'"', b"\xff", b"<", b"{", b"9" * 40, b"nan", b","]
                )
    return bytes(content)


def zip_one(content):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("cabs.csv", content)
    return stream.getvalue()


@pytest.mark.parametrize("kind", SAMPLES)
def test_damaged_sample_is_loaded_or_refused_in_words(tmp_path, kind, scaled):
    sample = SAMPLES[kind]
    for seed in range(scaled(2000, 30)):
        draw = random.Random(f"{kind} {seed}")
        files = {name: damage(content, draw) for name, content in sample.files.items()}
        path = sample.write(tmp_path, files)
        start = time.perf_counter()
        is_refused(path, f"{kind}, seed {seed}", **sample.options)
        assert time.perf_counter() - start < MAX_S, seed


@pytest.mark.parametrize("kind", SAMPLES)
def test_sample_read_as_another_format_is_refused_in_words(tmp_path, kind):
    path = SAMPLES[kind].write(tmp_path)
    others = set(FORMATS) - {kind}
    refused = [other for other in others if is_refused(path, f"{kind} as {other}", format=other)]
    assert len(refused) > len(others) / 2  # a table may be that of another format, too


PACKINGS = {
    "gzip": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": lambda content: pa.compress(content, codec="zstd", asbytes=True),
    "zip": zip_one,
}


@pytest.mark.parametrize("packing", PACKINGS)
def test_damaged_packed_sample_is_loaded_or_refused_in_words(tmp_path, packing, scaled):
    (content,) = SAMPLES["csv"].files.values()
    packed = PACKINGS[packing](content)
    file, outcomes = tmp_path / "cabs.csv", set()
    for seed in range(scaled(2000, 30)):
        file.write_bytes(damage(packed, random.Random(f"{packing} {seed}")))
        outcomes.add(is_refused(file, f"{packing}, seed {seed}"))
    file.write_bytes(packed)
    outcomes.add(is_refused(file, packing))
    assert outcomes == {False, True}
