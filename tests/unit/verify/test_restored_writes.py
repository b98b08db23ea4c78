"""Judgement of a restored device that shows a refused write again, because its backup had it pending.

Mobius 4.2: a pending version is fresh, so that uncommitted reads of its device show it until the answer. A
restored device has the writes of its backup pending again. No other device may show them, nor this one without
the restore, after the answer to the write that was sent again, or if its backup did not have them.
"""

from __future__ import annotations

import pandas as pd
import pytest

from mudkit.fleet.store import Killed
from mudkit.systems.mud import Conflict, freshness
from mudkit.verify.campaign.bugs import BUGS
from mudkit.verify.campaign.campaign import Campaign
from mudkit.verify.campaign.judge import Judgement, play
from mudkit.verify.campaign.work import MAIN, SIDE, WriteRecord
from mudkit.wire import as_wire

ILLEGAL = "uncommitted reads are not fork-sequential-retracted"
KEY = "k"


class Place:
    """Two devices and a table; the first one's conditional write conflicts with a write of the second."""

    def __init__(self) -> None:
        self.campaign = campaign = next(
            campaign
            for campaign in map(Campaign, range(100))
            if len(campaign._undelayed) >= 2 and not campaign.expires_us
        )
        self.lab = campaign.lab
        self.name, self.other = sorted(campaign._undelayed)[:2]
        campaign.clients[self.name].create(MAIN).result()
        self.reads = []
        self.backups = []

    def write(self, name: str, value: str, kind: str = "blind", *, table: str = MAIN):
        record = {"v": value, "n": 0} if value else None
        client = self.campaign.clients[name]
        call = client.delete if record is None else client.write
        arguments = (table, KEY) if record is None else (table, KEY, record)
        operation = call(*arguments, kind)
        self.campaign.work.writes.append(WriteRecord(name, table, KEY, kind, value, operation))
        return operation

    def read(self, name: str, kind: str = "uncommitted", *, table: str = MAIN, **options):
        """Return the value that a device reads; None: no record."""
        read = self.campaign.clients[name].read(table, f"key = '{KEY}'", kind, **options)
        self.campaign.work.reads.append(read)
        self.reads.append(read)
        return read.result().records.get(KEY, {}).get("v")

    def write_while_cut(self, *values: str, kind: str = "conditional", table: str = MAIN) -> list:
        """Back up the first device with pending writes; then these are sent."""
        self.lab.faults.cut(self.name)
        operations = [self.write(self.name, value, kind, table=table) for value in values]
        self.backups.append(self.lab.faults.backup(self.name))
        self.lab.faults.mend(self.name)
        self.lab.run(minutes=2)
        return operations

    def restore(self, number: int = 0) -> None:
        self.lab.faults.restore(self.name, self.backups[number])

    def judge(self) -> Judgement:
        campaign = self.campaign
        campaign.faults.heal()
        self.lab.run(hours=1)
        campaign.pending = {name: client.pending().result() for name, client in campaign.clients.items()}
        return Judgement(campaign)


@pytest.fixture
def place():
    return Place()


def refused_and_restored(place, *values):
    """Write, restore the device after the refusal, and read what is pending again, then what is valid."""
    place.write(place.other, "theirs").result()
    for operation in place.write_while_cut(*values):
        with pytest.raises(Conflict):
            operation.result()
    assert place.read(place.name) == "theirs"
    place.restore()
    assert place.read(place.name) == (values[-1] or None), "the backup has it pending"
    place.lab.run(minutes=2)
    assert place.read(place.name) == "theirs", "it was refused again"


@pytest.mark.parametrize("values", [("mine",), ("mine", "mine, too"), ("",), ("mine", "")])
def test_restored_device_may_show_what_its_backup_has_pending(place, values):
    """Also one based on it, which is refused with it, and deletes."""
    refused_and_restored(place, *values)
    assert place.judge().problems == []


def test_restored_device_may_show_it_after_each_restore(place):
    refused_and_restored(place, "mine")
    place.restore()
    assert place.read(place.name) == "mine"
    place.lab.run(minutes=2)
    assert place.read(place.name) == "theirs"
    assert place.judge().problems == []


def move_read(place, monkeypatch, **changed):
    """Change the row of the read that shows the pending write."""
    place.lab.run(hours=1)
    history = place.lab.history()
    operation = place.reads[1]
    assert operation.process.host.name == place.name
    is_it = (history["client"] == place.name) & (history["op_id"] == operation.op_id)
    assert is_it.sum() == 1
    for column, value in changed.items():
        history.loc[is_it, column] = value
    monkeypatch.setattr(place.lab, "history", lambda: history)


def time_of(place, seconds):
    """Return a time of the history, some seconds after the restore."""
    at_us = place.lab.start_us + place.campaign.losses[place.name][0].at_us + round(seconds * 1e6)
    return pd.Timestamp(at_us, unit="us", tz="UTC")


def test_another_device_must_not_show_it(place, monkeypatch):
    refused_and_restored(place, "mine")
    move_read(place, monkeypatch, client=place.other, session=1, op_id=10_000)
    assert any(problem.startswith(ILLEGAL) for problem in place.judge().problems)


@pytest.mark.parametrize("when", ["before the restore", "after the second refusal"])
def test_its_own_device_must_not_show_it_at_another_time(place, monkeypatch, when):
    """Between the refusal and the restore, or after the answer to what was sent again."""
    refused_and_restored(place, "mine")
    is_before = when == "before the restore"
    at = time_of(place, -1 if is_before else 119)
    move_read(place, monkeypatch, invoked=at, responded=at, session=1 if is_before else 2)
    assert any(problem.startswith(ILLEGAL) for problem in place.judge().problems)


def test_restored_device_must_not_show_what_its_backup_did_not_have(place):
    refused_and_restored(place, "mine")
    place.campaign.losses[place.name][0].pending.clear()
    assert any(problem.startswith(ILLEGAL) for problem in place.judge().problems)


def test_wiped_device_must_not_show_it(place):
    """The identity changes as after a restore, but nothing is pending."""
    refused_and_restored(place, "mine")
    place.lab.faults.wipe(place.name)
    assert place.campaign.losses[place.name][1].pending == {}
    assert place.read(place.name) == "theirs"
    assert place.judge().problems == []


def test_another_device_must_not_show_a_write_whose_caller_has_died(place, monkeypatch):
    """It is left out with its own device's reads of it, which alone may be of a pending write."""
    place.write(place.other, "theirs").result()
    place.lab.faults.cut(place.name)
    place.write(place.name, "mine", "conditional")
    place.lab.faults.kill(place.name)
    place.lab.faults.restart(place.name)
    place.lab.faults.mend(place.name)
    for value in ("mine", "mine", "theirs"):
        assert place.read(place.name) == value
        place.lab.run(minutes=1 if len(place.reads) == 2 else 0)
    move_read(place, monkeypatch, client=place.other, session=1, op_id=10_000)
    assert any(problem.startswith(ILLEGAL) for problem in place.judge().problems)


@pytest.mark.parametrize("is_restored", [False, True])
def test_refused_write_that_stays_pending_is_found(place, is_restored):
    """The seeded bug of consistency.md: a conflict that keeps the pending write."""
    bug = next(bug for bug in BUGS if bug.name == "a conflict that keeps the pending write")
    place.write(place.other, "theirs").result()
    if is_restored:
        place.write_while_cut("mine")
        place.restore()
    with bug.inject():
        if not is_restored:
            place.write_while_cut("mine")
        place.lab.run(minutes=2)
        assert place.read(place.name) == "mine"
    assert any(problem.startswith(ILLEGAL) for problem in place.judge().problems)


def test_device_killed_before_it_commits_the_refusal_waits_on(place):
    """The answer was rolled back with its transaction."""
    place.write(place.other, "theirs").result()
    place.write_while_cut("mine")
    place.restore()
    process, *_ = place.lab.world.hosts[place.name].processes

    def kill_at_refusal(point: str) -> None:
        if point == "before commit" and not process.store.items("write "):
            raise Killed

    process.store.crash_point = kill_at_refusal
    while process.machine is not None:
        place.lab.run(seconds=0.01)
    place.lab.faults.restart(place.name)
    assert place.read(place.name) == "mine"
    place.lab.run(minutes=2)
    assert place.read(place.name) == "theirs"
    assert place.judge().problems == []


def test_write_that_was_committed_before_the_restore_may_be_refused_when_it_is_sent_again(place):
    """The back end has forgotten the result of a write whose answer the device had confirmed."""
    place.write(place.other, "theirs").result()
    assert place.read(place.name) == "theirs"
    place.write_while_cut("mine", kind="blind")
    place.write(place.name, "the last").result()
    place.restore()
    assert place.read(place.name) == "mine"
    place.lab.run(minutes=2)
    assert place.read(place.name, utility=freshness(600.0)) == "theirs", "the version in the backup"
    assert place.judge().problems == []


def test_pending_again_write_of_a_dropped_table_is_not_a_record_of_it(place):
    """It belongs to no table while its device waits for the answer."""
    first = place.campaign.clients[place.other]
    for _ in range(2):
        creation = first.create(SIDE)
        creation.result()
        place.campaign.work.creations.append(creation)
        if not place.backups:
            place.write_while_cut("mine", kind="blind", table=SIDE)
            first.drop(SIDE).result()
    place.lab.run(seconds=1)
    place.lab.world.fault_hook = lambda transfer: (
        () if as_wire(transfer.message)["kind"] in ("outcome", "refused") else (0,)
    )
    place.restore()
    assert place.read(place.name, "committed", table=SIDE, latest=True) is None
    assert place.read(place.name, table=SIDE) == "mine"
    place.lab.world.fault_hook = None
    place.lab.run(minutes=2)
    assert place.read(place.name, table=SIDE) is None
    assert place.judge().problems == []


def test_run_in_which_a_restored_device_shows_a_refused_write_has_no_problem():
    assert play(44066).problems == []
