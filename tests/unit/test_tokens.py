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


@pytest.mark.parametrize("now_s", [60.0, 60.001, 1e9])
def test_an_expired_token_is_refused(now_s):
    token = HERE.issue("news", expires_s=60)
    with pytest.raises(AccessDenied, match="has expired"):
        HERE.verify(token, now_s)
    assert HERE.decode(token).expires_s == 60


@pytest.mark.parametrize("expires_s", [0.001, 1.0, 86_400.0, 4e9, 1e12])
def test_the_time_that_counts_is_the_one_that_is_given(expires_s):
    token = HERE.issue("news", expires_s=expires_s)
    assert HERE.verify(token, expires_s * 0.99).expires_s == expires_s
    with pytest.raises(AccessDenied):
        HERE.verify(token, expires_s)


@pytest.mark.parametrize("device", [None, "bobs-phone", ""])
def test_another_devices_token_is_refused(device):
    token = HERE.issue("news", "jane", expires_s=10, device="jane-phone")
    with pytest.raises(AccessDenied, match="another device"):
        HERE.verify(token, 0, device)


def test_another_labs_token_is_refused():
    token = ELSEWHERE.issue("news", "jane", expires_s=10)
    assert ELSEWHERE.verify(token, 0).app == "news"
    with pytest.raises(AccessDenied, match="no token of this authority"):
        HERE.verify(token, 0)


def test_a_lab_does_not_take_the_token_of_a_lab_with_another_seed():
    one, other = Lab(seed=1), Lab(seed=2)
    token = one.token(user="jane", app="news")
    assert one.authority.decode(token).auth == {"app": "news", "user": "jane"}
    with pytest.raises(AccessDenied):
        other.authority.decode(token)


def _part(data: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(data).encode()).rstrip(b"=").decode()


@pytest.mark.parametrize(
    "claims",
    [
        {"app": "bank", "user": "jane", "exp": 10},
        {"app": "news", "user": "bob", "exp": 10},
        {"app": "news", "user": "jane", "exp": 1e9},
    ],
)
def test_claims_cannot_be_changed_under_a_signature(claims):
    head, _, signature = HERE.issue("news", "jane", expires_s=10).split(".")
    with pytest.raises(AccessDenied):
        HERE.decode(f"{head}.{_part(claims)}.{signature}")


@pytest.mark.parametrize("algorithm", ["HS384", "HS512"])
def test_a_token_does_not_choose_how_it_is_verified(algorithm):
    authority = Authority(KEY * 2)
    claims = {"app": "news", "exp": 10}
    assert authority.decode(jwt.encode(claims, KEY * 2, "HS256")).app == "news"
    with pytest.raises(AccessDenied):
        authority.decode(jwt.encode(claims, KEY * 2, algorithm))


@pytest.mark.parametrize("algorithm", ["none", "NONE", "RS256", ""])
def test_a_token_that_nobody_has_signed_is_refused(algorithm):
    head = _part({"alg": algorithm, "typ": "JWT"})
    with pytest.raises(AccessDenied):
        HERE.decode(f"{head}.{_part({'app': 'news', 'exp': 10})}.")


@pytest.mark.parametrize("claims", [
    {"app": "news"}, {"exp": 10}, {"app": None, "exp": 10}, {"app": "news", "exp": None},
    {"app": "news", "exp": "soon"}, {"app": "news", "exp": [1]},
])  # fmt: skip
def test_a_token_without_an_app_or_an_end_is_none(claims):
    with pytest.raises(AccessDenied):
        HERE.decode(jwt.encode(claims, KEY, "HS256"))


@pytest.mark.parametrize("token", [
    None, 5, b"", "", "a", "a.b.c", "..", "\ud800", b"\xff\xfe", [], {}, ("a", "b"), "ä.ö.ü",
    base64.urlsafe_b64encode(b"[" * 100_000).decode() + ".e30.x",
    _part([]) + ".e30.x", _part({"alg": ["HS256"]}) + ".e30.x",
])  # fmt: skip
def test_what_is_no_token_is_refused(token):
    with pytest.raises(AccessDenied, match="no token of this authority") as caught:
        HERE.verify(token, 0)
    assert caught.value.found
    assert KEY.decode() not in str(caught.value)


def test_each_character_of_a_token_counts():
    token = HERE.issue("news", "jane", expires_s=10)
    for place in range(0, len(token) - 1, 7):
        changed = token[:place] + ("A" if token[place] != "A" else "B") + token[place + 1 :]
        with pytest.raises(AccessDenied):
            HERE.decode(changed)
