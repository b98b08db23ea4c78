"""Conversion of a file's columns, texts or typed values, to numbers and booleans."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

NUMBER: Final = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$"
_DECIMAL_COMMA: Final = r"^\s*[+-]?\d+,\d+\s*$"
_PAIR: Final = (
    r"(?i)^\s*(?:SRID=\d+;\s*)?(?P<bracket>(?:POINT\s*(?:Z|M|ZM)?\s*\(|\[)?)\s*\(?\s*"
    r"(?P<a>[+-]?\d+(?:\.\d+)?)\s*°?(?:\s*[,;]\s*|\s+)(?P<b>[+-]?\d+(?:\.\d+)?)\s*°?"
    r"(?:[,;\s]+[+-]?[\d.]+)*\s*[\])]?\s*$"
)
_YES, _NO = ["1", "1.0", "true", "t", "yes"], ["0", "0.0", "false", "f", "no"]


def plain(column: pa.Array) -> pa.Array:
    """Return a column without its encoding: the values of a dictionary, texts of any kind as strings."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    is_text = pa.types.is_large_string(column.type) or pa.types.is_string_view(column.type)
    return column.cast(pa.string()) if is_text else column


def numbers(column: pa.Array, *, decimal_comma: bool = False) -> NDArray[np.float64]:
    """Parse numbers; NaN for missing and infinite ones.

    ``decimal_comma`` also allows ``47,002``, where it cannot be meant as 47002.
    """
    if pa.types.is_string(column.type):
        column = _plain_numbers(column, decimal_comma=decimal_comma)
    values = np.array(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)
    values[~np.isfinite(values)] = np.nan
    return values


def _plain_numbers(column: pa.Array, *, decimal_comma: bool) -> pa.Array:
    """Parse texts of numbers; null where a text is none."""
    try:
        return column.cast(pa.float64())  # "nan" and "inf" are not finite, so that nobody takes them
    except pa.ArrowInvalid:  # a blank, a plus sign or another text: row by row
        if decimal_comma:
            has_comma = pc.match_substring_regex(column, _DECIMAL_COMMA)
            column = pc.if_else(has_comma, pc.replace_substring(column, ",", "."), column)
        is_number = pc.match_substring_regex(column, NUMBER)
        return pc.utf8_trim_whitespace(pc.if_else(is_number, column, None)).cast(pa.float64(), safe=False)


def coordinates(column: pa.Array, *, longitude_first: bool) -> tuple[pa.Array, pa.Array]:
    """Split texts of both coordinates into latitudes and longitudes, as texts; what is none stays a latitude.

    ``POINT (8.54 47.37)`` of WKT and ``[8.54, 47.37]`` of GeoJSON begin with the longitude; ``47.37, 8.54``,
    in round brackets or none, with the latitude, unless ``longitude_first``.
    """
    column = column.cast(pa.string())
    parts = pc.extract_regex(column, _PAIR)
    first, second, bracket = (parts.field(name) for name in ("a", "b", "bracket"))
    exchanged = pc.or_(pc.not_equal(pc.utf8_trim_whitespace(bracket), ""), longitude_first)
    lat, lon = pc.if_else(exchanged, second, first), pc.if_else(exchanged, first, second)
    is_pair = pc.fill_null(parts.is_valid(), False)
    return pc.if_else(is_pair, lat, column), pc.if_else(is_pair, lon, None)


def is_given(column: pa.Array) -> NDArray[np.bool_]:
    """Return which values are not empty."""
    text = pc.utf8_trim_whitespace(column.cast(pa.string()))
    return np.asarray(
        pc.fill_null(pc.not_equal(text, ""), False).to_numpy(zero_copy_only=False), dtype=np.bool_
    )


def booleans(column: pa.Array) -> pa.Array:
    """Parse booleans; null where there is none."""
    if pa.types.is_boolean(column.type):
        return column
    text = pc.utf8_lower(pc.utf8_trim_whitespace(column.cast(pa.string())))
    yes, no = (pc.is_in(text, value_set=pa.array(values)) for values in (_YES, _NO))
    return pc.if_else(yes, True, pc.if_else(no, False, None))


def hemispheres(column: pa.Array, letters: str) -> NDArray[np.float64]:
    """Return 1 for texts that begin with the first of two letters, -1 with the second, NaN with another."""
    initial = pc.utf8_upper(pc.utf8_slice_codeunits(pc.utf8_trim_whitespace(column.cast(pa.string())), 0, 1))
    place = pc.index_in(initial, value_set=pa.array(list(letters)))
    return np.asarray(pc.subtract(1.0, pc.multiply(place, 2.0)).to_numpy(zero_copy_only=False))


def raw_text(columns: pa.Table, delimiter: str = ",") -> pa.Array:
    """Return the original rows, fields separated by the delimiter."""
    texts = [pc.fill_null(column.combine_chunks().cast(pa.string()), "") for column in columns.columns]
    return pc.binary_join_element_wise(*texts, delimiter) if len(columns) else pa.array([], pa.string())
