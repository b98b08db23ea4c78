"""Pure generators: named random streams, towns and their commuters, what phones report and ask."""

from typing import TYPE_CHECKING

from mudkit._lazy import lazy_exports

if TYPE_CHECKING:
    from mudkit.checks import number
    from mudkit.sources.city import CommuterTown
    from mudkit.sources.commute import Commute
    from mudkit.sources.ecg import ECG_HZ, decode_ecg, ecg_loss_percent, ecg_mv, encode_ecg
    from mudkit.sources.grid import ManhattanGrid
    from mudkit.sources.link_replay import LinkReplay
    from mudkit.sources.outages import OutageLog, Outages
    from mudkit.sources.replay import Replay
    from mudkit.sources.streams import Stream
    from mudkit.sources.waypoint import RandomWaypoint
    from mudkit.sources.workloads import Every, Poisson, Recorded, TripStarts, WakingReads
else:
    __getattr__, __dir__ = lazy_exports(__name__)

__all__ = [
    "ECG_HZ",
    "Commute",
    "CommuterTown",
    "Every",
    "LinkReplay",
    "ManhattanGrid",
    "OutageLog",
    "Outages",
    "Poisson",
    "RandomWaypoint",
    "Recorded",
    "Replay",
    "Stream",
    "TripStarts",
    "WakingReads",
    "decode_ecg",
    "ecg_loss_percent",
    "ecg_mv",
    "encode_ecg",
    "number",
]
