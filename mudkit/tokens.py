"""Tokens: who somebody provably is, signed by an authority and valid for a time of the caller's clock."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final

import jwt
import msgspec

from mudkit.checks import check_arguments
from mudkit.errors import AccessDenied, TokenExpired

_ALGORITHM: Final = "HS256"
MAX_VERIFIED: Final = 4096
"""Tokens whose signature an authority does not verify again: those that were shown last."""


class Claims(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """Claims of a token: an app, perhaps a user and the only device that may show it, and when it expires.

    The time is in seconds by the clock of the authority that issued it.
    """

    app: str
    user: str | None
    device: str | None
    expires_s: float

    @property
    def auth(self) -> dict[str, str]:
        """Attributes that predicates read as ``auth``."""
        return {"app": self.app} | ({} if self.user is None else {"user": self.user})

    def check(self, now_s: float, device: str | None) -> None:
        """Raise TokenExpired at the end of its time, AccessDenied for another ``device`` than its own."""
        if self.expires_s <= now_s:
            raise TokenExpired(
                "This token has expired.",
                where="token",
                found=f"valid until {self.expires_s:,.3f} s, now {now_s:,.3f} s",
                remedy="take a new one",
            )
        if self.device is not None and self.device != device:
            raise AccessDenied(
                "This token belongs to another device.",
                where="token",
                found=f"shown by {device}",
                expected=self.device,
            )


@check_arguments(types=False)
class Authority:
    """Issuer and verifier of signed tokens, by the time that is given instead of the wall clock.

    Parameters
    ----------
    key : bytes
        The secret, at least 32 bytes; everybody who knows it can issue tokens.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._verified: OrderedDict[str, Claims] = OrderedDict()
        """Claims of the tokens that were shown last, by token: what was signed once stays signed."""

    def issue(self, app: str, user: str | None = None, *, expires_s: float, device: str | None = None) -> str:
        """Return a signed token (a JWT).

        Parameters
        ----------
        app : str
            The app that the token is for.
        user, device : str, optional
            The user whom it proves, and the only device that may show it. None: no user, every device.
        expires_s : float
            Time from which on it is not valid, by the clock of :meth:`verify`: in a lab since its start.
        """
        claims: dict[str, Any] = {"app": app, "user": user, "device": device, "exp": expires_s}
        return jwt.encode({k: v for k, v in claims.items() if v is not None}, self._key, _ALGORITHM)

    def decode(self, token: Any) -> Claims:
        """Return the claims of a token of this authority, expired or not.

        Raises
        ------
        AccessDenied
            It is no token of this authority.
        """
        known = self._verified.get(token) if type(token) is str else None
        if known is not None:
            self._verified.move_to_end(token)
            return known
        claims = self._verify_signature(token)
        if type(token) is str:
            self._verified[token] = claims
            if len(self._verified) > MAX_VERIFIED:
                self._verified.popitem(last=False)
        return claims

    def _verify_signature(self, token: Any) -> Claims:
        """Return the claims of a token; raise AccessDenied unless this authority has signed it."""
        try:
            payload = jwt.decode(
                token,
                self._key,
                [_ALGORITHM],
                options={"require": ["exp", "app"], "verify_exp": False, "verify_iat": False},
            )
            return _claims(payload)
        except (jwt.PyJWTError, TypeError, ValueError) as error:
            raise AccessDenied(
                "This is no token of this authority.",
                where="token",
                found=f"{type(error).__name__}: {error}",
                remedy="take one from lab.token(…) of the same lab",
            ) from error

    def verify(self, token: Any, now_s: float, device: str | None = None) -> Claims:
        """Return the claims of a valid token.

        Parameters
        ----------
        token : str
        now_s : float
            Time at which the token must be valid, in seconds since 1970.
        device : str, optional
            Device that presents the token.

        Raises
        ------
        AccessDenied
            It is no token of this authority, it has expired, or it is another device's.
        """
        claims = self.decode(token)
        claims.check(now_s, device)
        return claims


def claimed(token: str | None) -> Claims | None:
    """Return the claims of a token without checking its signature, for its holder; None: it says nothing."""
    try:
        return _claims(jwt.decode(token or "", options={"verify_signature": False}))
    except (jwt.PyJWTError, LookupError, TypeError, ValueError):
        return None


def _claims(payload: dict[str, Any]) -> Claims:
    """Return the claims of a decoded token; the time of its end is in s since 1970."""
    return Claims(str(payload["app"]), payload.get("user"), payload.get("device"), float(payload["exp"]))
