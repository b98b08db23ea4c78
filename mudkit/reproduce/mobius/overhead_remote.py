"""M3, over a network, in virtual time: what MUD adds to a request, and what a connection a request costs.

The peer is the least that does the same: a device sends one message with the same record or key, a server
answers with the version or the record at once, over the same links with the same seeds and think times. It
keeps its connection; on top of it MUD's messages carry envelope, token and what the client has seen, go from
the gateway to the store and back over servers half a millisecond apart, and a read ends with a message of its
own.

The paper's baseline opens a connection for each request: before it, there are round trips of their own, as
messages of about the sizes that RFC 9293, RFC 8446 and RFC 5246 lead to. One is TCP alone, as under the plain
HTTP of the paper; two are TCP and TLS 1.3, which a service would have now; three are TCP and TLS 1.2, of the
paper's time. MUD has to be faster than the first, the fastest. Its own connection is there for as long as the
link is: messages need no handshake. What opening the radio takes is charged by the link to whoever sends
first after a pause, to both alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import fmean
from typing import Any, Final

import numpy as np

from mudkit.events import Call, Complete, Effect, Event, Operation, Ports, Received, Send, size_bytes
from mudkit.fleet.kernel import raise_failure
from mudkit.lab import Lab
from mudkit.reproduce.mobius.overhead_local import Record, drawn
from mudkit.reproduce.row import Figure, Say, say_nothing
from mudkit.sources.streams import Stream
from mudkit.systems.mud import Client, Cloud

__all__ = ["HANDSHAKES", "remote"]

HANDSHAKES: Final[dict[str, tuple[tuple[int, int], ...]]] = {
    "TCP": ((60, 60),),
    "TCP and TLS 1.3": ((60, 60), (330, 3000)),
    "TCP and TLS 1.2": ((60, 60), (250, 3200), (330, 90)),
}
"""Bytes there and back of each round trip before the request can be sent, by what is opened."""

_THINK_S: Final = (1.0, 9.0)
_TABLE: Final = "news"


class _Asker:
    """Asks a server: first the round trips of its connection, then the request.

    Parameters
    ----------
    trips : sequence of (int, int)
        The bytes there and back of each round trip.
    """

    def __init__(self, trips: Sequence[tuple[int, int]]) -> None:
        self._trips = trips
        self._left: Iterator[tuple[int, int]] = iter(())
        self._call = Call(0, "", {})

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        if isinstance(event, Call):
            self._call, self._left = event, iter(self._trips)
            return self._go_on()
        if isinstance(event, Received):
            return self._go_on() if "of" in event.message else (Complete(self._call.op_id, event.message),)
        return ()

    def _go_on(self) -> Sequence[Effect]:
        trip = next(self._left, None)
        if trip is None:
            return (Send("server", {"op": self._call.operation, **self._call.arguments}),)
        there, back = trip
        return (Send("server", _of_size(there, {"back": back})),)


class _Answerer:
    """Keeps records by key, and answers at once."""

    def __init__(self, ports: Ports) -> None:
        self._records: dict[str, tuple[int, Record]] = {}

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        if not isinstance(event, Received):
            return ()
        message = event.message
        if "back" in message:
            return (Send(event.source, _of_size(message["back"], {"of": "trip"})),)
        version, record = self._records.get(message["key"], (0, {}))
        if message["op"] == "read":
            return (Send(event.source, {"key": message["key"], "ver": version, "record": record}),)
        self._records[message["key"]] = version + 1, message["record"]
        return (Send(event.source, {"ver": version + 1}),)


def _of_size(many: int, message: dict[str, Any]) -> dict[str, Any]:
    """Give a message of so many bytes."""
    padded = {**message, "": ""}
    return padded | {"": "x" * max(0, many - size_bytes(padded))}


def _mud(lab: Lab, link: str) -> Callable[[str, str, Record], Operation]:
    client = Client(
        lab.device("phone", link), Cloud(lab), app="news", token=lab.token("jane", "news", hours=1e6)
    )
    client.create(_TABLE).result()

    def ask(what: str, key: str, record: Record) -> Operation:
        return client.write(_TABLE, key, record) if what == "write" else client.read(_TABLE, f"key = '{key}'")

    return ask


def _bare(lab: Lab, link: str, trips: Sequence[tuple[int, int]]) -> Callable[[str, str, Record], Operation]:
    lab.server("server").install("bare", _Answerer)
    asker = lab.device("phone", link).install("bare", lambda ports: _Asker(trips))

    def ask(what: str, key: str, record: Record) -> Operation:
        sent = {"record": record} if what == "write" else {}
        return asker.call(what, table=_TABLE, key=key, **sent)

    return ask


def latencies_ms(
    make: Callable[[Lab], Callable[[str, str, Record], Operation]], requests: int, seed: int
) -> dict[str, float]:
    """Give the mean latency of writes, and of reads of what was written, in virtual ms."""
    lab = Lab(seed, record_messages=False)
    lab.world.on_failure = raise_failure
    ask = make(lab)
    ask("write", *drawn(2, seed)[0]).result()  # the radio is open, as it is for who has set up a client
    means_ms: dict[str, float] = {}
    low_s, high_s = _THINK_S
    think = Stream(seed, "think times")
    for number, what in enumerate(("write", "read")):
        wait_s = low_s + (high_s - low_s) * think.uniform(number, np.arange(requests))
        taken_us = []
        for (key, record), s in zip(drawn(requests, seed), wait_s, strict=True):
            lab.run(seconds=float(s))
            began_us = lab.world.now_us
            ask(what, key, record).result()
            taken_us.append(lab.world.now_us - began_us)
        means_ms[what] = fmean(taken_us) / 1000
    return means_ms


def remote(
    say: Say = say_nothing, *, requests: int = 500, seeds: Sequence[int] = (1, 2, 3, 4, 5)
) -> tuple[dict[str, Figure], dict[str, Any]]:
    """Measure the remote part of row M3.

    Parameters
    ----------
    say : callable
        Called with a sentence about what is measured next.
    requests : int
        How many requests of each kind are measured for a system, link and seed.
    seeds : sequence of int
        The seeds of the runs; figures are over all of them.

    Returns
    -------
    figures, parameters : dict
    """
    figures: dict[str, Figure] = {}
    for link, name in (("lte", "LTE"), ("umts_3g", "3G")):
        makes = {"MUD": _maker(_mud, link), "bare": _maker(_bare, link, ())}
        if link == "umts_3g":
            makes |= {peer: _maker(_bare, link, trips) for peer, trips in HANDSHAKES.items()}
        by_peer: dict[str, list[dict[str, float]]] = {}
        for peer, make in makes.items():
            say(f"{2 * requests:,} requests over {name}, {peer}, {len(seeds)} seeds")
            by_peer[peer] = [latencies_ms(make, requests, seed) for seed in seeds]
        for what in ("write", "read"):
            ours = [each[what] for each in by_peer["MUD"]]
            for peer, theirs in by_peer.items():
                figures[f"ms, {what}, {name}, {peer}"] = Figure.of(each[what] for each in theirs)
                ratios = [mine / each[what] for mine, each in zip(ours, theirs, strict=True)]
                if peer == "bare":
                    figures[f"% over bare, {what}, {name}"] = Figure.of(100 * (r - 1) for r in ratios)
                elif peer != "MUD":
                    figures[f"times the baseline's time, {what}, {name}, {peer}"] = Figure.of(ratios)
    parameters = {
        "over a network": f"the mean of {requests} requests in virtual time, think times of {_THINK_S[0]:g} "
        f"to {_THINK_S[1]:g} s, without losses; bare: one message and its answer over a connection that is "
        "open; baseline: one that is opened for each request, by what is opened",
    }
    return figures, parameters


def _maker(make: Callable[..., Any], *given: Any) -> Callable[[Lab], Any]:
    return lambda lab: make(lab, *given)
