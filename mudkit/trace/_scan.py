"""Scan of a trace that does not fit in memory: its pieces, with the rows on disk."""

from __future__ import annotations

import shutil
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any

import pyarrow as pa

from mudkit.checks import Range, check_arguments
from mudkit.display import Displayed, View
from mudkit.errors import MudkitError, TraceContentError
from mudkit.files import output_problem, work_folder
from mudkit.trace.folder import is_trace
from mudkit.trace.formats import Files, find
from mudkit.trace.loaded import Loaded
from mudkit.trace.options import Options, refuse_for_folder
from mudkit.trace.pieces import FilePieces, FolderPieces, Pieces

if TYPE_CHECKING:
    from mudkit.trace.formats.given import Given


@check_arguments(types=False)
def scan(path: Given, *, batch_rows: Annotated[int, Range(1, 1 << 62)] = 1_000_000, **options: Any) -> Scan:
    """Load a trace piece by piece in bounded memory.

    The rows of all pieces together are those of :func:`mudkit.trace.load`: positions, reads, and rejected
    rows with the same reasons. A device is whole in one piece, and pieces are ordered by device name, so the
    concatenated positions equal those of ``load``. Cleaning a row needs the other rows of its device, so the
    file is first read completely and stored on disk by device; each piece is then read back and cleaned on
    demand.

    Parameters
    ----------
    path : path-like, UPath, list of these, pyarrow.Table or pandas.DataFrame
        As for :func:`mudkit.trace.load`.
    batch_rows : int
        Maximum number of rows of a piece, which holds whole devices; a device with more rows is one piece.
        Memory holds about three times this number of rows; a folder in ``TMPDIR``, removed with the scan,
        holds the whole trace at about 60 bytes a row.
    **options
        Those of :class:`mudkit.trace.Options`.

    Returns
    -------
    Scan
        The pieces, which can be iterated over repeatedly; use it in a ``with`` statement. Unreadable rows
        belong to no device: each piece carries up to ``batch_rows`` of them, beginning with the first.

    Raises
    ------
    InputMissing, TraceFormatError, TraceContentError, ParameterError
        As ``load``, at once. Only after the last piece it is known, and raised, that most positions
        contradict each other or that no device has more than one.
    OutputProblem
        The work folder cannot be written (a full disk).

    Examples
    --------
    >>> with scan("geolife/Data", batch_rows=2_000_000) as pieces:  # doctest: +SKIP
    ...     for piece in pieces:
    ...         print(len(piece.positions), piece.rejected_by_reason())
    """
    given = Options(**options)
    source = find(path)
    if not isinstance(source, Files | pa.Table) and is_trace(source):
        refuse_for_folder(source, **vars(given))
        return Scan(lambda folder: FolderPieces(source, batch_rows, folder), batch_rows)
    plan = given.plan(source)
    return Scan(lambda folder: FilePieces(plan, batch_rows, folder), batch_rows)


@check_arguments(types=False)
class Scan(Displayed):
    """Trace that is read piece by piece; built by :func:`scan`.

    Parameters
    ----------
    sort : callable
        Sorts the rows by device in a folder, and returns the pieces.
    batch_rows : int
        Maximum number of rows of a piece, unless one device has more.

    Attributes
    ----------
    source : dict
        Origin of the trace, as in :class:`mudkit.trace.loaded.Loaded`.
    devices : int
        Number of devices among the readable rows.
    """

    def __init__(self, sort: Callable[[Path], Pieces], batch_rows: int) -> None:
        folder = work_folder()
        self._close = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._batch_rows = batch_rows
        try:
            self._pieces = sort(folder)
        except BaseException as error:
            self.close()
            if isinstance(error, OSError) and not isinstance(error, MudkitError):
                raise output_problem(folder, error) from error
            raise
        self.source: dict[str, Any] = self._pieces.description
        self.devices = len(self._pieces.devices)

    def _view(self) -> View:
        facts = {
            "source": self.source.get("name"),
            "state": "open" if self._close.alive else "closed",
            "devices": self.devices,
            "rows of a piece": self._batch_rows,
        }
        return View("Scan", facts, notes=["Iterating yields its pieces; each holds all rows of its devices."])

    def __enter__(self) -> Scan:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove the work folder and end the scan. Closing again has no effect."""
        self._close()

    def __iter__(self) -> Iterator[Loaded]:
        """Iterate over all pieces, from the first.

        Raises
        ------
        TraceContentError
            The scan is closed.
        TraceFormatError, TraceContentError
            After the last piece: the positions contradict each other, or no device moves.
        """
        pieces = iter(self._pieces)
        while True:
            self._refuse_closed()
            piece = next(pieces, None)
            if piece is None:
                return
            yield piece

    def _refuse_closed(self) -> None:
        """Raise TraceContentError if the scan has been closed."""
        if not self._close.alive:
            raise TraceContentError(
                "This scan has been closed.",
                found="no work folder any more",
                expected="a scan within its with block",
                remedy="scan again",
            )
