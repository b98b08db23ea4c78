"""The traces of rows M4 and M5, generated and recorded, with the labels that Spark gives them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

import mudkit
from mudkit import trace
from mudkit.reproduce.row import Say

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "CARS",
    "DAYS",
    "LONG_DAYS",
    "RECORDED",
    "TOWNS",
    "Labelled",
    "generated_traces",
    "labelled",
    "recorded_traces",
]

CARS: Final = (20, 60, 200, 600)
TOWNS: Final = (1, 20)
DAYS: Final[Mapping[int, int]] = {20: 14, 60: 7, 200: 4, 600: 2}
"""Of the generated traces, by cars: 60,000 to 250,000 positions, so that a row takes two or three minutes."""
LONG_DAYS: Final[Mapping[int, int]] = dict.fromkeys(CARS, 14)
"""The same, for half an hour's patience."""
RECORDED: Final[Mapping[str, str]] = {
    "taxis of San Francisco": "cabspotting_sf/cabs.csv.gz",
    "buses of Austin": "capmetrics_austin/vehicle_positions.csv.gz",
}
"""Recorded traces, in the folder ``shared/data`` beside the checkout."""


class Labelled(NamedTuple):
    """A trace and its labels.

    Attributes
    ----------
    name : str
        The name of the regime; traces of one regime differ in their seeds only.
    positions, reads, labels : pyarrow.Table
        ``labels`` are of reads, or of writes.
    """

    name: str
    positions: pa.Table
    reads: pa.Table
    labels: pa.Table


def labelled(
    label: Callable[[DataFrame, DataFrame], DataFrame],
    *,
    cars: Sequence[int],
    towns: Sequence[int],
    days: Mapping[int, int],
    seeds: Sequence[int],
    recorded: bool,
    say: Say,
) -> Iterator[Labelled]:
    """Generate traces, and take recorded ones; label each on Spark.

    Parameters
    ----------
    label : callable
        ``pipeline.label_reads`` or ``pipeline.label_writes``.
    cars, towns : sequence of int
        The numbers of cars of the generated traces, and of towns.
    days : mapping of int to int
        The length of each generated trace in days, by its number of cars.
    seeds : sequence of int
        The seeds of the runs; figures are over all of them.
    recorded : bool
        Whether recorded traces that are on this machine are taken, too.
    say : callable
    """
    from mudkit import pipeline  # loads Spark

    spark = pipeline.session()
    with tempfile.TemporaryDirectory(prefix="mudkit-traces-") as place:
        folder = Path(place) / "trace"

        def with_labels(name: str) -> Labelled:
            say(f"{name}: labelling on Spark")
            frames = [pipeline.read(spark, folder, table) for table in ("positions", "reads")]
            positions, reads = (trace.read_table(folder, table) for table in ("positions", "reads"))
            return Labelled(name, positions, reads, label(*frames).toArrow())

        for many in cars:
            for places in towns:
                for seed in seeds:
                    name = f"{many} cars, {places} town" + ("s" if places > 1 else "")
                    say(f"{name}: generating, seed {seed}")
                    trace.generate(many, days[many], seed, towns=places, path=folder, overwrite=True)
                    yield with_labels(name)
        for name, file in _recorded().items() if recorded else ():
            if file is not None:
                say(f"{name}: loading")
                pipeline.ingest(spark, file, folder, overwrite=True)
                yield with_labels(name)


def generated_traces(cars: Sequence[int], days: Mapping[int, int], seeds: Sequence[int]) -> str:
    """Say which traces were generated."""
    of_cars = ", ".join(f"{many} cars {days[many]} days" for many in cars)
    return f"{of_cars}; seeds {', '.join(map(str, seeds))}"


def recorded_traces(recorded: bool) -> dict[str, str]:
    """Say which recorded traces were taken."""
    if not recorded:
        return dict.fromkeys(RECORDED, "not taken")
    return {
        name: "taken" if file is not None else f"not on this machine (shared/data/{RECORDED[name]})"
        for name, file in _recorded().items()
    }


def _recorded() -> dict[str, Path | None]:
    beside = Path(mudkit.__file__).resolve().parents[2] / "shared" / "data"
    files = {name: beside / file for name, file in RECORDED.items()}
    return {name: file if file.is_file() else None for name, file in files.items()}
