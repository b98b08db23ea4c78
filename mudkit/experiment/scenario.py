"""Scenarios: what happens, whatever the system."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from mudkit.errors import ParameterError
from mudkit.fleet.battery import BASE_MW
from mudkit.fleet.group import Group
from mudkit.lab import START, epoch_us
from mudkit.sources.link_replay import LinkReplay
from mudkit.sources.mobility import Mobility
from mudkit.sources.outages import Outages
from mudkit.sources.parameters import number, whole_number
from mudkit.sources.workloads import Poisson, WakingReads, Workload

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Scenario"]


@dataclass(frozen=True)
class Scenario:
    """Events of a run, independent of the system.

    Parameters
    ----------
    devices : int
    hours : float
        Virtual time.
    link, outage, mobility, battery_j, every_s
        As in :meth:`mudkit.lab.Lab.fleet`.
    items : Workload
        When each device publishes an item.
    receivers : int
        How many others each item is for, drawn evenly.
    size_bytes : int
        The size of an item, in bytes.
    expires_s : float, optional
        How long after its creation an item is worth reading; None: for ever.
    reads : Workload
        When each device's user reads the received items.
    queries : Workload, optional
        When each device's user asks for what is around her (a row of the trace's ``reads``); needs a
        mobility.
    box_km, window_s : float
        What a query asks for.
    loss_share, repeat_share, delay_share, delay_s : float
        What goes wrong with messages, see :meth:`mudkit.fleet.Faults.messages`.
    start : str
        As in :class:`mudkit.lab.Lab`.

    Raises
    ------
    ParameterError
        A value is of the wrong kind or out of range, or queries are asked where there is no mobility.
    """

    devices: int = 20
    hours: float = 24.0
    link: str | LinkReplay = "lte"
    outage: float | Outages = 0.0
    mobility: str | Mobility | None = None
    battery_j: float | None = None
    every_s: float = 60.0
    items: Workload = Poisson(per_day=24)
    receivers: int = 1
    size_bytes: int = 500
    expires_s: float | None = None
    reads: Workload = WakingReads(per_day=8)
    queries: Workload | None = None
    box_km: float = 20.0
    window_s: float = 7200.0
    loss_share: float = 0.0
    repeat_share: float = 0.0
    delay_share: float = 0.0
    delay_s: float = 0.0
    start: str = START

    def __post_init__(self) -> None:
        whole_number("devices", self.devices, 1, 1_000_000)
        whole_number("receivers", self.receivers, 1, max(self.devices - 1, 1))
        whole_number("size_bytes", self.size_bytes, 0, 1 << 30)
        most = {"hours": 1e5, "expires_s": 1e9, "box_km": 1e5, "window_s": 1e9}
        for name, high in most.items():
            value = getattr(self, name)
            if name != "expires_s" or value is not None:
                number(name, value, 1e-6, high)
        for name in ("items", "reads", "queries"):
            value = getattr(self, name)
            is_left_out = name == "queries" and value is None
            if not is_left_out and (isinstance(value, type) or not isinstance(value, Workload)):
                raise ParameterError(
                    f"The parameter {name} is no workload.",
                    where=name,
                    found=repr(value),
                    expected="one such as Poisson(per_day=24) of mudkit.sources.workloads",
                )
        for name in ("loss_share", "repeat_share", "delay_share"):
            number(name, getattr(self, name), 0.0, 1.0)
        number("delay_s", self.delay_s, 1e-6 if self.delay_share else 0.0, 1e9)
        epoch_us(self.start)
        # Refuses what a lab would, before a run begins.
        Group(
            ["phone"], link=self.link, at=None, mobility=self.mobility, outage=self.outage,
            every_s=self.every_s, battery_j=self.battery_j, base_mw=BASE_MW, context={},
        )  # fmt: skip
        if self.queries is not None and self.mobility is None:
            raise ParameterError(
                "A query asks for what is around a device, and no place of these devices is known.",
                where="queries",
                found="mobility=None",
                expected="a mobility",
            )

    def describe(self) -> dict[str, str]:
        """Say everything that shapes a run, in words."""
        return {field.name: _text(getattr(self, field.name)) for field in fields(self)}

    def table(self) -> pd.DataFrame:
        """Give the parameters as a table: ``parameter, value``."""
        import pandas as pd

        return pd.DataFrame(list(self.describe().items()), columns=["parameter", "value"])


def _text(value: Any) -> str:
    """Write a parameter, with everything that a process states of itself."""
    if not hasattr(value, "describe"):
        return str(value)
    return ", ".join(f"{name} {part}" for name, part in value.describe().items())
