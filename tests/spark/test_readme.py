"""The code of the README and the guides runs as it stands, on small files."""

from __future__ import annotations

import ast
import gzip
import json
import os
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
OUTCOMES = {
    "README-1": "'noon?' in printed and set(shown['device']) >= {'jane', 'bob'}",
    "class-1": "'Not yet.' in printed",
    "contrail-1": "[party for party, *_ in shown] == ['alice']",
    "histories-1": "verdict.status == 'ILLEGAL' and shown.data",
    "lab-1": "{'positions', 'messages'} <= {path.stem for path in shown.iterdir()} and len(fleet) == 200",
    "lasthop-1": "(round(run.waste, 4), round(run.loss, 4)) == (0.0027, 0.0068) and shown.data",
    "lasthop-2": "[item['text'] for item in shown[0]] == ['a bridge opens'] and storm in set(shown[1]['item'])",
    "lasthop-3": "shown.data",
    "mud-1": "shown.to_dict('index') == {'a17': {'topic': 'arts'}}",
    "predicates-1": "shown == ['ann']",
    "radiator-1": "printed.count('car-1') == 4 and set(shown['receiver']) == {'phone-00000'}",
    "scoreboard-1": "{'relay', 'servers', 'a phone'} <= set(shown['party'])",
    "streams-1": "shown[0].count() > 0 and shown[1].count() == shown[2] == 0",
    "sublim-1": "'R4' in printed",
    "traces-1": "not shown.empty",
    "engineer-1": "'noon?' in printed",
}
"""What is true of the names of a code block, of what it prints and what its last line shows."""


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
    places = {"ann": [38.7, -9.1], "bob": [38.71, -9.11]}
    answer = [("register", {"loc": at}) for at in places.values()]
    answer += [
        ("context", {"people": [each], "span_us": None, "attributes": {"loc": at}})
        for each, at in [*places.items()] * 6
    ]
    events = [
        {
            "ts": 1_000_000 * (T0 + 60 * number),
            "number": number,
            "client": [*places][number % 2],
            "kind": kind,
            "text": json.dumps(what),
        }
        for number, (kind, what) in enumerate(answer)
    ]
    schema = pa.schema(
        [
            ("ts", pa.timestamp("us", "UTC")),
            ("number", pa.int64()),
            ("client", pa.string()),
            ("kind", pa.string()),
            ("text", pa.string()),
        ]
    )
    (tmp_path / "events").mkdir()
    for number, batch in enumerate((events[:-1], events[-1:])):  # the second moves the watermark on
        file = tmp_path / "events" / f"{number}.parquet"
        pq.write_table(pa.Table.from_pylist(batch, schema=schema), file)
        os.utime(file, (number, number))
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


def test_every_code_block_has_an_outcome():
    assert OUTCOMES.keys() == PIECES.keys()


@pytest.mark.parametrize("name", PIECES)
def test_a_code_block_does_what_it_says(name, place, spark, capsys):
    piece = PIECES[name]
    for old, new in LESS.items():
        piece = piece.replace(old, new)
    *statements, last = ast.parse(piece).body
    names = {"__name__": "__main__"}
    exec(compile(ast.Module(statements, []), name, "exec"), names)
    if isinstance(last, ast.Expr):
        names["shown"] = eval(compile(ast.Expression(last.value), name, "eval"), names)
    else:
        exec(compile(ast.Module([last], []), name, "exec"), names)
    names["printed"] = capsys.readouterr().out
    assert eval(OUTCOMES[name], names), {each: names.get(each) for each in ("printed", "shown")}
