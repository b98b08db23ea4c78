"""Python without mudkit for the executors of a standalone cluster."""

from __future__ import annotations

import importlib.metadata
import os
import re
import stat
import sys
from pathlib import Path

from mudkit.pipeline.executors import EXECUTORS_NEED


def _with_requirements(names: tuple[str, ...]) -> set[str]:
    """Return packages and their requirements, without extras."""
    result: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name.lower() in result:
            continue
        result.add(name.lower())
        for text in importlib.metadata.requires(name) or ():
            requirement, _, marker = text.partition(";")
            if "extra" not in marker and "platform" not in marker:
                waiting.append(re.match(r"[\w.-]+", requirement)[0])
    return result


def create_bare_python(folder: Path, *further: str) -> Path:
    """Create a Python with only the packages that executors need, and further ones: no mudkit.

    PySpark itself is part of the executor (`SPARK_HOME`).
    """
    packages = folder / "packages"
    packages.mkdir(parents=True)
    for name in sorted(_with_requirements((*EXECUTORS_NEED, *further))):
        distribution = importlib.metadata.distribution(name)
        for top in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
            if not (packages / top).exists():
                (packages / top).symlink_to(distribution.locate_file(top))
    program = folder / "python"
    program.write_text(
        "#!/bin/sh\n"
        # -S: no site-packages, and no .pth files that put a checkout on the path.
        f'PYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}{packages}" exec "{os.path.realpath(sys.executable)}" -S "$@"\n'
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


def is_running(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
