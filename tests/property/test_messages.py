"""Typed messages: every message of a system is a struct that round-trips through its wire form."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest

from mudkit.events import Received, size_bytes
from mudkit.experiment import ADAPTERS, TASKS, run
from mudkit.fleet.kernel import World
from mudkit.sources.outages import Outages
from mudkit.sources.workloads import Poisson
from mudkit.wire import as_wire
from mudkit.worlds import Inboxes

TASK = TASKS["friends nearby"].over(devices=5, hours=0.3)


@pytest.fixture
def received(monkeypatch: Any) -> list[Any]:
    """Record all messages that machines receive, with their systems."""
    messages: list[Any] = []
    handle = World._handle

    def record_and_handle(self: World, process: Any, event: Any) -> None:
        if type(event) is Received:
            messages.append((process.system, event.message))
        handle(self, process, event)

    monkeypatch.setattr(World, "_handle", record_and_handle)
    return messages


def check_round_trip(messages: list[Any]) -> Counter[str]:
    """Check that messages round-trip through mappings of the same size; return the counts of their kinds."""
    kinds: Counter[str] = Counter()
    for system, message in messages:
        if isinstance(message, bytes):  # of Radiator, which decodes them by type
            continue
        assert isinstance(message, msgspec.Struct), f"{system}: {message!r}"
        wire = as_wire(message)
        decoded = msgspec.convert(wire, type(message))
        assert as_wire(decoded) == wire
        assert size_bytes(message) == size_bytes(wire)
        kinds[wire["kind"]] += 1
    return kinds


@pytest.mark.parametrize("system", ADAPTERS)
def test_messages_of_each_system_round_trip(system: str, received: list[Any]) -> None:
    run(TASK, ADAPTERS[system], seed=3)
    kinds = check_round_trip(received)
    assert kinds or all(isinstance(message, bytes) for _, message in received)


def test_messages_sent_because_of_faults_round_trip(received: list[Any]) -> None:
    plan = Inboxes(
        devices=5, hours=2.0, outage=Outages(0.3, per_day=200), items=Poisson(per_day=400), loss_share=0.2
    )
    plan.run(4)
    assert set(check_round_trip(received)) >= {
        "send",
        "accepted",
        "missing",
        "deliver",
        "delivered",
        "hello",
        "welcome",
    }
