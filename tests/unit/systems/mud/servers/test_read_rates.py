"""Rates of reads by partition: soft state, bounded, in which older reads count less."""

from __future__ import annotations

import pytest

from mudkit.systems.mud.servers import read_rates
from mudkit.systems.mud.servers.read_rates import ReadRates

HOUR_US = 3_600_000_000
SOUTH, NORTH = (1, 0), (1, 1)


def count_reads(rates, every_s, until_us=6 * HOUR_US, share=1.0, partition=SOUTH):
    for at_us in range(0, until_us, every_s * 1_000_000):
        rates.record_read(at_us, partition, share)


def test_nothing_is_assumed_but_the_prior_at_the_start():
    """Ten minutes, as the device assumes by itself."""
    assert ReadRates(5).interval_ms(5, SOUTH) == 600_000


def test_interval_is_that_of_reads_at_a_constant_rate():
    rates = ReadRates(0)
    count_reads(rates, every_s=10)
    assert rates.interval_ms(6 * HOUR_US, SOUTH) == pytest.approx(10_000, rel=0.2)


def test_partition_that_nobody_reads_has_a_longer_interval_the_longer_it_is_known():
    rates = ReadRates(0)
    count_reads(rates, every_s=10, partition=NORTH)
    intervals = [rates.interval_ms(at_us, SOUTH) for at_us in (0, HOUR_US, 6 * HOUR_US)]
    assert intervals == sorted(set(intervals))
    assert intervals[-1] > 3_600_000


def test_old_reads_are_forgotten():
    rates = ReadRates(0)
    count_reads(rates, every_s=10)
    assert rates.interval_ms(30 * HOUR_US, SOUTH) > 4_000_000


def test_reads_of_a_share_of_the_records_count_for_this_share():
    rates = ReadRates(0)
    count_reads(rates, every_s=10, share=0.01)
    assert rates.interval_ms(6 * HOUR_US, SOUTH) == pytest.approx(1_000_000, rel=0.2)


def test_no_more_partitions_are_counted_than_the_bound(monkeypatch):
    monkeypatch.setattr(read_rates, "MAX_PARTITIONS", 2)
    rates = ReadRates(0)
    for _ in range(9):
        rates.record_read(0, (1, 0), 1.0)
        rates.record_read(0, (1, 1), 1.0)
    rates.record_read(0, (1, 2), 1.0)
    assert [rates.interval_ms(0, (1, number)) for number in range(3)] == [600_000, 60_000, 300_000]


def test_partition_that_was_not_read_for_longest_is_forgotten(monkeypatch):
    monkeypatch.setattr(read_rates, "MAX_PARTITIONS", 2)
    rates = ReadRates(0)
    for number in (0, 1, 0, 2):
        rates.record_read(0, (1, number), 1.0)
    assert [rates.interval_ms(0, (1, number)) for number in range(3)] == [200_000, 600_000, 300_000]


def test_interval_is_never_that_of_a_continuous_read():
    """0 is what a continuous read has."""
    rates = ReadRates(0)
    rates.record_read(0, SOUTH, 1e9)
    assert rates.interval_ms(0, SOUTH) == 1
