"""Run a report: template and parameters in; executed notebook, offline HTML, data and manifest out."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import os
import platform
import shlex
import shutil
import sys
import time
import traceback
import warnings
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mudkit import words
from mudkit.errors import MudkitError
from mudkit.files import (
    Place,
    free_name,
    is_folder,
    output_path,
    sha256,
    size_bytes,
    sizes_below,
    staged_folder,
    stamp,
    sweep_killed,
)
from mudkit.progress import is_enabled
from mudkit.report.page import DETAILS, SUMMARY
from mudkit.report.parameters import check, check_inputs, inputs, tables
from mudkit.report.schemas import TEMPLATES
from mudkit.report.source import stays_on_spark
from mudkit.report.summary import write_summary

if TYPE_CHECKING:
    import nbformat
    import pandas as pd
    from jupyter_client.manager import AsyncKernelManager

QUIET_KERNEL: Final = ["--IPKernelApp.log_level=40"]
"""Arguments for a kernel that writes errors only: it warns of ports that are on loopback and signed."""

_FREES_MEMORY: Final = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_MMAP_THRESHOLD_": str(4 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(4 << 20),
}
"""Variables with which freed arrays go back to the system: Arrow's pools and glibc keep hundreds of MB."""

_TEMPLATES = Path(__file__).parent / "templates"
_VERSIONS = ("mudkit", "pyspark", "pyarrow", "numpy", "pandas", "plotly", "folium", "papermill")

_DURATIONS: Final = {
    "trace_profile": (8, 1.5),
    "cache_policy": (11, 4.5),
    "prefetch_sizing": (8, 0),
    "propagation": (8, 6),
    "scoreboard": (10, 0.4),
}
"""Seconds by report: those of any run, and those of a MB of packed input."""
_SPARK_S: Final = 30
"""Seconds that Spark takes to start, and to begin a dozen jobs."""
_TASK_S: Final = {"friends nearby": 0.25, "ward telemetry": 4.0, "news with ranks": 0.35}
_OTHER_TASK_S: Final = 0.2
"""Seconds of a run with 8 phones for a quarter of the task's hours, on one core."""
_ITEM_S: Final = 0.003
"""Seconds of an item of a trace in a run with 8 phones, on one core."""
_SCENARIO_S: Final = 3.2
"""Seconds of a scenario on which orders of systems are tried, on one core."""
_MESSAGE_S: Final = 1.6e-3
"""Seconds of a message that is prefetched with each setting, in each draw of outages."""
_MESSAGE_BYTES: Final = 25


class ReportFailed(MudkitError, RuntimeError):
    """A cell of a report failed; the partial notebook was kept."""


def run_report(
    template: str,
    parameters: dict[str, Any],
    *,
    build: str | os.PathLike[str] = "reports/build",
    force: bool = False,
    progress: bool = True,
) -> Path:
    """Run a report.

    Parameters
    ----------
    template : str
        Name of a template.
    parameters : dict
        Checked by the template's schema before anything runs.
    build : path-like
        Folder in which ``<template>-<time>/`` is made, with ``report.html``, ``report.ipynb``, ``data/``,
        ``summary.json`` (headline and measures of the first screen) and ``manifest.json``.
    force : bool
        Run even when a finished run has the same parameters, inputs and versions.
    progress : bool
        Show the expected duration and the stages on standard error (:func:`mudkit.progress.is_enabled`).

    Returns
    -------
    Path
        The folder of this run, or of a finished one with the same parameters, inputs and versions.

    Raises
    ------
    ParameterError, PredicateError, InputMissing, TraceFormatError
        Before anything runs.
    ReportFailed
        A cell failed, or the kernel died. ``<template>-<time>.failed/`` holds the partial notebook, the error
        and what the kernel said.
    KeyboardInterrupt
        The run was stopped; nothing is left behind.
    OutputProblem
        The folder cannot be written.
    """
    values = check(template, parameters)
    files = inputs(template, values)
    check_inputs(template, values)
    # The kernel runs in another folder, so paths are made absolute; the manifest keeps them as given.
    absolute = values | {name: str(path.absolute()) for name, path in files.items()}
    if tables(template, values):  # in the other folder a name may be that of a file
        absolute["spark"] = True
    started = dt.datetime.now(dt.UTC)
    manifest = _request(template, values, files)
    stages = _Stages(progress and is_enabled())
    build = output_path(build)
    if not force and (same := find_finished(build, template, manifest["fingerprint"])):
        return same
    sweep_killed(build, f"{template}-*")
    path = free_name(build / f"{template}-{started:%Y%m%dT%H%M%SZ}")
    clock = time.monotonic()
    stages.announce(template, _expected_s(template, values, files.values()))
    import nbformat  # loading these takes longer than loading all of mudkit

    from mudkit.report.html import export_html

    notebook = nbformat.read(_TEMPLATES / f"{template}.ipynb", as_version=4)
    with staged_folder(path) as folder:
        (folder / "data").mkdir()
        try:
            done = _execute(notebook, absolute | {"output_dir": str(folder)}, folder, stages)
        except Exception:
            _keep_failed(folder, path)
            raise
        stages.say("writing the page")
        summary = _summary(done)
        manifest["headline"] = summary["headline"]
        write_summary(folder, template, summary)
        done.cells += provenance(template, manifest, started)
        export_html(done, folder / "report.html", title=_title(done))
        _close(folder, manifest, started, time.monotonic() - clock)
    return path


def finished_run(
    template: str, parameters: dict[str, Any], build: str | os.PathLike[str] = "reports/build"
) -> Path | None:
    """Return the folder of a finished run with these parameters, inputs and versions; None without one."""
    values = check(template, parameters)
    request = _request(template, values, inputs(template, values))
    return find_finished(output_path(build), template, request["fingerprint"])


def _request(template: str, values: Mapping[str, Any], files: Mapping[str, Place]) -> dict[str, Any]:
    """Return what a run depends on, with its fingerprint: the beginning of its manifest."""
    request: dict[str, Any] = {
        "report": template,
        "parameters": dict(values),
        "seed": values.get("seed"),
        "inputs": {
            **{name: _identity(path, values) for name, path in files.items()},
            **{name: _table_identity(table) for name, table in tables(template, dict(values)).items()},
        },
        "template_sha256": sha256(_TEMPLATES / f"{template}.ipynb"),
        "versions": _versions(),
    }
    return request | {"fingerprint": _fingerprint(request)}


def _identity(path: Place, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what tells a file or folder from others; the bytes of one that stays on Spark are not read."""
    if not _is_on_spark(values):
        return {"name": path.name, "sha256": sha256(path)}
    return {"name": path.name, "sha256_of_names_sizes_and_times": stamp(path)}


def _is_on_spark(values: Mapping[str, Any]) -> bool:
    """Return whether a report computes on Spark."""
    if "spark" not in values:
        return False
    given = (values["trace"], values.get("reads"))
    return bool(values["spark"]) or any(stays_on_spark(trace) for trace in given if trace)


def _table_identity(table: str) -> dict[str, Any]:
    """Return the identity of a table; nobody can tell whether it changed, so each run is one of its own."""
    return {"name": table, "read": dt.datetime.now(dt.UTC).isoformat(timespec="seconds")}


class _Stages:
    """Expected duration and named stages, a line each on standard error."""

    def __init__(self, is_shown: bool) -> None:
        self._is_shown, self._started = is_shown, time.monotonic()

    def announce(self, template: str, expected_s: float) -> None:
        """Print the expected duration, rounded up."""
        step_s = 10 if expected_s < 60 else 60
        about = words.duration(step_s * -(-expected_s // step_s))
        self._print(f"{template}: takes about {about} on two quiet cores")
        self.say("starting")

    def say(self, stage: str) -> None:
        """Print a stage as it begins."""
        self._print(f"{time.monotonic() - self._started:5.0f} s  {stage}")

    def of_cell(self, cell: nbformat.NotebookNode, cell_index: int) -> None:
        """Print the stage of a cell, if it begins one."""
        if stage := cell.metadata.get("stage"):
            self.say(str(stage))

    def _print(self, line: str) -> None:
        """Print a line of progress to standard error, if progress is shown."""
        if self._is_shown:
            print(line, file=sys.stderr, flush=True)  # noqa: T201


def _expected_s(template: str, values: Mapping[str, Any], files: Iterable[Place]) -> float:
    """Estimate the duration on two quiet cores, seconds: measured on the samples and on recorded traces."""
    fixed_s, per_mb_s = _DURATIONS[template]
    packed_mb = sum(_packed_mb(path) for path in files)
    expected_s: float = fixed_s + per_mb_s * packed_mb
    if _is_on_spark(values):
        expected_s += _SPARK_S
    if template == "scoreboard":
        from mudkit.experiment import TASKS  # it loads all systems

        names = values["tasks"] or ([] if values["trace"] else list(TASKS))
        runs_s = sum(_TASK_S.get(task, _OTHER_TASK_S) for task in names) * values["length"] / 0.25
        if values["trace"]:
            runs_s += _ITEM_S * values["max_items"]
        runs_s *= len(values["systems"]) * values["seeds"] * values["devices"] / 8
        expected_s += (runs_s + _SCENARIO_S * values["scenarios"]) / 2
    elif template == "prefetch_sizing":
        messages = (
            packed_mb * 4e6 / _MESSAGE_BYTES if packed_mb else values["arrivals_per_day"] * values["days"]
        )
        expected_s += _MESSAGE_S * messages * (1 if values["outages"] else values["draws"])
    return expected_s


def _packed_mb(path: Place) -> float:
    """Return the size of a file or folder, as if it were packed with gzip."""
    sizes = sizes_below(path) if is_folder(path) else {path.name: size_bytes(path) or 0}
    return sum(size * (0.25 if name.endswith(".csv") else 1.0) for name, size in sizes.items()) / 1e6


def provenance(
    template: str, manifest: Mapping[str, Any], started: dt.datetime
) -> list[nbformat.NotebookNode]:
    """Return the folded cells that say what a page was made of, and the command that makes it again."""
    from nbformat.v4 import new_code_cell, new_markdown_cell, new_output

    from mudkit.display import show

    given = {name: value for name, value in manifest["parameters"].items() if value not in (None, "", {}, [])}
    rows = [
        {"what": what, "value": value} for what, value in map(_told_identity, manifest["inputs"].values())
    ]
    rows += [{"what": name, "value": _assigned(value)} for name, value in given.items()]
    table = show(rows, "Files and parameters.", rows=len(rows))
    output = new_output("display_data", {"text/html": table._repr_html_(), "text/plain": repr(table)})
    command = " \\\n      ".join(words_of_command(template, given))  # browsers break a line within "--"
    versions = ", ".join(f"{name} {value}" for name, value in manifest["versions"].items())
    intro = f"Made on {started:%-d %B %Y, %H:%M} UTC with {versions}. To make this page again:"
    folded = {"tags": [DETAILS]}
    return [
        new_markdown_cell(f"## Provenance\n\n{intro}\n\n    {command}", metadata=folded),
        new_code_cell("", outputs=[output], metadata=folded),
    ]


def _told_identity(entry: Mapping[str, str]) -> tuple[str, str]:
    """Return what an input is called, and what tells it from others, in words."""
    if "read" in entry:
        return f"table {entry['name']}", f"read on {entry['read']}"
    if "sha256" in entry:
        return f"file {entry['name']}", f"SHA-256 {entry['sha256']}"
    digest = entry["sha256_of_names_sizes_and_times"]
    return f"file {entry['name']}", f"SHA-256 of names, sizes and times of its files {digest}"


def words_of_command(template: str, parameters: Mapping[str, Any]) -> list[str]:
    """Return the command of a run, an option each; defaults are left out."""
    fields = TEMPLATES[template].model_fields
    defaults = {name: field.default for name, field in fields.items() if not field.is_required()}
    changed = {
        name: value
        for name, value in parameters.items()
        if value not in (None, "", {}, []) and value != defaults.get(name)
    }
    return [
        f"mudkit report {template}",
        *(option for item in changed.items() for option in _options(*item)),
    ]


def _options(name: str, value: Any) -> list[str]:
    """Return ``--param name=value`` as text quoted for a shell; of a mapping, one for each key."""
    if isinstance(value, dict):
        return [f"--param {shlex.quote(f'{name}.{key}={part}')}" for key, part in value.items()]
    return [f"--param {shlex.quote(f'{name}={_assigned(value)}')}"]


def _assigned(value: Any) -> str:
    """Return a value as ``--param NAME=`` takes it."""
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _summary(notebook: nbformat.NotebookNode) -> dict[str, Any]:
    """Return the headline and the measures that a cell displayed; an empty headline without one."""
    outputs = (output for cell in notebook.cells for output in cell.get("outputs", ()))
    shown = (output["data"][SUMMARY] for output in outputs if SUMMARY in output.get("data", {}))
    return next((dict(summary) for summary in shown), {"headline": "", "measures": []})


def headline(folder: Path) -> str:
    """Return the headline of a report that has run; empty without one."""
    return str(json.loads((folder / "manifest.json").read_text(encoding="utf-8")).get("headline", ""))


def save_page(
    name: str,
    notebook: nbformat.NotebookNode,
    tables: Mapping[str, pd.DataFrame],
    *,
    parameters: Mapping[str, Any],
    build: str | os.PathLike[str] = "reports/build",
) -> Path:
    """Keep what was found already as a report is kept: a page, its notebook, its data, a manifest.

    If a cell shows a :class:`mudkit.report.page.FirstScreen`, there is a ``summary.json``, too.

    Parameters
    ----------
    name : str
        The name of the report.
    notebook : nbformat.NotebookNode
        A notebook with its outputs; its first line is the title of the page.
    tables : mapping of str to DataFrame
        The tables, which are written as ``data/<name>.parquet``.
    parameters : mapping
        What the page depends on, as values that JSON can hold.
    build : path-like
        The folder in which ``<name>-<time>/`` is made.

    Returns
    -------
    Path
        The folder that was made.

    Raises
    ------
    OutputProblem
        The folder cannot be written.
    """
    import nbformat

    from mudkit.report.html import export_html
    from mudkit.report.tables import save_table

    started, clock = dt.datetime.now(dt.UTC), time.monotonic()
    path = free_name(output_path(build) / f"{name}-{started:%Y%m%dT%H%M%SZ}")
    with staged_folder(path) as folder:
        (folder / "data").mkdir()
        for table_name, table in tables.items():
            save_table(table, table_name, folder / "data")
        nbformat.write(notebook, folder / "report.ipynb")
        export_html(notebook, folder / "report.html", title=_title(notebook))
        manifest = page_request(name, parameters)
        if (summary := _summary(notebook))["headline"]:
            write_summary(folder, name, summary)
            manifest["headline"] = summary["headline"]
        _close(folder, manifest, started, time.monotonic() - clock)
    return path


def page_request(name: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a page of :func:`save_page` depends on, with its fingerprint."""
    request = {"report": name, "parameters": dict(parameters), "versions": _versions()}
    return request | {"fingerprint": _fingerprint(request)}


@cache
def _versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that results depend on, which are read once."""
    return {"python": platform.python_version()} | {
        package: metadata.version(package) for package in _VERSIONS
    }


def _close(folder: Path, manifest: dict[str, Any], started: dt.datetime, duration_s: float) -> None:
    """Write the manifest, the last of a report's files."""
    whole = manifest | {
        "started": started.isoformat(timespec="seconds"),
        "duration_s": round(duration_s, 3),
        "outputs": {str(p.relative_to(folder)): sha256(p) for p in sorted(folder.rglob("*")) if p.is_file()},
    }
    (folder / "manifest.json").write_text(json.dumps(whole, indent=2) + "\n", encoding="utf-8")


def _execute(
    notebook: nbformat.NotebookNode, values: dict[str, Any], folder: Path, stages: _Stages
) -> nbformat.NotebookNode:
    """Execute a notebook in a kernel of its own and return it; raise ReportFailed with its error."""
    import nbformat  # loading these takes longer than loading all of mudkit
    import papermill
    from nbclient.exceptions import DeadKernelError
    from papermill.exceptions import PapermillExecutionError

    source, target, log = (folder / name for name in ("template.ipynb", "report.ipynb", "kernel.txt"))
    nbformat.write(notebook, source)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # papermill's own, not for who runs a report
            papermill.execute_notebook(
                source,
                target,
                values,
                kernel_name="python3",
                cwd=folder,
                progress_bar=False,
                on_cell_start=stages.of_cell,
                log_output=False,
                extra_arguments=QUIET_KERNEL,
                kernel_manager_class=kernel_manager(log),
            )
    except PapermillExecutionError as error:
        if error.ename == "KeyboardInterrupt":  # it reached the kernel first
            raise KeyboardInterrupt from error
        raise _failure(error) from error
    except DeadKernelError as error:
        raise ReportFailed(
            "The kernel of the report died.",
            found=str(error),
            expected="a kernel that lives to the last cell",
            remedy="see whether memory is short; the folder ending in .failed has what the kernel said",
        ) from error
    finally:
        source.unlink(missing_ok=True)
        shutil.rmtree(folder / "work", ignore_errors=True)
    log.unlink(missing_ok=True)
    done: nbformat.NotebookNode = nbformat.read(target, as_version=4)
    return done


def kernel_manager(path: Path) -> type[AsyncKernelManager]:
    """Return a class of kernel managers whose kernels give freed memory back at once.

    They append standard error, Java's included, to a file.
    """
    from jupyter_client.manager import (
        AsyncKernelManager,  # loading it takes longer than loading all of mudkit
    )

    class Quiet(AsyncKernelManager):
        async def _async_launch_kernel(self, kernel_cmd: list[str], **options: Any) -> None:
            env = _FREES_MEMORY | options.pop("env", os.environ)
            with path.open("ab") as file:
                await super()._async_launch_kernel(kernel_cmd, **options, env=env, stderr=file)

    return Quiet


def _failure(error: Any) -> ReportFailed:
    """Return the error of a failed cell; the fields of mudkit's own errors are kept."""
    summary, *lines = str(error.evalue).split("\n")
    labelled = dict(line.strip().split(":", 1) for line in lines if line.startswith("  ") and ":" in line)
    fields = {label: text.strip() for label, text in labelled.items()}
    return ReportFailed(
        summary
        if fields
        else f"Cell {error.exec_count} of the report failed: {error.ename}: {summary[:300]}",
        where=fields.get("where", f"cell {error.exec_count}"),
        found=fields.get("found"),
        expected=fields.get("expected"),
        remedy="; ".join(filter(None, [fields.get("to do"), "the folder ending in .failed has the details"])),
    )


def _keep_failed(folder: Path, path: Path) -> None:
    """Keep what a failed run left, under a name that nobody takes for a report."""
    failed = path.with_name(path.name + ".failed")
    (folder / "error.txt").write_text(traceback.format_exc(), encoding="utf-8")
    shutil.rmtree(failed, ignore_errors=True)
    try:
        shutil.copytree(folder, failed)
    except OSError:
        print(f"mudkit: the partial report could not be kept in {failed}", file=sys.stderr)  # noqa: T201


def _fingerprint(manifest: dict[str, Any]) -> str:
    """Return a checksum of a manifest."""
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def find_finished(build: Path, template: str, mark: str) -> Path | None:
    """Find a finished run with this fingerprint whose files are all there."""
    for file in sorted(build.glob(f"{template}-*/manifest.json"), reverse=True):
        try:
            manifest = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        whole = all((file.parent / name).is_file() for name in manifest.get("outputs", {"none": ""}))
        if manifest.get("fingerprint") == mark and whole:
            return file.parent
    return None


def _title(notebook: nbformat.NotebookNode) -> str:
    """Return the first heading of a notebook."""
    first = next((cell.source for cell in notebook.cells if cell.cell_type == "markdown"), "Report")
    return str(first).splitlines()[0].lstrip("# ")
