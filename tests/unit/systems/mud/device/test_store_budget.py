"""Budget of a device's store: never above it, and whose records are evicted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mudkit.systems.mud.device.attachment import EvictRows, StoreUse
from mudkit.systems.mud.device.store_budget import StoreBudget

APPS = ("mail", "news", "chat")


class Phone:
    """Apps that hold records, known by the times at which they were received, and their budget."""

    def __init__(self, max_rows):
        self.max_rows = dict(zip(APPS, max_rows, strict=True))
        self.rows = {app: [] for app in APPS}
        self.evicted = []
        """App and time of each record that was evicted for another app, in order."""
        self.budget = StoreBudget()
        for app in APPS:
            self.report(app)

    def receive(self, app, times):
        """Receive records, and evict what is to be evicted."""
        self.rows[app] = [*self.rows[app], *times][-self.max_rows[app] :]
        self.report(app)

    def report(self, app):
        eviction = self.budget.record_use(app, self.use_of(app))
        while eviction is not None:
            app, order = eviction
            rows, count = self.rows[app], 0
            while len(rows) - count > order.keep_rows and (
                not count or order.until_us is None or rows[count] <= order.until_us
            ):
                count += 1
            assert count, "an order that evicts nothing would be repeated for ever"
            self.evicted += [(app, time) for time in rows[:count]]
            self.rows[app] = rows[count:]
            eviction = self.budget.record_use(app, self.use_of(app))

    def use_of(self, app):
        rows = self.rows[app]
        return StoreUse(self.max_rows[app], len(rows), rows[0] if rows else 0)

    @property
    def max_total(self):
        return max(self.max_rows.values())


@given(
    st.tuples(*[st.integers(1, 12)] * 3),
    st.lists(st.tuples(st.sampled_from(APPS), st.integers(1, 15)), max_size=25),
)
def test_store_is_never_above_its_budget_and_eviction_is_fair(max_rows, steps):
    """Rules of :mod:`mudkit.systems.mud.device.store_budget`, after each step."""
    phone, now_us = Phone(max_rows), 0
    share = phone.max_total // len(APPS)
    for app, count in steps:
        before = {other: list(rows) for other, rows in phone.rows.items()}
        before[app] = [*before[app], *range(now_us, now_us + count)][-phone.max_rows[app] :]
        phone.evicted.clear()
        phone.receive(app, range(now_us, now_us + count))
        now_us += count
        assert sum(map(len, phone.rows.values())) <= phone.max_total
        excess = max(0, sum(map(len, before.values())) - phone.max_total)
        assert len(phone.evicted) == excess, "none is evicted without need"
        model = []
        for _ in range(excess):  # the rule, a record at a time
            above = [(rows[0], other) for other, rows in before.items() if len(rows) > share]
            time, victim = min(above)
            before[victim].pop(0)
            model.append((victim, time))
        assert phone.evicted == model
        assert phone.rows == before


def test_app_that_fills_the_store_takes_nothing_of_a_share():
    """ "An app that floods delays itself": the same for the store."""
    phone = Phone([9, 9, 9])
    phone.receive("mail", range(3))
    phone.receive("news", range(3, 6))
    phone.receive("chat", range(6, 106))
    assert {app: len(rows) for app, rows in phone.rows.items()} == dict.fromkeys(APPS, 3)
    assert {app for app, _ in phone.evicted} == {"chat"}


def test_app_may_use_what_the_others_do_not():
    phone = Phone([9, 9, 9])
    phone.receive("chat", range(100))
    assert len(phone.rows["chat"]) == 9
    phone.receive("mail", range(100, 102))
    assert phone.evicted == [("chat", 91), ("chat", 92)]


def test_order_names_the_next_app_whose_record_is_as_old():
    budget = StoreBudget()
    budget.record_use("mail", StoreUse(6, 4, 10))
    budget.record_use("chat", StoreUse(6, 2, 5))
    assert budget.record_use("chat", StoreUse(6, 4, 5)) == ("chat", EvictRows(3, 10))
