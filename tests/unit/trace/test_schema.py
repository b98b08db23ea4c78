"""Tables of a trace as DataFrames with nullable columns."""

import datetime as dt

import pandas as pd
import pyarrow as pa
import pytest

from mudkit.trace.schema import SCHEMAS, to_frame

VALUES = {"int64": (1 << 62) + 1, "bool": True, "string": "x", "double": 0.5}


@pytest.mark.parametrize("name", SCHEMAS)
def test_nullable_columns_keep_their_type(name):
    schema = SCHEMAS[name]
    moment = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    full = {field.name: VALUES.get(str(field.type), moment) for field in schema}
    sparse = {field.name: None if field.nullable else full[field.name] for field in schema}
    frame = to_frame(pa.Table.from_pylist([full, sparse], schema=schema))
    for field in schema:
        assert frame[field.name].iloc[0] == full[field.name]  # exact also for ids of 64 bits
        assert pd.isna(frame[field.name].iloc[1]) == field.nullable
        if field.type == pa.int64():
            assert pd.api.types.is_integer_dtype(frame[field.name])
        if field.type == pa.bool_():
            assert pd.api.types.is_bool_dtype(frame[field.name])
