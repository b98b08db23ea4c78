"""Code of the README and the guides: runs unchanged on small files."""

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

from mudkit.learning import FixedRule, export_policy

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
# Unchanged, these take a minute: the paper's third figure with ten seeds, and years of messages.
REDUCED = {
    "**FIGURES[3], seeds=range(10)": "{'prefetch_limit': [1, 16], 'outage': [0.9]}, {'days': 30}, [1]",
    "[NEWS.over(devices=12), TRAFFIC.over(devices=12)], ADAPTERS, seeds=range(2)": (
        "[NEWS.over(devices=4, hours=4.0), TRAFFIC.over(devices=4, hours=0.2)], ADAPTERS, seeds=range(1)"
    ),
    "days=180)": "days=6)",
    "HOURS = 24": "HOURS = 2.5",
}
OUTCOMES = {
    "README-1": "all(part in printed for part in ('noon?', 'jane', 'bob'))",
    "class-1": "'Not yet.' in printed",
    "cluster-1": "shown[0] == 400 and any(__import__('pathlib').Path('counts').rglob('*.orc'))",
    "coming-from-firestore-1": (
        "shown == ([('milk', False), ('tea', False), ('jam', True)], {'milk': 1, 'tea': 1, 'jam': None})"
    ),
    "coming-from-firestore-2": "shown == {'milk': {'count': 4, 'tags': ['cold']}}",
    "coming-from-firestore-3": "shown == ['milk', 'oat milk', 'two milks']",
    "coming-from-firestore-4": "shown == {'milk': {'count': 1}, 'cocoa': {'count': 1}}",
    "coming-from-firestore-5": "shown == {} and 'You may not write this record.' in printed",
    "coming-from-firestore-6": "shown['at once'] == 10 and shown['queue'] == 1 and 1 < shown['utility'] < 10",
    "contrail-1": "[party for party, *_ in shown] == ['alice']",
    "histories-1": "verdict.status == 'ILLEGAL' and shown.data",
    "lab-1": "{'positions', 'messages'} <= {path.stem for path in shown.iterdir()} and len(fleet) == 200",
    "lab-2": "printed.count('at 13:') == 6 and 'heartbeat' in printed and chat.next_at is None",
    "lab-3": "costs['arrived'].tolist() == [10, 1, 10] and 2 < costs['kb'][2] / costs['kb'][0] < 4 and shown.data",
    "lab-4": (
        "days['joules']['umts_3g', 'mqtt', 'kept'] < days['joules']['umts_3g', 'mqtt', 'each 300 s']"
        " and days.xs('kept', level='way')['not let in'].groupby('transport').sum().to_dict()"
        " == {'https': 6, 'messages': 0, 'mqtt': 0}"
    ),
    "lasthop-1": "(round(run.waste, 4), round(run.loss, 4)) == (0.0027, 0.0068) and shown.data",
    "lasthop-2": "[item['text'] for item in shown[0]] == ['a bridge opens'] and storm in set(shown[1]['item'])",
    "lasthop-3": "shown.data",
    "mud-1": "shown.to_dict('index') == {'a17': {'topic': 'arts'}}",
    "mud-2": "'You may not write this record.' in printed",
    "mud-3": "shown == {'a17': {'topic': 'arts', 'likes': 6, 'tags': ['new'], 'city': 'Rome'}}",
    "mud-4": (
        "shown == ({'sum(sum)': 10}, {'a': {'sum': 6}, 'b': {'sum': 4}, 'note': {'text': 'rent'}})"
        " and 'part 2 of 2' in printed"
    ),
    "mud-5": "shown == [('upsert', None, True, True), ('upsert', 1, False, False)]",
    "mud-6": "printed.splitlines()[-1] == \"{'count(*)': 1}\"",
    "mud-7": "shown == ({'a17': 'local', 'b3': 'local'}, {'a17': 1, 'b3': None}, True)",
    "mud-8": "shown[-2:] == [('remove', 'c5', None), ('upsert', 'a17', {'title': 'A17'})]",
    "mud-9": "issubclass(Careful, Utility)",
    "mud-10": "sources[0] == sources[2] == {'remote'} and sources[5] == sources[6] == {'local'}",
    "mud-11": (
        "shown == ([(\"place = 'canteen'\", \"place = 'cashier'\", 1.0)], 1)"
        " and [one.kind for one in mined.verdicts if one.ships] == ['prefetch']"
    ),
    "predicates-1": "shown == ['ann']",
    "radiator-1": "printed.count('car-1') == 4 and set(shown['receiver']) == {'phone-00000'}",
    "reports-1": "shown['version'] == 1",
    "scoreboard-1": "{'relay', 'servers', 'a phone'} <= set(shown['party'])",
    "streams-1": "shown[0].count() > 0 and shown[1].count() == shown[2] == 0",
    "sublim-1": "'R4' in printed",
    "traces-1": "not shown.empty",
    "traces-2": (
        "set(shown['area']) == {'south', None} and len(trips) == len(begins) == 2 and len(fastest) == 10"
        " and not len(stops) and set(begins['area'].to_pylist()) == {'south'}"
    ),
    "engineer-1": "'noon?' in printed",
}
"""Conditions on the names of a code block, its printed text, and the value of its last line."""
ON_SPARK = {"cluster-1", "mud-11", "scoreboard-1", "streams-1", "traces-1", "traces-2"}
"""Code blocks with many jobs of Spark, which take turns."""


@pytest.fixture
def sample_folder(tmp_path, repository, monkeypatch):
    """Create a folder with the samples, a trace of two cabs, and a stream of events."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "sample").symlink_to(repository / "data" / "sample")
    rows = [
        f"{cab},{T0 + 60 * i},{37.75 + i / 5000},-122.41,{i // 20 % 2}" for cab in "ab" for i in range(200)
    ]
    text = "\n".join(["cab,t,lat,lon,occ", *rows, ""])
    (tmp_path / "cabs.csv.gz").write_bytes(gzip.compress(text.encode()))
    locations = {"ann": [38.7, -9.1], "bob": [38.71, -9.11]}
    messages = [("register", {"loc": location}) for location in locations.values()]
    messages += [
        ("context", {"people": [client], "span_us": None, "attributes": {"loc": location}})
        for client, location in [*locations.items()] * 6
    ]
    events = [
        {
            "ts": 1_000_000 * (T0 + 60 * number),
            "number": number,
            "client": [*locations][number % 2],
            "kind": kind,
            "text": json.dumps(payload),
        }
        for number, (kind, payload) in enumerate(messages)
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
    policy = export_policy(FixedRule(1.0, 10.0))
    (tmp_path / "policy.json").write_text(json.dumps(dict(policy.document)))
    (tmp_path / "events").mkdir()
    for number, batch in enumerate((events[:-1], events[-1:])):  # the second advances the watermark
        file = tmp_path / "events" / f"{number}.parquet"
        pq.write_table(pa.Table.from_pylist(batch, schema=schema), file)
        os.utime(file, (number, number))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_code_blocks_and_replacements_exist():
    assert len(PIECES) > 10
    assert all(any(old in piece for piece in PIECES.values()) for old in REDUCED)


def test_readme_links_to_every_guide_without_dead_links():
    readme = PAGES[0].read_text(encoding="utf-8")
    assert [page.name for page in GUIDES if f"(docs/guides/{page.name})" not in readme] == []
    for page in PAGES:
        links = re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8"))
        assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_code_block_has_an_outcome():
    assert OUTCOMES.keys() == PIECES.keys()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.soak(keep=1, group="on Spark")] if name in ON_SPARK else [])
        for name in PIECES
    ],
)
def test_code_block_has_its_documented_outcome(name, sample_folder, spark, capsys):
    piece = PIECES[name]
    for old, new in REDUCED.items():
        piece = piece.replace(old, new)
    *statements, last = ast.parse(piece).body
    names = {"__name__": "__main__"}
    exec(compile(ast.Module(statements, []), name, "exec"), names)
    if isinstance(last, ast.Expr):
        names["shown"] = eval(compile(ast.Expression(last.value), name, "eval"), names)
    else:
        exec(compile(ast.Module([last], []), name, "exec"), names)
    names["printed"] = capsys.readouterr().out
    assert eval(OUTCOMES[name], names), {key: names.get(key) for key in ("printed", "shown")}
