"""What is measured, at small sizes and untimed."""

import dataclasses
import math
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mudkit import trace
from mudkit.consistency import check
from mudkit.errors import EnvironmentProblem
from mudkit.events import size_bytes
from mudkit.experiment.matching import MatchingLoad
from mudkit.predicates import Predicate
from mudkit.reproduce import lab, mobius, peaks, row
from mudkit.reproduce.lab import checking, compiling, kernel, spark_labels, spark_modes
from mudkit.reproduce.mobius import (
    campaign,
    capacity,
    matching,
    overhead,
    overhead_local,
    overhead_remote,
)
from mudkit.reproduce.verdict import judge
from mudkit.systems.mud.servers.backend import BackEnd
from mudkit.verify.campaign.bugs import BUGS, Bug

M1, M2, M3, M3_REMOTE, M4, M5, M6 = mobius.ROWS
F1, F2, F3, F4, F5, F6 = lab.ROWS


@pytest.fixture(scope="module")
def m1():
    return matching.measure(
        subscriptions=600,
        fewer=200,
        hard=300,
        topics=20,
        hot_topics=2,
        records=40,
        updates=30,
        partitions=(1, 5, 20),
        runs=2,
    )


@pytest.mark.soak
def test_m1_measures_all_that_is_required(m1):
    assert {required.figure for required in M1.required} <= set(m1.figures)
    for name, figure in m1.figures.items():
        assert math.isfinite(figure.median), name
        assert figure.low <= figure.median <= figure.high, name
    assert m1.figures["share of records on which both agree"].low == 1
    assert m1.parameters["subscriptions"] == 600


def test_m1_tells_the_hard_shapes(m1):
    for shape in ("ranges", "wide", "skewed", "near"):
        assert m1.figures[f"{shape}: µs a record"].median > 0
    assert m1.figures["near: µs for 10 moves and a record"].median > 0


def test_a_difference_between_index_and_one_by_one_is_noticed(monkeypatch):
    assert matching._agreement(MatchingLoad(300, 2)) == 1
    whole = matching.match_each
    monkeypatch.setattr(matching, "match_each", lambda *pair: whole(*pair)[:2])
    assert 0 < matching._agreement(MatchingLoad(300, 2)) < 1


@pytest.mark.soak
def test_m2_measures_all_that_is_required():
    measured = capacity.measure(subscriptions=2000, topics=[10], seeds=[1])
    assert {required.figure for required in M2.required} <= set(measured.figures)
    assert measured.figures["subscriptions held"].median == 2000
    assert (
        10 < measured.figures["MB before the first"].median < measured.figures["MB at the peak"].median < 500
    )


def test_m2_says_when_the_process_ends_early(monkeypatch):
    monkeypatch.setattr(capacity, "_CODE", "raise MemoryError('no room')")
    with pytest.raises(EnvironmentProblem, match="no room"):
        capacity.measure(subscriptions=10, topics=[1], seeds=[1])


def test_m3_measures_all_that_is_required():
    measured = overhead.measure_local(writes=20, durable=6, reads=30, held=10, seeds=[1])
    assert {required.figure for required in M3.required} <= set(measured.figures)
    assert all(math.isfinite(figure.median) for figure in measured.figures.values())
    assert measured.figures["share of records that are in the files"].low == 1


def test_m3_divides_the_time_over_sqlite_by_the_machine_factor():
    figures, parameters = overhead_local.local(
        writes=4, durable=2, reads=4, held=2, seeds=[1], reference_us=1e6
    )
    what = "local write, NORMAL"
    over, at_reference, factor, ours, theirs = (
        figures[f"{name}{what}{side}"].median
        for name, side in (
            ("µs over bare SQLite, ", ""),
            ("µs over bare SQLite at the reference speed, ", ""),
            ("machine factor, ", ""),
            ("µs, ", ""),
            ("µs, ", ", bare SQLite"),
        )
    )
    assert over == pytest.approx(ours - theirs)
    assert at_reference == pytest.approx(over / factor)
    assert 0 < factor < 0.1  # the loop does not take a second
    assert "1e+06 µs" in parameters["calibration"]


def test_m3_over_a_network_is_no_row_of_speed():
    assert (M3.is_speed, M3_REMOTE.is_speed) == (True, False)
    measured = overhead.measure_remote(requests=9, seeds=[1])
    assert judge(M3_REMOTE, measured)[0] == "reproduced"  # in virtual time: always the same
    assert measured.figures == overhead.measure_remote(requests=9, seeds=[1]).figures


def test_m3_notices_what_did_not_land(monkeypatch):
    monkeypatch.setattr(overhead_local.Bare, "write", lambda self, key, record: None)
    monkeypatch.setattr(overhead_local.Mud, "write", lambda self, key, record: None)
    calls = overhead_local.drawn(4, 1)
    assert [key for key, _ in calls] == 2 * ["article-000000", "article-000001"]
    assert len({str(record) for _, record in calls}) == 4
    with pytest.raises(TypeError):  # nothing to read, either
        overhead_local.local(writes=4, durable=4, reads=1, held=2, seeds=[1])


def test_a_handshake_is_round_trips_of_its_sizes():
    def ms(link, trips):
        make = overhead_remote._maker(overhead_remote._bare, link, trips)
        return overhead_remote.latencies_ms(make, 40, 1)["read"]

    for link, trip_ms in (("lte", 70), ("umts_3g", 200)):
        bare = ms(link, ())
        one = ms(link, overhead_remote.HANDSHAKES["TCP"])
        assert one - bare == pytest.approx(trip_ms, rel=0.25)
        assert ms(link, overhead_remote.HANDSHAKES["TCP and TLS 1.2"]) - bare > 2.5 * (one - bare)
    assert size_bytes(overhead_remote._of_size(330, {"back": 3000})) == 330


def test_f5_measures_all_that_is_required():
    measured = compiling.measure(texts=3, calls=5, runs=2)
    assert {required.figure for required in F5.required} <= set(measured.figures)
    assert all(figure.low > 0 for figure in measured.figures.values())


@pytest.mark.soak
def test_the_kernel_small():
    measured = kernel.measure(devices=20, hours=1, repeats=1, fleet=30, fleet_hours=2, seeds=[3])
    assert {required.figure for required in F1.required} <= set(measured.figures)
    assert measured.figures["positions"].median == 30 * 121
    # A report each ten minutes and its acknowledgement; only the first device reports at the first moment and at the last.
    assert measured.figures["messages"].median == (30 * 12 + 1) * 2 - 1
    assert 0 < measured.figures["MB before"].median <= measured.figures["MB at the peak, large fleet"].median


def test_a_fleet_whose_process_ends_early_says_so():
    with pytest.raises(EnvironmentProblem, match="ended before it was done"):
        kernel.measure(devices=1, hours=1, repeats=1, fleet=0, fleet_hours=1, seeds=[1])


def test_f6_measures_all_that_is_required():
    measured = checking.measure(operations=200, clients=5, few=3, sizes=(10, 20), within_s=5.0, seeds=[1, 2])
    assert {required.figure for required in F6.required} <= set(measured.figures)
    assert measured.figures["share of right verdicts"].median == 1
    for model in checking.VIEWS:
        assert measured.figures[f"operations the search decides, {model.name}"].low == 20
    assert "Porcupine" in measured.parameters["peer"]


def test_f6_does_not_count_what_was_not_decided_in_time():
    model = checking.ONE_VIEW[0]
    assert checking._largest(model, (10, 20), 3, 1e-9, 1, lambda text: None) == 0


@pytest.mark.parametrize("is_latest", [True, False])
def test_histories_for_f6_are_what_they_are_said_to_be(is_latest):
    history = checking.stored(60, clients=4, is_latest=is_latest, seed=4)
    assert checking.stored(60, clients=4, is_latest=is_latest, seed=4) == history
    statuses = {model.name: check(history, model.name).status for model in checking.ONE_VIEW}
    assert statuses["sequential"] == statuses["sequential-wio"] == "OK"
    assert (statuses["linearizable"] == "OK") == is_latest
    assert check(checking.with_mistake(history), "sequential").status == "ILLEGAL"
    assert all(each.content.version is None for each in checking.without_versions(history))


def test_new_texts_are_of_new_shapes():
    texts = compiling._renamed(compiling.PLAIN, 5)
    assert len({Predicate(text, low=1, high=2).signature for text in texts}) == 5


def test_the_papers_curve():
    assert "69 at 1,000" in M1.paper


def test_the_fit_is_a_line():
    many = [1, 10, 100, 1000]
    base, per_s, power = matching._fit(many, [3e-6, 21e-6, 201e-6, 2001e-6])
    assert (round(base, 9), round(per_s), round(power, 2)) == (1, 500_000, 1)
    for slower, expected in ((lambda n: 1e-6 * n**2, 2), (lambda n: 1e-6 * n**0.5, 0.5), (lambda n: 1e-6, 0)):
        assert matching._fit(many, [slower(n) for n in many])[2] == pytest.approx(expected, abs=0.01)
    assert matching._fit(many, [3e-6, 21e-6, 2001e-6, 201e-6])[2] < 0  # shuffled


def labelled(*times_s, driver_mb=900.0):
    return [
        {"s": s, "counted": "a", "labels": 9, "mb": {"driver": driver_mb, "workers": 400.0}} for s in times_s
    ]


def test_f2_is_about_pairs_of_runs_after_the_first():
    pairs = list(zip(labelled(50.0, 2.0, 4.0, 3.0), labelled(1.0, 2.0, 1.0, 2.0), strict=True))
    local = {
        "label_reads, shorter trace": labelled(1.0),
        "label_reads": labelled(3.0, 4.0, 2.0),
        "label_reads, longer trace": labelled(30.0, 33.0),
        "label_writes, shorter trace": labelled(1.0),
        "label_writes": labelled(5.0),
        "label_writes, longer trace": labelled(55.0, driver_mb=1500.0),
    }
    sizes = {
        name: row.Figure.of([rows])
        for name, rows in (("positions", 3.7e6), ("reads", 5e4), ("positions, longer trace", 3.7e7))
    }

    def measured():
        return row.Measured(spark_labels._figures(pairs, local, local) | sizes, {})

    assert {required.figure for required in F2.required} <= set(measured().figures)
    assert measured().figures["times DuckDB's time"].median == 1.5
    assert measured().figures["times as long, label_reads, longer trace"].high == 11
    assert measured().figures["times as long, label_writes, longer trace"].median == 11
    assert measured().figures["GB of the driver at its peak"].median == 1.5
    assert measured().figures["s, label_writes, two workers"].median == 5
    assert judge(F2, measured())[0] == "reproduced"
    pairs[2][1]["counted"] = "b"
    assert measured().figures["share of runs in which both count the same"].median == 0.75
    assert judge(F2, measured())[0] == "not reproducible"


def test_f2_says_that_its_peer_is_missing(monkeypatch):
    monkeypatch.setattr(spark_labels.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EnvironmentProblem, match="pip install duckdb"):
        spark_labels.measure()


@pytest.mark.soak
def test_a_side_that_ends_early_says_so(tmp_path):
    with (
        pytest.raises(EnvironmentProblem, match="There is no"),
        spark_labels._Side("serve_duckdb") as side,
    ):
        side.ask("label_reads", tmp_path / "nowhere")


def test_the_digest_does_not_depend_on_order():
    one, two, three = (
        pa.table({"points": points, "read_id": ids})
        for points, ids in (([5, 6], [1, 2]), ([6, 5], [2, 1]), ([6, 5], [1, 2]))
    )
    assert spark_labels._digest(one) == spark_labels._digest(two) != spark_labels._digest(three)


@pytest.mark.process
def test_peaks_are_of_a_process_and_its_descendants():
    code = "import subprocess, sys; a = bytearray(80_000_000); print('ready', flush=True); sys.stdin.read()"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {code!r}], check=True)"
    process = subprocess.Popen([sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with process, peaks.PeakMemory(process.pid) as seen:
        assert process.stdout.readline() == b"ready\n"
        seen.look()
        process.stdin.close()
    mb = seen.mb()
    assert 80 < mb["workers"] < 200
    assert 3 < mb["driver"] < 80
    assert mb["driver"] + mb["workers"] == pytest.approx(sum(mb for _, mb in seen._peaks.values()))


@pytest.mark.parametrize(
    ("other", "count"),
    [
        ({"a": [3, 1, 1], "mean_speed_mps": [0.25, 0.5, 1.5]}, 0),
        ({"a": [3, 1, 1], "mean_speed_mps": [0.25, 0.5, 1.5 + 1e-15]}, 0),
        ({"a": [3, 1, 1], "mean_speed_mps": [0.25, 0.5, 1.5 + 1e-9]}, 1),
        ({"a": [3, 1, 2], "mean_speed_mps": [0.25, 0.5, 1.5]}, 2),
        ({"a": [3, 1], "mean_speed_mps": [0.25, 0.5]}, 1),
        ({"b": [3, 1, 1], "mean_speed_mps": [0.25, 0.5, 1.5]}, 6),
    ],
)
def test_rows_that_differ(other, count):
    one = pa.table({"a": [1, 3, 1], "mean_speed_mps": [0.5, 0.25, 1.5]})
    assert spark_modes.differing(one, pa.table(other)) == count


def test_a_table_that_one_run_lacks_differs(tmp_path):
    for name in ("one/cells-x", "one/label-x", "two/cells-x"):
        (tmp_path / name).mkdir(parents=True)
        pq.write_table(pa.table({"a": [1, 2]}), tmp_path / name / "part-0.parquet")
    assert spark_modes.differing_rows(tmp_path / "one", tmp_path / "two") == 2
    assert spark_modes.differing_rows(tmp_path / "one", tmp_path / "one") == 0


def test_of_the_labs_rows_all_but_f4_are_of_speed():
    assert [row.name for row in lab.ROWS if not row.is_speed] == [F4.name]


def test_f4_writes_what_the_jobs_read(tmp_path):
    spark_modes.write_source(tmp_path, cars=3, days=1)
    files = sorted((tmp_path / "cabs").iterdir())
    loaded, generated = trace.load(tmp_path / "cabs"), trace.load(tmp_path / "generated")
    assert [file.name for file in files] == [f"new_car-0000{i}.txt" for i in range(3)]
    assert len(loaded.positions) + len(loaded.rejected) == len(generated.positions) + len(files)
    assert len(loaded.rejected) >= len(files)


def test_a_process_that_ends_early_says_so():
    with pytest.raises(EnvironmentProblem, match="no room"):
        spark_modes.answer_of("raise MemoryError('no room')")
    assert spark_modes.answer_of("print('x'); print([1])") == [1]


def test_m6_counts_runs_and_what_broke_in_them(monkeypatch):
    bugs = [bug for bug in BUGS if bug.name == "a conflict that keeps the pending write"]
    measured = campaign.measure(seeds=[0, 1, 17, 30], bugs=bugs)
    assert {required.figure for required in M6.required} <= set(measured.figures)
    assert measured.figures["runs"].median == 4
    assert measured.figures["runs in which a promise was broken"].median == 0
    assert measured.figures["writes"].median > 10
    assert (
        "seed 17: ILLEGAL (fork-sequential" in measured.parameters["smallest counterexample to definition 3"]
    )
    assert measured.figures["seeded bugs that nothing caught"].median == 0
    assert measured.figures[f"operations of the smallest counterexample, {bugs[0].name}"].median == 2
    assert f"seed {bugs[0].seed}, 2 operations: ILLEGAL" in measured.parameters[f"seeded, {bugs[0].name}"]
    monkeypatch.setattr(BackEnd, "_results", lambda self, client: {})  # a write is applied again
    measured = campaign.measure(seeds=range(10), bugs=())
    assert measured.figures["runs in which a promise was broken"].median > 0


@pytest.mark.soak
def test_m6_is_not_reproduced_when_a_seeded_bug_is_not_caught():
    bugs = [Bug("none", "nothing", ())] * 4
    measured = campaign.measure(seeds=range(2), bugs=bugs)
    (required,) = (each for each in M6.required if each.figure == "seeded bugs that nothing caught")
    row = dataclasses.replace(M6, required=(required,))
    assert judge(row, measured)[0] == "not reproducible"
    assert measured.parameters["seeded, none"] == "nothing caught it"
