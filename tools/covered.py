"""List the lines of mudkit that only the soak covers; `make coverage` measures both runs before."""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path

from coverage import CoverageData

ROOT = Path(__file__).parents[1]


def lines(file: Path) -> set[tuple[str, int]]:
    """Return what a run has covered: files below the repository and numbers of lines; not those of copies."""
    data = CoverageData(str(file))
    data.read()
    return {
        (str(Path(name).relative_to(ROOT)), number)
        for name in data.measured_files()
        if Path(name).is_relative_to(ROOT)
        for number in data.lines(name) or ()
    }


def ranges(numbers: list[int]) -> str:
    """Write line numbers with ranges, as `3-5, 9`."""
    result = []
    for _, run in groupby(enumerate(sorted(numbers)), lambda pair: pair[1] - pair[0]):
        first, *rest = [number for _, number in run]
        result.append(f"{first}-{rest[-1]}" if rest else str(first))
    return ", ".join(result)


def main(test: Path, soak: Path) -> None:
    """Print the lines that one run covers and the other does not."""
    short, long = lines(test), lines(soak)
    output = [f"make test covers {len(short):,} lines, with the soak {len(short | long):,}; only the soak:"]
    for file, group in groupby(sorted(long - short), lambda line: line[0]):
        output.append(f"{file}: {ranges([number for _, number in group])}")
    sys.stdout.write("\n".join(output) + "\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
