"""Rows that a processor needs: those of its partitions, and all of tables that predicates look up records in.

The latter are named by the predicates of its continuous reads, also of those that wait for the rows, and, as
the log says, by the writer predicates of tables of which it has a partition.
"""

from __future__ import annotations

from collections.abc import Iterable

from mudkit.errors import MudkitError
from mudkit.systems.mud.messages.holdings import Holding
from mudkit.systems.mud.messages.requests import RegisterRequest
from mudkit.systems.mud.messages.servers import Route
from mudkit.systems.mud.servers.log_follower import LogFollower
from mudkit.systems.mud.servers.matching import Matching
from mudkit.systems.mud.tables.queries import tables_of_sent


def choose_holding(
    own: Holding, log: LogFollower, reads: Iterable[Matching], waiting: Iterable[RegisterRequest]
) -> Holding:
    """Return the holding of a processor that has the partitions of ``own``."""
    looked_up = {name for matching in reads for name in matching.list_looked_up()}
    for registration in waiting:
        looked_up |= _tables_looked_up(registration)
    for name, names in log.lookups.items():
        if own.serves_any(log.copy.tables[name]):
            looked_up |= names
    return own.with_tables(looked_up)


def has_needed_rows(log: LogFollower, route: Route, registration: RegisterRequest) -> bool:
    """Return whether the rows of a read are here: of its partitions, and of the tables that are looked up."""
    table = log.copy.tables.get(registration.name)
    if table is None or not table.has_partitions(route.table, route.partitions):
        return True  # it will be refused
    looked_up = _tables_looked_up(registration) | log.lookups.get(table.name, set())
    return log.has_rows(table, route.partitions, looked_up)


def _tables_looked_up(registration: RegisterRequest) -> set[str]:
    """Return the tables in which the predicate of a registration looks up records."""
    try:
        return {*tables_of_sent(registration.predicate)}
    except MudkitError:
        return set()  # it will be refused
