"""Several devices of one user that share what they hold (Last hop 5, future work).

The same spool three ways, on the same events:

======  ==========================================================================================
apart   each device has a spool of its own, and nobody tells one what was read on the other
told    each has its own; the server tells the others what was read, as soon as both have a link
shared  devices near each other are one cache with one spool: whichever has a link fetches, what one
        has fetched all can read, and what is read on one is read
======  ==========================================================================================

The paper expects less waste and less loss. How much less depends on whether devices lose their links
together: ``same_link`` is the case that they always do.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from mudkit.errors import ParameterError, brief
from mudkit.progress import bar
from mudkit.sources.parameters import number, whole_number
from mudkit.sources.streams import Stream
from mudkit.systems.lasthop.spool.policies import Forwarding
from mudkit.systems.lasthop.spool.ranked import Message
from mudkit.systems.lasthop.spool.spool import Spool
from mudkit.systems.lasthop.study.comparing import interval
from mudkit.systems.lasthop.study.scenario import Drawn, Scenario
from mudkit.systems.lasthop.study.simulation import Map, most_of

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["MODES", "Devices", "SharedOutcome", "compare_sharing", "play_devices"]

MODES: Final = ("told", "apart", "shared")
"""The first one is what the others are compared with: services do it today."""

_SWITCH, _ARRIVAL, _READ = range(3)
"""In this order when they come at the same time."""


@dataclass(frozen=True)
class Devices:
    """The events of several devices of one user.

    Parameters
    ----------
    drawn : Drawn
        Arrivals and reads, and the link of the first device.
    links : sequence of (ndarray of int64, bool)
        The links of the other devices: when each changes, and whether it is up at the start.
    reads_on : ndarray of int64, shape (reads,)
        The device on which each read happens.
    """

    drawn: Drawn
    links: Sequence[tuple[NDArray[np.int64], bool]]
    reads_on: NDArray[np.int64]

    @classmethod
    def draw(cls, scenario: Scenario, seed: int, *, devices: int = 2, same_link: bool = False) -> Devices:
        """Draw everything: each read is on any device with the same probability.

        Parameters
        ----------
        scenario : Scenario
            Its outages are those of each device, independent of each other.
        seed : int
        devices : int
        same_link : bool
            All have the link of the first one instead.
        """
        count = whole_number("devices", devices, 1, 64)
        drawn, links = scenario.draw(seed), []
        quiet = replace(scenario, event_frequency=0.0, user_frequency=0.0)
        for number_ in range(1, count):
            own = int(Stream(seed, "lasthop device").integers(number_, 0, 0, 1 << 32))
            other = drawn if same_link else quiet.draw(own)
            links.append((other.switches_us, other.starts_up))
        reads = np.arange(len(drawn.reads_us))
        return cls(drawn, links, Stream(seed, "lasthop read on").integers(0, reads, 0, count))


@dataclass(frozen=True)
class SharedOutcome:
    """What has happened on all devices together.

    Parameters
    ----------
    copies : int
        Messages that went over a link, each time counted.
    unread : int
        Copies that nobody has read.
    read_ids : tuple
        As they were read; a message is there twice if it was read on two devices.
    handed_over : int
        Messages that went from one device to another to be read there.
    """

    copies: int
    unread: int
    read_ids: tuple[Hashable, ...]
    handed_over: int

    @property
    def waste(self) -> float:
        """Copies that nobody has read, over copies; 0 when there are none."""
        return self.unread / self.copies if self.copies else 0.0

    @property
    def read_again(self) -> int:
        """Messages that were read a second time, on another device."""
        return len(self.read_ids) - len(set(self.read_ids))

    def loss(self, best: SharedOutcome) -> float:
        """Read at the best service and not here, over read there; 0 when nothing was."""
        wanted = set(best.read_ids)
        return len(wanted - set(self.read_ids)) / len(wanted) if wanted else 0.0


@dataclass
class _Cache:
    """A spool and the devices that it serves as one."""

    spool: Spool
    up: set[int]
    fetched_by: dict[Hashable, int] = field(default_factory=dict)
    """What has gone to which of them, until it is read."""
    copies: int = 0
    read_offline: list[tuple[int, list[Hashable]]] = field(default_factory=list)
    unreported: list[Hashable] = field(default_factory=list)


def play_devices(
    devices: Devices,
    policy: Forwarding,
    mode: str,
    *,
    max: float | None = 8,  # noqa: A002 - the name of the API
    threshold: float = 0.0,
) -> SharedOutcome:
    """Let all events happen to the devices of one user.

    Parameters
    ----------
    devices : Devices
    policy : Forwarding
    mode : {'told', 'apart', 'shared'}
    max : int or None
        Messages at a time; None: all.
    threshold : float

    Raises
    ------
    ParameterError
        There is no such mode.
    """
    if mode not in MODES:
        raise ParameterError(
            "There is no such way to share.", where="mode", found=brief(mode), expected=", ".join(MODES)
        )
    return _Player(devices, policy, mode, threshold).play(most_of(max))


class _Player:
    """The events of all devices, in order."""

    def __init__(self, devices: Devices, policy: Forwarding, mode: str, threshold: float) -> None:
        drawn = devices.drawn
        self._devices, self._is_shared_by_server = devices, mode == "told"
        self._links = [(drawn.switches_us, drawn.starts_up), *devices.links]
        count = len(self._links)
        groups = [set(range(count))] if mode == "shared" else [{each} for each in range(count)]
        self._caches: list[_Cache] = []
        for members in groups:
            up = {each for each in members if self._links[each][1]}
            spool = Spool(threshold, policy, partial(self._fetched, len(self._caches)), _nothing)
            self._caches.append(_Cache(spool, up))
        self._cache_of = [0 if mode == "shared" else each for each in range(count)]
        self._reader: int | None = None
        self._read: list[Hashable] = []
        self._handed_over = 0
        self._unread = 0

    def play(self, most: float) -> SharedOutcome:
        for cache in self._caches:
            cache.spool.network(0, is_up=bool(cache.up))
        drawn = self._devices.drawn
        arrivals = enumerate(zip(drawn.ranks.tolist(), drawn.expires_us.tolist(), strict=True))
        for at_us, kind, device in self._events():
            if kind == _ARRIVAL:
                message, (rank, expires_us) = next(arrivals)
                for cache in self._caches:
                    cache.spool.notification(at_us, message, rank, expires_us)
            elif kind == _SWITCH:
                self._switch(at_us, device)
            else:
                self._read_on(at_us, device, most)
        unread = sum(len(cache.fetched_by) for cache in self._caches)
        copies = sum(cache.copies for cache in self._caches)
        return SharedOutcome(copies, unread, tuple(self._read), self._handed_over)

    def _events(self) -> Iterable[tuple[int, int, int]]:
        drawn = self._devices.drawn
        parts = [(switches_us, _SWITCH, device) for device, (switches_us, _) in enumerate(self._links)]
        times_us = np.concatenate([*(part[0] for part in parts), drawn.arrivals_us, drawn.reads_us])
        lengths = [*(len(part[0]) for part in parts), len(drawn.arrivals_us), len(drawn.reads_us)]
        kinds = np.repeat([*(part[1] for part in parts), _ARRIVAL, _READ], lengths)
        on = np.repeat([*(part[2] for part in parts), 0, 0], lengths)
        on[len(on) - len(drawn.reads_us) :] = self._devices.reads_on
        order = np.lexsort((on, kinds, times_us))
        return zip(times_us[order].tolist(), kinds[order].tolist(), on[order].tolist(), strict=True)

    def _switch(self, at_us: int, device: int) -> None:
        cache = self._caches[self._cache_of[device]]
        cache.spool.timeout(at_us)  # what is due till now still sees the link as it was
        was_up = bool(cache.up)
        cache.up ^= {device}
        if bool(cache.up) == was_up:
            return
        if cache.up:
            offline, cache.read_offline = cache.read_offline, []
            for read_us, identities in offline:
                cache.spool.read_offline(read_us, identities)
                self._tell(at_us, cache, identities)
            cache.spool.read_elsewhere(at_us, cache.unreported)
            cache.unreported.clear()
        cache.spool.network(at_us, is_up=bool(cache.up))

    def _read_on(self, at_us: int, device: int, most: float) -> None:
        cache = self._caches[self._cache_of[device]]
        spool, self._reader = cache.spool, device
        if cache.up:
            taken = spool.read(at_us, most)
        else:
            spool.timeout(at_us)
            taken = spool.device.take(most)
        self._reader = None
        identities = [message.identity for message in taken]
        self._read += identities
        self._handed_over += sum(cache.fetched_by.pop(each) != device for each in identities)
        if cache.up:
            self._tell(at_us, cache, identities)
        else:
            cache.read_offline.append((at_us, identities))

    def _tell(self, at_us: int, teller: _Cache, identities: Sequence[Hashable]) -> None:
        """Tell the other devices what was read."""
        for cache in self._caches if self._is_shared_by_server else ():
            if cache is not teller and cache.up:
                cache.spool.read_elsewhere(at_us, identities)
            elif cache is not teller:
                cache.unreported += identities

    def _fetched(self, number_: int, message: Message) -> None:
        """Take note of which device fetches: the one that is read on if it can, else the first that can."""
        cache = self._caches[number_]
        cache.copies += 1
        cache.fetched_by[message.identity] = self._reader if self._reader in cache.up else min(cache.up)


def compare_sharing(
    scenario: Scenario,
    policy: str | Forwarding = "unified",
    *,
    devices: int = 2,
    same_link: bool = False,
    max: float | None = 8,  # noqa: A002 - the name of the API
    threshold: float = 0.0,
    size_bytes: float = 2000.0,
    seeds: Iterable[int] = range(10),
    map: Map = map,  # noqa: A002 - the name of the API
) -> pd.DataFrame:
    """Compare the three ways, seed by seed on the same events.

    Parameters
    ----------
    scenario : Scenario
    policy : str or Forwarding
    devices, same_link
        See :meth:`Devices.draw`.
    max : int or None
        Messages at a time; None: all.
    threshold : float
    size_bytes : float
        The size of a message, in bytes.
    seeds : iterable of int
    map : callable
        What spreads the runs, for instance ``pipeline.spread(spark)``.

    Returns
    -------
    pandas.DataFrame
        ``mode, measure, mean, difference, difference_low, difference_high, runs``: differences from
        the first mode, paired by seed, with 95 % intervals. Measures: ``waste``, ``loss`` (of what
        on-line forwarding to a shared cache would let be read), ``bytes_per_day`` over links,
        ``handed_over_per_day`` (bytes between devices) and ``read_again`` (share of reads).
    """
    import pandas as pd

    numbers = list(seeds)
    number("size_bytes", size_bytes, 0.0, 1e12)
    number("threshold", threshold, -1e9, 1e9)
    forwarding = Forwarding.of(policy)
    if not numbers:
        raise ParameterError("There is nothing to run.", where="seeds", found="none", expected="at least one")
    rows: list[dict[str, str | float]] = []
    run = partial(_run, scenario, forwarding, devices, same_link, max, threshold, size_bytes)
    with bar(len(numbers), "runs", "") as done:
        for some in map(run, numbers):
            rows += some
            done(len(rows) // len(MODES))
    measures = [name for name in rows[0] if name not in ("mode", "seed")]
    spools = {
        (mode, name): np.array([row[name] for row in rows if row["mode"] == mode])
        for mode in MODES
        for name in measures
    }
    measured = []
    for (mode, name), values in spools.items():
        differs = interval("difference", values - spools[MODES[0], name])
        measured.append(
            {"mode": mode, "measure": name, "mean": values.mean(), **differs, "runs": len(values)}
        )
    return pd.DataFrame(measured)


def _run(
    scenario: Scenario,
    policy: Forwarding,
    devices: int,
    same_link: bool,
    most: float | None,
    threshold: float,
    size_bytes: float,
    seed: int,
) -> list[dict[str, str | float]]:
    drawn = Devices.draw(scenario, seed, devices=devices, same_link=same_link)
    best = play_devices(drawn, Forwarding("on-line"), "shared", max=most, threshold=threshold)
    rows: list[dict[str, str | float]] = []
    for mode in MODES:
        run = play_devices(drawn, policy, mode, max=most, threshold=threshold)
        rows.append(
            {
                "mode": mode,
                "seed": seed,
                "waste": run.waste,
                "loss": run.loss(best),
                "bytes_per_day": size_bytes * run.copies / scenario.days,
                "handed_over_per_day": size_bytes * run.handed_over / scenario.days,
                "read_again": run.read_again / len(run.read_ids) if run.read_ids else 0.0,
            }
        )
    return rows


def _nothing(message: Message) -> None:
    """Do nothing: device and server share the queue here, and it is gone from that."""
