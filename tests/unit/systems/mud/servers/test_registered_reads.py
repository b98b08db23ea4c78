"""Keys of a processor's continuous reads by session."""

from __future__ import annotations

from mudkit.systems.mud.servers.registered_reads import SessionReads

FIRST, SECOND, THIRD = (("phone/chat", f"handle {number}") for number in (1, 2, 3))


def test_reads_of_a_session_are_in_order_of_registration():
    reads = SessionReads()
    assert reads.of("session") == []
    for count, key in enumerate((SECOND, FIRST, THIRD), 1):
        reads.add("session", key)
        assert reads.of("session") == [SECOND, FIRST, THIRD][:count]
    reads.add("another", FIRST)
    reads.remove("session", FIRST)
    assert reads.of("session") == [SECOND, THIRD]
    reads.remove("session", SECOND)
    assert reads.of("session") == [THIRD]
    reads.remove("session", THIRD)
    assert reads.of("session") == []
    assert reads.of("another") == [FIRST]


def test_single_read_of_a_session_needs_no_list():
    reads = SessionReads()
    reads.add("session", FIRST)
    assert reads._keys == {"session": FIRST}
    reads.add("session", SECOND)
    reads.remove("session", FIRST)
    assert reads._keys == {"session": SECOND}


def test_caller_may_end_reads_while_it_goes_through_them():
    reads = SessionReads()
    for key in (FIRST, SECOND, THIRD):
        reads.add("session", key)
    for key in reads.of("session"):
        reads.remove("session", key)
    assert reads._keys == {}
