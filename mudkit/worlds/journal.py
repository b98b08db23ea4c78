"""A journal on several devices, which edit and read one record while networks and phones fail (Mobius 3.2).

The plan is a function of the seed alone, so that read types are compared on the same edits, reads and faults.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final, Literal

import numpy as np

from mudkit.checks import Range, check_arguments
from mudkit.lab import Lab
from mudkit.sources.streams import Stream
from mudkit.systems.mud import Client, Cloud, freshness

if TYPE_CHECKING:
    import pandas as pd

DEVICES: Final = ("ann", "bob", "cyd")
_TABLE, _KEY = "journal", "monday"
_REFUSED: Final = -1
"""Older than any version: an edit that took no effect."""


@check_arguments(types=False)
@dataclass(frozen=True)
class Journal:
    """Plan of edits, reads and faults.

    Ann's and Bob's networks are cut once each, in the first two thirds; Bob's phone is killed once.

    Parameters
    ----------
    minutes, operations, edit_share
        Virtual time, number of edits and reads, at times and on devices that are drawn evenly, and the share
        of edits; every edit is conditional.
    cut_minutes, restart_s, replica_lag_s : float
        Length of a cut, time from the kill of a phone to its restart, and lag of the store's replicas.
    fresh_s : float
        Largest age of a record with which a device answers by itself.
    stale_cost_s : float
        Wait that is as bad as a stale look.

    Examples
    --------
    >>> lab = Journal(operations=10).run(seed=1, reads="committed")
    >>> set(lab.history()["op"]) == {"create", "read", "write"}
    True
    """

    minutes: Annotated[float, Range(0.1, 1e5)] = 15.0
    operations: Annotated[int, Range(1, 100_000)] = 40
    edit_share: Annotated[float, Range(0.0, 1.0)] = 0.4
    cut_minutes: Annotated[float, Range(0.0, 1e5)] = 4.0
    restart_s: Annotated[float, Range(0.0, 1e6)] = 20.0
    replica_lag_s: Annotated[float, Range(0.0, 1e6)] = 60.0
    fresh_s: Annotated[float, Range(0.0, 1e9)] = 300.0
    stale_cost_s: Annotated[float, Range(0.0, 1e9)] = 30.0

    def plan(self, seed: int) -> pd.DataFrame:
        """Return the steps: ``at_s, device, what``, where *what* is edit, look, cut, kill or restart."""
        import pandas as pd

        return pd.DataFrame(self._steps(seed), columns=["at_s", "device", "what"])

    def _steps(self, seed: int) -> list[tuple[float, str, str]]:
        """Draw a run's steps (time in s, device, action), in order of time.

        Besides edits and looks, the network is cut from the first two devices, and the second is killed and
        restarted.
        """
        step, end_s = np.arange(self.operations), 60.0 * self.minutes
        at_s = Stream(seed, "journal time").uniform(0, step, 0.0, end_s).tolist()
        who = Stream(seed, "journal device").integers(0, step, 0, len(DEVICES)).tolist()
        edits = Stream(seed, "journal edit").chance(0, step, self.edit_share).tolist()
        steps = [
            (at, DEVICES[device], "edit" if is_edit else "look")
            for at, device, is_edit in zip(at_s, who, edits, strict=True)
        ]
        cut_s = Stream(seed, "journal cut").uniform(0, np.arange(2), 0.0, end_s * 2 / 3).tolist()
        steps += [(at, device, "cut") for at, device in zip(cut_s, DEVICES[:2], strict=True)]
        killed_s = float(Stream(seed, "journal kill").uniform(0, 0, 0.0, end_s))
        steps += [(killed_s, DEVICES[1], "kill"), (killed_s + self.restart_s, DEVICES[1], "restart")]
        return sorted(steps)

    def run(
        self, seed: int, reads: Literal["uncommitted", "committed", "committed_wio"], *, latest: bool = False
    ) -> Lab:
        """Run the plan until every operation is answered, and return the lab at the end.

        Parameters
        ----------
        seed : int
        reads : {'uncommitted', 'committed', 'committed_wio'}
            Type of the reads.
        latest : bool
            Whether they ask for the store's latest version.
        """
        lab = Lab(seed)
        cloud = Cloud(lab, replicas=2, replica_lag_s=self.replica_lag_s)
        clients = {
            name: Client(lab.device(name), cloud, app=_TABLE, token=lab.token(name, _TABLE))
            for name in DEVICES
        }
        clients[DEVICES[0]].create(_TABLE).result()
        began_us = lab.world.now_us
        for number_, (at_s, device, what) in enumerate(self._steps(seed)):
            lab.world.run(began_us + round(at_s * 1e6))
            if what == "edit":
                record = {"text": f"{device}, step {number_}"}
                clients[device].write(_TABLE, _KEY, record, "conditional")
            elif what == "look":
                clients[device].read(
                    _TABLE, f"key = '{_KEY}'", reads, utility=freshness(self.fresh_s), latest=latest
                )
            elif what == "cut":
                lab.faults.cut(device, self.cut_minutes)
            elif what == "kill":
                lab.faults.kill(device)
            else:
                lab.faults.restart(device)
        lab.run(minutes=60 + 2 * self.cut_minutes)
        return lab

    def cost_s(self, lab: Lab) -> float:
        """Return the mean cost of a look of the ``lab``: its wait, and ``stale_cost_s`` if it is stale."""
        measures = self.measures(lab)
        return measures["mean_wait_s"] + self.stale_cost_s * measures["stale_share"]

    @staticmethod
    def measures(lab: Lab) -> dict[str, float]:
        """Return what the looks of a run took, and how many of them were stale.

        ``bytes, messages`` are those of all devices of the ``lab``, ``mean_wait_s, longest_wait_s,
        stale_share`` those of looks. A look is stale if it lacks an edit that was committed before it, or
        shows one that is refused later.
        """
        bill, table = lab.bill(), lab.history()
        table = table[table["status"].isin(["ok", "failed"])]
        writes, looks = table[table["op"] == "write"], table[table["op"] == "read"]
        accepted = writes[writes["status"] == "ok"]
        version = dict(zip(accepted["value_hash"], accepted["version"].astype(int), strict=True))
        refused = dict.fromkeys(writes["value_hash"][writes["status"] == "failed"], _REFUSED)
        waits_s = (looks["responded"] - looks["invoked"]).dt.total_seconds()
        stale = 0
        for invoked, seen in zip(looks["invoked"], looks["value_hash"], strict=True):
            before = accepted["version"][accepted["responded"] <= invoked]
            stale += (version | refused).get(seen, 0) < max(before.astype(int), default=0)
        return {
            "bytes": float(bill["bytes"].sum()),
            "messages": float(bill["messages"].sum()),
            "mean_wait_s": float(waits_s.mean()),
            "longest_wait_s": float(waits_s.max()),
            "stale_share": stale / len(looks) if len(looks) else math.nan,
        }
