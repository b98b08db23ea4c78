"""Parameters of each report: names, kinds, ranges, defaults and meanings."""

from __future__ import annotations

import math
from typing import Annotated, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from mudkit.errors import ParameterError
from mudkit.trace.derive import Rule
from mudkit.trace.options import MAX_BOX_KM, MAX_WINDOW_S, TimeUnit
from mudkit.units import zone

TraceFormat: TypeAlias = Literal[
    "auto",
    "cabspotting",
    "cabspotting-txt",
    "geolife",
    "t-drive",
    "porto",
    "gtfs-rt",
    "gtfs-rt-pb",
    "gowalla",
    "foursquare",
    "gpx",
    "kml",
    "tcx",
    "nmea",
    "takeout",
    "geojson",
    "json",
    "geopackage",
    "csv",
    "parquet",
]


class Parameters(BaseModel):
    """Base of the parameters: unknown names and other kinds are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def _zone(value: str) -> str:
    """Raise ValueError for a name of no time zone; otherwise return it."""
    if zone(value) is None:
        raise ValueError("a time zone, for instance America/Los_Angeles")
    return value


def _predicate(value: str) -> str:
    """Raise an error for a text that is no predicate; otherwise return it."""
    from mudkit.report.selection import Selection  # it loads the language

    Selection.parse(value)
    return value


def _within(value: str, info: ValidationInfo) -> str:
    """Raise ValueError for a text that is no period (empty is one); the zone is a parameter before it."""
    from mudkit.report.selection import parse_period

    try:
        if value.strip():
            parse_period(value, info.data.get("tz", "UTC"))
    except ParameterError as error:
        raise ValueError(error.expected) from error
    return value


Where = Annotated[
    str,
    Field(description="predicate of the rows to keep, on device, ts, lat, lon and speed_mps; empty: all"),
    AfterValidator(_predicate),
]
Period = Annotated[
    str,
    Field(description="period to keep, BEGIN/END, local to tz: 2008-05-17/2008-05-24; empty: all"),
    AfterValidator(_within),
]
Background = Annotated[
    str, Field(description="GeoJSON file whose lines are drawn below the cells of the map; empty: none")
]


class OfTrace(Parameters):
    """Parameters of all reports on a trace and its reads."""

    trace: str = Field(description="file of positions, or a trace folder")
    reads: str = Field("", description="file of reads (an access log); empty: derive them by the rule")
    format: TraceFormat = Field("auto", description="of the trace file")
    columns: dict[str, str | int] = Field({}, description="mudkit's column names to the trace file's")
    reads_columns: dict[str, str] = Field({}, description="mudkit's column names to the reads file's")
    device: str | None = Field(None, min_length=1, description="of all rows of the files; none: as they say")
    header: bool = Field(True, description="of a text table; false: columns are places from 1")
    tz: str = Field("UTC", description="time zone of times without one, and of the figures")
    time_unit: TimeUnit = Field("auto", description="of numeric times")
    rule: str = Field("", description="rule for reads; empty: occupancy for taxis, else trip_start")
    box_km: float | None = Field(None, gt=0, le=MAX_BOX_KM, description="side of a read's box; none: 20 km")
    window_s: float | None = Field(
        None, gt=0, le=MAX_WINDOW_S, description="how far back a read asks; none: 2 h"
    )
    where: Where = ""
    period: Period = ""

    _tz = field_validator("tz")(_zone)

    @field_validator("rule")
    @classmethod
    def _is_rule(cls, value: str) -> str:
        """Refuse a text that is no rule of reads; an empty one stands for the default."""
        if value:
            try:
                Rule.parse(value)
            except ParameterError as error:
                raise ValueError(error.expected) from error
        return value


class TraceProfile(OfTrace):
    """Parameters of ``trace_profile``."""

    spark: bool = Field(False, description="compute on Spark whatever the size; the trace may be a table")
    cells_zoom: int = Field(15, ge=0, le=22, description="level of the cells that are counted and exported")
    background: Background = ""


class CachePolicy(OfTrace):
    """Parameters of ``cache_policy``."""

    spark: bool = Field(False, description="compute on Spark whatever the size; the trace may be a table")
    horizon_s: float = Field(7200.0, gt=0, le=MAX_WINDOW_S, description="how old a cached answer may be")
    rule_km: float = Field(1.0, ge=0, allow_inf_nan=False, description="distance of the fixed rule")
    rule_minutes: float = Field(10.0, ge=0, description="age of the fixed rule")
    completeness: float = Field(
        0.9, gt=0, le=1, description="an answer with a smaller share of what others wrote is stale"
    )
    max_stale: float = Field(
        0.02, ge=0, le=1, description="largest share of reads that may be answered stale"
    )
    batch_minutes: float = Field(30.0, gt=0, le=10_000, description="delay of writes to compare with")
    folds: Literal["device", "time"] = Field(
        "device", description="what the trees are tested on: other devices, or other days"
    )
    cells_zoom: int = Field(14, ge=0, le=22, description="level of the map's cells")
    background: Background = ""

    @model_validator(mode="after")
    def _rule_within_horizon(self) -> CachePolicy:
        """Refuse a rule whose age is beyond the horizon."""
        if self.rule_minutes * 60 > self.horizon_s:
            raise ValueError(f"rule_minutes of at most horizon_s / 60 = {self.horizon_s / 60:g}")
        return self


class PrefetchSizing(Parameters):
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
    price_wasted: float = Field(
        1.0, ge=0, le=1e6, description="of a message that is forwarded and never read"
    )
    price_lost: float = Field(
        5.0, ge=0, le=1e6, description="of a message that is not read for want of a link"
    )
    price_empty_read: float = Field(
        5.0, ge=0, le=1e6, description="of a read without a link that misses something that waits"
    )
    price_delay_hour: float = Field(
        0.02, ge=0, le=1e6, description="of an hour for which a message is seen late"
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
        """Refuse a log of reads without one of arrivals, and the other way round."""
        arrivals = info.data.get("arrivals", value)
        if bool(arrivals) != bool(value):
            raise ValueError("a log of arrivals and one of reads, or neither: then an example is generated")
        return value

    @field_validator("outages")
    @classmethod
    def _with_logs(cls, value: str, info: ValidationInfo) -> str:
        """Refuse a log of outages without the two others."""
        if value and not info.data.get("arrivals", value):
            raise ValueError("no log of outages without those of arrivals and reads")
        return value

    @model_validator(mode="after")
    def _enough(self) -> PrefetchSizing:
        """Refuse a generated example that is too short to say anything."""
        if not self.arrivals and (
            self.arrivals_per_day * self.days < 20 or self.reads_per_day * self.days < 5
        ):
            raise ValueError("an example of at least 20 messages and 5 reads: more days, or more a day")
        return self


class Propagation(Parameters):
    """Parameters of ``propagation``."""

    trace: str = Field(description="file of positions, or a trace folder")
    format: TraceFormat = Field("auto", description="of the trace file")
    columns: dict[str, str | int] = Field({}, description="mudkit's column names to the trace file's")
    device: str | None = Field(None, min_length=1, description="of all rows of the files; none: as they say")
    header: bool = Field(True, description="of a text table; false: columns are places from 1")
    tz: str = Field("UTC", description="time zone of times without one, and of the figures")
    time_unit: TimeUnit = Field("auto", description="of numeric times")
    where: Where = ""
    period: Period = ""
    spark: bool = Field(False, description="compute on Spark whatever the size; the trace may be a table")
    max_delay_s: int = Field(300, ge=1, le=86_400, description="longest time that a message may wait")
    max_error_m: float = Field(
        500.0,
        gt=0,
        le=1e6,
        description="95 % of positions have to lie within this distance of the place that receivers get",
    )
    max_quantity_error: float | None = Field(
        None,
        ge=0,
        le=1e6,
        description="largest error of the quantity: km/h, or share of devices counted too many; none: any",
    )
    cells_zoom: int | None = Field(
        None,
        ge=0,
        le=22,
        description="level of the cells whose messages are joined; none: the best is searched",
    )
    thresholds: list[int] = Field(
        [1, 20, 50], min_length=2, max_length=8, description="volumes that are compared, 1 among them"
    )
    message_bytes: int = Field(400, ge=1, le=1 << 20, description="size of a message")
    aggregate_bytes: int = Field(400, ge=1, le=1 << 20, description="size of an aggregate")
    quantity: Literal["auto", "speed", "devices"] = Field(
        "auto",
        description="what is reported of a cell; auto: speed where the trace has it, else the devices in it",
    )
    played_minutes: float = Field(
        30.0, ge=1, le=1440, description="length of the stretch that is played, where most is reported"
    )
    places: dict[str, str] = Field(
        {}, description="receivers who stand still, as LAT,LON by name; empty: three are found by density"
    )
    background: Background = ""

    _tz = field_validator("tz")(_zone)

    @field_validator("places")
    @classmethod
    def _on_sphere(cls, value: dict[str, str]) -> dict[str, str]:
        """Refuse places that are no latitude and longitude."""
        for place in value.values():
            try:
                lat, lon = map(float, place.split(","))
            except ValueError:
                lat = lon = math.nan
            if not (-90 <= lat <= 90 and -180 <= lon <= 180):
                raise ValueError(
                    "latitude and longitude in degrees, for instance places.airport=37.62,-122.38"
                )
        return value

    @field_validator("thresholds")
    @classmethod
    def _with_one(cls, value: list[int]) -> list[int]:
        """Refuse sizes of groups that lack 1, repeat one, or are below it."""
        if 1 not in value or min(value) < 1 or len(set(value)) < len(value):
            raise ValueError("different whole numbers from 1 on, 1 (no aggregation) among them")
        return value


class ScoreboardParameters(OfTrace):
    """Parameters of ``scoreboard``."""

    trace: str = Field(
        "", description="file of positions, or a trace folder, of a task of your own; empty: none"
    )
    reads: str = Field(
        "", description="file of reads (an access log); empty: derive them by the rule", validate_default=True
    )
    outages: str = Field(
        "",
        description="log of outages as CSV: device, begin, end; or measured links; empty: they are drawn",
        validate_default=True,
    )
    writes: str = Field(
        "",
        description="log of items as CSV: device, time and, where known, lat, lon, rank, expires, "
        "size_bytes; empty: the positions are the items",
        validate_default=True,
    )
    hours: float = Field(
        3.0, ge=0.01, le=10_000, description="of the trace that is played, where most is read"
    )
    max_items: int = Field(
        400, ge=1, le=100_000, description="items of the trace; of more, every n-th is used"
    )
    size_bytes: int = Field(300, ge=1, le=1 << 20, description="of an item whose log does not say")
    link: Literal["lte", "umts_3g", "edge", "wifi", "ideal"] = Field(
        "lte", description="of the trace's phones"
    )
    outage: float = Field(
        0.1, ge=0, le=1, description="share of time without a network, without a log of outages"
    )
    tasks: list[str] = Field(
        [],
        description="what the systems do, beside the task of a trace; empty: the five, or the trace's only",
    )
    systems: list[str] = Field(
        ["to everyone", "MUD", "Last hop", "Contrail", "Radiator", "SUBLIM"],
        description="who enters; the others are compared with the first",
    )
    devices: int = Field(
        8, ge=2, le=10_000, description="phones in each task; of a trace those that read and write most"
    )
    length: float = Field(0.25, ge=0.01, le=100, description="of each task, times its own hours")
    seeds: int = Field(5, ge=1, le=1000, description="runs of each task and system")
    seed: int = Field(0, ge=0, lt=1 << 32, description="the first of them")
    confidence: float = Field(0.95, gt=0, lt=1, description="of the intervals")
    scenarios: int = Field(
        20, ge=0, le=10_000, description="on which each order of two systems is tried; 0: none"
    )
    cost: Literal["j_per_useful", "kb_per_useful"] = Field(
        "j_per_useful", description="what is weighed against deliveries in time: radio energy, or data"
    )

    @field_validator("tasks", "systems")
    @classmethod
    def _known(cls, value: list[str], info: ValidationInfo) -> list[str]:
        """Refuse names of tasks or systems that are not known or come twice; systems: none at all."""
        from mudkit.experiment import ADAPTERS, TASKS  # they load all systems

        known = list(TASKS if info.field_name == "tasks" else ADAPTERS)
        is_needed = info.field_name == "systems"
        if (is_needed and not value) or len(set(value)) < len(value) or not set(value) <= set(known):
            raise ValueError(f"some, each once, of: {', '.join(known)}")
        return value

    @field_validator("reads", "outages", "writes")
    @classmethod
    def _with_trace(cls, value: str, info: ValidationInfo) -> str:
        """Refuse a log without the trace of its devices."""
        if value and not info.data.get("trace", value):
            raise ValueError("no log without the trace of its devices: trace=FILE")
        return value


TEMPLATES: dict[str, type[Parameters]] = {
    "trace_profile": TraceProfile,
    "cache_policy": CachePolicy,
    "prefetch_sizing": PrefetchSizing,
    "propagation": Propagation,
    "scoreboard": ScoreboardParameters,
}
"""Reports by name, each with the schema of its parameters."""

SYNONYMS: dict[str, tuple[str, ...]] = {
    "aggregate_bytes": ("aggregate_size",),
    "price_delay_hour": ("delay_price", "price_delay", "delay_cost"),
    "price_empty_read": ("empty_price", "price_empty", "empty_read_price"),
    "price_lost": ("loss_weight", "weight", "loss_cost", "lost_price"),
    "price_wasted": ("waste_cost", "wasted_price", "price_waste"),
    "quantity": ("application", "app", "value", "measure"),
    "arrivals": ("messages", "events", "notifications"),
    "arrivals_per_day": ("messages_per_day", "arrival_rate", "event_frequency"),
    "background": ("geojson", "basemap", "areas", "districts", "boundaries"),
    "batch_minutes": ("delay", "delay_minutes", "hold_minutes"),
    "box_km": ("side_km", "size_km", "area_km"),
    "cells_zoom": ("zoom_level", "level", "resolution"),
    "columns": ("mapping", "names", "column_names"),
    "completeness": ("recall", "staleness"),
    "cost": ("across", "measure", "weighed", "cost_measure"),
    "confidence": ("ci", "alpha", "confidence_level"),
    "days": ("length", "duration"),
    "device": ("one_device", "person"),
    "devices": ("phones", "fleet", "users", "nodes"),
    "draws": ("runs", "repeats", "replications"),
    "expiration_h": ("ttl", "ttl_h", "lifetime", "expires", "expiry"),
    "folds": ("split", "cv", "cross_validation"),
    "format": ("kind", "type", "file_format"),
    "header": ("has_header", "header_line"),
    "horizon_s": ("max_age", "max_age_s", "ttl", "ttl_s"),
    "length": ("duration", "hours"),
    "link": ("network", "radio"),
    "max_delay_s": ("interval_s", "interval", "period", "period_s", "max_retention_s", "delay", "delay_s"),
    "max_error_m": ("error", "error_m", "distance", "distance_m", "radius", "radius_m"),
    "max_quantity_error": ("quantity_error", "max_speed_error", "speed_error"),
    "max_stale": ("stale_share", "stale_cost", "budget", "allowed_stale"),
    "max_at_a_time": ("max_messages", "messages_per_read", "page_size"),
    "message_bytes": ("message_size", "payload_bytes"),
    "outage": ("downtime", "offline", "offline_share"),
    "outages": ("downtimes", "disconnections"),
    "outages_per_day": ("outage_rate",),
    "period": ("dates", "days", "between", "from", "since", "span"),
    "hours": ("duration", "stretch"),
    "max_items": ("items", "limit"),
    "spark": ("distributed", "cluster", "on_spark"),
    "size_bytes": ("item_bytes", "message_size"),
    "writes": ("items", "publications", "posts"),
    "places": ("receivers", "far_km", "stationary"),
    "played_minutes": ("duration", "duration_minutes"),
    "reads": ("access_log", "log", "queries", "requests", "sessions"),
    "reads_columns": ("reads_mapping", "log_columns"),
    "reads_per_day": ("read_rate", "user_frequency"),
    "rule": ("derivation", "reads_rule"),
    "rule_km": ("distance", "distance_km", "radius", "radius_km"),
    "rule_minutes": ("age", "age_minutes"),
    "scenarios": ("compositions", "orders"),
    "seed": ("random_seed", "random_state", "rng"),
    "seeds": ("runs", "repeats", "replications"),
    "systems": ("entrants", "machines"),
    "tasks": ("workloads",),
    "threshold": ("rank", "min_rank", "rank_threshold"),
    "thresholds": ("volume", "volumes"),
    "time_unit": ("unit", "ts_unit", "timestamp_unit"),
    "trace": ("file", "input", "path", "positions", "source", "gps", "data"),
    "tz": ("timezone", "time_zone", "zone", "utc_offset"),
    "where": ("predicate", "select", "filter", "condition", "query"),
    "window_s": ("lookback", "lookback_s", "history_s"),
}
"""Other names that users try for a parameter, in any report that has it."""
