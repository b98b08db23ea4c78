"""A moving audience: repeated writes for readers who are near the writer, while all move (Mobius 3).

Each reader has a continuous read. Three ways to name the intended readers are compared on the same moves: a
writer predicate over the places that readers report, a list of names, and no predicate.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from mudkit.checks import OneOf, Range, check_arguments
from mudkit.display import shows_fields
from mudkit.lab import Lab
from mudkit.predicates import Predicate
from mudkit.sources.grid import ManhattanGrid
from mudkit.sources.streams import Stream
from mudkit.systems.mud import Client, Cloud
from mudkit.wire import Value
from mudkit.words import Label, add_labels

if TYPE_CHECKING:
    import pandas as pd

add_labels(
    {
        "reader_bytes": Label("bytes of a phone", "kB a write", 1e-3),
        "reader_j": Label("radio of a phone", "J a write"),
        "intended_share": Label("intended readers", "%", 100.0),
        "article_bytes": Label("size of the message", "kB", 1e-3),
    }
)

Method: TypeAlias = Literal["predicate", "list", "everyone"]
_NEAR: Final = "receiver.age >= :age AND within_km(receiver.loc, sender.loc, :km)"
"""Writer predicate of the intended readers."""

NOTIFIED_FIRST, NOTIFIED_AGAIN, REMOVED = "notified for the first time", "notified again", "removed"
UNINTENDED, MISSED, NEITHER = "notified, not intended", "intended, not notified", "neither"

_APP, _TABLE, _KEY, _SETTLE_S = "city", "news", "a17", 30.0
_BLOCK_M: Final = 300.0


@check_arguments(types=False)
@shows_fields
class AudienceRun(NamedTuple):
    """Result of a run.

    Parameters
    ----------
    lab : Lab
    readers : pandas.DataFrame
        A row for each write and reader: ``write, at_s, reader, age, lat, lon`` (its place), ``is_intended``
        (old enough and near), ``is_known_near`` (by its last report), ``change`` (``upsert``, ``remove`` or
        empty: the last change that reached it) and ``state``, one of ``Audience.STATES``.
    """

    lab: Lab
    readers: pd.DataFrame

    def measures(self) -> dict[str, float]:
        """Return how many readers were notified, and the bytes and energy of their devices.

        Readers over all writes: ``notified, notified_intended, missed_intended``. Of their devices:
        ``up_bytes, down_bytes``, and for each reader and write ``reader_bytes, reader_j`` (of the radio).
        """
        bill = self.lab.bill()
        bill = bill[bill["device"].isin(self.readers["reader"])]
        sent = bill.groupby("direction")["bytes"].sum()
        is_notified, is_intended = self.readers["change"] == "upsert", self.readers["is_intended"]
        return {
            "notified": float(is_notified.sum()),
            "notified_intended": float((is_notified & is_intended).sum()),
            "missed_intended": float((is_intended & ~is_notified).sum()),
            "up_bytes": float(sent.get("up", 0.0)),
            "down_bytes": float(sent.get("down", 0.0)),
            "reader_bytes": float(sent.sum()) / len(self.readers),
            "reader_j": float(bill["radio_mj"].sum()) / 1000 / len(self.readers),
        }


@check_arguments(types=False)
@dataclass(frozen=True)
class Audience:
    """Plan of a moving audience, and of what is written for it.

    Parameters
    ----------
    readers, city_km
        Devices that move in the streets around the writer (Manhattan model), and side of their square.
    reach_km, adult_years
        Largest distance from the writer, and lowest age, of an intended reader; ages are drawn from 10 to 69.
    writes, every_minutes, article_bytes
        Number of writes of one record, time between two of them, and size of the record.
    update_s : float
        Time between two reports of a reader's place.
    lat, lon : float
        Place of the writer, degrees.

    Examples
    --------
    >>> audience = Audience(readers=5, writes=2)
    >>> len(audience.run(seed=1).readers)
    10
    """

    METHODS: ClassVar[tuple[Method, ...]] = get_args(Method)
    """Ways to name the intended readers."""
    STATES: ClassVar = (NOTIFIED_FIRST, NOTIFIED_AGAIN, REMOVED, UNINTENDED, MISSED, NEITHER)
    """States of a reader after a write."""

    readers: Annotated[int, Range(1, 100_000)] = 60
    city_km: Annotated[float, Range(0.5, 100.0)] = 6.0
    reach_km: Annotated[float, Range(0.0, 1e4)] = 1.6
    adult_years: Annotated[int, Range(0, 200)] = 21
    writes: Annotated[int, Range(1, 10_000)] = 3
    every_minutes: Annotated[float, Range(1.0, 1e5)] = 10.0
    update_s: Annotated[float, Range(1.0, 1e6)] = 60.0
    article_bytes: Annotated[int, Range(0, 60_000)] = 8_000
    lat: Annotated[float, Range(-60.0, 60.0)] = 30.27
    lon: Annotated[float, Range(-180.0, 180.0)] = -97.74

    def run(self, seed: int, method: Annotated[Method, OneOf()] = "predicate") -> AudienceRun:
        """Run the plan.

        Parameters
        ----------
        seed : int
        method : {'predicate', 'list', 'everyone'}
            With ``list``, the writer names the intended readers of the first write. Readers report their
            places for ``predicate`` only.
        """
        run = _Run(self, seed, method)
        for write in range(1, self.writes + 1):
            run.wait(self.every_minutes * 60)
            run.write(write)
        return run.result()

    def predicate(self) -> Predicate:
        """Return the writer predicate, with the writer's place as a constant."""
        return Predicate(_NEAR, age=self.adult_years, km=self.reach_km).bind(
            sender={"loc": (self.lat, self.lon)}
        )


class _Run:
    """Changes that each dashboard has received in one run, and the reads that are compared with the state."""

    def __init__(self, audience: Audience, seed: int, method: Method) -> None:
        self.audience, self.method = audience, method
        self.lab = lab = Lab(seed, record_messages=False)
        cloud = Cloud(lab)
        where = (audience.lat, audience.lon)
        self.jane = Client(lab.device("jane", at=where), cloud, app=_APP, token=lab.token("jane", _APP))
        self.jane.create(_TABLE).result()
        city = ManhattanGrid(audience.lat, audience.lon, audience.city_km, _BLOCK_M)
        self.devices = lab.fleet(
            audience.readers, mobility=city, every_s=min(30.0, audience.update_s), prefix="reader"
        )
        ages = Stream(seed, "audience age").integers(0, np.arange(len(self.devices)), 10, 70)
        self.ages = {device.name: int(age) for device, age in zip(self.devices, ages, strict=True)}
        self.reported = self._data()
        self.changes: dict[str, list[str]] = {name: [] for name in self.ages}
        self.clients = {
            device.name: Client(device, cloud, app=_APP, token=lab.token(device.name, _APP))
            for device in self.devices
        }
        reads = {
            name: client.read(
                _TABLE,
                "topic = 'art'",
                "continuous",
                data=self.reported[name],
                callback=partial(self._record_change, name),
            )
            for name, client in self.clients.items()
        }
        self.handles = {name: read.result() for name, read in reads.items()}
        self.names: list[str] = []
        self.rows: list[tuple[Any, ...]] = []

    def _data(self) -> dict[str, dict[str, Any]]:
        """Return the ages and places of the readers now."""
        return {device.name: {"age": self.ages[device.name], "loc": device.loc} for device in self.devices}

    def _record_change(self, name: str, change: Any) -> None:
        """Append the kind of a change that a dashboard has just received."""
        self.changes[name].append(change.kind)

    def wait(self, seconds: float) -> None:
        """Advance time; readers report where they are, if the method needs it."""
        while seconds > 0:
            step = min(seconds, self.audience.update_s)
            self.lab.run(seconds=step)
            seconds -= step
            if self.method == "predicate" and step == self.audience.update_s and seconds > 0:
                self.reported = self._data()
                for name, data in self.reported.items():
                    self.clients[name].update_data(self.handles[name], data)

    def write(self, number_: int) -> None:
        """Write, and record the places of the readers, and the changes that reach them."""
        audience, meant = self.audience, self.audience.predicate()
        data = self._data()
        is_intended = {name: meant({}, receiver=reader) is True for name, reader in data.items()}
        is_known = {name: meant({}, receiver=reader) is True for name, reader in self.reported.items()}
        if number_ == 1:
            self.names = [name for name, yes in is_intended.items() if yes]
        predicate = {
            "predicate": meant,
            "list": Predicate("auth.user IN :names", names=self.names or ["nobody"]),
            "everyone": None,
        }[self.method]
        at_s = self.lab.world.now_us / 1e6
        before = {name: len(changes) for name, changes in self.changes.items()}
        record: dict[str, Value] = {
            "topic": "art",
            "article": "x" * audience.article_bytes,
            "number": number_,
        }
        self.jane.write(_TABLE, _KEY, record, predicate=predicate)
        self.lab.run(seconds=_SETTLE_S)
        for name, changes in self.changes.items():
            self.rows.append((
                number_, at_s, name, self.ages[name], *data[name]["loc"], is_intended[name], is_known[name],
                "".join(changes[before[name] :][-1:]), _state(changes, before[name], is_intended[name]),
            ))  # fmt: skip

    def result(self) -> AudienceRun:
        """Return the lab of the run and a row for each write and reader, as compared so far."""
        import pandas as pd

        columns = [
            "write", "at_s", "reader", "age", "lat", "lon", "is_intended", "is_known_near", "change",
            "state",
        ]  # fmt: skip
        return AudienceRun(self.lab, pd.DataFrame(self.rows, columns=columns))


def _state(changes: list[str], before: int, is_intended: bool) -> str:
    """Return the state of a reader after a write."""
    now = changes[before:][-1:]
    if now == ["remove"]:
        return REMOVED
    if now == ["upsert"]:
        if not is_intended:
            return UNINTENDED
        return NOTIFIED_AGAIN if changes[:before][-1:] == ["upsert"] else NOTIFIED_FIRST
    return MISSED if is_intended else NEITHER
