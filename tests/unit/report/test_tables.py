import pandas as pd
import pyarrow.parquet as pq

from mudkit import show
from mudkit.report.tables import blank_unbounded, save_table


def test_tables_are_saved_as_parquet_and_csv(tmp_path):
    table = pd.DataFrame({"a": [1, 2]})
    assert save_table(table, "mine", tmp_path) is table
    assert pq.read_table(tmp_path / "mine.parquet").to_pydict() == {"a": [1, 2]}
    assert (tmp_path / "mine.csv").read_text() == '"a"\n1\n2\n'
    assert save_table(table, "mine", None) is table


def test_bound_is_blank_where_it_bounds_nothing():
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
    shown = blank_unbounded(table)
    assert shown["sent_share"].tolist() == [0.5, 0.4]
    assert shown["stale_share_high"].isna().tolist() == [False, True], "it is given, not measured"
    assert shown[["cost", "cost_low", "cost_high"]].isna().all(axis=1).tolist() == [False, True]
    html = show(shown)._repr_html_()
    assert "nan" not in html
    assert "–</td>" in html
