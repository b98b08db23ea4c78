"""Whether a cluster is there, asked before a JVM starts."""

from __future__ import annotations

import socket

import pytest

from mudkit.errors import EnvironmentProblem
from mudkit.pipeline.launch import masters
from mudkit.pipeline.launch.masters import addresses, check_reachable
from mudkit.pipeline.launch.settings import Wanted


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
def test_addresses(url, expected):
    assert addresses(url) == expected


@pytest.fixture
def listening():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def closed():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def test_one_master_of_two_is_enough(listening, closed):
    check_reachable(Wanted(f"spark://127.0.0.1:{closed},127.0.0.1:{listening}"))


def test_nobody_there(closed):
    url = f"spark://127.0.0.1:{closed}"
    with pytest.raises(EnvironmentProblem) as caught:
        check_reachable(Wanted(url, named="MUDKIT_SPARK_MASTER"))
    assert caught.value.where == "MUDKIT_SPARK_MASTER"
    assert caught.value.found.startswith(f"{url}: 127.0.0.1:{closed}: ")
    assert "refused" in caught.value.found
    assert "on this machine" in caught.value.remedy


@pytest.mark.parametrize("url", ["spark://h", "spark://127.0.0.1:99999", "spark://no-such-host.invalid:7077"])
def test_addresses_that_lead_nowhere(url):
    with pytest.raises(EnvironmentProblem) as caught:
        check_reachable(Wanted(url))
    assert url in caught.value.found


def test_who_does_not_answer_is_not_waited_for_long(monkeypatch):
    patience = []

    def silent(address, timeout_s):
        patience.append(timeout_s)
        raise TimeoutError("timed out")

    monkeypatch.setattr(masters.socket, "create_connection", silent)
    with pytest.raises(EnvironmentProblem, match=r"a:1: timed out; b:2: timed out"):
        check_reachable(Wanted("spark://a:1,b:2"))
    assert patience[0] == pytest.approx(masters.ANSWER_S / 2, abs=0.1)


@pytest.mark.parametrize("url", ["local[2]", "yarn", "k8s://h", "local-cluster[1,1,1024]", "sc://h"])
def test_other_places_are_not_asked(url, monkeypatch):
    monkeypatch.setattr(masters.socket, "create_connection", lambda *_: pytest.fail("asked"))
    check_reachable(Wanted(url))
