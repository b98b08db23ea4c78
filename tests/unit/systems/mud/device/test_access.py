"""Access of a client: what was admitted once is checked again when the time or anything else has changed."""

from __future__ import annotations

import pytest
from mud_machines import ports

from mudkit.errors import AccessDenied, TokenExpired
from mudkit.systems.mud.device.access import Access
from mudkit.systems.mud.device.connection import Connection
from mudkit.systems.mud.device.local import Local
from mudkit.systems.mud.tables.table import Table
from mudkit.tokens import Authority, Claims

SECOND_US = 1_000_000
END_S = 12.345678
AUTHORITY = Authority(b"k" * 32)


def token(expires_s, device=None):
    return AUTHORITY.issue("news", "ann", expires_s=expires_s, device=device)


class Device:
    """Access by a token until END_S to the table t, which was admitted; it is open to this app alone."""

    def __init__(self):
        self.local = Local(ports(), 100)
        self.store_table("t", ["news"], 1)
        self.connection = Connection("ann/news", token(END_S))
        self.access = Access(ports().store, self.local, self.connection)
        self.access.record_verified(self.connection.claimed)
        self.access.check_table_access(0, "t")

    def store_table(self, name, apps, number):
        self.local.store_table(Table.create(name, "news", {"acl": "app", "apps": apps}, number))


@pytest.fixture
def device():
    return Device()


def test_token_expires_to_the_microsecond_after_it_was_admitted(device):
    end_us = round(END_S * SECOND_US)
    device.access.check_table_access(end_us - 1, "t")
    with pytest.raises(TokenExpired):
        device.access.check_table_access(end_us, "t")


def test_another_token_is_checked(device):
    device.connection.use_token(token(1e6, device="bob"))
    with pytest.raises(AccessDenied, match="another device"):
        device.access.check_table_access(0, "t")


def test_a_later_token_is_admitted_until_its_own_end(device):
    device.connection.use_token(token(1e6))
    device.access.check_table_access(round(END_S * SECOND_US), "t")
    device.connection.use_token(token(END_S))
    with pytest.raises(TokenExpired):
        device.access.check_table_access(round(END_S * SECOND_US), "t")


def test_other_verified_claims_are_checked(device):
    device.access.record_verified(Claims("mail", "ann", None, END_S))
    with pytest.raises(AccessDenied, match="not open to this app"):
        device.access.check_table_access(0, "t")


def test_another_table_is_checked(device):
    device.store_table("u", ["mail"], 2)
    with pytest.raises(AccessDenied):
        device.access.check_table_access(0, "u")
    device.access.check_table_access(0, "t")


def test_altered_table_is_checked(device):
    device.store_table("t", ["mail"], 2)
    with pytest.raises(AccessDenied):
        device.access.check_table_access(0, "t")
