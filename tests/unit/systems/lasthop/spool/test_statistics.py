import pytest

from mudkit.systems.lasthop.spool.statistics import Habits

HOUR = 3_600_000_000


def test_nothing_is_known_at_first():
    habits = Habits()
    assert (habits.read_at_a_time, habits.between_reads_us, habits.delay_us) == (0.0, 0, 0)
    assert habits.share_read == 1.0


def test_reads_are_a_window_of_eight():
    habits = Habits()
    for number in range(20):
        habits.read(number * HOUR, 100 if number < 12 else 4)
    assert habits.read_at_a_time == 4


def test_two_reads_a_day_are_eight_waking_hours_apart():
    habits = Habits()
    for number in range(9):
        habits.read(number * 12 * HOUR, 1)
    assert habits.between_reads_us == pytest.approx(8.25 * HOUR)


def test_the_share_that_is_read():
    habits = Habits()
    for hour in range(200):
        habits.arrived(hour * HOUR)
        if hour % 10 == 0:
            habits.read(hour * HOUR, 2)
    assert habits.share_read == pytest.approx(0.2)


def test_more_reads_than_arrivals_and_reads_at_one_moment_are_all():
    habits = Habits()
    for hour in range(5):
        habits.read(hour * HOUR, 10)
        habits.arrived(hour * HOUR)
    assert habits.share_read == 1.0
    at_once = Habits()
    for _ in range(3):
        at_once.read(HOUR, 1)
        at_once.arrived(HOUR)
    assert at_once.share_read == 1.0


def test_a_delay_covers_nine_of_ten_falls_once_some_are_known():
    habits = Habits()
    for minutes in (1, 2, 3):
        habits.fell(minutes)
    assert habits.delay_us == 0
    for minutes in range(4, 101):
        habits.fell(minutes)
    assert habits.delay_us == 94  # of the last 64: 37 to 100


def test_memory_is_bounded():
    habits = Habits()
    for number in range(1000):
        habits.read(number, 1)
        habits.arrived(number)
        habits.fell(number)
    assert sum(map(len, vars(habits).values())) <= 8 + 8 + 64 + 64
