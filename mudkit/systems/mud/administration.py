"""What an app asks about tables as a whole: create, alter, drop (Mobius 3.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mudkit.arguments import check_calls
from mudkit.errors import AccessDenied, ParameterError
from mudkit.events import Installed, Operation
from mudkit.systems.mud.operations import Alter, Create, Drop
from mudkit.systems.mud.tables.table import Level
from mudkit.tokens import Authority

__all__ = ["TableAdministration", "check_app"]


@check_calls
class TableAdministration:
    """The calls of a client about tables; the cloud says whether it may."""

    installed: Installed

    def create(
        self,
        table: str,
        *,
        acl: Level = "app",
        apps: Sequence[str] | None = None,
        split: Sequence[str] = (),
        schema: Mapping[str, str] | None = None,
    ) -> Operation:
        """Create a table.

        Parameters
        ----------
        table : str
        acl : {'public', 'app', 'user'}
            Who comes in: everyone, apps that prove who they are, users that do.
        apps : sequence of str, optional
            The only apps that come in.
        split : sequence of str
            First keys of all partitions but the first.
        schema : mapping of str to str, optional
            ``text``, ``number``, ``boolean``, ``point`` or ``any``, by column.

        Returns
        -------
        Operation
            Its result raises :class:`~mudkit.errors.ParameterError` for a property that cannot be,
            :class:`~mudkit.errors.AccessDenied` without a token of the app, and
            :class:`~mudkit.errors.TableProblem` when there is such a table already.
        """
        properties = {"acl": acl, "apps": apps, "split": split, "schema": schema}
        return self.installed.call(Create(table, properties))

    def alter(
        self,
        table: str,
        *,
        acl: Level | None = None,
        add: Mapping[str, str] | None = None,
        remove: Sequence[str] = (),
    ) -> Operation:
        """Change a table's level, and add or remove columns; only the app that created it may."""
        properties = {"acl": acl, "add": add, "remove": remove}
        return self.installed.call(Alter(table, properties))

    def drop(self, table: str) -> Operation:
        """Delete a table with all its records; only the app that created it may."""
        return self.installed.call(Drop(table))


def check_app(app: str, token: str | None, authority: Authority) -> None:
    """Refuse a token of another app; one that cannot be read is left to the cloud, which says why."""
    if token is None:
        return
    try:
        proven = authority.read(token).app
    except AccessDenied:
        if not isinstance(token, str):
            raise  # the cloud takes no message with such a token
        return
    if proven != app:
        raise ParameterError(
            "This token is of another app.",
            where="token",
            found=f"app {proven!r}",
            expected=f"app {app!r}",
            remedy=f"take one for this app: lab.token(user=…, app={app!r})",
        )
