"""An entry of the scoreboard, device by device: who got what, and who paid for it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from mudkit.experiment.scoreboard.entry import BATTERY_J, Entry
from mudkit.fleet.battery import BASE_MW

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["OF_DEVICES", "by_device"]

OF_DEVICES: Final = (
    "useful", "useful_share", "lost", "stale", "wasted", "latency_s", "age_s", "up_kb", "down_kb", "messages",
    "wakeups", "radio_j", "battery_h", "kb_per_useful", "j_per_useful",
)  # fmt: skip
"""The measures that a single device has; servers are nobody's, and few deliveries have no 95th percentile."""


def by_device(entry: Entry) -> pd.DataFrame:
    """Give the measures of each device, from the bill and the table of deliveries.

    What is counted adds up to what :meth:`Entry.measures` says of all. A feed is nobody's phone: it gets
    nothing that counts, and what its radio takes does not count either.

    Parameters
    ----------
    entry : Entry

    Returns
    -------
    pandas.DataFrame
        One row a device, in their order: ``device, is_phone, wanted`` and :data:`OF_DEVICES`, as they are
        explained in :data:`~mudkit.experiment.scoreboard.MEASURES`; NaN where there is nothing to divide by.
    """
    import pandas as pd

    rows, bill, testbed = entry.deliveries, entry.bill, entry.testbed
    phones = set(testbed.phones)
    got = {str(name): table for name, table in rows.groupby("receiver")}
    paid = {str(name): table for name, table in bill.groupby("device")}
    of_devices = [
        {
            "device": device,
            "is_phone": device in phones,
            **_deliveries(got.get(device, rows[:0]), testbed.wanted_by(device)),
            **_costs(paid.get(device, bill[:0]), device in phones, entry.seconds),
        }
        for device in entry.lab.devices
    ]
    table = pd.DataFrame(of_devices)
    useful = table["useful"].where(table["useful"] > 0)
    table["kb_per_useful"] = (table["up_kb"] + table["down_kb"]) / useful
    table["j_per_useful"] = table["radio_j"] / useful
    return table[["device", "is_phone", "wanted", *OF_DEVICES]]


def _deliveries(rows: pd.DataFrame, wanted: int) -> dict[str, Any]:
    came, read = rows["delivered"].notna(), rows["status"] == "read"
    useful = rows[read]
    return {
        "wanted": wanted,
        "useful": float(len(useful)),
        "useful_share": len(useful) / wanted if wanted else math.nan,
        "lost": float((~came).sum()),
        "stale": float((came & (rows["status"] == "expired")).sum()),
        "wasted": float((came & ~read).sum()),
        "latency_s": float(useful["latency_s"].median()),
        "age_s": float(useful["staleness_s"].median()),
    }


def _costs(bill: pd.DataFrame, is_phone: bool, seconds: float) -> dict[str, float]:
    kb = {way: float(bill.loc[bill["direction"] == way, "bytes"].sum() / 1000) for way in ("up", "down")}
    radio_j = float(bill["radio_mj"].sum() / 1000) if is_phone else 0.0
    watts = radio_j / seconds + BASE_MW / 1000
    return {
        "up_kb": kb["up"],
        "down_kb": kb["down"],
        "messages": float(bill["messages"].sum()),
        "wakeups": float(bill["wakeups"].sum()) if is_phone else 0.0,
        "radio_j": radio_j,
        "battery_h": BATTERY_J / watts / 3600 if is_phone else math.nan,
    }
