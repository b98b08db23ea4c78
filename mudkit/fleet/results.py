"""What has happened in a lab so far, as DataFrames: bill, deliveries, history, radio, battery, failures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mudkit.arguments import check_calls
from mudkit.errors import ParameterError, brief, did_you_mean, listed
from mudkit.fleet.device import Device
from mudkit.fleet.radio_history import radio_stretches
from mudkit.fleet.recorder import Recorder
from mudkit.trace.schema import to_frame

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Results"]


@check_calls
class Results:
    """The part of a lab that reads its records, and changes nothing.

    Attributes
    ----------
    trace : Recorder
        What has been recorded.
    devices : dict of str to Device
        All devices by name.
    start_us : int
        When virtual time began, in microseconds since 1970 (UTC).
    """

    trace: Recorder
    devices: dict[str, Device]
    start_us: int

    def bill(self) -> pd.DataFrame:
        """Give the bill as of now: one row per (system, device, direction).

        Returns
        -------
        pandas.DataFrame
            ``system, device, direction, messages, bytes, radio_mj, wakeups``.
        """
        return self.frame("bill")

    def deliveries(self) -> pd.DataFrame:
        """Give what became of each item for each receiver (:data:`mudkit.trace.schema.DELIVERIES`)."""
        return self.frame("deliveries")

    def history(self) -> pd.DataFrame:
        """Give the operations in the order in which they were invoked, for :mod:`mudkit.consistency`."""
        return self.frame("operations").sort_values(["invoked", "client", "op_id"], ignore_index=True)

    def held(self) -> pd.DataFrame:
        """Give what each party held: ``party, system, how, field, form, times, bytes, first``.

        Raises
        ------
        ParameterError
            The lab does not keep it.
        """
        import pandas as pd

        if self.trace.held is None:
            raise ParameterError(
                "This lab does not keep what parties held.", remedy="make it with Lab(…, record_held=True)"
            )
        columns = ["party", "system", "how", "field", "form", "times", "bytes", "first"]
        frame = pd.DataFrame(list(self.trace.held.rows()), columns=columns)
        frame["first"] = pd.to_datetime(frame["first"] + self.start_us, unit="us", utc=True)
        return frame

    @property
    def problems(self) -> pd.DataFrame:
        """What has failed so far, and ended nothing but the call or the event that it was.

        The failures among the incidents: exceptions of machines, of functions that a system was given, and of
        callbacks. Which one a machine has seen to itself (a join, a policy) its system says.

        Returns
        -------
        pandas.DataFrame
            ``device`` (or server), ``ts``, ``detail``, ``system``.
        """
        incidents = self.frame("incidents")
        failed = incidents.loc[incidents["incident"] == "failed", ["device", "ts", "detail", "system"]]
        return failed.reset_index(drop=True)

    def frame(self, table: str) -> pd.DataFrame:
        """Give a table of the trace as a DataFrame.

        Parameters
        ----------
        table : str
            ``positions``, ``links``, ``messages``, ``transfers``, ``deliveries``, ``operations``, ``reads``,
            ``incidents``, ``bill``.

        Returns
        -------
        pandas.DataFrame
            The table, with the columns of :mod:`mudkit.trace.schema`.

        Raises
        ------
        ParameterError
            There is no such table.
        """
        return to_frame(self.trace.table(table))

    def radio(self, device: str) -> pd.DataFrame:
        """Give the states of a device's radio from the beginning to now: ``start, end, state, power_mw``.

        It needs the transfers, so a lab that records messages.

        Parameters
        ----------
        device : str
            The name of the device.

        Raises
        ------
        ParameterError
            There is no such device, or the lab does not record transfers.
        """
        import pandas as pd

        rows = radio_stretches(self.trace, self._known(device))
        frame = pd.DataFrame(rows, columns=["start", "end", "state", "power_mw"])
        for name in ("start", "end"):
            frame[name] = pd.to_datetime(frame[name] + self.start_us, unit="us", utc=True)
        return frame

    def battery(self, device: str) -> pd.DataFrame:
        """Give what was left of a device's battery over time: ``ts, device, battery_j``.

        Parameters
        ----------
        device : str
            The name of the device.

        Raises
        ------
        ParameterError
            The device has none, or there is no such device.
        """
        import pandas as pd

        battery = self._known(device).battery
        if battery is None:
            raise ParameterError(
                "This device has no battery.", where="device", found=device, expected="battery_j=… when added"
            )
        times_us, left_j = battery.levels(radio_stretches(self.trace, self._known(device)))
        ts = pd.to_datetime([at + self.start_us for at in times_us], unit="us", utc=True)
        return pd.DataFrame({"ts": ts, "device": device, "battery_j": left_j})

    def _known(self, device: str) -> Device:
        if device not in self.devices:
            raise ParameterError(
                "There is no such device.",
                where="device",
                found=brief(device),
                expected=listed(self.devices, "none yet"),
                remedy=did_you_mean(device, self.devices),
            )
        return self.devices[device]
