"""Apps of one person: what one phone's service, store and pending writes save, and where they save nothing."""

import pytest

from mudkit.errors import ParameterError
from mudkit.worlds import PhoneApps

PERSON = PhoneApps(hours=1.0, writes=10, looks=12)


def test_idle_phone_sends_one_heartbeat_for_all_apps():
    """Mobius 5: a heartbeat is of a device."""
    one, three = (PERSON.pushed(1, phones, 0.0) for phones in (1, 3))
    assert three["messages"] == 3 * one["messages"] > 0
    assert three["radio_j"] == pytest.approx(3 * one["radio_j"], rel=0.01)


def test_pushed_changes_cost_as_many_messages_on_one_phone_beside_the_heartbeats():
    def count(phones, rate):
        return PERSON.pushed(1, phones, rate)["messages"]

    assert count(1, 10.0) - count(1, 0.0) == count(3, 10.0) - count(3, 0.0) > 0


def test_writes_of_few_records_leave_as_few_and_share_a_wake_up():
    joined, apart = (PERSON.after_outage(1, 1, records) for records in (1, 10))
    assert joined["messages_up"] == apart["messages_up"] == 1.0
    assert joined["kb"] < apart["kb"] / 3
    assert PERSON.after_outage(1, 1, 1, "conditional")["kb"] > apart["kb"]
    three = PERSON.after_outage(1, 3, 1)
    assert three["messages_up"] == 3.0
    assert three["radio_j"] > 2.9 * joined["radio_j"]


def test_looks_near_the_last_one_are_answered_by_the_phone_if_the_answer_is_for_all_readers():
    near, far = (PERSON.map_looks(1, km, has_writer_predicates=False) for km in (0.05, 6.0))
    assert near["asked_share"] < far["asked_share"]
    hidden = PERSON.map_looks(1, 0.05, has_writer_predicates=True)
    assert hidden["asked_share"] == 1.0
    assert hidden["kb_per_look"] > near["kb_per_look"]


def test_drafts_on_the_device_cost_nothing_and_are_seen_nowhere_else():
    device, cloud = (PERSON.drafts(1, 30.0, where) for where in ("device", "cloud"))
    assert (device["messages"], device["radio_j"], device["seen_elsewhere"]) == (0.0, 0.0, 0.0)
    assert cloud["radio_j"] > 0
    assert cloud["seen_elsewhere"] == 1.0


@pytest.mark.parametrize("phones", [0, 4])
def test_number_of_phones_is_at_most_that_of_the_apps(phones):
    with pytest.raises(ParameterError, match="phones"):
        PERSON.pushed(1, phones, 1.0)
