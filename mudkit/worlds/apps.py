"""Apps of one person: on one phone, whose service they share, or each on a phone of its own (Mobius 2 to 6).

Four plays measure what a phone's service, its local store and its pending writes save: changes that are
pushed, writes after an outage, looks at a map, and a table on the device alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final, Literal

import numpy as np

from mudkit.checks import Range, check_arguments, whole_number
from mudkit.lab import Lab
from mudkit.sources.streams import Stream
from mudkit.sources.workloads import Poisson
from mudkit.systems.mud import Client, Cloud, freshness
from mudkit.words import Label, add_labels

if TYPE_CHECKING:
    from mudkit.fleet.device import Device

add_labels(
    {
        "radio_j": Label("radio energy", "J"),
        "kb": Label("data", "kB"),
        "messages_up": Label("messages up"),
        "changes_per_hour": Label("changes of each app's table", "an hour"),
        "asked_share": Label("reads that ask the cloud", "share"),
        "kb_per_look": Label("received", "kB a look"),
        "move_km": Label("way between two looks", "km"),
        "seen_elsewhere": Label("drafts on the tablet"),
    }
)

_TEXT: Final = "x" * 100
_BOX_KM: Final = (4.0, 2.0, 1.0)
"""Sides of the boxes that a look is drawn from: three zooms of a map."""
_MAP_KM: Final = 12.0
"""Side of the map."""
_SHOPS: Final = 150
_MAP, _DRAFTS = "map", "drafts"


@check_arguments(types=False)
@dataclass(frozen=True)
class PhoneApps:
    """Plan of the apps of one person.

    Parameters
    ----------
    apps : int
        Number of apps, each with a table of its own.
    hours : float
        Virtual time of :meth:`pushed` and :meth:`drafts`.
    outage_minutes : float
        Time without a network before :meth:`after_outage`.
    writes : int
        Writes of each app in that time.
    looks : int
        Number of looks at the map, one a minute.
    max_age_s : float
        Largest age of an answer with which a look is content.
    link : str
        Link of the phones, as in :meth:`mudkit.lab.Lab.device`.

    Examples
    --------
    >>> apps = PhoneApps(writes=10)
    >>> apps.after_outage(1, phones=1, records=10)["messages_up"]
    1.0
    >>> apps.after_outage(1, phones=3, records=10)["messages_up"]
    3.0
    """

    apps: Annotated[int, Range(1, 100)] = 3
    hours: Annotated[float, Range(0.01, 10_000.0)] = 6.0
    outage_minutes: Annotated[float, Range(0.1, 1e5)] = 60.0
    writes: Annotated[int, Range(1, 100_000)] = 100
    looks: Annotated[int, Range(1, 100_000)] = 60
    max_age_s: Annotated[float, Range(0.0, 1e9)] = 600.0
    link: str = "lte"

    def pushed(self, seed: int, phones: int, changes_per_hour: float) -> dict[str, float]:
        """Run continuous reads of all apps, whose tables others change.

        Parameters
        ----------
        seed : int
        phones : int
            Number of phones: 1, or any other number up to that of the apps, which use them in turn.
        changes_per_hour : float
            Rate of changes of each app's table, a Poisson process.

        Returns
        -------
        dict
            ``messages, kb, radio_j`` of all phones.
        """
        lab, cloud, devices, clients = self._begin(seed, phones)
        writer = Client(
            lab.server("others"), cloud, app="others", token=lab.token("eve", "others", hours=1e5)
        )
        for app, client in clients:
            writer.create(app, acl="public").result()
            client.read(app, type="continuous", callback=_ignore).result()
        lab.run(minutes=1)
        before, began_us = _measure(lab, devices), lab.world.now_us
        changes = Poisson(per_day=24.0 * changes_per_hour)
        apps = [app for app, _ in clients]
        moments = changes.moments(seed, "changes of apps", apps, 0, round(self.hours * 3600e6))
        for number, (t_us, app) in enumerate(
            zip(moments.t_us.tolist(), moments.device.tolist(), strict=True)
        ):
            lab.world.run(began_us + t_us)
            writer.write(apps[app], f"k{number}", {"text": _TEXT})
        lab.world.run(began_us + round(self.hours * 3600e6))
        return _differences(_measure(lab, devices), before)

    def after_outage(
        self, seed: int, phones: int, records: int, kind: Literal["blind", "conditional"] = "blind"
    ) -> dict[str, float]:
        """Run an outage in which each app writes, and measure what follows it.

        Parameters
        ----------
        seed, phones
            As in :meth:`pushed`.
        records : int
            Number of records that the writes of an app are of, in turn.
        kind : {'blind', 'conditional'}
            Type of the writes.

        Returns
        -------
        dict
            ``messages, messages_up, kb, radio_j`` of all phones, from the end of the outage on.
        """
        whole_number("records", records, 1, 1 << 31)
        lab, _, devices, clients = self._begin(seed, phones)
        for app, client in clients:
            client.create(app).result()
        lab.run(minutes=5)
        for device in devices:
            lab.faults.cut(device.name)
        for number in range(self.writes):
            for app, client in clients:
                client.write(app, f"k{number % records}", {"n": number, "text": _TEXT}, kind)
            lab.run(minutes=self.outage_minutes / self.writes)
        before = _measure(lab, devices)
        for device in devices:
            lab.faults.mend(device.name)
        lab.run(minutes=30)
        return _differences(_measure(lab, devices), before)

    def map_looks(self, seed: int, move_km: float, *, has_writer_predicates: bool) -> dict[str, float]:
        """Run looks at a map around a place that moves; each is a box of 4, 2 or 1 km, drawn at random.

        Parameters
        ----------
        seed : int
        move_km : float
            Way from one look to the next, in a direction drawn at random.
        has_writer_predicates : bool
            Whether the table of the map may hide records from readers at other places. Then an answer is for
            the place at which it was asked.

        Returns
        -------
        dict
            ``asked_share`` of the looks that ask the cloud, for all or for a part, and ``kb_per_look`` down.
        """
        lab = Lab(seed, record_messages=False)
        cloud, device = Cloud(lab), lab.device("phone", link=self.link)
        service, phone = (
            Client(host, cloud, app=_MAP, token=lab.token(host.name, _MAP))
            for host in (lab.server("service"), device)
        )
        service.create(_MAP, writer_predicates=has_writer_predicates).result()
        for number, (x_km, y_km) in enumerate(_draw_places(seed, _SHOPS)):
            service.write(_MAP, f"shop {number}", {"x": x_km, "y": y_km, "text": _TEXT})
        lab.run(minutes=1)
        before = _measure(lab, [device])
        zooms = Stream(seed, "zooms").integers(0, np.arange(self.looks), 0, len(_BOX_KM)).tolist()
        requests = 0
        for (x_km, y_km), zoom in zip(self._walk(seed, move_km), zooms, strict=True):
            half_km, where = _BOX_KM[zoom] / 2, {"x": x_km, "y": y_km}
            box = (
                f"x >= {x_km - half_km} AND x <= {x_km + half_km} "
                f"AND y >= {y_km - half_km} AND y <= {y_km + half_km}"
            )
            look = phone.read(_MAP, box, data=where, utility=freshness(self.max_age_s))
            requests += not look.done()
            lab.run(minutes=1)
        after = _differences(_measure(lab, [device]), before)
        return {"asked_share": requests / self.looks, "kb_per_look": after["kb_down"] / self.looks}

    def drafts(self, seed: int, edits_per_hour: float, where: Literal["cloud", "device"]) -> dict[str, float]:
        """Run edits of a draft on a phone, and look for it on a tablet of the same person at the end.

        Parameters
        ----------
        seed : int
        edits_per_hour : float
            Rate of the edits, a Poisson process.
        where : {'cloud', 'device'}
            Where the table of the drafts is.

        Returns
        -------
        dict
            ``messages, kb, radio_j`` of the phone, and ``seen_elsewhere``, the drafts that the tablet finds.
        """
        lab = Lab(seed, record_messages=False)
        cloud, device = Cloud(lab), lab.device("phone", link=self.link)
        phone, tablet = (
            Client(host, cloud, app=_DRAFTS, token=lab.token("ann", _DRAFTS, hours=1e5))
            for host in (device, lab.device("tablet"))
        )
        phone.create(_DRAFTS, where=where).result()
        lab.run(minutes=1)
        before, began_us = _measure(lab, [device]), lab.world.now_us
        edits = Poisson(per_day=24.0 * edits_per_hour)
        moments = edits.moments(seed, "edits of a draft", [_DRAFTS], 0, round(self.hours * 3600e6))
        for number, t_us in enumerate(moments.t_us.tolist()):
            lab.world.run(began_us + t_us)
            phone.write(_DRAFTS, "letter", {"n": number, "text": _TEXT})
        lab.world.run(began_us + round(self.hours * 3600e6))
        after = _differences(_measure(lab, [device]), before)
        look = tablet.read(_DRAFTS)
        lab.run(minutes=1)
        seen = len(look.result().records) if look.exception() is None else 0
        return {**after, "seen_elsewhere": float(seen)}

    def _begin(self, seed: int, phones: int) -> tuple[Lab, Cloud, list[Device], list[tuple[str, Client]]]:
        """Return a lab, its cloud and phones, and each app with its client, on the phones in turn."""
        whole_number("phones", phones, 1, self.apps)
        lab = Lab(seed, record_messages=False)
        cloud = Cloud(lab)
        devices = [lab.device(f"phone {number}", link=self.link) for number in range(1, phones + 1)]
        apps = [f"app {number}" for number in range(1, self.apps + 1)]
        return (
            lab,
            cloud,
            devices,
            [
                (
                    app,
                    Client(devices[number % phones], cloud, app=app, token=lab.token("ann", app, hours=1e5)),
                )
                for number, app in enumerate(apps)
            ],
        )

    def _walk(self, seed: int, move_km: float) -> list[tuple[float, float]]:
        """Return the places of the looks: a random walk from the middle of the map, inside of it."""
        angle = Stream(seed, "directions").uniform(0, np.arange(self.looks), 0.0, 2 * np.pi)
        x_km, y_km = _MAP_KM / 2, _MAP_KM / 2
        places: list[tuple[float, float]] = []
        for cos, sin in zip(np.cos(angle).tolist(), np.sin(angle).tolist(), strict=True):
            places.append((round(x_km, 3), round(y_km, 3)))
            x_km = min(max(x_km + move_km * cos, 0.0), _MAP_KM)
            y_km = min(max(y_km + move_km * sin, 0.0), _MAP_KM)
        return places


def _draw_places(seed: int, count: int) -> list[tuple[float, float]]:
    """Draw places that are spread evenly over the map."""
    shops = Stream(seed, "shops").uniform(np.arange(count)[:, None], np.arange(2), 0.0, _MAP_KM).round(3)
    return [(float(x_km), float(y_km)) for x_km, y_km in shops]


def _measure(lab: Lab, devices: Sequence[Device]) -> dict[str, float]:
    """Return what phones have sent and received so far, and the energy of their radios."""
    bill = lab.bill()
    bill = bill[bill["device"].isin([device.name for device in devices])]
    is_up = bill["direction"] == "up"
    return {
        "messages": float(bill["messages"].sum()),
        "messages_up": float(bill.loc[is_up, "messages"].sum()),
        "kb": float(bill["bytes"].sum()) / 1000,
        "kb_down": float(bill.loc[~is_up, "bytes"].sum()) / 1000,
        "radio_j": float(bill["radio_mj"].sum()) / 1000,
    }


def _differences(after: dict[str, float], before: dict[str, float]) -> dict[str, float]:
    """Return the increase of each quantity since an earlier measurement."""
    return {name: value - before[name] for name, value in after.items()}


def _ignore(change: object) -> None:
    """Ignore a change: the play only measures what it costs."""
