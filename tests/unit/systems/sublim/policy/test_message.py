"""Messages: making, compressing, expanding."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mudkit.systems.sublim import compress, create_message, expand, resize
from mudkit.systems.sublim._policy.message import frozen, thawed

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)


@given(PLAIN)
def test_what_is_frozen_thaws_to_what_it_was(value):
    assert thawed(frozen(value)) == value


def test_a_message_is_made_of_another_and_of_fields():
    given_ = {"a": [1], "b": 2}
    made = create_message(given_, b=3)
    made["a"].append(2)
    assert (made, given_) == ({"a": [1, 2], "b": 3}, {"a": [1], "b": 2})


@given(st.binary(max_size=300), st.floats(0.1, 1e9))
def test_compressing_never_makes_longer_and_says_by_how_much(samples, ratio):
    made = compress({"ecg": samples}, "ecg", ratio)
    assert len(made["ecg"]) <= len(samples)
    if samples and ratio > 1:
        assert abs(len(made["ecg"]) - max(len(samples) / ratio, 1)) <= 0.51
        assert abs(made.get("ecg_ratio", 1.0) - len(samples) / len(made["ecg"])) < 1e-5
        assert min(samples) <= min(made["ecg"]) <= max(made["ecg"]) <= max(samples)
    assert len(expand(made["ecg"], len(samples))) == len(samples)


def test_means_are_of_equal_parts():
    assert compress({"a": bytes([0, 10, 20, 40])}, "a", 2)["a"] == bytes([5, 30])
    assert expand(bytes([5, 30]), 4) == bytes([5, 11, 24, 30])
    assert expand(b"", 4) == b""


def test_ratios_multiply():
    once = compress({"a": bytes(100)}, "a", 4)
    assert resize(once, "a", 5) == {"a": bytes(5), "a_ratio": 20.0}
    assert compress({"a": bytes(100), "a_ratio": "?"}, "a", 4)["a_ratio"] == 4.0


def test_of_a_text_the_first_part_stays():
    assert compress({"a": "abcdef"}, "a", 3) == {"a": "ab", "a_ratio": 3.0}
    assert resize({"a": "abcdef"}, "a", 4)["a"] == "abcd"


def test_what_cannot_be_compressed_stays():
    for message in ({"a": 5}, {"a": None}, {}, {"a": b""}, {"a": [1, 2]}):
        assert compress(dict(message), "a", 4) == message
        assert resize(dict(message), "a", 1) == message
    for ratio in (1, 0, -3, None, "4", float("nan"), True):
        assert compress({"a": bytes(9)}, "a", ratio) == {"a": bytes(9)}
        assert resize({"a": bytes(9)}, "a", None) == {"a": bytes(9)}
