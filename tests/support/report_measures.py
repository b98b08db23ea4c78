"""A template of ``trace_profile`` with measures of known values, for tests of summaries and comparisons."""

from __future__ import annotations

import shutil
from pathlib import Path

import nbformat

from mudkit.report.run import _TEMPLATES

_SCREEN = "profiling.first_screen(source, defects, stays)"
_CELL = """
import dataclasses
import numpy as np
from mudkit import intervals
from mudkit.report import Measure
screen = profiling.first_screen(source)
per_device = source.positions["device"].to_pandas().value_counts().sort_index()
north = source.positions.to_pandas().groupby("device")["lat"].mean()
positions, speed = intervals.mean(per_device), source.positions["speed_mps"].to_pandas()
moving = intervals.share(int((speed > 1).sum()), int(speed.notna().sum()))
measures = [
    Measure("recommendation", "report more" if positions.value < 200 else "leave it", "", "What to do."),
    Measure("devices", len(per_device), "", "Devices with positions."),
    Measure("positions_per_device", positions.value, "", "Mean positions.", positions.low, positions.high),
    Measure("moving_share", moving.value, "share", "Positions at over 1 m/s.", moving.low, moving.high),
    Measure("span_s", float(np.ptp(source.positions["ts"].to_numpy()) / np.timedelta64(1, "s")), "s", "First to last."),
]
dataclasses.replace(screen, measures=measures)
"""


def write_measured_template(folder: Path) -> Path:
    """Copy the templates, with measures in ``trace_profile`` and no more than its first screen; return the folder."""
    shutil.copytree(_TEMPLATES, folder)
    file = folder / "trace_profile.ipynb"
    notebook = nbformat.read(file, as_version=4)
    place = next(number for number, cell in enumerate(notebook.cells) if _SCREEN in cell.source)
    notebook.cells[place].source = _CELL.strip()
    cells = "save_table(profiling.cells(source, cells_zoom), 'cells', data_dir);"
    notebook.cells = [*notebook.cells[: place + 1], nbformat.v4.new_code_cell(cells)]
    nbformat.write(notebook, file)
    return folder
