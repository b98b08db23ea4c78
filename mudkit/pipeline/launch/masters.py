"""Masters of a standalone cluster: whether one of them is there, before a JVM goes looking for it.

Spark itself tries for a minute, in silence, and then stops its context in the middle of its start.
"""

from __future__ import annotations

import re
import socket
import time

from mudkit.errors import EnvironmentProblem
from mudkit.pipeline.launch.settings import Wanted

__all__ = ["ANSWER_S", "addresses", "check_reachable"]

ANSWER_S = 10.0
_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:/,\[\]]+):(?P<port>\d{1,5})")


def addresses(url: str) -> list[tuple[str, int]]:
    """Hosts and ports of ``spark://host:port[,host:port]``; none when a part is no address."""
    matches = [_ADDRESS.fullmatch(part.strip()) for part in url.removeprefix("spark://").split(",")]
    return (
        [(match["host"].strip("[]"), int(match["port"])) for match in matches if match]
        if all(matches)
        else []
    )


def check_reachable(wanted: Wanted) -> None:
    """Raise when a session is to run on a standalone cluster and none of its masters takes a connection.

    Parameters
    ----------
    wanted : Wanted

    Raises
    ------
    EnvironmentProblem
        Within about ten seconds.
    """
    if not wanted.url.startswith("spark://"):
        return
    past_s = time.monotonic() + ANSWER_S
    reasons = []
    places = addresses(wanted.url)
    for number, (host, port) in enumerate(places):
        patience_s = max(1.0, (past_s - time.monotonic()) / (len(places) - number))
        try:
            socket.create_connection((host, port), patience_s).close()
        except (OSError, OverflowError) as error:
            reasons.append(f"{host}:{port}: {getattr(error, 'strerror', None) or error}")
        else:
            return
    raise EnvironmentProblem(
        "There is no Spark cluster at this address.",
        where=wanted.named,
        found=f"{wanted.url}: {'; '.join(reasons) or 'no address of a master'}",
        expected=f"a master that takes a connection within {ANSWER_S:g} s",
        remedy="start it (Spark's `sbin/start-master.sh` and `start-worker.sh`), or correct the address "
        "(spark://host:7077), or leave it out to run Spark on this machine",
    )
