"""Settings of Spark from arguments and the environment."""

from __future__ import annotations

import importlib.metadata
import re
import socket

import pytest

from mudkit.errors import EnvironmentProblem, ParameterError
from mudkit.pipeline.launch import settings
from mudkit.pipeline.launch.settings import (
    Target,
    addresses,
    check_reachable,
    check_variables,
    memory,
    resolve,
)


@pytest.mark.parametrize(
    ("arguments", "environ", "url", "connect", "explicit"),
    [
        (("local[2]", None, None), {"MUDKIT_SPARK_MASTER": "yarn"}, "local[2]", False, True),
        ((None, "sc://a:1", None), {"MUDKIT_SPARK_MASTER": "yarn"}, "sc://a:1", True, True),
        ((None, "local[*]", None), {}, "local[*]", True, True),
        ((None, None, {"spark.master": "spark://a:7077"}), {}, "spark://a:7077", False, True),
        ((None, None, {"spark.remote": "sc://a"}), {"SPARK_REMOTE": "sc://b"}, "sc://a", True, True),
        (("yarn", None, {"spark.master": "yarn"}), {}, "yarn", False, True),
        ((None, None, None), {"MUDKIT_SPARK_MASTER": " k8s://h "}, "k8s://h", False, False),
        ((None, None, None), {"SPARK_REMOTE": "sc://h"}, "sc://h", True, False),
        (
            (None, None, None),
            {"MUDKIT_SPARK_MASTER": "local", "SPARK_REMOTE": "sc://h"},
            "local",
            False,
            False,
        ),
        ((None, None, None), {"MUDKIT_SPARK_MASTER": "", "SPARK_REMOTE": ""}, "local[*]", False, False),
        ((None, None, None), {}, "local[*]", False, False),
    ],
)
def test_first_source_that_names_a_target_wins(arguments, environ, url, connect, explicit):
    target = resolve(*arguments, environ)
    assert (target.url, target.connect, target.explicit) == (url, connect, explicit)


@pytest.mark.parametrize(
    ("url", "local", "starts"),
    [
        ("local", True, True),
        ("local[2, 3]", True, True),
        ("local-cluster[1,1,1024]", False, True),
        ("spark://h:1,g:2", False, True),
        ("sc://h:15002", False, False),
    ],
)
def test_targets_are_classified_by_url(url, local, starts):
    is_remote = url.startswith("sc:")
    target = resolve(None if is_remote else url, url if is_remote else None, None, {})
    assert (target.local, target.starts_jvm) == (local, starts)


@pytest.mark.parametrize(
    ("url", "loopback"),
    [
        ("local[*]", True),
        ("spark://127.0.0.1:7077", True),
        ("spark://localhost:7077", True),
        ("spark://127.0.0.1:7077,h:7077", False),
        ("spark://127.example.org:7077", False),
        ("spark://h:7077", False),
        ("yarn", False),
    ],
)
def test_loopback_targets_are_recognised(url, loopback):
    assert resolve(url, None, None, {}).loopback == loopback


MASTERS = ["", "lokal", "local[0]", "local[", "local[a]", "http://h", 3]
CONFIGS = [{"sql.a": "x"}, {3: "x"}, {"spark.a": None}, {"spark.a": ["x"]}, {"spark.master": None}]
AMOUNTS = ["2", "lots", "-1g", "1gg", "0g", "511m", "1,5g", "nan g", "100k"]


@pytest.mark.parametrize(
    ("call", "where", "message"),
    [
        (lambda: resolve("local", "sc://h", None, {}), None, "one place"),
        (lambda: resolve("local", "local", None, {}), None, "one place"),
        (lambda: resolve("local", None, {"spark.master": "yarn"}, {}), None, "one place"),
        (lambda: resolve(None, "sc://h", {"spark.master": "yarn"}, {}), None, "one place"),
        *((lambda master=master: resolve(master, None, None, {}), "master=", repr(master)) for master in MASTERS),
        (lambda: resolve("sc://h", None, None, {}), "master=", "remote='sc://h'"),
        (lambda: resolve(None, None, None, {"MUDKIT_SPARK_MASTER": "lokal"}), "MUDKIT_SPARK_MASTER", "lokal"),
        *(
            (lambda remote=remote: resolve(None, remote, None, {}), None, "sc://host:port")
            for remote in ("", "h:15002", "spark://h", "http://h")
        ),
        *((lambda config=config: resolve(None, None, config, {}), None, "config|spark") for config in CONFIGS),
        *((lambda text=text: memory({"MUDKIT_SPARK_MEMORY": text}), "MUDKIT_SPARK_MEMORY", repr(text)) for text in AMOUNTS),
    ],
)  # fmt: skip
def test_invalid_settings_are_refused(call, where, message):
    with pytest.raises(ParameterError) as caught:
        call()
    assert where in (None, caught.value.where)
    assert message in str(caught.value) or re.search(message, str(caught.value))


@pytest.mark.parametrize("url", ["spark://h", "spark://127.0.0.1:99999", "spark://no-such-host.invalid:7077"])
def test_unreachable_addresses_are_refused(url):
    with pytest.raises(EnvironmentProblem, match=re.escape(url)):
        check_reachable(Target(url))


def test_config_values_are_converted_to_strings():
    config = {"spark.a": True, "spark.b": 3, "spark.c": "x", "spark.master": "local"}
    assert resolve(None, None, config, {}).config == {"spark.a": "true", "spark.b": "3", "spark.c": "x"}


@pytest.mark.parametrize(
    ("text", "heap"),
    [
        (None, "1024m"),
        ("", "1024m"),
        ("1g", "1024m"),
        ("2G", "2048m"),
        ("1.5 GB", "1536m"),
        ("512m", "512m"),
        ("512MiB", "512m"),
        ("1t", "1048576m"),
    ],
)
def test_memory_sizes_are_parsed(text, heap):
    assert memory({} if text is None else {"MUDKIT_SPARK_MEMORY": text}) == heap


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("spark://h:7077", [("h", 7077)]),
        ("spark://h:1, g.example.org:2", [("h", 1), ("g.example.org", 2)]),
        ("spark://[::1]:7077", [("::1", 7077)]),
        ("spark://h", []),
        ("spark://", []),
        ("spark://h:1,g", []),
        ("spark://h:port", []),
        ("spark://u@h:x:1", []),
    ],
)
def test_addresses_are_parsed(url, expected):
    assert addresses(url) == expected


@pytest.fixture
def listening_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def closed_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def test_one_reachable_master_of_two_suffices(listening_port, closed_port):
    check_reachable(Target(f"spark://127.0.0.1:{closed_port},127.0.0.1:{listening_port}"))


def test_refused_connection_is_reported(closed_port):
    url = f"spark://127.0.0.1:{closed_port}"
    with pytest.raises(EnvironmentProblem) as caught:
        check_reachable(Target(url, named="MUDKIT_SPARK_MASTER"))
    assert caught.value.where == "MUDKIT_SPARK_MASTER"
    assert caught.value.found.startswith(f"{url}: 127.0.0.1:{closed_port}: ")
    assert "refused" in caught.value.found
    assert "on this machine" in caught.value.remedy


def test_silent_masters_share_the_timeout(monkeypatch):
    timeouts_s = []

    def time_out(address, timeout_s):
        timeouts_s.append(timeout_s)
        raise TimeoutError("timed out")

    monkeypatch.setattr(settings.socket, "create_connection", time_out)
    with pytest.raises(EnvironmentProblem, match=r"a:1: timed out; b:2: timed out"):
        check_reachable(Target("spark://a:1,b:2"))
    assert timeouts_s[0] == pytest.approx(settings.MASTER_TIMEOUT_S / 2, abs=0.1)


@pytest.mark.parametrize("url", ["local[2]", "yarn", "k8s://h", "local-cluster[1,1,1024]", "sc://h"])
def test_only_standalone_masters_are_contacted(url, monkeypatch):
    monkeypatch.setattr(settings.socket, "create_connection", lambda *_: pytest.fail("asked"))
    check_reachable(Target(url))


def make_spark(folder, version=None):
    (folder / "bin").mkdir(parents=True)
    (folder / "jars").mkdir()
    (folder / "bin" / "spark-submit").touch()
    if version is not None:
        (folder / "jars" / f"spark-core_2.13-{version}.jar").touch()
    return str(folder)


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (lambda folder: str(folder / "nothing"), "no such folder"),
        (lambda folder: "", "no such folder"),
        (str, "it has no bin/spark-submit"),
        (lambda folder: make_spark(folder / "old", "2.4.8"), "it is Spark 2.4.8"),
    ],
)
def test_spark_home_of_another_installation_is_named(tmp_path, make, found):
    home = make(tmp_path)
    with pytest.raises(EnvironmentProblem, match="SPARK_HOME names no Spark") as caught:
        check_variables({"SPARK_HOME": home})
    assert caught.value.found == f"SPARK_HOME={home}: {found}"
    assert "unset SPARK_HOME" in caught.value.remedy


@pytest.mark.parametrize("words", ["", "--master local[2]", "--conf 'a=b pyspark-shell"])
def test_submit_arguments_without_the_last_word_are_named(words):
    with pytest.raises(EnvironmentProblem, match="PYSPARK_SUBMIT_ARGS keeps Spark from starting"):
        check_variables({"PYSPARK_SUBMIT_ARGS": words})


def test_variables_that_fit_are_accepted(tmp_path):
    check_variables({})
    check_variables({"PYSPARK_SUBMIT_ARGS": "--conf 'spark.a=b c' pyspark-shell"})
    version = importlib.metadata.version("pyspark")
    check_variables({"SPARK_HOME": make_spark(tmp_path / "same", version)})
    check_variables({"SPARK_HOME": make_spark(tmp_path / "built")})  # a build of one's own
