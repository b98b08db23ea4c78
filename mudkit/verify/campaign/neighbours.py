"""Other apps on the devices of a run, which share the service of their device with the clients of the work.

They have a table of their own. A bank reads it continuously on some devices; a thief beside it shows the
bank's token in its own name. What the bank reads must neither be seen by others nor end with their reads, and
all apps of a device keep to the budget of its store. When the delay of a write of one app is over, delayed
writes of the others leave with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from random import Random
from typing import Any, Final

from mudkit.errors import AccessDenied, TableProblem
from mudkit.lab import Lab
from mudkit.systems.mud import Client, Cloud, energy, freshness
from mudkit.verify.campaign.observers import ObservedHost
from mudkit.verify.campaign.work import MAIN, error_of

BANK: Final = "bank"
THIEF: Final = "thief"
VAULT: Final = "vault"
"""Table that only the bank may read and write."""
BOARD: Final = "board"
"""Table that all apps may read."""
STEPS: Final = ("deposit", "pry", "steal", "brief read", "flood")
_KEYS: Final = ("a", "h", "q")
_FLOOD: Final = 40
OUTAGE: Final = "outage of apps"
"""Step in which several apps of a device write without a network."""
DELAYS: Final = "delays of apps"
"""Step in which several apps of a device make writes that wait for others."""
FLOODS: Final = "floods of apps"
"""Step in which an app sends more than its share of the link, and another one works."""
_LARGE: Final = 12
_PADDING: Final = "x" * 3000
_LONG: Final = energy(per_j_s=1000.0)
"""Utility of a write that waits for an hour."""
_SHORT: Final = energy(per_j_s=1000.0) + freshness(600.0)
"""Utility of a write that waits for less than ten minutes."""


@dataclass
class _Account:
    """Bank's client on a device, its continuous read of all records, and what it was notified of."""

    client: Client
    operation: Any = None
    changes: list[Any] = field(default_factory=list)
    is_judged: bool = True
    """False once its device was wiped or restored."""


@dataclass
class _Delayed:
    """Two delayed writes of a key by the apps of a device; that of the thief is due first."""

    device: str
    key: str
    first: Any
    """Operation of the thief's write."""


class Neighbours:
    """Bank and thief on some devices of a run; ``clients`` are those of the work.

    ``draw`` is a stream; so are ``added``, ``delays`` and ``floods``, for what leaves the former as they are.
    """

    def __init__(
        self, lab: Lab, cloud: Cloud, clients: Mapping[str, Client], hosts: Mapping[str, ObservedHost],
        log: Mapping[int, Any], draw: Random, added: Random, delays: Random, floods: Random,
    ) -> None:  # fmt: skip
        self._lab, self._draw, self._added, self._log = lab, draw, added, log
        self._delays, self._floods = delays, floods
        self._clients, self._hosts = clients, hosts
        self._delayed: list[_Delayed] = []
        self._count = 0
        self._accounts: dict[str, _Account] = {}
        """By device."""
        self._thieves: dict[str, Client] = {}
        self._peeks: list[Any] = []
        """Operations by which others ask for what only the bank may see."""
        self._peeked: list[Any] = []
        """Changes of which they were notified."""
        self.above_budget: list[str] = []
        """Devices whose apps held more than the budget of the store, in words."""
        names = draw.sample(sorted(clients), draw.choice([1, len(clients)])) if draw.random() < 0.4 else []
        for name in names:
            host = ObservedHost(lab.devices[name], hosts[name].record)
            token, thief = lab.token(f"{name} banks", BANK, hours=1e4), lab.token("eve", THIEF, hours=1e4)
            max_rows = added.choice([2, 4])
            self._accounts[name] = _Account(Client(host, cloud, app=BANK, token=token, max_rows=max_rows))
            self._thieves[name] = Client(host, cloud, app=THIEF, token=thief, max_rows=max_rows)

    def __bool__(self) -> bool:
        return bool(self._accounts)

    def begin(self) -> None:
        """Create the bank's table, and begin its continuous reads."""
        first, *_ = self._accounts.values()
        first.client.create(VAULT, apps=[BANK]).result()
        first.client.create(BOARD).result()
        for account in self._accounts.values():
            account.operation = account.client.read(
                VAULT, None, "continuous", sync_timestamp=0, callback=account.changes.append
            )

    def plan(self, end_us: int) -> list[tuple[int, str]]:
        """Return steps at times until the end of a run; none if there is no other app."""
        many = self._draw.randint(5, 15) if self else 0
        plan = [(self._draw.randint(0, end_us), self._draw.choice(STEPS)) for _ in range(many)]
        outages = self._added.choice([0, 2, 0]) if self else 0
        plan += [(self._added.randint(0, end_us), OUTAGE) for _ in range(outages)]
        delays = self._delays.choice([0, 1, 3]) if self else 0
        plan += [(self._delays.randint(0, end_us), DELAYS) for _ in range(delays)]
        floods = self._floods.choice([0, 0, 1]) if self else 0
        return plan + [(self._floods.randint(0, end_us), FLOODS) for _ in range(floods)]

    def act(self, step: str) -> None:
        """Execute a step of :data:`STEPS`, :data:`OUTAGE`, :data:`DELAYS` or :data:`FLOODS`, on a device."""
        if step == OUTAGE:
            self._write_without_network(self._added.choice(sorted(self._accounts)))
            return
        if step == DELAYS:
            self._write_with_delays(self._delays.choice(sorted(self._accounts)))
            return
        if step == FLOODS:
            self._work_beside_flood(self._floods.choice(sorted(self._accounts)))
            return
        draw = self._draw
        name = draw.choice(sorted(self._accounts))
        if step == "deposit":
            self._deposit(name)
        elif step == "pry":
            self._pry(name)
        elif step == "steal":
            self._steal(name)
        elif step == "flood":
            self._flood(name)
        else:
            self._read_briefly(name)

    def end(self) -> None:
        """Write a last deposit, of which all accounts have to be notified, and wait for it."""
        self._deposit(sorted(self._accounts)[0])
        self._lab.run(minutes=5)

    def record_loss(self, name: str) -> None:
        """Exclude the account of a device that was wiped or restored from judgement."""
        if name in self._accounts:
            self._accounts[name].is_judged = False

    def check_stores(self) -> None:
        """Record the devices whose apps hold more committed records than the device's budget."""
        for name, account in self._accounts.items():
            clients = self._clients[name], account.client, self._thieves[name]
            machines = [client.installed.machine for client in clients]
            if None in machines:
                continue
            stores = [getattr(machine, "_machine", machine).local for machine in machines]
            rows, budget = sum(one.row_count for one in stores), max(one.max_rows for one in stores)
            if rows > budget:
                self.above_budget.append(f"the apps of {name} hold {rows} records, its budget is {budget}")

    def seen(self) -> list[str]:
        """Return in words what others have seen of the bank's records."""
        changes = [
            change
            for change in self._peeked
            if not isinstance(change, dict)  # it was ended
            and not change.is_pending  # it is the thief's own
            and change.version
        ]
        seen = [f"another app was notified of {change}" for change in changes]
        for peek in self._peeks:
            if peek.status == "ok":
                seen.append(f"another app has read {peek.result()} from the bank's table")
            elif peek.status == "failed" and not isinstance(error_of(peek), AccessDenied | TableProblem):
                seen.append(f"another app was not refused the bank's table: {error_of(peek)!r}")
        return seen

    def missed(self) -> list[str]:
        """Return in words what the bank's continuous reads were not notified of, or twice."""
        rows = [
            entry["row"] for _, entry in sorted(self._log.items())
            if entry["op"] == "row" and entry["name"] == VAULT
        ]  # fmt: skip
        final = {row["key"]: row["ver"] for row in rows}
        missed: list[str] = []
        for name, account in self._accounts.items():
            if not account.is_judged or account.operation.status != "ok":
                continue
            if any(isinstance(change, dict) for change in account.changes):
                missed.append(f"the bank's continuous read on {name} was ended: {account.changes}")
                continue
            last: dict[str, int] = {}
            for change in account.changes:
                if change.is_pending or not change.version:  # nothing that the store has committed
                    continue
                last[change.key] = max(change.version, last.get(change.key, 0))
            if last != final:
                missed.append(f"the bank on {name} was notified up to {last}, the log is at {final}")
        return missed

    def left_behind(self) -> Iterator[str | None]:
        """Yield in words which delayed writes have not left with those of another app; None: one that has.

        A write without an outcome is not judged: its device was killed.
        """
        for delayed in self._delayed:
            if delayed.first.status != "ok":
                continue
            sent, key = self._hosts[delayed.device].writes_sent, delayed.key
            first = sent[f"{delayed.device}/{THIEF}", BOARD, key]
            other = sent.get((f"{delayed.device}/{BANK}", VAULT, key), inf)
            words = f"the bank's write {key!r} on {delayed.device} waited, though the thief's has left"
            yield words if other > first else None

    def _deposit(self, name: str) -> None:
        """Write a record of the bank on a device."""
        self._count += 1
        record = {"v": f"{name} deposit {self._count}"}
        self._accounts[name].client.write(VAULT, self._draw.choice(_KEYS), record)

    def _write_without_network(self, name: str) -> None:
        """Write as several apps of a device that has no network for a while."""
        self._lab.faults.cut(name, minutes=0.5)
        self._count += 1
        self._accounts[name].client.write(VAULT, "o", {"v": f"{name} deposit {self._count}"})
        self._thieves[name].write(BOARD, "o", {"v": f"{name} writes {self._count}"})

    def _write_with_delays(self, name: str) -> None:
        """Write as two apps whose writes wait, if the radio sleeps; the bank's waits for longer."""
        self._count += 1
        key, bank, thief = f"d{self._count}", self._accounts[name].client, self._thieves[name]
        bank.write(VAULT, key, {"v": f"{name} deposit {self._count}"}, utility=_LONG)
        first = thief.write(BOARD, key, {"v": f"{name} writes {self._count}"}, utility=_SHORT)
        machines = bank.installed.machine, thief.installed.machine
        if None in machines:
            return
        stores = [getattr(machine, "_machine", machine).local for machine in machines]
        writes = [store.newest_write(table, key) for store, table in zip(stores, (VAULT, BOARD), strict=True)]
        if all(write is not None and write.due_us is not None for write in writes):
            self._delayed.append(_Delayed(name, key, first))

    def _pry(self, name: str) -> None:
        """Ask for the bank's records as another app, sometimes while the bank asks the same."""
        client = self._draw.choice([self._clients[name], self._thieves[name]])
        if self._draw.random() < 0.5:
            self._accounts[name].client.read(VAULT, "v != 'none'")
            self._peeks.append(client.read(VAULT, "v != 'none'", offline="wait"))
        else:
            self._peek(client)

    def _flood(self, name: str) -> None:
        """Send many reads at once, more than the share of an app admits."""
        for number in range(_FLOOD):
            self._thieves[name].read(BOARD, f"n > {number}")

    def _work_beside_flood(self, name: str) -> None:
        """Send more than a share of the link as one app, in number or in bytes; then work as another one."""
        self._count += 1
        kind, thief = self._floods.choice(["many reads", "large reads", "large writes"]), self._thieves[name]
        if kind == "many reads":
            self._flood(name)
        for number in range(0 if kind == "many reads" else _LARGE):
            if kind == "large reads":
                thief.read(BOARD, f"v = '{_PADDING}' OR n > {number}")
            else:
                thief.write(BOARD, f"f{number}", {"v": _PADDING})
        bank = self._accounts[name].client
        bank.write(VAULT, "f", {"v": f"{name} deposit {self._count}"})
        bank.read(VAULT, f"v = '{self._count}'", latest=True)

    def _peek(self, client: Client) -> None:
        """Ask for the bank's records as another app, by a read, a continuous read or a write."""
        kind = self._draw.choice(["committed", "uncommitted", "continuous", "write"])
        if kind == "write":
            self._peeks.append(client.write(VAULT, "stolen", {"v": "stolen"}))
        elif kind == "continuous":
            read = client.read(VAULT, None, "continuous", sync_timestamp=0, callback=self._peeked.append)
            self._peeks.append(read)
        else:
            self._peeks.append(client.read(VAULT, None, "committed", latest=True))

    def _steal(self, name: str) -> None:
        """Show the bank's token as the thief, whose machine has no check of its own then.

        Not before the thief has begun: the service would refuse it for good, with its own records.
        """
        thief = self._thieves[name]
        machine: Any = self._lab.world.at_address[thief.installed.address].machine
        if machine is None:
            return
        connection = getattr(machine, "_machine", machine)._connection
        if not connection.incarnation:
            return
        own = connection.token
        connection.use_token(self._lab.token(f"{name} banks", BANK))
        self._peek(thief)
        connection.use_token(own)

    def _read_briefly(self, name: str) -> None:
        """Begin a continuous read of one of the two, which is no other's, and end it."""
        client = self._draw.choice([self._thieves[name], self._accounts[name].client])
        read = client.read(MAIN, "n = 9", "continuous")

        def unregister(operation: Any) -> None:
            if operation.status == "ok":
                client.unregister(operation.result())

        read.add_done_callback(unregister)
