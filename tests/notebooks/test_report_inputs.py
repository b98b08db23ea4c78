"""Reports on unusual parameters and traces: a sensible page, or a refusal before a kernel starts."""

from __future__ import annotations

import math
import random
import re
from typing import Any, Literal, get_args, get_origin

import numpy as np
import pytest
from bs4 import BeautifulSoup
from report_cells import run_cells

from mudkit.display import MAX_COLUMNS
from mudkit.errors import MudkitError, ParameterError
from mudkit.experiment import ADAPTERS, TASKS
from mudkit.report.html import export_html
from mudkit.report.page import SUMMARY
from mudkit.report.parameters import check
from mudkit.report.run import run_report
from mudkit.report.schemas import TEMPLATES

T0 = 1_267_450_000
DAY_S = 86_400
FILE_PARAMETERS = {
    "trace",
    "reads",
    "arrivals",
    "outages",
    "columns",
    "reads_columns",
    "format",
    "time_unit",
    "rule",
    "where",
    "period",
}
SMALL: dict[str, tuple[float, float]] = {
    "devices": (2, 4),
    "length": (0.01, 0.05),
    "seeds": (1, 2),
    "scenarios": (0, 1),
    "draws": (1, 2),
    "days": (3, 8),
    "arrivals_per_day": (8, 100),
    "reads_per_day": (2, 20),
    "played_minutes": (1, 60),
    "horizon_s": (60, 86_400),
    "rule_minutes": (0, 60),
    "rule_km": (0, 50),
    "box_km": (0.1, 50),
    "window_s": (60, 86_400),
}
"""Ranges that keep a run small."""


def make_journeys(devices=6, days=2, *, name="car {}", center=(41.0, -96.0), spread=0.05, seed=1):
    """Return rows of a trace: devices travel to and fro, stand for a while, and start again."""
    draw = np.random.default_rng(seed)
    rows = []
    for number in range(devices):
        home = np.array(center) + draw.normal(0, spread, 2)
        for day in range(days):
            for start_s in (8 * 3600, 17 * 3600):
                for step in range(40):
                    position = home + (spread / 20) * min(step, 20) * np.array([1, 0.5])
                    rows.append((name.format(number), T0 + day * DAY_S + start_s + 60 * step, *position))
    return rows


def write_trace(folder, rows):
    lines = [f'"{device}",{t},{lat:.6f},{lon:.6f}' for device, t, lat, lon in rows]
    file = folder / "trace.csv"
    file.write_text("\n".join(["device,t,lat,lon", *lines, ""]))
    return str(file)


def draw_legal(template: str, dice: random.Random) -> dict[str, Any]:
    """Draw small parameters within their ranges, without files."""
    while True:
        values = {
            name: draw_value(name, field, dice)
            for name, field in TEMPLATES[template].model_fields.items()
            if name not in FILE_PARAMETERS and dice.random() < 0.7
        }
        for name, (low, high) in SMALL.items():
            if name in TEMPLATES[template].model_fields:
                values.setdefault(name, int(low) if isinstance(values.get(name), int) else None)
                kind = TEMPLATES[template].model_fields[name].annotation
                values[name] = dice.randint(int(low), int(high)) if kind is int else dice.uniform(low, high)
        if template == "scoreboard":
            values["tasks"] = dice.sample([name for name in TASKS if name != "ward telemetry"], 2)
        try:
            check(
                template,
                values | ({"trace": __file__} if "trace" in TEMPLATES[template].model_fields else {}),
            )
        except ParameterError:
            continue  # an invalid combination
        return values


def draw_value(name: str, field: Any, dice: random.Random) -> Any:
    kinds = get_args(field.annotation)
    if get_origin(field.annotation) is Literal:
        return dice.choice(kinds)
    if name == "tz":
        return dice.choice(["UTC", "America/Chicago", "Asia/Kathmandu"])
    if name == "systems":
        return dice.sample(list(ADAPTERS), dice.randint(1, 3))
    if name == "tasks":
        return [dice.choice(list(TASKS))]
    if name == "thresholds":
        return [1, *dice.sample(range(2, 200), dice.randint(1, 4))]
    limits = {
        key: getattr(rule, key)
        for rule in field.metadata
        for key in ("gt", "ge", "lt", "le")
        if hasattr(rule, key)
    }
    low = limits.get("ge", limits.get("gt", 0))
    high = limits.get("le", limits.get("lt", low + 1000))
    if field.annotation is int:
        return dice.randint(low, min(high - ("lt" in limits), low + 10_000))
    value = dice.choice([dice.uniform(low, min(high, low + 10)), low if "ge" in limits else low + 0.01])
    return float(min(value, high - 0.01 if "lt" in limits else high))


def assert_sensible(notebook, folder):
    """Check that the page has a headline, tables of limited width, no NaN, and no inverted interval."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    headlines = [output["data"][SUMMARY]["headline"] for output in outputs if SUMMARY in output["data"]]
    assert len(headlines) == 1
    assert headlines[0].endswith(".")
    export_html(notebook, folder / "page.html", title="A page")
    html = (folder / "page.html").read_text()
    assert len(html) < 6_000_000
    tables = BeautifulSoup(html, "html.parser").find_all("table")
    assert tables
    assert (
        max(len(row.find_all(["th", "td"])) for table in tables for row in table.find_all("tr"))
        <= MAX_COLUMNS
    )
    text = " ".join(output["data"]["text/plain"] for output in outputs)
    assert not re.search(r"\bnan\b|\binf\b|Traceback|\d[eE][+-]\d\d", text), text
    for low, high in re.findall(r"\((?:95 % interval )?(−?[\d.,]+) to (−?[\d.,]+)\)", text):
        ends = [float(end.replace("−", "-").replace(",", "")) for end in (low, high)]
        assert ends[0] <= ends[1]


@pytest.mark.soak
@pytest.mark.parametrize("template", TEMPLATES)
def test_legal_parameters_give_a_sensible_page(template, tmp_path):
    dice = random.Random(f"legal {template}")
    trace = write_trace(tmp_path, make_journeys())
    for number in range(10):
        values = draw_legal(template, dice)
        if "trace" in TEMPLATES[template].model_fields:
            values["trace"] = trace
        folder = tmp_path / f"run{number}"
        notebook, refusal = run_or_refuse(template, values, folder)
        if refusal is None:
            assert_sensible(notebook, folder)
        else:
            assert refusal.expected, "a refusal says what to do"
            assert re.search("read|speed", str(refusal)), (values, refusal)


def run_or_refuse(template, values, folder):
    """Return the notebook, or the error that refuses the run."""
    try:
        return run_cells(template, values, folder), None
    except MudkitError as error:
        return None, error
    except Exception as error:
        raise AssertionError(values) from error


def draw_illegal(template: str, dice: random.Random) -> dict[str, Any]:
    """Draw legal parameters, and make one of them illegal."""
    values = draw_legal(template, dice)
    fields = TEMPLATES[template].model_fields
    name = dice.choice(
        [name for name in fields if name not in FILE_PARAMETERS - {"format", "rule", "columns"}]
    )
    field = fields[name]
    if dice.random() < 0.15:
        return values | {f"{name}x": 1}
    if get_origin(field.annotation) is Literal or name in ("tz", "rule"):
        return values | {name: dice.choice(["nowhere", 7, None, ["x"]])}
    if get_origin(field.annotation) in (list, dict):
        return values | {name: dice.choice(["nothing", 3, [], ["no such"], None]) if name != "columns" else 3}
    limits = {
        key: getattr(rule, key)
        for rule in field.metadata
        for key in ("gt", "ge", "lt", "le")
        if hasattr(rule, key)
    }
    wrong: list[Any] = ["much", [1], math.nan, {}]
    if "ge" in limits or "gt" in limits:
        wrong += [limits.get("ge", limits.get("gt")) - 1, -math.inf]
    if "le" in limits or "lt" in limits:
        wrong.append(limits.get("le", limits.get("lt")) + 1)
    return values | {name: dice.choice(wrong)}


@pytest.mark.soak
def test_illegal_parameters_are_refused_before_a_kernel_starts(tmp_path, monkeypatch):
    def start(*arguments):
        raise AssertionError("A kernel was started.")

    monkeypatch.setattr("mudkit.report.run._execute", start)
    dice = random.Random("illegal")
    trace = write_trace(tmp_path, make_journeys(2, 1))
    for number in range(200):
        template = dice.choice(list(TEMPLATES))
        values = draw_illegal(template, dice)
        if "trace" in TEMPLATES[template].model_fields:
            values.setdefault("trace", trace)
        with pytest.raises(ParameterError) as caught:
            run_report(template, values, build=tmp_path / "build", progress=False)
        assert caught.value.found, (number, template, values)
        assert caught.value.expected, (number, template, values)
        assert "pydantic" not in str(caught.value)
    assert not (tmp_path / "build").exists()


def make_scattered_journeys():
    """Return devices that move in cities all over the world."""
    cities = [(64.1, -21.9), (-33.9, 151.2), (1.3, 103.8), (40.7, -74.0), (-54.8, -68.3), (0.0, 179.99)]
    return [
        row
        for number, center in enumerate(cities)
        for row in make_journeys(1, 2, name=f"bus {number}", center=center, seed=number)
    ]


UNUSUAL_TRACES = {
    "one day": make_journeys(6, 1),
    "one device": make_journeys(1, 3),
    "one village": make_journeys(6, 2, spread=0.002),
    "the whole world": make_scattered_journeys(),
    "two days two years apart": [
        (device, t if t < T0 + DAY_S else t + 730 * DAY_S, lat, lon)
        for device, t, lat, lon in make_journeys(6, 2)
    ],
    "all at one place": [(device, t, 41.0, -96.0) for device, t, _, _ in make_journeys(6, 2)],
}


@pytest.mark.soak
@pytest.mark.parametrize("name", UNUSUAL_TRACES)
@pytest.mark.parametrize("template", ["trace_profile", "cache_policy", "propagation"])
def test_unusual_traces_give_a_sensible_page(template, name, tmp_path):
    values = {"trace": write_trace(tmp_path, UNUSUAL_TRACES[name]), "rule": "poisson(per_day=48, seed=0)"}
    if template == "propagation":
        del values["rule"]
    notebook, refusal = run_or_refuse(template, values, tmp_path / "run")
    if refusal is None:
        assert_sensible(notebook, tmp_path / "run")
    else:
        assert refusal.expected
        assert name == "all at one place", refusal


@pytest.mark.soak(keep=1, group="templates run", shared=True)
@pytest.mark.parametrize("template", ["trace_profile", "cache_policy", "propagation"])
def test_device_names_are_escaped(template, tmp_path):
    name = "<img src=x onerror=alert({})>"
    values = {
        "trace": write_trace(tmp_path, make_journeys(3, 2, name=name)),
        "rule": "poisson(per_day=48, seed=0)",
    }
    if template == "propagation":
        del values["rule"]
    notebook = run_cells(template, values, tmp_path / "run")
    export_html(notebook, tmp_path / "page.html", title="A page")
    page = BeautifulSoup((tmp_path / "page.html").read_text(), "html.parser")
    assert not page.find_all("img", src="x")
    assert not page.find_all(attrs={"onerror": True})
    frames = [BeautifulSoup(frame.get("srcdoc", ""), "html.parser") for frame in page.find_all("iframe")]
    assert not any(frame.find_all("img", src="x") for frame in frames)
    if template == "trace_profile":
        assert "<img src=x onerror=alert(0)>" in page.get_text(), "the name is shown as text"
