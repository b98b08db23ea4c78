"""Equal reads of several apps in flight: which follow another one, and who gets its answer."""

from __future__ import annotations

import pytest
from msgspec import convert
from mud_machines import build_request

from mudkit.systems.mud.device.shared_reads import SharedReads
from mudkit.systems.mud.messages.requests import Ask, Part, PartsComplete
from mudkit.systems.mud.tables.table import Table
from mudkit.tokens import Claims

MAIL = Claims("mail", "jane", None, 100.0)
NEWS = Claims("news", "jane", None, 100.0)


def ask(app="mail", number=1, **fields):
    return convert(build_request(f"first.{number}", f"jane/{app}", op="read", **fields), Ask)


def complete(**properties):
    table = Table.create("t", "mail", {"acl": "app", "writer_predicates": False, **properties}, 1)
    return PartsComplete(id=ask().id, table=table, claims=MAIL, places=[0])


def part(place=0):
    return Part(id=ask().id, partition=place, place=place, lsn=1, rows=[])


@pytest.fixture
def reads():
    shared = SharedReads({"mail": MAIL, "news": NEWS, "open": None})
    shared.lead("mail", ask())
    return shared


def test_equal_read_gets_the_answer_with_its_own_claims(reads):
    seen = {"seen": {"0": 7}, "table": 1}  # what a device has seen is no part of the question
    assert reads.follow("news", ask("news", **seen))
    reads.receive_part(part(0))
    reads.receive_part(part(1))
    reads.receive_part(part(0))
    answers, asks = reads.receive_end(0, ask().id, complete())
    assert [(app, type(answer), answer.id) for app, answer in answers] == [
        ("news", Part, ask("news").id),
        ("news", Part, ask("news").id),
        ("news", PartsComplete, ask("news").id),
    ]
    assert answers[-1][1].claims == NEWS
    assert asks == []
    assert not reads.follow("news", ask("news", 2))  # no longer in flight


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "u"},
        {"reader": {"age": 3}},
        {"keys": ["a"]},
        {"latest": True},
        {"aggregate": "count(*)"},
        {"predicate": {"text": "n = 1", "constants": [1]}},
    ],
)
def test_other_read_does_not_follow(reads, fields):
    assert not reads.follow("news", ask("news", **fields))


@pytest.mark.parametrize(
    "text", ["auth.app = owner", "lookup('u', key, 'n') = 1", "LookUp('u', key, 'n') = 1"]
)
def test_read_that_depends_on_the_app_is_not_shared(text):
    reads, predicate = SharedReads({"mail": MAIL, "news": NEWS}), {"text": text, "constants": []}
    reads.lead("mail", ask(predicate=predicate))
    assert not reads.follow("news", ask("news", predicate=predicate))


def test_latest_read_follows_no_other():
    """The other one's answer may be older than its call."""
    reads = SharedReads({"mail": MAIL, "news": NEWS})
    reads.lead("mail", ask(latest=True))
    assert not reads.follow("news", ask("news", latest=True))


def test_read_of_the_same_app_does_not_follow(reads):
    assert not reads.follow("mail", ask("mail", 2))


def test_retransmission_follows_no_more(reads):
    assert reads.follow("news", ask("news"))
    assert not reads.follow("news", ask("news"))
    assert reads.receive_end(0, ask().id, complete()) == ([], [])


@pytest.mark.parametrize(
    ("app", "now_us", "properties"),
    [
        ("news", 0, {"writer_predicates": True}),  # a writer may hide records from this app
        ("news", 0, {"apps": ["mail"]}),
        ("open", 0, {}),  # without a token
        ("unverified", 0, {"acl": "public"}),
        ("news", 100_000_000, {}),  # its token has expired
    ],
)
def test_app_that_may_see_other_records_asks_itself(reads, app, now_us, properties):
    assert reads.follow(app, ask(app))
    reads.receive_part(part())
    assert reads.receive_end(now_us, ask().id, complete(**properties)) == ([], [(app, ask(app))])


def test_public_table_is_open_to_an_app_without_a_token(reads):
    assert reads.follow("open", ask("open"))
    ((app, answer),), _ = reads.receive_end(0, ask().id, complete(acl="public"))
    assert (app, answer.claims) == ("open", None)


def test_apps_ask_themselves_if_the_read_was_refused(reads):
    assert reads.follow("news", ask("news"))
    assert reads.receive_end(0, ask().id, None) == ([], [("news", ask("news"))])


def test_nothing_is_shared_over_a_lost_link(reads):
    reads.clear()
    assert not reads.follow("news", ask("news"))
