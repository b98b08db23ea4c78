"""A child's afternoon: places filtered at the sender or in the cloud, and what servers could read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import numpy as np

from mudkit.display import shows_fields
from mudkit.fleet.device import Device
from mudkit.fleet.exposure import Exposure
from mudkit.lab import Lab
from mudkit.predicates import Predicate
from mudkit.sources import RandomWaypoint
from mudkit.sources.parameters import check_ranges, number, one_of, rate, whole_number
from mudkit.sources.streams import Stream
from mudkit.systems import mud
from mudkit.systems.contrail import Item, Module, Relay
from mudkit.units import box_bounds

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Afternoon", "AfternoonRun", "album_keys", "interest_costs"]

FilterMethod = Literal["sender", "in clear", "all", "cloud"]
"""Place of the filter: the sender; the sender, unencrypted; none, all is sent; the cloud."""

_MIDDLE: Final = (37.39, -122.08)
"""Mountain View (Contrail 5.2)."""
_MAX_SEARCHED: Final = 20
_MIN_DIGITS: Final = 8
"""A number this long is no part of another one by chance."""


@shows_fields
@dataclass(frozen=True)
class AfternoonRun:
    """Result of an afternoon.

    Parameters
    ----------
    lab : Lab
        Records what parties received and stored.
    places : pandas.DataFrame
        A row for each place that the child's phone published: ``at, lat, lon``, ``is_sent`` (to a server) and
        ``is_away`` (outside of the area).
    received : int
        Number of places that reached Alice's application.
    predicate : str
        Alice's filter.
    interval_s : float
        Time between two places, in seconds.
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

        Returns
        -------
        dict
            ``places``, ``outside`` and ``sent``, their numbers; ``child_kb`` and ``child_radio_j``; the
            shares of the places outside and inside that a server could read, ``outside_read_share`` and
            ``inside_read_share``, from a sample of about 20; and ``filter_read``, whether it could read the
            filter.
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
        """Return how often a relay that reads nothing is right about whether the child is away.

        Returns
        -------
        dict of str to float
            Shares of the places: ``by traffic`` (away if something comes), ``by silence`` (away if nothing
            does) and ``always at home``.
        """
        import pandas as pd

        messages = self.lab.frame("messages").query("source == 'child' and kind == 'send'")["sent"]
        interval = pd.Timedelta(seconds=self.interval_s)
        comes = [messages.between(at, at + interval, inclusive="left").any() for at in self.places["at"]]
        away = self.places["is_away"]
        right = float((pd.Series(comes, index=away.index) == away).mean())
        return {"by traffic": right, "by silence": 1 - right, "always at home": float((~away).mean())}


@dataclass(frozen=True)
class Afternoon:
    """Plan of an afternoon: Alice wants to know when her child leaves an area (Contrail 5.2).

    Parameters
    ----------
    hours : float
        Virtual time.
    publish_minutes : float
        Time between two places that the child's phone publishes, in minutes.
    area_km, roam_km : float
        Sides of the square in which the child may be, and of that in which it is, in km.
    polling_s, filter_polling_s : float
        Polling intervals of Alice's phone for places and of the child's for filters, in seconds.
    link : str
        Link profile of both phones.

    Examples
    --------
    >>> plan = Afternoon(hours=0.1)
    >>> plan.run(7).measures()["places"]
    6
    """

    hours: float = rate(2.0, 0.01, 1000.0)
    publish_minutes: float = rate(1.0, 0.1, 1000.0)
    area_km: float = rate(6.0, 0.1, 1000.0)
    roam_km: float = rate(9.0, 0.1, 1000.0)
    polling_s: float = rate(60.0, 1.0, 1e6)
    filter_polling_s: float = rate(600.0, 1.0, 1e6)
    link: str = "umts_3g"

    def __post_init__(self) -> None:
        check_ranges(self)

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

    def run(self, seed: int, method: FilterMethod = "sender", predicate: str | None = None) -> AfternoonRun:
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
        one_of("method", method, get_args(FilterMethod))
        predicate = self.away if predicate is None else predicate
        lab = Lab(seed, record_held=True)
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
        import pandas as pd

        rows = []
        for step in range(round(60 * self.hours / self.publish_minutes)):
            lab.run(seconds=max(0.0, 60 * (5 + self.publish_minutes * step) - lab.world.now_us / 1e6))
            lat, lon = (round(float(degrees), 5) for degrees in child.loc or _MIDDLE)
            left = publish({"loc": (lat, lon), "at": f"{lab.now:%H:%M:%S}"})
            rows.append((lab.now, lat, lon, left))
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
        """Install Alice's filter on the child's phone."""
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
    exposure = lab.trace.exposure
    assert exposure is not None, "the lab was made with record_held=True"
    return exposure


def _table(
    lab: Lab, alice: Device, child: Device, predicate: str, received: list[Any], *, is_encrypted: bool
) -> Callable[[dict[str, Any]], bool]:
    """Write into a table that the cloud filters, and so must be able to read."""
    cloud, token = mud.Cloud(lab), lab.token("alice", "family")
    readers, writer = (mud.Client(device, cloud, app="family", token=token) for device in (alice, child))
    writer.create("places").result()
    readers.read("places", predicate, "continuous", callback=received.append).result()
    return lambda place: bool(writer.write("places", "child", place).result())


def interest_costs(
    share: float,
    seed: int,
    *,
    friends: int = 4,
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
        Probability with which a friend is interested in an item, from 0 to 1.
    seed : int
    friends, items : int
    every_s : float
        Time between two items, in seconds.
    size_bytes : int
    filter_polling_s : float
        Interval at which the sender asks for new filters, in seconds. Without filters it never does.
    link : str
        Link profile of all phones.

    Returns
    -------
    dict
        For "sender filters" and "all is sent": ``sender_j`` and ``friend_j``, the radio energy of the sender
        and of a friend, and ``uploads``, the number of items that left the sender.
    """
    number("share", share, 0.0, 1.0)
    whole_number("friends", friends, 1, 1000)
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


def album_keys(seed: int) -> pd.DataFrame:
    """Return the keys of an album for which Bob asks, then Ann, and from which Bob is dropped.

    Parameters
    ----------
    seed : int

    Returns
    -------
    pandas.DataFrame
        A row per photo: ``event`` (the event), ``photo``, ``key`` (number of the key that encrypts it),
        ``ann_keys, bob_keys`` (numbers of all keys that each has been sent).
    """
    import pandas as pd

    lab = Lab(seed, record_held=True)
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
