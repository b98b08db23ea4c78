"""Applications: an aggregability function and a join each (Radiator 1, 2; Tables 1 and 2 are lost).

=================  ===========================================================================================
traffic            wait for five minutes (2.2); mean speed per cell
hazards            wait for five messages (second row of Table 1); number of people per cell
popular spots      wait for twenty people; number of people per cell, without cells of one or two
friends nearby     send friends at once if near, else within five minutes; strangers within half an hour
noise map          wait a minute for the own cell and its neighbours, half an hour for others (1.3)
=================  ===========================================================================================

All declare a key, so that :class:`~mudkit.systems.radiator.engines.groups.Groups` can run them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from mudkit.checks import check_arguments
from mudkit.systems.radiator import joins
from mudkit.systems.radiator.context import Context
from mudkit.systems.radiator.engines.joining import check_join
from mudkit.systems.radiator.joins import Join
from mudkit.systems.radiator.places import Cell, cell, distance_km
from mudkit.systems.radiator.thresholds import (
    Aggregability,
    People,
    Threshold,
    Time,
    Volume,
    aggregability,
)
from mudkit.wire import Fields, Value

Sense: TypeAlias = Callable[[str, tuple[float, float], float], Fields | None]
"""Function of a device's name, place and speed (km/h) that returns the attributes to send; None: nothing."""
NEAR_KM: Final = 2.0
_NOISE_KM: Final = 5.0
_NOISE_DB: Final = (45.0, 0.5)
"""Noise of an empty street, and increase per km/h: an assumption, because no trace contains noise."""


@check_arguments
@dataclass(frozen=True)
class Application:
    """Content, aggregability and join of an application.

    Parameters
    ----------
    name : str
        Key in :data:`APPLICATIONS`, and name in problems.
    aggregability : Aggregability
    join : callable
    sense : callable
        Function of a device's name, place (degrees) and speed (km/h) that returns the attributes to send;
        None: nothing.
    quantity : str
        Quantity and unit of the cells on its maps.

    Raises
    ------
    ParameterError
        The join lacks a setting.
    """

    name: str
    aggregability: Aggregability
    join: Join
    sense: Sense
    quantity: str = "people"

    def __post_init__(self) -> None:
        check_join(self.join)


def _place_and_speed(name: str, loc: tuple[float, float], speed_kmh: float) -> dict[str, Value]:
    """Sense the place and the speed."""
    return {"loc": loc, "speed_kmh": speed_kmh}


def _standing(name: str, loc: tuple[float, float], speed_kmh: float) -> dict[str, Value] | None:
    """Sense the place of a device that stands still; None if it moves."""
    return {"loc": loc} if speed_kmh < 3.0 else None


def _noise(name: str, loc: tuple[float, float], speed_kmh: float) -> dict[str, Value]:
    """Sense the place, and a noise level that is derived from the speed."""
    quiet, more = _NOISE_DB
    return {"loc": loc, "noise_db": quiet + more * speed_kmh}


def _everyone(receiver: Context) -> str:
    """Return one key for all: the function does not look at the context."""
    return "everyone"


def _noise_cell(context: Context) -> Cell:
    """Return the grid cell of the place as the key."""
    return cell(context["loc"], km=_NOISE_KM)


@aggregability(key=_everyone, sender_key=_everyone)
def _five_minutes(sender: str, receiver: str) -> Time:
    """Aggregate messages for five minutes."""
    return Time(seconds=300)


@aggregability(key=_everyone, sender_key=_everyone)
def _five_messages(sender: str, receiver: str) -> Volume:
    """Aggregate five messages."""
    return Volume(5)


@aggregability(key=_everyone, sender_key=_everyone)
def _twenty_people(sender: str, receiver: str) -> People:
    """Aggregate messages of twenty people."""
    return People(20)


@aggregability(key=_noise_cell, sender_key=_noise_cell)
def _near_sooner(sender: Cell, receiver: Cell) -> Time:
    """Aggregate for a minute from the same or a neighbouring cell, for half an hour from others."""
    return Time(seconds=60 if sender.is_beside(receiver) else 1800)


@check_arguments
def friends_nearby(friends: Mapping[str, frozenset[str]]) -> Application:
    """Return the application that shows nearby friends.

    Parameters
    ----------
    friends : mapping of str to frozenset of str
        Friends of each device's user, by device.
    """

    def receiver_key(receiver: Context) -> tuple[str, Cell]:
        """Return the key of a receiver: name and grid cell."""
        (name,) = receiver.people
        return name, cell(receiver["loc"], km=0.5)

    @aggregability(key=receiver_key)
    def by_friendship(sender: Context, receiver: tuple[str, Cell]) -> Threshold:
        """Aggregate strangers for half an hour, friends for five minutes; send near friends at once."""
        name, where = receiver
        if not sender.people & friends.get(name, frozenset()):
            return Time(seconds=1800)
        return Volume(1) if distance_km(sender["loc"], where.centre) < NEAR_KM else Time(seconds=300)

    return Application("friends nearby", by_friendship, joins.concatenation, _place_and_speed)


APPLICATIONS: Final = {
    application.name: application
    for application in (
        Application("traffic", _five_minutes, joins.mean_per_cell, _place_and_speed, "speed, km/h"),
        Application("hazards", _five_messages, joins.count_per_cell, _standing),
        Application("popular spots", _twenty_people, partial(joins.count_per_cell, least=3), _standing),
        Application(
            "noise map", _near_sooner, partial(joins.mean_per_cell, of="noise_db"), _noise, "noise, dB"
        ),
    )
}
"""Applications by name, without :func:`friends_nearby`, which needs the friends. Traces contain no hazards: a
standing car stands for one."""
