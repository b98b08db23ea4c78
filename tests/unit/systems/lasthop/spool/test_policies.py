import pytest

from mudkit.errors import ParameterError
from mudkit.systems.lasthop import LEARNT, Forwarding


@pytest.mark.parametrize(
    ("settings", "result"),
    [
        ({"kind": "online"}, "'online'"),
        ({"prefetch_limit": -1}, "-1"),
        ({"prefetch_limit": 2.5}, "2.5"),
        ({"prefetch_limit": "taught"}, "taught"),
        ({"expiration_threshold_s": -1.0}, "-1"),
        ({"expiration_threshold_s": True}, "True"),
        ({"delay_s": "soon"}, "soon"),
    ],
)
def test_settings_that_are_none(settings, result):
    with pytest.raises(ParameterError, match=result):
        Forwarding(**settings)


def test_the_unified_policy_learns_what_is_not_set():
    assert Forwarding.of("unified") == Forwarding("unified", LEARNT, LEARNT, LEARNT)
    assert Forwarding.of("unified", delay_s=None).delay_s is None
    assert Forwarding.of("buffer").expiration_threshold_s is None


def test_a_policy_is_taken_as_it_is():
    policy = Forwarding("buffer", 16)
    assert Forwarding.of(policy) is policy
    with pytest.raises(ParameterError, match="settings of its own"):
        Forwarding.of(policy, prefetch_limit=8)
