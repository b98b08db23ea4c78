"""Small random histories that use all features of histories."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from mudkit.consistency import Content, History, Kind, Operation, Outcome

Pick = Callable[[Sequence], object]


def draw_history(pick: Pick, max_operations: int = 6) -> History:
    """Draw a history of one record with at most ``max_operations`` operations.

    ``pick`` chooses one of a sequence: ``random.Random(seed).choice``, or a function over Hypothesis's draws.
    """
    clients = pick(("ab", "ab", "abc", "a"))
    are_versioned = pick((None, None, True, "some"))
    are_distinct = pick((True, True, True, False))
    has_trouble = pick((False, True))  # conflicts, refusals, pending writes, conditions
    is_race = pick((False, False, True))  # conditional writes that succeed, which make forks
    is_sequential = pick((True, True, False))
    count = pick(range(1, max_operations + 1))
    free = dict.fromkeys(clients, 0)
    numbers = list(range(1, count + 2))
    drafts = []
    for number in range(count):
        client = pick(clients)
        begin = free[client] + pick((0, 1, 1, 2)) if is_sequential else pick(range(8))
        end = begin + pick((0, 1, 1, 2, 4))
        free[client] = end
        is_write = pick((True, is_race, False))
        value = (str(number + 1) if are_distinct else pick("12")) if is_write else None
        if is_write and has_trouble and pick((True, *(False,) * 7)):
            value = None
        drafts.append((client, begin, end, is_write, value))
    written = [value for *_, is_write, value in drafts if is_write]
    versions = {}
    for number, draft in enumerate(drafts):
        if draft[3] and are_versioned and (are_versioned is True or pick((True, False))):
            version = pick(numbers) if pick((True, *(False,) * 5)) else numbers[0]
            if version in numbers and (len(numbers) > 1):
                numbers.remove(version)
            versions[number] = version

    def draw_content(of_version: bool) -> Content:
        if of_version and versions and pick((True, True, False)):
            number = pick(sorted(versions))
            return Content(drafts[number][4] if pick((True, False)) else None, versions[number])
        if of_version and pick((True, False, False)):
            return Content(None, 0)
        value = pick([*written, *written, None])
        return Content(
            value, pick(range(1, 5)) if of_version and value and pick((True, False, False)) else None
        )

    operations = []
    for number, (client, begin, end, is_write, value) in enumerate(drafts):
        outcome = Outcome.OK
        expected = result = None
        if is_write and is_race and pick((True, True, False)):
            expected = Content(pick([None, *(past for _, _, _, wrote, past in drafts[:number] if wrote)]))
        elif is_write and has_trouble:
            outcome = pick((Outcome.OK, Outcome.OK, Outcome.CONFLICT, Outcome.PENDING, Outcome.FAILED))
            if outcome is Outcome.CONFLICT or pick((True, False)):
                expected = draw_content(bool(are_versioned))
            if outcome is Outcome.CONFLICT and pick((True, False)):
                result = draw_content(bool(are_versioned))
        content = (
            Content(value, versions.get(number) if outcome is Outcome.OK else None)
            if is_write
            else draw_content(bool(are_versioned))
        )
        operations.append(Operation(
            client, number, "x", Kind.WRITE if is_write else Kind.READ, begin, None if outcome is Outcome.PENDING else end,
            content, None, outcome, expected, result,
        ))  # fmt: skip
    return History(operations)


def draw_seeded_history(seed: int, max_operations: int = 6) -> History:
    """Draw a history from a seed."""
    return draw_history(random.Random(seed).choice, max_operations)


def draw_restored_history(seed: int) -> History:
    """Draw a history in which a client is restored, and makes a refused write of its backup again.

    As another client it waits for a second refusal; any client may read the write at any time.
    """
    rng = random.Random(seed)
    value = "again" if rng.random() < 0.5 else "refused"
    refused = rng.choice((Outcome.CONFLICT, Outcome.FAILED))
    begin = rng.choice((2, 4, 6))
    drafts = [("a", Kind.WRITE, 0, 4, "refused", refused), ("b", Kind.WRITE, 2, 3, "other", Outcome.OK)]
    if rng.random() < 0.8:
        drafts.append(("r", Kind.WRITE, begin, begin + 4, value, rng.choice((refused, Outcome.PENDING))))
    for _ in range(rng.randint(1, 6 - len(drafts))):
        at = rng.randrange(12)
        drafts.append(
            (
                rng.choice("abrr"),
                Kind.READ,
                at,
                at,
                rng.choice((value, value, "refused", "other")),
                Outcome.OK,
            )
        )
    return History(
        Operation(
            client, number, "x", kind, begin_us, None if outcome is Outcome.PENDING else end_us,
            Content(written), None, outcome, Content() if kind is Kind.WRITE else None,
        )
        for number, (client, kind, begin_us, end_us, written, outcome) in enumerate(drafts)
    )  # fmt: skip


def simulate_history(
    seed: int,
    *,
    operations: int,
    clients: int,
    versions: bool,
    stale: int = 0,
    forks: bool = False,
    shuffled: bool = False,
) -> History:
    """Record a store: clients read versions that are up to ``stale`` behind, but never older than those they saw.

    With ``forks`` every client has a separate branch after half of the operations; ``shuffled`` makes some reads
    return any version.
    """
    rng = random.Random(seed)
    stores: list[list[str]] = [[]]
    branch = dict.fromkeys(range(clients), 0)
    seen = dict.fromkeys(range(clients), 0)
    t_us, result = 0, []
    for number in range(operations):
        t_us += rng.randint(1, 5)
        client = rng.randrange(clients)
        if forks and number == operations // 2:
            stores = [list(stores[0]) for _ in range(clients)]
            branch = {number: number for number in range(clients)}
        store = stores[branch[client]]
        begin, end = t_us - rng.randint(0, 4), t_us + rng.randint(0, 4)
        if rng.random() < 0.35:
            is_conditional = forks and rng.random() < 0.5
            expected = Content(store[-1] if store else None) if is_conditional else None
            store.append(f"v{number}")
            seen[client] = len(store)
            version = len(store) if versions and len(stores) == 1 else None
            result.append(
                Operation(
                    f"c{client}",
                    number,
                    "x",
                    Kind.WRITE,
                    begin,
                    end,
                    Content(store[-1], version),
                    expected=expected,
                )
            )
            continue
        at = max(seen[client], len(store) - rng.randint(0, stale))
        seen[client] = at
        if shuffled and rng.random() < 0.1:
            at = rng.randint(0, len(store))
        value = store[at - 1] if at else None
        known = versions and (len(stores) == 1 or at == 0)
        result.append(
            Operation(f"c{client}", number, "x", Kind.READ, begin, end, Content(value, at if known else None))
        )
    return History(result)
