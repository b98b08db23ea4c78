"""Equivalence of `SubscriptionIndex` and a linear scan over all subscriptions."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from predicate_fixtures import list_rows
from predicate_strategies import build_predicate, conditions, numbers, points, scopes, strings, values

from mudkit.predicates import Predicate, SubscriptionIndex, function
from mudkit.predicates.functions import remove
from mudkit.predicates.index import bounds as bounds_module
from mudkit.predicates.index import group as group_module
from mudkit.predicates.index.bounds import Bounds, Places, Side

SHAPES = (
    "a = :v", "a = :v AND b <= :n", "a = receiver.a", "b BETWEEN :n AND :m", "b > :n", "b < :n AND s = :t", "s IN :l", "s IN :l AND b >= :n",
    "within_box(p, :s, :w, :north, :e)", "within_km(p, :p, :km)", "within_km(receiver.p, p, :km)", "distance_km(p, receiver.p) < :km AND a = :v",
    "within_km(p, receiver.p, receiver.a)", "b <= receiver.a + :n", "a = :v OR b = :n", "receiver.a = :v", "lower(s) = :t", "b + 1 > :n", "s LIKE :t AND b < :n",
    "p = :p", "a = :v AND a = receiver.a", "distance_km(receiver.p, p) <= receiver.a", ":km > distance_km(p, :p)", "b >= :n AND b <= :m AND p.lat < :n AND p.lon >= :m", "TRUE", "auth.s = s", "s IN (:t, 'a', :t)", "a IS NULL", "s = :t AND s IN :l",
)  # fmt: skip
WRITERS = (
    "receiver.a >= :n", "within_km(receiver.p, sender.p, :km)", "auth.s = :t", "receiver.s IN :l", "receiver.a > a", "receiver.c.x = :v", "NOT receiver.b = :v",
    "receiver.p.lat > :n", "receiver.a = sender.a",
)  # fmt: skip
CONSTANTS = {
    "v": st.one_of(numbers, strings, st.booleans(), points, st.none()), "n": st.integers(-3, 3), "m": st.integers(-3, 3), "t": st.sampled_from(["a", "ab", "", "%", "ü"]),
    "l": st.lists(st.one_of(st.sampled_from(["a", "ab", ""]), st.integers(0, 2), st.none()), max_size=3), "p": points, "km": st.sampled_from([0, 1, 150, 5_000, 30_000, -1]),
    "s": st.sampled_from([-90, -10, -3]), "north": st.sampled_from([-3, 0, 30, 90]), "w": st.sampled_from([-180, -100, 170]), "e": st.sampled_from([-170, 0, 180]),
}  # fmt: skip


@st.composite
def predicates(draw: Any, texts: tuple[str, ...]) -> Predicate:
    text = draw(st.sampled_from(texts))
    names = [
        name
        for name in CONSTANTS
        if f":{name}" in text and not any(f":{name}{c}" in text for c in "abcdefghijklmnopqrstuvwxyz_")
    ]
    return Predicate(text, **{name: draw(CONSTANTS[name]) for name in names})


small = st.one_of(st.integers(-3, 3), st.sampled_from(["a", "ab", "", "ü"]), st.booleans(), points, values)
data = st.fixed_dictionaries(
    {},
    optional={
        "a": small,
        "b": st.integers(-4, 4),
        "s": st.sampled_from(["a", "ab", "AB", ""]),
        "p": points,
        "c": values,
    },
)


@st.composite
def writers(draw: Any) -> Predicate | None:
    if draw(st.booleans()):
        return None
    return draw(predicates(WRITERS)).bind(sender={"p": draw(points), "a": draw(small)})


class LinearScan:
    """Reference that evaluates every subscription."""

    def __init__(self) -> None:
        self.all: dict[Any, list[Any]] = {}

    def match(self, record: dict[str, Any], writer: Predicate | None) -> list[Any]:
        result = []
        for identity, (predicate, receiver, auth) in self.all.items():
            if predicate(record, receiver=receiver, auth=auth) and (
                writer is None or writer(record, receiver=receiver, auth=auth)
            ):
                result.append(identity)
        return result


def check_single(index: SubscriptionIndex, reference: LinearScan, records: list[dict[str, Any]]) -> None:
    """Check what the index says of each subscription alone, also with the data that it has of its reader."""
    assert list(index) == list(reference.all)
    for identity, (predicate, receiver, auth) in reference.all.items():
        kept_receiver, kept_auth = index.reader(identity)
        for record in records:
            is_match = predicate(record, receiver=receiver, auth=auth)
            assert index.holds(identity, record) is (is_match is True)
            assert predicate(record, receiver=kept_receiver, auth=kept_auth) is is_match


steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), predicates(SHAPES), data, data),
        st.tuples(st.just("random"), conditions, data, data),
        st.tuples(st.just("update"), st.integers(0, 40), data),
        st.tuples(st.just("remove"), st.integers(0, 40)),
        st.tuples(st.just("match"), st.lists(st.tuples(data, writers()), min_size=1, max_size=4)),
    ),
    max_size=25,
)


@pytest.fixture(autouse=True, params=["as it is", "small blocks, all vectorised"])
def sizes(request: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run with the real sizes, and with trees, blocks and NumPy from two subscriptions on."""
    if request.param != "as it is":
        monkeypatch.setattr(bounds_module, "BLOCK_SIZE", 4)
        monkeypatch.setattr(bounds_module, "INITIAL_BLOCK_SIZE", 2)
        monkeypatch.setattr(group_module, "MAX_LIST_BUCKET", 1)
        monkeypatch.setattr(group_module, "MAX_ONE_BY_ONE", 0)


@examples(400)
@given(steps=steps)
def test_index_equals_linear_scan(steps: list[tuple[Any, ...]]) -> None:
    index, reference = SubscriptionIndex(), LinearScan()
    added = 0
    for step in steps:
        known = list(reference.all)
        if step[0] in ("add", "random"):
            predicate = step[1] if step[0] == "add" else build_predicate(step[1])
            if predicate is not None:
                index.add(added, predicate, receiver=step[2], auth=step[3])
                reference.all[added] = [predicate, step[2], step[3]]
                added += 1
        elif step[0] == "update" and known:
            identity = known[step[1] % len(known)]
            index.update(identity, receiver=step[2])
            reference.all[identity][1] = step[2]
        elif step[0] == "remove" and known:
            identity = known[step[1] % len(known)]
            index.remove(identity)
            del reference.all[identity]
        elif step[0] == "match":
            records, writer_predicates = [record for record, _ in step[1]], [writer for _, writer in step[1]]
            check_single(index, reference, records)
            expected = [reference.match(record, writer) for record, writer in step[1]]
            assert [index.match(record, writer) for record, writer in step[1]] == expected
            assert index.match_many(records, writer_predicates) == expected
    assert len(index) == len(reference.all)


@pytest.mark.soak(keep=1)
@examples(60)
@given(
    subscriptions=st.lists(st.tuples(predicates(SHAPES), data, data), min_size=30, max_size=120),
    records=st.lists(st.tuples(data, writers()), min_size=1, max_size=12),
    moves=st.lists(st.tuples(st.integers(0, 119), data), max_size=60),
)
def test_many_subscriptions_equal_linear_scan(
    subscriptions: list[Any], records: list[Any], moves: list[Any]
) -> None:
    index, reference = SubscriptionIndex(), LinearScan()
    for number, (predicate, receiver, auth) in enumerate(subscriptions):
        index.add(number, predicate, receiver=receiver, auth=auth)
        reference.all[number] = [predicate, receiver, auth]
    for number, receiver in moves:
        if number < len(subscriptions):
            index.update(number, receiver=receiver)
            reference.all[number][1] = receiver
    for number in range(0, len(subscriptions), 3):
        index.remove(number)
        del reference.all[number]
    expected = [reference.match(record, writer) for record, writer in records]
    assert [index.match(record, writer) for record, writer in records] == expected
    assert index.match_many([record for record, _ in records], [writer for _, writer in records]) == expected


EDGES = (
    "b < :n", "b <= :n", "b > :n", "b >= :n", ":n > b", ":n <= b", "s = 'a' AND b < :n", "b > :n AND b < :m", "b BETWEEN :n AND :m", "b >= :n AND -b < :m",
    "within_box(p, :n, :n, :m, :m)", "within_box(p, -1, :n, 1, :m)", "p.lat < :n AND p.lon > :m", "b < receiver.b AND b > :n", "distance_km(p, receiver.p) < :n * 111", "s IN ('a', 'b') AND b < :n",
    "distance_km(p, receiver.p) <= :n * 111", "distance_km(receiver.p, p) > :n * 111", ":n * 111 > distance_km(receiver.p, p)", ":n >= distance_km(p, receiver.p)",
    "distance_km(p, point(0, 0)) <= :n * 111", "distance_km(p, p) <= :n",
)  # fmt: skip


@pytest.mark.parametrize("text", EDGES)
def test_bounds_at_their_edges(text: str) -> None:
    index, reference = SubscriptionIndex(), LinearScan()
    span = range(-2, 3)
    for number, (n, m, offset) in enumerate(product(span, span, range(2))):
        if n > m and "within_box(p, :n" in text:  # refused: the northern latitude comes first
            continue
        constants = {name: value for name, value in (("n", n), ("m", m)) if f":{name}" in text}
        predicate, receiver = Predicate(text, **constants), {"b": m + offset, "p": (m, offset)}
        index.add(number, predicate, receiver=receiver)
        reference.all[number] = [predicate, receiver, {}]
    records = [{"s": "a", "b": b, "p": (b, lon)} for b in span for lon in span]
    expected = [reference.match(record, None) for record in records]
    assert any(expected)
    assert [index.match(record) for record in records] == expected
    assert index.match_many(records) == expected


def test_index_equals_the_fixtures() -> None:
    """Check the table that all evaluators share; a match is a TRUE predicate (Mobius 2.2)."""
    by_record: dict[int, list[Any]] = {}
    for row in list_rows():
        by_record.setdefault(id(row[1]), []).append(row)
    for rows in by_record.values():
        index = SubscriptionIndex()
        for number, (text, _, receiver, _) in enumerate(rows):
            index.add(number, Predicate(text), receiver=receiver)
        record = rows[0][1]
        expected = [number for number, row in enumerate(rows) if row[-1] is True]
        assert index.match(record) == expected
        assert index.match_many([record]) == [expected]


def test_boxes_over_the_date_line_among_others() -> None:
    """Add, move and remove them: their longitudes are not bounds of the tree, and are checked."""
    predicate = Predicate("within_box(p, -1, receiver.west, 1, receiver.east)")
    index, reference = SubscriptionIndex(), LinearScan()
    records = [{"p": (0, lon)} for lon in (-180, -175, -10, 0, 10, 100, 175, 180)]

    def assert_equal() -> None:
        expected = [reference.match(record, None) for record in records]
        assert [index.match(record) for record in records] == expected
        assert index.match_many(records) == expected

    for number, west in enumerate(range(-160, 160, 5)):
        reference.all[number] = [predicate, {"west": west, "east": west + 10}, {}]
        index.add(number, predicate, receiver=reference.all[number][1])
    for number, west, east in (
        (64, 170, -170),
        (7, 175, -175),
        (8, 100, 180),
        (9, -180, -100),
        (64, None, None),
        (7, 0, 1),
    ):
        receiver = {"west": west, "east": east}
        if west is None:
            index.remove(number)
            del reference.all[number]
        elif number in index:
            index.update(number, receiver=receiver)
            reference.all[number][1] = receiver
        else:
            index.add(number, predicate, receiver=receiver)
            reference.all[number] = [predicate, receiver, {}]
        assert_equal()


@examples(150)
@given(scopes=scopes, readers=st.lists(scopes, min_size=1, max_size=30), text=conditions, writer=conditions)
def test_any_condition_as_reader_and_writer_predicate(
    scopes: Any, readers: list[Any], text: str, writer: str
) -> None:
    predicate, writer_predicate = build_predicate(text), build_predicate(writer)
    if predicate is None or writer_predicate is None:
        return
    index, reference = SubscriptionIndex(), LinearScan()
    for number, reader in enumerate(readers):
        index.add(number, predicate, receiver=reader["receiver"], auth=reader["auth"])
        reference.all[number] = [predicate, reader["receiver"], reader["auth"]]
    expected = reference.match(scopes["record"], writer_predicate)
    assert index.match(scopes["record"], writer_predicate) == expected
    assert index.match_many([scopes["record"]] * 2, writer_predicate) == [expected] * 2


def test_functions_and_lookups_are_evaluated_one_by_one() -> None:
    @function("index_test_even", returns="boolean")
    def even(x: int) -> bool:
        return x % 2 == 0

    try:
        index = SubscriptionIndex(tables={"users": {k: {"level": k % 3} for k in range(50)}})
        for k in range(50):
            index.add(
                k,
                Predicate("index_test_even(n + :k) AND lookup('users', :k, 'level') = 1", k=k),
                receiver={"k": k},
            )
        expected = [k for k in range(50) if (3 + k) % 2 == 0 and k % 3 == 1]
        assert index.match({"n": 3}) == expected
        assert index.match_many([{"n": 3}, {}]) == [expected, []]
        odd = Predicate("NOT index_test_even(receiver.k)")
        assert index.match({"n": 3}, odd) == [k for k in expected if k % 2 == 1]
        assert index.match_many([{"n": 3}], odd) == [[k for k in expected if k % 2 == 1]]
        assert index.explain({"n": 3}).loc[0, "evaluated"].count("index_test_even") == 1
    finally:
        remove("index_test_even")


corner = st.tuples(*[st.one_of(st.integers(-5, 5).map(float), st.just(-np.inf))] * 3)


@pytest.mark.soak(keep=1)
@examples(300)
@given(
    steps=st.lists(st.tuples(st.sampled_from(["insert", "insert", "insert", "move", "remove"]), st.integers(0, 200), corner), max_size=150),
    queries=st.lists(st.tuples(*[st.integers(-6, 6).map(float)] * 3), min_size=1, max_size=6),
    sides=st.sampled_from([((0, False), (0, True), (1, False)), ((0, False), (1, True), (2, False)), ((0, True), (0, True), (0, False))]),
    size=st.sampled_from([4, 4, 128]),
)  # fmt: skip
def test_bounds_equal_linear_comparison(steps: list[Any], queries: list[Any], sides: Any, size: int) -> None:
    """Insert, move and remove corners; small blocks are split, joined and released within few steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounds_module, "BLOCK_SIZE", size)
        patch.setattr(bounds_module, "INITIAL_BLOCK_SIZE", size // 4)
        assert_bounds_are_equal(steps, queries, sides)


def assert_bounds_are_equal(steps: list[Any], queries: list[Any], sides: Any) -> None:
    places = Places()
    places.reserve(200)
    tree = Bounds(tuple(Side(*side) for side in sides), places)
    corners: dict[int, Any] = {}
    for action, number, position in steps:
        if action == "insert":
            entry = len(corners) if len(corners) not in corners else max(corners) + 1
            if entry < 200:
                tree.insert(entry, position)
                corners[entry] = position
        elif corners:
            entry = sorted(corners)[number % len(corners)]
            if action == "move":
                tree.move(entry, position)
                corners[entry] = position
            else:
                tree.remove(entry)
                del corners[entry]
    assert tree.size == len(corners)
    assert sorted(tree.all()) == sorted(corners)
    expected = [
        sorted(e for e, b in corners.items() if all(x <= y for x, y in zip(b, q, strict=True)))
        for q in queries
    ]
    assert [sorted(tree.query(np.array(q))[0].tolist()) for q in queries] == expected
    many: list[list[int]] = [[] for _ in queries]
    for query_numbers, entries in tree.query_many(np.array(queries).T.copy()):
        for number, entry in zip(query_numbers.tolist(), entries.tolist(), strict=True):
            many[number].append(entry)
    assert [sorted(result) for result in many] == expected


@pytest.mark.parametrize("equal", [3, 6, 9, 12])
@pytest.mark.parametrize("others", [1, 2, 5])
def test_equal_corners_stay_found_while_others_are_removed(
    equal: int, others: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No cut separates equal corners: their leaf has several blocks, which are emptied one after the other."""
    monkeypatch.setattr(bounds_module, "BLOCK_SIZE", 4)
    monkeypatch.setattr(bounds_module, "INITIAL_BLOCK_SIZE", 4)
    for first in range(equal):
        places = Places()
        places.reserve(equal + others)
        tree = Bounds((Side(0, False), Side(1, False)), places)
        for entry in reversed(range(equal + others)):
            tree.insert(entry, (0.0, 0.0) if entry < equal else (5.0 + entry, 5.0 + entry))
        left = [(first + step) % equal for step in range(equal)] + list(range(equal, equal + others))
        left = left[::2] + left[1::2]
        while left:
            tree.remove(left.pop(0))
            assert sorted(tree.query(np.array([99.0, 99.0]))[0].tolist()) == sorted(left)
            assert tree.size == len(left)


def test_few_corners_need_little_memory() -> None:
    """The first block doubles up to the full size; others have it."""
    places = Places()
    places.reserve(500)
    tree = Bounds((Side(0, False),), places)
    sizes = []
    for entry in range(129):
        tree.insert(entry, (0.0,))
        sizes.append(tree.corners.shape[2])
    first, full = bounds_module.INITIAL_BLOCK_SIZE, bounds_module.BLOCK_SIZE
    doubled = [first << power for power in range(8) if first << power <= full]
    assert list(dict.fromkeys(sizes)) == doubled
    assert [sizes.index(size) for size in doubled[1:]] == doubled[:-1]


def test_moving_corners_do_not_accumulate_blocks() -> None:
    places = Places()
    places.reserve(500)
    tree = Bounds((Side(0, False), Side(0, True)), places)
    for entry in range(500):
        tree.insert(entry, (float(entry), -float(entry)))
    initial_blocks = tree.blocks
    for step in range(1, 40):
        for entry in range(0, 500, 3):
            tree.move(entry, (entry + step * 1000.0, -(entry + step * 1000.0)))
    assert tree.blocks <= 4 * initial_blocks + 8
