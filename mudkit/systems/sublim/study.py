"""PICU: which data of patients in intensive care reach a doctor (SUBLIM, section 5).

The text leaves some of it open; what is decided here is ours.

The rules, in the order in which they are asked:

R4
    A message passes if the doctor is responsible for the patient (``state.patients``) or the pulse is below
    50; then R1 to R3 apply, the rate limit included. ("Goes beyond a certain threshold (let us say 50)" is
    read as falls below: the figure's text drops the message when "the pulse is good".) A patient of others
    whose pulse is missing is not shown.
R2
    Battery thresholds are of the charge left: above 75 % all is well; from 25 to 75 %, both ends included,
    the electrocardiogram is compressed, 2 times at 75 % to 6 times at 25 %; below 25 % only patient and pulse
    are sent, at most every five minutes for each patient.
R3
    A link that carries less than 500 kbit/s is a poor one: the electrocardiogram is compressed 8 times, which
    is more than any battery asks for, so R3 comes before the compression of R2.
R1
    Otherwise everything is sent. The electrocardiogram never has more samples than the display has pixels,
    compressed or not.

What is not known (no battery, no limit, no display) restricts nothing.

The paper keeps one ``Timestamp`` for all patients (:func:`shared_timestamp_policy`). It starves all but one
patient: whose message arrives first after five minutes is shown again and again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from mudkit.systems.sublim._policy.actions import Compress, Drop, Every, Keep, Remember, Resize, Summary
from mudkit.systems.sublim._policy.function import FunctionPolicy
from mudkit.systems.sublim._policy.message import compress, create_message, resize
from mudkit.systems.sublim._policy.policy import Policy, Rule
from mudkit.systems.sublim._policy.state import State
from mudkit.wire import Fields, Value

__all__ = [
    "ALERT",
    "MESSAGE",
    "REPORT",
    "disaster_policy",
    "function",
    "picu",
    "shared_timestamp_policy",
    "stateless",
    "stock_policy",
]

MESSAGE: Final = {"patient": "number", "pulse": "number", "ecg": "bytes"}
_OTHERS: Final = (
    "lookup('patients', message.patient, 'listed') IS NULL AND coalesce(message.pulse >= 50, TRUE)"
)
_EVERY_S: Final = 300


def picu(patients: Iterable[float], *, per: str | None = "message.patient", name: str = "PICU") -> Policy:
    """Give the policy as rules.

    Parameters
    ----------
    patients : iterable of float
        The patients for whom the doctor is responsible.
    per : str or None
        What the rate limit counts by; None: all together.
    name : str
    """
    ratio = "2 + (75 - state.battery) / 12.5"
    return Policy(
        name,
        [
            Rule(_OTHERS, [Drop()], "R4, a patient of others who is well"),
            Rule(
                "state.battery < 25",
                [Every(_EVERY_S, per, "sent"), Keep(("patient", "pulse"))],
                "R2, battery below 25 %",
            ),
            Rule("state.bandwidth_kbps < 500", [Compress("ecg", 8), Resize("ecg")], "R3, poor link"),
            Rule(
                "state.battery <= 75", [Compress("ecg", ratio), Resize("ecg")], "R2, battery from 25 to 75 %"
            ),
            Rule(None, [Resize("ecg")], "R1, all is well"),
        ],
        message=MESSAGE,
        variables={"patients": list(patients)},
    )


def shared_timestamp_policy(patients: Iterable[float]) -> Policy:
    """Return the paper's variant: one time of the last message for all patients.

    Parameters
    ----------
    patients : iterable of float
        Numbers of the patients.
    """
    return picu(patients, per=None, name="PICU with one Timestamp")


def stateless(patients: Iterable[float]) -> Policy:
    """Give PICU-Stateless, the control: all data of the doctor's patients, and of others with a low pulse.

    It looks at the message only; whom the doctor is responsible for is a constant of it.
    """
    listed = ", ".join(repr(float(each)) for each in patients)
    mine = f"message.patient IN ({listed}) OR " if listed else ""
    return Policy(
        "PICU-Stateless", [Rule(f"{mine}message.pulse < 50", [], "theirs, or low")], message=MESSAGE
    )


def function(patients: Iterable[float]) -> FunctionPolicy:
    """Give the policy as a Python function; it agrees with the rules."""
    return FunctionPolicy(_picu, {"patients": list(patients), "sent": {}})


def _picu(message: Fields, state: State) -> dict[str, Value] | None:
    battery = state.get_property("battery")
    bandwidth_kbps = state.get_property("bandwidth_kbps")
    patient, pulse = _number(message.get("patient")), _number(message.get("pulse"))
    is_mine = patient in state.get_property("patients")
    is_low = pulse is not None and pulse < 50
    if not is_mine and not is_low:
        return None
    made = create_message(message)
    if battery is not None and battery < 25:
        sent = dict(state.get_property("sent"))
        key = repr(patient if patient is not None else message.get("patient"))
        if key in sent and state.now_s - sent[key] < _EVERY_S:
            return None
        sent[key] = state.now_s
        state.set_property(
            "sent", {each: at_s for each, at_s in sent.items() if state.now_s - at_s < _EVERY_S}
        )
        return {name: made[name] for name in ("patient", "pulse") if name in made}
    if bandwidth_kbps is not None and bandwidth_kbps < 500:
        compress(made, "ecg", 8)
    elif battery is not None and battery <= 75:
        compress(made, "ecg", 2 + (75 - battery) / 12.5)
    return resize(made, "ecg", state.get_property("display_px"))


def _number(value: Value) -> float | None:
    """Give a value as predicates see it: what is no finite number is missing."""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    return None


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
