"""Systems: a package of machines each, none of which imports another, and what they share."""

from typing import TYPE_CHECKING

from mudkit._lazy import lazy_exports

if TYPE_CHECKING:
    from mudkit.systems import contrail, lasthop, mud, radiator, store_and_forward, sublim
else:
    __getattr__, __dir__ = lazy_exports(__name__)

__all__ = [
    "contrail",
    "lasthop",
    "mud",
    "radiator",
    "store_and_forward",
    "sublim",
]
