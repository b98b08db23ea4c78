"""Run a report: template and parameters in; executed notebook, offline HTML, data and manifest out."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import os
import platform
import shutil
import sys
import time
import traceback
import warnings
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mudkit.errors import MudkitError
from mudkit.files import free_name, sha256, staged_folder, sweep_killed
from mudkit.progress import wanted
from mudkit.report.kernels import QUIET_KERNEL, manager
from mudkit.report.parameters import check, check_inputs, inputs

if TYPE_CHECKING:
    import nbformat
    import pandas as pd

__all__ = ["ReportFailed", "keep_page", "run_report"]

_TEMPLATES = Path(__file__).parent / "templates"
_VERSIONS = ("mudkit", "pyspark", "pyarrow", "numpy", "pandas", "plotly", "folium", "papermill")


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
        The name of a template.
    parameters : dict
        Checked by the template's schema before anything runs.
    build : path-like
        Folder in which ``<template>-<time>/`` is made, with ``report.html``, ``report.ipynb``, ``data/`` and
        ``manifest.json``.
    force : bool
        Run even when a finished run has the same parameters, inputs and versions.
    progress : bool
        Show a bar of cells on standard error, where somebody watches (:func:`mudkit.progress.wanted`).

    Returns
    -------
    Path
        The folder, of this run or of the finished one that nothing has changed since.

    Raises
    ------
    ParameterError, InputMissing, TraceFormatError
        Before anything runs.
    ReportFailed
        A cell failed, or the kernel died. ``<template>-<time>.failed/`` holds the partial notebook, the error
        and what the kernel said.
    KeyboardInterrupt
        Somebody has stopped it; nothing is left behind.
    OutputProblem
        The folder cannot be written.
    """
    values = check(template, parameters)
    files = inputs(template, values)
    check_inputs(template, values)
    # The kernel runs in another folder, so paths are made absolute; the manifest keeps them as given.
    absolute = values | {name: str(path.absolute()) for name, path in files.items()}
    import nbformat  # loading these takes longer than loading all of mudkit

    from mudkit.report.html import export_html

    notebook = nbformat.read(_TEMPLATES / f"{template}.ipynb", as_version=4)
    started = dt.datetime.now(dt.UTC)
    manifest: dict[str, Any] = {
        "report": template,
        "parameters": values,
        "seed": values.get("seed"),
        "inputs": {name: {"name": path.name, "sha256": sha256(path)} for name, path in files.items()},
        "template_sha256": sha256(_TEMPLATES / f"{template}.ipynb"),
        "versions": _versions(),
    }
    manifest["fingerprint"] = _fingerprint(manifest)
    build = Path(build).expanduser()
    if not force and (same := _finished(build, template, manifest["fingerprint"])):
        return same
    sweep_killed(build, f"{template}-*")
    path = free_name(build / f"{template}-{started:%Y%m%dT%H%M%SZ}")
    clock = time.monotonic()
    with staged_folder(path) as folder:
        (folder / "data").mkdir()
        try:
            done = _execute(notebook, absolute | {"output_dir": str(folder)}, folder, progress)
        except Exception:
            _keep_failed(folder, path)
            raise
        export_html(done, folder / "report.html", title=_title(done))
        _close(folder, manifest, started, time.monotonic() - clock)
    return path


def keep_page(
    name: str,
    notebook: nbformat.NotebookNode,
    tables: Mapping[str, pd.DataFrame],
    *,
    parameters: Mapping[str, Any],
    build: str | os.PathLike[str] = "reports/build",
) -> Path:
    """Keep what was found already as a report is kept: a page, its notebook, its data, a manifest.

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
    from mudkit.report.tables import keep

    started, clock = dt.datetime.now(dt.UTC), time.monotonic()
    path = free_name(Path(build).expanduser() / f"{name}-{started:%Y%m%dT%H%M%SZ}")
    with staged_folder(path) as folder:
        (folder / "data").mkdir()
        for each, table in tables.items():
            keep(table, each, folder / "data")
        nbformat.write(notebook, folder / "report.ipynb")
        export_html(notebook, folder / "report.html", title=_title(notebook))
        manifest = {"report": name, "parameters": dict(parameters), "versions": _versions()}
        _close(folder, manifest, started, time.monotonic() - clock)
    return path


def _versions() -> dict[str, str]:
    return {"python": platform.python_version()} | {each: metadata.version(each) for each in _VERSIONS}


def _close(folder: Path, manifest: dict[str, Any], started: dt.datetime, duration_s: float) -> None:
    """Write the manifest, the last of a report's files."""
    whole = manifest | {
        "started": started.isoformat(timespec="seconds"),
        "duration_s": round(duration_s, 3),
        "outputs": {str(p.relative_to(folder)): sha256(p) for p in sorted(folder.rglob("*")) if p.is_file()},
    }
    (folder / "manifest.json").write_text(json.dumps(whole, indent=2) + "\n", encoding="utf-8")


def _execute(
    notebook: nbformat.NotebookNode, values: dict[str, Any], folder: Path, progress: bool
) -> nbformat.NotebookNode:
    import nbformat  # loading these takes longer than loading all of mudkit
    import papermill
    from nbclient.exceptions import DeadKernelError
    from papermill.exceptions import PapermillExecutionError

    source, target, said = (folder / name for name in ("template.ipynb", "report.ipynb", "kernel.txt"))
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
                progress_bar=progress and wanted(),
                log_output=False,
                extra_arguments=QUIET_KERNEL,
                kernel_manager_class=manager(said),
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
    said.unlink(missing_ok=True)
    done: nbformat.NotebookNode = nbformat.read(target, as_version=4)
    return done


def _failure(error: Any) -> ReportFailed:
    """Say what a cell failed of; the fields of mudkit's own errors are told again."""
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
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _finished(build: Path, template: str, fingerprint: str) -> Path | None:
    """Find a finished run with this fingerprint whose files are all there."""
    for file in sorted(build.glob(f"{template}-*/manifest.json"), reverse=True):
        try:
            manifest = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        whole = all((file.parent / name).is_file() for name in manifest.get("outputs", {"none": ""}))
        if manifest.get("fingerprint") == fingerprint and whole:
            return file.parent
    return None


def _title(notebook: nbformat.NotebookNode) -> str:
    first = next((cell.source for cell in notebook.cells if cell.cell_type == "markdown"), "Report")
    return str(first).splitlines()[0].lstrip("# ")
