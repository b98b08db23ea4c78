"""Logs of a task of one's own: what is read, and errors in words."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from mudkit.errors import TraceContentError, TraceFormatError
from mudkit.report.scenario import OwnScenario, read_outages, read_writes
from mudkit.scenario import Scenario


def write(folder, text, name="log.csv"):
    file = folder / name
    file.write_text(text)
    return str(file)


def test_writes_are_read_with_what_is_known(tmp_path):
    path = write(
        tmp_path,
        "sender;ts;rank;expires;size_bytes\na;2024-03-01 12:00:00;2;2024-03-01T12:00:00Z;\nb;1709290000;;;900\n",
    )
    rows = read_writes(path, "Europe/Helsinki").to_pylist()
    assert [row["device"] for row in rows] == ["a", "b"]
    assert rows[0]["ts"].isoformat() == "2024-03-01T10:00:00+00:00"
    assert rows[0]["expires"].hour == 12
    assert rows[1]["expires"] is None
    assert (rows[0]["rank"], rows[1]["rank"], rows[1]["size_bytes"]) == (2.0, None, 900.0)


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("device,when\na,1\n", TraceFormatError, "lacks columns of a log of writes"),
        ("device,time\n", TraceContentError, "log of writes is empty"),
        ("device,time\na,1709290000\nb,soon\n", TraceContentError, "line 3"),
        ("device,time\na,1709290000,250\n", TraceContentError, "wrong number of fields"),
        ("device,time\na,17092900000000\n", TraceContentError, "before 1980 or after 2100"),
        ("device,time,rank\na,1709290000,high\n", TraceContentError, "A rank is not a finite number"),
    ],
)
def test_unusable_writes_are_refused(text, kind, message, tmp_path):
    with pytest.raises(kind, match=message):
        read_writes(write(tmp_path, text), "UTC")


def test_outages_are_read_from_a_log_or_from_links(tmp_path):
    log = read_outages(write(tmp_path, "device,begin,end\na,1709290000,1709290060\n"), "UTC")
    links = write(
        tmp_path,
        "device,ts,up\n" + "".join(f"a,{1709289990 + 10 * k},{int(not 1 <= k < 7)}\n" for k in range(9)),
        "links.csv",
    )
    assert read_outages(links, "UTC").to_pylist() == log.to_pylist()


def test_outage_that_ends_before_it_begins_is_refused(tmp_path):
    path = write(tmp_path, "device,begin,end\na,1709290000,1709290060\na,1709290100,1709290090\n")
    with pytest.raises(TraceContentError, match="ends before it begins") as caught:
        read_outages(path, "UTC")
    assert "line 3" in str(caught.value)


@pytest.mark.parametrize(
    ("found", "step", "part"),
    [
        (2, 1, ""),
        (3, 1, "2 devices of 3 ("),
        (2, 4, "2 devices of 2 and one item in 4 ("),
        (3, 4, "of 3 and one"),
    ],
)
def test_part_of_a_log_that_is_played_is_named(found, step, part):
    """Fewer devices or fewer items than the log has: what goes to every phone costs more in the whole fleet."""
    report = SimpleNamespace(
        source=SimpleNamespace(warnings=list),
        recording=SimpleNamespace(names=["ann", "bob"], devices_found=found, step=step),
        task=SimpleNamespace(scenario=Scenario()),
    )
    notes = OwnScenario.warnings(report)
    assert len(notes) == bool(part)
    assert part in " ".join(notes)
