"""Queue of a device: restoring and bounds."""

from __future__ import annotations

from mudkit.fleet.store import MemoryStore
from mudkit.systems.lasthop.device.queue import DeviceQueue


def test_queue_is_restored_from_its_store():
    store = MemoryStore()
    queue = DeviceQueue(store, 100)
    for number, rank in enumerate((0.5, 0.9, 0.5, 0.1)):
        queue.put("news", f"m{number}", rank, number, None if number else 5, {"text": "x"})
    queue.rerank("news", "m3", 0.7)
    queue.rerank("news", "never was", 0.7)
    assert queue.remove("news", "never was") is None
    restored = DeviceQueue(store, 2)
    assert len(restored) == len(queue) == 4
    assert ("news", "m1") in restored
    assert restored.make_room() == [("news", "m2"), ("news", "m0")]
    assert [identity for identity, *_ in restored.take("news", 5)] == ["m1", "m3"]
    assert store.items() == []
    queue.expire(5)
    assert queue.ranks("news") == {"m1": 0.9, "m2": 0.5, "m3": 0.7}


def test_removed_entries_of_a_queue_are_bounded():
    queue = DeviceQueue(MemoryStore(), 10)
    for number in range(5000):
        queue.put("news", f"m{number}", number % 97, number, number + 1000, {})
        queue.make_room()
    assert len(queue) == 10
    assert len(queue._lowest) + len(queue._expiries) + len(queue._queues["news"]._heap) < 400
