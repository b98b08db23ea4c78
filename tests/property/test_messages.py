"""Messages have types: what a system sends is a struct, and survives its way as one."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest

from mudkit.events import Received, size_bytes
from mudkit.experiment import ADAPTERS, TASKS, Scenario, StoreAndForward, run
from mudkit.fleet.kernel import World
from mudkit.sources.outages import Outages
from mudkit.sources.workloads import Poisson
from mudkit.wire import as_wire

TASK = TASKS["friends nearby"].over(devices=5, hours=0.3)


@pytest.fixture
def received(monkeypatch: Any) -> list[Any]:
    """Give all messages that machines receive, with the systems that they are of."""
    messages: list[Any] = []
    handle = World._handle

    def listening(self: World, process: Any, event: Any) -> None:
        if type(event) is Received:
            messages.append((process.system, event.message))
        handle(self, process, event)

    monkeypatch.setattr(World, "_handle", listening)
    return messages


def survive(messages: list[Any]) -> Counter[str]:
    """Hold that each is the same after it was made a mapping and read again, and has as many bytes."""
    kinds: Counter[str] = Counter()
    for system, message in messages:
        if isinstance(message, bytes):  # Radiator's, which reads them by their types
            continue
        assert isinstance(message, msgspec.Struct), f"{system}: {message!r}"
        wire = as_wire(message)
        again = msgspec.convert(wire, type(message))
        assert as_wire(again) == wire
        assert size_bytes(message) == size_bytes(wire)
        kinds[wire["kind"]] += 1
    return kinds


@pytest.mark.parametrize("system", ADAPTERS)
def test_every_message_of_a_system_survives_its_way(system: str, received: list[Any]) -> None:
    run(TASK, ADAPTERS[system], seed=3)
    kinds = survive(received)
    assert kinds or all(isinstance(message, bytes) for _, message in received)


def test_so_does_every_message_that_faults_make_necessary(received: list[Any]) -> None:
    scenario = Scenario(
        devices=5, hours=2.0, outage=Outages(0.3, per_day=200), items=Poisson(per_day=400), loss_share=0.2
    )
    run(scenario, StoreAndForward, 4)
    assert set(survive(received)) >= {
        "send",
        "accepted",
        "missing",
        "deliver",
        "delivered",
        "hello",
        "welcome",
    }
