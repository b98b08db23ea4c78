"""Parts of labelled reads: their pairs, and the names of their devices."""

import numpy as np
import pytest
from learning_traces import build_labelled_reads

from mudkit.learning.pairs import Pairs


def part_of_devices(pairs):
    return pairs.device != 1, pairs.of_devices(np.array([0, 2]))


def part_of_reads(pairs):
    kept = np.arange(len(pairs.device)) % 3 > 0
    return kept, pairs.of_reads(kept)


def part_since_a_moment(pairs):
    middle_us = int(np.median(pairs.t_us))
    return pairs.t_us >= middle_us, pairs.since(middle_us)


@pytest.mark.parametrize("take", [part_of_devices, part_of_reads, part_since_a_moment])
def test_part_has_the_pairs_both_of_whose_reads_it_has(take):
    """See `Pairs.since`: nothing is cached that the part does not have."""
    pairs = Pairs.of(*build_labelled_reads(devices=3, days=2, a_day=8))
    kept, part = take(pairs)
    both = kept[pairs.read] & kept[pairs.cached]
    assert 0 < both.sum() < len(both)
    assert part.t_us.tolist() == pairs.t_us[kept].tolist()
    assert part.t_us[part.read].tolist() == pairs.t_us[pairs.read[both]].tolist()
    assert part.t_us[part.cached].tolist() == pairs.t_us[pairs.cached[both]].tolist()
    assert part.missing.tolist() == pairs.missing[both].tolist()
    assert np.repeat(np.arange(len(part.t_us)), np.diff(part.first)).tolist() == part.read.tolist()


def test_part_knows_the_names_of_its_devices():
    """See `Pairs`: names are those of the devices in the order of their numbers, which a part keeps."""
    pairs = Pairs.of(*build_labelled_reads(devices=3, days=2, a_day=8))
    _, part = part_of_devices(pairs)
    assert {part.names[number].as_py() for number in part.device} == {"phone-00", "phone-02"}
