"""Orders of two systems put together, in the report scoreboard: what the order changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mudkit import words
from mudkit.display import MAX_CELL
from mudkit.experiment import check_orders, commutativity
from mudkit.experiment.order_checks import PEOPLE
from mudkit.processes import spread_out
from mudkit.report.page import Answer

if TYPE_CHECKING:
    import pandas as pd

_SAME: Final = "makes no difference"
_SHOWN_CHANGES: Final = "changes what is shown"
_KEPT_CHANGES: Final = "changes which promises are kept"


def try_orders(scenarios: int, seed: int) -> pd.DataFrame:
    """Check each order of two systems with :func:`mudkit.experiment.check_orders`; none with 0 scenarios."""
    if not scenarios:
        return check_orders([])
    with spread_out(part=1) as spread:
        return check_orders(scenarios=scenarios, seed=seed, map=spread)


def order_table(tried: pd.DataFrame) -> pd.DataFrame:
    """Return for each pair of systems which orders keep most promises, and what the order changes."""
    rows = commutativity(tried)
    rows["best"] = [shortened(best) for best in rows["best"]]
    rows["order"] = [
        _SAME if shown and kept else _SHOWN_CHANGES if kept else _KEPT_CHANGES
        for shown, kept in zip(rows["same_shown"], rows["same_kept"], strict=True)
    ]
    first = tried.groupby("composition", sort=False)["order"].first()
    rows["composition"] = [f"{_pair(first[name])}: {name}" for name in rows["composition"]]
    labels = {
        "composition": "put together",
        "order": "order",
        "best": "keeps most promises",
        "never": "no order keeps",
    }
    return rows[list(labels)].rename(columns=labels)


def _pair(order: str) -> str:
    """Return the systems of an order of two: ``"MUD, then Last hop"``."""
    one, other, *_ = order.split(", ")
    return f"{one} and {other.removeprefix('then ')}"


def shortened(best: str) -> str:
    """Return the orders that keep most promises, or the first and how many more, in a cell's length."""
    names, _, kept = best.rpartition(" (")
    first, *more = names.split("; ")
    return best if len(best) < MAX_CELL else f"{first} and {len(more)} more ({kept}"


def order_answer(table: pd.DataFrame, scenarios: int) -> Answer:
    """Return in how many pairs of :func:`order_table` the order changes something, as a heading."""
    kept, shown = (int((table["order"] == change).sum()) for change in (_KEPT_CHANGES, _SHOWN_CHANGES))
    pairs = words.count(len(table), "pair")
    more = f", and only what is shown in {shown} more" if shown else ""
    return Answer(
        f"The order changes which promises are kept in {kept} of {pairs} of systems{more}",
        "The second system of an order gets what the first one delivers, tried on "
        f"{words.count(scenarios, 'random scenario')} in each order that can be built. Sealing is encryption "
        f"for the readers alone. Radiator of k keeps messages until they are about {PEOPLE} people. An order "
        "that breaks a promise has a counterexample in `data/orders.parquet`.",
    )
