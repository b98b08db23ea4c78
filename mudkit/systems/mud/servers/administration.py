"""Administration of tables at the back end: each request is carried out once, however often it arrives."""

from __future__ import annotations

from msgspec import UNSET
from msgspec.structs import asdict

from mudkit.delivery.inbox import MAX_INCARNATIONS
from mudkit.errors import AccessDenied, MudkitError, TableProblem
from mudkit.events import Store
from mudkit.systems.mud.messages.parts import encode_error
from mudkit.systems.mud.messages.requests import Administered, AdministrationRequest, Request, TableResult
from mudkit.systems.mud.messages.servers import Routed
from mudkit.systems.mud.servers.committed_log import CommittedLog
from mudkit.systems.mud.tables.records import SentPredicate
from mudkit.systems.mud.tables.table import Table, no_such_table_error
from mudkit.systems.mud.tables.write_rules import check_rule
from mudkit.tokens import Claims


class Administration:
    """Tables of a ``log``; results of requests are in the ``store`` until their clients have them."""

    def __init__(self, store: Store, log: CommittedLog) -> None:
        self._store, self._log = store, log

    def administer(self, routed: Routed[Request], request: AdministrationRequest) -> Administered | None:
        """Create, alter or drop a table at the first arrival of a request, and return its stored result.

        Results that the client has received are removed; a late copy of their requests has no effect: None.
        """
        client, _, number = routed.id.rpartition(".")
        first = self._store.get(f"done before {client}", int) or 0
        if number.isdecimal() and int(number) < first:
            return None
        if request.first is not UNSET and request.first > first:
            self._store.put(f"done before {client}", request.first)
            for key in self._store.keys(f"done {client}."):
                former = key.rpartition(".")[2]
                if former.isdecimal() and int(former) < request.first:
                    self._store.delete(key)
        result = self._store.get(f"done {routed.id}", TableResult)
        if result is None:
            try:
                result = self._change_table(request, routed.verified.claims)
            except MudkitError as error:
                result = TableResult(error=encode_error(error))
            self._store.put(f"done {routed.id}", result)
            self._add_administrator(client)
        return Administered(id=routed.id, claims=routed.verified.claims, **asdict(result))

    def _add_administrator(self, client: str) -> None:
        """Add an incarnation to those of an endpoint whose results are kept; delete those of the oldest.

        No effect if it is one of them. ``client`` is endpoint and incarnation; a request is sent again only
        in its incarnation.
        """
        endpoint, _, incarnation = client.rpartition(" ")
        key = f"administrators {endpoint}"
        begun = self._store.get(key, list[str]) or []
        if incarnation not in begun:
            begun = [*begun, incarnation]
            for former in begun[:-MAX_INCARNATIONS]:
                for old in self._store.keys(f"done {endpoint} {former}."):
                    self._store.delete(old)
                self._store.delete(f"done before {endpoint} {former}")
            self._store.put(key, begun[-MAX_INCARNATIONS:])

    def _change_table(self, request: AdministrationRequest, claims: Claims | None) -> TableResult:
        """Create, alter or drop a table, store the entry of the log, and return the result.

        Raise MudkitError, without effect, if this is not possible or not allowed.
        """
        name = request.name
        table = self._log.copy.tables.get(name)
        lsn = self._log.copy.lsn + 1
        if request.op == "create":
            if claims is None:
                raise AccessDenied(
                    "A table can be created only with a token.",
                    where=f"table {name!r}",
                    found="no token",
                    expected="a token of the app, which alone can alter and drop the table later",
                    remedy="make the client with token=lab.token(user=…, app=…)",
                )
            if table is not None:
                raise TableProblem(
                    "There is a table of this name already.",
                    where="table",
                    found=repr(name),
                    expected="a name that is free",
                    remedy="use the table, or drop it first",
                )
            changed = Table.create(name, claims.app, request.properties, lsn)
        elif table is None:
            raise no_such_table_error(name, self._log.copy.tables, claims)
        else:
            table.check_owner(claims)
            if request.op == "drop":
                self._log.drop_table(name)
                return TableResult(table=None, dropped=table.number)
            changed = table.alter(request.properties, lsn)
        if isinstance(changed.write_rule, SentPredicate):
            check_rule(changed.write_rule, changed, self._log.copy.tables, claims)
        self._log.put_table(changed)
        return TableResult(table=changed)
