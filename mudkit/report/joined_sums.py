"""Sums of combinations of a whole trace: in memory one by one, on Spark many in each pass over its rows."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mudkit.report.joined_accuracy import BINS, count_bins
from mudkit.report.joined_messages import (
    PARTS,
    Block,
    Combination,
    Messages,
    Sums,
    local_days,
)
from mudkit.trace.summaries import Distributed, Groups, Piece, summarise
from mudkit.units import US_PER_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mudkit.report.source import TraceSource

Kind: TypeAlias = Literal["sums", "days", "sent", "fullest", "costs"]
BLOCK_ROWS: Final = 1 << 20
"""Rows in a task, without those of the longest interval behind them; a quarter of an hour may have more."""
_QUARTER_US: Final = 900 * US_PER_S
_SUMS: Final = ("messages", "wait_us", "values", "value_squares", "told_devices", "devices")
_SIZE, _DISTANCE = len(_SUMS), len(_SUMS) + 1
_COUNTS: Final = pa.schema([(name, pa.int64()) for name in ("question", "day", "what", "key", "count")])
_COSTS: Final = pa.schema(
    [("question", pa.int64()), ("device", pa.string())]
    + [(name, pa.int64()) for name in ("day", "messages", "alone", "parts")]
)


class Question(NamedTuple):
    """Kind of sums of a combination.

    ``sums``: :class:`Sums` of all messages; ``days``: by local day; ``sent``: distances when messages are
    sent, by local day; ``fullest``: most messages in what is sent; ``costs``: :class:`Costs`.
    """

    kind: Kind
    of: Combination


@dataclass(frozen=True)
class Costs:
    """Messages of each device and local day, and what they take of what is sent.

    Attributes
    ----------
    device, day : ndarray of int
    messages, alone : ndarray of int
        How many there are, and how many of these are sent alone.
    parts : ndarray of int
        Shares of the others in their aggregates, summed, in parts of ``PARTS``.
    """

    device: NDArray[np.int64]
    day: NDArray[np.int64]
    messages: NDArray[np.int64]
    alone: NDArray[np.int64]
    parts: NDArray[np.int64]

    def bytes_out(self, message_bytes: int, aggregate_bytes: int) -> NDArray[np.float64]:
        """Return the bytes that are sent for each device and day."""
        return np.asarray(self.alone * message_bytes + self.parts / PARTS * aggregate_bytes)


class Lacking(Exception):
    """A sum is needed that the next pass will compute: caught by :meth:`JoinedSums.together`."""


@dataclass(frozen=True)
class Setup:
    """Properties of the whole trace for tasks: time zone, begins of blocks, half of the devices by name."""

    tz: str
    edges_us: NDArray[np.int64]
    half: pa.Array

    def block(self, rows: pa.Table) -> Block:
        """Return the messages of a block of rows."""
        number = int(rows["block"][0].as_py())
        ends = [None, *self.edges_us[1:].tolist(), None]
        return Block(Messages(rows), ends[number], ends[number + 1])


@dataclass(frozen=True)
class BlockSummary:
    """Results of a function for blocks of messages, joined as :class:`mudkit.trace.summaries.Groups` do.

    Attributes
    ----------
    function : callable
        Function of a block.
    columns : pyarrow.Schema
        Columns of its result.
    values : mapping of str to str
        How columns are joined; the others are the keys.
    """

    function: Callable[[Setup, Block], pa.Table]
    columns: pa.Schema
    values: Mapping[str, str]

    def start(self, setup: Setup) -> Groups:
        """Start the summary of pieces that are a block of rows each."""
        keys = tuple(name for name in self.columns.names if name not in self.values)
        return Groups(partial(self._of_piece, setup), keys, self.values)

    def _of_piece(self, setup: Setup, piece: Piece) -> pa.Table:
        """Compute the table of one block of time, in a task of Spark."""
        rows = piece.table.slice(piece.begin)
        return self.function(setup, setup.block(rows)) if len(rows) else self.columns.empty_table()


class JoinedSums:
    """Answers to questions about combinations, each computed once.

    Parameters
    ----------
    source : TraceSource
    longest_s : int
        Longest interval that is asked for.
    """

    def __init__(self, source: TraceSource, longest_s: int) -> None:
        self.source, self._longest_s = source, longest_s
        self._known: dict[Question, Any] = {}
        self._lacking: dict[Question, None] | None = None

    @cached_property
    def lat(self) -> float:
        """Latitude of the middle of the trace."""
        return self.source.values("lat").median()

    def sums(self, of: Combination) -> Sums:
        """Return the sums of all messages."""
        whole: Sums = self._answer(Question("sums", of))[0]
        return whole

    def days(self, of: Combination) -> list[Sums]:
        """Return sums by local day, to which a queue belongs by the begin of its interval, in order."""
        return list(self._answer(Question("days", of)).values())

    def sent(self, of: Combination) -> NDArray[np.int64]:
        """Return counts of messages by local day and by distance from what is sent when that is sent."""
        return np.array([*self._answer(Question("sent", of)).values()])

    def fullest(self, of: Combination) -> int:
        """Return the largest number of messages in what is sent."""
        most: int = self._answer(Question("fullest", of))
        return most

    def costs(self, of: Combination) -> Costs:
        """Return what the messages of each device and day take of what is sent."""
        costs: Costs = self._answer(Question("costs", of))
        return costs

    def need(self, combinations: Iterable[Combination]) -> None:
        """Ask for the sums of several combinations at once, before :meth:`sums` is called for each.

        In :meth:`together` on Spark, those that are not known are noted and Lacking is raised; otherwise no
        effect.
        """
        if self._lacking is not None:
            questions = (Question("sums", of) for of in combinations)
            self._lacking |= dict.fromkeys(question for question in questions if question not in self._known)
            self.raise_if_lacking()

    def raise_if_lacking(self) -> None:
        """Raise Lacking if something that was asked for in this pass is not known yet."""
        if self._lacking:
            raise Lacking

    def together(self, functions: Sequence[Callable[[], Any]]) -> list[Any]:
        """Call functions that ask for sums, and return their results.

        On Spark, what they lack is computed for all in one pass, and they run again until nothing is lacking.
        """
        if not isinstance(self.source.positions, Distributed):
            return [function() for function in functions]
        if self._lacking is not None:
            results = _call(functions)
            self.raise_if_lacking()
            return results
        while True:
            self._lacking = {}
            try:
                results = _call(functions)
            finally:
                lacking, self._lacking = list(self._lacking), None
            if not lacking:
                return results
            self._compute(lacking)

    def summarise(self, summaries: Mapping[str, BlockSummary]) -> dict[str, pa.Table]:
        """Return the result of each summary of all blocks."""
        if isinstance(self.source.positions, Distributed):
            started = {name: partial(of.start, self._setup) for name, of in summaries.items()}
            return summarise(self._blocks, started)
        return {
            name: of.start(self._setup).joined(of.function(self._setup, self._whole))
            for name, of in summaries.items()
        }

    @cached_property
    def _whole(self) -> Block:
        """All positions of a trace in memory as one block."""
        return Block(Messages(self.source.positions))

    @cached_property
    def _blocks(self) -> Distributed:
        """Positions on Spark, divided into blocks of time, each with what comes after it."""
        rows: Distributed = self.source.positions
        return rows.by_time(self._setup.edges_us, self._longest_s * US_PER_S)

    @cached_property
    def _setup(self) -> Setup:
        """Time zone, edges and half of the devices (by a checksum of names), which all blocks need."""
        names = self.source.devices
        drawn = np.argsort([zlib.crc32(name.encode()) for name in names])
        half = pa.array(names, pa.string()).take(pa.array(np.sort(drawn[: (len(names) + 1) // 2])))
        return Setup(self.source.tz, _edges_us(self.source), half)

    def _answer(self, question: Question) -> Any:
        """Return an answer that is known, or compute it; while questions are collected raise Lacking."""
        if question not in self._known:
            if self._lacking is not None:
                self._lacking[question] = None
                raise Lacking
            self._compute([question])
        return self._known[question]

    def _compute(self, questions: Sequence[Question]) -> None:
        """Answer questions in one pass over the rows, and keep the answers."""
        counted = [question for question in questions if question.kind != "costs"]
        costly = [question for question in questions if question.kind == "costs"]
        summaries: dict[str, BlockSummary] = {}
        if counted:
            summaries["counts"] = BlockSummary(partial(_count, tuple(counted)), _COUNTS, {"count": "sum"})
        if costly:
            values = dict.fromkeys(("messages", "alone", "parts"), "sum")
            summaries["costs"] = BlockSummary(partial(_divide, tuple(costly)), _COSTS, values)
        results = self.summarise(summaries)
        for number, question in enumerate(counted):
            rows = results["counts"].filter(pc.equal(results["counts"]["question"], number))
            self._known[question] = _read_counts(question.kind, rows)
        for number, question in enumerate(costly):
            rows = results["costs"].filter(pc.equal(results["costs"]["question"], number))
            columns = [rows[name].to_numpy() for name in ("day", "messages", "alone", "parts")]
            self._known[question] = Costs(self.source.numbers(rows["device"]), *columns)


def _call(functions: Iterable[Callable[[], Any]]) -> list[Any]:
    """Call all functions, and return the results of those that lack nothing."""
    results = []
    for function in functions:
        with suppress(Lacking):
            results.append(function())
    return results


def _edges_us(source: TraceSource) -> NDArray[np.int64]:
    """Return the begins of blocks of time with about as many rows."""
    rows = source.quarters.groupby("quarter")["rows"].sum().sort_index()
    block = (np.cumsum(rows.to_numpy()) - 1) // BLOCK_ROWS
    is_first = np.diff(block, prepend=-1) != 0
    return np.asarray(rows.index.to_numpy(dtype=np.int64)[is_first] * _QUARTER_US)


def _count(questions: Sequence[Question], setup: Setup, block: Block) -> pa.Table:
    """Count the messages of a block for all questions but those of costs."""
    rows = [np.zeros((0, len(_COUNTS)), dtype=np.int64)]
    for number, (kind, of), part in _parts(questions, setup, block):
        if kind == "sums":
            rows.append(_rows(number, 0, _counts_of(part.sums(of))))
        elif kind == "days":
            for day, of_day in _by_day(part.part(of.interval_s), of, setup.tz):
                rows.append(_rows(number, day, _counts_of(of_day.sums(of))))
        elif kind == "sent":
            messages, bins = part.sent_bins(of)
            days, at = np.unique(_begin_days(messages, of, setup.tz), return_inverse=True)
            counts = count_bins(bins, at, len(days))
            for day, row in zip(days.tolist(), counts, strict=True):
                rows.append(_rows(number, day, _listed(_DISTANCE, row)))
        else:
            _, group = part.grouped(of)
            rows.append(_rows(number, 0, _listed(_SIZE, np.bincount(np.bincount(group)))))
    columns = np.concatenate(rows).T
    return pa.table(dict(zip(_COUNTS.names, columns, strict=True)), schema=_COUNTS)


def _divide(questions: Sequence[Question], setup: Setup, block: Block) -> pa.Table:
    """Divide what is sent among the messages of a block, by device and local day."""
    tables = [_COSTS.empty_table()]
    for number, (_, of), part in _parts(questions, setup, block):
        messages, group = part.grouped(of)
        filled = np.bincount(group)[group]
        shares = np.where(filled == 1, 0, np.rint(PARTS / filled).astype(np.int64))
        days, day = np.unique(local_days(messages.t_us, setup.tz), return_inverse=True)
        kept, at = np.unique(messages.device.astype(np.int64) * len(days) + day, return_inverse=True)
        sums = [np.bincount(at), np.bincount(at, weights=filled == 1).astype(np.int64), np.zeros_like(kept)]
        np.add.at(sums[2], at, shares)
        names = messages.names.take(pa.array(kept // len(days)))
        columns = [np.full(len(kept), number), names, days[kept % len(days)], *sums]
        tables.append(pa.table(dict(zip(_COSTS.names, columns, strict=True)), schema=_COSTS))
    return pa.concat_tables(tables)


def _parts(
    questions: Sequence[Question], setup: Setup, block: Block
) -> Iterator[tuple[int, Question, Block]]:
    """Yield questions, by the level of their cells, with the part of a block that each is about."""
    half: Block | None = None
    for number in sorted(range(len(questions)), key=lambda number: questions[number].of.zoom):
        question, part = questions[number], block
        if question.of.is_half:
            if half is None:
                is_kept = pc.is_in(block.messages.names, setup.half).to_numpy(zero_copy_only=False)
                half = block.filtered(is_kept[block.messages.device])
            part = half
        if len(part.part(question.of.interval_s)):
            yield number, question, part


def _by_day(messages: Messages, of: Combination, tz: str) -> Iterator[tuple[int, Block]]:
    """Yield the local days of messages, each with the block of its messages."""
    day = _begin_days(messages, of, tz)
    for number in np.unique(day).tolist():
        yield number, Block(messages.take(day == number))


def _begin_days(messages: Messages, of: Combination, tz: str) -> NDArray[np.int64]:
    """Return the local days on which the intervals of messages begin."""
    return local_days(messages.intervals(of.interval_s) * of.interval_s * US_PER_S, tz)


def _counts_of(sums: Sums) -> list[tuple[int, Any, Any]]:
    """Return sums as what is counted, keys, and counts."""
    counts: list[tuple[int, Any, Any]] = [(at, [0], [getattr(sums, name)]) for at, name in enumerate(_SUMS)]
    return [*counts, (_SIZE, *sums.sizes), *_listed(_DISTANCE, sums.distances)]


def _listed(what: int, counts: NDArray[np.int64]) -> list[tuple[int, Any, Any]]:
    """Return keys and counts that are not 0, as a part of a table."""
    keys = np.flatnonzero(counts)
    return [(what, keys, counts[keys])]


def _rows(number: int, day: int, counts: Iterable[tuple[int, Any, Any]]) -> NDArray[np.int64]:
    """Return counts as rows of ``_COUNTS``."""
    parts = []
    for what, keys, values in counts:
        fixed = [np.full(len(keys), value, dtype=np.int64) for value in (number, day, what)]
        parts.append(np.stack([*fixed, np.asarray(keys), np.asarray(values)], axis=1))
    return np.concatenate(parts)


def _read_counts(kind: Kind, rows: pa.Table) -> Any:
    """Return the answer that counts hold."""
    day, what, key, count = (rows[name].to_numpy() for name in ("day", "what", "key", "count"))
    if kind == "fullest":
        return int(key.max())
    answers: dict[int, Any] = {}
    for number in np.unique(day).tolist():
        distances = np.zeros(BINS, dtype=np.int64)
        is_distance = (day == number) & (what == _DISTANCE)
        distances[key[is_distance]] = count[is_distance]
        if kind == "sent":
            answers[number] = distances
            continue
        is_size = (day == number) & (what == _SIZE)
        values = {name: int(count[(day == number) & (what == at)].sum()) for at, name in enumerate(_SUMS)}
        answers[number] = Sums(sizes=(key[is_size], count[is_size]), distances=distances, **values)
    return answers
