"""Access of a client to tables, as far as the device knows it without asking the cloud."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from math import inf
from typing import Final

from msgspec import Struct

from mudkit.events import Store
from mudkit.systems.mud.device.connection import Connection
from mudkit.systems.mud.device.local import Local
from mudkit.systems.mud.tables.table import Table
from mudkit.tokens import Claims

_VERIFIED: Final = "verified"
_NOBODY: Final[Mapping[str, str]] = {}


class _Verified(Struct, frozen=True):
    """Token that the cloud has verified, by its hash, and what it proves."""

    token_hash: str
    claims: Claims


class Access:
    """Access of one client to tables, by its token and by the claims that the cloud has verified.

    What was verified is durable, so that an application reads without a network after a restart, too; it
    counts for the same token only.
    """

    def __init__(self, store: Store, local: Local, connection: Connection) -> None:
        self._store = store
        self._local = local
        self._connection = connection
        self.claims: Claims | None = None
        """Claims of this client that the cloud has verified."""
        self._admitted: tuple[Table | None, Claims | None, str | None] | None = None
        """Table, claims and token that were admitted at the last check; with others, all is checked again."""
        self._admitted_until_s = 0.0
        verified = store.get(_VERIFIED, _Verified)
        if verified is not None and verified.token_hash == self._token_hash():
            self.claims = verified.claims

    def record_verified(self, claims: Claims) -> None:
        """Use claims that the cloud has verified; store them durably if the present token claims the same."""
        if claims == self.claims:
            return
        self.claims = claims
        if claims == self._connection.claimed:
            self._store.put(_VERIFIED, _Verified(self._token_hash(), claims))

    def _token_hash(self) -> str:
        """Return the hash of the present token."""
        return hashlib.sha256((self._connection.token or "").encode()).hexdigest()

    @property
    def is_verified(self) -> bool:
        """True if the cloud has verified the token, or there is none."""
        return self.claims is not None or self._connection.token is None

    @property
    def auth(self) -> Mapping[str, str]:
        """Verified identity of the client, ``auth.…`` in predicates; empty: none is verified."""
        return _NOBODY if self.claims is None else self.claims.auth

    def check_table_access(self, now_us: int, name: str) -> None:
        """Raise AccessDenied or TokenExpired if the cloud is known to refuse this client a table."""
        connection, table = self._connection, self._local.tables.get(name)
        checked = table, self.claims, connection.token
        if checked == self._admitted and now_us / 1e6 < self._admitted_until_s:
            return
        claimed = connection.claimed
        if claimed is not None:
            claimed.check(now_us / 1e6, connection.netid)
        if table is not None and self.is_verified:
            table.check_access(self.claims)
        self._admitted, self._admitted_until_s = checked, inf if claimed is None else claimed.expires_s
