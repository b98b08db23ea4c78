"""Execution of a report or chapter in this process without a kernel, with the outputs of its cells."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import nbformat
from nbformat.v4 import new_output

from mudkit.report.html import PLOTLY
from mudkit.report.parameters import check, inputs
from mudkit.report.run import _TEMPLATES


def run_cells(template: str, values: dict[str, Any], folder: Path) -> nbformat.NotebookNode:
    """Run the cells of a template with checked parameters; return the notebook with its outputs."""
    parameters = check(template, values)
    parameters |= {name: str(path.absolute()) for name, path in inputs(template, parameters).items()}
    (folder / "data").mkdir(parents=True, exist_ok=True)
    notebook = nbformat.read(_TEMPLATES / f"{template}.ipynb", as_version=4)
    run_notebook(notebook, parameters | {"output_dir": str(folder)})
    return notebook


def run_notebook(notebook: nbformat.NotebookNode, parameters: dict[str, Any]) -> None:
    """Run the cells of a notebook with other parameters, and store their outputs in it."""
    values: list[Any] = []
    names: dict[str, Any] = {"display": lambda *objects: values.extend(objects)}
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        values.clear()
        tree = ast.parse(cell.source)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, cell.id, "exec"), names)
        if "parameters" in cell.metadata.get("tags", []):
            names |= parameters
        if last is not None:
            value = eval(compile(ast.Expression(last.value), cell.id, "eval"), names)
            values.append(value)
        cell.outputs = [_output(value) for value in values if value is not None]


def _output(value: Any) -> nbformat.NotebookNode:
    if hasattr(value, "to_plotly_json"):
        return new_output("display_data", {PLOTLY: json.loads(value.to_json()), "text/plain": "a figure"})
    data = {"text/plain": repr(value)}
    if html := getattr(value, "_repr_html_", None):
        data["text/html"] = html()
    if bundle := getattr(value, "_repr_mimebundle_", None):
        data |= bundle()
    return new_output("display_data", data)
