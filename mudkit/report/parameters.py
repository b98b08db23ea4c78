"""The parameters of each report template, checked before anything runs."""

from __future__ import annotations

import zoneinfo
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from mudkit.errors import InputMissing, ParameterError, did_you_mean
from mudkit.files import existing
from mudkit.trace.derive import Rule
from mudkit.trace.folder import is_trace
from mudkit.trace.formats import recognise
from mudkit.trace.formats.columns import ColumnsMissing
from mudkit.trace.load import refuse_for_folder
from mudkit.trace.parse import MAX_BOX_KM, MAX_WINDOW_S

__all__ = [
    "TEMPLATES",
    "CachePolicy",
    "PrefetchSizing",
    "Propagation",
    "Scoreboard",
    "TraceProfile",
    "check",
    "check_inputs",
    "described",
    "inputs",
    "parse_assignments",
    "preset",
    "presets",
]

_FOLDER = Path(__file__).parent


class _Parameters(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def _zone(value: str) -> str:
    """Check the name of a time zone."""
    try:
        zoneinfo.ZoneInfo(value)
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError) as error:
        raise ValueError("a time zone, for instance America/Los_Angeles") from error
    return value


class TraceProfile(_Parameters):
    """Parameters of ``trace_profile``."""

    trace: str = Field(description="file of positions, or a trace folder")
    reads: str = Field("", description="file of reads (an access log); empty: derive them by the rule")
    format: Literal[
        "auto", "cabspotting", "cabspotting-txt", "geolife", "gtfs-rt", "gowalla", "gpx", "csv", "parquet"
    ] = Field("auto", description="of the trace file")
    columns: dict[str, str] = Field({}, description="mudkit's column names to the trace file's")
    reads_columns: dict[str, str] = Field({}, description="mudkit's column names to the reads file's")
    tz: str = Field("UTC", description="time zone of times without one, and of the figures")
    time_unit: Literal["s", "ms", "us", "ns"] = Field("s", description="of numeric times")
    rule: str = Field("", description="rule for reads; empty: occupancy for taxis, else trip_start")
    box_km: float | None = Field(None, gt=0, le=MAX_BOX_KM, description="side of a read's box; none: 20 km")
    window_s: float | None = Field(
        None, gt=0, le=MAX_WINDOW_S, description="how far back a read asks; none: 2 h"
    )
    horizon_s: float = Field(7200.0, gt=0, le=MAX_WINDOW_S, description="how old a cached answer may be")
    rule_km: float = Field(1.0, ge=0, allow_inf_nan=False, description="the fixed rule's distance")
    rule_minutes: float = Field(10.0, ge=0, description="the fixed rule's age")
    completeness: float = Field(
        0.9, gt=0, le=1, description="an answer below this is stale, in the second table"
    )
    cells_zoom: int = Field(15, ge=0, le=22, description="level of the map's cells")

    _tz = field_validator("tz")(_zone)

    @field_validator("rule")
    @classmethod
    def _is_rule(cls, value: str) -> str:
        if value:
            try:
                Rule.parse(value)
            except ParameterError as error:
                raise ValueError(error.expected) from error
        return value

    @model_validator(mode="after")
    def _rule_within_horizon(self) -> TraceProfile:
        if self.rule_minutes * 60 > self.horizon_s:
            raise ValueError(f"rule_minutes of at most horizon_s / 60 = {self.horizon_s / 60:g}")
        return self


class CachePolicy(TraceProfile):
    """Parameters of ``cache_policy``: those of ``trace_profile``, and what is learnt for."""

    stale_cost: float = Field(
        1.0, ge=0, le=1e6, description="of a stale answer, where an unnecessary query costs 1"
    )
    late_cost: float = Field(
        0.2, ge=0, le=1e6, description="of a read that misses a write, where a message alone costs about 1"
    )
    batch_minutes: float = Field(30.0, gt=0, le=10_000, description="the fixed delay of writes")
    folds: Literal["device", "time"] = Field(
        "device", description="what the trees are tested on: other devices, or later days"
    )
    cells_zoom: int = Field(14, ge=0, le=22, description="level of the map's cells")
    seed: int = Field(0, ge=0, lt=1 << 32, description="of the control with shuffled labels")


class PrefetchSizing(_Parameters):
    """Parameters of ``prefetch_sizing``."""

    arrivals: str = Field(
        "", description="log of arrivals as CSV: time and, where known, rank and expires; empty: an example"
    )
    reads: str = Field("", description="log of reads as CSV: time; empty: an example", validate_default=True)
    outages: str = Field(
        "", description="log of outages as CSV: begin, end; empty: they are drawn", validate_default=True
    )
    tz: str = Field("UTC", description="time zone of times without one")
    max_at_a_time: int = Field(8, ge=1, le=1 << 31, description="messages that are read at a time, at most")
    threshold: float = Field(0.0, ge=-1e9, le=1e9, description="lower ranks are not acceptable")
    loss_weight: float = Field(
        1.0, ge=0, le=1e9, description="how many wasted messages one that is lost is worth"
    )
    outage: float = Field(
        0.1, ge=0, le=1, description="share of time without a link, without a log of outages"
    )
    outages_per_day: float = Field(
        12.0, ge=0.001, le=86_400, description="periods without a link a day, without a log of outages"
    )
    draws: int = Field(5, ge=1, le=100, description="how often outages are drawn, without a log of them")
    arrivals_per_day: float = Field(32.0, ge=0.1, le=10_000, description="of the generated example")
    reads_per_day: float = Field(2.0, ge=0.1, le=1000, description="of the generated example")
    expiration_h: float = Field(
        48.0, ge=0.01, le=1e6, description="mean time to expiration in the generated example"
    )
    days: int = Field(60, ge=1, le=3660, description="length of the generated example")
    seed: int = Field(0, ge=0, lt=1 << 32, description="of what is generated: the example, outages")

    _tz = field_validator("tz")(_zone)

    @field_validator("reads")
    @classmethod
    def _with_arrivals(cls, value: str, info: ValidationInfo) -> str:
        arrivals = info.data.get("arrivals", value)
        if bool(arrivals) != bool(value):
            raise ValueError("a log of arrivals and one of reads, or neither: then an example is generated")
        return value

    @field_validator("outages")
    @classmethod
    def _with_logs(cls, value: str, info: ValidationInfo) -> str:
        if value and not info.data.get("arrivals", value):
            raise ValueError("no log of outages without those of arrivals and reads")
        return value


class Propagation(_Parameters):
    """Parameters of ``propagation``."""

    trace: str = Field(description="file of positions, or a trace folder")
    format: Literal[
        "auto", "cabspotting", "cabspotting-txt", "geolife", "gtfs-rt", "gowalla", "gpx", "csv", "parquet"
    ] = Field("auto", description="of the trace file")
    columns: dict[str, str] = Field({}, description="mudkit's column names to the trace file's")
    tz: str = Field("UTC", description="time zone of times without one, and of the figures")
    time_unit: Literal["s", "ms", "us", "ns"] = Field("s", description="of numeric times")
    cells_zoom: int = Field(14, ge=0, le=22, description="level of the cells whose messages are joined")
    interval_s: int = Field(300, ge=1, le=86_400, description="length of an interval")
    thresholds: list[int] = Field(
        [1, 20, 50], min_length=2, max_length=8, description="volumes that are compared, 1 among them"
    )
    message_bytes: int = Field(400, ge=1, le=1 << 20, description="size of a message")
    aggregate_bytes: int = Field(400, ge=1, le=1 << 20, description="size of an aggregate")
    application: Literal["traffic", "hazards", "popular spots", "noise map"] = Field(
        "noise map", description="what is played where most is reported"
    )
    played_minutes: float = Field(
        30.0, ge=1, le=1440, description="so long an application is played, where most is reported"
    )
    far_km: float = Field(
        20.0, ge=0, le=5000, description="from who listens in the middle to who is far away"
    )

    _tz = field_validator("tz")(_zone)

    @field_validator("thresholds")
    @classmethod
    def _with_one(cls, value: list[int]) -> list[int]:
        if 1 not in value or min(value) < 1 or len(set(value)) < len(value):
            raise ValueError("different whole numbers from 1 on, 1 (no aggregation) among them")
        return value


class Scoreboard(_Parameters):
    """Parameters of ``scoreboard``."""

    tasks: list[str] = Field(
        ["traffic alerts", "friends nearby", "ward telemetry", "news with ranks", "photo sharing"],
        description="what the systems do",
    )
    systems: list[str] = Field(
        ["to everyone", "MUD", "Last hop", "Contrail", "Radiator", "SUBLIM"],
        description="who enters; the others are compared with the first",
    )
    devices: int = Field(8, ge=2, le=10_000, description="phones in each task")
    length: float = Field(0.25, ge=0.01, le=100, description="of each task, times its own hours")
    seeds: int = Field(3, ge=1, le=1000, description="runs of each task and system")
    seed: int = Field(0, ge=0, lt=1 << 32, description="the first of them")
    confidence: float = Field(0.95, gt=0, lt=1, description="of the intervals")
    stories: int = Field(
        20, ge=0, le=10_000, description="on which each order of two systems is tried; 0: none"
    )
    across: str = Field("j_per_useful", description="measure of the first axis")
    up: str = Field("useful_share", description="measure of the second axis")

    @field_validator("tasks", "systems", "across", "up")
    @classmethod
    def _known(cls, value: Any, info: ValidationInfo) -> Any:
        from mudkit.experiment.scoreboard import ENTRANTS, MEASURES, TASKS  # they load all systems

        known = {"tasks": list(TASKS), "systems": list(ENTRANTS)}.get(str(info.field_name), list(MEASURES))
        given = value if isinstance(value, list) else [value]
        if not given or len(set(given)) < len(given) or not set(given) <= set(known):
            raise ValueError(
                f"{'some, each once, ' if isinstance(value, list) else 'one '}of: {', '.join(known)}"
            )
        return value

    @field_validator("up")
    @classmethod
    def _two(cls, value: str, info: ValidationInfo) -> str:
        if value == info.data.get("across"):
            raise ValueError("another measure than across")
        return value


TEMPLATES: dict[str, type[_Parameters]] = {
    "trace_profile": TraceProfile, "cache_policy": CachePolicy, "prefetch_sizing": PrefetchSizing,
    "propagation": Propagation, "scoreboard": Scoreboard,
}  # fmt: skip
"""Reports by name, each with the schema of its parameters."""

_INPUTS = {
    "trace_profile": {"trace": "trace", "reads": "file of reads"},
    "cache_policy": {"trace": "trace", "reads": "file of reads"},
    "prefetch_sizing": {
        "arrivals": "log of arrivals", "reads": "log of reads", "outages": "log of outages",
    },
    "propagation": {"trace": "trace"},
    "scoreboard": {},
}  # fmt: skip
"""Parameters that name files, and what these are to the reader."""


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
        raise ParameterError(
            f"The report {template} has no parameter {unknown[0]!r}.",
            where=unknown[0],
            found=", ".join(map(str, unknown)),
            expected=", ".join(schema.model_fields),
            remedy=did_you_mean(unknown[0], schema.model_fields, "leave it out"),
        )
    try:
        return schema.model_validate(given).model_dump()
    except ValidationError as error:
        first = error.errors()[0]
        place = first["loc"] or ("rule_minutes",)
        key = ".".join(str(part) for part in place)
        field = schema.model_fields[str(place[0])]
        missing = first["type"] == "missing"
        is_mapping = get_origin(field.annotation) is dict and key in given
        raise ParameterError(
            f"The report {template} needs the parameter {key!r}."
            if missing
            else f"The parameter {key!r} of the report {template} is not usable.",
            where=key,
            found="nothing" if missing else _came(first["input"], key),
            expected=field.description if missing else _expected(str(place[0]), field, first),
            remedy=f"--param {key}{'.device' if is_mapping else ''}=…"
            + (f" ({field.description})" if field.description and not missing else ""),
        ) from error


def inputs(template: str, parameters: dict[str, Any]) -> dict[str, Path]:
    """Files that a report reads, by parameter.

    Raises
    ------
    InputMissing
    """
    return {
        name: existing(parameters[name], what) for name, what in _INPUTS[template].items() if parameters[name]
    }


def check_inputs(template: str, parameters: dict[str, Any]) -> None:
    """Look at the files of a trace, as far as their beginnings tell, before anything starts.

    Raises
    ------
    ParameterError, TraceFormatError
        A file is of no known format or lacks columns; an option is not one for a trace folder.
    """
    if "trace" not in _INPUTS[template]:
        return
    derives = not parameters.get("reads")
    shaping = {"rule": parameters.get("rule")} if derives else {}
    if derives:
        shaping |= {name: parameters.get(name) for name in ("box_km", "window_s")}
    for name, mapping in (("trace", "columns"), ("reads", "reads_columns")):
        if not parameters.get(name):
            continue
        path = Path(parameters[name]).expanduser()
        if is_trace(path):
            if name == "trace":
                refuse_for_folder(path, **shaping)
            continue
        try:
            recognise(path, parameters["format"] if name == "trace" else "auto", parameters[mapping])
        except ColumnsMissing as error:
            raise ColumnsMissing(
                error.summary, where=error.where, found=error.found, expected=error.expected,
                remedy=f"map the file's names: --param {mapping}.device=…, and so for ts, lat and lon",
            ) from error  # fmt: skip


def described(template: str) -> list[tuple[str, str, str]]:
    """Give each parameter of a report: its name, its default as it is written, its meaning.

    Raises
    ------
    ParameterError
        There is no such report.
    """
    lines = []
    for name, field in _schema(template).model_fields.items():
        default = "needed" if field.is_required() else _written(field.default)
        meaning = field.description or ""
        if get_origin(field.annotation) in (Literal, dict):
            meaning += f": {_expected(name, field)}"
        lines.append((name, default, meaning))
    return lines


def presets(template: str) -> dict[str, str]:
    """Give the presets of a report, with what their first lines say of them.

    Raises
    ------
    ParameterError
        There is no such report.
    """
    _schema(template)
    files = sorted((_FOLDER / "params").glob(f"{template}_*.yaml"))
    heads = {file: file.read_text(encoding="utf-8").splitlines()[0] for file in files}
    return {
        file.stem.removeprefix(f"{template}_"): head.lstrip("# ").partition(": `")[0]
        for file, head in heads.items()
    }


def parse_assignments(template: str, assignments: list[str]) -> dict[str, Any]:
    """Read ``key=value`` as the command line has them; ``columns.device=cab`` reaches into a mapping.

    A list is written as ``thresholds=1,20,50``.

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
            mapping = values.setdefault(name, {})
            if not isinstance(mapping, dict):
                raise ParameterError(
                    "A parameter is either one value or a mapping.",
                    where=name,
                    found=text,
                    expected=f"{name}.KEY=…",
                )
            mapping[inner] = value
        elif field is not None and field.annotation in (float, int, float | None):
            try:
                values[name] = int(value) if field.annotation is int else float(value)
            except ValueError:
                values[name] = value  # the schema says what is wrong with it
        elif field is not None and field.annotation == list[int]:
            try:
                values[name] = [int(part) for part in value.split(",")]
            except ValueError:
                values[name] = value
        elif field is not None and field.annotation == list[str]:
            values[name] = [part.strip() for part in value.split(",")]
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
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ParameterError(
            "The preset cannot be read as YAML.", where=str(file), found=str(error)
        ) from error
    if not isinstance(values, dict):
        raise ParameterError("The preset is not a mapping.", where=str(file), found=type(values).__name__)
    if file != own:
        # The package's presets name files of this repository, whatever the folder one is in.
        for key in _INPUTS[template]:
            there = _FOLDER.parents[1] / str(values.get(key, ""))
            if values.get(key) and not Path(values[key]).exists() and there.exists():
                values[key] = str(there)
    return values


def _written(value: Any) -> str:
    """Write a default as the command line takes it; a dash for nothing."""
    if isinstance(value, list):
        return ",".join(map(str, value))
    return "–" if value is None or value in ("", {}) else str(value)


def _expected(name: str, field: FieldInfo, error: ErrorDetails | None = None) -> str:
    """Say what a parameter may be; what a validator of its own said holds."""
    if error is not None and error["type"] == "value_error":
        return error["msg"].removeprefix("Value error, ")
    kinds = get_args(field.annotation)
    many = get_origin(field.annotation)
    if many is Literal:
        return "one of: " + ", ".join(map(str, kinds))
    if many is dict:
        return f"{name}.device=NAME, for instance {name}.device=vehicle_id"
    if many is list:
        of_numbers = kinds == (int,)
        said = f"{'whole numbers' if of_numbers else 'names'} separated by commas"
        return said + (", 2 or more, 1 among them" if of_numbers else "")
    if field.annotation is str:
        return "a text"
    return ("a whole number" if field.annotation is int else "a number") + _range(field)


def _range(field: FieldInfo) -> str:
    limits = {
        key: getattr(rule, key)
        for rule in field.metadata
        for key in ("gt", "ge", "lt", "le")
        if hasattr(rule, key)
    }
    words = {"gt": "over", "ge": "from", "lt": "under", "le": "to" if "ge" in limits else "up to"}
    said = [f"{word} {limits[key]:,}" for key, word in words.items() if key in limits]
    return "".join(f" {each}" for each in said)


def _came(value: Any, key: str) -> str:
    if isinstance(value, dict):
        value = value.get(key)
    return f"{value!r} ({type(value).__name__})"


def _schema(template: str) -> type[_Parameters]:
    if template not in TEMPLATES:
        raise ParameterError(
            "There is no such report.",
            where="report",
            found=repr(template),
            expected=", ".join([*TEMPLATES, "all"]),
            remedy=did_you_mean(template, [*TEMPLATES, "all"]),
        )
    return TEMPLATES[template]
