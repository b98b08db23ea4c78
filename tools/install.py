"""Install what a lock file names with this Python's pip, and print each package while it is fetched.

Usage: python tools/install.py REQUIREMENTS
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

PIP = [sys.executable, "-u", "-m", "pip", "--disable-pip-version-check", "install", "--require-hashes", "-r"]
EVERY = 10
"""Packages per printed line, unless standard error is a terminal, where one line is written over."""
_STARTED = re.compile(r"(?:Collecting|Requirement already satisfied:|Ignoring) ([\w.-]+)")
_SIZE = re.compile(r"\(([\d.]+ [kMG]B)\)")


def stages(lines: Iterable[str], total: int) -> Iterator[tuple[int, str]]:
    """Yield the number of packages so far and what pip does, for each line of pip that begins something."""
    number, name = 0, ""
    for line in lines:
        if started := _STARTED.match(line):
            number, name = number + 1, started[1]
            yield number, f"package {number} of {total}: {name}"
        elif line.lstrip().startswith("Downloading ") and (size := _SIZE.search(line)):
            yield number, f"package {number} of {total}: {name}, {size[1]}"
        elif line.startswith("Installing collected packages:"):
            yield 0, f"writing {len(line.split(','))} packages to {sys.prefix} (a minute or two)"


def main(requirements: Path) -> int:
    """Run pip and return its exit status; print pip's errors as they are."""
    total = len(re.findall(r"^[\w.\[\]-]+==", requirements.read_text(encoding="utf-8"), re.MULTILINE))
    is_terminal, printed = sys.stderr.isatty(), -1
    command = [*PIP, os.fspath(requirements)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, encoding="utf-8") as pip:
        for number, stage in stages(pip.stdout or (), total):
            if is_terminal:
                sys.stderr.write(f"\r\x1b[Kmudkit: {stage}")
            elif number % EVERY == 0 and number != printed:
                sys.stderr.write(f"mudkit: {stage}\n")
                printed = number
            sys.stderr.flush()
    if is_terminal:
        sys.stderr.write("\r\x1b[K")
    return pip.returncode


if __name__ == "__main__":
    try:
        sys.exit(main(Path(sys.argv[1])))
    except KeyboardInterrupt:
        sys.exit(130)
