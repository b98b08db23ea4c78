"""The context handler: a change of place becomes subscribe and unsubscribe (Last hop 3.3).

It runs on the device: where a user is nobody else learns, but what she subscribes to for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from mudkit.errors import ParameterError, brief
from mudkit.sources.parameters import number
from mudkit.systems.lasthop.subscription import Subscription
from mudkit.units import distance_km
from mudkit.wire import Fields, Value

__all__ = ["PLACE", "Following"]

PLACE: Final = "{place}"
"""Stands for the name of the place in a topic."""


@dataclass(frozen=True)
class Following:
    """A subscription that depends on where the device is.

    Parameters
    ----------
    subscription : Subscription
        Its topic has ``{place}`` in it, or is wanted as it is at any of the places.
    places : mapping of str to (float, float, float)
        The places by name: latitude and longitude in degrees, and a radius in km. If a device is at several,
        the first counts.

    Examples
    --------
    >>> following = Following(Subscription("traffic {place}"), {"Tromsø": (69.65, 18.96, 20.0)})
    >>> following.topic((69.66, 18.9))
    'traffic Tromsø'
    >>> following.topic((60.39, 5.32)) is None
    True
    """

    subscription: Subscription
    places: Mapping[str, tuple[float, float, float]]

    def __post_init__(self) -> None:
        places: Fields | Value = self.places  # as it came
        if not isinstance(places, Mapping) or not places:
            raise ParameterError(
                "There is no place to be at.",
                where="places",
                found=brief(self.places),
                expected="places by name, as {'Tromsø': (69.65, 18.96, 20.0)}",
            )
        items: Iterable[tuple[Value, Value]] = places.items()
        for name, place in items:
            if (
                not isinstance(name, str)
                or not name
                or not isinstance(place, list | tuple)
                or len(place) != 3
            ):
                raise ParameterError(
                    "This is no place.",
                    where=f"places[{name!r}]",
                    found=brief(place),
                    expected="a name; latitude, longitude and a radius in km",
                )
            for each, low, high in zip(place, (-90.0, -180.0, 0.0), (90.0, 360.0, 21_000.0), strict=True):
                number(f"places[{name!r}]", each, low, high)
            self.subscription.to(self.subscription.topic.replace(PLACE, name))  # refused here, not on the way

    def topic(self, loc: tuple[float, float] | None) -> str | None:
        """Give the topic that is wanted at a place; None: nowhere it is."""
        if loc is None:
            return None
        for name, (lat, lon, radius_km) in self.places.items():
            if float(distance_km(loc[0], loc[1], lat, lon)) <= radius_km:
                return self.subscription.topic.replace(PLACE, name)
        return None

    def changes(
        self, before: str | None, loc: tuple[float, float] | None
    ) -> tuple[str | None, Subscription | None]:
        """Say what to unsubscribe from and what to subscribe to, now that the device is somewhere.

        Parameters
        ----------
        before : str or None
            The topic that it is subscribed to for this so far.
        loc : (float, float) or None
            Latitude and longitude; None, as long as it is not known, changes nothing.
        """
        after = before if loc is None else self.topic(loc)
        if after == before:
            return None, None
        wanted = None if after is None else self.subscription.to(after)
        return before, wanted
