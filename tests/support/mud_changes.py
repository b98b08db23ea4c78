"""Processor with many records and one continuous read, for measures of what changes of these records cost."""

from __future__ import annotations

from random import Random

from msgspec import UNSET
from mud_machines import ports

from mudkit.delivery.stream import StreamAck, StreamItem
from mudkit.events import LinkUp, Received, Send, size_bytes
from mudkit.systems.mud.messages.parts import Row
from mudkit.systems.mud.messages.requests import RegisterRequest
from mudkit.systems.mud.messages.servers import Log, Route, Routed, RowEntry, TablesState, Verified
from mudkit.systems.mud.servers.processor import Processor
from mudkit.systems.mud.tables.records import SentPredicate
from mudkit.systems.mud.tables.table import Table

SERVER = "server"


class WatchedRecords:
    """Processor of a table of records of 100 characters with a number each, and its reader."""

    def __init__(self, count, selection=None):
        self.draw, self.lsn = Random(3), count + 1
        self.versions = [1] * count
        self.processor = Processor(ports("me"), ["me"], ["master"], [], ["gateway"], [SERVER], "naming")
        self.processor.handle(0, LinkUp("me", "server"))
        table = Table("t", "news", acl="public", number=1, lsn=1)
        rows = [("t", self.draw_row(number, number + 2)) for number in range(count)]
        self.take(Received("master", TablesState(bytes(8).hex(), self.lsn, [table], rows)))
        registration = RegisterRequest(
            name="t", handle="first 1", reader={}, data_seq=1, request=1, session="s", table=None,
            predicate=SentPredicate("TRUE", [True]), since_lsns={}, delivered=[], sync_us=0,
            selection=UNSET if selection is None else selection,
        )  # fmt: skip
        route = Route(reply="gateway", table=1, partitions=[0])
        verified = Verified(endpoint="jane/news", address="jane@1", claims=None)
        registered = self.take(Received("gateway", Routed("i", registration, route, verified)))
        answer = Log([], nonce=bytes(4).hex(), after_lsn=self.lsn, through_lsn=self.lsn)
        synced = self.take(Received("master", answer))
        self.first = registered[0] + synced[0], registered[1] + synced[1]

    def draw_row(self, number, lsn):
        """Return a version of a record with a random number."""
        data = {"n": self.draw.random(), "text": "x" * 100}
        return Row(f"k{number}", self.versions[number], data, None, 0, lsn)

    def draw_changes(self, count):
        """Return messages of the log with a change of a random record each."""
        events = []
        for _ in range(count):
            number = self.draw.randrange(len(self.versions))
            self.versions[number] += 1
            self.lsn += 1
            entry = RowEntry(self.lsn, "t", self.draw_row(number, self.lsn))
            events.append(Received("master", Log([entry])))
        return events

    def take(self, *events):
        """Handle events; return the number of messages to the reader's device, and their bytes."""
        messages = bytes_sent = 0
        for event in events:
            for effect in self.processor.handle(0, event):
                if isinstance(effect, Send) and isinstance(effect.message, StreamItem):
                    item = effect.message
                    messages, bytes_sent = messages + 1, bytes_sent + size_bytes(item)
                    self.processor.handle(0, Received(SERVER, StreamAck(item.stream, item.seq)))
        return messages, bytes_sent
