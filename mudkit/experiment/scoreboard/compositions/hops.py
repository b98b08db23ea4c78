"""Hops: systems as pieces of a chain, each between where something enters it and where it comes out.

Between two hops of a chain stands a desk for each phone, a server of its own: the first system's client runs
there, and hands what comes to the second system. So each machine is used as its own paper has it, and knows
nothing of the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from mudkit.events import Host, Operation
from mudkit.experiment.scoreboard.compositions.meaning import RULES, meant_by
from mudkit.experiment.scoreboard.entrants.sublim import as_state, not_wanted
from mudkit.experiment.scoreboard.entrants.uplink import Uplink
from mudkit.experiment.scoreboard.task import Item
from mudkit.experiment.scoreboard.testbed import Testbed
from mudkit.systems.contrail import Item as Sealed
from mudkit.systems.contrail import Module, Relay
from mudkit.systems.lasthop import Publications, Subscription
from mudkit.systems.lasthop import Subscriber as Reader
from mudkit.systems.mud import Change, Client, Cloud
from mudkit.systems.radiator import Client as Peer
from mudkit.systems.radiator import Context, Server
from mudkit.systems.radiator.aggregation.thresholds import Threshold, Time
from mudkit.systems.sublim import AccessPoint, Policy, PublishServer, Rule, Subscriber
from mudkit.systems.sublim.policy.actions import Drop

__all__ = [
    "Came",
    "ContrailHop",
    "Hop",
    "LastHopHop",
    "MakeHop",
    "MudHop",
    "Parcel",
    "RadiatorHop",
    "SublimHop",
    "Way",
]

Parcel: TypeAlias = tuple[Item, ...]
"""What travels together: one item, or those of an aggregate."""
Came: TypeAlias = Callable[[str, Parcel], None]
"""Told for whom something has come out, and what."""

_PORT: Final = "board"
_HALF_AN_HOUR: Final = Time(1800.0)
_SPARE_H: Final = 24.0
_OPEN_MS: Final = 3_600_000.0
"""Of Contrail's connections: they stay open, so that what comes, comes at once, as in the other systems."""


class Way(NamedTuple):
    """From where to where a hop goes.

    Parameters
    ----------
    stage : Testbed
    sources, ends : mapping of str to Host
        Where it enters, by sender (of a second hop, by phone), and where it comes out, by phone.
    is_first : bool
        A first hop takes what is for everybody; a second one what the first has let through for one phone.
    """

    stage: Testbed
    sources: Mapping[str, Host]
    ends: Mapping[str, Host]
    is_first: bool


class Hop(Protocol):
    """A system in a chain.

    Attributes
    ----------
    listens : bool
        Whether it matters to it what phones say of themselves.
    """

    listens: bool

    def send(self, source: str, parcel: Parcel) -> None:
        """Take something in; of a second hop, the source is the phone that it is for."""
        ...

    def moved(self, phone: str, about: Mapping[str, Any]) -> None:
        """Take note of what a phone says of itself now."""
        ...

    def look(self, phone: str) -> None:
        """Show the user of a phone what has come; what waits until she looks, comes first."""
        ...


MakeHop: TypeAlias = Callable[[Way, Came], Hop]


class _Way:
    """What all hops have: what is under way, by name. The text travels; the rest of an item is in the lab."""

    def __init__(self, way: Way, came: Came) -> None:
        self._way, self._came = way, came
        self.listens = False
        self._under_way: dict[str, Parcel] = {}

    def moved(self, phone: str, about: Mapping[str, Any]) -> None:
        """Nobody here needs to know."""

    def look(self, phone: str) -> None:
        """Show what has come: nothing waits for her to look."""
        self._way.stage.show(phone)

    def _note(self, parcel: Parcel) -> str:
        name = " + ".join(item.name for item in parcel)
        self._under_way[name] = parcel
        return name

    def _to(self, source: str) -> Sequence[str]:
        return [each for each in self._way.ends if each != source] if self._way.is_first else [source]

    def _out(self, phone: str, name: str) -> None:
        self._came(phone, self._under_way[name])


def _text(parcel: Parcel) -> str:
    return "".join(item.content for item in parcel)


class MudHop(_Way):
    """MUD: the writer's predicate, bound when it is written, and a continuous read for each phone.

    Parameters
    ----------
    way : Way
    came : callable
    of_several : {'all', 'any', 'each'}
        Whom an aggregate is for: those whom all its writers mean, or any of them; or each of its items is
        written on its own.
    """

    def __init__(self, way: Way, came: Came, of_several: str = RULES[0]) -> None:
        super().__init__(way, came)
        self._rule = of_several
        self.listens = True
        stage = way.stage
        cloud = Cloud(stage.lab)
        token = stage.lab.token(app="board", hours=stage.task.scenario.hours + _SPARE_H)
        client = partial(Client, cloud=cloud, app="board", token=token, most_rows=1)
        self._writers = {name: client(host) for name, host in way.sources.items()}
        self._readers = {phone: client(host) for phone, host in way.ends.items()}
        self._handles: dict[str, int] = {}
        client(stage.lab.server("editor")).create("items", acl="app").add_done_callback(self._begin)

    def send(self, source: str, parcel: Parcel) -> None:
        """Write it."""
        to = None if self._way.is_first else source
        for each in [(item,) for item in parcel] if self._rule == "each" else [parcel]:
            predicate = meant_by(self._way.stage.task.want, each, self._rule, to)
            key = self._note(each) if to is None else f"{to}: {self._note(each)}"
            self._writers[source].write("items", key, {"text": _text(each)}, predicate=predicate)

    def moved(self, phone: str, about: Mapping[str, Any]) -> None:
        """Give its continuous read what it says of itself now."""
        if phone in self._handles:
            self._readers[phone].update_data(self._handles[phone], {**about, "name": phone})

    def _begin(self, created: Operation) -> None:
        created.result()
        for phone, reader in self._readers.items():
            about = {**self._way.stage.about(phone), "name": phone}
            reading = reader.read(
                "items", type="continuous", data=about, callback=partial(self._change, phone)
            )
            reading.add_done_callback(partial(self._reads, phone))

    def _reads(self, phone: str, operation: Operation) -> None:
        self._handles[phone] = operation.result()

    def _change(self, phone: str, change: Any) -> None:
        if isinstance(change, Change) and change.kind == "upsert":
            self._out(phone, change.key if self._way.is_first else change.key.removeprefix(f"{phone}: "))


class LastHopHop(_Way):
    """Last hop: a topic for each phone, spooled with a volume limit.

    Parameters
    ----------
    way : Way
    came : callable
    per_day : int or None
        Messages a day that come by themselves.
    """

    def __init__(self, way: Way, came: Came, per_day: int | None = None) -> None:
        super().__init__(way, came)
        task, publications = way.stage.task, Publications(way.stage.lab)
        self._is_asked = not way.is_first and not task.is_shown
        self._up = Uplink(way.stage, self._publish_for_all) if way.is_first else None
        self._topics = {phone: publications.topic(_topic(phone)) for phone in way.ends}
        self._readers = {phone: Reader(host, publications) for phone, host in way.ends.items()}
        mode, most = ("on-demand", task.most) if self._is_asked else ("on-line", None)
        for phone, reader in self._readers.items():
            listen = reader.on_arrival if self._is_asked else reader.on_message
            listen(partial(self._message, phone))
            reader.subscribe(Subscription(_topic(phone), max=most, mode=mode, per_day=per_day))

    def send(self, source: str, parcel: Parcel) -> None:
        """Publish it on the phone's topic; of a first hop on all of them, when it has come up."""
        if self._up is None:
            self._publish(source, parcel)
        else:
            self._up.send(parcel[0])

    def look(self, phone: str) -> None:
        """Read the best."""
        if not self._is_asked:
            super().look(phone)
            return
        self._readers[phone].read(_topic(phone)).add_done_callback(partial(self._read, phone))

    def _publish_for_all(self, item: Item) -> None:
        for phone in self._to(item.sender):
            self._publish(phone, (item,))

    def _publish(self, phone: str, parcel: Parcel) -> None:
        name = self._note(parcel)
        published = self._topics[phone].publish(
            _text(parcel),
            rank=max(item.about["rank"] for item in parcel),
            expires_s=parcel[0].expires_s,
            item=f"{phone}: {name}",
            called=name,
        )
        published.add_done_callback(lambda operation: operation.result())

    def _message(self, phone: str, message: Any) -> None:
        self._out(phone, message["called"])

    def _read(self, phone: str, operation: Operation) -> None:
        parcels = [self._under_way[message["called"]] for message in operation.result()]
        self._way.stage.show(phone, {item.name for parcel in parcels for item in parcel})


class RadiatorHop(_Way):
    """Radiator: what is for a phone waits together, and goes as one aggregate.

    Parameters
    ----------
    way : Way
    came : callable
    until : Threshold
        What the aggregability function gives, for all.
    retention_s : float
    """

    def __init__(
        self, way: Way, came: Came, until: Threshold = _HALF_AN_HOUR, retention_s: float = 3600.0
    ) -> None:
        super().__init__(way, came)

        # Not compressed: what a server could read is looked for in what it held.
        def server(name: str) -> Server:
            return Server(
                way.stage.lab,
                lambda sender, receiver: until,
                compress=False,
                name=name,
                max_retention_s=retention_s,
            )

        all_of_them = server("radiator") if way.is_first else None
        self._servers = {phone: all_of_them or server(f"radiator of {phone}") for phone in way.ends}
        self._peers = {
            name: Peer(host, all_of_them or self._servers[name], f"from {name}")
            for name, host in way.sources.items()
        }
        for phone, host in way.ends.items():
            Peer(host, self._servers[phone], f"to {phone}", receive=partial(self._context, phone))

    def send(self, source: str, parcel: Parcel) -> None:
        """Propagate it."""
        people = frozenset(item.sender for item in parcel)
        self._peers[source].propagate_context(
            Context(people, {"called": self._note(parcel), "text": _text(parcel)})
        )

    def _context(self, phone: str, context: Context) -> None:
        items = [item for name in context["called"] for item in self._under_way[name]]
        # Radiator brings her what is hers, too: it is not her desk that has sent it.
        parcel = tuple(item for item in items if item.sender != phone)
        if parcel:
            self._came(phone, parcel)


class SublimHop(_Way):
    """SUBLIM: an access point with a policy for each phone.

    Parameters
    ----------
    way : Way
    came : callable
    rules : sequence of Rule
        What is done with what is for a phone.
    drops : bool
        Whether what a phone does not want is dropped first; then only single items can be sent.
    """

    def __init__(
        self, way: Way, came: Came, rules: Sequence[Rule] = (Rule(),), *, drops: bool = False
    ) -> None:
        super().__init__(way, came)
        others = Rule("coalesce(message.to <> state.me, FALSE)", Drop(), "for others")
        self._drops = self.listens = drops
        self._rules = [others, *([not_wanted(way.stage.task.want)] if drops else []), *rules]
        self._up = Uplink(way.stage, self._publish_for_all) if way.is_first else None
        self._net = PublishServer(way.stage.lab)
        AccessPoint(way.stage.lab, self._net)
        self._subscribers = {phone: Subscriber(host, self._net) for phone, host in way.ends.items()}
        for phone, subscriber in self._subscribers.items():
            subscriber.on_message(partial(self._message, phone))
            self._set_policy(phone, way.stage.about(phone))

    def send(self, source: str, parcel: Parcel) -> None:
        """Publish it for the phone; of a first hop for all, when it has come up."""
        if self._up is None:
            self._publish({"to": source}, parcel)
        else:
            self._up.send(parcel[0])

    def moved(self, phone: str, about: Mapping[str, Any]) -> None:
        """Set the policy again, if what the phone says of itself matters to it."""
        if self._drops:
            self._set_policy(phone, about)

    def _set_policy(self, phone: str, about: Mapping[str, Any]) -> None:
        variables = as_state(phone, about if self._drops else {})
        self._subscribers[phone].set_policy(Policy("limited", self._rules, variables=variables))

    def _publish_for_all(self, item: Item) -> None:
        self._publish({}, (item,))

    def _publish(self, to: Mapping[str, str], parcel: Parcel) -> None:
        name = self._note(parcel)
        about = parcel[0].about if self._drops else {}
        self._net.publish({**about, **to, "called": name, "text": _text(parcel)}, name)

    def _message(self, phone: str, message: Any) -> None:
        self._out(phone, message["called"])


class ContrailHop(_Way):
    """Contrail: sealed from where it enters to where it comes out; the relay passes ciphertext on.

    Parameters
    ----------
    way : Way
    came : callable
    """

    def __init__(self, way: Way, came: Came) -> None:
        super().__init__(way, came)
        relay = Relay(way.stage.lab)
        hosts = {host.name: host for host in (*way.sources.values(), *way.ends.values())}
        friends: dict[str, set[str]] = {name: set() for name in hosts}
        asks = []
        for name, source in way.sources.items():
            for phone in self._to(name):
                end = way.ends[phone]
                if end.name != source.name:
                    friends[end.name].add(source.name)
                    friends[source.name].add(end.name)
                    asks.append((end.name, source.name))
        self._ports = {
            name: Module(host, relay, friends=sorted(friends[name])).open_port(
                _PORT, polling_interval_ms=0, idle_timeout_ms=_OPEN_MS
            )
            for name, host in hosts.items()
        }
        for phone, host in way.ends.items():
            self._ports[host.name].on_item(partial(self._item, phone))
        for end_name, source_name in asks:
            self._ports[end_name].install_filter("TRUE", to=(source_name, _PORT))

    def send(self, source: str, parcel: Parcel, only: Sequence[str] | None = None) -> None:
        """Hand it to the module; it may be for some devices only."""
        name = self._note(parcel)
        port = self._ports[self._way.sources[source].name]
        sealed = Sealed({"called": name}, _text(parcel).encode())
        port.publish(sealed, only=only, called=f"{source}: {name}")

    def _item(self, phone: str, item: Sealed) -> None:
        self._out(phone, item.metadata["called"])


def _topic(phone: str) -> str:
    return f"for {phone}"
