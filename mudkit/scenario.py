"""Scenarios: what happens to a fleet, whatever the system that runs on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mudkit.checks import check_arguments, number, of_kind, whole_number
from mudkit.errors import ParameterError
from mudkit.fleet.device import BASE_MW
from mudkit.fleet.group import Group
from mudkit.fleet.transport import transport_of
from mudkit.lab import START, Lab, epoch_us
from mudkit.sources.courses import Mobility
from mudkit.sources.link_replay import LinkReplay
from mudkit.sources.outages import OutageLog, Outages
from mudkit.sources.workloads import Poisson, WakingReads, Workload
from mudkit.units import US_PER_S


@check_arguments(types=False)
@dataclass(frozen=True)
class Scenario:
    """Plan of a run, whatever the system.

    Parameters
    ----------
    devices, hours
        Phones, and virtual time.
    link, outage, mobility, every_s
        As in :meth:`mudkit.lab.Lab.fleet`.
    items, reads : Workload
        When each device publishes an item, and its user looks at what has arrived.
    size_bytes : int
        Size of an item.
    expires_s : float, optional
        Time after its creation in which an item is worth reading; None: for ever.
    loss_share, repeat_share, delay_share, delay_s : float
        As in :meth:`mudkit.fleet.Faults.messages`.
    start, transport : str
        As in :class:`mudkit.lab.Lab`.

    Raises
    ------
    ParameterError
        A value is not usable.
    """

    devices: int = 20
    hours: float = 24.0
    link: str | LinkReplay = "lte"
    outage: float | Outages | OutageLog = 0.0
    mobility: str | Mobility | None = None
    every_s: float = 60.0
    items: Workload = Poisson(per_day=24)
    size_bytes: int = 500
    expires_s: float | None = None
    reads: Workload = WakingReads(per_day=8)
    loss_share: float = 0.0
    repeat_share: float = 0.0
    delay_share: float = 0.0
    delay_s: float = 0.0
    start: str = START
    transport: str = "messages"

    def __post_init__(self) -> None:
        whole_number("devices", self.devices, 1, 1_000_000)
        whole_number("size_bytes", self.size_bytes, 0, 1 << 30)
        number("hours", self.hours, 1e-6, 1e5)
        if self.expires_s is not None:
            number("expires_s", self.expires_s, 1e-6, 1e9)
        for name in ("items", "reads"):
            check_workload(name, getattr(self, name))
        for name in ("loss_share", "repeat_share", "delay_share"):
            number(name, getattr(self, name), 0.0, 1.0)
        number("delay_s", self.delay_s, 1e-6 if self.delay_share else 0.0, 1e9)
        epoch_us(self.start)
        transport_of(self.transport)
        # Refuses what a lab would, before a run begins.
        Group(
            ["phone"], link=self.link, at=None, mobility=self.mobility, outage=self.outage,
            every_s=self.every_s, battery_j=None, base_mw=BASE_MW, inbound=None, roam=False,
            short_range=None, context={},
        )  # fmt: skip

    def describe(self) -> dict[str, str]:
        """Return all parameters of a run, in words."""
        given = {field.name: _text(getattr(self, field.name)) for field in fields(self)}
        if self.transport == "messages":  # the default adds nothing
            del given["transport"]
        return given


def require_mobility(scenario: Scenario, where: str, summary: str) -> None:
    """Raise a ParameterError about a parameter (``where``) unless the phones have places."""
    if scenario.mobility is None:
        raise ParameterError(summary, where=where, found="mobility=None", expected="a mobility")


def build_lab(
    scenario: Scenario,
    seed: int,
    *,
    battery_j: float | None = None,
    record_messages: bool,
    record_exposure: bool,
) -> Lab:
    """Return a lab with the phones of a scenario and its faults of messages."""
    lab = Lab(
        seed,
        start=scenario.start,
        transport=scenario.transport,
        record_messages=record_messages,
        record_exposure=record_exposure,
    )
    lab.fleet(
        scenario.devices,
        mobility=scenario.mobility,
        link=scenario.link,
        outage=scenario.outage,
        every_s=scenario.every_s,
        battery_j=battery_j,
    )
    lab.faults.messages(
        loss_share=scenario.loss_share,
        repeat_share=scenario.repeat_share,
        delay_share=scenario.delay_share,
        delay_s=scenario.delay_s,
    )
    return lab


def check_workload(name: str, given: Any) -> None:
    """Raise a ParameterError unless a parameter is a workload."""
    given = str(given) if isinstance(given, type) else given  # a class has the methods, too
    of_kind(name, given, Workload, expected="a workload, such as Poisson(per_day=24) of mudkit.sources")


def _text(value: Any) -> str:
    """Return a parameter in words; of a random process all of its own."""
    if not hasattr(value, "describe"):
        return str(value)
    return ", ".join(f"{name} {part}" for name, part in value.describe().items())


class Activity(NamedTuple):
    """Something that devices do now and then."""

    name: str
    """Name of the random stream of its moments."""
    workload: Workload
    devices: Sequence[str]
    call: Callable[[str], object]
    """Called with the name of a device at each of its moments."""


def schedule(lab: Lab, hours: float, activities: Sequence[Activity]) -> NDArray[np.int64]:
    """Schedule all moments of activities from now on; only the next one is in the kernel's heap.

    Within one moment the order is: positions, messages, timers, then these, by activity and device.

    Returns
    -------
    numpy.ndarray
        A row for each moment, in order: time in µs, the device's place in its activity, and the activity's.
    """
    world, now_us, length_us = lab.world, lab.world.now_us, round(hours * 3600 * US_PER_S)
    drawn = [
        activity.workload.moments(
            world.seed, activity.name, activity.devices, lab.start_us + now_us, length_us
        )
        for activity in activities
    ]
    times_us = now_us + np.concatenate([moments.t_us for moments in drawn])
    rows = np.concatenate([moments.device for moments in drawn])
    kinds = np.repeat(np.arange(len(drawn)), [len(moments.t_us) for moments in drawn])
    planned = np.column_stack([times_us, rows, kinds])[np.lexsort((rows, kinds, times_us))]

    def step(number: int) -> None:
        if number + 1 < len(planned):
            world.schedule_call(int(planned[number + 1, 0]), step, number + 1)
        activity = activities[planned[number, 2]]
        activity.call(activity.devices[planned[number, 1]])

    if len(planned):
        world.schedule_call(int(planned[0, 0]), step, 0)
    return planned
