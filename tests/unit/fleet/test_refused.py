"""Refusal of invalid calls of a lab."""

from __future__ import annotations

from math import inf, nan

import pytest
from fleet_machines import Puppet
from lab_systems import install_answering

from mudkit import Lab
from mudkit.errors import ParameterError

HERE, THERE = (30.0, -97.0), (31.0, -98.0)


@pytest.fixture
def lab():
    lab = Lab(seed=1)
    install_answering(lab.device("ann", at=HERE))
    lab.device("walker", mobility="waypoint")
    lab.device("powered", battery_j=10.0)
    lab.device("plain")
    lab.server("server")
    return lab


def move(*place):
    return lambda lab: lab.devices["ann"].move(*place)


def change(name, **context):
    return lambda lab: lab.devices[name].change_context(age=3, **context)


def add(**options):
    return lambda lab: lab.device("eve", **options)


def inject(method, *arguments, **options):
    return lambda lab: getattr(lab.faults, method)(*arguments, **options)


INVALID_CALLS = [
    (move(91.0, 0.0), "no place"), (move(0.0, "east"), "lon of Device.move"), (move(nan, 0.0), "lat of Device.move"),
    (lambda lab: lab.devices["walker"].move(*THERE), "at="),
    (change("walker", loc=THERE), "its mobility"), (change("ann", loc=1), "device.move"),
    (change("powered", battery_share=1), "battery_j"), (change("plain", bandwidth_kbps=1), "LinkReplay"),
    *((add(**options), "sets this field itself") for options in (
        {"at": HERE, "loc": THERE}, {"mobility": "waypoint", "loc": THERE}, {"battery_j": 9.0, "battery_share": 0.1},
    )),
    *((add(battery_j=battery_j, base_mw=base_mw), "not usable") for battery_j, base_mw in (
        (0, 1), (-1, 1), (nan, 1), ("9", 1), (9, -1), (9, None),
    )),
    (inject("cut", "eve"), "no such device"), (inject("cut", "server"), "no link"),
    *((inject("cut", "ann", minutes=minutes), "not usable") for minutes in (-1, nan, "x")),
    (inject("messages", loss_share=1.2), "from 0 to 1"), (inject("messages", loss_share="x"), "a number"),
    (inject("messages", delay_share=1, delay_s=-3), "not usable"), (inject("messages", delay_share=1), "need a delay"),
    (inject("kill", "eve"), "no such device"),
    (inject("cut", "serve"), r"(?s)where: +device\s+found: +'serve'.*did you mean 'server'"),
    (inject("kill", "xyz"), r"(?s)where: +host.*add it first: lab\.device"),
    (lambda lab: lab.world.add_device("eve", "5g"), "no such kind of link"),
    (lambda lab: lab.world.add_device("ann"), "of this name"),
    (lambda lab: lab.world.schedule_action(-1, print), "in the past"),
    (lambda lab: lab.devices["ann"].install("again", Puppet), "at this address"),
    *((lambda lab, timeout_s=timeout_s: lab.devices["ann"].processes[0].call("never").result(timeout_s), "timeout_s")
      for timeout_s in (0, -1, nan, inf, "60", None, 1e18)),
    (lambda lab: lab.trace.table("postions"), "positions, reads, links"),
    (lambda lab: lab.trace.table("rejected"), "no such table"),
    (lambda lab: lab.exposure(), "record_exposure=True"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "problem"), INVALID_CALLS)
def test_invalid_calls_are_refused_without_effect(lab, call, problem):
    before = {name: (device.loc, dict(device.context)) for name, device in lab.devices.items()}
    with pytest.raises(ParameterError, match=problem):
        call(lab)
    assert {name: (device.loc, dict(device.context)) for name, device in lab.devices.items()} == before
    assert lab.world.now_us == 0
