"""Records of the ledger of deliveries."""

from __future__ import annotations

from mudkit.delivery.records import delivery
from mudkit.events import Record


def test_delivery_record_contains_only_known_times() -> None:
    assert delivery("a 1", "bob", created_us=0) == Record(
        "deliveries", {"item": "a 1", "receiver": "bob", "created_us": 0}
    )
    times = {"delivered_us": 1, "read_us": 2, "expired_us": 3, "refused_us": 4}
    assert delivery("a 1", "bob", **times).row == {"item": "a 1", "receiver": "bob", **times}
