"""Keys of a processor's continuous reads by session."""

from __future__ import annotations

from mudkit.systems.mud.servers.registered_reads import SessionReads

READ_A, READ_B, READ_C = (("phone/chat", f"handle {number}") for number in (1, 2, 3))


def test_reads_of_a_session_are_in_order_of_registration():
    reads = SessionReads()
    assert reads.of("session") == []
    for count, key in enumerate((READ_B, READ_A, READ_C), 1):
        reads.add("session", key)
        assert reads.of("session") == [READ_B, READ_A, READ_C][:count]
    reads.add("another", READ_A)
    reads.remove("session", READ_A)
    assert reads.of("session") == [READ_B, READ_C]
    reads.remove("session", READ_B)
    assert reads.of("session") == [READ_C]
    reads.remove("session", READ_C)
    assert reads.of("session") == []
    assert reads.of("another") == [READ_A]


def test_single_read_of_a_session_needs_no_list():
    reads = SessionReads()
    reads.add("session", READ_A)
    assert reads._keys == {"session": READ_A}
    reads.add("session", READ_B)
    reads.remove("session", READ_A)
    assert reads._keys == {"session": READ_B}


def test_caller_may_end_reads_while_it_goes_through_them():
    reads = SessionReads()
    for key in (READ_A, READ_B, READ_C):
        reads.add("session", key)
    for key in reads.of("session"):
        reads.remove("session", key)
    assert reads._keys == {}
