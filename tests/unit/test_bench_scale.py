"""The steps of the measurement of scale, from a folder that an earlier run left."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[1] / "bench" / "scale.py"


class Server:
    """Instead of a process: it does the steps here, and stops at one that is named."""

    stops_at = ""

    def __init__(self, function, *arguments, task):
        self.folder = Path(arguments[0]).parent if arguments else None

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None

    def ask(self, step):
        if self.folder is None:
            return {"s": 0.5}
        if step == self.stops_at:
            (self.folder / "labels").mkdir()
            raise KeyboardInterrupt
        assert not (self.folder / "labels").exists()
        return {"s": 2.0, "mb": {"driver": 1.0, "workers": 1.0}}


@pytest.fixture
def scale(monkeypatch):
    spec = importlib.util.spec_from_file_location("scale_of_bench", BENCH)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "JsonServer", Server)
    monkeypatch.setattr(module, "STEPS", dict.fromkeys(["ingest", "labels of reads", "report"]))
    monkeypatch.setattr(module, "OUTPUTS", {"labels of reads": "labels"})
    monkeypatch.setattr(module, "write_csv", lambda folder, days: (folder / "positions.csv").write_text("x"))
    return module


def test_second_run_begins_with_the_step_that_was_stopped(scale, monkeypatch, tmp_path):
    monkeypatch.setattr(Server, "stops_at", "labels of reads")
    rows = scale.measure_rows((1000,), tmp_path / "kept")
    assert "DuckDB" in next(rows)["peer"]
    with pytest.raises(KeyboardInterrupt):
        next(rows)
    folder = tmp_path / "kept" / "1000"
    assert [*json.loads((folder / "figures.json").read_text())] == ["ingest"]
    assert not (folder / "positions.csv").exists()
    monkeypatch.setattr(Server, "stops_at", "ingest")
    again = [str(row["what"]).partition(",")[0] for row in scale.measure_rows((1000,), tmp_path / "kept")]
    assert again == ["ingest", "labels of reads", "report"]
    assert [*json.loads((folder / "figures.json").read_text())] == again
