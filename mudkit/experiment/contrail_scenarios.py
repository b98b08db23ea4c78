"""Scenarios of Contrail: an afternoon of places, one sender with its receivers, and what each party sees."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple

import msgspec
import numpy as np

from mudkit.checks import OneOf, Range, check_arguments, number
from mudkit.display import shows_fields
from mudkit.errors import SimulationProblem
from mudkit.experiment.privacy import ledger
from mudkit.fleet.device import Device
from mudkit.fleet.exposure import Exposure
from mudkit.fleet.kernel import raise_failure
from mudkit.lab import Lab
from mudkit.predicates import Predicate
from mudkit.predicates.exchange import to_json
from mudkit.sources import RandomWaypoint
from mudkit.sources.streams import Stream
from mudkit.systems import mud
from mudkit.systems.contrail import Item, Module, Port, Published, Relay
from mudkit.systems.contrail.device.filters import parse_filter
from mudkit.systems.contrail.items import pack
from mudkit.units import box_bounds
from mudkit.words import Label, add_labels

if TYPE_CHECKING:
    import pandas as pd

add_labels(
    {
        "child_kb": Label("to and from the child's phone", "kB"),
        "child_radio_j": Label("radio of the child's phone", "J"),
        "sender_j": Label("radio energy of the sender", "J"),
        "interested_share": Label("friends who are interested in an item", "%", 100.0),
        "outside_read_share": Label("places outside that a server could read", "%", 100.0),
        "inside_read_share": Label("places inside", "%", 100.0),
        "filter_read": Label("the filter"),
        "guessed_share": Label("guesses that are right", "%", 100.0),
    }
)

FilterMethod = Literal["sender", "in clear", "all", "cloud"]
"""Place of the filter: the sender; the sender, unencrypted; none, all is sent; the cloud."""

_MIDDLE: Final = (37.39, -122.08)
"""Mountain View (Contrail 5.2)."""
_MAX_SEARCHED: Final = 20
_MIN_DIGITS: Final = 8
"""A number this long is no part of another one by chance."""


@check_arguments(types=False)
@shows_fields
@dataclass(frozen=True)
class AfternoonRun:
    """Result of an afternoon.

    Parameters
    ----------
    lab : Lab
    places : pandas.DataFrame
        A row for each place that the child's phone published: ``at, lat, lon``, ``is_sent`` (to a server) and
        ``is_away`` (outside of the area).
    received : int
        Number of places that reached Alice's application.
    predicate : str
        Alice's filter.
    interval_s : float
        Time between two places.
    """

    lab: Lab
    places: pd.DataFrame
    received: int
    predicate: str
    interval_s: float

    def can_read(self, text: str) -> bool:
        """Return whether a server has held a text in clear."""
        exposure = _exposure(self.lab)
        return any(party not in self.lab.devices for party, *_ in exposure.find(text))

    def measures(self) -> dict[str, Any]:
        """Return the numbers of places sent, their cost, and the shares that servers could read.

        Numbers: ``places, outside, sent``; cost: ``child_kb, child_radio_j``; of a sample of about 20 places
        outside and inside ``outside_read_share, inside_read_share``; ``filter_read``: whether the filter is
        readable.
        """
        bill = self.lab.bill().query("device == 'child'")[["bytes", "radio_mj"]].sum()
        searched = self.places[self.places["lat"].astype(str).str.len() >= _MIN_DIGITS]
        searched = searched[:: max(1, len(searched) // _MAX_SEARCHED)]
        is_read = searched["lat"].map(lambda lat: self.can_read(str(lat)))
        return {
            "places": len(self.places),
            "outside": int(self.places["is_away"].sum()),
            "sent": int(self.places["is_sent"].sum()),
            "child_kb": float(bill["bytes"]) / 1000,
            "child_radio_j": float(bill["radio_mj"]) / 1000,
            "outside_read_share": float(is_read[searched["is_away"]].mean()),
            "inside_read_share": float(is_read[~searched["is_away"]].mean()),
            "filter_read": self.can_read(self.predicate.removeprefix("NOT ")),
        }

    def relay_guesses(self) -> dict[str, float]:
        """Return how often a relay that reads nothing is right about whether the child is away, as shares.

        ``by traffic``: away if something comes; ``by silence``: away if nothing does; ``always at home``.
        """
        import pandas as pd

        messages = self.lab.frame("messages").query("source == 'child' and kind == 'send'")["sent"]
        interval = pd.Timedelta(seconds=self.interval_s)
        comes = [messages.between(at, at + interval, inclusive="left").any() for at in self.places["at"]]
        away = self.places["is_away"]
        right = float((pd.Series(comes, index=away.index) == away).mean())
        return {"by traffic": right, "by silence": 1 - right, "always at home": float((~away).mean())}


@check_arguments(types=False)
@dataclass(frozen=True)
class Afternoon:
    """Plan of an afternoon: Alice wants to know when her child leaves an area (Contrail 5.2).

    Parameters
    ----------
    hours, publish_minutes : float
        Virtual time, and time between two places that the child's phone publishes.
    area_km, roam_km : float
        Sides of the square in which the child may be, and of that in which it is.
    polling_s, filter_polling_s : float
        Polling intervals of Alice's phone for places and of the child's for filters.
    link : str
        Link profile of both phones.

    Examples
    --------
    >>> plan = Afternoon(hours=0.1)
    >>> plan.run(7).measures()["places"]
    6
    """

    hours: Annotated[float, Range(0.01, 1000.0)] = 2.0
    publish_minutes: Annotated[float, Range(0.1, 1000.0)] = 1.0
    area_km: Annotated[float, Range(0.1, 1000.0)] = 6.0
    roam_km: Annotated[float, Range(0.1, 1000.0)] = 9.0
    polling_s: Annotated[float, Range(1.0, 1e6)] = 60.0
    filter_polling_s: Annotated[float, Range(1.0, 1e6)] = 600.0
    link: str = "umts_3g"

    @property
    def area(self) -> tuple[float, float, float, float]:
        """South, west, north and east of the area, in degrees."""
        box = box_bounds(*_MIDDLE, self.area_km)
        south, west, north, east = (round(float(edge), 4) for edge in box)
        return south, west, north, east

    @property
    def inside(self) -> str:
        """Predicate of the places in the area."""
        return "within_box(loc, {}, {}, {}, {})".format(*self.area)

    @property
    def away(self) -> str:
        """Predicate of the places outside of the area."""
        return f"NOT {self.inside}"

    def run(
        self, seed: int, method: Annotated[FilterMethod, OneOf()] = "sender", predicate: str | None = None
    ) -> AfternoonRun:
        """Run the afternoon: the child's phone publishes places, and Alice's asks for some.

        Parameters
        ----------
        seed : int
        method : {"sender", "in clear", "all", "cloud"}
            Who filters: the sender; the sender, without encryption; nobody, so that all is sent; or the
            cloud, in a MUD table with a continuous read.
        predicate : str, optional
            Alice's filter; by default :attr:`away`.
        """
        predicate = self.away if predicate is None else predicate
        lab = Lab(seed, record_exposure=True)
        moves = RandomWaypoint(
            *_MIDDLE, edge_km=self.roam_km, speed_low_mps=1.5, speed_high_mps=5.0, pause_s=300.0
        )
        alice, child = lab.device("alice", self.link), lab.device("child", self.link, mobility=moves)
        received: list[Any] = []
        start = _table if method == "cloud" else self._filter
        installed = "loc IS NOT NULL" if method == "all" else predicate
        publish = start(lab, alice, child, installed, received, is_encrypted=method != "in clear")
        places = self._walk(lab, child, publish)
        is_away = Predicate(self.away)
        places["is_away"] = [is_away({"loc": loc}) for loc in zip(places["lat"], places["lon"], strict=True)]
        return AfternoonRun(lab, places, len(received), predicate, 60 * self.publish_minutes)

    def _walk(self, lab: Lab, child: Device, publish: Callable[[dict[str, Any]], bool]) -> pd.DataFrame:
        """Publish the child's place at each interval while the lab runs.

        Return the places, and which were sent.
        """
        import pandas as pd

        rows = []
        for step in range(round(60 * self.hours / self.publish_minutes)):
            lab.run(seconds=max(0.0, 60 * (5 + self.publish_minutes * step) - lab.world.now_us / 1e6))
            lat, lon = (round(float(degrees), 5) for degrees in child.loc or _MIDDLE)
            at = lab.now  # before the upload, which takes time
            left = publish({"loc": (lat, lon), "at": f"{at:%H:%M:%S}"})
            rows.append((at, lat, lon, left))
        return pd.DataFrame(rows, columns=["at", "lat", "lon", "is_sent"])

    def _filter(
        self,
        lab: Lab,
        alice: Device,
        child: Device,
        predicate: str,
        received: list[Any],
        *,
        is_encrypted: bool,
    ) -> Callable[[dict[str, Any]], bool]:
        """Install Alice's filter on the child's phone.

        Return the function that publishes a place and returns whether it was sent.
        """
        relay = Relay(lab)
        home = Module(alice, relay, ["child"], encrypted=is_encrypted).open_port(
            "any", polling_interval_ms=1000 * self.polling_s
        )
        phone = Module(child, relay, ["alice"], encrypted=is_encrypted)
        home.on_item(received.append)
        lab.run(seconds=10)
        home.install_filter(predicate, to=("child", "location")).result()
        port = phone.open_port("location", polling_interval_ms=1000 * self.filter_polling_s)
        return lambda place: len(port.publish(Item(place), "mycurrentlocation").result().destinations) > 0


def _exposure(lab: Lab) -> Exposure:
    """Return the ledger of what the parties of a lab held."""
    exposure = lab.trace.exposure
    assert exposure is not None, "the lab was made without record_exposure=True"
    return exposure


def _table(
    lab: Lab, alice: Device, child: Device, predicate: str, received: list[Any], *, is_encrypted: bool
) -> Callable[[dict[str, Any]], bool]:
    """Read a table as Alice; return the function that writes a place as the child, which is always sent."""
    cloud, token = mud.Cloud(lab), lab.token("alice", "family")
    readers, writer = (mud.Client(device, cloud, app="family", token=token) for device in (alice, child))
    writer.create("places").result()
    readers.read("places", predicate, "continuous", callback=received.append).result()
    return lambda place: bool(writer.write("places", "child", place).result())


@check_arguments(types=False)
def interest_costs(
    share: float,
    seed: int,
    *,
    friends: Annotated[int, Range(1, 1000)] = 4,
    items: int = 20,
    every_s: float = 60.0,
    size_bytes: int = 1000,
    filter_polling_s: float = 300.0,
    link: str = "umts_3g",
) -> dict[str, dict[str, float]]:
    """Publish items that each friend wants with a probability, with filters at the sender and without.

    Parameters
    ----------
    share : float
        Probability with which a friend is interested in an item.
    seed, friends, items, size_bytes : int
    every_s, filter_polling_s : float
        Time between two items, and interval at which the sender asks for new filters, if there are any.
    link : str

    Returns
    -------
    dict
        For "sender filters" and "all is sent": radio energy ``sender_j, friend_j`` (of the sender, of one
        friend), and ``uploads``, the number of items that left the sender.
    """
    number("share", share, 0.0, 1.0)
    filters = [f"wish_{friend} < {share!r}" for friend in range(friends)]
    all_items = ["wish_0 IS NOT NULL"] * friends
    plan = {"sender filters": (filters, 1000 * filter_polling_s), "all is sent": (all_items, 1e9)}
    return {
        name: _interest(predicate, polling_ms, seed, items, every_s, size_bytes, link)
        for name, (predicate, polling_ms) in plan.items()
    }


def _interest(
    predicate: list[str], polling_ms: float, seed: int, items: int, every_s: float, size_bytes: int, link: str
) -> dict[str, float]:
    """Publish items with filters at the sender; return energy and uploads without the installation."""
    lab = Lab(seed, record_messages=False)
    relay = Relay(lab)
    names = [f"friend-{place}" for place in range(len(predicate))]
    port = Module(lab.device("sender", link=link), relay, friends=names).open_port(
        "items", polling_interval_ms=2000.0
    )
    for name, text in zip(names, predicate, strict=True):
        module = Module(lab.device(name, link=link), relay, friends=["sender"])
        module.open_port("items", polling_interval_ms=1000 * every_s).install_filter(
            text, to=("sender", "items")
        )
    lab.run(minutes=2)
    port.polling_interval_ms = polling_ms
    before, uploads = lab.bill().groupby("device")["radio_mj"].sum(), 0
    wishes = Stream(seed, "wishes").uniform(np.arange(len(predicate))[:, None], np.arange(items))
    for step in range(items):
        wish = {f"wish_{place}": float(row[step]) for place, row in enumerate(wishes)}
        uploads += bool(port.publish(Item(wish, b"x" * size_bytes)).result().destinations)
        lab.run(seconds=every_s)
    spent_j = (lab.bill().groupby("device")["radio_mj"].sum() - before) / 1000
    return {
        "sender_j": float(spent_j["sender"]),
        "friend_j": float(spent_j[names].mean()),
        "uploads": uploads,
    }


@check_arguments(types=False)
def album_keys(seed: int) -> pd.DataFrame:
    """Return the keys of an album for which Bob asks, then Ann, and from which Bob is dropped.

    Parameters
    ----------
    seed : int

    Returns
    -------
    pandas.DataFrame
        A row per photo: ``event, photo, key`` (number of the key that encrypts it), ``ann_keys, bob_keys``
        (numbers of all keys that each has been sent).
    """
    import pandas as pd

    lab = Lab(seed, record_exposure=True)
    relay, exposure = Relay(lab), _exposure(lab)
    kim = Module(lab.device("kim"), relay, friends=["ann", "bob"])
    album, photo = kim.open_port("album"), Item({"tag": "family"}, b"a photograph")
    ports = {
        name: Module(lab.device(name), relay, friends=["kim"]).open_port("album") for name in ("ann", "bob")
    }
    rows = []
    for place, event in enumerate(("bob asks", "ann asks", "kim drops bob"), start=1):
        name = event.split()[0]
        if name in ports:
            ports[name].install_filter("tag = 'family'", to=("kim", "album"))
        else:
            kim.unfriend("bob")
        lab.run(minutes=2)
        album.publish(photo, f"photo {place}").result()
        lab.run(minutes=2)
        key = exposure.values("contrail-gateway", "message.epoch")[-1].decode()
        sent = {
            f"{name}_keys": b", ".join(exposure.values(name, "page[][].slot")).decode() or "none"
            for name in ports
        }
        rows.append({"event": event, "photo": place, "key": key, **sent})
    return pd.DataFrame(rows)


_MAX_WAIT_S: Final = 3600.0


@check_arguments(types=False)
class ContrailPair:
    """A sender and receivers that poll at one interval (Contrail 7.1).

    Parameters
    ----------
    seed, receivers : int
        All receivers subscribe alike.
    polling_s, idle_s : float
        Polling interval of a receiver, and how long it keeps an idle connection.
    link : str
        Link profile of all devices.
    encrypted : bool
    transport : str
        As for :class:`mudkit.lab.Lab`.
    """

    def __init__(
        self,
        seed: int,
        polling_s: float,
        idle_s: float,
        *,
        link: str = "umts_3g",
        receivers: int = 1,
        encrypted: bool = True,
        transport: str = "messages",
    ) -> None:
        self.lab = Lab(seed=seed, transport=transport, record_exposure=True)
        self.lab.world.on_failure = raise_failure
        self.relay = Relay(self.lab, max_waiting=100_000)
        names = [f"receiver-{number}" for number in range(receivers)]
        sender = Module(self.lab.device("sender", link=link), self.relay, friends=names, encrypted=encrypted)
        self.sender_port = sender.open_port("items", polling_interval_ms=2000.0)
        self.modules = [
            Module(self.lab.device(name, link=link), self.relay, friends=["sender"], encrypted=encrypted)
            for name in names
        ]
        self.received: list[tuple[float, Item]] = []
        self.ports = [self._receiver(module, polling_s, idle_s) for module in self.modules]
        self.lab.run(minutes=1)
        self.sender_port.polling_interval_ms = 1e9  # from now on it only sends

    def _receiver(self, module: Module, polling_s: float, idle_s: float) -> Port:
        """Return the open port of a receiver that records its items."""
        port = module.open_port("items", polling_interval_ms=polling_s * 1000, idle_timeout_ms=idle_s * 1000)
        port.on_item(lambda item: self.received.append((self.now_s, item)))
        port.install_filter("destination = 'receiver'", to=("sender", "items")).result()
        return port

    @property
    def now_s(self) -> float:
        """Virtual time."""
        return self.lab.world.now_us / 1e6

    def publish(self, payload: bytes, item_id: str | None = None, **metadata: Any) -> Any:
        """Publish an item with a ``payload`` and ``metadata``; ``item_id`` as in ``Port.publish``."""
        return self.sender_port.publish(Item({"destination": "receiver", **metadata}, payload), item_id)

    def bytes_of(self, device: str, direction: str) -> int:
        """Return the bytes sent over a device's link in one ``direction``, ``"up"`` or ``"down"``."""
        bill = self.lab.bill()
        return int(bill[(bill["device"] == device) & (bill["direction"] == direction)]["bytes"].sum())

    def wait(self, until: Callable[[], bool]) -> None:
        """Run the lab until a condition holds; SimulationProblem if it does not for long."""
        deadline_us = self.lab.world.now_us + round(_MAX_WAIT_S * 1e6)
        self.lab.world.run_until(until, deadline_us)
        if not until():
            raise SimulationProblem(
                "An item has not arrived within an hour.",
                remedy="choose a shorter polling interval, or another link",
            )

    def latencies_s(
        self, arrivals: list[tuple[float, Item]], count: int, pause_s: float = 0.0
    ) -> list[float]:
        """Send ``count`` items, about ``pause_s`` apart; return the latencies of their ``arrivals``."""
        took_s = []
        for step in range(count):
            self.lab.run(seconds=pause_s * (0.1 + step * 0.618034 % 1))  # evenly, not in step with polls
            began_s, before = self.now_s, len(arrivals)
            self.publish(b"x" * 100)
            self.wait(lambda before=before: len(arrivals) > before)  # type: ignore[misc]
            took_s.append(arrivals[-1][0] - began_s)
        return took_s


@check_arguments(types=False)
def item_latencies_s(
    seed: int,
    polling_s: float,
    idle_s: float,
    count: int,
    pause_s: float = 0.0,
    link: str = "umts_3g",
    transport: str = "messages",
) -> list[float]:
    """Send items, each after the previous one has arrived, and return their latencies in seconds.

    Parameters
    ----------
    seed, polling_s, idle_s, link, transport
        As for :class:`ContrailPair`.
    count : int
        Number of items.
    pause_s : float
        Mean time between an arrival and the next item. With 0, sending follows the polls.
    """
    pair = ContrailPair(seed, polling_s, idle_s, link=link, transport=transport)
    pair.sender_port.polling_interval_ms = 2000.0  # so that its radio does not fall asleep between two items
    return pair.latencies_s(pair.received, count, pause_s)


@check_arguments(types=False)
def receiver_radio_mw(
    seed: int,
    polling_s: float,
    idle_s: float,
    hours: float,
    link: str = "umts_3g",
    transport: str = "messages",
) -> float:
    """Return the mean power of the receiver's radio in mW while an item is sent every 2 s (Fig. 8).

    Parameters
    ----------
    seed, polling_s, idle_s, link, transport
        As for :class:`ContrailPair`.
    hours : float
        Time for which items are sent.
    """
    pair = ContrailPair(seed, polling_s, idle_s, link=link, transport=transport)
    device = pair.lab.devices["receiver-0"]
    before_mj, began_s = pair.lab.world.radio_mj(device), pair.now_s
    for _ in range(round(hours * 1800)):
        pair.publish(b"x" * 100)
        pair.lab.run(seconds=2)
    return (pair.lab.world.radio_mj(device) - before_mj) / (pair.now_s - began_s)


SENDER, RECEIVER = "child", "alice"
_RELAY: Final = "contrail"
_GATEWAY: Final = f"{_RELAY}-gateway"
_PORTS: Final = "location", "alarm"
_ALWAYS_MS: Final = 1e9
_MAX_POLLING_S: Final = 3600.0
_SHOWN_BYTES: Final = 8


class Visibility(NamedTuple):
    """Form in which a party sees a thing.

    Parameters
    ----------
    form : {'clear', 'ciphertext', 'nothing'}
    text : str
    """

    form: Literal["clear", "ciphertext", "nothing"]
    text: str = ""


class PartyView(NamedTuple):
    """Something about the item, and what each party sees of it.

    Parameters
    ----------
    field : str
    sender, relay, receiver : Visibility
    """

    field: str
    sender: Visibility
    relay: Visibility
    receiver: Visibility


@check_arguments(types=False)
@dataclass(frozen=True)
class PartyViews:
    """Result of sending an item.

    Parameters
    ----------
    rows : tuple of PartyView
    published : Published
    lab : Lab
    """

    rows: tuple[PartyView, ...]
    published: Published
    lab: Lab

    @property
    def relay_bytes(self) -> int:
        """Bytes that the servers of the relay received and stored, with all copies."""
        return sum(row.bytes for row in ledger(self.lab).rows() if row.party.startswith(f"{_RELAY}-"))

    def places(self, text: str) -> dict[str, list[str]]:
        """Return the fields in which each party held a text."""
        places: dict[str, list[str]] = {SENDER: [], "relay": [], RECEIVER: []}
        for party, field, _ in ledger(self.lab).find(text):
            places["relay" if party.startswith(f"{_RELAY}-") else party].append(field)
        return {party: sorted(set(fields)) for party, fields in places.items()}


_NOTHING: Final = Visibility("nothing")


@check_arguments(types=False)
def party_views(
    item: Item,
    predicate: str | None,
    *,
    item_id: str = "item",
    encrypted: bool = True,
    polling_s: float = 5.0,
    link: str = "umts_3g",
    seed: int = 1,
) -> PartyViews:
    """Publish an item on a child's device, and return what it, the relay and Alice's device see of it.

    Parameters
    ----------
    item : Item
    predicate : str, optional
        Filter that Alice's device installs on the child's; None: none.
    polling_s : float
        Polling interval of Alice's device, at most 3,600 s.
    item_id, encrypted, link, seed
        As for ``Port.publish`` and :class:`ContrailPair`.

    Raises
    ------
    PredicateError
        The predicate is not valid.
    ParameterError
        The item is none, or a parameter is out of range.
    """
    number("polling_s", polling_s, 0.1, _MAX_POLLING_S)
    pack(item)  # refuses what is no item before anything is built
    lab = Lab(seed, record_exposure=True)
    relay = Relay(lab, name=_RELAY)
    modules = [
        Module(lab.device(me, link=link), relay, friends=[other], encrypted=encrypted)
        for me, other in ((SENDER, RECEIVER), (RECEIVER, SENDER))
    ]
    out = modules[0].open_port(_PORTS[0], polling_interval_ms=0, idle_timeout_ms=_ALWAYS_MS)
    alarm = modules[1].open_port(_PORTS[1], polling_interval_ms=1000 * polling_s)
    received: list[tuple[Any, Item]] = []
    alarm.on_item(lambda item: received.append((lab.now, item)))
    lab.run(seconds=5)
    if predicate is not None:
        alarm.install_filter(predicate, to=(SENDER, _PORTS[0])).result()
    lab.run(seconds=10)
    began, before = lab.now, _carried(lab)
    published = out.publish(item, item_id).result()
    lab.run(seconds=polling_s + 10)
    went = bool(published.destinations)
    received_at, taken = received[0] if received else (None, None)
    times = [began if went else None, _arrival(lab, began) if went else None, received_at]
    up, down = (after - earlier for after, earlier in zip(_carried(lab), before, strict=True))
    rows = [
        _filter(lab, predicate, went),
        *_content(lab, item, taken),
        _key(lab, went),
        *_header(lab, item_id, published),
        PartyView("when", *map(_moment, times)),
        PartyView("bytes", Visibility("clear", f"{up:,} B"), _size(up), _size(0 if taken is None else down)),
    ]
    return PartyViews(tuple(rows), published, lab)


def _filter(lab: Lab, predicate: str | None, went: bool) -> PartyView:
    """Return what each party sees of the filter; ``went``: the item matches it."""
    if predicate is None:
        return PartyView(
            "filter",
            Visibility("nothing", "there is none"),
            _NOTHING,
            Visibility("nothing", "none installed"),
        )
    sent = to_json(parse_filter(predicate))
    assert sent is not None
    text: str = sent["text"]
    relay = _relay(lab, msgspec.json.encode(text)[1:-1], text, _sealed(lab)[:1])
    does = "matches" if went else "does not match"
    return PartyView(
        "filter", Visibility("clear", f"{predicate}\n({does})"), relay, Visibility("clear", predicate)
    )


def _content(lab: Lab, item: Item, taken: Item | None) -> Iterator[PartyView]:
    """Yield the parts of the item; a party with all of it in clear has each part."""
    packed, bodies = pack(item), ledger(lab).values(_GATEWAY, "message.body")
    for name in item.metadata:
        texts = [_NOTHING if copy is None else _written(copy.metadata[name]) for copy in (item, taken)]
        yield PartyView(name, texts[0], _relay(lab, packed, texts[0].text, bodies), texts[1])
    texts = [_NOTHING if copy is None else _written(copy.payload) for copy in (item, taken)]
    yield PartyView("payload", texts[0], _relay(lab, packed, texts[0].text, bodies), texts[1])


def _key(lab: Lab, went: bool) -> PartyView:
    """Return what each party sees of the channel's key; nothing unless the item went."""
    if not went:
        return PartyView("key", _NOTHING, _NOTHING, _NOTHING)
    store = lab.devices[RECEIVER].processes[0].store
    secret = store.get(f"key {SENDER}\n{_PORTS[0]}\n{1:012d}")
    sight = Visibility("clear", "32 secret bytes")
    relay = _relay(lab, secret, sight.text, _sealed(lab)[-1:])
    return PartyView("key", sight, relay, sight)


def _header(lab: Lab, item_id: str, published: Published) -> Iterator[PartyView]:
    """Yield what a relay must know to pass an item on, in clear for everybody who gets it."""
    for what, field, text in (
        ("from", "message.port", f"{SENDER}, port {_PORTS[0]}"),
        ("to", "message.to[].tag", f"{RECEIVER}, port {_PORTS[1]}"),
        ("name", "message.item", item_id),
    ):
        seen = Visibility("clear", text) if published.destinations else _NOTHING
        yield PartyView(what, seen, seen if ledger(lab).values(_GATEWAY, field) else _NOTHING, seen)


def _relay(lab: Lab, needle: bytes, text: str, sealed: Sequence[bytes]) -> Visibility:
    """Return what the relay has: the thing itself, a ciphertext, or nothing."""
    if any(party.startswith(f"{_RELAY}-") for party, *_ in ledger(lab).find(bytes(needle))):
        return Visibility("clear", text)
    if not sealed:
        return _NOTHING
    return Visibility("ciphertext", f"{len(sealed[0])} B, {sealed[0][:_SHOWN_BYTES].hex(' ')} …")


def _sealed(lab: Lab) -> list[bytes]:
    """Return what the relay was sent sealed for one device: the filter, then the key."""
    return ledger(lab).values(_GATEWAY, "message.to[].sealed")


def _carried(lab: Lab) -> tuple[int, int]:
    """Return the bytes that the sender has sent, and that the receiver has received."""
    bill = lab.bill().set_index(["device", "direction"])["bytes"]
    return int(bill[SENDER, "up"]), int(bill[RECEIVER, "down"])


def _arrival(lab: Lab, began: Any) -> Any:
    """Return when the item was at the relay."""
    sent = lab.frame("messages")
    sent = sent[(sent["source"] == SENDER) & (sent["kind"] == "send") & (sent["sent"] >= began)]
    return sent["ended"].max()


def _moment(at: Any) -> Visibility:
    """Return a moment in clear, to tenths of a second; nothing for None."""
    return _NOTHING if at is None else Visibility("clear", f"{at:%H:%M:%S.%f}"[:10])


def _size(size_bytes: int) -> Visibility:
    """Return a size in clear; nothing for 0."""
    return Visibility("clear", f"{size_bytes:,} B") if size_bytes else _NOTHING


def _written(value: Any) -> Visibility:
    """Return a value in clear as text, bytes that are no text as hexadecimal digits."""
    if isinstance(value, bytes):
        try:
            return Visibility("clear", value.decode())
        except UnicodeDecodeError:
            return Visibility("clear", f"{len(value):,} B, {value[:_SHOWN_BYTES].hex(' ')} …")
    return Visibility("clear", msgspec.json.encode(value).decode())
