"""Tokens: claims, expiry, signature, and device."""

from __future__ import annotations

import base64
import json
from typing import Any

import jwt
import pytest

import mudkit.tokens
from mudkit import Lab
from mudkit.errors import AccessDenied
from mudkit.tokens import Authority, Claims

KEY = b"the key of one lab, 32 bytes or more"
AUTHORITY = Authority(KEY)
OTHER_AUTHORITY = Authority(b"the key of another lab, as long again")


def test_verified_token_has_the_issued_claims():
    token = AUTHORITY.issue("news", "jane", expires_s=100.5, device="jane-phone")
    claims = AUTHORITY.verify(token, 100.0, "jane-phone")
    assert claims == Claims("news", "jane", "jane-phone", 100.5)
    assert AUTHORITY.decode(token) == claims


@pytest.mark.parametrize("device", [None, "anyone's"])
def test_token_without_a_device_is_valid_for_any_device(device):
    assert AUTHORITY.verify(AUTHORITY.issue("news", expires_s=10), 0, device).device is None


def test_auth_has_the_app_and_an_optional_user():
    assert Claims("news", "jane", "phone", 1.0).auth == {"app": "news", "user": "jane"}
    assert AUTHORITY.decode(AUTHORITY.issue("news", expires_s=1, device="phone")).auth == {"app": "news"}
    lab = Lab(seed=1)
    assert lab.authority.decode(lab.token(user="jane", app="news")).auth == {"app": "news", "user": "jane"}


@pytest.mark.parametrize("expires_s", [0.001, 1.0, 86_400.0, 4e9, 1e12])
def test_expiry_is_checked_against_the_given_time(expires_s):
    token = AUTHORITY.issue("news", expires_s=expires_s)
    assert AUTHORITY.verify(token, expires_s * 0.99).expires_s == expires_s
    for now_s in (expires_s, 1e13):
        with pytest.raises(AccessDenied, match="has expired"):
            AUTHORITY.verify(token, now_s)
    assert AUTHORITY.decode(token).expires_s == expires_s


def _encode_part(data: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(data).encode()).rstrip(b"=").decode()


def sign(claims: dict[str, Any], algorithm: str = "HS256") -> str:
    return jwt.encode(claims, KEY * 2, algorithm)


TOKEN = AUTHORITY.issue("news", "jane", expires_s=10)
HEAD, _, SIGNATURE = TOKEN.split(".")
NEWS = {"app": "news", "exp": 10}
FORGED = [
    OTHER_AUTHORITY.issue("news", "jane", expires_s=10),
    Lab(seed=1).token(user="jane", app="news"),
    *(
        f"{HEAD}.{_encode_part({'app': 'news', 'user': 'jane', 'exp': 10} | changed)}.{SIGNATURE}"
        for changed in ({"app": "bank"}, {"user": "bob"}, {"exp": 1e9})
    ),
    *(f"{_encode_part({'alg': algorithm, 'typ': 'JWT'})}.{_encode_part(NEWS)}." for algorithm in ("none", "NONE", "RS256", "")),
    *(
        TOKEN[:place] + ("A" if TOKEN[place] != "A" else "B") + TOKEN[place + 1 :]
        for place in range(0, len(TOKEN) - 1, 7)
    ),
    None, 5, b"", "", "a", "a.b.c", "..", "\ud800", b"\xff\xfe", [], {}, ("a", "b"), "ä.ö.ü",
    base64.urlsafe_b64encode(b"[" * 100_000).decode() + ".e30.x",
    _encode_part([]) + ".e30.x", _encode_part({"alg": ["HS256"]}) + ".e30.x",
]  # fmt: skip


@pytest.mark.parametrize("token", FORGED, ids=range(len(FORGED)))
def test_tokens_not_signed_by_the_authority_are_refused(token):
    with pytest.raises(AccessDenied, match="no token of this authority") as caught:
        AUTHORITY.verify(token, 0)
    assert caught.value.found
    assert KEY.decode() not in str(caught.value)


@pytest.mark.parametrize(
    ("claims", "algorithm"),
    [
        (NEWS, "HS384"), (NEWS, "HS512"), ({"app": "news"}, "HS256"), ({"exp": 10}, "HS256"),
        *((NEWS | wrong, "HS256") for wrong in ({"app": None}, {"exp": None}, {"exp": "soon"}, {"exp": [1]})),
    ],
)  # fmt: skip
def test_other_algorithms_and_incomplete_claims_are_refused(claims, algorithm):
    authority = Authority(KEY * 2)
    assert authority.decode(sign(NEWS)).app == "news"
    with pytest.raises(AccessDenied):
        authority.decode(sign(claims, algorithm))


@pytest.mark.parametrize("device", [None, "bobs-phone", ""])
def test_token_of_another_device_is_refused(device):
    token = AUTHORITY.issue("news", "jane", expires_s=10, device="jane-phone")
    with pytest.raises(AccessDenied, match="another device"):
        AUTHORITY.verify(token, 0, device)


def test_signature_of_a_token_is_verified_once(monkeypatch):
    authority = Authority(KEY)
    tokens = [authority.issue("news", user, expires_s=10) for user in ("ann", "bob", "cyd")]
    monkeypatch.setattr(mudkit.tokens, "MAX_VERIFIED", 2)
    verified = []
    decode = jwt.decode
    monkeypatch.setattr(
        jwt, "decode", lambda token, *rest, **more: verified.append(token) or decode(token, *rest, **more)
    )
    for number in (0, 1, 0, 1, 2, 1, 2, 0):
        assert authority.decode(tokens[number]).user == ("ann", "bob", "cyd")[number]
    assert verified == [
        *tokens,
        tokens[0],
    ]  # of two that are kept, the one that was not shown for longest went
    for _ in range(2):  # a refusal is not kept
        with pytest.raises(AccessDenied):
            authority.decode(FORGED[0])
        with pytest.raises(AccessDenied, match="has expired"):
            authority.verify(tokens[2], 11)
    assert verified.count(FORGED[0]) == 2
