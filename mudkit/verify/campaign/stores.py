"""Stores of the back end of a run: which one is the master, what its log has, and faults of standbys.

A tenth of the runs has standbys. There a store dies for ever, or comes back late or from a backup, and
nothing that was acknowledged is lost as long as another store has all of it. So these runs are judged by the
promises of all others. The transitions of stores and elections are not counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from mudkit.fleet.host import Backup
from mudkit.lab import Lab
from mudkit.systems.mud import Cloud
from mudkit.verify.campaign.faults import DEAD_MINUTES, FaultInjector
from mudkit.verify.campaign.work import Work
from mudkit.wire import as_wire

STANDBYS: Final = (0, 1, 2)
STANDBYS_WEIGHTS: Final = (18, 1, 1)
"""Weights of the numbers of standbys of a run."""
STORE_REPLACED: Final = "store replaced"
"""A store is killed for minutes or for ever, while another one has all that it has."""
STORE_RESTORED: Final = "store restored"
"""A store is restored from a backup, while another one has all that it has."""
STANDBY_STEPS: Final = (STORE_REPLACED, STORE_RESTORED)
MAX_TAKE_OVER_S: Final = 60.0
"""Time, in seconds, within which a write is answered whose master has died, if all else is well."""
_MASTER_SHARE: Final = 0.7
"""Share of these faults that concern the master."""
_MESSAGES: Final = frozenset({"lost", "repeated", "late"})
"""Faults under which a store that has all may not be heard at an election."""


@dataclass
class _Old:
    """Restore of a store, and the others that had all at that time; ``is_later``: more than the restored one.

    Without others it is not known how old the copy is.
    """

    at_us: int
    complete: Sequence[str]
    is_later: bool


class Stores:
    """Stores of the back end of a run; ``log`` gets each entry of the master's log, by number.

    ``in_effect`` returns the faults in effect.
    """

    def __init__(
        self, lab: Lab, cloud: Cloud, log: dict[int, Any], in_effect: Callable[[], Sequence[str]]
    ) -> None:
        self._world, self._cloud, self._log, self._in_effect = lab.world, cloud, log, in_effect
        self.addresses = [cloud.back_end, *cloud.standbys]
        self.master = cloud.back_end
        """Address of the present master, or of the last one."""
        self._term = 0
        self._old: dict[str, _Old] = {}
        """Stores that were restored, and have not got the store of the master since then."""
        self._killed_us: dict[str, int] = {}
        """Time of the last kill of each host."""
        self.rolled_back_us: int | None = None
        """Time at which the log went back to a backup, so that what was acknowledged before may be lost."""
        self.problems: list[str] = []
        for address in self.addresses:
            self._world.at_address[address].store.at_put = self._observer(address)

    @property
    def store(self) -> Any:
        """Store of the present master."""
        return self._world.at_address[self.master].store

    def list_complete(self) -> list[str]:
        """Return the stores that run, and have all that was acknowledged."""
        naming = self._world.at_address[self._cloud.naming].store
        mastership = naming.get("mastership") or {"members": self.addresses}
        return [
            address
            for address in self.addresses
            if address in mastership["members"] and address not in self._old and self._is_up(address)
        ]

    def record_incident(self, host: str, incident: str) -> None:
        """Record that a host was killed, wiped or restored."""
        if incident == "killed":
            self._killed_us[host] = self._world.now_us
        address = next((one for one in self.addresses if one.split("/")[0] == host), None)
        if address is None or incident not in ("wiped", "restored"):
            return
        if not self._cloud.standbys:
            self.rolled_back_us = self._world.now_us
            return
        complete = [other for other in self.list_complete() if other != address]
        is_later = any(self._position(other) > self._position(address) for other in complete)
        self._old[address] = _Old(self._world.now_us, complete, is_later or not complete)

    def _observer(self, address: str) -> Callable[[str, Any], None]:
        """Return what observes the changes of a store."""
        process = self._world.at_address[address]

        def put(key: str, value: Any) -> None:
            if self._cloud.standbys and process.machine is None:
                return  # it is being restored
            if key == "position":
                self._record_position(address, as_wire(value)["term"])
            elif key.startswith("log ") and address == self.master:
                # an entry that was rolled back is put again, or remains beyond the end
                entry = as_wire(value)
                self._log[entry["lsn"]] = entry

        return put

    def _record_position(self, address: str, term: int) -> None:
        """Record that a store begins a term as its master, or has got the store of the master."""
        if term > self._term:
            self._term, self.master = term, address
            if address in self._old and self._old[address].is_later:
                self._record_rollback(address)
            last = self.store.get("lsn") or 0
            for lsn in [lsn for lsn in self._log if lsn > last]:
                del self._log[lsn]  # nobody has heard of it
        elif address == self.master:
            return
        self._old.pop(address, None)

    def _record_rollback(self, address: str) -> None:
        """Record that a store with an old copy is the master: a problem, if another one could have been."""
        old = self._old[address]
        self.rolled_back_us = self._world.now_us
        naming_us = self._killed_us.get(self._cloud.naming.split("/")[0], -1)
        heard = [
            other
            for other in old.complete
            if other not in self._old and self._killed_us.get(other.split("/")[0], -1) < old.at_us
        ]
        if heard and naming_us < old.at_us and _MESSAGES.isdisjoint(self._in_effect()):
            words = " and ".join(heard)
            self.problems.append(f"{address} was elected with an old copy, and {words} had all")

    def _position(self, address: str) -> tuple[int, int]:
        """Return the term and the number of the last change of a store."""
        position = self._world.at_address[address].store.get("position") or {"term": 0, "seq": 0}
        return position["term"], position["seq"]

    def _is_up(self, address: str) -> bool:
        """Return whether the machine of an address runs."""
        return self._world.at_address[address].machine is not None


class StandbyFaults:
    """Faults of the stores of a run that has standbys.

    ``writers`` are the clients whose writes are not delayed, ``is_well`` returns whether a client, the
    network and the cloud are without faults, ``has_expired`` whether a client's token has by a time, and
    ``draw`` has drawn the number of standbys.
    """

    def __init__(
        self, lab: Lab, cloud: Cloud, stores: Stores, faults: FaultInjector, work: Work,
        writers: Sequence[str], is_well: Callable[[str], bool], has_expired: Callable[[str, int], bool],
        draw: Random,
    ) -> None:  # fmt: skip
        self._lab, self._stores, self._faults, self._work = lab, stores, faults, work
        self._writers, self._is_well, self._has_expired, self._draw = writers, is_well, has_expired, draw
        self.is_used = bool(cloud.standbys)
        self._backups = [self._back_up()]
        """Backups of all stores, the first one without any record."""
        self.take_overs_s: list[float] = []
        """Times from a kill of a master to the answer to a write that was made then."""
        self.counts: Counter[str] = Counter()
        """Number of judged take-overs, and of restores of stores."""
        self.problems: list[str] = []

    def plan(self, end_us: int) -> list[tuple[int, str]]:
        """Return steps at times until the end of a run; none if the back end has no standby."""
        many = self._draw.randint(2, 5) if self.is_used else 0
        return [(self._draw.randint(0, end_us), self._draw.choice(STANDBY_STEPS)) for _ in range(many)]

    def act(self, step: str) -> None:
        """Replace or restore a store, unless no other one has all that it has."""
        address = self._stores.master
        if self._draw.random() >= _MASTER_SHARE:
            address = self._draw.choice(self._stores.addresses)
        if not [other for other in self._stores.list_complete() if other != address]:
            return
        host = address.split("/")[0]
        if step == STORE_REPLACED:
            self._replace(host, is_master=address == self._stores.master)
        elif not self._faults.is_dead(host):
            self._restore(host)

    def _replace(self, host: str, *, is_master: bool) -> None:
        """Kill a store for some time or for ever; judge when a write is answered, if all is well."""
        draw, lab = self._draw, self._lab
        name = draw.choice(self._writers) if self._writers and draw.random() < 0.7 else None
        if name is not None and self._is_well(name):
            lab.run(seconds=5.0)  # what was on its way arrives
        minutes = draw.choice(DEAD_MINUTES)
        is_judged = is_master and name is not None and self._is_well(name)
        killed_us = lab.world.now_us
        if not self._faults.kill_to_be_replaced(host, STORE_REPLACED, minutes):
            return
        if name is None:
            return
        write = self._work.write(name, is_open=True, key="replaced")
        lab.run(seconds=MAX_TAKE_OVER_S)
        has_expired = self._has_expired(name, lab.world.now_us)
        if not is_judged or has_expired or not self._faults.is_online(name):
            return
        self.counts["take-overs, judged"] += 1
        if write.done():
            self.take_overs_s.append((write.responded_us - killed_us) / 1e6)
        else:
            self.problems.append(f"{write} of {name} has no answer, {host} died {MAX_TAKE_OVER_S:g} s before")

    def _restore(self, host: str) -> None:
        """Restore a store from a backup, sometimes after the end of all faults of messages."""
        draw = self._draw
        if draw.random() < 0.7:
            self._faults.end()
            self._lab.run(seconds=draw.choice([0.0, 20.0]))
        backup = draw.choice(self._backups)
        self._backups.append(self._back_up())
        self._lab.run(seconds=draw.choice([0.0, 0.5, 20.0]))
        self._faults.restore_from(host, backup)
        self.counts[STORE_RESTORED] += 1
        self._lab.run(seconds=20.0)

    def _back_up(self) -> Mapping[str, Backup]:
        """Return backups of all stores."""
        hosts = [address.split("/")[0] for address in self._stores.addresses]
        return {host: self._lab.faults.backup(host) for host in hosts}
