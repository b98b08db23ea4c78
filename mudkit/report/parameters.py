"""The parameters of each report template, checked before anything runs."""

from __future__ import annotations

import difflib
import zoneinfo
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from mudkit.errors import InputMissing, ParameterError
from mudkit.files import existing
from mudkit.trace.derive import Rule

__all__ = ["TEMPLATES", "TraceProfile", "check", "inputs", "parse_assignments", "preset"]

_FOLDER = Path(__file__).parent


class _Parameters(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class TraceProfile(_Parameters):
    """Parameters of ``trace_profile``."""

    trace: str = Field(description="file of positions, or a trace folder")
    reads: str = Field("", description="file of reads (an access log); empty: derive them by the rule")
    format: Literal["auto", "cabspotting", "cabspotting-txt", "csv", "parquet"] = "auto"
    columns: dict[str, str] = Field({}, description="mudkit's column names to the trace file's")
    reads_columns: dict[str, str] = Field({}, description="mudkit's column names to the reads file's")
    tz: str = Field("UTC", description="time zone of times without one, and of the figures")
    time_unit: Literal["s", "ms", "us", "ns"] = "s"
    rule: str = Field("", description="rule for reads; empty: occupancy for taxis, else trip_start")
    box_km: float = Field(20.0, gt=0, le=20_000, description="side of a read's box")
    window_s: float = Field(7200.0, gt=0, description="how far back a read asks")
    horizon_s: float = Field(7200.0, gt=0, description="how old a cached answer may be")
    rule_km: float = Field(1.0, ge=0, description="the fixed rule's distance")
    rule_minutes: float = Field(10.0, ge=0, description="the fixed rule's age")
    completeness: float = Field(
        0.9, gt=0, le=1, description="an answer below this is stale, in the second table"
    )
    cells_zoom: int = Field(15, ge=0, le=22, description="level of the map's cells")

    @field_validator("tz")
    @classmethod
    def _is_zone(cls, value: str) -> str:
        try:
            zoneinfo.ZoneInfo(value)
        except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError) as error:
            raise ValueError("a time zone, for instance America/Los_Angeles") from error
        return value

    @field_validator("rule")
    @classmethod
    def _is_rule(cls, value: str) -> str:
        if value:
            try:
                Rule.parse(value)
            except ParameterError as error:
                raise ValueError(error.expected) from error
        return value


TEMPLATES: dict[str, type[_Parameters]] = {"trace_profile": TraceProfile}
"""Reports by name, each with the schema of its parameters."""

_INPUTS = {"trace_profile": ("trace", "reads")}


def check(template: str, given: dict[str, Any]) -> dict[str, Any]:
    """Check parameters and fill in the defaults.

    Raises
    ------
    ParameterError
        There is no such report or parameter, one is missing, of the wrong type or out of range; the message
        names the key, what came and what is allowed.
    """
    schema = _schema(template)
    if unknown := [key for key in given if key not in schema.model_fields]:
        near = difflib.get_close_matches(unknown[0], schema.model_fields, n=1)
        raise ParameterError(
            f"The report {template} has no parameter {unknown[0]!r}.",
            where=unknown[0],
            found=", ".join(map(str, unknown)),
            expected=", ".join(schema.model_fields),
            remedy=f"did you mean {near[0]!r}?" if near else "leave it out",
        )
    try:
        return schema.model_validate(given).model_dump()
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        field = schema.model_fields[str(first["loc"][0])]
        missing = first["type"] == "missing"
        raise ParameterError(
            f"The report {template} needs the parameter {key!r}."
            if missing
            else f"The parameter {key!r} of the report {template} is not usable.",
            where=key,
            found="nothing" if missing else f"{first['input']!r} ({type(first['input']).__name__})",
            expected=field.description if missing else first["msg"].removeprefix("Value error, "),
            remedy=f"--param {key}=…"
            + (f" ({field.description})" if field.description and not missing else ""),
        ) from error


def inputs(template: str, parameters: dict[str, Any]) -> dict[str, Path]:
    """Files that a report reads, by parameter.

    Raises
    ------
    InputMissing
    """
    names = [name for name in _INPUTS[template] if parameters[name]]
    return {
        name: existing(parameters[name], "trace" if name == "trace" else "file of reads") for name in names
    }


def parse_assignments(template: str, assignments: list[str]) -> dict[str, Any]:
    """Read ``key=value`` as the command line has them; ``columns.device=cab`` reaches into a mapping.

    Raises
    ------
    ParameterError
    """
    schema = _schema(template)
    values: dict[str, Any] = {}
    for text in assignments:
        key, separator, value = text.partition("=")
        name, _, inner = key.partition(".")
        if not separator or not name:
            raise ParameterError(
                "A parameter needs a name and a value.", where="--param", found=text, expected="key=value"
            )
        field = schema.model_fields.get(name)
        if inner:
            values.setdefault(name, {})[inner] = value
        elif field is not None and field.annotation in (float, int):
            number = yaml.safe_load(value)
            values[name] = float(number) if field.annotation is float and type(number) is int else number
        else:
            values[name] = value
    return values


def preset(template: str, name: str) -> dict[str, Any]:
    """Read a preset: ``params/<template>_<name>.yaml`` of this package, or a YAML file of one's own.

    Raises
    ------
    InputMissing, ParameterError
    """
    _schema(template)
    own = Path(name)
    file = own if own.suffix in (".yaml", ".yml") else _FOLDER / "params" / f"{template}_{name}.yaml"
    if not file.is_file():
        known = sorted(
            p.stem.removeprefix(f"{template}_") for p in (_FOLDER / "params").glob(f"{template}_*")
        )
        raise InputMissing(
            f"There is no preset {name!r}.", where=str(file), expected=", ".join(known) + ", or a YAML file"
        )
    try:
        values = yaml.safe_load(file.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ParameterError("The preset is not YAML.", where=str(file), found=str(error)) from error
    if not isinstance(values, dict):
        raise ParameterError("The preset is not a mapping.", where=str(file), found=type(values).__name__)
    return values


def _schema(template: str) -> type[_Parameters]:
    if template not in TEMPLATES:
        raise ParameterError(
            "There is no such report.", where="report", found=repr(template), expected=", ".join(TEMPLATES)
        )
    return TEMPLATES[template]
