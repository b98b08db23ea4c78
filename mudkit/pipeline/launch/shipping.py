"""mudkit for executors on other machines: the package as a zip file."""

from __future__ import annotations

import weakref
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

import mudkit
from mudkit.files import work_folder

__all__ = ["EXECUTORS_NEED", "has_mudkit", "package_folder", "provide", "write_package"]

EXECUTORS_NEED = ("numpy", "pandas", "pyarrow", "scipy", "google-re2", "sqlglot", "msgspec")
"""What the Python of executors on other machines has to have: mudkit's jobs import them there."""


def package_folder() -> Path:
    """Return the folder that mudkit is imported from."""
    return Path(mudkit.__file__).parent


def write_package(folder: Path) -> Path:
    """Write mudkit's Python files as ``mudkit.zip``, which Python can import from.

    Parameters
    ----------
    folder : Path
        An existing folder.

    Returns
    -------
    Path
        The zip file; the same bytes for the same files.
    """
    package = package_folder()
    path = folder / "mudkit.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(package.rglob("*.py")):
            # A fixed date, so that the bytes depend on the files alone.
            entry = zipfile.ZipInfo(f"mudkit/{file.relative_to(package).as_posix()}")
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, file.read_bytes())
    return path


class _Provided:
    """Sessions, or the contexts that classic ones share, whose executors can import this mudkit."""

    def __init__(self) -> None:
        self.known: weakref.WeakSet[Any] = weakref.WeakSet()


_PROVIDED = _Provided()


def has_mudkit(spark: SparkSession) -> None:
    """Note that the executors of a session can import this mudkit."""
    _PROVIDED.known.add(_place_of(spark))


def provide(spark: SparkSession) -> None:
    """Send mudkit to the executors of a session, if they cannot import this version of it.

    A session of :func:`mudkit.pipeline.session` has it from the start. One that somebody else started, on a
    cluster or through Spark Connect, is asked once, by a small job; what mudkit itself imports (as
    :data:`EXECUTORS_NEED` says) is not sent.

    Parameters
    ----------
    spark : SparkSession
    """
    if _place_of(spark) in _PROVIDED.known:
        return
    if _version_there(spark) != mudkit.__version__:
        spark.addArtifacts(str(write_package(work_folder())), pyfile=True)
    has_mudkit(spark)


def _place_of(spark: Any) -> Any:
    """Give what files are sent to: the context of a classic session, a session of Spark Connect itself."""
    return getattr(spark, "_sc", spark)


def _version_there(spark: SparkSession) -> str:
    """Ask an executor for its mudkit's version; empty: it has none."""

    # A function within a function travels by value: the executor imports nothing for it.
    def ask(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import importlib
        import sys

        import pyarrow

        try:
            version = str(importlib.import_module("mudkit").__version__)
        except ImportError:
            version = ""
        # A Python that is used again must not hold on to a version that is about to be replaced.
        for name in [each for each in sys.modules if each.partition(".")[0] == "mudkit"]:
            del sys.modules[name]
        for batch in batches:
            yield pyarrow.RecordBatch.from_pydict({"version": [version] * len(batch)})

    return str(spark.range(0, 1, 1, 1).mapInArrow(ask, "version STRING").collect()[0][0])
