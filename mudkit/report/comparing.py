"""Two runs of a report side by side: traces, periods, parameters or versions of mudkit."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mudkit import intervals, words
from mudkit.checks import check_arguments
from mudkit.display import Displayed, View, first_rows
from mudkit.files import output_path, sha256, sweep_killed
from mudkit.report.against import other_report, place_of_run, refuse_far
from mudkit.report.page import DETAILS, Answer, FirstScreen, Measure
from mudkit.report.run import (
    find_finished,
    page_request,
    save_page,
    words_of_command,
)
from mudkit.report.schemas import TEMPLATES
from mudkit.report.summary import FILE_NAME, Summary, read_summary

if TYPE_CHECKING:
    import nbformat
    import pandas as pd
    import plotly.graph_objects as go

RECOMMENDATION: Final = "recommendation"
"""Name of the measure that holds what a report recommends, as a text."""

CHANCE: Final = "within chance"
"""Verdict of a difference whose interval contains 0."""

_UNNAMED: Final = ("This run", "The other run")
_DRAWN: Final = 8
_LABEL_LETTERS: Final = 34
_CHANCE: Final = 0.05


@check_arguments(types=False)
@dataclass(frozen=True, repr=False)
class RunComparison(Displayed):
    """Two runs of a report, measure by measure.

    Attributes
    ----------
    folder : Path
        Folder of the page.
    headline : str
        What changed by more than chance, and whether both runs recommend the same.
    table : pandas.DataFrame
        A row for each measure: ``measure, unit, this, this_low, this_high, other, other_low, other_high,
        difference, difference_low, difference_high, verdict``. Differences are this run minus the other.
        The verdict is ``changed`` (by more than chance), ``within chance``, ``no interval``, ``same`` (texts,
        and numbers without an interval), ``different`` (texts), ``not known``, ``defined differently``, or
        the only run with the measure.
    """

    folder: Path
    headline: str
    table: pd.DataFrame

    def above(self, limits: Mapping[str, float]) -> list[str]:
        """Return a sentence for each measure that differs by more than its limit, or cannot be judged.

        A difference whose interval contains 0 may be chance: see :meth:`within_chance`.
        """
        return [sentence for sentence, is_chance in self._beyond(limits) if not is_chance]

    def within_chance(self, limits: Mapping[str, float]) -> list[str]:
        """Return a sentence for each measure that differs by more than its limit, but maybe by chance."""
        return [sentence for sentence, is_chance in self._beyond(limits) if is_chance]

    def _beyond(self, limits: Mapping[str, float]) -> Iterator[tuple[str, bool]]:
        """Yield what differs by more than its limit in a sentence, and whether that may be chance."""
        rows = self.table.set_index("measure").to_dict("index")
        for name, limit in limits.items():
            row = rows.get(name, {"difference": math.nan, "verdict": "in neither run"})
            if not math.isfinite(row["difference"]):
                is_alone = str(row["verdict"]).startswith("in ")
                yield f"{name} cannot be judged: {'it is ' if is_alone else ''}{row['verdict']}", False
            elif abs(row["difference"]) > limit:
                unit = f" {row['unit']}" if row["unit"] not in ("", "share") else ""
                text = f"{name} differs by {abs(row['difference']):.6g}{unit}, more than {limit:g}{unit}"
                is_chance = row["verdict"] == CHANCE
                if is_chance:
                    ends = (f"{row[f'difference_{end}']:.6g}" for end in ("low", "high"))
                    text += f", but the interval of the difference contains 0: {' to '.join(ends)}{unit}"
                yield text, is_chance

    def _view(self) -> View:
        shown = self.table[["measure", "this", "other", "difference", "verdict"]]
        rows = first_rows(list(shown.columns), shown.itertuples(index=False, name=None), len(shown))
        return View("RunComparison", {"headline": self.headline, "page": self.folder / "report.html"}, [rows])


@check_arguments(types=False)
def compare_runs(
    folder: str | os.PathLike[str],
    against: str | os.PathLike[str],
    *,
    build: str | os.PathLike[str] = "reports/build",
) -> RunComparison:
    """Compare two finished runs of a report, and write the page ``compare-<report>-<time>/``.

    The intervals of the differences assume independent runs (:func:`mudkit.intervals.difference`); for two
    runs on the same devices they are too wide. A page of the same two runs is kept.

    Parameters
    ----------
    folder, against : path-like
        Folders of this run and of the other, which may be of another version of mudkit.
    build : path-like
        Folder in which the page is made.

    Returns
    -------
    RunComparison

    Raises
    ------
    InputMissing, SummaryError
        One of the folders is not that of a finished run.
    ParameterError
        The runs are of different reports.
    TraceContentError
        Their traces are of different areas.
    OutputProblem
        The page cannot be written.
    """
    this, other = read_summary(folder), read_summary(against)
    if this.report not in TEMPLATES:
        raise other_report(this, other.report if other.report in TEMPLATES else "one report")
    if this.report != other.report:
        raise other_report(other, this.report)
    places = [place_of_run(run) for run in (this, other)]
    is_same_trace = _trace_sum(this) is not None and _trace_sum(this) == _trace_sum(other)
    if places[0] is not None and places[1] is not None and not is_same_trace:
        refuse_far(places[0], places[1])
    table = _compared(this, other)
    pair = _Pair(
        this, other, table, is_same_trace, None in places and "trace" in TEMPLATES[this.report].model_fields
    )
    name = f"compare-{this.report}"
    runs = (("this", this), ("other", other))
    request = {
        side: {"folder": str(run.folder.resolve()), "sha256": sha256(run.folder / FILE_NAME)}
        for side, run in runs
    } | {"started": {side: run.manifest.get("started", "") for side, run in runs}}
    build = output_path(build)
    page = find_finished(build, name, str(page_request(name, request)["fingerprint"]))
    if page is None:
        sweep_killed(build, f"{name}-*")
        tables = {"measures": table, "compared": pair.differences()}
        page = save_page(name, pair.notebook(build), tables, parameters=request, build=build)
    return RunComparison(page, pair.headline(), table)


def _trace_sum(run: Summary) -> str | None:
    """Return the checksum of a run's trace; None: it has none."""
    trace = run.manifest.get("inputs", {}).get("trace", {})
    return _checksum(trace) if isinstance(trace, dict) else None


def _checksum(entry: Mapping[str, str]) -> str | None:
    """Return the checksum of an input's bytes, or of names, sizes and times; None: a table has neither."""
    return entry.get("sha256") or entry.get("sha256_of_names_sizes_and_times")


def _compared(this: Summary, other: Summary) -> pd.DataFrame:
    """Return the table of :class:`RunComparison`."""
    import pandas as pd

    names = list(dict.fromkeys([*this.measures, *other.measures]))
    rows = [_row(name, this.measures.get(name), other.measures.get(name)) for name in names]
    numbers = [f"{side}{end}" for side in ("this", "other", "difference") for end in ("", "_low", "_high")]
    texts = ["this_text", "other_text"]
    table = pd.DataFrame(rows, columns=["measure", "unit", *numbers, *texts, "verdict", "definition"])
    return table.astype(dict.fromkeys(numbers, float) | dict.fromkeys(texts, str))


def _row(name: str, this: Measure | None, other: Measure | None) -> dict[str, Any]:
    """Return the row of a measure; None: that run lacks it, not both."""
    known = this or other
    assert known is not None
    row: dict[str, Any] = {"measure": name, "unit": known.unit, "definition": known.definition}
    for side, measure in (("this", this), ("other", other)):
        row[f"{side}_text"] = measure.value if measure and isinstance(measure.value, str) else ""
        if measure and not isinstance(measure.value, str):
            row |= {side: measure.value, f"{side}_low": measure.low, f"{side}_high": measure.high}
    if this is None or other is None:
        return row | {"verdict": "in the other run only" if this is None else "in this run only"}
    if this.unit != other.unit or isinstance(this.value, str) != isinstance(other.value, str):
        return row | {"verdict": "defined differently"}
    if isinstance(this.value, str):
        return row | {"verdict": "same" if this.value == other.value else "different"}
    if this.value is None or other.value is None:
        return row | {"verdict": "not known"}
    change = intervals.difference(_interval(this), _interval(other))
    row |= {"difference": change.value, "difference_low": change.low, "difference_high": change.high}
    if this.definition != other.definition:
        return row | {"verdict": "defined differently"}
    if not math.isfinite(change.low):
        return row | {"verdict": "no interval" if change.value else "same"}
    return row | {"verdict": "changed" if change.low > 0 or change.high < 0 else CHANCE}


def _interval(measure: Measure) -> intervals.Interval:
    """Return value and interval of a measure; without ends if they do not enclose the value."""
    assert isinstance(measure.value, int | float)
    low, high = (math.nan if end is None else float(end) for end in (measure.low, measure.high))
    is_whole = low <= measure.value <= high
    ends = (low, high) if is_whole else (math.nan, math.nan)
    return intervals.Interval(float(measure.value), *ends, "interval" if is_whole else "value")


# -- the page


@dataclass(frozen=True)
class _Pair:
    """Contents of the page of a comparison."""

    this: Summary
    other: Summary
    table: pd.DataFrame
    is_same_trace: bool
    is_place_unknown: bool

    def notebook(self, build: Path) -> nbformat.NotebookNode:
        """Return the page as a notebook with outputs."""
        from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

        from mudkit.display import show

        folded = {"tags": [DETAILS]}
        names = dict(zip(("this", "other"), self.labels(), strict=True))
        shown = [self.first_screen(), self.measures_answer(), show(self.measures_shown(), _CAPTION, rows=100)]
        shown += [self.intervals_answer(), self.figure()] if len(self._drawn()) else []
        shown += [self.differences_answer(), show(self.differences().rename(columns=names), rows=100)]
        details = [
            (
                "## Definitions",
                show(
                    self.table[["measure", "unit", "definition"]],
                    "Names are those of `summary.json`.",
                    rows=100,
                ),
            ),
            (f"## Method and limits\n\n{_METHOD}", None),
            (f"## Provenance\n\n{self._provenance(build)}", None),
        ]
        cells = [new_markdown_cell(f"# Two runs of {self.this.report}")]
        cells += [new_code_cell("", outputs=[_output(value)]) for value in shown]
        for text, value in details:
            cells.append(new_markdown_cell(text, metadata=folded))
            if value is not None:
                cells.append(new_code_cell("", outputs=[_output(value)], metadata=folded))
        page: nbformat.NotebookNode = new_notebook(cells=cells)
        return page

    def first_screen(self) -> FirstScreen:
        """Return what changed, whether both recommend the same, and what that rests on."""
        judged, changed, runs = self._judged(), self._named("changed"), (self.this, self.other)
        recommends = {"same": "the same", "different": "different"}.get(
            self._recommendation(), words.NO_VALUE
        )
        tiles = [
            (
                f"{len(changed)} of {len(judged)}",
                "measures with intervals changed by more than chance",
            ),
            (recommends, "is what the two runs recommend"),
            (
                f"{len(self._numbers())}",
                f"measures are compared; {len(self._numbers()) - len(judged)} have no interval",
            ),
        ]
        this, other = self.labels()
        reason = " ".join(
            f"{name}: {run.headline or 'no headline.'}" for name, run in zip((this, other), runs, strict=True)
        )
        return FirstScreen(
            f"{this} against {other} · {' and '.join(run.folder.name for run in runs)}",
            tiles,
            self.headline(),
            reason,
            self._assumption(),
            self._warnings(),
            self._summary(),
        )

    def headline(self) -> str:
        """Return what changed by more than chance, and whether both recommend the same."""
        judged, changed = self._judged(), self._named("changed")
        if not len(self._numbers()):
            text = "The two runs have no number in common."
        elif not len(judged):
            text = "No measure has an interval, so a difference may be chance."
        elif not len(changed):
            text = (
                f"None of the {len(judged)} measures with intervals changed by more than chance."
                if len(judged) > 1
                else "The one measure with an interval did not change by more than chance."
            )
        else:
            named = [f"{_words(row['measure'])} {_change(row)}" for _, row in changed.iterrows()]
            what = f"{len(changed)} of {len(judged)} measures with intervals changed by more than chance"
            if len(judged) == 1:
                what = "The one measure with an interval changed by more than chance"
            text = f"{what}: {words.listing(named, 3)}."
        recommended = {
            "same": " Both runs recommend the same.",
            "different": " They recommend different things.",
        }
        return text + recommended.get(self._recommendation(), "")

    def labels(self) -> tuple[str, str]:
        """Return short names of both runs: the value of what alone differs, where it is short."""
        rows = {what: pair for what, *pair in self._differences() if not what.startswith("SHA-256")}
        if "trace" in rows:
            rows.pop("reads", None)
        if len(rows) != 1:
            return _UNNAMED
        ((what, pair),) = rows.items()
        names = {
            "trace": tuple(Path(value).name for value in pair),
            "period": tuple(value.replace("/", " to ") for value in pair),
        }.get(what, tuple(f"{what} {value}" for value in pair))
        this, other = names if names[0] != names[1] else tuple(pair)
        is_short = max(len(this), len(other)) <= _LABEL_LETTERS
        return (this, other) if is_short and words.NO_VALUE not in pair else _UNNAMED

    def differences(self) -> pd.DataFrame:
        """Return a table ``what, this, other`` of the parameters, inputs and versions that differ."""
        import pandas as pd

        return pd.DataFrame(self._differences(), columns=["what", "this", "other"])

    def _differences(self) -> list[tuple[str, str, str]]:
        """Return name, this and other, as text, of parameters, inputs and versions that differ."""
        manifests = (self.this.manifest, self.other.manifest)
        defaults = {
            name: field.get_default(call_default_factory=True)
            for name, field in TEMPLATES[self.this.report].model_fields.items()
            if not field.is_required()
        }
        rows: list[tuple[str, str, str]] = []
        given = [defaults | dict(manifest.get("parameters", {})) for manifest in manifests]
        for name in dict.fromkeys([*TEMPLATES[self.this.report].model_fields, *given[0], *given[1]]):
            pair = [values.get(name) for values in given]
            if pair[0] != pair[1]:
                rows.append((name, _written(pair[0]), _written(pair[1])))
        sums = [{k: str(_checksum(v) or "") for k, v in m.get("inputs", {}).items()} for m in manifests]
        for name in dict.fromkeys([*sums[0], *sums[1]]):
            one, two = (of_run.get(name, "") for of_run in sums)
            if one != two:
                rows.append((f"SHA-256 of {name}", one[:12] or words.NO_VALUE, two[:12] or words.NO_VALUE))
        versions = [dict(manifest.get("versions", {})) for manifest in manifests]
        for name in dict.fromkeys([*versions[0], *versions[1]]):
            one, two = (str(of_run.get(name, words.NO_VALUE)) for of_run in versions)
            if one != two:
                rows.append((name, one, two))
        one, two = (str(manifest.get("template_sha256", ""))[:12] for manifest in manifests)
        if one != two and versions[0] == versions[1]:
            rows.append(("template of the report", one, two))
        return rows

    def differences_answer(self) -> Answer:
        """Return in what the runs differ, as a heading."""
        names = [str(name) for name in self.differences()["what"] if not str(name).startswith("SHA-256")]
        if not names:
            is_other = len(self.differences()) > 0
            return Answer(
                "The runs differ in the content of their files" if is_other else "The runs differ in nothing"
            )
        return Answer(f"The runs differ in {words.listing(names, 4)}")

    def measures_answer(self) -> Answer:
        """Return how many measures changed, as a heading."""
        counts = [
            (len(self._named("changed")), "changed by more than chance"),
            (len(self._named(CHANCE)), CHANCE),
            (len(self._named("no interval")), "without an interval"),
            (len(self._named("defined differently")), "defined differently"),
        ]
        parts = [f"{count} {what}" for count, what in counts if count]
        return Answer(f"Measures: {', '.join(parts)}" if parts else "No measure can be compared")

    def measures_shown(self) -> pd.DataFrame:
        """Return the table of the page: values with intervals as text."""
        import pandas as pd

        this, other = self.labels()
        rows = []
        for _, row in self.table.iterrows():
            has_change = math.isfinite(row["difference"])
            rows.append(
                {
                    "measure": _words(row["measure"]),
                    this: _value(row, "this"),
                    other: _value(row, "other"),
                    "difference": _change(row) if has_change else words.NO_VALUE,
                    "verdict": row["verdict"],
                }
            )
        return pd.DataFrame(rows, columns=["measure", this, other, "difference", "verdict"])

    def intervals_answer(self) -> Answer:
        """Return in how many measures the intervals of both runs overlap, as a heading."""
        judged = self._judged()
        apart = (judged["this_low"] > judged["other_high"]) | (judged["other_low"] > judged["this_high"])
        whole = (
            "every measure" if apart.sum() in (0, len(judged)) else f"{apart.sum()} of {len(judged)} measures"
        )
        title = f"The intervals of both runs {'lie apart' if apart.any() else 'overlap'} in {whole}"
        more = f"The figure shows {_DRAWN} of them, those that changed first." if len(judged) > _DRAWN else ""
        return Answer(title, more)

    def figure(self) -> go.Figure:
        """Draw the measures that have intervals in both runs."""
        from mudkit import figures

        drawn = self._drawn()
        scale = [_shown_unit(unit)[0] for unit in drawn["unit"]]
        titles = [
            ", ".join(filter(None, (_words(row["measure"]), _shown_unit(row["unit"])[1])))
            for _, row in drawn.iterrows()
        ]
        numbers = [f"{side}{end}" for side in ("this", "other") for end in ("", "_low", "_high")]
        scaled = drawn[numbers].mul(scale, axis=0).assign(measure=titles)
        return figures.side_by_side(scaled, self.labels(), title="95 % intervals of both runs")

    def _drawn(self) -> pd.DataFrame:
        """Return the measures that the figure shows: at most ``_DRAWN``, changed ones first."""
        judged = self._judged()
        order = judged["verdict"].ne("changed").sort_values(kind="stable").index
        drawn: pd.DataFrame = judged.loc[order].head(_DRAWN)
        return drawn

    def _named(self, verdict: str) -> pd.DataFrame:
        """Return the measures with a verdict."""
        named: pd.DataFrame = self.table[self.table["verdict"] == verdict]
        return named

    def _judged(self) -> pd.DataFrame:
        """Return the measures with intervals in both runs: changed, or within chance."""
        judged: pd.DataFrame = self.table[self.table["verdict"].isin(["changed", CHANCE])]
        return judged

    def _numbers(self) -> pd.DataFrame:
        """Return the measures that are numbers in both runs."""
        numbers: pd.DataFrame = self.table[np.isfinite(self.table["difference"])]
        return numbers

    def _recommendation(self) -> str:
        """Return whether both recommend the same: ``same``, ``different``, or empty: not known."""
        row = self.table[self.table["measure"] == RECOMMENDATION]
        return str(row["verdict"].iloc[0]) if len(row) else ""

    def _assumption(self) -> str:
        """Return what the intervals assume, and how many changes would be chance, as sentences."""
        judged = len(self._judged())
        if not judged:
            return "Differences are this run minus the other. Without intervals none is called a change."
        shared = (
            "Both runs read the same file: for devices that are in both, the intervals are too wide, and a "
            "change may be missed."
            if self.is_same_trace
            else "If the runs share devices, the intervals are too wide, and a change may be missed."
        )
        chance = judged * _CHANCE
        often = (
            f" Of {judged} measures that do not change, about {words.number(round(chance))} would be called "
            "changed by chance."
            if chance >= 1
            else ""
        )
        return f"Intervals of the differences assume that the two runs are independent. {shared}{often}"

    def _warnings(self) -> list[str]:
        """Return what makes the runs hard to compare, as sentences."""
        warnings = []
        given = [run.manifest.get("parameters", {}) for run in (self.this, self.other)]
        limits = [values.get("completeness") for values in given]
        if limits[0] != limits[1]:
            shares = [
                words.percent(limit) if isinstance(limit, float) else "an unknown share" for limit in limits
            ]
            warnings.append(
                f"The runs define a stale answer differently: below {shares[0]} of what others wrote, and "
                f"below {shares[1]}. Shares of stale answers are not the same quantity."
            )
        if len(other := self._named("defined differently")):
            warnings.append(
                f"Defined differently in the two runs: {words.listing(map(_words, other['measure']), 6)}."
            )
        alone = self.table[self.table["verdict"].str.endswith("run only")]
        if len(alone):
            warnings.append(f"In one run only: {words.listing(map(_words, alone['measure']), 6)}.")
        versions = [
            run.manifest.get("versions", {}).get("mudkit", "unknown") for run in (self.this, self.other)
        ]
        if versions[0] != versions[1]:
            warnings.append(
                f"The runs are of mudkit {versions[0]} and {versions[1]}: a change may be one of mudkit."
            )
        if self.is_place_unknown and not self.is_same_trace:
            warnings.append("Whether both traces are of one area is not known: a run has no map.")
        if not self._differences():
            warnings.append("Both runs have the same parameters, inputs and versions.")
        return warnings

    def _summary(self) -> list[Measure]:
        """Return the measures of the comparison itself."""
        same = {"same": "yes", "different": "no"}.get(self._recommendation())
        counted = [
            Measure(
                "changed_measures",
                len(self._named("changed")),
                "",
                "Measures that changed by more than chance.",
            ),
            Measure(
                "judged_measures", len(self._judged()), "", "Measures that have an interval in both runs."
            ),
            Measure("compared_measures", len(self._numbers()), "", "Numbers that both runs have."),
            Measure("same_recommendation", same, "", "Whether both runs recommend the same: yes or no."),
        ]
        return counted + [
            Measure(
                f"{row['measure']}_difference",
                float(row["difference"]),
                row["unit"],
                f"This run minus the other. {row['definition']}",
                *(float(row[f"difference_{end}"]) for end in ("low", "high")),
            )
            for _, row in self._numbers().iterrows()
        ]

    def _provenance(self, build: Path) -> str:
        """Return both runs, with links to those beside this page, and the command, as Markdown."""
        command = [*words_of_command(self.this.report, self.this.manifest.get("parameters", {}))]
        command.append(f"--against {self.other.folder}")
        lines = []
        for name, run in (("This run", self.this), ("The other", self.other)):
            version = run.manifest.get("versions", {}).get("mudkit", "unknown")
            started = run.manifest.get("started", "at an unknown time")
            near = run.folder.resolve().parent == build.resolve()
            link = f"[{run.folder.name}](../{run.folder.name}/report.html)" if near else f"`{run.folder}`"
            lines.append(f"- {name}: {link}, begun {started}, mudkit {version}.")
        shown = " \\\n      ".join(command)
        return "\n".join([*lines, "", "To compare again:", "", f"    {shown}"])


_CAPTION: Final = (
    "Values with 95 % intervals. The difference is the first column minus the second, in points for shares."
)

_METHOD: Final = (
    "- Measures are those of the first screens of both runs (`summary.json`), matched by name.\n"
    "- The difference of two measures has the interval of MOVER (Zou and Donner, *Statistics in Medicine* "
    "27, 2008). With values a and b it reaches from a − b − √((a − low of a)² + (high of b − b)²) to "
    "a − b + √((high of a − a)² + (b − low of b)²).\n"
    "- That assumes independent runs. Two runs on the same devices vary together, and the interval is too "
    "wide: a small change may be missed.\n"
    "- *Changed*: the interval of the difference does not contain 0; else it is *within chance*. A measure "
    "without an interval, or with "
    "another definition in the other run, is never called changed.\n"
    "- Intervals are not adjusted for the number of measures.\n"
    "- The table's data lie beside this page, as Parquet and CSV."
)


def _output(value: Any) -> nbformat.NotebookNode:
    """Return what a notebook shows of a value."""
    import json

    from nbformat.v4 import new_output

    from mudkit.report.html import PLOTLY

    if hasattr(value, "to_plotly_json"):
        data: dict[str, Any] = {PLOTLY: json.loads(value.to_json()), "text/plain": "a figure"}
    elif hasattr(value, "_repr_mimebundle_"):
        data = value._repr_mimebundle_()
    else:
        data = {"text/html": value._repr_html_(), "text/plain": repr(value)}
    output: nbformat.NotebookNode = new_output("display_data", data)
    return output


def _words(name: Any) -> str:
    """Return the name of a measure as people read it."""
    *cases, last = str(name).split(".")
    shown = last.replace("_", " ") if last.endswith("_share") else words.label(last).words
    return ", ".join([*(case.replace("_", " ") for case in cases), shown])


def _written(value: Any) -> str:
    """Return the value of a parameter as it is written on a command line."""
    if isinstance(value, dict):
        return ", ".join(f"{name}={part}" for name, part in value.items()) or words.NO_VALUE
    if isinstance(value, list):
        return ",".join(map(str, value)) or words.NO_VALUE
    return words.NO_VALUE if value in (None, "") else str(value)


def _shown_unit(unit: str) -> tuple[float, str]:
    """Return the factor from a unit to the one that is shown, and that unit."""
    return (100.0, "%") if unit == "share" else (1.0, unit)


def _text(value: float, unit: str) -> str:
    """Return a number with its unit as people read it."""
    if unit == "share":
        return words.percent(value)
    if unit == "s":
        return words.duration(value)
    if unit == "B":
        return words.size(value)
    return f"{words.number(value)} {unit}".rstrip()


def _value(row: pd.Series[Any], side: str) -> str:
    """Return a value with its interval."""
    if row[f"{side}_text"]:
        return str(row[f"{side}_text"])
    value, low, high = (float(row[f"{side}{end}"]) for end in ("", "_low", "_high"))
    return _with_ends(value, low, high, row["unit"])


def _change(row: pd.Series[Any]) -> str:
    """Return a difference with its sign and interval."""
    value, low, high = (float(row[f"difference{end}"]) for end in ("", "_low", "_high"))
    unit = "points" if row["unit"] == "share" else row["unit"]
    scale = _shown_unit(row["unit"])[0]
    text = _with_ends(scale * value, scale * low, scale * high, unit)
    if value == 0:
        return text.replace(text.partition(" (")[0], "no difference", 1)
    return f"+{text}" if value > 0 else text


def _with_ends(value: float, low: float, high: float, unit: str) -> str:
    """Return a number with its interval and unit, all of them to the same places."""
    if not math.isfinite(value):
        return words.NO_VALUE
    has_ends = math.isfinite(low) and math.isfinite(high) and low != high
    if unit in ("s", "B"):
        ends = f" ({_text(low, unit)} to {_text(high, unit)})" if has_ends else ""
        return f"{_text(value, unit)}{ends}"
    if not has_ends:
        return _text(value, unit)
    scale, shown = _shown_unit(unit)
    numbers = [scale * number for number in (value, low, high)]
    places = words.decimals(numbers)
    text = (
        words.percent(value, places)
        if unit == "share"
        else f"{words.number(numbers[0], places)} {shown}".rstrip()
    )
    return f"{text} ({words.interval(numbers[1], numbers[2], places)})"
