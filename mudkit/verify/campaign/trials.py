"""Trials: a fault on its own, and a bound that holds while no other fault is in effect.

A trial is a fault like the others, at any time of a run. It is judged only if nothing else was wrong before
and after it: then a rogue machine without the app's token must neither be welcomed nor delay a notification,
and a slow link or many continuous reads must take a number of requests in the order of the operations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from mudkit.events import Effect, Event, LinkUp, Ports, Received, Send, SetTimer, TimerFired
from mudkit.lab import Lab
from mudkit.systems.mud import Client, Cloud
from mudkit.systems.mud.messages.parts import range_index
from mudkit.verify.campaign.faults import READS_AT_ONCE, ROGUE, SLOW_LINK, FaultInjector
from mudkit.verify.campaign.observers import ObservedHost
from mudkit.verify.campaign.work import APP, MAIN, Watch, Work
from mudkit.wire import as_wire

MAX_NOTIFIED_S: Final = 180.0
"""Time, in seconds, within which a change is notified while a rogue machine sends messages."""
MAX_TIMES: Final = 8
"""Transmissions of a request over a slow link, on average, at most, where answers may wait for two minutes
behind what is pushed: their timeout does not grow."""
MAX_REGISTRATIONS: Final = 5
"""Registrations of each of many continuous reads in one session at most, on average: the first, and one each
for a restart of the back end, a processor's new life, a new address, and lost or slow messages."""
MAX_SESSIONS: Final = 3
"""Sessions in which they are registered at most: the one that an earlier fault has ended, the next one, and
one after the trial's fault."""
_READS: Final = 20
_OPERATIONS: Final = 30
_PADDING: Final = "x" * 1000
_KEY: Final = "trial"
_SERVER: Final = "its notification server"


@dataclass
class Rogue:
    """Machine that says hello in the name of a client without a token of its app, and what it has heard.

    It is created again when its host restarts; it says hello until ``until_us``.
    """

    endpoint: str
    incarnation: str
    servers: Sequence[str]
    session: str | None
    tokens: Mapping[str, str] | None
    """Tokens in its hellos; None: it sends heartbeats without the field."""
    every_us: int
    until_us: int
    heard: list[str] = field(default_factory=list)
    _seq: int = 0

    def make(self, ports: Ports) -> Rogue:
        """Return this machine, whatever the host."""
        return self

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """Send hellos until ``until_us``, record what servers send, answer challenges and confirm streams."""
        match event:
            case LinkUp() | TimerFired() if now_us < self.until_us:
                hellos = [Send(server, self._build_hello()) for server in self.servers]
                return [*hellos, SetTimer(ROGUE, self.every_us)]
            case Received(source=source, message=message):
                fields = as_wire(message)
                if fields.get("incarnation", self.incarnation) != self.incarnation:
                    return ()  # a late welcome of a machine that had this address before
                self.heard.append(fields["kind"])
                if "nonce" in fields:
                    return (Send(source, self._build_hello(nonce=fields["nonce"])),)
                if fields["kind"] == "stream":
                    ack = {"kind": "confirmed", "stream": fields["stream"], "number": fields["number"]}
                    return (Send(source, ack),)
        return ()

    def _build_hello(self, **more: Any) -> dict[str, Any]:
        """Build the next hello: each has a ``seq`` of its own. ``more`` are further fields."""
        self._seq += 1
        hello = {
            "kind": "hello", "endpoint": self.endpoint, "session": self.session, "policies": {},
            "is_new": self.tokens is not None, "incarnation": self.incarnation, "seq": self._seq, **more,
        }  # fmt: skip
        return hello if self.tokens is None else {**hello, "tokens": self.tokens}


class Trials:
    """Trials of one run.

    ``is_well`` returns whether a client, the network and the cloud are without other faults, and
    ``rolled_back_us`` has the hosts that were wiped or restored. ``writers`` are the clients whose writes
    are not delayed.
    """

    def __init__(
        self, lab: Lab, cloud: Cloud, clients: Mapping[str, Client], work: Work, faults: FaultInjector,
        hosts: Mapping[str, ObservedHost], writers: Sequence[str], is_well: Callable[[str], bool],
        rolled_back_us: Mapping[str, int], draw: Random,
    ) -> None:  # fmt: skip
        self._lab, self._cloud, self._clients, self._work = lab, cloud, clients, work
        self._faults, self._hosts = faults, hosts
        self._writers, self._is_well = writers, is_well
        self._rolled_back_us = rolled_back_us
        self._draw = draw
        self._rogues = 0
        self.counts: Counter[str] = Counter()
        """Number of judged trials of each kind."""
        self.problems: list[str] = []

    def begin(self, kind: str) -> None:
        """Begin a trial of a kind, and judge it if nothing else was wrong.

        Each trial returns its problem: empty, if there is none, or None, if it cannot be judged.
        """
        name = self._draw.choice(list(self._clients))
        before = dict(self._rolled_back_us)
        is_judged = self._is_well(name)
        trial = {
            ROGUE: self._try_rogue,
            SLOW_LINK: self._try_slow_link,
            READS_AT_ONCE: self._try_reads_at_once,
        }[kind]
        problem = trial(name, is_judged=is_judged)
        if is_judged and problem is not None and self._is_well(name) and self._rolled_back_us == before:
            self.counts[f"{kind}, judged"] += 1
            self.problems += [problem] if problem else []

    # -- kinds: each returns the problem, "" if there is none, and None if the trial cannot be judged

    def _try_rogue(self, name: str, *, is_judged: bool) -> str | None:
        """Install a machine that says hello without the token; return the problem (:meth:`begin`)."""
        draw, world = self._draw, self._lab.world
        others = [other for other in self._clients if other != name]
        on = draw.choice(others) if others and draw.random() < 0.2 else name
        other_app = self._lab.token("eve", "another app")
        minutes = draw.choice([1.0, 5.0, 10.0])
        self._rogues += 1
        rogue = Rogue(
            f"{name}/{APP}",
            f"rog{self._rogues:02d}",
            self._cloud.notification_servers,
            draw.choice([None, "a session"]),
            draw.choice([None, {}, {APP: other_app}, {APP: "no token"}]),
            round(draw.choice([0.5, 5.0, 20.0]) * 1e6),
            world.now_us + round(minutes * 60e6),
        )
        watch = self._watch(name) if is_judged else None
        is_known = watch is not None and self._is_notified(watch)
        rogue.until_us = world.now_us + round(minutes * 60e6)
        self._faults.begin_rogue(on, rogue.make, minutes)
        if not is_known or watch is None:
            return None
        self._lab.run(seconds=draw.choice([0.0, 1.0, 20.0]))
        if draw.random() < 0.5:
            servers = self._cloud.notification_servers
            self._restart(servers[range_index(name, len(servers))].split("/")[0])
        is_notified = self._is_notified(watch)
        self._end(name, watch.operation)
        watch.is_on = False
        if "welcome" in rogue.heard:
            return f"a machine without a token has begun a session of {name}"
        if is_notified is None:
            return None
        return "" if is_notified else f"{name} was not notified while a machine without a token said hello"

    def _try_slow_link(self, name: str, *, is_judged: bool) -> str | None:
        """Limit the link of a client to 1 kB/s while it works; return the problem (:meth:`begin`)."""
        minutes = self._draw.choice([2.0, 5.0, 10.0])
        before = self._hosts[name].requests.copy()
        self._faults.begin_slow_link(name, minutes)
        for number in range(_OPERATIONS if is_judged else 3):
            if number % 3:
                self._work.act(name)
            else:
                self._work.write(name, padding=_PADDING)
        if not is_judged:
            return None
        self._lab.run(minutes=minutes)
        sent = self._hosts[name].requests - before
        if sent.total() <= MAX_TIMES * len(sent):
            return ""
        return f"{name} has sent {len(sent)} requests {sent.total()} times over a slow link"

    def _try_reads_at_once(self, name: str, *, is_judged: bool) -> str | None:
        """Begin many continuous reads at once, and end their session; return the problem (:meth:`begin`)."""
        draw, faults, client = self._draw, self._lab.faults, self._clients[name]
        before = self._hosts[name].registrations.copy()
        self._faults.begin_reads_at_once()
        reads = [client.read(MAIN, f"n > {100 + number}", "continuous") for number in range(_READS)]
        self._lab.run(seconds=draw.choice([0.0, 0.1, 1.0, 10.0]))
        event = draw.choice(["none", "killed", "address", _SERVER])
        if event == "killed":
            self._restart(name)
        elif event == "address":
            faults.change_address(name)
        elif event == _SERVER:
            servers = self._cloud.notification_servers
            self._restart(servers[range_index(name, len(servers))].split("/")[0])
        if is_judged:
            self._lab.run(minutes=5)
        sent = self._hosts[name].registrations - before
        for read in reads:
            self._end(name, read)
        counts = Counter(session for session, _ in sent)
        """Number of continuous reads registered in each session."""
        if len(counts) > MAX_SESSIONS:
            return f"{name} has sent {sent.total()} registrations of its reads in {len(counts)} sessions"
        for session, count in counts.items():
            times = sum(number for (other, _), number in sent.items() if other == session)
            if times > MAX_REGISTRATIONS * count:
                return f"{name} has sent {times} registrations of {count} continuous reads in a session"
        return ""

    # -- parts

    def _restart(self, host: str) -> None:
        """Kill a host, and restart it after a moment; no effect on one that is to be replaced."""
        if self._faults.is_dead(host):
            return
        self._lab.faults.kill(host)
        self._lab.run(seconds=self._draw.choice([0.1, 5.0]))
        self._lab.faults.restart(host)

    def _watch(self, name: str) -> Watch:
        """Start a continuous read of the key of trials."""
        return self._work.watch(name, key=_KEY)

    def _is_notified(self, watch: Watch) -> bool | None:
        """Write a record, and return whether a continuous read is notified in time.

        None: nobody can write, or the writer's token has expired before the write arrived.
        """
        writers = [name for name in self._writers if self._is_well(name)]
        if not writers:
            return None
        writer = self._draw.choice(writers)
        self._work.write(writer, key=_KEY, is_open=True)
        value = self._work.writes[-1].value
        end_us = self._lab.world.now_us + MAX_NOTIFIED_S * 1e6
        while self._lab.world.now_us < end_us:
            if any(_value_of(change) == value for change in watch.notified):
                return True
            self._lab.run(seconds=5)
        return False if self._is_well(writer) else None

    def _end(self, name: str, operation: Any) -> None:
        """End a continuous read as soon as it is registered."""

        def unregister(operation: Any) -> None:
            if operation.status == "ok":
                self._clients[name].unregister(operation.result())

        operation.add_done_callback(unregister)


def _value_of(change: Any) -> Any:
    """Return the value of a record that a continuous read was told; None: it was removed."""
    record = getattr(change, "record", None)
    return None if record is None else record.get("v")
