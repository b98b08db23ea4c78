"""Access of a client to tables, as far as the device knows it without asking the cloud."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mudkit.systems.mud.device.connection import Connection
from mudkit.systems.mud.device.local import Local
from mudkit.tokens import Claims

_NOBODY: Final[Mapping[str, str]] = {}


class Access:
    """Access of one client to tables, by its token and by the claims that the cloud has verified."""

    def __init__(self, local: Local, connection: Connection) -> None:
        self._local = local
        self._connection = connection
        self.claims: Claims | None = None
        """Claims of this client that the cloud has verified."""

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
        connection = self._connection
        if connection.claimed is not None:
            connection.claimed.check(now_us / 1e6, connection.netid)
        table = self._local.tables.get(name)
        if self.is_verified and table is not None:
            table.check_access(self.claims)
