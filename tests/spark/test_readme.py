"""The code of the README and the guides runs as it stands, on small files."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytestmark = pytest.mark.spark
ROOT = Path(__file__).parents[2]
GUIDES = sorted(page for page in (ROOT / "docs" / "guides").glob("*.md") if page.stem != "index")
PAGES = [ROOT / "README.md", *GUIDES, *sorted((ROOT / "docs" / "start").glob("*.md"))]
PIECES = {
    f"{page.stem}-{number}": piece
    for page in PAGES
    for number, piece in enumerate(
        re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE), 1
    )
}
T0 = 1_700_000_000
# As they stand these take a minute: the paper's third figure with ten seeds, and years of messages.
LESS = {
    "**FIGURES[3], seeds=range(10)": "{'prefetch_limit': [1, 16], 'outage': [0.9]}, {'days': 30}, [1]",
    "[NEWS.over(devices=12), TRAFFIC.over(devices=12)], ADAPTERS, seeds=range(2)": (
        "[NEWS.over(devices=4, hours=4.0), TRAFFIC.over(devices=4, hours=0.2)], ADAPTERS, seeds=range(1)"
    ),
    "days=180)": "days=6)",
}


@pytest.fixture
def place(tmp_path, repository, monkeypatch):
    """A folder with the samples, a trace of two cabs, and a stream of events."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "sample").symlink_to(repository / "data" / "sample")
    rows = [
        f"{cab},{T0 + 60 * i},{37.75 + i / 5000},-122.41,{i // 20 % 2}" for cab in "ab" for i in range(200)
    ]
    text = "\n".join(["cab,t,lat,lon,occ", *rows, ""])
    (tmp_path / "cabs.csv.gz").write_bytes(gzip.compress(text.encode()))
    places = {"ann": [38.7, -9.1], "bob": [38.75, -9.2]}
    answer = [("register", {"loc": at}) for at in places.values()]
    answer += [
        ("context", {"people": [each], "span_us": None, "attributes": {"loc": at}})
        for each, at in places.items()
    ]
    events = [
        {
            "ts": 1_000_000 * (T0 + 5 * number),
            "number": number,
            "client": [*places][number % 2],
            "kind": kind,
            "told": json.dumps(what),
        }
        for number, (kind, what) in enumerate(answer)
    ]
    schema = pa.schema(
        [
            ("ts", pa.timestamp("us", "UTC")),
            ("number", pa.int64()),
            ("client", pa.string()),
            ("kind", pa.string()),
            ("told", pa.string()),
        ]
    )
    (tmp_path / "events").mkdir()
    pq.write_table(pa.Table.from_pylist(events, schema=schema), tmp_path / "events" / "0.parquet")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_nothing_is_left_out():
    assert len(PIECES) > 10
    assert all(any(old in piece for piece in PIECES.values()) for old in LESS)


def test_the_readme_links_to_every_guide_and_no_link_is_dead():
    readme = PAGES[0].read_text(encoding="utf-8")
    assert [page.name for page in GUIDES if f"(docs/guides/{page.name})" not in readme] == []
    for page in PAGES:
        links = re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8"))
        assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("name", PIECES)
def test_a_code_block_runs(name, place, spark):
    piece = PIECES[name]
    for old, new in LESS.items():
        piece = piece.replace(old, new)
    exec(compile(piece, name, "exec"), {"__name__": "__main__"})
