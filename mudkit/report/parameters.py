"""The parameters of each report template, checked before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import yaml
from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from mudkit.errors import InputMissing, ParameterError, PredicateError, did_you_mean
from mudkit.files import Place, existing
from mudkit.report.schemas import SYNONYMS, TEMPLATES, Parameters
from mudkit.report.source import is_table
from mudkit.trace.folder import is_trace
from mudkit.trace.formats.columns import ColumnsMissing
from mudkit.trace.options import FileTable, Options, refuse_for_folder
from mudkit.trace.tally import check_source

_FOLDER = Path(__file__).parent

_EXAMPLES = {"places": ("NAME", "LAT,LON", "37.62,-122.38")}
"""Key, value and example of the mappings that map no columns."""

_INPUTS = {
    "trace_profile": {"trace": "trace", "reads": "file of reads", "background": "background"},
    "cache_policy": {"trace": "trace", "reads": "file of reads"},
    "prefetch_sizing": {
        "arrivals": "log of arrivals",
        "reads": "log of reads",
        "outages": "log of outages",
    },
    "propagation": {"trace": "trace"},
    "scoreboard": {
        "trace": "trace",
        "reads": "file of reads",
        "outages": "log of outages",
        "writes": "log of items",
    },
}
"""Parameters that name files, and what these are to the reader."""


def check(template: str, given: dict[str, Any]) -> dict[str, Any]:
    """Check parameters and fill in the defaults; an error names key, what was found and what is allowed.

    A predicate that cannot be read is a PredicateError that marks the place.
    """
    schema = _schema(template)
    if unknown := [key for key in given if key not in schema.model_fields]:
        raise ParameterError(
            f"The report {template} has no parameter {unknown[0]!r}.",
            where=unknown[0],
            found=", ".join(map(str, unknown)),
            expected=", ".join(schema.model_fields),
            remedy=did_you_mean(
                unknown[0],
                schema.model_fields,
                f"leave it out; mudkit report {template} --list shows the parameters",
                synonyms=SYNONYMS,
            ),
        )
    try:
        return schema.model_validate(given).model_dump()
    except ValidationError as error:
        first = error.errors()[0]
        place = first["loc"] or ("rule_minutes",)
        key = ".".join(str(part) for part in place)
        field = schema.model_fields[str(place[0])]
        if isinstance(cause := first.get("ctx", {}).get("error"), PredicateError):
            raise PredicateError(
                f"The parameter {key!r} of the report {template} cannot be read: {cause.summary}",
                text=cause.text,
                at=cause.at,
                found=cause.found,
                expected=cause.expected,
                remedy=cause.remedy or "docs/guides/predicates.md has the language",
            ) from None
        missing = first["type"] == "missing"
        is_mapping = get_origin(field.annotation) is dict and key in given
        raise ParameterError(
            f"The report {template} needs the parameter {key!r}."
            if missing
            else f"The parameter {key!r} of the report {template} is not usable.",
            where=key,
            found="nothing" if missing else _shown(first["input"], key),
            expected=field.description if missing else _expected(str(place[0]), field, first),
            remedy=f"--param {key}{'.device' if is_mapping else ''}=…"
            + (f" ({field.description})" if field.description and not missing else ""),
        ) from error


def inputs(template: str, parameters: dict[str, Any]) -> dict[str, Place]:
    """Return the files that a report reads, by parameter; each of them is there."""
    fields = _schema(template).model_fields
    named = tables(template, parameters)
    return {
        name: _existing(parameters[name], what)
        for name, what in _INPUTS[template].items()
        if (parameters[name] or fields[name].is_required()) and name not in named
    }


def tables(template: str, parameters: Mapping[str, Any]) -> dict[str, str]:
    """Return the names that may be tables of Spark's catalogue, by parameter; Spark looks them up."""
    if "spark" not in parameters:
        return {}
    names = {name: str(parameters[name]) for name in ("trace", "reads") if parameters.get(name)}
    return {name: given for name, given in names.items() if is_table(given, on_spark=parameters["spark"])}


def _existing(given: str, what: str) -> Place:
    """Return the place of a file; of what may be a table, an error says how to name one."""
    try:
        return existing(given, what)
    except InputMissing as error:
        if what == "background" or not is_table(given, on_spark=True):
            raise
        raise InputMissing(
            error.summary,
            where=error.where,
            found=error.found,
            expected=error.expected,
            remedy=f"{error.remedy or 'check the name'}; for a table of Spark's catalogue add --spark",
        ) from error


def check_inputs(template: str, parameters: dict[str, Any]) -> None:
    """Read logs, or a sample of the files of a trace, and raise an error if they are no such files.

    It runs before Spark or a kernel starts.
    """
    if template == "prefetch_sizing" and parameters["arrivals"]:
        from mudkit.systems.lasthop.study.logs import read_logs  # it loads the system

        logs = (parameters["arrivals"], parameters["reads"], parameters["outages"] or None)
        read_logs(*logs, tz=parameters["tz"])
        return
    if "trace" not in _INPUTS[template]:
        return
    if parameters.get("background"):
        from mudkit.figures.background import read_background  # it loads shapely

        read_background(parameters["background"])
    if template == "scoreboard":
        from mudkit.report.scenario import read_outages, read_writes  # they load all systems

        for name, read in (("outages", read_outages), ("writes", read_writes)):
            if parameters[name]:
                read(parameters[name], parameters["tz"])
    derives = not parameters.get("reads")
    shaping = {"rule": parameters.get("rule")} if derives else {}
    if derives:
        shaping |= {name: parameters.get(name) for name in ("box_km", "window_s")}
    for name in ("trace", "reads"):
        if not parameters.get(name) or name in tables(template, parameters):
            continue
        path = existing(parameters[name], name)
        if is_trace(path):
            if name == "trace":
                refuse_for_folder(path, **shaping)
            continue
        try:
            check_source(file_options(name, parameters).plan(path))
        except ColumnsMissing as error:
            mapping = "columns" if name == "trace" else "reads_columns"
            raise ColumnsMissing(
                error.summary,
                where=error.where,
                found=error.found,
                expected=error.expected,
                remedy=f"map the file's names: --param {mapping}.device=…, and so for ts, lat and lon; "
                "of one device without a column: --param device=ann",
            ) from error


def file_options(name: str, parameters: Mapping[str, Any]) -> Options:
    """Return how the file of ``trace`` or of ``reads`` is read, without deriving reads."""
    is_trace_file = name == "trace"
    table: FileTable = "positions" if is_trace_file else "reads"
    return Options(
        parameters["format"] if is_trace_file else "auto",
        table,
        parameters["tz"],
        parameters["time_unit"],
        parameters["columns" if is_trace_file else "reads_columns"],
        "none",
        parameters.get("box_km"),
        parameters.get("window_s"),
        parameters["device"],
        parameters["header"] or not is_trace_file,
    )


def described(template: str) -> list[tuple[str, str, str]]:
    """Return name, default (as text) and meaning of each parameter of a report."""
    lines = []
    for name, field in _schema(template).model_fields.items():
        default = "needed" if field.is_required() else _written(field.default)
        meaning = field.description or ""
        if get_origin(field.annotation) in (Literal, dict):
            meaning += f": {_expected(name, field)}"
        lines.append((name, default, meaning))
    return lines


def presets(template: str) -> dict[str, str]:
    """Return the presets of a report with the description in their first lines."""
    _schema(template)
    files = sorted((_FOLDER / "params").glob(f"{template}_*.yaml"))
    heads = {file: file.read_text(encoding="utf-8").splitlines()[0] for file in files}
    return {
        file.stem.removeprefix(f"{template}_"): head.lstrip("# ").partition(": `")[0]
        for file, head in heads.items()
    }


def parse_assignments(template: str, assignments: list[str]) -> dict[str, Any]:
    """Parse ``key=value`` of the command line, ``columns.device=cab`` in a mapping, ``sizes=1,20`` a list."""
    schema = _schema(template)
    values: dict[str, Any] = {}
    keys: dict[str, str] = {}
    for text in assignments:
        key, separator, value = text.partition("=")
        name, _, inner = key.partition(".")
        if not separator or not name:
            raise ParameterError(
                "A parameter needs a name and a value.", where="--param", found=text, expected="key=value"
            )
        if key in keys:
            raise ParameterError(
                f"The parameter {key} is given twice.",
                where="--param",
                found=f"{keys[key]}, {text}",
                expected="one value",
                remedy="leave one of them out",
            )
        keys[key] = text
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
        elif field is not None and field.annotation in (float, int, float | None, int | None):
            try:
                is_whole = field.annotation in (int, int | None)
                values[name] = int(value) if is_whole else float(value)
            except ValueError:
                values[name] = value  # the schema says what is wrong with it
        elif field is not None and field.annotation is bool:
            values[name] = {"true": True, "false": False}.get(value.strip().lower(), value)
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
    """Read a preset: ``params/<template>_<name>.yaml`` of this package, or a YAML file of one's own."""
    _schema(template)
    own = Path(name)
    file = own if own.suffix in (".yaml", ".yml") else _FOLDER / "params" / f"{template}_{name}.yaml"
    if not file.is_file():
        known = sorted(
            p.stem.removeprefix(f"{template}_") for p in (_FOLDER / "params").glob(f"{template}_*")
        )
        raise InputMissing(
            f"There is no preset {name!r}.",
            where=str(file),
            expected=", ".join(known) + ", or a YAML file",
            remedy=did_you_mean(name, known, f"mudkit report {template} --list shows them"),
        )
    try:
        values = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        is_text = isinstance(error, yaml.YAMLError)
        raise ParameterError(
            "The preset cannot be read as YAML.",
            where=str(file),
            found=str(error),
            expected="KEY: VALUE, a line each",
            remedy="mend the line named above" if is_text else "name a text file in UTF-8 that may be read",
        ) from error
    if not isinstance(values, dict):
        raise ParameterError(
            "The preset is not a mapping.",
            where=str(file),
            found=type(values).__name__,
            expected="KEY: VALUE, a line each",
            remedy=f"mudkit report {template} --list shows the keys",
        )
    if file != own:
        # The package's presets name files of the package, whatever the folder one is in.
        for key in _INPUTS[template]:
            path = _FOLDER.parent / str(values.get(key, ""))
            if values.get(key) and not Path(values[key]).exists() and path.exists():
                values[key] = str(path)
    return values


def _written(value: Any) -> str:
    """Write a default as the command line takes it; a dash for nothing."""
    if value is None or value in ("", {}, []):
        return "–"
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _expected(name: str, field: FieldInfo, error: ErrorDetails | None = None) -> str:
    """Return the allowed values of a parameter in words; a message of its own validator takes precedence."""
    if error is not None and error["type"] == "value_error":
        return error["msg"].removeprefix("Value error, ")
    kinds = get_args(field.annotation)
    many = get_origin(field.annotation)
    if many is Literal:
        return "one of: " + ", ".join(map(str, kinds))
    if many is dict:
        example = _EXAMPLES.get(name, ("device", "NAME", "vehicle_id"))
        return "{0}.{1}={2}, for instance {0}.{1}={3}".format(name, *example)
    if many is list:
        of_numbers = kinds == (int,)
        text = f"{'whole numbers' if of_numbers else 'names'} separated by commas"
        return text + (", 2 or more, 1 among them" if of_numbers else "")
    if field.annotation is str:
        return "a text"
    is_whole = field.annotation in (int, int | None)
    return ("a whole number" if is_whole else "a number") + _range(field)


def _range(field: FieldInfo) -> str:
    """Return the limits of a number in words, with a space before; empty without any."""
    limits = {
        key: getattr(rule, key)
        for rule in field.metadata
        for key in ("gt", "ge", "lt", "le")
        if hasattr(rule, key)
    }
    words = {"gt": "over", "ge": "from", "lt": "under", "le": "to" if "ge" in limits else "up to"}
    limits_text = [f"{word} {limits[key]:,}" for key, word in words.items() if key in limits]
    return "".join(f" {text}" for text in limits_text)


def _shown(value: Any, key: str) -> str:
    """Return a refused value, or the refused entry of a mapping, with its type."""
    if isinstance(value, dict):
        value = value.get(key)
    return f"{value!r} ({type(value).__name__})"


def _schema(template: str) -> type[Parameters]:
    """Return the parameters' model of a report; raise ParameterError with what is near."""
    if template not in TEMPLATES:
        raise ParameterError(
            "There is no such report.",
            where="report",
            found=repr(template),
            expected=", ".join([*TEMPLATES, "all"]),
            remedy=did_you_mean(template, [*TEMPLATES, "all"], "mudkit report --help shows them"),
        )
    return TEMPLATES[template]
