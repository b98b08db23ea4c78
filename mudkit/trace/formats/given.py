"""Sources of a trace as they are given: files, folders, patterns of names, lists, and tables in memory."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from mudkit.errors import InputMissing, TraceFormatError
from mudkit.files import existing

if TYPE_CHECKING:
    import pandas as pd

    Given: TypeAlias = str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | pa.Table | pd.DataFrame

_MAGIC = re.compile(r"[*?[]")


@dataclass(frozen=True)
class Files:
    """Several files or folders that are one source.

    Attributes
    ----------
    path : Path
        The folder that all of them are in.
    places : tuple of Path
        The files and folders, in order.
    """

    path: Path
    places: tuple[Path, ...]


def find(given: Given) -> Path | Files | pa.Table:
    """Return the existing path, the files, or the table that a source is given by.

    A text with ``*``, ``?`` or ``[`` that is no path is a pattern of names, as of the shell; ``**`` stands
    for folders at any depth.

    Raises
    ------
    InputMissing
        A file does not exist, or no name fits a pattern.
    ParameterError
        It is none of these.
    TraceFormatError
        A table has columns that Arrow does not know.
    """
    if isinstance(given, pa.Table):
        return given
    if hasattr(given, "iloc"):  # importing pandas takes longer than loading all of mudkit
        return _of_pandas(given)
    if isinstance(given, Iterable) and not isinstance(given, str | os.PathLike):
        places = [place for each in given for place in _places(each)]
        if not places:
            raise InputMissing(
                "The list of files of the trace is empty.",
                where="trace",
                found=repr(given)[:200],
                expected="at least one file",
                remedy="check what was to fill the list",
            )
        return _joined(places)
    return _joined(_places(given))


def _places(given: Any) -> list[Path]:
    """Return an existing path, or those that fit a pattern."""
    if isinstance(given, str | os.PathLike) and _MAGIC.search(str(given)) and not os.path.lexists(given):
        return _fitting(Path(given).expanduser())
    return [existing(given, "trace")]


def _of_pandas(frame: Any) -> pa.Table:
    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise TraceFormatError(
            "A column of the DataFrame holds values of several kinds.",
            where="trace",
            found=str(error).split("\n")[0][:200],
            expected="one kind of value in a column",
            remedy="convert it, for instance with frame['device'].astype(str)",
        ) from error


def _fitting(pattern: Path) -> list[Path]:
    """Return the paths that fit a pattern, in order; hidden ones fit only where it begins with a dot."""
    at = next(place for place, part in enumerate(pattern.parts) if _MAGIC.search(part))
    base = Path(*pattern.parts[:at])
    found = sorted(base.glob("/".join(pattern.parts[at:])))
    places = [place for place in found if pattern.name.startswith(".") or not place.name.startswith(".")]
    if "**" in pattern.parts:  # it fits folders, whose files fit, too
        places = [place for place in places if place.is_file()]
    if not places:
        raise InputMissing(
            f"No file fits the pattern {pattern}.",
            where=str(pattern.absolute()),
            found="no name that fits" if base.is_dir() else f"no folder {base}",
            expected="at least one file or folder",
            remedy="check the pattern; a relative one starts from the folder that you are in",
        )
    return places


def _joined(places: list[Path]) -> Path | Files:
    """Return several places as one source; a single file or folder is itself."""
    once = tuple(dict.fromkeys(place.absolute() for place in places))
    base = Path(os.path.commonpath([place.parent for place in once]))
    while "=" in base.name:  # values of columns may stand in the path
        base = base.parent
    if len(once) == 1 and base == once[0].parent:
        return places[0]
    return Files(base, once)
