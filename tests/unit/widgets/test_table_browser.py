"""Table browser: operations, holdings of clients, links, conflicts, and invalid input."""

from __future__ import annotations

import pytest
from html_tables import table_rows

from mudkit import Lab, figures
from mudkit.systems.mud import Client, Cloud
from mudkit.widgets import TableBrowser


@pytest.fixture
def lab():
    return Lab(seed=7)


@pytest.fixture
def clients(lab):
    cloud = Cloud(lab)
    clients = {
        name: Client(lab.device(f"{name}-phone"), cloud, app="news", token=lab.token(name, "news"))
        for name in ("ann", "bob")
    }
    clients["guest"] = Client(lab.devices["bob-phone"], cloud, app="guest")
    clients["ann"].create("news", acl="public").result()
    return clients


@pytest.fixture
def browser(lab, clients):
    return TableBrowser(lab, clients, "news", {"ann": {"age": 34}, "bob": {"age": 12}})


def write(browser, key, record, writer="", how="blind"):
    browser.key.value, browser.record.value, browser.writer.value = key, record, writer
    browser.how.value = how
    browser.write.click()


def read(browser, name, where="", kind="uncommitted"):
    browser.client.value, browser.predicate.value, browser.kind.value = name, where, kind
    browser.read.click()
    browser.some_seconds.click()


def read_column(browser, name):
    """Return the column of a client in the table of holdings, row by row."""
    names = list(browser._clients)
    return [row[1 + names.index(name)] for row in table_rows(browser.holdings.value)[1:]]


def test_write_is_pending_until_the_lab_runs(lab, browser):
    before = lab.now
    write(browser, "a1", '{"topic": "arts"}')
    assert lab.now == before
    assert "1 pending" in browser.status.value
    assert "pending topic: arts" in read_column(browser, "ann")[0]
    assert "no answer yet" in browser.operations.value
    browser.some_seconds.click()
    assert (lab.now - before).total_seconds() == 10
    assert "0 pending" in browser.status.value
    assert "v1 topic: arts" in read_column(browser, "ann")[0]
    assert "✓ version 1" in browser.operations.value
    browser.some_minutes.click()
    assert (lab.now - before).total_seconds() == 610


def test_visible_records_depend_on_the_reader(lab, browser, clients):
    write(browser, "a1", '{"topic": "arts"}', "receiver.age >= 21")
    browser.some_seconds.click()
    read(browser, "bob")
    assert "✓ 0 records" in browser.operations.value
    browser.reader.value = '{"age": 34}'
    read(browser, "bob")
    assert "✓ 1 record<div>" in browser.operations.value
    assert "v1 topic: arts" in read_column(browser, "bob")[0]
    browser.reader.value = '{"age": 20}'
    assert "hidden: receiver.age >= 21" in read_column(browser, "bob")[0]
    assert "topic: arts" in read_column(browser, "ann")[0], "each column has its own reader"
    holdings = {
        name: client.holdings("news", browser._readers[name]).result() for name, client in clients.items()
    }
    assert (
        browser.holdings.value
        == figures.holdings(holdings, browser._readers, title="The table news on each device.")._repr_html_()
    )


def test_predicate_on_the_user_requires_a_token(browser):
    write(browser, "a1", '{"topic": "arts"}', "auth.user = 'bob'")
    browser.some_seconds.click()
    for name, result in (("guest", 0), ("bob", 1)):
        browser.client.value = name
        browser.reader.value = '{"user": "bob"}'
        read(browser, name)
        assert f"{name}: uncommitted read of all</b>: ✓ {result} record" in browser.operations.value


def test_reader_data_is_kept_for_each_client(browser):
    assert browser.reader.value == '{"age": 34}'
    browser.client.value = "guest"
    assert browser.reader.value == "{}"
    browser.reader.value = '{"age": 99}'
    browser.client.value = "bob"
    assert browser.reader.value == '{"age": 12}'
    browser.client.value = "guest"
    assert browser.reader.value == '{"age": 99}'
    assert browser.problem.value == ""


def test_link_can_be_cut_and_restored(lab, browser):
    assert browser.link.description == "cut the link"
    browser.link.click()
    assert not lab.devices["ann-phone"].is_online
    assert "no network" in browser.status.value
    write(browser, "a1", '{"n": 1}')
    browser.some_minutes.click()
    assert "1 pending" in browser.status.value
    read(browser, "ann", "key = 'a1'")
    assert "✓ 1 record" in browser.operations.value, "what is pending is read without a network"
    read(browser, "ann", "key = 'a1'", "committed")
    assert (
        "committed read of key = &#x27;a1&#x27;</b>: ✓ 0 records; others may be missing"
        in browser.operations.value
    )
    browser.client.value = "bob"
    assert browser.link.description == "cut the link"
    browser.client.value = "ann"
    assert browser.link.description == "restore the link"
    browser.link.click()
    assert lab.devices["ann-phone"].is_online
    browser.some_seconds.click()
    assert "0 pending" in browser.status.value
    assert "no answer yet" not in browser.operations.value


def test_conflict_shows_three_records(browser):
    write(browser, "a1", '{"n": 1}')
    browser.some_seconds.click()
    read(browser, "bob", "key = 'a1'")
    browser.client.value = "ann"
    write(browser, "a1", '{"n": 2}')
    browser.some_seconds.click()
    browser.client.value = "bob"
    write(browser, "a1", '{"n": 3}', how="conditional")
    browser.some_seconds.click()
    assert "✗ Conflict" in browser.operations.value
    answer = "the store has {&quot;n&quot;: 2}; this was {&quot;n&quot;: 3}; based on {&quot;n&quot;: 1}."
    assert answer in browser.operations.value
    assert "v2 n: 2" in read_column(browser, "bob")[0]


def test_record_is_deleted_and_a_new_one_written(browser):
    write(browser, "a1", '{"n": 1}')
    browser.delete.click()
    assert "pending deleted" in read_column(browser, "ann")[0]
    browser.some_seconds.click()
    assert "v2 deleted" in read_column(browser, "ann")[0]
    write(browser, "", '{"n": 5}')
    browser.some_seconds.click()
    assert "blind write of a new key" in browser.operations.value
    assert "<b>v1</b> n: 5" in browser.holdings.value


def test_fresh_read_is_answered_without_the_cloud(lab, browser):
    write(browser, "a1", '{"n": 1}')
    browser.some_minutes.click()
    before = lab.bill()["messages"].sum()
    browser.max_age.value = 1000.0
    read(browser, "ann", "key = 'a1'", "committed")
    assert lab.bill()["messages"].sum() == before
    assert "local" in table_rows(browser.operations.value)[-1]
    browser.max_age.value = 1.0
    read(browser, "ann", "key = 'a1'", "committed")
    assert lab.bill()["messages"].sum() > before


@pytest.mark.parametrize(
    ("field", "text", "button", "answer"),
    [
        ("record", '{"n":', "write", "The record cannot be read."),
        ("record", "[1]", "write", "The record is not a JSON object."),
        ("reader", "34", "read", "The reader is not a JSON object."),
        ("predicate", "topic = ", "read", "is incomplete"),
        ("writer", 'receiver.name = "bob"', "write", "is a name in SQL"),
    ],
)
def test_invalid_input_is_reported_and_changes_nothing(browser, field, text, button, answer):
    write(browser, "a1", '{"n": 1}')
    browser.some_seconds.click()
    kept = browser.holdings.value, browser.operations.value
    getattr(browser, field).value = text
    getattr(browser, button).click()
    assert answer in browser.problem.value
    assert "Nothing was done." in browser.problem.value
    assert (browser.holdings.value, browser.operations.value) == kept
    browser.some_seconds.click()
    assert browser.problem.value == ""


def test_errors_of_the_client_are_shown_as_answers(browser):
    for key, record, answer in (("k" * 600, '{"n": 1}', "kkk"), ("a1", '{"n": NaN}', "nan")):
        write(browser, key, record)
        assert "✗ ParameterError" in browser.operations.value
        assert answer in browser.operations.value
        assert "pending" not in browser.holdings.value


def test_markup_is_escaped(browser):
    write(browser, "<b>k", '{"<i>": "<u>"}')
    for page in (browser.holdings.value, browser.operations.value, browser.status.value):
        for tag in ("<b>k", "<i>", "<u>"):
            assert tag not in page


def test_killed_device_shows_no_records_until_restarted(lab, browser):
    write(browser, "a1", '{"n": 1}')
    browser.some_seconds.click()
    lab.faults.kill("ann-phone")
    browser.some_seconds.click()
    assert "No device holds a record." in browser.holdings.value
    write(browser, "a2", '{"n": 1}')
    assert "✗ OperationLost" in browser.operations.value
    lab.faults.restart("ann-phone")
    browser.some_seconds.click()
    assert "v1 n: 1" in read_column(browser, "ann")[0]
