"""Text tables as spreadsheets, loggers and databases write them."""

import gzip

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudkit import trace
from mudkit.errors import ParameterError, TraceFormatError
from mudkit.trace.formats import UNCLOSED, delimited
from mudkit.trace.formats.delimited import _Utf8, dialect_of, lines_of
from mudkit.trace.parse import FIELDS, UNNAMED

T0 = 1_700_000_000
COUNT = 8
NAMES = "device,ts,lat,lon"
PLACES = {"device": 1, "ts": 2, "lat": 3, "lon": 4}


def build_rows(row, count=COUNT):
    """Return rows of a device that moves north, from a pattern of time and latitude."""
    return [row.format(t=T0 + 60 * i, lat=f"47.00{i}", comma=f"47,00{i}", i=i) for i in range(count)]


def build_table(row, *above, end="\n"):
    return end.join([*above, *build_rows(row), ""])


PLAIN = build_table("a,{t},{lat},8.5", NAMES)
TABLES = {
    "plain": PLAIN,
    "commas, a quoted name with semicolons": build_table('a,{t},{lat},8.5,"x;y"', f'{NAMES},"a; b; c; d; e; f"'),
    "semicolons, a quoted name with commas": build_table("a;{t};{lat};8.5;1", 'device;ts;lat;lon;"v (m/s, a, b, c, d, e)"'),
    "commas, bars in a name": build_table("a,{t},{lat},8.5,1", f"{NAMES},a|b|c|d|e|f"),
    "a separator line": build_table("a;{t};{lat};8.5", "sep=;", "device;ts;lat;lon"),
    "a separator line with a mark": "\ufeff" + build_table("a,{t},{lat},8.5", "sep=,", NAMES, end="\r\n"),
    "a separator line of tabs": build_table("a\t{t}\t{lat}\t8.5", r'"sep=\t"', NAMES.replace(",", "\t")),
    "another separator": build_table("a:{t}:{lat}:8.5", "sep=:", NAMES.replace(",", ":")),
    "comments": build_table("a,{t},{lat},8.5", "# logger 3, of ann, in Zurich, CH", "# units: deg", "", NAMES),
    "a title": build_table("a;{t};{lat};8.5", "Fleet report; November;;", "", "device;ts;lat;lon"),
    "a header like a comment": build_table("a,{t},{lat},8.5", f"# {NAMES}"),
    "separators at the end of rows": build_table("a,{t},{lat},8.5,,", NAMES),
    "separators at the end of the header": build_table("a,{t},{lat},8.5", f"{NAMES},,"),
    "UTF-16": build_table("a\t{t}\t{lat}\t8.5", NAMES.replace(",", "\t"), end="\r\n").encode("utf-16"),
    "UTF-16 without a mark": PLAIN.encode("utf-16-be"),
    "packed UTF-16": gzip.compress(PLAIN.encode("utf-16-le")),
    "blanks before quotes": build_table('"a", {t}, "{lat}",  "8.5"', NAMES),
    "quoted names": build_table(' "a", {t}, {lat}, 8.5', '"device", "ts", "lat", "lon"'),
    "decimal commas": build_table("a;{t};{comma};8,5", NAMES.replace(",", ";")),
    "Windows-1252": build_table("a;{t};{lat};8.5;x", "device;ts;lat;lon;Straße").encode("cp1252"),
    "Windows-1252 below a separator line": build_table("a;{t};{lat};8.5;x", "sep=;", "device;ts;lat;lon;Länge", end="\r\n").encode("cp1252"),
    "blanks": build_table("a {t} {lat} 8.5", NAMES.replace(",", " ")),
    "aligned": build_table("  a   {t}  {lat}    8.5  ", "device          ts     lat    lon", "  ", end="\r\n"),
    "blanks, a quoted name": build_table('a {t} {lat} 8.5 "x  y"', f"{NAMES.replace(',', ' ')} note"),
    "quoted decimal commas": build_table('a,{t},"{comma}","8,5"', NAMES),
}  # fmt: skip


def write(tmp_path, content, name="t.csv"):
    file = tmp_path / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


@pytest.mark.parametrize("case", TABLES)
def test_table_is_read_like_a_plain_one(tmp_path, case):
    loaded = trace.load(write(tmp_path, TABLES[case]))
    assert loaded.positions.to_pylist() == trace.load(write(tmp_path, PLAIN)).positions.to_pylist()
    assert not len(loaded.rejected)


def test_header_of_mapped_names_may_stand_below_a_title(tmp_path):
    file = write(tmp_path, build_table("a;{t};{lat};8.5", "Bericht;;;", "wer;wann;breite;laenge"))
    columns = {"device": "wer", "ts": "wann", "lat": "breite", "lon": "laenge"}
    assert len(trace.load(file, columns=columns).positions) == COUNT


def test_mapped_name_in_a_row_is_no_header(tmp_path):
    with pytest.raises(TraceFormatError, match=r"lacks columns(?s:.)*found: +device, ts, lat, lon"):
        trace.load(write(tmp_path, PLAIN), columns={"device": "a"})


def test_blanks_before_quotes_may_begin_late(tmp_path):
    rows = build_rows("a,{t},{lat},8.5", 200)
    rows[150] = f'a, "{T0}", 47, 8.5'
    loaded = trace.load(write(tmp_path, "\n".join([NAMES, *rows])), rule="none")
    assert not any('"' in raw for raw in loaded.rejected["raw"].to_pylist())


def test_last_line_may_lack_its_end(tmp_path):
    file = write(tmp_path, f"sep=;\n{NAMES.replace(',', ';')};\na;{T0};47;8.5;\nb;{T0};47,1;8.5;")
    assert trace.load(file, table="reads").reads["lat"].to_pylist() == [47, 47.1]


def test_units_below_the_header_are_set_aside(tmp_path):
    file = write(tmp_path, build_table("a;{t};{lat};8.5", "device;ts;lat;lon", ";s;deg;deg"))
    loaded = trace.load(file)
    assert [(row["row"], row["reason"]) for row in loaded.rejected.to_pylist()] == [(1, UNNAMED)]
    assert len(loaded.positions) == COUNT


def test_quoted_name_keeps_its_separators_and_blanks(tmp_path):
    file = write(tmp_path, build_table('{t}, "Zurich,  ""7"" ", {lat}, 8.5', "ts,device,lat,lon"))
    assert set(trace.load(file).positions["device"].to_pylist()) == {'Zurich,  "7"'}


@pytest.mark.parametrize(
    "row", ["a,{t},{lat},8.5", "7;{t};{lat};8.5", "7\tx\t2023-11-14 22:1{i}:00\t{lat}\t8.5"]
)
def test_row_in_place_of_the_header_is_refused(tmp_path, row):
    with pytest.raises(TraceFormatError, match=r"has no header(?s:.)*header=False") as caught:
        trace.load(write(tmp_path, build_table(row)))
    assert build_rows(row)[0].replace("\t", "\\t") in caught.value.found


@pytest.mark.parametrize(
    ("above", "rejected"),
    [([], 0), (["# a comment"], 0), (["sep=,"], 0), (["1,4,2,3"], 1), (["#7,4,2,3"], 1), (["b,4"], 1)],
)
def test_columns_without_a_header_are_named_by_place(tmp_path, above, rejected):
    """A comment above is no row; one that has too few fields, or a device that begins like a comment, is."""
    file = write(tmp_path, build_table("a,{t},{lat},8.5", *above))
    loaded = trace.load(file, header=False, columns=PLACES)
    assert len(loaded.positions) == COUNT
    assert len(loaded.rejected) == rejected
    assert loaded.source["options"]["columns"]["lat"] == "column 3"


@pytest.mark.parametrize(
    "options",
    [
        {"header": False},
        {"header": False, "columns": {**PLACES, "ts": 0}},
        {"header": False, "columns": {**PLACES, "ts": "t"}},
        {"columns": PLACES},
    ],
)
def test_places_need_a_table_without_a_header(tmp_path, options):
    with pytest.raises(ParameterError, match="header=False"):
        trace.load(write(tmp_path, PLAIN), **options)


def test_decimal_commas_do_not_separate_fields(tmp_path):
    file = write(tmp_path, build_table("{t};{comma};8,5"))
    loaded = trace.load(file, device="a", header=False, columns={"ts": 1, "lat": 2, "lon": 3})
    assert loaded.positions.equals(trace.load(write(tmp_path, PLAIN, "plain.csv")).positions)


def test_rows_between_blanks_are_found_in_the_file(tmp_path):
    text = "device ts  lat lon\n\n   \n" + "\n".join(build_rows("  a  {t} {lat}   8.5")) + "\n  a   5\n"
    file = write(tmp_path, text)
    (rejected,) = trace.load(file).rejected.to_pylist()
    assert (rejected["row"], rejected["reason"], rejected["raw"]) == (COUNT + 1, FIELDS, "a 5")
    assert list(lines_of(file, dialect_of(file), [COUNT + 1])) == [(COUNT + 1, COUNT + 4, "  a   5")]


def test_date_and_time_may_be_apart_by_a_blank(tmp_path):
    file = write(tmp_path, build_table("a 2023-11-14 22:1{i}:20 {lat} 8.5", "device date time lat lon"))
    assert [ts.minute for ts in trace.load(file).positions["ts"].to_pylist()] == [
        10 + i for i in range(COUNT)
    ]


def test_names_of_windows_are_mapped(tmp_path):
    text = build_table("a;{t};{lat};8.5", "Gerät;Zeit;Breite;Länge")
    columns = {"device": "Gerät", "ts": "Zeit", "lat": "Breite", "lon": "Länge"}
    loaded = trace.load(write(tmp_path, text.encode("cp1252")), columns=columns)
    assert loaded.positions.equals(trace.load(write(tmp_path, PLAIN)).positions)


def test_place_beyond_the_last_column_is_refused(tmp_path):
    file = write(tmp_path, build_table("a,{t},{lat},8.5"))
    with pytest.raises(TraceFormatError, match="column 5"):
        trace.load(file, header=False, columns={**PLACES, "lon": 5})


def test_rows_of_other_widths_are_set_aside(tmp_path):
    rows = build_rows("a,{t},{lat},8.5,")
    rows[3] = rows[3].rstrip(",")
    loaded = trace.load(write(tmp_path, "\n".join([NAMES, *rows])))
    assert [(row["row"], row["reason"]) for row in loaded.rejected.to_pylist()] == [(4, FIELDS)]
    assert len(loaded.positions) == COUNT - 1


def test_quoted_text_may_span_lines(tmp_path):
    rows = build_rows('a,{t},{lat},8.5,"x, ""y"""')
    rows[2] = rows[2].replace("x", "x\n\n")
    rows[4] = 'a,then,47,8.5,"one\ntwo"'
    file = write(tmp_path, "\n".join([f"{NAMES},note", *rows]))
    assert [row["row"] for row in trace.load(file).rejected.to_pylist()] == [5]
    assert list(lines_of(file, dialect_of(file), [3, 5, 8])) == [
        (3, 4, rows[2]),
        (5, 8, rows[4]),
        (8, 12, rows[7]),
    ]


@pytest.mark.parametrize(("line", "is_text"), [("2,3,4,5", True), ("2,3,4,5,6", False)])
def test_line_of_a_quoted_text_with_as_many_fields_as_a_row_shows_that_a_mark_is_open(
    tmp_path, line, is_text
):
    rows = build_rows('a,{t},{lat},8.5,"x"')
    rows[4] = rows[4].replace("x", f"one\n{line}\nsix")
    loaded = trace.load(write(tmp_path, "\n".join([f"{NAMES},note", *rows])))
    assert (len(loaded.rejected) == 0) == is_text


@pytest.mark.parametrize("row", ['"a",{t},{lat},8.5,"x\ny"', ' "a", {t}, {lat}, 8.5, "x\ny"'])
def test_rows_do_not_depend_on_where_a_chunk_of_the_text_ends(tmp_path, row):
    """A quoted text is on one line, and no blank stands before its mark."""
    file = write(tmp_path, "\n".join([f"{NAMES},note", *build_rows(row)[:3], ""]))
    text = file.read_bytes()
    for end in range(1, len(text)):
        rows = delimited._RowLines(dialect_of(file))
        chunks = b"".join(rows(pa.py_buffer(part)) for part in (text[:end], text[end:], b""))
        assert chunks == text.replace(b"x\ny", b"x y").replace(b' "', b'"'), end


def test_line_end_in_a_device_is_a_blank(tmp_path):
    file = write(tmp_path, build_table('"bus\r\n7",{t},{lat},8.5', NAMES))
    assert set(trace.load(file).positions["device"].to_pylist()) == {"bus 7"}


INCH = 'a,{t},{lat},8.5,"5 inch'
OPEN = {
    "once": (f"{NAMES},note", "a,{t},{lat},8.5,ok", {3: INCH}),
    "twice": (f"{NAMES},note", "a,{t},{lat},8.5,ok", {1: INCH, 5: INCH}),
    "in rows that follow each other": (f"{NAMES},note", "a,{t},{lat},8.5,ok", {1: INCH, 2: INCH}),
    "at the end": (f"{NAMES},note", "a,{t},{lat},8.5,ok", {7: INCH}),
    "before a quoted row": (f"{NAMES},note", '"a","{t}","{lat}","8.5","ok"', {3: INCH}),
    "in the first field": (NAMES, '"a",{t},{lat},"8.5"', {3: '"a,{t},{lat},8.5'}),
    "in a used field": (NAMES, '"a",{t},{lat},"8.5"', {3: 'a,{t},{lat},"8.5'}),
    "behind blanks": (f"{NAMES},note", '"a", {t}, {lat}, 8.5, "ok"', {3: 'a, {t}, {lat}, 8.5, "5 inch'}),
    "below a text of two lines": (f"{NAMES},note", 'a,{t},{lat},8.5,"two\nlines"', {3: INCH}),
    "before tabs": (f"{NAMES},note".replace(",", "\t"), "a\t{t}\t{lat}\t8.5\tok", {3: INCH.replace(",", "\t")}),
}  # fmt: skip


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("case", OPEN)
def test_row_with_a_quotation_mark_that_is_not_closed_is_set_aside(tmp_path, case, end):
    header, row, others = OPEN[case]
    rows = build_rows(row)
    for place, other in others.items():
        rows[place] = build_rows(other)[place]
    file = write(tmp_path, end.join([header, *(line.replace("\n", end) for line in rows), ""]))
    loaded = trace.load(file)
    aside = [(line["row"], line["reason"], line["raw"]) for line in loaded.rejected.to_pylist()]
    assert aside == [(place + 1, UNCLOSED, rows[place]) for place in others]
    assert len(loaded.positions) == COUNT - len(others)
    first = next(iter(others))
    line = 2 + sum(1 + text.count("\n") for text in rows[:first])
    assert list(lines_of(file, dialect_of(file), [first + 1])) == [(first + 1, line, rows[first])]


@pytest.mark.parametrize("lines", [2, 999])
def test_quoted_texts_at_the_borders_of_blocks_are_read(tmp_path, monkeypatch, lines):
    monkeypatch.setattr(delimited, "_BLOCK_BYTES", 20_000)
    loaded = trace.load(write(tmp_path, build_notes(lines, 8000 // lines)), rule="none")
    assert (len(loaded.positions), len(loaded.rejected)) == (8000 // lines, 0)


def test_quoted_text_of_over_a_thousand_lines_has_no_end(tmp_path):
    with pytest.raises(TraceFormatError, match=UNCLOSED):
        trace.load(write(tmp_path, build_notes(1002, 4)))


def build_notes(lines, count):
    """Return a table of rows with notes of several lines."""
    note = "\n".join(f"{i:07}" for i in range(lines))
    rows = [f'a,{T0 + 60 * i},{47 + i / 10_000:.4f},8.5,"{note}"' for i in range(count)]
    return "\n".join([f"{NAMES},note", *rows, ""])


@given(
    rows=st.lists(
        st.lists(st.text('ab",; \n7.', max_size=6), min_size=4, max_size=4), min_size=1, max_size=6
    ),
    separator=st.sampled_from([", ", ","]),
)
def test_rows_and_lines_of_any_quoted_table_are_found(tmp_path_factory, rows, separator):
    """Draw quoted texts; a line break would be a fault of its own."""
    fields = [[text.replace("\n", "") for text in row] for row in rows]
    lines = [separator.join('"{}"'.format(text.replace('"', '""')) for text in row) for row in fields]
    file = write(tmp_path_factory.mktemp("quoted"), "\n".join(["# a title", NAMES, "", *lines, ""]))
    dialect = dialect_of(file)
    assert (dialect.names, dialect.delimiter, dialect.above) == (NAMES.split(","), ",", 2)
    batches = list(trace.formats.FORMATS["csv"].read(file, {name: name for name in NAMES.split(",")}))
    read = [
        [row[name] for name in NAMES.split(",")] for batch in batches for row in batch.columns.to_pylist()
    ]
    assert read == fields
    assert list(lines_of(file, dialect, range(1, 99))) == [
        (i, i + 3, line) for i, line in enumerate(lines, 1)
    ]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "cp1252", "utf-16"])
@pytest.mark.parametrize("text", ["plain,text\n" * 9, "\ufeffa,ü\n", "ab\nü\ncd\n" * 5, "abc\n\ufeffdef\n"])
@pytest.mark.parametrize("chunk_bytes", [1, 2, 3, 4, 5, 100])
def test_text_becomes_utf_8_chunk_by_chunk(encoding, text, chunk_bytes):
    content = text.encode("utf-8" if encoding == "utf-8-sig" else encoding, errors="replace")
    chunks = [content[at : at + chunk_bytes] for at in range(0, len(content), chunk_bytes)]
    to_utf8 = _Utf8(encoding)
    joined = b"".join(bytes(to_utf8(pa.py_buffer(chunk))) for chunk in [*chunks, b""])
    assert joined == content.decode(encoding).encode()
