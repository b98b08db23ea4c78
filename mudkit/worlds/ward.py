"""A ward with intensive care (SUBLIM, section 5): patients' monitors, and doctors who walk.

The paper's own evaluation is lost. This one compares bytes, the delay of alarms, missed alarms and hours of
battery of PICU with state, without state, and of no policy, on the same patients, walks and outages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mudkit.checks import OneOf, Range, check_arguments
from mudkit.display import shows_fields
from mudkit.lab import Lab
from mudkit.sources.ecg import ecg_mv, encode_ecg
from mudkit.sources.outages import Outages
from mudkit.sources.streams import Stream
from mudkit.sources.waypoint import RandomWaypoint
from mudkit.systems.sublim import AccessPoint, Policy, PublishServer, Subscriber
from mudkit.systems.sublim.study import picu, shared_timestamp_policy, stateless_picu
from mudkit.units import KM_PER_DEGREE, distance_km
from mudkit.words import Label, add_labels

if TYPE_CHECKING:
    import pandas as pd

add_labels(
    {
        "off_share": Label("on an empty battery", "% of alarms", 100.0),
    }
)

WardSystem: TypeAlias = Literal["no policy", "stateless", "stateful", "one Timestamp"]
POLICIES: Final[dict[WardSystem, Callable[[Iterable[float]], Policy] | None]] = {
    "no policy": None,
    "stateless": stateless_picu,
    "stateful": picu,
    "one Timestamp": shared_timestamp_policy,
}
_S: Final = 1_000_000
_ALARM_BPM: Final = 50


class Alarm(NamedTuple):
    """Time in which a patient's pulse is below 50, from the first such message to the first other one."""

    patient: int
    from_s: float
    until_s: float


@check_arguments(types=False)
@dataclass(frozen=True)
class Ward:
    """Patients, doctors and access points.

    Parameters
    ----------
    patients, doctors : int
        Patients are numbered from 1, and assigned to the doctors in turn.
    hours, every_s : float
        Virtual time, and interval between two messages of a patient's monitor, each with the
        electrocardiogram of that time.
    alarms_per_day, alarm_minutes : float
        Mean number of a patient's alarms, and their mean length.
    edge_m, range_m : float
        Side of the square of the ward, and range of the Wi-Fi of each of the four access points in it; beyond
        it, a doctor's device uses EDGE.
    outage : float
        Share of time without any network.
    battery_j, base_mw, display_px
        A doctor's device: energy of its battery at the beginning, power without its radio (idle with the
        display off, Carroll and Heiser, USENIX ATC 2010), and display.

    Examples
    --------
    >>> shown = Ward(patients=2, doctors=1, hours=0.1).run(seed=1)
    >>> shown.system
    'stateful'
    """

    patients: Annotated[int, Range(1, 1_000)] = 12
    doctors: Annotated[int, Range(1, 1_000)] = 2
    hours: Annotated[float, Range(0.01, 240.0)] = 3.0
    every_s: Annotated[float, Range(1.0, 600.0)] = 10.0
    alarms_per_day: Annotated[float, Range(0.0, 1_000.0)] = 24.0
    alarm_minutes: Annotated[float, Range(0.1, 600.0)] = 3.0
    edge_m: Annotated[float, Range(100.0, 10_000.0)] = 160.0
    range_m: Annotated[float, Range(1.0, 10_000.0)] = 45.0
    outage: Annotated[float, Range(0.0, 0.95)] = 0.05
    battery_j: Annotated[float, Range(1e-3, 1e9)] = 3_000.0
    base_mw: Annotated[float, Range(0.0, 1e9)] = 268.8
    display_px: Annotated[int, Range(1, 100_000)] = 480

    def run(
        self,
        seed: int,
        system: Annotated[WardSystem, OneOf(summary="There is no such policy here.")] = "stateful",
    ) -> WardRun:
        """Run the plan.

        Parameters
        ----------
        seed : int
            Same seed: same patients, walks and outages with every policy.
        system : {'no policy', 'stateless', 'stateful', 'one Timestamp'}
        """
        return _Shift(self, seed, system).run()

    def describe(self) -> dict[str, Any]:
        """Return all parameters of a run."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def patients_of(self, doctor: int) -> list[int]:
        """Return the numbers, from 1, of the patients of a doctor; doctors are numbered from 0."""
        return [patient for patient in range(1, self.patients + 1) if patient % self.doctors == doctor]


@check_arguments(types=False)
@shows_fields
class WardRun(NamedTuple):
    """Result of a run.

    Parameters
    ----------
    system, seed, lab
        What was run, and the lab at the end.
    alarms : pandas.DataFrame
        A row for each alarm and doctor: ``patient, doctor, from_s, until_s, shown_s`` (NaN: not before its
        end).
    shown : pandas.DataFrame
        A row for each message that a doctor received: ``doctor, patient, at_s, pulse, ecg_bytes``.
    hours : pandas.Series
        Battery life of each doctor's device; beyond the end of the run at the mean power so far.
    """

    system: WardSystem
    seed: int
    lab: Lab
    alarms: pd.DataFrame
    shown: pd.DataFrame
    hours: pd.Series[float]

    def measures(self) -> dict[str, float]:
        """Return the measures over all doctors.

        ``megabytes`` and ``messages`` both ways, ``alarm_s`` (median) and ``alarm_p95_s`` from the first low
        pulse to the first on a doctor's device, the shares of :meth:`alarm_shares`, ``battery_h`` (mean).
        """
        bill = self.lab.bill()
        delay = self.alarms["shown_s"] - self.alarms["from_s"]
        return {
            "megabytes": float(bill["bytes"].sum() / 1e6),
            "messages": float(bill["messages"].sum()),
            "alarm_s": float(delay.median()),
            "alarm_p95_s": float(delay.quantile(0.95)),
            **self.alarm_shares(),
            "battery_h": float(self.hours.mean()),
        }

    def alarm_shares(self, until_h: float = math.inf) -> dict[str, float]:
        """Return the shares of alarms that begin before ``until_h`` and are not shown in time, and why.

        ``missed_share`` of alarms that a device does not show before their end is the sum of ``off_share``
        (the battery was empty when the alarm began) and ``late_share``. All are 0 if there was no alarm.
        """
        alarms = self.alarms[self.alarms["from_s"] < until_h * 3600.0]
        if not len(alarms):
            return {"missed_share": 0.0, "late_share": 0.0, "off_share": 0.0}
        is_missed = alarms["shown_s"].isna()
        is_off = is_missed & (alarms["from_s"] >= alarms["doctor"].map(self.hours) * 3600.0)
        return {
            "missed_share": float(is_missed.mean()),
            "late_share": float((is_missed & ~is_off).mean()),
            "off_share": float(is_off.mean()),
        }


@check_arguments(types=False)
def pulses(ward: Ward, seed: int, patient: int) -> NDArray[np.int64]:
    """Return a patient's pulse at each of her messages.

    An autoregressive process around the patient's mean (60 to 95), with a standard deviation of 4, and never
    below 51; in an alarm 35 to 48.

    Parameters
    ----------
    ward : Ward
    seed, patient : int
        Seed of the run, and number of the patient.

    Returns
    -------
    ndarray of int64, shape (messages,)
        Beats a minute.
    """
    count = int(ward.hours * 3600 / ward.every_s)
    step = np.arange(count)
    mean = float(Stream(seed, "ward mean pulse").uniform(patient, 0, 60.0, 95.0))
    noise = Stream(seed, "ward pulse").normal(patient, step)
    kept = np.exp(-ward.every_s / 120.0)
    pushes = (np.sqrt(1.0 - kept**2) * noise).tolist()
    wander = np.array([*accumulate(pushes, lambda value, push: kept * value + push)])
    bpm = np.maximum(np.rint(mean + 4.0 * wander), _ALARM_BPM + 1)
    begins = Stream(seed, "ward alarm").chance(patient, step, ward.alarms_per_day * ward.every_s / 86_400.0)
    lengths_s = Stream(seed, "ward alarm length").exponential(patient, step, ward.alarm_minutes * 60.0)
    low = Stream(seed, "ward low pulse").integers(patient, step, 35, 49)
    for place in np.flatnonzero(begins).tolist():
        end = place + max(int(lengths_s[place] / ward.every_s), 1)
        bpm[place:end] = low[place:end]
    return bpm.astype(np.int64)


class _Shift:
    """One run of the ward: the patients' pulses, and what doctors are shown."""

    def __init__(self, ward: Ward, seed: int, system: WardSystem) -> None:
        self.ward, self.system, self.seed = ward, system, seed
        self.lab = lab = Lab(seed, record_messages=False)
        self.net = PublishServer(lab)
        half_deg = ward.edge_m / 4000.0 / KM_PER_DEGREE
        self.points = [(half_deg * north, half_deg * east) for north in (-1, 1) for east in (-1, 1)]
        for at in self.points:
            AccessPoint(lab, self.net, at=at, range_m=ward.range_m)
        walk = RandomWaypoint(0.0, 0.0, max(ward.edge_m / 1000.0, 0.1), 0.5, 1.5, 120.0)
        self.names = [f"doctor-{number}" for number in range(1, ward.doctors + 1)]
        make = POLICIES[system]
        outages = Outages(ward.outage) if ward.outage else 0.0
        self.empty_h: dict[str, float] = {}
        """Hours at which batteries were found empty, by device."""
        self.shown: list[tuple[str, int, float, int, int]] = []
        for row, name in enumerate(self.names):
            device = lab.device(
                name,
                link="wifi",
                mobility=walk,
                outage=outages,
                every_s=5.0,
                battery_j=ward.battery_j,
                base_mw=ward.base_mw,
                display_px=ward.display_px,
            )
            doctor = Subscriber(device, self.net)
            if make is not None:
                doctor.set_policy(make(ward.patients_of(row)))
            doctor.on_message(partial(self._show, name))
        self.pulses = {patient: pulses(ward, seed, patient) for patient in range(1, ward.patients + 1)}

    def run(self) -> WardRun:
        """Publish the messages of the monitors, each at its own moment of the interval."""
        import pandas as pd

        ward, world = self.ward, self.lab.world
        offsets = Stream(self.seed, "ward offset").uniform(np.arange(ward.patients + 1), 0, 0.0, ward.every_s)
        self.offsets_s = offsets.tolist()
        for patient in self.pulses:
            world.schedule_call(round(self.offsets_s[patient] * _S), self._publish, (patient, 0))
        world.schedule_action(0, self._roam)
        self.lab.run(hours=ward.hours)
        shown = pd.DataFrame(self.shown, columns=["doctor", "patient", "at_s", "pulse", "ecg_bytes"])
        hours = pd.Series({name: self._hours(name) for name in self.names})
        return WardRun(self.system, self.seed, self.lab, self._alarms(shown), shown, hours)

    def _publish(self, what: tuple[int, int]) -> None:
        """Publish a patient's pulse and signal at this step, and schedule the patient's next one."""
        patient, step = what
        pulse = int(self.pulses[patient][step])
        # The rate is rounded to five beats a minute, since a signal is integrated once for each rate.
        signal = encode_ecg(ecg_mv(5 * round(pulse / 5), self.ward.every_s))
        self.net.publish({"patient": patient, "pulse": pulse, "ecg": signal})
        if step + 1 < len(self.pulses[patient]):
            at_s = self.offsets_s[patient] + (step + 1) * self.ward.every_s
            self.lab.world.schedule_call(round(at_s * _S), self._publish, (patient, step + 1))

    def _roam(self, _: None) -> None:
        """Switch devices to the network available where they are."""
        for name in self.names:
            device = self.lab.devices[name]
            if not device.is_on:
                self.empty_h.setdefault(name, self.lab.world.now_us / 3.6e9)
            if device.loc is None or not device.is_on:
                continue
            away_m = min(1000.0 * float(distance_km(*device.loc, *at)) for at in self.points)
            network = "wifi" if away_m <= self.ward.range_m else "edge"
            if device.network != network:
                device.change_network(network)
        self.lab.world.schedule_action(self.lab.world.now_us + 5 * _S, self._roam)

    def _show(self, doctor: str, message: Mapping[str, Any]) -> None:
        """Record which message a doctor is shown, and when."""
        at_s = self.lab.world.now_us / 1e6
        self.shown.append((doctor, message["patient"], at_s, message["pulse"], len(message.get("ecg", b""))))

    def _alarms(self, shown: pd.DataFrame) -> pd.DataFrame:
        """Return a row for each alarm and doctor.

        `shown_s` is NaN when no low pulse was shown to them in time.
        """
        import pandas as pd

        rows = []
        low = shown[shown["pulse"] < _ALARM_BPM]
        for alarm in self._all_alarms():
            mine = low[(low["patient"] == alarm.patient) & (low["at_s"] >= alarm.from_s)]
            for name in self.names:
                shown_s = mine.loc[(mine["doctor"] == name) & (mine["at_s"] <= alarm.until_s), "at_s"]
                rows.append((alarm.patient, name, alarm.from_s, alarm.until_s, shown_s.min()))
        return pd.DataFrame(rows, columns=["patient", "doctor", "from_s", "until_s", "shown_s"])

    def _all_alarms(self) -> Iterable[Alarm]:
        """Yield the times in which a patient's pulse is below the alarm's limit, by patient."""
        for patient, pulse in self.pulses.items():
            edges = np.diff(np.concatenate([[False], pulse < _ALARM_BPM, [False]]).astype(np.int8))
            for begin, end in zip(np.flatnonzero(edges > 0), np.flatnonzero(edges < 0), strict=True):
                offset_s, every_s = self.offsets_s[patient], self.ward.every_s
                yield Alarm(patient, float(offset_s + every_s * begin), float(offset_s + every_s * end))

    def _hours(self, name: str) -> float:
        """Return the battery life of a device in hours."""
        device = self.lab.devices[name]
        if name in self.empty_h:
            return self.empty_h[name]
        assert device.battery is not None
        used_j = device.battery.capacity_j - device.battery.left_j()
        return self.ward.hours * device.battery.capacity_j / used_j
