"""Two more policies of the paper's introduction (section 1): stock quotes, and disaster recovery.

The text says what they are for and not what their rules are: these are ours.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from mudkit.systems.sublim._policy.actions import Compress, Drop, Every, Keep, Remember, Summary
from mudkit.systems.sublim._policy.policy import Policy, Rule

__all__ = ["ALERT", "REPORT", "disaster_policy", "stock_policy"]

REPORT: Final = {"symbol": "string", "price": "number", "change": "number", "chart": "bytes"}
"""A quote: ``change`` since yesterday, per cent."""
ALERT: Final = {"place": "point", "kind": "string", "urgent": "boolean", "text": "string", "map": "bytes"}
"""What was found in a region: ``map`` as bytes, ``text`` as the simple indication."""


def stock_policy(symbols: Iterable[str], *, alarm_percent: float = 5.0) -> Policy:
    """Return the policy of a subscriber who follows some companies.

    A price that has moved far is shown at once, and remembered; other quotes with their chart while the
    battery is charged, without it on a poor link, and as a summary of ten minutes below 25 %.

    Parameters
    ----------
    symbols : iterable of str
    alarm_percent : float
    """
    return Policy(
        "stock quotes",
        [
            Rule("lookup('symbols', message.symbol, 'listed') IS NULL", [Drop()], "another company"),
            Rule(
                f"abs(message.change) >= {float(alarm_percent)!r}",
                [
                    Every(60, "message.symbol", "alarmed"),
                    Keep(("symbol", "price", "change")),
                    Remember({"last_alarm": "message.symbol"}),
                ],
                "moves far",
            ),
            Rule(
                "state.battery < 25",
                [Summary(600, ("price",), "message.symbol"), Keep(("symbol", "price"))],
                "battery below 25 %",
            ),
            Rule("state.bandwidth_kbps < 500", [Keep(("symbol", "price", "change"))], "poor link"),
            Rule(None, [], "all is well"),
        ],
        message=REPORT,
        variables={"symbols": list(symbols)},
    )


def disaster_policy(lat: float, lon: float, *, km: float = 5.0) -> Policy:
    """Return the policy of a rescuer who searches a region.

    What is urgent comes from everywhere, as text; from the region the whole map on a good link, a smaller one
    on a poor link, and the text below 25 % of battery, once in two minutes for each kind.

    Parameters
    ----------
    lat, lon : float
        Middle of the region, degrees.
    km : float
        How far it reaches.
    """
    here = f"within_km(message.place, point({float(lat)!r}, {float(lon)!r}), {float(km)!r})"
    text = Keep(("place", "kind", "urgent", "text"))
    return Policy(
        "disaster recovery",
        [
            Rule(
                f"NOT coalesce({here}, FALSE) AND NOT coalesce(message.urgent, FALSE)", [Drop()], "far away"
            ),
            Rule(f"NOT coalesce({here}, FALSE)", [text], "far away and urgent"),
            Rule(
                "state.battery < 25 AND NOT coalesce(message.urgent, FALSE)",
                [Every(120, "message.kind"), text],
                "battery below 25 %",
            ),
            Rule("state.battery < 25", [text], "urgent, battery below 25 %"),
            Rule("state.bandwidth_kbps < 200", [Compress("map", 8)], "poor link"),
            Rule(None, [], "all is well"),
        ],
        message=ALERT,
    )
