"""Sender of a stream: what it measures of its items."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from mudkit.systems.mud.servers import stream_sender
from mudkit.systems.mud.servers.stream_sender import StreamSender


@pytest.mark.parametrize("us_per_byte", [0, 400])
def test_items_are_measured_only_if_their_size_counts(monkeypatch, us_per_byte):
    size_bytes = Mock(return_value=100)
    monkeypatch.setattr(stream_sender, "size_bytes", size_bytes)
    sender = StreamSender("stream", "receiver", "address", us_per_byte=us_per_byte)
    effects = sender.send(0, "body")
    assert effects[0].message.body == "body"
    assert effects[1].delay_us == 5_000_000 + 100 * us_per_byte
    assert size_bytes.call_count == (us_per_byte > 0)
