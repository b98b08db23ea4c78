"""Lab whose back end has standbys, with clients that write and read all the time, and a judge of promises."""

from __future__ import annotations

from random import Random

from mudkit import Lab
from mudkit.systems import mud


class Town:
    """Cloud with standbys; ``writers`` write records of their own, and all count one record together."""

    def __init__(self, seed, standbys=1, writers=3, loss_share=0.0, **cloud):
        self.draw = Random(seed)
        self.lab = lab = Lab(seed=seed)
        self.cloud = mud.Cloud(lab, standbys=standbys, **cloud)
        self.stores = [self.cloud.back_end, *self.cloud.standbys]
        hosts = [lab.device(f"w{number}") for number in range(writers)]
        self.clients = [self.client(host) for host in hosts]
        self.watcher = self.client(lab.device("watcher"))
        self.clients[0].create("t").result()
        self.changes = []
        self.watcher.read("t", None, "continuous", sync_timestamp=0, callback=self.changes.append).result()
        if loss_share:
            lab.faults.messages(loss_share=loss_share)
        self.writes, self.counts, self.reads = [], [], []
        self.keys = [f"k{number}" for number in range(3)]

    def client(self, host):
        return mud.Client(host, self.cloud, app="n", token=self.lab.token("u", "n", hours=999))

    @property
    def now_us(self):
        return self.lab.world.now_us

    def work(self, seconds, every_s=1.0):
        """Write, count and read for some time."""
        until_us = self.now_us + round(seconds * 1e6)
        while self.now_us < until_us:
            client, key = self.draw.choice(self.clients), self.draw.choice(self.keys)
            number = len(self.writes)
            self.writes.append((client, key, client.write("t", key, {"n": number})))
            if len(self.counts) < 60:
                by = 1 << len(self.counts)
                self.counts.append((by, client.increment("t", "sum", "n", by, create=True)))
            if self.draw.random() < 0.3:
                seen = {key: ver for key, ver, *_ in self.acknowledged()}
                self.reads.append((seen, self.watcher.read("t", latest=True)))
            self.lab.run(seconds=self.draw.uniform(0.0, 2 * every_s))

    def acknowledged(self):
        """Return key, version, number and client of the acknowledged writes, in the order of their versions."""
        done = [
            (key, write.result(), number, client)
            for number, (client, key, write) in enumerate(self.writes)
            if write.status == "ok"
        ]
        return sorted(done, key=lambda one: one[1:3])

    def machine(self, address):
        return self.lab.world.at_address[address].machine

    def kill(self, address):
        self.lab.faults.kill(address.split("/")[0])

    def restart(self, address):
        self.lab.faults.restart(address.split("/")[0])

    def wipe(self, address):
        """Kill a server, delete all that it has, and restart it."""
        self.kill(address)
        self.lab.world.at_address[address].store.wipe()
        self.restart(address)

    def values(self, address):
        """Return all that a store has, but for what is its own."""
        own = {"mastership", "position", "promised"}
        store = self.lab.world.at_address[address].store
        return {key: value for key, value in store.items() if key not in own}

    def longest_wait_s(self):
        """Return the longest time until a write was acknowledged."""
        return max((write.responded_us - write.invoked_us) / 1e6 for _, _, write in self.writes)

    def list_problems(self):
        """Return what contradicts the promises, in words."""
        lab, problems = self.lab, []
        lab.faults.messages()
        lab.run(minutes=3)
        problems += [f"{write} is not answered" for _, _, write in self.writes if not write.done()]
        acknowledged = self.acknowledged()
        # A write that another one of its client has absorbed has the version of that one.
        owners = {}
        for key, ver, _, client in acknowledged:
            if owners.setdefault((key, ver), client) is not client:
                problems.append(f"{key} has the version {ver} of two clients")
        read = self.watcher.read("t", latest=True)
        lab.run(minutes=1)
        result = read.result()
        newest = {key: (ver, number) for key, ver, number, _ in acknowledged}
        for key, (ver, number) in newest.items():
            if (result.versions[key], result.records[key]["n"]) != (ver, number):
                problems.append(f"{key} has the version {result.versions[key]}, and {ver} was acknowledged")
        total = result.records.get("sum", {"n": 0})["n"]
        sure = sum(by for by, count in self.counts if count.status == "ok")
        if total != sure:
            problems.append(f"the sum is {total:b}, and {sure:b} was acknowledged")
        for seen, latest in self.reads:
            shown = latest.result().versions if latest.status == "ok" else {}
            problems += [
                f"{key} was read before {ver}" for key, ver in seen.items() if shown.get(key, 0) < ver
            ]
        last = {}
        for change in self.changes:
            if change.version <= last.get(change.key, 0):
                problems.append(
                    f"the watcher was told of {change.key} {change.version} after {last[change.key]}"
                )
            last[change.key] = change.version
        problems += [
            f"the watcher was told of {key} {last.get(key)}, and {ver} was acknowledged"
            for key, (ver, _) in newest.items()
            if last.get(key) != ver
        ]
        return problems + ([f"{lab.problems}"] if len(lab.problems) else [])

    def play(self, faults=4):
        """Work under faults of one server at a time, and return their names.

        Until the next one, the others have been told of it, and no two stores have lost something together.
        """
        names = []
        for _ in range(faults):
            self.work(seconds=self.draw.uniform(0.0, 12.0))
            kind = self.draw.choice(["master", "standby", "naming", "restored", "naming restored"])
            naming, master = self.cloud.naming, self.cloud.master or self.cloud.back_end
            standbys = [address for address in self.stores if address != master]
            address = {"naming": naming, "naming restored": naming}.get(kind) or (
                master if kind == "master" else self.draw.choice([master, *standbys])
            )
            host = address.split("/")[0]
            backup = self.lab.faults.backup(host)
            self.work(seconds=self.draw.uniform(0.0, 12.0))
            if "restored" in kind:
                self.lab.faults.restore(host, backup)
            else:
                self.kill(address)
                self.work(seconds=self.draw.choice([0.5, 6.0, 40.0]))
                self.restart(address)
            self.work(seconds=30.0)
            names.append(f"{kind}: {host}")
        return names
