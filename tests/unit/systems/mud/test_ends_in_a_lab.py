"""Whatever an application gives, its operation ends: with a result, or with an error that says what is wrong."""

from __future__ import annotations

from enum import StrEnum

import numpy as np
import pytest

from mudkit.errors import MudkitError, OperationTimeout
from mudkit.systems.mud import Client


class Named(StrEnum):
    """A text that is not quite one."""

    NEWS = "news"
    KEY = "k"


@pytest.fixture
def jane(place):
    jane = place.client("jane")
    jane.create("news").result()
    jane.write("news", "k", {"n": 1}).result()
    return jane


def ended(act):
    """Let something be asked, and give what came of it."""
    try:
        return act().result(timeout_s=300)
    except OperationTimeout:
        raise
    except MudkitError as error:
        return type(error).__name__


LONG = "x" * 600
TABLES = [3, None, "", LONG, "a\nb", "\ud800", b"news", ["news"], 1.5]


@pytest.mark.parametrize("name", TABLES, ids=lambda each: repr(each)[:12])
def test_what_is_no_name_of_a_table_ends_every_operation(jane, name):
    for act in (
        lambda: jane.read(name),
        lambda: jane.read(name, "key = 'a'", "uncommitted"),
        lambda: jane.read(name, type="continuous"),
        lambda: jane.write(name, "a", {"n": 1}),
        lambda: jane.delete(name, "a"),
        lambda: jane.drop(name),
        lambda: jane.alter(name, acl="public"),
    ):
        is_text = isinstance(name, str) and name != "\ud800"
        assert ended(act) == ("TableProblem" if is_text else "ParameterError")
    assert ended(lambda: jane.create(name)) == "ParameterError"
    assert jane.pending().result() == []


@pytest.mark.parametrize("predicate", [
    "key = ''", f"key = '{LONG}'", "key IN ('', 'k')", f"key IN ('k', '{LONG}')", f"n = 1 OR topic = '{LONG * 200}'",
], ids=lambda each: each[:16])  # fmt: skip
@pytest.mark.parametrize("kind", ["uncommitted", "committed", "committed_wio", "continuous"])
def test_a_read_of_keys_that_no_record_has_ends(jane, predicate, kind):
    result = ended(lambda: jane.read("news", predicate, kind))
    if len(predicate) > 10_000:
        assert result == "PredicateError"
    elif kind != "continuous":
        assert set(result.records) == ({"k"} if "'k'" in predicate else set())


def test_a_continuous_read_that_is_ended_before_it_began_is_answered(jane):
    first = jane.read("news", type="continuous", callback=lambda _: None).result()
    began = jane.read("news", type="continuous", callback=lambda _: None)
    ended = jane.unregister(first + 1)
    jane.device.world.run(jane.device.world.now_us + 60_000_000)
    assert (began.status, ended.status) == ("ok", "ok")


def test_whether_the_latest_is_asked_for_is_yes_or_no(jane):
    assert ended(lambda: jane.read("news", latest=np.bool_(True))).records == {"k": {"n": 1}}
    for latest in (1, 0, "yes", None):
        assert ended(lambda latest=latest: jane.read("news", latest=latest)) == "ParameterError"


@pytest.mark.parametrize("text", [np.str_, str, Named], ids=["numpy", "str", "enum"])
def test_texts_of_other_kinds_are_texts(place, jane, text):
    news, key = text("news"), text("k")
    assert ended(lambda: jane.write(news, key, {key: key})) == 2
    assert ended(lambda: jane.read(news)).records == {"k": {"k": "k"}}
    assert ended(lambda: jane.read("news", "k = 'k'", data={key: key})).versions == {"k": 2}
    handle = ended(lambda: jane.read(news, type="continuous", data={key: key}))
    ended(lambda: jane.update_data(handle, {key: key}))
    assert ended(lambda: jane.delete(news, key)) == 3
    assert ended(lambda: jane.alter(news, acl=text("k"))) == "ParameterError"
    assert ended(lambda: jane.alter(news, add={key: "text"}, remove=[news])) is None
    assert ended(lambda: jane.drop(news)) is None
    assert ended(lambda: jane.create(news, apps=[news], split=[key], schema={key: "text"})) is None
    other = place.client("other", app=news)
    assert ended(lambda: other.write("news", "k", {"k": "v"})) == 1


@pytest.mark.parametrize("times", [1_000, 10_000])
def test_aggregates_may_be_many(jane, times):
    result = ended(lambda: jane.read("news", aggregate=", ".join(["count(*)"] * times)))
    assert result == "PredicateError" or result.aggregates == {"count(*)": 1}


@pytest.mark.parametrize("app", [LONG, "x" * 2000])
def test_a_name_of_an_app_has_an_end(place, app):
    with pytest.raises(MudkitError):
        Client(place.lab.device("p"), place.cloud, app=app, token=place.lab.token(app=app))


@pytest.mark.parametrize("token", [3, b"x", ["a"], 1.5])
def test_a_token_is_a_text(place, token):
    with pytest.raises(MudkitError):
        Client(place.lab.device("p"), place.cloud, app="news", token=token)
