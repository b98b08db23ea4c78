"""Outages of the network: each device has it or not, in periods that follow each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import exp2

from mudkit.checks import Range, check_arguments, number
from mudkit.errors import ParameterError
from mudkit.sources.courses import device_numbers
from mudkit.sources.streams import Stream
from mudkit.units import US_PER_S

DISTRIBUTIONS = ("exponential", "lognormal", "fixed")
"""Laws of the periods' lengths."""

PERIODS = 16
"""Periods of a device that are drawn together."""

FOREVER_US = 1 << 53
"""Length of a period that no run sees the end of: 285 years. No period is longer."""

_S_PER_DAY = 86_400


@check_arguments(types=False)
@dataclass(frozen=True)
class Outages:
    """Alternating periods with and without a network (an alternating renewal process).

    A mean cycle, one period of each kind, lasts a day divided by ``per_day``, ``share`` of it without a
    network. All periods are independent. The process is stationary from the start of a run on: what is left
    of a first period has the distribution of the residual life (Cox, Renewal Theory, 1962, sections 5.4 and
    7.4). The paper "Last hop" (section 4) varies the share from 0 to 100 % too, and says of the frequency
    only that its variance is high.

    Parameters
    ----------
    share : float
        Share of time without a network, from 0 to 1.
    per_day : float
        Outages a day; the default, a cycle of two hours, is a choice.
    distribution : {'exponential', 'lognormal', 'fixed'}
        Law of both kinds of period; fixed: all of one length.
    cv : float
        Coefficient of variation of lognormal periods; an exponential law has 1, a fixed one 0.

    Raises
    ------
    ParameterError
        A value is out of range, or the distribution is unknown.
    """

    share: Annotated[float, Range(0.0, 1.0)]
    per_day: Annotated[float, Range(0.001, 86_400.0)] = 12.0
    distribution: Literal["exponential", "lognormal", "fixed"] = "exponential"
    cv: Annotated[float, Range(0.01, 10.0)] = 1.0

    def __post_init__(self) -> None:
        if self.distribution not in DISTRIBUTIONS:
            raise ParameterError(
                "There is no such distribution of outages.",
                where="distribution",
                found=repr(self.distribution),
                expected=f"one of {', '.join(DISTRIBUTIONS)}",
            )

    @property
    def mean_down_s(self) -> float:
        """Mean length of a period without a network, seconds."""
        return self.share * _S_PER_DAY / self.per_day

    @property
    def mean_up_s(self) -> float:
        """Mean length of a period with a network, seconds."""
        return (1.0 - self.share) * _S_PER_DAY / self.per_day

    def describe(self) -> dict[str, Any]:
        """Return the parameters that results must state.

        Returns
        -------
        dict
            ``share``, ``per_day``, ``distribution``, ``cv`` (of the law that is used), ``mean_up_s`` and
            ``mean_down_s``; ``share`` only where it is 0 or 1 and nothing switches.
        """
        if self.share in (0.0, 1.0):
            return {"share": self.share}
        return {
            "share": self.share,
            "per_day": self.per_day,
            "distribution": self.distribution,
            "cv": {"exponential": 1.0, "lognormal": self.cv, "fixed": 0.0}[self.distribution],
            "mean_up_s": self.mean_up_s,
            "mean_down_s": self.mean_down_s,
        }

    def switching(self, seed: int, devices: Sequence[str]) -> Switching:
        """Begin a run.

        Parameters
        ----------
        seed : int
        devices : sequence of str
            Names, each once.
        """
        return Switching(self, seed, devices)


class Switching:
    """Times at which the devices of a fleet lose and regain their network in a run."""

    starts_up: NDArray[np.bool_]

    def __init__(self, outages: Outages, seed: int, devices: Sequence[str]) -> None:
        self._outages, self._number = outages, device_numbers(devices)
        self._length, self._left = Stream(seed, "outage period"), Stream(seed, "outage residual")
        self.starts_up = ~Stream(seed, "outage first").chance(self._number, 0, outages.share)

    def periods_us(self, block: int, blocks: int = 1) -> NDArray[np.int64]:
        """Return the lengths of periods, in turn up and down, of shape (devices, PERIODS * blocks).

        Period 0 is what is left of it at the start (down if not ``starts_up``); none is longer than
        FOREVER_US.
        """
        if block < 0:
            raise ParameterError(
                "There is no such block.", where="block", found=str(block), expected="0 or more"
            )
        outages, shape = self._outages, (len(self._number), PERIODS * blocks)
        if outages.share in (0.0, 1.0):
            return np.full(shape, FOREVER_US, dtype=np.int64)
        period = PERIODS * block + np.arange(PERIODS * blocks)
        up = self.starts_up[:, None] == (period % 2 == 0)
        mean_s = np.where(up, outages.mean_up_s, outages.mean_down_s)
        length_us = np.rint(US_PER_S * mean_s * self._relative(period))
        return np.clip(length_us, 1, FOREVER_US).astype(np.int64)

    def _relative(self, period: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the lengths in units of their means, of shape (devices, periods)."""
        device, law = self._number[:, None], self._outages.distribution
        if law == "exponential":  # what is left of a period is distributed as a whole one
            return self._length.exponential(device, period)
        whole = np.ones((len(device), len(period)))
        if law == "lognormal":
            variance = np.log1p(self._outages.cv**2)
            z = self._length.normal(device, period)
            # A period that is met at a moment is longer than most: its density is weighed by its length,
            # which moves the logarithm up by its variance.
            mean = np.where(period == 0, 0.5, -0.5) * variance
            whole = exp2((mean + np.sqrt(variance) * z) / np.log(2.0))
        return np.where(period == 0, self._left.uniform(device, 0) * whole, whole)


@check_arguments(types=False)
class OutageLog:
    """Outages as a log has them: device ``i`` of a fleet has those of row ``i``, whatever the seed.

    Parameters
    ----------
    periods_us : sequence of array_like, shape (outages, 2)
        Begin and end of the outages of each device, microseconds since the start of a run, in any order.
        They may overlap, and begin before the run.
    length_s : float
        Length of the run, of which :attr:`share` is a part.

    Raises
    ------
    ParameterError
        An outage ends before it begins.

    Examples
    --------
    >>> log = OutageLog([[(30_000_000, 90_000_000), (60_000_000, 120_000_000)], []], length_s=180)
    >>> log.share, log.outages
    (0.25, 1)
    """

    def __init__(self, periods_us: Sequence[ArrayLike], length_s: Annotated[float, Range(1e-6, 1e9)]) -> None:
        length_us = length_s * US_PER_S
        self._periods = [_joined(periods, row) for row, periods in enumerate(periods_us)]
        inside = [np.clip(periods, 0, length_us) for periods in self._periods]
        down_us = sum(float((part[:, 1] - part[:, 0]).sum()) for part in inside)
        self.share = down_us / length_us / max(len(self._periods), 1)
        """Share of the devices' time without a network."""
        self.outages = sum(int((part[:, 1] > part[:, 0]).sum()) for part in inside)
        """Outages within the run, those that overlap as one."""

    def describe(self) -> dict[str, Any]:
        """Return what results must state: ``share`` and ``outages``."""
        return {"share": round(self.share, 6), "outages": self.outages}

    def switching(self, seed: int, devices: Sequence[str]) -> RecordedSwitching:
        """Begin a run; nothing is random.

        Parameters
        ----------
        seed : int
        devices : sequence of str
            Names of the fleet, at most as many as the log has rows.
        """
        if len(devices) > len(self._periods):
            raise ParameterError(
                "The log of outages has too few devices.",
                where="devices",
                found=str(len(devices)),
                expected=f"at most {len(self._periods)}",
            )
        return RecordedSwitching(self._periods[: len(devices)])


class RecordedSwitching:
    """Times at which devices lose and regain their network, of a log; as :class:`Switching`."""

    def __init__(self, periods: Sequence[NDArray[np.int64]]) -> None:
        begun = [part[part[:, 1] > 0].ravel() for part in periods]
        self.starts_up = np.array([not len(times) or bool(times[0] > 0) for times in begun], dtype=np.bool_)
        ahead = [times[times > 0] for times in begun]
        self._lengths = [np.diff(times, prepend=0) for times in ahead]

    def periods_us(self, block: int, blocks: int = 1) -> NDArray[np.int64]:
        """Return the lengths of periods; see :meth:`Switching.periods_us`."""
        first, count = PERIODS * block, PERIODS * blocks
        table = np.full((len(self._lengths), count), FOREVER_US, dtype=np.int64)
        for row, lengths in enumerate(self._lengths):
            part = lengths[first : first + count]
            table[row, : len(part)] = part
        return table


def _joined(periods: ArrayLike, row: int) -> NDArray[np.int64]:
    """Return periods in order, those that overlap or meet as one, without empty ones."""
    given = np.asarray(periods, dtype=np.int64).reshape(-1, 2)
    if (given[:, 1] < given[:, 0]).any():
        begin, end = given[given[:, 1] < given[:, 0]][0].tolist()
        raise ParameterError(
            "An outage ends before it begins.",
            where=f"periods_us, device {row}",
            found=f"from {begin / US_PER_S:g} to {end / US_PER_S:g} s",
            expected="begin and end, in this order",
        )
    joined: list[list[int]] = []
    for begin, end in given[np.argsort(given[:, 0], kind="stable")].tolist():
        if begin == end:
            continue
        if joined and begin <= joined[-1][1]:
            joined[-1][1] = max(joined[-1][1], end)
        else:
            joined.append([begin, end])
    return np.array(joined, dtype=np.int64).reshape(-1, 2)


def outages_of(given: float | Outages, per_day: float = 12.0, *, name: str = "outage") -> Outages:
    """Return outages for a bare share of time without a network; an error names the argument ``name``."""
    if isinstance(given, Outages):
        return given
    return Outages(number(name, given, 0.0, 1.0), per_day=per_day)
