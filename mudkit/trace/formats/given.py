"""Sources of a trace as they are given: files, folders, patterns of names, lists, and tables in memory."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from mudkit.errors import InputMissing, ParameterError, TraceFormatError
from mudkit.files import Place, PlaceLike, existing, input_problem, is_file, is_folder, place

if TYPE_CHECKING:
    import pandas as pd

Given: TypeAlias = "PlaceLike | Iterable[PlaceLike] | pa.Table | pd.DataFrame"
_MAGIC = re.compile(r"[*?[]")


@dataclass(frozen=True)
class Files:
    """Several files or folders that are one source.

    Attributes
    ----------
    path : Path or UPath
        The folder that all of them are in.
    names : tuple of str
        Their paths in it, in order.
    """

    path: Place
    names: tuple[str, ...]


def find(given: Given) -> Place | Files | pa.Table:
    """Return the existing place, the files, or the table that a source is given by.

    A text with ``*``, ``?`` or ``[`` that is no path is a pattern of names, as of the shell; ``**`` stands
    for folders at any depth.

    Raises
    ------
    InputMissing
        A file does not exist, or no name fits a pattern.
    ParameterError
        Another kind of value, or files in several stores.
    TraceFormatError
        A table has columns that Arrow does not know.
    """
    if isinstance(given, pa.Table):
        return given
    if hasattr(given, "iloc"):  # importing pandas takes longer than loading all of mudkit
        return _of_pandas(given)
    if isinstance(given, Iterable) and not isinstance(given, str | os.PathLike):
        places = [at for one in given for at in _places(one)]
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


def _places(given: Any) -> list[Place]:
    """Return an existing place, or those that fit a pattern."""
    if isinstance(given, str | os.PathLike) and _MAGIC.search(str(given)) and not os.path.lexists(given):
        return _fitting(str(given))
    return [existing(given, "trace")]


def _fitting(pattern: str) -> list[Place]:
    """Return the places that fit a pattern, in order; hidden ones fit only where it begins with a dot."""
    folder, _, name = pattern.rpartition("/")
    while _MAGIC.search(folder):
        folder, _, last = folder.rpartition("/")
        name = f"{last}/{name}"
    base = place(folder or ("/" if pattern.startswith("/") else "."))
    is_hidden = name.rpartition("/")[2].startswith(".")
    places = _globbed(base, name)
    places = [at for at in places if is_hidden or not at.name.startswith(".")]
    if "**" in name.split("/"):  # it fits folders, whose files fit, too
        places = [at for at in places if is_file(at)]
    if not places:
        raise InputMissing(
            f"No file fits the pattern {pattern}.",
            where=str(base),
            found="no name that fits" if base.exists() else f"no folder {base}",
            expected="at least one file or folder",
            remedy="check the pattern; a relative one starts from the folder that you are in",
        )
    return places


def _globbed(base: Place, pattern: str) -> list[Place]:
    """Return the places in a folder that fit a pattern, in order."""
    if isinstance(base, Path):
        return sorted(base.glob(pattern))
    is_folder(base)  # raises if the store refuses, or does not answer in time
    try:
        return sorted(base.glob(pattern))
    except Exception as error:
        raise input_problem(base, error, "folder") from error


def _joined(places: list[Place]) -> Place | Files:
    """Return several places as one source; a single file or folder is itself."""
    once = list(dict.fromkeys(at.absolute() if isinstance(at, Path) else at for at in places))
    base = once[0].parent
    while not all(_is_in(at, base) for at in once) or "=" in base.name:  # columns may stand in the path
        if base == base.parent:
            raise ParameterError(
                "The files of the trace are in several stores.",
                where="trace",
                found=", ".join(map(str, once))[:200],
                expected="files of one store, or of this machine",
                remedy="load them one by one, or copy them to one place",
            )
        base = base.parent
    if len(once) == 1 and base == once[0].parent:
        return places[0]
    return Files(base, tuple(str(at)[len(_prefix(base)) :] for at in once))


def _prefix(folder: Place) -> str:
    """Return the text with which the paths of a folder's files begin."""
    return str(folder).rstrip("/") + "/"


def _is_in(at: Place, folder: Place) -> bool:
    """Return whether a place is in a folder, at any depth."""
    return str(at).startswith(_prefix(folder))


def _of_pandas(frame: Any) -> pa.Table:
    """Return a DataFrame of pandas as a table; TraceFormatError if a column has several kinds of values."""
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
