"""Traces of rows M4 and M5 (Mobius 7.3): generated ones, and the recorded ones that are on this machine."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

import mudkit
from mudkit import trace
from mudkit.reproduce.row import Say

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CARS: Final = (20, 60, 200, 600)
TOWNS: Final = (1, 20)
DAYS: Final[Mapping[int, int]] = {20: 14, 60: 7, 200: 4, 600: 2}
"""Length of generated traces by cars: 60,000 to 250,000 positions, two or three minutes a row."""
_RECORDED: Final[Mapping[str, str]] = {
    "taxis of San Francisco": "cabspotting_sf/cabs.csv.gz",
    "buses of Austin": "capmetrics_austin/vehicle_positions.csv.gz",
}
"""Recorded traces, in the folder ``shared/data`` beside the checkout."""


class Labelled(NamedTuple):
    """A trace and the labels of its reads or writes; traces of one regime, `name`, differ in their seeds."""

    name: str
    positions: pa.Table
    reads: pa.Table
    labels: pa.Table


@dataclass(frozen=True)
class Traces:
    """Traces that a row is measured on: generated ones, and the recorded ones that are on this machine."""

    cars: Sequence[int] = CARS
    towns: Sequence[int] = TOWNS
    days: Mapping[int, int] = field(default_factory=lambda: DAYS)
    seeds: Sequence[int] = (7, 8)
    recorded: bool = True

    def label_each(self, label: Callable[[DataFrame, DataFrame], DataFrame], say: Say) -> Iterator[Labelled]:
        """Generate or load the traces, and label each on Spark."""
        from mudkit import pipeline  # loads Spark

        spark = pipeline.session()
        with tempfile.TemporaryDirectory(prefix="mudkit-traces-") as place:
            folder = Path(place) / "trace"

            def with_labels(name: str) -> Labelled:
                say(f"{name}: labelling on Spark")
                frames = [pipeline.read(spark, folder, table) for table in ("positions", "reads")]
                positions, reads = (trace.read_table(folder, table) for table in ("positions", "reads"))
                return Labelled(name, positions, reads, label(*frames).toArrow())

            for cars, towns, seed in product(self.cars, self.towns, self.seeds):
                name = f"{cars} cars, {towns} town" + ("s" if towns > 1 else "")
                say(f"{name}: generating, seed {seed}")
                trace.generate(cars, self.days[cars], seed, towns=towns, path=folder, overwrite=True)
                yield with_labels(name)
            for name, file in _recorded().items() if self.recorded else ():
                if file is not None:
                    say(f"{name}: loading")
                    pipeline.ingest(spark, file, folder, overwrite=True)
                    yield with_labels(name)

    def parameters(self) -> dict[str, Any]:
        """Describe the traces."""
        days = ", ".join(f"{cars} cars {self.days[cars]} days" for cars in self.cars)
        return {
            "generated traces": f"{days}; seeds {', '.join(map(str, self.seeds))}",
            "recorded traces": {
                name: "not taken"
                if not self.recorded
                else "taken"
                if file is not None
                else f"not on this machine (shared/data/{_RECORDED[name]})"
                for name, file in _recorded().items()
            },
        }


def _recorded() -> dict[str, Path | None]:
    """Return the file of each recorded trace; None where it is not on this machine."""
    shared = Path(mudkit.__file__).resolve().parents[2] / "shared" / "data"
    files = {name: shared / file for name, file in _RECORDED.items()}
    return {name: file if file.is_file() else None for name, file in files.items()}


ALL_TRACES: Final = Traces()
