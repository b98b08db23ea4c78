import pandas as pd
import pyarrow.parquet as pq

from mudkit.report.tables import save_table


def test_tables_are_saved_as_parquet_and_csv(tmp_path):
    table = pd.DataFrame({"a": [1, 2]})
    assert save_table(table, "mine", tmp_path) is table
    assert pq.read_table(tmp_path / "mine.parquet").to_pydict() == {"a": [1, 2]}
    assert (tmp_path / "mine.csv").read_text() == '"a"\n1\n2\n'
    assert save_table(table, "mine", None) is table
