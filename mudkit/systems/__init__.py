"""The systems: machines that decide, each in a package of its own; none of them imports another.

What several of them need stands beside them.
"""

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
