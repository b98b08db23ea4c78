"""Unusual arguments of an application: every operation completes with a result or a helpful error."""

from __future__ import annotations

from enum import StrEnum

import numpy as np
import pytest

from mudkit.errors import MudkitError, OperationTimeout
from mudkit.systems.mud import Client


class Named(StrEnum):
    """Members are instances of a subclass of str."""

    NEWS = "news"
    KEY = "k"


@pytest.fixture
def jane(place):
    jane = place.client("jane")
    jane.create("news").result()
    jane.write("news", "k", {"n": 1}).result()
    return jane


def run_to_end(call):
    """Call something; return the result, or the name of the error."""
    try:
        return call().result(timeout_s=300)
    except OperationTimeout:
        raise
    except MudkitError as error:
        return type(error).__name__


LONG = "x" * 600
UNUSABLE_NAMES = [3, None, "", LONG, "a\nb", "\ud800", b"news", ["news"], 1.5]


@pytest.mark.parametrize("name", UNUSABLE_NAMES, ids=lambda name: repr(name)[:12])
def test_unusable_table_name_is_refused_by_every_operation(jane, name):
    for call in (
        lambda: jane.read(name),
        lambda: jane.read(name, "key = 'a'", "uncommitted"),
        lambda: jane.read(name, type="continuous"),
        lambda: jane.write(name, "a", {"n": 1}),
        lambda: jane.delete(name, "a"),
        lambda: jane.drop(name),
        lambda: jane.alter(name, acl="public"),
    ):
        is_text = isinstance(name, str) and name != "\ud800"
        assert run_to_end(call) == ("TableProblem" if is_text else "ParameterError")
    assert run_to_end(lambda: jane.create(name)) == "ParameterError"
    assert jane.pending().result() == []


@pytest.mark.parametrize("predicate", [
    "key = ''", f"key = '{LONG}'", "key IN ('', 'k')", f"key IN ('k', '{LONG}')", f"n = 1 OR topic = '{LONG * 200}'",
], ids=lambda predicate: predicate[:16])  # fmt: skip
@pytest.mark.parametrize("kind", ["uncommitted", "committed", "committed_wio", "continuous"])
def test_read_of_keys_without_records_completes(jane, predicate, kind):
    result = run_to_end(lambda: jane.read("news", predicate, kind))
    if len(predicate) > 10_000:
        assert result == "PredicateError"
    elif kind != "continuous":
        assert set(result.records) == ({"k"} if "'k'" in predicate else set())


def test_continuous_read_unregistered_before_its_answer_completes(jane):
    first = jane.read("news", type="continuous", callback=lambda _: None).result()
    second = jane.read("news", type="continuous", callback=lambda _: None)
    end = jane.unregister(first + 1)
    jane.device.world.run(jane.device.world.now_us + 60_000_000)
    assert (second.status, end.status) == ("ok", "ok")


def test_latest_must_be_a_boolean(jane):
    assert run_to_end(lambda: jane.read("news", latest=np.bool_(True))).records == {"k": {"n": 1}}
    for latest in (1, 0, "yes", None):
        assert run_to_end(lambda latest=latest: jane.read("news", latest=latest)) == "ParameterError"


@pytest.mark.parametrize("text", [np.str_, str, Named], ids=["numpy", "str", "enum"])
def test_subclasses_of_str_are_accepted(place, jane, text):
    news, key = text("news"), text("k")
    assert run_to_end(lambda: jane.write(news, key, {key: key})) == 2
    assert run_to_end(lambda: jane.read(news)).records == {"k": {"k": "k"}}
    assert run_to_end(lambda: jane.read("news", "k = 'k'", data={key: key})).versions == {"k": 2}
    handle = run_to_end(lambda: jane.read(news, type="continuous", data={key: key}))
    run_to_end(lambda: jane.update_data(handle, {key: key}))
    assert run_to_end(lambda: jane.delete(news, key)) == 3
    assert run_to_end(lambda: jane.alter(news, acl=text("k"))) == "ParameterError"
    assert run_to_end(lambda: jane.alter(news, add={key: "text"}, remove=[news])) is None
    assert run_to_end(lambda: jane.drop(news)) is None
    assert run_to_end(lambda: jane.create(news, apps=[news], split=[key], schema={key: "text"})) is None
    other = place.client("other", app=news)
    assert run_to_end(lambda: other.write("news", "k", {"k": "v"})) == 1


@pytest.mark.parametrize("times", [1_000, 10_000])
def test_many_aggregates_are_answered_or_refused(jane, times):
    result = run_to_end(lambda: jane.read("news", aggregate=", ".join(["count(*)"] * times)))
    assert result == "PredicateError" or result.aggregates == {"count(*)": 1}


@pytest.mark.parametrize("app", [LONG, "x" * 2000])
def test_too_long_app_name_is_refused(place, app):
    with pytest.raises(MudkitError):
        Client(place.lab.device("p"), place.cloud, app=app, token=place.lab.token(app=app))


@pytest.mark.parametrize("token", [3, b"x", ["a"], 1.5])
def test_token_must_be_a_string(place, token):
    with pytest.raises(MudkitError):
        Client(place.lab.device("p"), place.cloud, app="news", token=token)
