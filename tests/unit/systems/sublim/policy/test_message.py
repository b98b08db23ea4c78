"""Creation, compression and expansion of messages."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mudkit.systems.sublim import compress, create_message, expand, resize
from mudkit.systems.sublim._policy.message import freeze, thaw

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)


@given(PLAIN)
def test_freezing_and_thawing_returns_the_same_value(value):
    assert thaw(freeze(value)) == value


def test_create_message_copies_another_and_adds_fields():
    original = {"a": [1], "b": 2}
    created = create_message(original, b=3)
    created["a"].append(2)
    assert (created, original) == ({"a": [1, 2], "b": 3}, {"a": [1], "b": 2})


@given(st.binary(max_size=300), st.floats(0.1, 1e9))
def test_compress_never_lengthens_and_records_the_ratio(samples, ratio):
    compressed = compress({"ecg": samples}, "ecg", ratio)
    assert len(compressed["ecg"]) <= len(samples)
    if samples and ratio > 1:
        assert abs(len(compressed["ecg"]) - max(len(samples) / ratio, 1)) <= 0.51
        assert abs(compressed.get("ecg_ratio", 1.0) - len(samples) / len(compressed["ecg"])) < 1e-5
        assert min(samples) <= min(compressed["ecg"]) <= max(compressed["ecg"]) <= max(samples)
    assert len(expand(compressed["ecg"], len(samples))) == len(samples)


def test_compress_averages_equal_parts():
    assert compress({"a": bytes([0, 10, 20, 40])}, "a", 2)["a"] == bytes([5, 30])
    assert expand(bytes([5, 30]), 4) == bytes([5, 11, 24, 30])
    assert expand(b"", 4) == b""


def test_ratios_multiply():
    once = compress({"a": bytes(100)}, "a", 4)
    assert resize(once, "a", 5) == {"a": bytes(5), "a_ratio": 20.0}
    assert compress({"a": bytes(100), "a_ratio": "?"}, "a", 4)["a_ratio"] == 4.0


def test_ratio_that_leaves_all_samples_changes_nothing():
    assert compress({"a": bytes(10)}, "a", 1.01) == {"a": bytes(10)}


def test_compressed_text_is_truncated():
    assert compress({"a": "abcdef"}, "a", 3) == {"a": "ab", "a_ratio": 3.0}
    assert resize({"a": "abcdef"}, "a", 4)["a"] == "abcd"


def test_invalid_fields_and_ratios_leave_the_message_unchanged():
    for message in ({"a": 5}, {"a": None}, {}, {"a": b""}, {"a": [1, 2]}):
        assert compress(dict(message), "a", 4) == message
        assert resize(dict(message), "a", 1) == message
    for ratio in (1, 0, -3, None, "4", float("nan"), True):
        assert compress({"a": bytes(9)}, "a", ratio) == {"a": bytes(9)}
        assert resize({"a": bytes(9)}, "a", None) == {"a": bytes(9)}
