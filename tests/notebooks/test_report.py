"""Report on a small trace: its files, when it is skipped, and the files of a failed run."""

import json
import re
import shlex
from pathlib import Path

import nbformat
import pandas as pd
import pyarrow.parquet as pq
import pytest
from bs4 import BeautifulSoup
from report_pages import page, read_html

from mudkit.errors import OutputProblem, ParameterError
from mudkit.files import sha256
from mudkit.report import ReportFailed, run_report
from mudkit.report.run import _TEMPLATES
from mudkit.report.schemas import TEMPLATES

pytestmark = [pytest.mark.notebook, pytest.mark.spark]
T0 = 1_211_100_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("report")


@pytest.fixture(scope="module")
def parameters(folder):
    file = folder / "cabs.csv"
    rows = [
        f"{cab},{T0 + 60 * i},{37.7 + abs(i % 100 - 50) / 1000:.5f},{-122.4 - abs(i % 60 - 30) / 1000:.5f},{i // 7 % 2}"
        for cab in "abcd"
        for i in range(2000)
    ]
    file.write_text("\n".join(["cab,t,lat,lon,occ", *rows, f"a,{T0},95,200,0", ""]))
    return {"trace": str(file), "tz": "America/Los_Angeles", "cells_zoom": 13}


@pytest.fixture(scope="module")
def report(folder, parameters):
    return run_report("trace_profile", parameters, build=folder / "build", progress=False)


def test_report_folder_has_page_notebook_data_and_manifest(report):
    assert re.fullmatch(r"trace_profile-\d{8}T\d{6}Z", report.name)
    assert {p.name for p in report.iterdir()} == {
        "report.html",
        "report.ipynb",
        "data",
        "manifest.json",
        "summary.json",
    }
    assert {p.stem for p in (report / "data").iterdir()} == {
        "rows",
        "days",
        "hours",
        "intervals",
        "cells",
        "devices",
        "stops",
        "trips",
        "speeds",
        "pauses",
        "stretches",
        "places",
    }
    rows = pq.read_table(report / "data" / "rows.parquet").to_pylist()
    assert {row["what"]: row["rows"] for row in rows} == {
        "positions": 8000,
        "reads": 4 * 143,
        "rejected: coordinates out of range": 1,
    }


def test_manifest_lists_inputs_versions_and_outputs(report, parameters):
    manifest = json.loads((report / "manifest.json").read_text())
    assert manifest["parameters"] == TEMPLATES["trace_profile"](**parameters).model_dump()
    assert manifest["inputs"]["trace"]["name"] == "cabs.csv"
    assert manifest["duration_s"] > 0
    assert {"python", "mudkit", "pyspark", "pandas"} <= manifest["versions"].keys()
    for name, checksum in manifest["outputs"].items():
        assert sha256(report / name) == checksum


def test_first_screen_describes_the_data(report):
    html = read_html(report)
    manifest = json.loads((report / "manifest.json").read_text())
    assert "8,000 positions · 572 reads, derived by occupancy · 1 row set aside" in html
    assert (
        manifest["headline"]
        == "The trace is clean: >99.9 % of its rows were kept, and no defect was found; 5 of 7 kinds were checked."
    )
    assert manifest["headline"].replace(">", "&gt;") in html
    assert "There are only 4 devices" in html
    assert page(report), "no output is an error or a warning"
    assert manifest["inputs"]["trace"]["sha256"] in html
    assert f"pandas {pd.__version__}" in html


def test_command_on_the_page_has_its_parameters(report):
    blocks = BeautifulSoup(read_html(report), "html.parser").find_all("pre")
    (command,) = (block.get_text() for block in blocks if block.get_text().startswith("mudkit report"))
    words = shlex.split(command.replace("\\\n", " "))
    assert words[:3] == ["mudkit", "report", "trace_profile"]
    assert set(words[3::2]) == {"--param"}
    parameters = json.loads((report / "manifest.json").read_text())["parameters"]
    assert f"trace={parameters['trace']}" in words[4::2]
    assert all(line.lstrip().startswith("--param ") for line in command.splitlines()[1:])


def test_unchanged_report_is_not_rerun(report, folder, parameters):
    assert run_report("trace_profile", parameters, build=folder / "build", progress=False) == report


@pytest.mark.soak
def test_changed_input_or_damaged_output_causes_a_rerun(report, folder, parameters, monkeypatch):
    """Replace the run by a marker that records its start."""
    starts = []

    def start(*arguments):
        starts.append(arguments)
        raise ReportFailed("It started.")

    monkeypatch.setattr("mudkit.report.run._execute", start)
    changes = [
        lambda: parameters | {"box_km": 5.0},
        lambda: (report / "data" / "rows.parquet").rename(folder / "moved") and parameters,
    ]
    for change in changes:
        with pytest.raises(ReportFailed, match="started"):
            run_report("trace_profile", change(), build=folder / "build", progress=False)
    (folder / "moved").rename(report / "data" / "rows.parquet")
    with pytest.raises(ReportFailed, match="started"):
        run_report("trace_profile", parameters, build=folder / "build", progress=False, force=True)
    assert len(starts) == 3


@pytest.mark.soak
def test_report_of_a_trace_at_an_address_has_the_same_figures(report, parameters, webhdfs, tmp_path):
    webhdfs.put("/report/cabs.csv", Path(parameters["trace"]).read_bytes())
    given = parameters | {"trace": f"{webhdfs.address}/report/cabs.csv"}
    other = run_report("trace_profile", given, build=tmp_path, progress=False)
    one, two = (json.loads((place / "summary.json").read_text()) for place in (report, other))
    assert one["measures"] == two["measures"]


def test_failed_cell_leaves_the_partial_notebook_and_the_error(folder, parameters, tmp_path, monkeypatch):
    broken = nbformat.read(_TEMPLATES / "trace_profile.ipynb", as_version=4)
    broken.cells = [*broken.cells[:2], nbformat.v4.new_code_cell("1 / 0"), *broken.cells[2:]]
    nbformat.write(broken, tmp_path / "trace_profile.ipynb")
    monkeypatch.setattr("mudkit.report.run._TEMPLATES", tmp_path)
    with pytest.raises(ReportFailed, match="ZeroDivisionError"):
        run_report("trace_profile", parameters, build=tmp_path / "build", progress=False)
    (failed,) = (tmp_path / "build").iterdir()
    assert failed.name.endswith(".failed")
    assert "ZeroDivisionError" in (failed / "error.txt").read_text()
    assert "ZeroDivisionError" in (failed / "report.ipynb").read_text()
    assert not (failed / "manifest.json").exists()
    assert not (failed / "report.html").exists()


@pytest.mark.parametrize(("wrong", "error"), [({"boxkm": 3}, ParameterError), ({}, OutputProblem)])
def test_wrong_parameters_and_folders_are_refused_before_the_run(tmp_path, parameters, wrong, error):
    (tmp_path / "build").touch()
    with pytest.raises(error):
        run_report("trace_profile", parameters | wrong, build=tmp_path / "build", progress=False)


@pytest.mark.parametrize("name", TEMPLATES)
def test_templates_have_the_parameters_of_their_schema(name):
    notebook = nbformat.read(_TEMPLATES / f"{name}.ipynb", as_version=4)
    (cell,) = [c for c in notebook.cells if "parameters" in c.metadata.get("tags", [])]
    values: dict[str, object] = {}
    exec(cell.source, {}, values)
    del values["output_dir"]
    required = [field for field, declared in TEMPLATES[name].model_fields.items() if declared.is_required()]
    defaults = TEMPLATES[name](**dict.fromkeys(required, "")).model_dump()
    assert values == defaults
    assert all(not c.get("outputs") and not c.get("execution_count") for c in notebook.cells)
