"""Tokens: what they prove, until when, and to whom."""

from __future__ import annotations

import base64
import json
from typing import Any

import jwt
import pytest

from mudkit import Lab
from mudkit.errors import AccessDenied
from mudkit.tokens import Authority, Claims

KEY = b"the key of one lab, 32 bytes or more"
HERE = Authority(KEY)
ELSEWHERE = Authority(b"the key of another lab, as long again")


def test_a_token_proves_what_was_issued():
    token = HERE.issue("news", "jane", expires_s=100.5, device="jane-phone")
    claims = HERE.verify(token, 100.0, "jane-phone")
    assert claims == Claims("news", "jane", "jane-phone", 100.5)
    assert HERE.decode(token) == claims


@pytest.mark.parametrize("device", [None, "anyone's"])
def test_a_token_of_no_device_may_be_shown_by_any(device):
    assert HERE.verify(HERE.issue("news", expires_s=10), 0, device).device is None


def test_auth_holds_the_app_and_the_user_if_there_is_one():
    assert Claims("news", "jane", "phone", 1.0).auth == {"app": "news", "user": "jane"}
    assert HERE.decode(HERE.issue("news", expires_s=1, device="phone")).auth == {"app": "news"}
    lab = Lab(seed=1)
    assert lab.authority.decode(lab.token(user="jane", app="news")).auth == {"app": "news", "user": "jane"}


@pytest.mark.parametrize("expires_s", [0.001, 1.0, 86_400.0, 4e9, 1e12])
def test_the_time_that_counts_is_the_one_that_is_given(expires_s):
    token = HERE.issue("news", expires_s=expires_s)
    assert HERE.verify(token, expires_s * 0.99).expires_s == expires_s
    for now_s in (expires_s, 1e13):
        with pytest.raises(AccessDenied, match="has expired"):
            HERE.verify(token, now_s)
    assert HERE.decode(token).expires_s == expires_s


def _part(data: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(data).encode()).rstrip(b"=").decode()


def signed(claims: dict[str, Any], algorithm: str = "HS256") -> str:
    return jwt.encode(claims, KEY * 2, algorithm)


TOKEN = HERE.issue("news", "jane", expires_s=10)
HEAD, _, SIGNATURE = TOKEN.split(".")
NEWS = {"app": "news", "exp": 10}
FORGED = [
    ELSEWHERE.issue("news", "jane", expires_s=10),
    Lab(seed=1).token(user="jane", app="news"),
    *(
        f"{HEAD}.{_part({'app': 'news', 'user': 'jane', 'exp': 10} | changed)}.{SIGNATURE}"
        for changed in ({"app": "bank"}, {"user": "bob"}, {"exp": 1e9})
    ),
    *(f"{_part({'alg': algorithm, 'typ': 'JWT'})}.{_part(NEWS)}." for algorithm in ("none", "NONE", "RS256", "")),
    *(
        TOKEN[:place] + ("A" if TOKEN[place] != "A" else "B") + TOKEN[place + 1 :]
        for place in range(0, len(TOKEN) - 1, 7)
    ),
    None, 5, b"", "", "a", "a.b.c", "..", "\ud800", b"\xff\xfe", [], {}, ("a", "b"), "ä.ö.ü",
    base64.urlsafe_b64encode(b"[" * 100_000).decode() + ".e30.x",
    _part([]) + ".e30.x", _part({"alg": ["HS256"]}) + ".e30.x",
]  # fmt: skip


@pytest.mark.parametrize("token", FORGED, ids=range(len(FORGED)))
def test_what_this_authority_has_not_signed_is_refused(token):
    with pytest.raises(AccessDenied, match="no token of this authority") as caught:
        HERE.verify(token, 0)
    assert caught.value.found
    assert KEY.decode() not in str(caught.value)


@pytest.mark.parametrize(
    ("claims", "algorithm"),
    [
        (NEWS, "HS384"), (NEWS, "HS512"), ({"app": "news"}, "HS256"), ({"exp": 10}, "HS256"),
        *((NEWS | wrong, "HS256") for wrong in ({"app": None}, {"exp": None}, {"exp": "soon"}, {"exp": [1]})),
    ],
)  # fmt: skip
def test_what_is_signed_in_another_way_or_says_too_little_is_refused(claims, algorithm):
    authority = Authority(KEY * 2)
    assert authority.decode(signed(NEWS)).app == "news"
    with pytest.raises(AccessDenied):
        authority.decode(signed(claims, algorithm))


@pytest.mark.parametrize("device", [None, "bobs-phone", ""])
def test_another_devices_token_is_refused(device):
    token = HERE.issue("news", "jane", expires_s=10, device="jane-phone")
    with pytest.raises(AccessDenied, match="another device"):
        HERE.verify(token, 0, device)
