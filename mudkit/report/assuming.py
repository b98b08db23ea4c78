"""Recommendations of the report cache_policy under other assumptions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from mudkit import words
from mudkit.display import Cell
from mudkit.errors import ParameterError
from mudkit.learning.devices import Devices, LocalDevices
from mudkit.learning.pairs import Pairs
from mudkit.learning.policies import describe_policy
from mudkit.learning.search import Choice, replayed, search_policies
from mudkit.pipeline.coverage import read_labels
from mudkit.report.page import Answer
from mudkit.report.source import MAX_ROWS, TraceSource
from mudkit.trace.derive import Rule, derive_reads

if TYPE_CHECKING:
    from mudkit.learning.trees import Folds

ASSUMED_LABELS: Final = {
    "policy": "recommended policy",
    "fresh_share": "its fresh answers, %",
    "kept_fresh_share": "fresh with policy.json, %",
    "kept_stale_share": "stale with policy.json, %",
}

_MAX_READS: Final = 20_000
_SCALED: Final[tuple[tuple[str, Callable[[float], str]], ...]] = (
    ("window_s", lambda window_s: f"window {words.duration(window_s)}"),
    ("box_km", lambda km: f"box {words.number(km)} km"),
)
_OF_RULE: Final = {"trip_start": "still_s", "poisson": "per_day"}
"""The parameter of each rule for reads that has one."""


@dataclass(frozen=True)
class Assumptions:
    """Recommendations under other assumptions.

    Attributes
    ----------
    table : pandas.DataFrame
        What is recommended, a row each, the first as assumed: ``assumed, family, policy`` (in words),
        ``fresh_share`` with its interval; what the policy of the page does there: ``kept_fresh_share``,
        ``kept_stale_share``, ``is_kept_allowed`` (whether it keeps the limit of stale answers); and this
        limit, ``max_stale``, a share. The last row has the loosest one, if there is a looser one.
    family : str
        What the page recommends.
    devices : int
        Devices on which they were tried; 0: all.
    derived : str
        Rule that derived the reads; empty: they are recorded, or derived by another program.
    """

    table: pd.DataFrame
    family: str
    devices: int
    derived: str

    @property
    def rival(self) -> str:
        """The family that is recommended as assumed on these devices, if it is another one."""
        family = str(self.table["family"].iloc[0])
        return "" if family == self.family else family

    @property
    def changed(self) -> pd.DataFrame:
        """Rows under which neither of the two would be recommended."""
        others = self.table.iloc[1:]
        return others[~others["family"].isin([self.family, self.rival])]

    @property
    def span(self) -> str:
        """The range of fresh answers over all rows, in words; empty without any."""
        low, high = 100 * self.table["fresh_share"].min(), 100 * self.table["fresh_share"].max()
        return f"{words.interval(low, high, 1)} % of the reads are answered fresh" if high > 0 else ""

    def shown(self) -> pd.DataFrame:
        """Return ``table`` for display: without families and intervals, shares rounded to 3 digits."""
        columns = ["assumed", "policy", "fresh_share", "kept_fresh_share", "kept_stale_share"]
        whole = self.table["policy"].map(Cell)  # a text alone is cut
        shares = ("fresh_share", "kept_fresh_share", "kept_stale_share")
        return self.table[columns].assign(policy=whole).round(dict.fromkeys(shares, 3))

    def _looser(self) -> str:
        """Return why a looser limit of stale answers gives less, where it does, as a sentence."""
        first, last = self.table.iloc[0], self.table.iloc[-1]
        less = round(100 * (round(first["fresh_share"], 3) - round(last["fresh_share"], 3)), 1)
        if last["max_stale"] <= first["max_stale"] or less <= 0:  # none is looser than one that allows all
            return ""
        return (
            f"With {last['assumed']} a simpler policy is recommended, which gives "
            f"{words.count(less, 'point')} less: finer ones are not surely better."
        )

    def kept(self) -> str:
        """Return under which assumptions the page's policy exceeds the limit, as a sentence."""
        if self.family == "always ask":
            return ""
        rows = self.table[~self.table["is_kept_allowed"]]
        if not len(rows):
            return "The policy of this page keeps the limit of stale answers under each."
        shares = [
            f"{assumed} ({words.percent(share, 1)} stale)"
            for assumed, share in zip(rows["assumed"], rows["kept_stale_share"], strict=True)
        ]
        return f"The policy of this page exceeds the limit of stale answers with: {words.listing(shares, 8)}."

    def answer(self) -> Answer:
        """Return whether other assumptions change the recommendation, as a heading."""
        table, changed, span = self.table, self.changed, self.span
        is_derived_anew = table["assumed"].str.startswith("reads by").any()
        first = "The rule for reads, window" if is_derived_anew else "Window"
        parts = [f"{first}, box, missing points and limit are halved and doubled."]
        if self.derived:
            parts.append(f"By {self.derived}: {Rule.parse(self.derived).describe()}")
        if len(changed):
            title = f"{len(changed)} of {len(table) - 1} other assumptions change the kind of policy"
            title, span = (f"{title}: {span}" if span else title), ""
        elif self.rival:
            title = f"The choice is close: {self._for_rival()}"
        else:
            title = "Other assumptions give the same kind of policy"
            title, span = (f"{title}: {span}" if span else title), ""
        if span:
            parts.append(f"{span}.")
        if self.table["is_kept_allowed"].all():  # else it is among the warnings
            parts.append(self.kept())
        parts.append(self._looser())
        if self.devices:
            parts.append(f"To save time they were tried on {words.count(self.devices, 'device')}.")
        if self.rival:
            parts.append(f"On these alone “{self.rival}” is recommended as assumed.")
        return Answer(title, " ".join(part for part in parts if part))

    def warnings(self) -> Iterator[str]:
        """Yield a sentence if the choice is close, and one if it does not hold under other assumptions."""
        if self.rival:
            yield f"The choice between “{self.family}” and “{self.rival}” is close: {self._for_rival()}."
        kept = "" if self.table["is_kept_allowed"].all() else f" {self.kept()}"
        if len(self.changed) or kept:
            span = f": if one assumption is halved or doubled, {self.span}" if self.span else ""
            another = words.listing(self.changed["assumed"], 8)
            yield (
                f"The recommendation depends on what is assumed{span}."
                + (f" Another kind of policy is recommended with: {another}." if another else "")
                + (kept if self.family != "always ask" else "")
            )

    def _for_rival(self) -> str:
        """Return under how many of the assumptions the rival is recommended, in words."""
        rows = int((self.table["family"] == self.rival).sum())
        on = f"on {words.count(self.devices, 'device')} alone, " if self.devices else ""
        return f"{on}{rows} of {len(self.table)} assumptions recommend “{self.rival}”"


def _devices_to_try(source: TraceSource) -> list[str]:
    """Return the devices on whose reads other assumptions are tried: all that read, or some."""
    devices = sorted(source.read_quarters["device"].unique())
    return devices[:: -(-source.read_count // _MAX_READS)]


def shown_range(column: pa.ChunkedArray, shown: Callable[[float], str]) -> str:
    """Return the values of a column in words: one, or the range."""
    low, high = (float(value) for value in pc.min_max(column).as_py().values())
    return words.span(low, high, shown)


def try_assumptions(
    source: TraceSource,
    devices: Devices,
    chosen: Choice,
    *,
    completeness: float,
    max_stale: float,
    horizon_s: float,
    folds: Folds,
) -> Assumptions:
    """Recommend with the reads' rule, window, box, completeness and limit halved and doubled.

    ``devices`` have all reads of ``source``, and ``chosen`` is what is recommended for them.
    """
    names = _devices_to_try(source)
    reads = source.reads_of(names)
    rows = []

    def add(assumed: str, devices: Devices, missing_share: float, max_stale: float) -> None:
        least = 1.0 - missing_share
        of = search_policies(devices, completeness=least, max_stale=max_stale, folds=folds)
        row: dict[str, Any] = {"assumed": assumed, "family": of.chosen.family}
        row["policy"] = describe_policy(of.chosen.policy)
        share = of.share(of.chosen.fresh)
        row |= {"fresh_share": share.value, "fresh_share_low": share.low, "fresh_share_high": share.high}
        if of.chosen.family == "always ask":  # by definition
            row |= {"fresh_share_low": np.nan, "fresh_share_high": np.nan}
        (kept,) = replayed(devices, least, [(chosen.family, chosen.policy)])
        row |= {"kept_fresh_share": kept.fresh_share, "kept_stale_share": kept.stale_share}
        row |= {"is_kept_allowed": row["kept_stale_share"] <= max_stale, "max_stale": max_stale}
        rows.append(row)

    def labelled(table: pa.Table) -> Devices:
        if isinstance(source.positions, pa.Table):
            return LocalDevices(Pairs.of(read_labels(source.positions, table, horizon_s), table))
        from mudkit.pipeline import label_reads  # it loads Spark

        positions = source.positions.frame
        frame = positions.sparkSession.createDataFrame(table)
        return LocalDevices(Pairs.of(label_reads(positions, frame, horizon_s=horizon_s), table))

    is_sample = len(reads) < source.read_count
    if is_sample:
        devices = labelled(reads)
    missing_share = 1.0 - completeness
    add("as assumed", devices, missing_share, max_stale)
    for assumed, table in _derived_anew(source, reads, names if is_sample else source.devices):
        add(assumed, labelled(table), missing_share, max_stale)
    for name, text in _SCALED:
        for factor in (0.5, 2.0):
            scaled = pc.multiply(reads[name], factor)
            other = labelled(reads.set_column(reads.column_names.index(name), name, scaled))
            add(shown_range(scaled, text), other, missing_share, max_stale)
    for factor in (0.5, 2.0):
        share = min(factor * missing_share, 1.0)
        if share != missing_share:
            add(f"{words.percent(share)} of the points missing", devices, share, max_stale)
    for factor in (0.5, 2.0):
        allowed = min(factor * max_stale, 1.0)
        if allowed != max_stale:
            add(f"{words.percent(allowed)} stale allowed", devices, missing_share, allowed)
    some = len(names) if is_sample else 0
    return Assumptions(pd.DataFrame(rows), chosen.family, some, _rule_of(source))


def _rule_of(source: TraceSource) -> str:
    """Return the rule that derived the reads, if it is one of those for traces; else an empty text.

    Reads of a generated trace have a rule of the generator, those of several files may have several.
    """
    derived = source.derived_by()
    try:
        Rule.parse(derived)
    except ParameterError:
        return ""
    return derived


def _derived_anew(source: TraceSource, reads: pa.Table, names: list[str]) -> Iterator[tuple[str, pa.Table]]:
    """Yield the reads of devices by the same rule with its parameter halved and doubled.

    Recorded reads, and positions of which only some were selected, yield none.
    """
    derived = _rule_of(source)
    if not derived or source.selected:
        return
    rule = Rule.parse(derived)
    name = _OF_RULE.get(rule.name)
    if name is None:
        return
    counts = source.device_summaries.set_index("device")["rows"].reindex(names).fillna(0)
    positions = source.positions_of(counts.index[counts.cumsum() <= MAX_ROWS])
    request = {column: reads[column][0].as_py() for column in ("box_km", "window_s")}
    for factor in (0.5, 2.0):
        other = replace(rule, **{name: factor * getattr(rule, name)})
        table = derive_reads(positions, other, **request)
        if len(table):
            yield f"reads by {other}", table
