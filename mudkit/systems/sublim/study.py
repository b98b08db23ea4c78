"""Policies of the paper's evaluation: PICU (section 5), stock quotes and disaster recovery (section 1).

PICU decides which data of patients in intensive care reach a doctor. The paper leaves some of it open; these
are our decisions, in the order of the rules:

R4
    A message passes if the doctor is responsible for the patient (``state.patients``) or the pulse is below
    50; then R1 to R3 apply, including the rate limit. ("Goes beyond a certain threshold (let us say 50)" is
    read as falls below: the figure's text drops the message when "the pulse is good".) A message of another
    doctor's patient without a pulse is dropped.
R2
    Battery thresholds are remaining charge. Above 75 %: no restriction. From 25 to 75 %, inclusive: the
    electrocardiogram is compressed, 2 times at 75 % to 6 times at 25 %. Below 25 %: only patient and pulse
    are sent, at most every five minutes per patient.
R3
    Below 500 kbit/s the electrocardiogram is compressed 8 times, more than any battery level requires, so R3
    comes before the compression of R2.
R1
    Otherwise everything is sent. The electrocardiogram never has more samples than the display has pixels,
    compressed or not.

An unknown battery level, bandwidth or display width restricts nothing.

The paper keeps one ``Timestamp`` for all patients (:func:`shared_timestamp_policy`). It starves all but one
patient: the one whose message arrives first after each five minutes.

The paper says what the other two policies are for, but not their rules: these are ours.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from mudkit.checks import check_arguments
from mudkit.systems.sublim._policy.actions import Compress, Drop, Every, Keep, Remember, Resize, Summary
from mudkit.systems.sublim._policy.function import FunctionPolicy
from mudkit.systems.sublim._policy.message import compress, create_message, resize
from mudkit.systems.sublim._policy.policy import Policy, Rule
from mudkit.systems.sublim._policy.state import State
from mudkit.wire import Fields, Value

PICU_FIELDS: Final = {"patient": "number", "pulse": "number", "ecg": "bytes"}
_OTHERS: Final = (
    "lookup('patients', message.patient, 'listed') IS NULL AND coalesce(message.pulse >= 50, TRUE)"
)
_EVERY_S: Final = 300


def picu(patients: Iterable[float], *, per: str | None = "message.patient", name: str = "PICU") -> Policy:
    """Return PICU as rules; ``per`` is what its rate limit counts by, None: all patients together."""
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
        message=PICU_FIELDS,
        variables={"patients": list(patients)},
    )


@check_arguments
def shared_timestamp_policy(patients: Iterable[float]) -> Policy:
    """Return the paper's variant of PICU: one time of the last message for all patients.

    Parameters
    ----------
    patients : iterable of float
        Numbers of the doctor's patients.
    """
    return picu(patients, per=None, name="PICU with one Timestamp")


def stateless_picu(patients: Iterable[float]) -> Policy:
    """Return PICU-Stateless, the control: data of the doctor's patients, and of others with a low pulse."""
    listed = ", ".join(repr(float(patient)) for patient in patients)
    mine = f"message.patient IN ({listed}) OR " if listed else ""
    return Policy(
        "PICU-Stateless", [Rule(f"{mine}message.pulse < 50", [], "theirs, or low")], message=PICU_FIELDS
    )


def picu_function(patients: Iterable[float]) -> FunctionPolicy:
    """Return PICU as a Python function, equivalent to the rules."""
    return FunctionPolicy(_picu, {"patients": list(patients), "sent": {}})


def _picu(message: Fields, state: State) -> dict[str, Value] | None:
    """Decide as the rules of :func:`picu`: the function that :func:`picu_function` wraps."""
    battery = state.get_property("battery")
    bandwidth_kbps = state.get_property("bandwidth_kbps")
    patient, pulse = _number(message.get("patient")), _number(message.get("pulse"))
    is_mine = patient in state.get_property("patients")
    is_low = pulse is not None and pulse < 50
    if not is_mine and not is_low:
        return None
    sending = create_message(message)
    if battery is not None and battery < 25:
        sent = dict(state.get_property("sent"))
        key = repr(patient if patient is not None else message.get("patient"))
        if key in sent and state.now_s - sent[key] < _EVERY_S:
            return None
        sent[key] = state.now_s
        state.set_property(
            "sent", {patient_key: at_s for patient_key, at_s in sent.items() if state.now_s - at_s < _EVERY_S}
        )
        return {name: sending[name] for name in ("patient", "pulse") if name in sending}
    if bandwidth_kbps is not None and bandwidth_kbps < 500:
        compress(sending, "ecg", 8)
    elif battery is not None and battery <= 75:
        compress(sending, "ecg", 2 + (75 - battery) / 12.5)
    return resize(sending, "ecg", state.get_property("display_px"))


def _number(value: Value) -> float | None:
    """Return a value as predicates read it: a finite number, or None."""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    return None


QUOTE_FIELDS: Final = {"symbol": "string", "price": "number", "change": "number", "chart": "bytes"}
"""Fields of a stock quote; ``change`` is per cent since the day before."""
FINDING_FIELDS: Final = {
    "place": "point",
    "kind": "string",
    "urgent": "boolean",
    "text": "string",
    "map": "bytes",
}
"""Fields of a finding in a region: ``map`` in bytes, and ``text``, the simple indication."""


@check_arguments
def stock_policy(symbols: Iterable[str], *, alarm_percent: float = 5.0) -> Policy:
    """Return the policy of a subscriber who follows some companies.

    A large change of price is sent at once, and remembered. Other quotes are sent with their chart if the
    battery is charged, without it on a slow link, and as a summary of ten minutes below 25 %.

    Parameters
    ----------
    symbols : iterable of str
        Symbols of the companies.
    alarm_percent : float
        Change that is sent at once, per cent.
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
        message=QUOTE_FIELDS,
        variables={"symbols": list(symbols)},
    )


@check_arguments
def disaster_policy(lat: float, lon: float, *, km: float = 5.0) -> Policy:
    """Return the policy of a rescuer who searches a region.

    Urgent findings from elsewhere are sent as text. Findings from the region are sent with the map, reduced
    on a slow link; below 25 % of battery as text, once in two minutes per kind.

    Parameters
    ----------
    lat, lon : float
        Centre of the region, degrees.
    km : float
        Radius of the region, kilometres.
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
        message=FINDING_FIELDS,
    )
