"""The verdict on a row, computed from what was measured and what is required."""

from __future__ import annotations

from mudkit import words
from mudkit.reproduce.row import Measured, Required, Row

__all__ = ["NOT_MEASURED", "NOT_REPRODUCIBLE", "REPRODUCED", "SHAPE", "judge"]

REPRODUCED = "reproduced"
SHAPE = "shape"
NOT_REPRODUCIBLE = "not reproducible"
NOT_MEASURED = "not measured"


def judge(row: Row, measured: Measured | None) -> tuple[str, str]:
    """Compute a row's verdict and the reason for it.

    Parameters
    ----------
    row : Row
    measured : Measured or None
        None: there is no measurement yet.

    Returns
    -------
    verdict : str
        ``reproduced``: all that is required holds. ``shape``: what is required of order and slope holds, a
        level does not. ``not reproducible``: neither. ``not measured``: there is nothing to judge.
    reason : str
        Which requirements hold and which do not, with their figures.
    """
    if measured is None:
        return NOT_MEASURED, f"mudkit reproduce {row.name} measures it"
    lacking = [required.figure for required in row.required if required.figure not in measured.figures]
    if lacking:
        return NOT_MEASURED, f"the last result is an older one, without {lacking[0]}; measure it again"
    held = [required for required in row.required if _holds(required, measured)]
    missed = [required for required in row.required if required not in held]
    reasons = []
    if missed:
        requirements = "; ".join(_in_words(required, measured) for required in missed)
        reasons.append(f"{len(missed)} of {len(row.required)} do not hold here: {requirements}")
    if held:
        requirements = "; ".join(_in_words(required, measured) for required in held)
        reasons.append(f"{len(held)} of {len(row.required)} hold: {requirements}")
    shape = [required for required in row.required if required.is_shape]
    if not missed:
        verdict = REPRODUCED
    elif shape and all(required in held for required in shape):
        verdict = SHAPE
    else:
        verdict = NOT_REPRODUCIBLE
    return verdict, ". ".join(reasons)


def _holds(required: Required, measured: Measured) -> bool:
    return required.holds(measured.figures[required.figure].median)


def _in_words(required: Required, measured: Measured) -> str:
    return f"{required.figure} {words.number(measured.figures[required.figure].median)} ({required})"
