"""Parsing of batches: what it takes in memory."""

import tracemalloc

from mudkit.trace.options import Options
from mudkit.trace.parse import parse_batch

ROWS = 50_000
MAX_BYTES_A_ROW = 150
"""A dozen numbers for each row at a time: its reason, a text, is for rows that are set aside alone."""


def test_no_part_of_a_source_is_read_if_none_is_named(tmp_path):
    file = tmp_path / "cabs.csv"
    file.write_text("device,ts,lat,lon\ncab,1700000000,47.0,8.5\n")
    source = Options().plan(file).source
    assert len(list(source.batches())) == 1
    assert list(source.batches([])) == []


def test_good_rows_hold_no_texts_of_reasons(tmp_path):
    file = tmp_path / "cabs.csv"
    lines = (f"cab{n % 9},{1_700_000_000 + n},47.{n:06d},8.5" for n in range(ROWS))
    file.write_text("\n".join(["device,ts,lat,lon", *lines]))
    plan = Options().plan(file)
    (batch,) = plan.source.batches()
    parse_batch(plan, batch)  # loads what it needs
    tracemalloc.start()
    try:
        assert len(parse_batch(plan, batch).good) == ROWS
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < MAX_BYTES_A_ROW * ROWS, f"{peak_bytes / ROWS:.0f} bytes a row"


def test_names_of_devices_are_dictionaries_in_which_each_stands_once(tmp_path):
    file = tmp_path / "cabs.csv"
    rows = [f"{name},{1_700_000_000 + n},47.0,8.5" for n, name in enumerate(["b", " a", "a ", "", "b"])]
    file.write_text("\n".join(["device,ts,lat,lon", *rows]))
    plan = Options().plan(file)
    parsed = parse_batch(plan, next(plan.source.batches()))
    device = parsed.good["device"].combine_chunks()
    assert device.to_pylist() == ["b", "a", "a", "b"]
    assert sorted(device.dictionary.to_pylist()) == ["", "a", "b"]
    assert parsed.bad["reason"].to_pylist() == ["no device"]
