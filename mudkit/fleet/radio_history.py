"""What a device's radio did from the beginning to now, from what was recorded of its transfers and links."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mudkit.errors import ParameterError
from mudkit.fleet.device import Device
from mudkit.fleet.energy import RADIOS
from mudkit.fleet.recorder import Recorder
from mudkit.fleet.timeline import Carried, Stretch, timeline
from mudkit.trace.schema import epoch_us

__all__ = ["radio_stretches"]


def radio_stretches(recorder: Recorder, device: Device) -> list[Stretch]:
    """Give the stretches of a device's radio without a gap, over all networks that it has had.

    Raises
    ------
    ParameterError
        Transfers were not recorded.
    """
    world, start_us = recorder.world, recorder.start_us
    if world.on_leg is None:
        raise ParameterError(
            "This lab does not record transfers.", remedy="make it with Lab(…, record_messages=True)"
        )
    rows = _rows(recorder.table("transfers"), "device", device.name)
    times = (epoch_us(rows[name]) - start_us for name in ("begun", "started", "ended"))
    ways, sizes = rows["direction"].to_pylist(), rows["carried_bytes"].to_pylist()
    carried = [Carried(*row) for row in zip(ways, *(each.tolist() for each in times), sizes, strict=True)]
    carried += device.link.carried_so_far(world.now_us)
    down = _rows(_rows(recorder.table("incidents"), "device", device.name), "incident", "link down")
    downs_us = np.asarray(epoch_us(down["ts"]) - start_us)
    stretches: list[Stretch] = []
    profiles = [*device.link.profiles, (world.now_us, device.link.profile)]
    for (from_us, profile), (until_us, _) in pairwise(profiles):
        then = [each for each in carried if from_us <= each.begun_us < max(until_us, from_us + 1)]
        downs = downs_us[(downs_us >= from_us) & (downs_us <= until_us)].tolist()
        stretches += timeline(RADIOS[profile.name], then, downs, until_us, from_us)
    return stretches


def _rows(table: pa.Table, column: str, value: str) -> pa.Table:
    return table.filter(pc.equal(table[column], value))
