import numpy as np
import pytest

from mudkit.errors import TraceContentError, TraceFormatError
from mudkit.trace import load_unlocks
from mudkit.trace.parse import FIELDS

T0 = 1_488_346_471
HEADER = "time,screen_status"


def format_log(*rows):
    return [f"{T0 + second:.3f},{status}" for second, status in rows]


def test_unlocks_are_the_rows_with_status_three(csv_file):
    file = csv_file(HEADER, format_log((0, 1), (1.25, 3), (60, 0), (60.1, 2), (100, 1), (103, 3)))
    for loaded in (
        load_unlocks(file),
        load_unlocks(csv_file(HEADER, file.read_text().split()[1:], "log.csv.gz")),
    ):
        assert loaded.times_us.dtype == np.int64
        assert (loaded.times_us - T0 * 1_000_000).tolist() == [1_250_000, 103_000_000]
        assert not len(loaded.rejected)
        assert loaded.source["statuses"] == {"off": 1, "on": 2, "locked": 1, "unlocked": 2}


def test_repeated_unlocks_within_a_second_are_rejected(csv_file):
    loaded = load_unlocks(csv_file(HEADER, format_log((0, 3), (0.6, 3), (1, 3), (1.2, 3), (9, 3))))
    assert ((loaded.times_us - T0 * 1_000_000) / 1e6).tolist() == [0, 1.2, 9]
    assert loaded.rejected["row"].to_pylist() == [2, 3]
    assert loaded.rejected_by_reason() == {"repeated unlock within 1 s": 2}
    assert loaded.rejected["raw"][0].as_py() == f"{T0}.600,3"


def test_times_may_be_in_milliseconds(csv_file):
    rows = [f"{T0 + second}000,3" for second in (0, 5, 9)]
    loaded = load_unlocks(csv_file(HEADER, rows))
    assert (loaded.times_us - T0 * 1_000_000).tolist() == [0, 5_000_000, 9_000_000]


def test_rows_are_sorted_by_time(csv_file):
    loaded = load_unlocks(csv_file(HEADER, format_log((500, 3), (20, 3), (900, 3))))
    assert np.diff(loaded.times_us).tolist() == [480_000_000, 400_000_000]
    assert loaded.source["steps_back"] == 1
    assert "steps back in time" in loaded.summary()["what"].tolist()


def test_unusable_rows_are_rejected(csv_file):
    rows = [*format_log(*((60 * i, 3) for i in range(10))), "soon,3", f"{T0},", f"{T0},7", "1000,3", f"{T0}"]
    rows += [f"{t},3" for t in (315_964_799, 315_964_800, 4_102_444_800, 4_102_444_801)]  # 1980 and 2100
    loaded = load_unlocks(csv_file(HEADER, rows))
    assert len(loaded.times_us) == 12
    reasons = dict(
        zip(loaded.rejected["row"].to_pylist(), loaded.rejected["reason"].to_pylist(), strict=True)
    )
    assert reasons == {
        11: "unparsable",
        12: "unparsable",
        13: "unknown screen status",
        14: "time before 1980 or after 2100",
        15: FIELDS,
        16: "time before 1980 or after 2100",
        19: "time before 1980 or after 2100",
    }


def test_columns_are_found_by_name_and_several_phones_are_refused(csv_file):
    header = "user,device,time,screen_status"
    assert len(load_unlocks(csv_file(header, [f"a,x,{T0},3", f"a,x,{T0 + 9},3"])).times_us) == 2
    with pytest.raises(TraceContentError, match=r"several phones[\s\S]*a/x, b/y"):
        load_unlocks(csv_file(header, [f"a,x,{T0},3", f"b,y,{T0 + 9},3"]))


def test_summary(csv_file):
    rows = format_log(*((3600 * i, 3) for i in range(49)))
    summary = dict(load_unlocks(csv_file(HEADER, rows)).summary().itertuples(index=False))
    assert summary["unlocks"] == "49"
    assert summary["unlocks a day"] == "24.5"
    assert summary["median interval"] == "3600 s"
    short = dict(load_unlocks(csv_file(HEADER, rows[:1])).summary().itertuples(index=False))
    assert "unlocks a day" not in short


def test_recorded_log_is_loaded(phone_log):
    loaded = load_unlocks(phone_log / "AwareScreen_1month.csv")
    assert loaded.source["rows"] == 5_278
    assert loaded.source["steps_back"] == 1  # two rows of 26 March, 17:26, stand after one of 19:00
    assert len(loaded.times_us) == 920
    assert not len(loaded.rejected)
    assert np.diff(loaded.times_us).min() > 1_000_000
    summary = dict(loaded.summary().itertuples(index=False))
    assert summary["unlocks a day"] == "30.1"
    for other in ("AwareBattery_1month.csv", "singleuser_AwareApplicationNotifications.csv"):
        with pytest.raises(TraceFormatError, match="not a log of AWARE's screen"):
            load_unlocks(phone_log / other)
