"""Lab: the simulated world of a notebook."""

from __future__ import annotations

import datetime as dt
import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from mudkit import words
from mudkit.checks import Range, check_arguments, number
from mudkit.display import Displayed, Table, View, first_rows
from mudkit.errors import ParameterError, brief, did_you_mean, listed
from mudkit.fleet import Device, Faults, Host, World
from mudkit.fleet.bill import BillRow
from mudkit.fleet.coverage import AccessPoint
from mudkit.fleet.device import BASE_MW
from mudkit.fleet.group import Group, check_host_name
from mudkit.fleet.link import profile_of
from mudkit.fleet.load import LOAD_COLUMNS, ServerProfile
from mudkit.fleet.recorder import Recorder, iso_time
from mudkit.fleet.scheduled import ScheduledCall
from mudkit.fleet.transport import Transport, transport_of
from mudkit.places import Place, parse_place
from mudkit.progress import bar
from mudkit.sources.courses import Mobility
from mudkit.sources.link_replay import LinkReplay
from mudkit.sources.outages import OutageLog, Outages
from mudkit.tokens import Authority
from mudkit.trace.schema import to_frame
from mudkit.units import US_PER_S

if TYPE_CHECKING:
    import pandas as pd

START = "2010-03-01T13:00"
"""Monday, 7:00 at the default centre of the mobility models: people are about to leave home."""

_US_PER_H = 3_600_000_000
_MAX_DEVICES = 1_000_000
_STATES = ("online", "offline", "off")
_MANGLED = {"loss_share": "lost", "repeat_share": "repeated", "delay_share": "delayed"}
_MAX_COUNTED = 10_000
"""Maximum number of devices that a display counts."""
_MAX_TIME = dt.datetime(2200, 1, 1, tzinfo=dt.UTC)
_MAX_TIME_US = (_MAX_TIME - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
"""Latest time of a lab: pandas has no times after 2262."""


@check_arguments
class Lab(Displayed):
    """A world in virtual time, and everything that is in it.

    A run is a function of the seed and of the calls to the lab. A device that is added later leaves the
    others unchanged, unless it interacts with them.

    Parameters
    ----------
    seed : int
        Seed of all randomness: a whole number of 64 bits, which may be negative.
    start : str or datetime
        Date and time at which virtual time begins; UTC unless it names another zone.
    transport : str or Transport
        What messages cost besides their own bytes: ``messages`` (nothing), ``https`` or ``mqtt``
        (:data:`mudkit.fleet.transport.TRANSPORTS`): headers, handshakes, and connections that are forgotten.
    record_messages : bool
        Record every message and transfer; a run of millions of them is faster without.
    record_exposure : bool
        Record what each party received or stored (:meth:`exposure`).
    record_reasons : bool
        Charge each message to the reason for which it was sent, too (:meth:`bill`).

    Raises
    ------
    ParameterError
        The seed is no whole number of 64 bits, the start is no time, or there is no such transport.

    Attributes
    ----------
    devices : dict of str to Device
        All devices by name, in the order in which they were added.
    faults : Faults
        Cuts links, kills, restarts and switches off machines, changes addresses and networks, and mangles
        messages.
    trace : Recorder
        ``trace.table(name)`` as Arrow, ``trace.to_parquet(path)`` as a trace folder.
    start_us : int
        Start of virtual time, in microseconds since 1970 (UTC).

    Examples
    --------
    >>> lab = Lab(seed=7)
    >>> jane = lab.device("jane-phone", link="lte", at=(30.27, -97.74))
    >>> fleet = lab.fleet(20, mobility="commute", link="umts_3g", outage=0.2)
    >>> lab.run(hours=2)
    >>> lab.now.isoformat()
    '2010-03-01T15:00:00+00:00'
    """

    def __init__(
        self,
        seed: Annotated[int, Range(-(1 << 63), (1 << 63) - 1)] = 0,
        *,
        start: str | dt.datetime = START,
        transport: str | Transport = "messages",
        record_messages: bool = True,
        record_exposure: bool = False,
        record_reasons: bool = False,
    ) -> None:
        carrier = transport_of(transport)
        self.world = World(seed)
        if carrier is not None:
            self.world.carry_over(carrier)
        if record_reasons:
            from mudkit.systems.reasons import reason_of  # loads the messages of all systems

            self.world.split_bill(reason_of)
        self.start_us = epoch_us(start)
        self.devices: dict[str, Device] = {}
        self.faults = Faults(self.world)
        self._groups: list[dict[str, Any]] = []
        described = {
            "name": f"a lab, seed {seed}",
            "format": "lab",
            "seed": seed,
            "start": iso_time(self.start_us),
            "devices": self._groups,
            **({} if carrier is None else {"transport": carrier.name}),
        }
        self.trace = Recorder(
            self.world, self.start_us, described, messages=record_messages, exposure=record_exposure
        )

    def device(
        self,
        name: str,
        link: str | LinkReplay = "lte",
        at: str | Place | None = None,
        *,
        mobility: str | Mobility | None = None,
        outage: float | Outages | OutageLog = 0.0,
        every_s: float = 60.0,
        battery_j: float | None = None,
        base_mw: float = BASE_MW,
        inbound: bool | None = None,
        roam: bool = False,
        short_range: str | None = None,
        storage: str | os.PathLike[str] | None = None,
        **context: Any,
    ) -> Device:
        """Add a device.

        Parameters
        ----------
        name : str
            A name that no other device or server has.
        link : str or LinkReplay
            ``wifi``, ``lte``, ``umts_3g``, ``edge``, or ``ideal``, which has neither latency nor limit; or
            measured throughput, over LTE.
        at : str or (float, float), optional
            Name of a city, or latitude and longitude in degrees; for a device that moves pass ``mobility``
            instead.
        mobility : str or Mobility, optional
            ``waypoint``, ``manhattan``, ``commute``, or a model such as ``Replay(trace)``.
        outage : float, Outages or OutageLog
            Share of time without a network, with the defaults of :class:`~mudkit.sources.outages.Outages`; or
            a process, or recorded outages.
        every_s : float
            Time between two positions of a device that moves.
        battery_j : float, optional
            Energy of its full battery; the device is switched off when it is empty. None: it is on a charger.
        base_mw : float
            Power of the device without its radio.
        inbound : bool, optional
            Whether any host can begin to send to it. If not, those can to which it has a connection; what
            others send fails. None: it lets nobody in if the lab has a transport with connections.
        roam : bool
            Whether it uses access points (:meth:`access_point`) where it is in range of one.
        short_range : str, optional
            ``bluetooth`` or ``wifi_direct``: what it sends to devices near it that have the same goes there
            without a network, and is ``near up`` and ``near down`` on the bill
            (:data:`mudkit.fleet.nearby.SHORT_RANGES`). None: everything goes over the network.
        storage : path-like, optional
            Folder for the stores of its machines; existing stores are used. By default they are in memory.
        **context
            Its context: ``display_px=…``, ``storage_bytes=…``, any field that a system reads.

        Raises
        ------
        ParameterError
            The name is taken, or something is unknown or out of range.
        """
        if at is not None and mobility is not None:
            raise ParameterError(
                "A device is at a place or moves.",
                where="at, mobility",
                found=f"{at} and {mobility!r}",
                expected="at= or mobility=, not both",
            )
        group = Group(
            [name],
            link=link,
            at=at,
            mobility=mobility,
            outage=outage,
            every_s=every_s,
            battery_j=battery_j,
            base_mw=base_mw,
            inbound=inbound,
            roam=roam,
            short_range=short_range,
            context=context,
        )
        device = self._add(group)[0]
        device.storage = None if storage is None else Path(storage)
        return device

    def fleet(
        self,
        n: Annotated[int, Range(1, _MAX_DEVICES)],
        *,
        mobility: str | Mobility | None = None,
        link: str | LinkReplay = "lte",
        outage: float | Outages | OutageLog = 0.0,
        every_s: float = 60.0,
        battery_j: float | None = None,
        base_mw: float = BASE_MW,
        inbound: bool | None = None,
        roam: bool = False,
        short_range: str | None = None,
        prefix: str = "phone",
        **context: Any,
    ) -> list[Device]:
        """Add devices that are alike: ``phone-00000`` and on, after the existing ones of this prefix.

        Parameters
        ----------
        n : int
            Number of devices, from 1 to 1,000,000.
        prefix : str
            Beginning of their names, before the dash and the number.
        mobility, link, outage, every_s, battery_j, base_mw, inbound, roam, short_range, **context
            As in :meth:`device`.

        Raises
        ------
        ParameterError
            As :meth:`device`; a trace of moves or links has fewer devices.
        """
        numbered = re.compile(re.escape(f"{prefix}-") + r"(\d{5,})")
        taken = [int(match[1]) for match in map(numbered.fullmatch, self.devices) if match]
        first = max(taken, default=-1) + 1
        names = [f"{prefix}-{number:05d}" for number in range(first, first + n)]
        group = Group(
            names,
            link=link,
            at=None,
            mobility=mobility,
            outage=outage,
            every_s=every_s,
            battery_j=battery_j,
            base_mw=base_mw,
            inbound=inbound,
            roam=roam,
            short_range=short_range,
            context=context,
        )
        return self._add(group)

    @property
    def authority(self) -> Authority:
        """Authority that signs the tokens of this lab."""
        return Authority(hashlib.sha256(f"the authority of lab {self.world.seed}".encode()).digest())

    def token(
        self,
        user: str | None = None,
        app: str = "app",
        *,
        hours: Annotated[float, Range(0.0, 1e9)] = 24.0,
        device: str | None = None,
    ) -> str:
        """Return a signed token for an app, and for a user if there is one.

        Parameters
        ----------
        user : str, optional
            The user that the token proves. None: it proves the app only.
        app : str
            The app that may show the token.
        hours : float
            Virtual time until it expires.
        device : str, optional
            The only device that may show it. None: any device.

        Raises
        ------
        ParameterError
            The hours are out of range.
        """
        length_s = hours * 3600
        return self.authority.issue(app, user, expires_s=self.world.now_us / 1e6 + length_s, device=device)

    def server(
        self,
        name: str,
        storage: str | os.PathLike[str] | None = None,
        *,
        at: str | Place | None = None,
        profile: ServerProfile | None = None,
    ) -> Host:
        """Return the server of a name; it is added if there is none.

        Parameters
        ----------
        name : str
            A name that no device has.
        storage : path-like, optional
            As in :meth:`device`.
        at : str or (float, float), optional
            Its place: name of a city, or latitude and longitude in degrees. Messages between it and what has
            a place, too, take the time of their way (:func:`mudkit.places.travel_us`). By default it is near
            everything.
        profile : ServerProfile, optional
            How long it takes for its events, and how many may wait. By default they take no time. It cannot
            change once the server has handled events.

        Raises
        ------
        ParameterError
            The name is not usable, or a device has it; there is no such city; the server has handled events
            with another profile.
        """
        host = self.world.hosts.get(check_host_name(name))
        if isinstance(host, Device):
            raise ParameterError(
                "This is a device, not a server.",
                where="name",
                found=brief(name),
                expected="a name that no device has",
            )
        server = host or self.world.add_server(name)
        if storage is not None:
            server.storage = Path(storage)
        if at is not None:
            self.world.place_server(server, parse_place("at", at))
        if profile is not None:
            self.world.load_server(server, profile)
        return server

    def access_point(
        self,
        name: str,
        at: str | Place,
        range_m: Annotated[float, Range(1e-3, 1e6)],
        link: str = "wifi",
    ) -> AccessPoint:
        """Add an access point, which devices with ``roam=True`` use while they are in its range.

        Parameters
        ----------
        name : str
            A name that no other access point has.
        at : str or (float, float)
            Name of a city, or latitude and longitude in degrees.
        range_m : float
            Radius of its range, metres.
        link : str
            Kind of its network.

        Raises
        ------
        ParameterError
            The name is taken, there is no such place or link, or the range is not positive.
        """
        if check_host_name(name) in self.world.coverage.points:
            raise ParameterError(
                "An access point of this name exists already.",
                where="name",
                found=brief(name),
                expected="a unique name",
            )
        point = AccessPoint(name, parse_place("at", at), range_m, profile_of(link))
        self.world.coverage.add_point(point)
        return point

    @property
    def access_points(self) -> dict[str, AccessPoint]:
        """Access points by name."""
        return dict(self.world.coverage.points)

    @property
    def now(self) -> dt.datetime:
        """Virtual time, UTC."""
        return dt.datetime.fromisoformat(iso_time(self.start_us + self.world.now_us))

    def run(self, hours: float = 0.0, *, minutes: float = 0.0, seconds: float = 0.0) -> None:
        """Run virtual time, with a progress bar if it takes longer than a second.

        Ctrl-C stops between two events; the lab can be run further from there.

        Parameters
        ----------
        hours, minutes, seconds : float
            Duration in virtual time: the sum of the three, none negative. A number without a name is hours.

        Raises
        ------
        ParameterError
            A duration is negative, or a trace of moves or links does not cover the run.
        ReentrantRun
            Called inside an event, a callback or a scheduled call.
        ScheduledCallFailed
            A scheduled call raised an exception (:meth:`schedule`).
        """
        began_us, length_us = self.world.now_us, self._length_us(hours, minutes, seconds)
        self.world.check_traces_last(began_us + length_us)  # before a bar is shown
        with bar(length_us / _US_PER_H, "virtual time", "h") as done:
            self.world.run(began_us + length_us, lambda now_us: done((now_us - began_us) / _US_PER_H))

    def schedule(
        self,
        call: Callable[[], object],
        *,
        hours: float = 0.0,
        minutes: float = 0.0,
        seconds: float = 0.0,
        at: str | dt.datetime | None = None,
    ) -> ScheduledCall:
        """Schedule a call of a function without arguments, in the middle of later runs of virtual time.

        Calls run in the order of time, then of scheduling, after everything else of their time. A call may
        call clients, which handle that when it returns; it cannot wait for them with ``result()``. If it
        raises an exception, the run ends there; the lab can be run further.

        Parameters
        ----------
        call : callable
            The function; what it returns is ignored.
        hours, minutes, seconds : float
            Virtual time from now: the sum of the three, none negative.
        at : str or datetime, optional
            Time of the lab's clock instead, now or later; UTC unless it names another zone.

        Returns
        -------
        ScheduledCall
            Its ``cancel()`` cancels the call; ``next_at`` is its time.

        Raises
        ------
        ParameterError
            The time is in the past or not usable, or the function takes arguments.

        Examples
        --------
        >>> lab = Lab(seed=7)
        >>> handle = lab.schedule(lambda: print(f"{lab.now:%H:%M}"), minutes=10)
        >>> lab.run(hours=1)
        13:10
        """
        delay_us = self._length_us(hours, minutes, seconds)
        if at is not None and delay_us:
            raise ParameterError(
                "A call is scheduled at a time, or some time from now.",
                where="at, hours, minutes, seconds",
                found=f"at={brief(at)} and {words.duration(delay_us / US_PER_S)}",
                expected="at=, or minutes= and the like, not both",
            )
        t_us = self.world.now_us + delay_us if at is None else self._time_us("at", at)
        return ScheduledCall(self.world, call, self.start_us, t_us)

    def repeat(
        self,
        call: Callable[[], object],
        *,
        hours: float = 0.0,
        minutes: float = 0.0,
        seconds: float = 0.0,
        times: Annotated[int, Range(1, 1 << 62)] | None = None,
        until: str | dt.datetime | None = None,
    ) -> ScheduledCall:
        """Schedule calls of a function without arguments at equal intervals, the first after one interval.

        Each call is scheduled when the one before it runs; see :meth:`schedule`.

        Parameters
        ----------
        call : callable
            The function; what it returns is ignored.
        hours, minutes, seconds : float
            Interval in virtual time: the sum of the three, at least a microsecond.
        times : int, optional
            Number of calls. None: unlimited.
        until : str or datetime, optional
            Latest time of a call, on the lab's clock. None: unlimited.

        Returns
        -------
        ScheduledCall
            Its ``cancel()`` cancels all further calls; ``count`` is the number of calls so far.

        Raises
        ------
        ParameterError
            The interval is no longer than 0, ``until`` is in the past, or the function takes arguments.

        Examples
        --------
        >>> lab = Lab(seed=7)
        >>> handle = lab.repeat(lambda: print(f"{lab.now:%H:%M}"), minutes=20, times=2)
        >>> lab.run(hours=1)
        13:20
        13:40
        """
        every_us = self._length_us(hours, minutes, seconds)
        if not every_us:
            raise ParameterError(
                "Calls are repeated at an interval.",
                where="hours, minutes, seconds",
                found=f"{hours:g} h, {minutes:g} min and {seconds:g} s",
                expected="an interval longer than 0: at least a microsecond",
                remedy="name one: lab.repeat(call, minutes=5)",
            )
        until_us = None if until is None else self._time_us("until", until)
        first_us = self.world.now_us + every_us
        return ScheduledCall(self.world, call, self.start_us, first_us, every_us, times, until_us)

    def _length_us(self, hours: float, minutes: float, seconds: float) -> int:
        """Return a duration from now in µs, or raise ParameterError if it is negative or too long."""
        length_us = 0
        given = (("hours", hours, 3600), ("minutes", minutes, 60), ("seconds", seconds, 1))
        for name, value, unit_s in given:
            most = (_MAX_TIME_US - self.start_us - self.world.now_us - length_us) / (unit_s * US_PER_S)
            length_us += round(number(name, value, 0.0, most) * unit_s * US_PER_S)
        return length_us

    def _time_us(self, name: str, at: str | dt.datetime) -> int:
        """Return a time of the lab's clock in µs of virtual time, or raise ParameterError if it is past."""
        t_us = epoch_us(at, name, "This time is not usable.") - self.start_us
        if t_us < self.world.now_us:
            raise ParameterError(
                "A call cannot be scheduled in the past.",
                where=name,
                found=brief(str(at)),
                expected=f"{self.now.isoformat()}, which is now, or later",
                remedy="name a later time, or the time from now: minutes=10",
            )
        return t_us

    def bill(self, by: Literal["reason"] | None = None) -> pd.DataFrame:
        """Return the bill as of now, ``system, device, direction, messages, bytes, radio_mj, wakeups``.

        Parameters
        ----------
        by : {'reason'}, optional
            Split each row by the reason for which its messages were sent, in a column ``reason``
            (:data:`mudkit.events.Reason`): ``payload``, ``acknowledgement``, ``heartbeat``, ``policy``,
            ``administration``, or ``retransmission`` of any of these. The rows add up to those of the bill;
            joules are charged to the message that opens the radio, or that is the last before its tail.

        Raises
        ------
        ParameterError
            The lab was made without ``record_reasons=True``.
        """
        if by is None:
            return self.frame("bill")
        import pandas as pd

        if not self.world.is_bill_split:
            raise ParameterError(
                "This lab does not keep the reasons of messages.",
                where="by",
                found=brief(by),
                remedy="make it with Lab(…, record_reasons=True)",
            )
        rows = [(*row[:3], reason, *row[3:]) for reason, row in self.world.bill_by_reason()]
        columns = [*BillRow._fields[:3], "reason", *BillRow._fields[3:]]
        return pd.DataFrame(rows, columns=columns)

    def deliveries(self) -> pd.DataFrame:
        """Return what became of each item for each receiver (:data:`mudkit.trace.schema.DELIVERIES`)."""
        return self.frame("deliveries")

    def history(self) -> pd.DataFrame:
        """Return the operations in the order in which they were invoked, for :mod:`mudkit.consistency`.

        ``client`` is the name of the device. Further apps of a device are clients of their own, for instance
        ``jane-phone/mud-chat``.
        """
        return self.frame("operations").sort_values(["invoked", "client", "op_id"], ignore_index=True)

    def exposure(self) -> pd.DataFrame:
        """Return what each party held: ``party, system, how, field, form, times, bytes, first``.

        Raises
        ------
        ParameterError
            The lab was made without ``record_exposure=True``.
        """
        import pandas as pd

        if self.trace.exposure is None:
            raise ParameterError(
                "This lab does not keep what parties held.",
                remedy="make it with Lab(…, record_exposure=True)",
            )
        columns = ["party", "system", "how", "field", "form", "times", "bytes", "first"]
        frame = pd.DataFrame(list(self.trace.exposure.rows()), columns=columns)
        frame["first"] = pd.to_datetime(frame["first"] + self.start_us, unit="us", utc=True)
        return frame

    @property
    def problems(self) -> pd.DataFrame:
        """Failures so far (``device, ts, detail, system``), which ended only a call or an event.

        These are exceptions of machines, of functions that a system was given, and of callbacks. Failures
        that a system handles itself (a join, a policy) are listed by this system.
        """
        incidents = self.frame("incidents")
        failed = incidents.loc[incidents["incident"] == "failed", ["device", "ts", "detail", "system"]]
        return failed.reset_index(drop=True)

    def frame(self, table: str) -> pd.DataFrame:
        """Return a table of the trace as a DataFrame, with the columns of :mod:`mudkit.trace.schema`.

        Parameters
        ----------
        table : str
            ``positions``, ``links``, ``messages``, ``transfers``, ``deliveries``, ``operations``, ``reads``,
            ``incidents``, ``bill``.

        Raises
        ------
        ParameterError
            There is no such table.
        """
        return to_frame(self.trace.table(table))

    def server_load(self) -> pd.DataFrame:
        """Return how busy servers with a profile were, minute by minute.

        Columns: ``server, start, served`` (messages and timers that a worker took), ``lost`` (messages that
        did not fit into the queue), ``busy_share`` (of the time of all workers), ``mean_wait_s, max_wait_s``
        (for a worker), ``max_waiting`` (length of the queue). The last minute is as long as it has lasted.
        Minutes in which nothing happened are not among them.
        """
        import pandas as pd

        loads = [host.load for host in self.world.hosts.values() if host.load is not None]
        frame = pd.DataFrame((row for load in loads for row in load.rows()), columns=list(LOAD_COLUMNS))
        frame["start"] = pd.to_datetime(frame["start"] + self.start_us, unit="us", utc=True)
        return frame

    def radio(self, device: str) -> pd.DataFrame:
        """Return the states of a device's radio so far: ``start, end, state, power_mw``.

        Parameters
        ----------
        device : str

        Raises
        ------
        ParameterError
            There is no such device, or the lab does not record messages and transfers.
        """
        import pandas as pd

        rows = self.trace.radio_stretches(self._find_device(device))
        frame = pd.DataFrame(rows, columns=["start", "end", "state", "power_mw"])
        for name in ("start", "end"):
            frame[name] = pd.to_datetime(frame[name] + self.start_us, unit="us", utc=True)
        return frame

    def battery(self, device: str) -> pd.DataFrame:
        """Return the remaining energy of a device's battery over time: ``ts, device, battery_j``.

        Parameters
        ----------
        device : str

        Raises
        ------
        ParameterError
            The device has none, or there is no such device.
        """
        import pandas as pd

        battery = self._find_device(device).battery
        if battery is None:
            raise ParameterError(
                "This device has no battery.", where="device", found=device, expected="battery_j=… when added"
            )
        times_us, left_j = battery.levels(self.trace.radio_stretches(self._find_device(device)))
        ts = pd.to_datetime([at + self.start_us for at in times_us], unit="us", utc=True)
        return pd.DataFrame({"ts": ts, "device": device, "battery_j": left_j})

    def _view(self) -> View:
        devices = list(islice(self.devices.values(), _MAX_COUNTED))
        used = [self.world.used(device) for device in devices]
        messages, radio_mj = sum(number for number, _ in used), sum(mj for _, mj in used)
        cut = [
            device.name for device in devices if any(why.startswith("cut ") for why in device.down_reasons())
        ]
        killed = [
            f"{process.system} on {host.name}"
            for host in islice(self.world.hosts.values(), _MAX_COUNTED)
            for process in host.processes
            if process.machine is None and host.is_on
        ]
        mangled = ", ".join(
            f"{words.percent(share)} {_MANGLED[name]}" for name, share in self.faults.of_messages.items()
        )
        notes = []
        if len(self.devices) > _MAX_COUNTED:
            notes.append(f"States, messages and energy are those of the first {_MAX_COUNTED:,} devices.")
        if self.trace.failures:
            notes.append("lab.problems lists what has failed.")
        return View(
            "Lab",
            {
                "virtual time": f"{self.now:%A, %Y-%m-%d %H:%M:%S} UTC",
                "since the start": words.duration(self.world.now_us / US_PER_S),
                "seed": str(self.world.seed),
                "devices": len(self.devices),
                "messages": messages,
                "radio energy": f"{words.number(radio_mj / 1000)} J",
                "links cut": words.listing(cut),
                "killed": words.listing(killed, 3),
                "messages mangled": mangled,
                "problems": self.trace.failures or None,
            },
            [self._links(devices), self._roles()],
            notes,
        )

    def _links(self, devices: Sequence[Device]) -> Table:
        """Return the devices by the kind of their network and their state."""
        states = Counter(
            (device.network, "off" if not device.is_on else "online" if device.is_online else "offline")
            for device in devices
        )
        names = sorted({network for network, _ in states})
        rows = [[name, *(states[name, state] for state in _STATES)] for name in names]
        return Table(("devices by link", *_STATES), rows)

    def _roles(self) -> Table:
        """Return the machines of each system."""
        roles: Counter[tuple[str, str, str]] = Counter()
        for host in islice(self.world.hosts.values(), _MAX_COUNTED):
            where = "device" if isinstance(host, Device) else "server"
            for process in host.processes:
                role = "killed" if process.machine is None else type(process.machine).__name__
                roles[process.system, role.removesuffix("Machine"), where] += 1
        rows = ((system, role, where, size) for (system, role, where), size in sorted(roles.items()))
        return first_rows(("system", "machine", "on a", "number"), rows, len(roles))

    def _find_device(self, device: str) -> Device:
        """Return the device of this name; raise ParameterError when there is none."""
        if device not in self.devices:
            raise ParameterError(
                "There is no such device.",
                where="device",
                found=brief(device),
                expected=listed(self.devices, "none yet"),
                remedy=did_you_mean(device, self.devices),
            )
        return self.devices[device]

    def _add(self, group: Group) -> list[Device]:
        """Add a group's devices to the world and the laboratory; return them in order."""
        devices = group.add_to(self.world, self.trace)
        self.devices.update((device.name, device) for device in devices)
        self._groups.append(group.describe())
        return devices


def epoch_us(
    start: str | dt.datetime, name: str = "start", summary: str = "The start of the lab is not usable."
) -> int:
    """Return a time, of a lab's start, in µs since 1970 (UTC unless it names a zone).

    Raises
    ------
    ParameterError
        It is no time; the error has the ``name`` of the parameter, and the ``summary``.
    """
    try:
        given = dt.datetime.fromisoformat(start) if isinstance(start, str) else start
        given = given if given.tzinfo is not None else given.replace(tzinfo=dt.UTC)
        since_us = (given - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
    except (TypeError, ValueError, AttributeError, OverflowError):
        since_us = _MAX_TIME_US
    if not -_MAX_TIME_US < since_us < _MAX_TIME_US:
        raise ParameterError(
            summary,
            where=name,
            found=brief(start),
            expected=f"a time like 2010-03-01T13:00, before {_MAX_TIME.year}",
        )
    return since_us
