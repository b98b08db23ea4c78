import datetime as dt

import pandas as pd
import pyarrow.parquet as pq

from mudkit import show
from mudkit.report import in_words
from mudkit.report.tables import bounded, keep


def test_kept_tables_are_parquet(tmp_path):
    table = pd.DataFrame({"a": [1, 2]})
    assert keep(table, "mine", tmp_path) is table
    assert pq.read_table(tmp_path / "mine.parquet").to_pydict() == {"a": [1, 2]}
    assert keep(table, "mine", None) is table


DAYS = pd.DataFrame(
    {"start": [dt.datetime(2020, 1, d) for d in (1, 2, 3)], "positions": [10, 20, 30], "reads": [1, 0, 2]}
)
ROWS = pd.DataFrame(
    {
        "source": ["x"] * 3,
        "what": ["positions", "reads (occupancy)", "rejected: duplicate"],
        "rows": [60, 3, 7],
    }
)


def test_days_in_words():
    text = in_words.days(DAYS, ROWS)
    assert "60 positions" in text
    assert "3 reads" in text
    assert "7 rows were set aside (10.45%)" in text
    assert "No reads on 1 of these days" in text
    assert "02 January" in text
    assert "No reads" not in in_words.days(DAYS.drop(index=1), ROWS)


def test_caching_in_words():
    table = pd.DataFrame({"sent_share": [1, 0.8, 0.6], "stale_share": [0, 0.1, 0.1]})
    text = in_words.caching(table, "old")
    assert "sends 80.0%" in text
    assert "answers 10.0% stale" in text
    assert "20.0 percentage points" in text
    assert "much better" not in text
    table.loc[2, "sent_share"] = 0.79
    assert "much better" in in_words.caching(table, "old")


def test_a_bound_stands_with_what_it_bounds():
    table = pd.DataFrame(
        {
            "policy": ["1 km / 10 min", "bound, as stale as the rule"],
            "sent_share": [0.5, 0.4],
            "stale_share": [0.1, 0.1],
            "stale_share_low": [0.0, 0.0],
            "stale_share_high": [0.2, 0.2],
            "cost": [0.3, 0.9],
            "cost_low": [0.2, 0.8],
            "cost_high": [0.4, 1.0],
        }
    )
    shown = bounded(table)
    assert shown["sent_share"].tolist() == [0.5, 0.4]
    assert shown["stale_share_high"].tolist() == [0.2, 0.2]
    assert shown[["cost", "cost_low", "cost_high"]].isna().all(axis=1).tolist() == [False, True]
    html = show(shown)._repr_html_()
    assert "nan" not in html
    assert "–</td>" in html
