"""Digests of the results of mudkit, to prove that a refactoring changes none of them.

They cover ten labs over all systems (bill, records held, and each column of each table of the trace), worlds
with places, loads, connections, access points and mishaps, tables of scoreboards, comparisons, order checks
and scenarios, runs of the fault campaign, and with ``--rows`` each row of ``mudkit reproduce`` but speed.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
from tqdm import tqdm

from mudkit import experiment
from mudkit.experiment import (
    ADAPTERS,
    COMPOSITIONS,
    TASKS,
    Contrail,
    check_orders,
    cleartext_fields,
    commutativity,
    contacts,
    party_knowledge,
    party_views,
    run,
    scoreboard,
)
from mudkit.fleet.load import ServerProfile
from mudkit.fleet.recorder import TABLES
from mudkit.fleet.transport import TRANSPORTS as NAMED
from mudkit.lab import Lab
from mudkit.reproduce.lab import Collector, Reporter
from mudkit.sources.outages import Outages
from mudkit.sources.workloads import Poisson, TripStarts, WakingReads
from mudkit.systems.contrail import Item
from mudkit.systems.mud import NearAndRecent
from mudkit.systems.radiator import Volume
from mudkit.verify.campaign import judge as campaign_judge
from mudkit.worlds import Audience, Commuters, Inboxes, Journal, Traffic, Ward
from mudkit.worlds.ward import POLICIES

SCENARIO = Inboxes(
    devices=6, hours=6.0, link="umts_3g", outage=Outages(0.3, per_day=60), mobility="commute", every_s=300.0,
    items=Poisson(per_day=100), receivers=2, reads=WakingReads(per_day=60), queries=TripStarts(),
    expires_s=1800.0, loss_share=0.05, repeat_share=0.02, delay_share=0.02, delay_s=5.0,
)  # fmt: skip
CAMPAIGN_SEEDS = range(40)
TRANSPORTS = {
    "messages": "messages", "https": "https", "mqtt": "mqtt", "kept": replace(NAMED["https"], idle_s=1800.0),
    "pinged": replace(NAMED["https"], idle_s=900.0, ping_s=200.0),
}  # fmt: skip
LOADS = {
    "none": None, "plain": ServerProfile(event_us=100.0),
    "slow": ServerProfile(event_us=3e6, workers=2, max_waiting=3),
    "by bytes": ServerProfile(event_us=50.0, byte_us=700.0, max_waiting=5),
}  # fmt: skip
MISHAPS = ("none", "kill", "messages")


def labs() -> dict[str, Callable[[], Lab]]:
    """Return functions that run ten labs, by name."""
    result: dict[str, Callable[[], Lab]] = {}
    for (task_name, task), (name, system) in zip(
        [*TASKS.items(), next(iter(TASKS.items()))], ADAPTERS.items(), strict=True
    ):
        small = task.over(devices=6, hours=0.5)
        result[f"{name}, {task_name}"] = lambda small=small, system=system: run(small, system, seed=11).lab
    for name in list(COMPOSITIONS)[:2]:
        small = TASKS["friends nearby"].over(devices=6, hours=0.5)
        result[name] = lambda small=small, name=name: run(small, COMPOSITIONS[name], seed=12).lab
    result["store and forward"] = lambda: SCENARIO.run(13, "relay").lab
    result["direct"] = lambda: SCENARIO.run(14, "direct").lab
    return result


def worlds() -> Iterator[tuple[str, Lab]]:
    """Yield worlds of reporting devices, with each transport, load of the server and mishap."""
    for transport, load, mishap in itertools.product(TRANSPORTS, LOADS, MISHAPS):
        lab = Lab(15, transport=TRANSPORTS[transport])
        lab.server("server", at="austin").install("reports", Collector)
        profile = LOADS[load]
        if profile is not None:
            lab.server("server", profile=profile)
        for number in range(8):
            lab.access_point(f"cafe {number}", (30.265 + 0.003 * number, -97.74), 400.0)
        fleet = lab.fleet(20, mobility="commute", roam=True, outage=0.1)
        for number, device in enumerate(fleet):
            offset_us = number // 6 * 50_000_000
            device.install("reports", lambda ports, offset_us=offset_us: Reporter(offset_us), watch={"loc"})
        if mishap == "messages":
            lab.faults.messages(loss_share=0.05, repeat_share=0.05, delay_share=0.05, delay_s=2.0)
        lab.run(hours=1)
        if mishap == "kill":
            for host in ("server", fleet[0].name):
                lab.faults.kill(host)
                lab.run(minutes=2)
                lab.faults.restart(host)
        lab.run(hours=0.5)
        yield f"{transport}, load {load}, mishap {mishap}", lab


def tables() -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the name and content of the tables of scoreboards, comparisons, order checks and scenarios."""
    small = [replace(task.over(devices=5, hours=0.2), feeds=min(task.feeds, 4)) for task in TASKS.values()]
    board = scoreboard(small, seeds=[21, 22])
    friends = TASKS["friends nearby"].over(devices=6, hours=0.5)
    composed = scoreboard([friends], COMPOSITIONS, seeds=[23])
    for name, scores in (("board", board), ("composed", composed)):
        for part in ("runs", "privacy", "devices", "disclosures", "latencies"):
            yield f"{name}: {part}", getattr(scores, part)
        for task in scores.tasks:
            for method in ("measures", "table", "differences", "pareto"):
                yield f"{name}: {method} of {task}", getattr(scores, method)(task)
    compared = experiment.compare(replace(SCENARIO, hours=2.0).compare, [24, 25])
    yield "comparison: runs", compared.runs
    yield "comparison: differences", compared.differences()
    lab = run(TASKS["photo sharing"].over(devices=6, hours=1.0), Contrail, 26).lab
    for function in (contacts, party_knowledge, cleartext_fields):
        yield f"privacy: {function.__name__}", function(lab)
    checked = check_orders(scenarios=2, seed=27)
    yield "orders", checked
    yield "orders: commuting", commutativity(checked)
    for way in Audience.METHODS:
        yield f"audience: {way}", Audience(readers=8, writes=2).run(28, way).readers
    traffic = Traffic(cars=4, minutes=4)
    yield "traffic: run", traffic.run(29, lambda sender, receiver: Volume(2)).cells
    yield "traffic: cells", traffic.play(traffic.reports(29), lambda sender, receiver: Volume(2))[0]
    yield "traffic: sent", traffic.play(traffic.reports(29), lambda sender, receiver: Volume(2))[1]
    ward = Ward(patients=3, doctors=2, hours=0.2)
    shifts = [(name, seed) for name in POLICIES for seed in (30, 31)]
    measured = [{"system": name, "seed": seed, **ward.run(seed, name).measures()} for name, seed in shifts]
    yield "ward: runs", pd.DataFrame(measured)
    yield "ward: alarms", ward.run(30).alarms
    driven = Commuters(cars=3, days=1).run(32, "2010-03-01", NearAndRecent())
    yield "commuters: reads", driven.reads
    yield "commuters: bill", driven.lab.bill()
    yield "journal: history", Journal(operations=20).run(33, "committed_wio").history()
    views = party_views(Item({"kind": "photo"}, b"x" * 500), "kind = 'photo'")
    yield "party views", pd.DataFrame(views.rows)


def digests(*, rows: bool) -> Iterator[tuple[str, Any]]:
    """Yield the name of each result, with its digest or one per column."""
    for name, run_lab in tqdm(labs().items(), unit="lab"):
        lab = run_lab()
        yield f"lab {name}: bill", _of_frame(lab.bill())
        yield f"lab {name}: deliveries", _of_frame(lab.deliveries())
        exposure = lab.trace.exposure
        yield (
            f"lab {name}: held",
            _of_text([] if exposure is None else sorted(map(repr, map(tuple, exposure.rows())))),
        )
        for table in TABLES:
            yield f"lab {name}: {table}", _of_frame(lab.trace.table(table).to_pandas())
    for name, lab in tqdm(worlds(), unit="world"):
        frames = [lab.bill(), lab.server_load(), *(lab.trace.table(table).to_pandas() for table in TABLES)]
        yield f"world {name}", _of_text([repr(_of_frame(frame)) for frame in frames])
    for name, table in tqdm(tables(), unit="table"):
        yield f"table {name}", _of_frame(table)
    for seed in tqdm(CAMPAIGN_SEEDS, unit="run"):
        result = campaign_judge.play(seed)
        verdicts = [*sorted(map(str, result.counts.items())), *result.problems]
        yield f"campaign {seed}", {"verdicts": _of_text(verdicts), **_of_frame(result.campaign.lab.bill())}
    if rows:
        command = [sys.executable, "-m", "mudkit", "reproduce", "--json"]
        for row in json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout):
            yield (
                f"row {row['row']}",
                {name: row[name] for name in ("measured", "spread", "verdict", "parameters")},
            )


def _of_frame(frame: pd.DataFrame) -> dict[str, str]:
    return {str(name): _of_text(frame[name].map(repr).tolist()) for name in frame.columns}


def _of_text(values: list[str]) -> str:
    return hashlib.sha256("\n".join(values).encode()).hexdigest()[:16]


def compare(before: dict[str, Any], after: dict[str, Any], renamed: dict[str, str]) -> list[str]:
    """Return a text for each digest that differs."""
    different = []
    for name in [*before, *(name for name in after if name not in before)]:
        one, other = before.get(name), after.get(name)
        if isinstance(one, dict) and not name.startswith("row "):
            one = {renamed.get(column, column): digest for column, digest in one.items()}
        if one != other:
            different.append(f"{name}\n  before {one}\n  after  {other}")
    return different


def main() -> None:
    """Write digests, or compare two files of them; exit with 1 if they differ."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    write = commands.add_parser("write", help="compute digests")
    write.add_argument("file", type=Path)
    write.add_argument("--rows", action="store_true", help="also of the rows of mudkit reproduce")
    comparison = commands.add_parser("compare", help="show which digests differ")
    comparison.add_argument("before", type=Path)
    comparison.add_argument("after", type=Path)
    comparison.add_argument("renamed", nargs="*", metavar="OLD=NEW", help="a column that was renamed")
    given = parser.parse_args()
    if given.command == "write":
        given.file.write_text(json.dumps(dict(digests(rows=given.rows)), indent=1) + "\n")
        return
    one, other = (json.loads(file.read_text()) for file in (given.before, given.after))
    different = compare(one, other, dict(pair.split("=") for pair in given.renamed))
    tqdm.write("\n".join(different) or f"{len(one)} digests are equal")
    sys.exit(bool(different))


if __name__ == "__main__":
    main()
